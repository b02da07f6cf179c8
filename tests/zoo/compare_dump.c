/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the dump of a program of the zoo (--dump) with fp64 numbers of the same three steps.
 *
 *     compare_dump REFERENCE DUMP
 *
 * The reference, which tests/zoo/reference.py --write makes, has a line per number or tensor:
 *
 *     loss 0 VALUE VALUE VALUE        of program 0, for each step; norm: of its gradient
 *     input NAME LENGTH SUM ...       of a first value, or of what was fed and drawn
 *     gradient NAME LENGTH SUM ...    of the first step
 *
 * LENGTH is the L2 norm, and each SUM adds all elements with random signs: the mean square of the
 * differences of these sums is that of the L2 norm of the difference.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"

enum { SUMS = 8, STEPS = 3, LONGEST = 1 << 24 };

/* Bounds, relative.  fp32 on the CPU stays below them with OpenBLAS's kernels for every kind of
 * processor (doc/zoo.md).  Later losses follow updates of AdamW, which magnify rounding. */
static const double input_bound = 1e-6, loss_bound = 1e-6, later_bound = 5e-6, norm_bound = 2e-5,
                    gradient_bound = 2e-6, worst_bound = 1e-5;

struct total {
    double size, error; /* squares, of all gradients */
    double worst;
    double norm; /* of the first step of any program */
    char name[200];
    int lines;
};

static float *read_tensor(ckpt_file *f, const char *name, int64_t *n)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    const int i = ckpt_file_find(f, name);

    if (i < 0 || ckpt_file_entry(f, i, &e))
        return NULL;
    *n = 1;
    for (int k = 0; k < e.ndim; k++)
        *n *= e.shape[k];
    float *x = *n <= LONGEST ? malloc((size_t)*n * sizeof *x) : NULL;
    int32_t *index = (int32_t *)x;
    if (x && ckpt_file_read_f32(f, i, x, *n)) {
        if (ckpt_file_read_i32(f, i, index, *n)) {
            free(x);
            return NULL;
        }
        for (int64_t k = 0; k < *n; k++)
            x[k] = (float)index[k];
    }
    return x;
}

/* Bit k decides the sign of element i in sum k. */
static uint32_t signs(uint32_t i)
{
    uint32_t h = i * 0x9e3779b1u;

    h = (h ^ h >> 15) * 0x85ebca77u;
    return (h ^ h >> 13) >> 5;
}

static void add_up(const float *x, int64_t n, double *sum)
{
    memset(sum, 0, SUMS * sizeof *sum);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < SUMS; k++)
            sum[k] += signs((uint32_t)i) >> k & 1 ? (double)x[i] : -(double)x[i];
}

static int fail(const char *kind, const char *name, double error, double bound)
{
    return printf("%s %s: off by %.2e, more than %.0e\n", kind, name, error, bound) > 0;
}

/* loss or norm of each step of a program. */
static int check_numbers(ckpt_file *f, const char *kind, const char *number, const char *rest,
                         struct total *t)
{
    const bool losses = strcmp(kind, "loss") == 0;
    double want[STEPS];
    char name[240];
    int64_t n = 0;
    int failures = 0;

    snprintf(name, sizeof name, "%s.%s", number, kind);
    float *x = read_tensor(f, name, &n);
    if (!x || n != STEPS || sscanf(rest, "%lf %lf %lf", want, want + 1, want + 2) != STEPS) {
        free(x);
        return printf("%s: not in the dump\n", name) > 0;
    }
    for (int i = 0; i < STEPS; i++) {
        const double bound = !losses ? norm_bound : i ? later_bound : loss_bound;
        const double error = fabs((double)x[i] - want[i]) / fabs(want[i]);
        failures += error <= bound ? 0 : fail(kind, number, error, bound);
    }
    if (!losses)
        t->norm = fmax(t->norm, want[0]);
    free(x);
    return failures;
}

static int check_tensor(ckpt_file *f, const char *kind, const char *name, const char *rest,
                        struct total *t)
{
    double want[SUMS], sum[SUMS], size = 0, error = 0;
    int64_t n = 0;
    int used = 0;
    float *x = read_tensor(f, name, &n);

    if (!x || sscanf(rest, "%lf%n", &size, &used) != 1) {
        free(x);
        return printf("%s: not in the dump, or another size\n", name) > 0;
    }
    for (int k = 0; k < SUMS; k++) {
        char *end;
        want[k] = strtod(rest + used, &end);
        used = (int)(end - rest);
    }
    add_up(x, n, sum);
    free(x);
    for (int k = 0; k < SUMS; k++)
        error += (sum[k] - want[k]) * (sum[k] - want[k]) / SUMS;
    if (strcmp(kind, "input") == 0)
        return sqrt(error) <= input_bound * (size + 1e-30)
                   ? 0
                   : fail(kind, name, sqrt(error) / size, input_bound);
    t->size += size * size;
    t->error += error;
    /* A gradient that is a thousandth of all is measured against that. */
    const double worst = sqrt(error) / fmax(size, 1e-3 * t->norm);
    if (!(worst <= t->worst)) {
        t->worst = isfinite(worst) ? worst : INFINITY;
        snprintf(t->name, sizeof t->name, "%s", name);
    }
    return 0;
}

static int check_line(ckpt_file *f, const char *line, struct total *t)
{
    char kind[20], name[200];
    int used;

    if (*line == '#' || sscanf(line, "%19s %199s%n", kind, name, &used) != 2)
        return 0;
    t->lines++;
    if (strcmp(kind, "loss") == 0 || strcmp(kind, "norm") == 0)
        return check_numbers(f, kind, name, line + used, t);
    return check_tensor(f, kind, name, line + used, t);
}

int main(int argc, char **argv)
{
    struct total t = {0};
    ckpt_file *dump;
    char line[1000];
    int failures = 0;
    FILE *f = argc == 3 ? fopen(argv[1], "r") : NULL;

    if (!f || ckpt_file_open(&dump, argv[2]))
        return printf("compare_dump REFERENCE DUMP: %s\n", f ? ckpt_error(NULL) : "no reference"),
               2;
    while (fgets(line, sizeof line, f))
        failures += check_line(dump, line, &t);
    fclose(f);
    ckpt_file_close(dump);
    const double error = sqrt(t.error / t.size);
    if (!(error <= gradient_bound))
        failures += fail("gradient", "of all parameters", error, gradient_bound);
    if (!(t.worst <= worst_bound))
        failures += fail("gradient", t.name, t.worst, worst_bound);
    printf("gradients off by %.1e, the worst by %.1e, in %d lines\n", error, t.worst, t.lines);
    return failures || !t.lines;
}
