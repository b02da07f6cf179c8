/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The noise schedule of CogVideoX: levels of the 1000 timesteps, with zero signal at the last one
 * (Lin et al. 2024), the predicted velocity (Salimans & Ho 2022), and the sampling steps.
 *
 *   x_t = sqrt(a) x0 + sqrt(1 - a) eps;  v = sqrt(a) eps - sqrt(1 - a) x0
 */
#ifndef COGVIDEO_SCHEDULE_H
#define COGVIDEO_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum { COGVIDEO_TIMES = 1000 };

struct cogvideo_schedule {
    double signal[COGVIDEO_TIMES]; /* a of each timestep; the last is 0 */
};

/* shift: of the signal-to-noise ratio; 3 for 2B and 1 for the others. */
void cogvideo_schedule(struct cogvideo_schedule *s, double shift);

/* Reads the shift from scheduler/scheduler_config.json, in the directory of a model or beside it.
 * Returns 1 if there is no such file, 0, or -1 after an error message. */
int cogvideo_schedule_read(const char *model, double *shift);

/* The integer timesteps of n training samples, uniformly distributed; they depend only on (seed,
 * step, sample). */
void cogvideo_draw_times(uint64_t seed, int64_t step, int64_t n, float *t);

/* ---- sampling ------------------------------------------------------------------------------ */

enum cogvideo_solver { COGVIDEO_DDIM, COGVIDEO_DPM };
enum cogvideo_guidance_kind {
    COGVIDEO_CONSTANT,
    COGVIDEO_REFERENCE, /* by the timestep, as in the published sampler */
    COGVIDEO_COSINE     /* by the number of the step */
};

/* Timestep i of n in descending order from the last one ("trailing"). */
int64_t cogvideo_time(int64_t n, int64_t i);

/*
 * Step i of n: x becomes keep x + clean x0 + old x0_before + noise eps, where x0 = sqrt(a) x -
 * sqrt(1 - a) v.  DDIM (Song et al. 2021) has no noise.  DPM is SDE-DPM-Solver++ of order 2 (Lu et
 * al. 2022), of order 1 in its first step.
 */
struct cogvideo_step {
    int64_t t;
    double a;
    double keep, clean, old, noise;
};

struct cogvideo_step cogvideo_step(const struct cogvideo_schedule *s, enum cogvideo_solver solver,
                                   int64_t n, int64_t i);

/* The guidance weight of the prompt in step i of n. */
double cogvideo_guidance(enum cogvideo_guidance_kind kind, double guidance, int64_t n, int64_t i);

#endif
