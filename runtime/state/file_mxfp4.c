/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in MXFP4 (OCP Microscaling Formats 1.0), as gpt-oss has them: NAME_blocks, U8 [E, N, K /
 * 32, 16], has two codes of 4 bits in each byte, the low one first; NAME_scales, U8 [E, N, K / 32],
 * the exponent of each 32 codes plus 127.  Without its ending the name is that of the weight in
 * other files, where it is [E, K, N].  Every value is exact in fp32 and in bf16.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "state/file_forms.h"

enum { BLOCK = 32, BLOCK_BYTES = 16, BIAS = 127, NAN_SCALE = 255, CHUNK = 2048 };

static bool has_axes(const struct file_tensor *e, int ndim, const int64_t *shape)
{
    return !strcmp(e->dtype->name, "U8") && e->ndim == ndim &&
           !memcmp(e->shape, shape, (size_t)ndim * sizeof *shape);
}

/* Whether files have [E, K, N] of the parameter [E, N, K]. */
static bool is_turned(const struct param *p)
{
    return p->desc.ndim == 3 && p->reordered && !p->file_view.ndim && p->file_axes[0] == 0 &&
           p->file_axes[1] == 2;
}

int file_check_mxfp4(const ckpt_file *f, int blocks, int scales, const struct param *p)
{
    const struct file_tensor *b = &f->tensors[blocks];
    const int64_t *own = p->desc.shape;
    const int64_t shape[] = {own[0], own[1], own[2] / BLOCK, BLOCK_BYTES};

    if (scales < 0)
        return file_bad(b->part->path, "'%s' has no scales", b->name);
    if (is_turned(p) && own[2] % BLOCK == 0 && has_axes(b, 4, shape) &&
        has_axes(&f->tensors[scales], 3, shape))
        return 0;
    return file_bad(b->part->path,
                    "'%s' and its scales are no MXFP4 of the parameter '%s': U8 [E, N, K / 32, 16] "
                    "and [E, N, K / 32] of a weight [E, K, N] in files",
                    b->name, p->name);
}

static void decode(const int32_t *byte, const int32_t *scale, int64_t n, float *values)
{
    static const float code[] = {0.f,  .5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                 -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

    for (int64_t i = 0; i < n; i++) {
        const float by = scale[i] == NAN_SCALE ? NAN : ldexpf(1.f, scale[i] - BIAS);
        for (int k = 0; k < BLOCK_BYTES; k++) {
            const int32_t two = byte[i * BLOCK_BYTES + k];
            *values++ = code[two & 15] * by;
            *values++ = code[two >> 4] * by;
        }
    }
}

int file_read_mxfp4(ckpt_file *f, int blocks, int scales, float *values)
{
    const int64_t all = f->tensors[scales].numel;
    int32_t *byte = malloc((BLOCK_BYTES + 1) * CHUNK * sizeof *byte), *scale;
    int rc = byte ? 0 : error_set(CKPT_ENOMEM, "%s: no memory to read it", f->path);

    scale = byte ? byte + BLOCK_BYTES * CHUNK : NULL;
    for (int64_t at = 0; at < all && !rc; at += CHUNK) {
        const int64_t n = min_i64(CHUNK, all - at);
        rc = ckpt_file_read_part_i32(f, blocks, at * BLOCK_BYTES, byte, n * BLOCK_BYTES);
        rc = rc ? rc : ckpt_file_read_part_i32(f, scales, at, scale, n);
        if (!rc)
            decode(byte, scale, n, values + at * BLOCK);
    }
    free(byte);
    return rc;
}
