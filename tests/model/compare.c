/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare: how far a dump of the trainer is from the reference.
 *
 *     compare EXPECTED ACTUAL TOLERANCE FLOOR
 *
 * Distances are relative: |actual - expected| / |expected| in the L2 norm.  TOLERANCE bounds those
 * of the loss, the prediction, all gradients taken as one vector, and each gradient alone.  A
 * gradient smaller than FLOOR times the norm of all gradients is measured against that instead: it
 * is what is left of large terms that cancel, and their rounding does not cancel. Every tensor of
 * EXPECTED must be in ACTUAL, and every gradient of ACTUAL in EXPECTED. Exits 0 (close enough), 1
 * (not), 2 (usage or a file that cannot be read).
 */
#include "ckpt_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct distance {
    double error, norm; /* sums of squares */
};

struct comparison {
    ckpt_file *expected, *actual;
    double tolerance;
    double floor;             /* the smallest norm a gradient is measured against */
    struct distance gradient; /* all gradients */
    double worst;
    char worst_name[256];
    int failures, compared;
};

static double relative(struct distance d, double floor)
{
    return sqrt(d.error) / fmax(sqrt(d.norm), floor + 1e-300);
}

static bool is_gradient(const char *name)
{
    return strncmp(name, "grad.", 5) == 0;
}

static void fail(struct comparison *c, const char *name, const char *why)
{
    fprintf(stderr, "compare: %s: %s\n", name, why);
    c->failures++;
}

static float *read_values(ckpt_file *f, int i, int64_t n)
{
    float *x = malloc((size_t)(n > 0 ? n : 1) * sizeof(*x));
    if (x && ckpt_file_read_f32(f, i, x, n)) {
        free(x);
        return NULL;
    }
    return x;
}

static struct distance measure(const float *expected, const float *actual, int64_t n)
{
    struct distance d = {0, 0};
    for (int64_t i = 0; i < n; i++) {
        double e = (double)actual[i] - expected[i];
        d.error += e * e;
        d.norm += (double)expected[i] * expected[i];
    }
    return d;
}

/* A scalar may be stored with no axis or with one of size 1. */
static bool same_shape(const struct ckpt_file_entry *a, const struct ckpt_file_entry *b)
{
    if (a->numel == 1 && b->numel == 1)
        return true;
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape)) == 0;
}

/* A comparison with NaN is false, so the test asks for "within", never for "beyond". */
static void judge(struct comparison *c, const char *name, struct distance d)
{
    bool gradient = is_gradient(name);
    double r = relative(d, gradient ? c->floor : 0);
    if (gradient) {
        c->gradient.error += d.error;
        c->gradient.norm += d.norm;
        if (!(r <= c->worst)) {
            c->worst = r;
            snprintf(c->worst_name, sizeof(c->worst_name), "%s", name);
        }
    } else {
        printf("%-8s relative error %.3e\n", name, r);
    }
    if (!(r <= c->tolerance)) {
        char why[80];
        snprintf(why, sizeof(why), "relative error %.3e, allowed %.1e", r, c->tolerance);
        fail(c, name, why);
    }
    c->compared++;
}

static void compare_entry(struct comparison *c, int i)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT, a = CKPT_FILE_ENTRY_INIT;
    if (ckpt_file_entry(c->expected, i, &e))
        return fail(c, "expected", ckpt_error(NULL));
    int j = ckpt_file_find(c->actual, e.name);
    if (j < 0)
        return fail(c, e.name, "missing from the dump");
    if (ckpt_file_entry(c->actual, j, &a) || !same_shape(&e, &a))
        return fail(c, e.name, "the dump has another shape");
    float *x = read_values(c->expected, i, e.numel);
    float *y = read_values(c->actual, j, a.numel);
    if (x && y)
        judge(c, e.name, measure(x, y, e.numel));
    else
        fail(c, e.name, ckpt_error(NULL));
    free(x);
    free(y);
}

/* Turns the floor from a share of the norm of all gradients into a norm. */
static void scale_floor(struct comparison *c)
{
    double norm = 0;
    for (int i = 0; i < ckpt_file_count(c->expected); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        if (ckpt_file_entry(c->expected, i, &e) || !is_gradient(e.name))
            continue;
        float *x = read_values(c->expected, i, e.numel);
        norm += x ? measure(x, x, e.numel).norm : 0;
        free(x);
    }
    c->floor *= sqrt(norm);
}

static void find_unexpected(struct comparison *c)
{
    for (int j = 0; j < ckpt_file_count(c->actual); j++) {
        struct ckpt_file_entry a = CKPT_FILE_ENTRY_INIT;
        if (ckpt_file_entry(c->actual, j, &a) == 0 && is_gradient(a.name) &&
            ckpt_file_find(c->expected, a.name) < 0)
            fail(c, a.name, "in the dump, not in the reference");
    }
}

static int compare(struct comparison *c)
{
    scale_floor(c);
    for (int i = 0; i < ckpt_file_count(c->expected); i++)
        compare_entry(c, i);
    find_unexpected(c);
    double r = relative(c->gradient, 0);
    printf("gradient relative error %.3e, worst tensor %.3e: %s; allowed %.1e\n", r, c->worst,
           c->worst_name, c->tolerance);
    if (!(r <= c->tolerance))
        fail(c, "all gradients", "too far from the reference");
    if (c->compared < 3)
        fail(c, "expected", "fewer than three tensors to compare");
    return c->failures ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct comparison c = {0};
    if (argc != 5) {
        fprintf(stderr, "usage: compare EXPECTED ACTUAL TOLERANCE FLOOR\n");
        return 2;
    }
    c.tolerance = atof(argv[3]);
    c.floor = atof(argv[4]);
    if (ckpt_file_open(&c.expected, argv[1]) || ckpt_file_open(&c.actual, argv[2])) {
        fprintf(stderr, "compare: %s\n", ckpt_error(NULL));
        return 2;
    }
    int result = compare(&c);
    ckpt_file_close(c.expected);
    ckpt_file_close(c.actual);
    return result;
}
