/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's fixed tables: positions of the tokens of a frame, rotary angles of the frames.
 *
 * Open-Sora keeps the inverse frequencies in buffers that are converted to bf16 with the model, so
 * they are rounded to the model's dtype first, and the rotary angle is computed in that dtype too.
 * Height and width are tensors of that dtype: in bf16 854 pixels count as 856.  Nothing is rounded
 * in fp32.
 */
#include <math.h>
#include <stdlib.h>
#include "ckpt_tools.h"
#include "model.h"

static float round_to(enum ckpt_dtype dtype, double value)
{
    float f = (float)value;
    uint16_t h;

    if (dtype == CKPT_BF16) {
        ckpt_to_bf16(&f, &h, 1);
        ckpt_from_bf16(&h, &f, 1);
    }
    return f;
}

/* One half of a token's row: [sin(p f_0), .., cos(p f_0), ..], f_k = 10000^(-2k / channels). */
static void sincos_half(float *dst, double p, int64_t channels, enum ckpt_dtype dtype)
{
    for (int64_t k = 0; k < channels / 2; k++) {
        double f = round_to(dtype, pow(10000, -2.0 * (double)k / (double)channels));
        dst[k] = (float)sin(p * f);
        dst[channels / 2 + k] = (float)cos(p * f);
    }
}

/* The scale of a frame relative to 512 x 512 pixels, per side. */
static double position_scale(const struct stdit_config *c, const struct video_geometry *g)
{
    double height = round_to(c->dtype, g->pixel_height), width = round_to(c->dtype, g->pixel_width);

    return sqrt(height * width) / 512;
}

/* The first half of the channels encodes the column of a token, the second half its row. */
static void position_table(float *dst, const struct stdit_config *c, const struct video_geometry *g,
                           int64_t rows, int64_t columns)
{
    double scale = position_scale(c, g);
    double base = nearbyint(sqrt((double)(rows * columns)));

    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++) {
            float *token = dst + (row * columns + column) * c->hidden;
            sincos_half(token, (double)column / scale * base / (double)columns, c->hidden / 2,
                        c->dtype);
            sincos_half(token + c->hidden / 2, (double)row / scale * base / (double)rows,
                        c->hidden / 2, c->dtype);
        }
}

/* A constant whose values are given as fp32 and stored in the model's dtype. */
static ckpt_tensor constant(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                            const int64_t *shape, const float *value, int64_t n)
{
    if (dtype == CKPT_F32)
        return ckpt_constant(t, name, dtype, ndim, shape, value);
    uint16_t *rounded = malloc((size_t)n * sizeof *rounded);
    if (!rounded) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the table %s", name);
        return CKPT_NONE;
    }
    ckpt_to_bf16(value, rounded, n);
    ckpt_tensor x = ckpt_constant(t, name, dtype, ndim, shape, rounded);
    free(rounded);
    return x;
}

ckpt_tensor stdit_position(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g)
{
    int64_t rows = (g->height + 1) / 2, columns = (g->width + 1) / 2;
    int64_t shape[] = {rows * columns, m->config.hidden}, n = shape[0] * shape[1];
    float *table = malloc((size_t)n * sizeof *table);

    if (!table) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the position table");
        return CKPT_NONE;
    }
    position_table(table, &m->config, g, rows, columns);
    ckpt_tensor x = constant(t, "position", m->config.dtype, 2, shape, table, n);
    free(table);
    return x;
}

void stdit_rope_frequencies(const struct stdit_config *c, float *dst)
{
    int64_t width = c->hidden / c->heads;

    for (int64_t k = 0; k < width / 2; k++)
        dst[k] = round_to(c->dtype, pow(10000, -2.0 * (double)k / (double)width));
}

ckpt_tensor stdit_rope(const struct stdit *m, ckpt_tape *t, int64_t frames)
{
    int64_t half = m->config.hidden / m->config.heads / 2;
    float *table = malloc((size_t)(frames * half * 2 + half) * sizeof *table);

    if (!table) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the rotary table");
        return CKPT_NONE;
    }
    float *frequency = table + frames * half * 2;
    stdit_rope_frequencies(&m->config, frequency);
    for (int64_t i = 0; i < frames; i++)
        for (int64_t k = 0; k < half; k++) {
            double angle = round_to(m->config.dtype, (double)i * frequency[k]);
            table[(i * half + k) * 2] = (float)cos(angle);
            table[(i * half + k) * 2 + 1] = (float)sin(angle);
        }
    ckpt_tensor x = ckpt_constant(t, "rope", CKPT_F32, 3, (int64_t[]){frames, half, 2}, table);
    free(table);
    return x;
}
