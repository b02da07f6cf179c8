/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Noise in training by flow matching (Lipman et al. 2023): x = (1 - s) x0 + s eps at a noise level
 * s in (0, 1], timestep 1000 s; the model predicts eps - x0.
 *
 * A level is drawn evenly or with a normal logit, and shifted: s becomes k s / (1 + (k - 1) s)
 * (Esser et al. 2024).  A run of one expert draws from the same distribution, cut to the expert's
 * levels.
 */
#ifndef WAN_NOISE_H
#define WAN_NOISE_H

#include <stdbool.h>
#include <stdint.h>

struct wan_noise {
    double shift;        /* k */
    bool normal;         /* the logit is N(0, 1) */
    double low, high;    /* levels that are drawn */
    bool weighted;       /* the loss has weights */
    double floor, scale; /* of the weights */
};

/* s shifted by k; k below 1 shifts back. */
double wan_shift(double k, double s);

/* Completes n, whose shift, kinds and levels are set. */
void wan_noise_begin(struct wan_noise *n);

/* The level at a fraction u in [0, 1) of the distribution. */
double wan_noise_level(const struct wan_noise *n, double u);

/* The fraction of the whole distribution that is at the levels that are drawn. */
double wan_noise_share(const struct wan_noise *n);

/* The weight of the loss, a bell around level 0.5 that has the mean 1 and is 0 at an end
 * (DiffSynth's code). */
double wan_noise_weight(const struct wan_noise *n, double level);

#endif
