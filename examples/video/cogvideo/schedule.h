/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The noise schedule of CogVideoX: levels of the 1000 timesteps, with zero signal at the last one
 * (Lin et al. 2024), the predicted velocity (Salimans & Ho 2022), and the sampling steps.
 *
 *   x_t = sqrt(a) x0 + sqrt(1 - a) eps;  v = sqrt(a) eps - sqrt(1 - a) x0
 *
 * A scheduler_config.json describes all of it.  A key that it lacks has the default of its class in
 * diffusers, which is not always the value of the published models.
 */
#ifndef COGVIDEO_SCHEDULE_H
#define COGVIDEO_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum { COGVIDEO_TIMES = 1000 };

enum cogvideo_solver { COGVIDEO_DDIM, COGVIDEO_DPM };
/* How n steps are spread over the timesteps (Lin et al. 2024, table 2). */
enum cogvideo_spacing { COGVIDEO_LEADING, COGVIDEO_LINSPACE, COGVIDEO_TRAILING };

struct cogvideo_schedule {
    double signal[COGVIDEO_TIMES]; /* a of each timestep */
    double end;                    /* a that a step below timestep 0 leads to */
    enum cogvideo_spacing spacing;
    int64_t offset; /* added to the timesteps of leading spacing */
    enum cogvideo_solver solver;
};

/* The betas that noise levels are made of, and what changes the levels afterwards. */
struct cogvideo_noise {
    const char *kind; /* as beta_schedule of diffusers */
    double first, last;
    const double *betas; /* [COGVIDEO_TIMES]; NULL: by kind */
    double shift;        /* of the signal-to-noise ratio */
    bool rescaled;       /* the last timestep has no signal */
};

/* Sets s->signal. */
void cogvideo_levels(struct cogvideo_schedule *s, const struct cogvideo_noise *noise);

/* The published schedule; shift: 3 for 2B and 1 for the others. */
void cogvideo_schedule(struct cogvideo_schedule *s, double shift);

/* Reads scheduler/scheduler_config.json, in the directory of a model or beside it; shift above 0
 * replaces the shift of the file.  Returns 1 if there is no such file, 0, or -1 after an error
 * message. */
int cogvideo_schedule_read(struct cogvideo_schedule *s, const char *model, double shift);

/* The integer timesteps of n training samples, uniformly distributed; they depend only on (seed,
 * step, sample). */
void cogvideo_draw_times(uint64_t seed, int64_t step, int64_t n, float *t);

/* ---- sampling ------------------------------------------------------------------------------ */

enum cogvideo_guidance_kind {
    COGVIDEO_CONSTANT,
    COGVIDEO_REFERENCE, /* by the timestep, as in the published sampler */
    COGVIDEO_COSINE     /* by the number of the step */
};

/* Timestep i of n, in descending order. */
int64_t cogvideo_time(const struct cogvideo_schedule *s, int64_t n, int64_t i);

/* Refuses numbers of steps that give timesteps outside of 0 .. 999.  Returns 0, or -1 after an
 * error message. */
int cogvideo_check_steps(const struct cogvideo_schedule *s, int64_t n);

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
double cogvideo_guidance(const struct cogvideo_schedule *s, enum cogvideo_guidance_kind kind,
                         double guidance, int64_t n, int64_t i);

#endif
