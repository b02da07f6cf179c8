/* SPDX-License-Identifier: Apache-2.0 */
/* Rectified flow: times, the shift for resolution and length, frame masks, warm-up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "schedule.h"

/* A value as rounded by a tensor of this dtype; fp32 returns it unchanged. */
static double held(enum ckpt_dtype dtype, double value)
{
    float f = (float)value;
    uint16_t h;

    if (dtype != CKPT_BF16)
        return value;
    ckpt_to_bf16(&f, &h, 1);
    ckpt_from_bf16(&h, &f, 1);
    return f;
}

/* Latent frames of the whole groups of 17: 51 frames give 15; 289 frames are 288 in bf16 and give
 * 80. */
static double shift_length(enum ckpt_dtype dtype, int64_t frames)
{
    double groups = held(dtype, floor(held(dtype, (double)frames) / 17));

    return groups < 1 ? 1 : held(dtype, groups * 5);
}

struct stdit_shift stdit_shift(enum ckpt_dtype dtype, double height, double width, int64_t frames)
{
    double area = held(dtype, held(dtype, height) * held(dtype, width));
    double space = held(dtype, sqrt(area / (512.0 * 512.0)));
    double r = held(dtype, space * held(dtype, sqrt(shift_length(dtype, frames))));

    return (struct stdit_shift){r, held(dtype, r - 1)};
}

int64_t stdit_video_frames(int64_t latent_frames)
{
    return latent_frames == 1 ? 1 : latent_frames * 17 / 5;
}

struct stdit_shift stdit_shift_of(enum ckpt_dtype dtype, const struct video_geometry *g)
{
    int64_t frames = g->pixel_frames ? g->pixel_frames : stdit_video_frames(g->frames);

    return stdit_shift(dtype, g->pixel_height, g->pixel_width, frames);
}

double stdit_shifted(struct stdit_shift s, double u)
{
    return s.r * u / (1 + s.r_less_one * u);
}

void stdit_draw_times(uint64_t seed, int64_t step, struct stdit_shift s, int64_t batch, float *u)
{
    ckpt_fill_normal(seed, (uint64_t)step, STREAM_TIME, u, batch);
    for (int64_t b = 0; b < batch; b++)
        u[b] = (float)stdit_shifted(s, 1 / (1 + exp(-(double)u[b])));
}

void stdit_draw_drops(uint64_t seed, int64_t before, int64_t n, int32_t *drop)
{
    for (int64_t i = 0; i < n; i++) {
        float u[4];
        ckpt_fill_uniform(seed, (uint64_t)(before + i), STREAM_DROP, u, 4);
        drop[i] = u[0] < 0.1f;
    }
}

/* ---- frame masks --------------------------------------------------------------------------- */

enum mask_type {
    IDENTITY,
    RANDOM,
    INTERPOLATE,
    QUARTER_RANDOM,
    QUARTER_HEAD,
    QUARTER_TAIL,
    QUARTER_HEAD_TAIL,
    IMAGE_RANDOM,
    IMAGE_HEAD,
    IMAGE_TAIL,
    IMAGE_HEAD_TAIL,
    MASK_TYPES
};

/* Probabilities in thousandths, in the order above; stage 1 serves for stage 2. */
static const struct {
    const char *stage;
    int weight[MASK_TYPES];
} stages[] = {
    {"1", {800, 50, 5, 5, 5, 5, 5, 25, 50, 25, 25}},
    {"2", {800, 50, 5, 5, 5, 5, 5, 25, 50, 25, 25}},
    {"3", {750, 10, 2, 2, 2, 2, 2, 0, 220, 5, 5}},
    {"adapt", {500, 200, 10, 10, 10, 10, 10, 50, 100, 50, 50}},
};

static enum mask_type choose(const char *stage, float u)
{
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        if (strcmp(stage, stages[i].stage))
            continue;
        double sum = 0;
        for (int type = 0; type < MASK_TYPES; type++) {
            sum += stages[i].weight[type] / 1000.0;
            if (u < sum)
                return type;
        }
    }
    return IDENTITY;
}

static void clean(int32_t *mask, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        mask[first + i] = 0;
}

static int64_t pick(float u, int64_t n)
{
    int64_t i = (int64_t)(u * (float)n);
    return i < n ? i : n - 1;
}

/* Each frame is clean with a probability that is itself random; at least one frame stays noised. */
static void mask_random(int32_t *mask, int64_t frames, const float *u)
{
    double p = 0.1 + 0.8 * u[1];
    bool any = false;

    for (int64_t i = 0; i < frames; i++) {
        mask[i] = u[4 + i] >= p;
        any |= mask[i];
    }
    if (!any)
        mask[pick(u[2], frames)] = 1;
}

/* A run of 1 .. frames/4 clean frames at the head, the tail, both, or anywhere. */
static void mask_quarter(int32_t *mask, int64_t frames, enum mask_type type, const float *u)
{
    int64_t run = 1 + pick(u[1], frames / 4);

    if (type == QUARTER_RANDOM)
        clean(mask, pick(u[2], frames - run + 1), run);
    if (type == QUARTER_HEAD || type == QUARTER_HEAD_TAIL)
        clean(mask, 0, run);
    if (type == QUARTER_TAIL || type == QUARTER_HEAD_TAIL)
        clean(mask, frames - run, run);
}

static void mask_image(int32_t *mask, int64_t frames, enum mask_type type, const float *u)
{
    if (type == IMAGE_RANDOM)
        mask[pick(u[1], frames)] = 0;
    if (type == IMAGE_HEAD || type == IMAGE_HEAD_TAIL)
        mask[0] = 0;
    if (type == IMAGE_TAIL || (type == IMAGE_HEAD_TAIL && frames > 2))
        mask[frames - 1] = 0;
}

/* u holds four uniform numbers and one a frame.  Images are never masked. */
static void draw_mask(int32_t *mask, int64_t frames, const char *stage, const float *u)
{
    enum mask_type type = choose(stage, u[0]);

    for (int64_t i = 0; i < frames; i++)
        mask[i] = 1;
    if (frames == 1)
        return;
    if (type == RANDOM)
        mask_random(mask, frames, u);
    else if (type == INTERPOLATE)
        for (int64_t i = pick(u[1], 2); i < frames; i += 2)
            mask[i] = 0;
    else if (type >= QUARTER_RANDOM && type <= QUARTER_HEAD_TAIL && frames >= 4)
        mask_quarter(mask, frames, type, u);
    else if (type >= IMAGE_RANDOM)
        mask_image(mask, frames, type, u);
}

int stdit_draw_masks(uint64_t seed, int64_t step, const char *stage, int64_t batch, int64_t frames,
                     int32_t *mask)
{
    float *u = malloc((size_t)(frames + 4) * sizeof *u);

    if (!u)
        return CKPT_ENOMEM;
    for (int64_t b = 0; b < batch; b++) {
        ckpt_fill_uniform(seed, (uint64_t)(step * batch + b), STREAM_MASK, u, frames + 4);
        draw_mask(mask + b * frames, frames, stage, u);
    }
    free(u);
    return 0;
}
