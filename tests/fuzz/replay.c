/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * replay.c - feeds a fuzzer without libFuzzer: the files that are given, then random inputs for
 * so long as FOLDFS_TEST_SCALE says (10 seconds each).  Prints one TAP line.
 *
 * Random inputs are short programs rather than noise: bytes are drawn from a few values that
 * parsers stumble over as often as from all.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fuzz.h"
#include "index-model.h"

#define SECONDS   10
#define INPUT_MAX 600

static void feed_file(const char *path)
{
    FILE *file = fopen(path, "rbe");
    uint8_t *data = malloc(1 << 20);
    size_t n;

    if (!file || !data) {
        tap_fail("%s: %m", path);
        free(data);
        return;
    }
    n = fread(data, 1, 1 << 20, file);
    fclose(file);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
}

static size_t draw(struct rng *rng, uint8_t *data)
{
    static const uint8_t special[] = {0x00, 0xff, 0x7f, 0x80, 0xc3,
                                      0xe1, 0xf0, 0x41, 0x61, 0x01};
    size_t n = rng_below(rng, 1 + rng_below(rng, INPUT_MAX));

    for (size_t i = 0; i < n; i++)
        data[i] = rng_once_in(rng, 2) ? (uint8_t)rng_next(rng)
                                      : special[rng_below(rng, sizeof(special))];
    return n;
}

int main(int argc, char **argv)
{
    struct rng rng = {tap_seed()};
    uint8_t data[INPUT_MAX];
    const char *slash = strrchr(argv[0], '/');
    time_t end = time(NULL) + (time_t)SECONDS * tap_scale();
    unsigned long inputs = 0;
    char name[200];

    for (int i = 1; i < argc; i++, inputs++)
        feed_file(argv[i]);
    for (; time(NULL) < end && !tap_failures(); inputs++)
        LLVMFuzzerTestOneInput(data, draw(&rng, data));
    tap_diag("%lu inputs", inputs);
    snprintf(name, sizeof(name), "%s_survives_any_input", slash ? slash + 1 : argv[0]);
    for (char *dash = strchr(name, '-'); dash; dash = strchr(dash, '-'))
        *dash = '_';
    tap_line(name);
    return tap_end();
}
