/* SPDX-License-Identifier: Apache-2.0 */
/* Rectified flow: times, the shift for resolution and length, frame masks, warm-up. */
#ifndef STDIT_SCHEDULE_H
#define STDIT_SCHEDULE_H

#include "../model.h"

/* The random streams of the program, distinct from the streams of tape ops. */
enum stdit_stream {
    STREAM_TIME = 0x57440001,
    STREAM_MASK,
    STREAM_DROP,
    STREAM_SAMPLE,
    STREAM_DATA,
    STREAM_CROP,
    STREAM_VALID,
    STREAM_EDIT
};

/*
 * The resolution shift of clips of frames x height x width pixels: r = sqrt(h w / 512^2) sqrt(L), L
 * = 5 floor(frames / 17), 1 for a picture.  Open-Sora 1.2 computes sizes, product, quotient, roots
 * and r - 1 as tensors of the model's dtype: bf16 rounds each of them, fp32 none.  For clips of 2
 * to 16 frames its L is 0, which gives no noise at all: here they count as a picture.
 */
struct stdit_shift {
    double r, r_less_one;
};
struct stdit_shift stdit_shift(enum ckpt_dtype dtype, double height, double width, int64_t frames);
struct stdit_shift stdit_shift_of(enum ckpt_dtype dtype, const struct video_geometry *g);

/* The video frames for a number of latent frames, if nothing else determines it: 17 give 5. */
int64_t stdit_video_frames(int64_t latent_frames);

/* u' = r u / (1 + (r - 1) u): more noise for larger clips. */
double stdit_shifted(struct stdit_shift s, double u);

/* The noise level u' in (0, 1) of each sample of a step. */
void stdit_draw_times(uint64_t seed, int64_t step, struct stdit_shift s, int64_t batch, float *u);

/* Random replacement of captions by the null caption (1 in 10), for n samples from number `before`
 * on. */
void stdit_draw_drops(uint64_t seed, int64_t before, int64_t n, int32_t *drop);

/* Frame masks [batch, frames], 1 for noised frames.  stage: "none", "1", "2", "3", "adapt".
 * Returns 0 or CKPT_ENOMEM. */
int stdit_draw_masks(uint64_t seed, int64_t step, const char *stage, int64_t batch, int64_t frames,
                     int32_t *mask);

#endif
