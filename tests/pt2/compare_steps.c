/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare_steps: weights after some steps against those of PyTorch (make_steps.py).
 *
 *     compare_steps REFERENCE MODEL WEIGHTS
 *
 * REFERENCE has of each parameter MODEL/value/NAME, evenly spread elements, and MODEL/limit/NAME,
 * how far those of WEIGHTS may be from them.  Exits 0, or 1 after a line for each that is farther.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"

enum { MOST = 64 };

static float read_limit(ckpt_file *f, const char *model, const char *name)
{
    char whole[600];
    float limit = -1;

    snprintf(whole, sizeof whole, "%s/limit/%s", model, name);
    const int i = ckpt_file_find(f, whole);
    return i < 0 || ckpt_file_read_f32(f, i, &limit, 1) ? -1 : limit;
}

/* The largest difference over the limit. */
static double compare(ckpt_file *f, int i, ckpt_file *weights, const char *model, const char *name)
{
    struct ckpt_file_entry want = CKPT_FILE_ENTRY_INIT, have = CKPT_FILE_ENTRY_INIT;
    const int at = ckpt_file_find(weights, name);
    float value[MOST], x;
    double most = 0;

    if (at < 0 || ckpt_file_entry(f, i, &want) || ckpt_file_entry(weights, at, &have) ||
        want.numel > MOST || ckpt_file_read_f32(f, i, value, want.numel))
        return INFINITY;
    const double limit = (double)read_limit(f, model, name);
    for (int64_t k = 0; k < want.numel; k++) {
        if (ckpt_file_read_part_f32(weights, at, k * have.numel / want.numel, &x, 1))
            return INFINITY;
        most = fmax(most, fabs((double)x - (double)value[k]) / limit);
    }
    return limit > 0 ? most : INFINITY;
}

int main(int argc, char **argv)
{
    ckpt_file *f, *weights;
    char prefix[200];
    double worst = 0;
    int n = 0, bad = 0;

    if (argc != 4)
        return 2;
    if (ckpt_file_open(&f, argv[1]) || ckpt_file_open(&weights, argv[3])) {
        printf("%s\n", ckpt_error(NULL));
        return 1;
    }
    snprintf(prefix, sizeof prefix, "%s/value/", argv[2]);
    for (int i = 0; i < ckpt_file_count(f); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        ckpt_file_entry(f, i, &e);
        if (strncmp(e.name, prefix, strlen(prefix)))
            continue;
        const char *name = e.name + strlen(prefix);
        const double off = compare(f, i, weights, argv[2], name);
        worst = fmax(worst, off);
        n++;
        bad += !(off <= 1);
        if (!(off <= 1))
            printf("%s: %s: %.2f of its limit\n", argv[2], name, off);
    }
    printf("%s: %d parameters, the farthest at %.2f of its limit\n", argv[2], n, worst);
    ckpt_file_close(f);
    ckpt_file_close(weights);
    return bad || !n;
}
