/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards: samples for pt2-train from a reference (tests/import/README).
 *
 *     shards REFERENCE FOLDER COPIES FILES [npy]
 *
 * Writes COPIES times the samples of each input.NAME and target.0 of the reference, as NAME and
 * target, into FILES safetensors files or a .npy file for each tensor.  Copy c has floats times 1 +
 * c / 8, and whole numbers plus c modulo the largest plus 1; make_steps.py makes the same samples.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"

struct tensor {
    char name[200];
    bool whole;
    int ndim;
    int64_t shape[CKPT_MAX_DIMS], row; /* row: values of a sample */
    float *values;                     /* whole: i32 */
};

static int fail(const char *what)
{
    fprintf(stderr, "shards: %s: %s\n", what, ckpt_error(NULL));
    return 1;
}

static void copy_value(const struct tensor *x, int64_t from, int64_t to, int64_t c, int32_t most)
{
    int32_t *whole = (int32_t *)(void *)x->values;

    if (x->whole)
        whole[to] = (int32_t)((whole[from] + c) % (most + 1));
    else
        x->values[to] = x->values[from] * (1 + (float)c / 8);
}

static int read_tensor(ckpt_file *f, int i, const struct ckpt_file_entry *e, struct tensor *x,
                       int64_t copies)
{
    int32_t most = 0;

    snprintf(x->name, sizeof x->name, "%s", e->name[0] == 'i' ? e->name + 6 : "target");
    x->whole = !strcmp(e->dtype, "I64") || !strcmp(e->dtype, "I32");
    x->ndim = e->ndim;
    memcpy(x->shape, e->shape, sizeof x->shape);
    x->row = e->numel / (e->ndim ? e->shape[0] : 1);
    x->values = malloc((size_t)(e->numel * copies) * 4);
    if (!x->values || (x->whole ? ckpt_file_read_i32(f, i, (int32_t *)(void *)x->values, e->numel)
                                : ckpt_file_read_f32(f, i, x->values, e->numel)))
        return -1;
    for (int64_t k = 0; x->whole && k < e->numel; k++)
        most = ((int32_t *)(void *)x->values)[k] > most ? ((int32_t *)(void *)x->values)[k] : most;
    for (int64_t c = copies - 1; c >= 0; c--)
        for (int64_t k = 0; k < e->numel; k++)
            copy_value(x, k, c * e->numel + k, c, most);
    x->shape[0] *= copies;
    return 0;
}

static int write_part(const char *folder, int part, int parts, int n, const struct tensor *x)
{
    char path[4200];
    ckpt_file_writer *w;

    snprintf(path, sizeof path, "%s/part-%03d.safetensors", folder, part);
    if (ckpt_file_create(&w, path))
        return -1;
    for (int i = 0; i < n; i++) {
        int64_t shape[CKPT_MAX_DIMS];
        const int64_t all = x[i].ndim ? x[i].shape[0] : 1;
        const int64_t first = all * part / parts, end = all * (part + 1) / parts;
        memcpy(shape, x[i].shape, sizeof shape);
        shape[0] = end - first;
        if (ckpt_file_add(w, x[i].name, x[i].whole ? CKPT_I32 : CKPT_F32, x[i].ndim, shape,
                          x[i].values + first * x[i].row))
            return -1;
    }
    return ckpt_file_commit(w);
}

/* Whole numbers as i64, as NumPy has them. */
static int write_npy(const char *folder, const struct tensor *x)
{
    char path[4200], header[118 + 1], shape[100] = "";
    int64_t numel = 1;

    for (int i = 0; i < x->ndim; i++) {
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%lld,",
                 (long long)x->shape[i]);
        numel *= x->shape[i];
    }
    snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
             x->whole ? "<i8" : "<f4", shape);
    snprintf(path, sizeof path, "%s/%s.npy", folder, x->name);
    FILE *f = fopen(path, "wb");
    if (!f)
        return -1;
    fprintf(f, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, header);
    for (int64_t k = 0; k < numel; k++) {
        const int64_t whole = ((const int32_t *)(const void *)x->values)[k];
        fwrite(x->whole ? (const void *)&whole : (const void *)&x->values[k], x->whole ? 8 : 4, 1,
               f);
    }
    return fclose(f);
}

int main(int argc, char **argv)
{
    struct tensor x[32];
    ckpt_file *f;
    int n = 0, rc = 0;

    if (argc < 5)
        return 2;
    const bool npy = argc > 5 && !strcmp(argv[5], "npy");
    if (ckpt_file_open(&f, argv[1]))
        return fail(argv[1]);
    for (int i = 0; i < ckpt_file_count(f) && n < 32 && !rc; i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        ckpt_file_entry(f, i, &e);
        if (!strncmp(e.name, "input.", 6) || !strcmp(e.name, "target.0"))
            rc = read_tensor(f, i, &e, &x[n++], atoi(argv[3]));
    }
    ckpt_file_close(f);
    for (int part = 0; part < atoi(argv[4]) && !rc && !npy; part++)
        rc = write_part(argv[2], part, atoi(argv[4]), n, x);
    for (int i = 0; i < n && !rc && npy; i++)
        rc = write_npy(argv[2], &x[i]);
    for (int i = 0; i < n; i++)
        free(x[i].values);
    return rc ? fail(argv[2]) : 0;
}
