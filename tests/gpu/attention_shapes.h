/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared parts of the tests of attention on a GPU: shapes, memory layouts of operands, and the
 * device.  A test includes this file once and provides a function that tests one shape.
 */
#ifndef CKPT_TESTS_GPU_ATTENTION_SHAPES_H
#define CKPT_TESTS_GPU_ATTENTION_SHAPES_H

#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "ckpt_tools.h"
#include "core/bits.h"
#include "kernels/cpu/blas.h"
#include "kernels/cuda/libs.h"
#include "must.h"

enum { AGAIN = 20 }; /* runs that must give the same bits, where blocks wait for each other */

/* Memory layouts of operands.  PADDED: dense, one inner axis, and lens are lengths of sequences. */
enum layout { DENSE, FUSED, SWAPPED, PADDED };

struct shape {
    int64_t outer, inner, queries, keys, heads, shared, width;
    bool causal;
    int64_t window;
    enum layout layout; /* FUSED: q, k and v side by side; SWAPPED: the leading axes */
    int lens[4];        /* packed keys, where the first is not negative */
};

static struct cuda_libs *libs;

static void check(bool ok, const char *what, const struct shape *s)
{
    expect(ok,
           "%s: [%lld, %lld], %lld x %lld, heads %lld of %lld, width %lld, causal %d, "
           "window %lld, layout %d, lens %d",
           what, (long long)s->outer, (long long)s->inner, (long long)s->queries,
           (long long)s->keys, (long long)s->heads, (long long)s->shared, (long long)s->width,
           s->causal, (long long)s->window, s->layout, s->lens[0]);
}

/* ---- operands ------------------------------------------------------------------------------- */

static bool is_packed(const struct shape *s)
{
    return s->lens[0] >= 0 && s->layout != PADDED;
}

/* With a single key the score does not affect the result; the op records scale 0 then. */
static float scale_of(const struct shape *s)
{
    return s->keys == 1 ? 0.f : (float)(1 / sqrt((double)s->width));
}

/* Number of packed rows that belong to a sequence. */
static int64_t used_keys(const struct shape *s)
{
    int64_t used = 0;
    for (int i = 0; i < s->outer; i++)
        used += s->lens[i];
    return used;
}

/* [outer, inner, rows, heads, width]; SWAPPED: inner before outer in memory; FUSED: one of three
 * groups of heads. */
static struct ckpt_desc rows_desc(const struct shape *s, int64_t rows, int64_t heads, bool fused)
{
    struct ckpt_desc d = {
        .dtype = CKPT_BF16, .ndim = 5, .shape = {s->outer, s->inner, rows, heads, s->width}};
    desc_dense(&d);
    for (int i = 0; fused && i < 3; i++)
        d.stride[i] *= 3;
    if (s->layout == SWAPPED) {
        d.stride[0] = d.stride[1];
        d.stride[1] *= s->outer;
    }
    return d;
}

/* For queries and tensors of their shape; with packed keys they have one leading axis. */
static struct ckpt_desc queries_desc(const struct shape *s, bool fused)
{
    struct ckpt_desc d = rows_desc(s, s->queries, s->heads, fused);
    if (!is_packed(s))
        return d;
    memmove(d.shape + 1, d.shape + 2, 3 * sizeof *d.shape);
    d.ndim = 4;
    desc_dense(&d);
    return d;
}

static struct ckpt_desc keys_desc(const struct shape *s, bool fused)
{
    struct ckpt_desc d = {.dtype = CKPT_BF16, .ndim = 3, .shape = {s->keys, s->shared, s->width}};
    if (!is_packed(s))
        return rows_desc(s, s->keys, s->shared, fused);
    desc_dense(&d);
    return d;
}

static struct ckpt_desc lse_desc(const struct shape *s)
{
    struct ckpt_desc d = {
        .dtype = CKPT_F32, .ndim = 4, .shape = {s->outer, s->inner, s->heads, s->queries}};
    if (is_packed(s)) {
        d.ndim = 3;
        memmove(d.shape + 1, d.shape + 2, 2 * sizeof *d.shape);
    }
    desc_dense(&d);
    return d;
}

