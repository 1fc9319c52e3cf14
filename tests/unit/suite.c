/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * suite.c - the end of every unit test's main function.
 */
#include "suite.h"

#include <stdlib.h>

int suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);

    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
