/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random tapes: each is run with and without the rewrites of tapes, under three budgets, and
 * compared with fp64 (trial.c).  A tape that fails is made smaller and printed as a C recorder.
 *
 *     test_tapes [TAPES [SEED]]
 *
 * Without arguments: as many tapes as a minute allows, always the same ones.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "trial.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(struct recording *r, int64_t seed, struct verdict *v)
{
    printf("FAIL tape %" PRId64 ", %d calls: %s\n", seed, r->n_calls, v->text);
    shrink(r, v);
    printf("shrunk to %d calls: %s\n\n", r->n_calls, v->text);
    recording_print(r, stdout);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int64_t tapes = argc > 1 ? atoll(argv[1]) : INT64_MAX,
                  seed = argc > 2 ? atoll(argv[2]) : 1;
    const double begin = now();
    int64_t n = 0, skipped = 0, calls = 0;
    int failures = 0;
    static struct recording r;
    for (int64_t i = 0; n < tapes && failures < 5 && (argc > 1 || now() < begin + 50); i++) {
        struct verdict v;
        recording_draw(&r, seed + i);
        trial(&r, &v);
        n += v.checked;
        skipped += !v.checked;
        calls += v.checked ? r.n_calls : 0;
        if (v.failure) {
            report(&r, seed + i, &v);
            failures++;
        }
    }
    printf("%" PRId64 " tapes of %" PRId64 " calls, %" PRId64
           " more not compared, %d failed; %.0f seconds\n",
           n, n ? calls / n : 0, skipped, failures, now() - begin);
    return failures != 0;
}