static struct ckpt_desc lens_desc(const struct shape *s)
{
    const int ndim = s->layout == PADDED ? 2 : 1;
    struct ckpt_desc d = {.dtype = CKPT_I32, .ndim = ndim, .shape = {s->outer, 1}};
    desc_dense(&d);
    return d;
}

/* The rows of sequence i that a padded call must not read. */
static void spoil_padding(const struct shape *s, void *rows, int i)
{
    const int64_t row = 2 * s->shared * s->width;
    const int n = s->lens[i] < s->keys ? s->lens[i] : (int)s->keys;
    memset((char *)rows + (i * s->keys + n) * row, 0xff, (size_t)((s->keys - n) * row));
}

/* Fills rows of no sequence with NaN (0xff in every byte); `bytes` is the size of all rows. */
static void spoil_spare_rows(const struct shape *s, void *rows, int64_t bytes)
{
    for (int i = 0; s->layout == PADDED && i < s->outer; i++)
        spoil_padding(s, rows, i);
    if (s->layout == PADDED)
        return;
    const int64_t used = 2 * used_keys(s) * s->shared * s->width;
    if (used < bytes)
        memset((char *)rows + used, 0xff, (size_t)(bytes - used));
}

static double value_of(const void *p, enum ckpt_dtype dtype, int64_t i)
{
    if (dtype == CKPT_F32)
        return ((const float *)p)[i];
    return float_of_bits((uint32_t)((const uint16_t *)p)[i] << 16);
}

/* The largest magnitude of n elements, as the bits of an fp32. */
static uint32_t largest_of(const void *p, enum ckpt_dtype dtype, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits((float)value_of(p, dtype, i)) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* ---- the test ------------------------------------------------------------------------------- */

/* Lengths on both sides of the kernels' tile sizes; m differs from n. */
static void for_lengths(int64_t width, void (*test)(int64_t width, int64_t n, int64_t m))
{
    static const int64_t lengths[] = {1, 63, 65, 119, 184, 185, 920, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        test(width, lengths[i], lengths[(i + 3) % 8]);
}

/* Packed keys whose sequences fit in shared memory, and others that do not: lengths around the
 * kernels' chunks, none, one, as many as fit (with 5 spare rows), and more. */
static void for_texts(int64_t width, void (*test)(const struct shape *s))
{
    static const int lens[][4] = {{300},         {226},          {1},           {0},
                                  {80, 81, 240}, {160, 161, 0},  {241, 1},      {304, 17, 63},
                                  {305, 120},    {64, 128, 129}, {700},         {20, 300, 77},
                                  {315},         {64, 65, 100},  {128, 0, 187}, {39, 40, 200}};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
        for (int64_t queries = 1; queries < 1000; queries = queries * 7 + 58) {
            struct shape s = {0, 1, queries, 5, 3, 3, width, false, 0, DENSE, {0}};
            memcpy(s.lens, lens[i], sizeof s.lens);
            s.outer = i < 4 || i == 10 || i == 12 ? 1 : i == 6 || i == 8 ? 2 : 3;
            s.keys += used_keys(&s);
            test(&s);
        }
}

/* Padded sequences: whole tiles without keys, a part of one, one key, none, and all of them. */
static void for_padding(int64_t width, void (*test)(const struct shape *s))
{
    static const int lens[][4] = {
        {512, 77, 1, 0}, {128, 511, 129, 300}, {64, 65, 256, 512}, {2, 0, 3, 1}};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
        for (int causal = 0; causal < 2; causal++) {
            struct shape s = {4, 1, 512, 512, 12, 12, width, causal, 0, PADDED, {0}};
            memcpy(s.lens, lens[i], sizeof s.lens);
            test(&s);
            s.queries = 100; /* chunks, and fewer queries than keys */
            s.shared = 4;
            test(&s);
        }
}

/* Returns main's exit status: 77 without a GPU. */
static int test_widths(int argc, char **argv, void (*test)(int64_t width))
{
    static const int64_t widths[] = {32, 40, 48, 64, 72, 80, 96, 128, 256};
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("no GPU here\n");
        return 77;
    }
    must(!blas_open(1), "blas"); /* no CPU device does it */
    must(!cuda_libs_open(&libs), "device");
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (argc < 2 || strtol(argv[1], NULL, 10) == widths[i])
            test(widths[i]);
    cuda_libs_close(libs);
    return test_result();
}

#endif
