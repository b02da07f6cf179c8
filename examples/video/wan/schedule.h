/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling of Wan: rectified flow (Liu et al. 2023; Lipman et al. 2023) with shifted noise levels
 * (Esser et al. 2024).
 *
 *   x = (1 - s) x0 + s eps;  v = eps - x0;  x0 = x - s v;  timestep 1000 s
 *
 * UniPC (Zhao et al. 2023) predicts x0 with order 2 and the function B2(h).  After each evaluation
 * of the model it corrects the sample with the new x0, and predicts the next sample from there.
 */
#ifndef WAN_SCHEDULE_H
#define WAN_SCHEDULE_H

#include <stdbool.h>
#include "../model.h"

enum wan_solver {
    WAN_UNIPC,          /* on the noise levels of diffusers */
    WAN_UNIPC_ORIGINAL, /* on the noise levels of the original code */
    WAN_EULER           /* with FlowMatchEulerDiscreteScheduler's noise levels of diffusers */
};

struct wan_schedule {
    double shift;
    enum wan_solver solver; /* of the file, by its class */
};

/* Reads scheduler/scheduler_config.json, in the directory of a model or beside it; shift above 0
 * replaces the shift of the file.  Returns 1 if there is no such file, 0, or -1 after an error
 * message. */
int wan_schedule_read(struct wan_schedule *s, const char *model, double shift);

/* The solver of a name; returns -1 after an error message. */
int wan_solver(const char *name, enum wan_solver *solver);

/* Noise level i of n steps, in descending order; level n is 0. */
double wan_level(const struct wan_schedule *s, enum wan_solver solver, int64_t n, int64_t i);

/* Step i of n. */
struct video_step wan_step(const struct wan_schedule *s, enum wan_solver solver, int64_t n,
                           int64_t i);

#endif
