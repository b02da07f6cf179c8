/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion of bf16 values to 8-bit codes in blocks, and back.  Compiled without fused
 * multiply-add (Makefile.am), so that all processors give the bits of the GPU.
 */
#include "core/int8.h"
#include "cpu.h"
#include "int8.h"
#include "kernels.h"

enum { PIECE = 64 }; /* blocks per loop iteration of a thread: 24 KiB are read and written */

/* 1.5 * 2^23: adding it to a float leaves the nearest integer (ties to even) in the low bits. */
#define ROUNDS      12582912.f
#define ROUNDS_BITS 0x4b400000

struct packed {
    int8_t *code;
    uint16_t *scale;
};

static struct packed packed_at(void *memory, int64_t blocks)
{
    int8_t *code = memory;
    return (struct packed){code, (uint16_t *)(void *)(code + blocks * INT8_BLOCK)};
}

static void encode_block(const uint16_t *x, int8_t *code, uint16_t *scale)
{
    uint16_t most = 0;
    for (int i = 0; i < INT8_BLOCK; i++) {
        const uint16_t a = x[i] & 0x7fff;
        most = a > most ? a : most;
    }
    *scale = (uint16_t)int8_scale(most);
    if (!int8_has_codes(*scale)) {
        memset(code, 0, INT8_BLOCK);
        return;
    }
    const float inverse = 1.f / bf16_load(*scale);
    for (int i = 0; i < INT8_BLOCK; i++)
        code[i] = (int8_t)(float_bits(bf16_load(x[i]) * inverse + ROUNDS) - ROUNDS_BITS);
}

CKPT_CLONES static void encode_int8_blocks(const uint16_t *x, int64_t blocks, int8_t *code,
                                           uint16_t *scale)
{
    for (int64_t b = 0; b < blocks; b++)
        encode_block(x + b * INT8_BLOCK, code + b * INT8_BLOCK, scale + b);
}

/* NaN has the same bits on every device. */
CKPT_CLONES static void decode_int8_blocks(const int8_t *code, const uint16_t *scale,
                                           int64_t blocks, uint16_t *x)
{
    for (int64_t b = 0; b < blocks; b++) {
        const float s = bf16_load(scale[b]);
        for (int i = 0; i < INT8_BLOCK; i++) {
            const float value = (float)code[b * INT8_BLOCK + i] * s;
            x[b * INT8_BLOCK + i] =
                scale[b] == INT8_NAN ? (uint16_t)INT8_NAN : (uint16_t)int8_to_bf16(value);
        }
    }
}

int cpu_to_int8(const struct ckpt_kernel_args *a)
{
    const uint16_t *x = a->in[0].data;
    const int64_t n = desc_numel(&a->in[0].desc), whole = n / INT8_BLOCK, blocks = int8_blocks(n);
    const struct packed p = packed_at(a->out[0].data, blocks);
#pragma omp parallel for schedule(static) if (whole > PIECE)
    for (int64_t i = 0; i < whole; i += PIECE)
        encode_int8_blocks(x + i * INT8_BLOCK, min_i64(PIECE, whole - i), p.code + i * INT8_BLOCK,
                           p.scale + i);
    if (whole < blocks) {
        uint16_t last[INT8_BLOCK] = {0};
        memcpy(last, x + whole * INT8_BLOCK, (size_t)(n - whole * INT8_BLOCK) * sizeof *x);
        encode_int8_blocks(last, 1, p.code + whole * INT8_BLOCK, p.scale + whole);
    }
    if (blocks % 2)
        p.scale[blocks] = 0; /* padding half of the last word */
    return CKPT_OK;
}

int cpu_from_int8(const struct ckpt_kernel_args *a)
{
    uint16_t *x = a->out[0].data;
    const int64_t n = desc_numel(&a->out[0].desc), whole = n / INT8_BLOCK, blocks = int8_blocks(n);
    const struct packed p = packed_at(a->in[0].data, blocks);
#pragma omp parallel for schedule(static) if (whole > PIECE)
    for (int64_t i = 0; i < whole; i += PIECE)
        decode_int8_blocks(p.code + i * INT8_BLOCK, p.scale + i, min_i64(PIECE, whole - i),
                           x + i * INT8_BLOCK);
    if (whole < blocks) {
        uint16_t last[INT8_BLOCK];
        decode_int8_blocks(p.code + whole * INT8_BLOCK, p.scale + whole, 1, last);
        memcpy(x + whole * INT8_BLOCK, last, (size_t)(n - whole * INT8_BLOCK) * sizeof *x);
    }
    return CKPT_OK;
}
