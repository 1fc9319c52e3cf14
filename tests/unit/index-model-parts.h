/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-parts.h - the parts of test-index-model, each of which prints its TAP lines.
 */
#ifndef FOLDFS_TESTS_INDEX_MODEL_PARTS_H
#define FOLDFS_TESTS_INDEX_MODEL_PARTS_H

/* Histories written out.  FOLDER is for index directories. */
void index_model_stories(const char *folder);
/* Many threads against one index. */
void index_model_threads(const char *folder);

#endif
