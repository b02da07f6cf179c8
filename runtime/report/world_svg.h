/* SPDX-License-Identifier: Apache-2.0 */
/* Scaling curves, speed and memory of a rank against the number of ranks, as a drawing. */
#ifndef CKPT_REPORT_WORLD_SVG_H
#define CKPT_REPORT_WORLD_SVG_H

#include "core/base.h"

struct world_chart {
    const char *title, *machine;
    const int32_t *ranks; /* rising, powers of two but perhaps the last */
    int32_t n;
    const char *const *names;        /* of the lines */
    const double *const *efficiency; /* per line and number of ranks; below 0 for none */
    const double *const *bytes;      /* of a rank, context and libraries included; likewise */
    double budget;                   /* of a rank; 0 for none */
    int32_t n_lines;                 /* at most 8 */
};

/* Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int world_svg_write(const struct world_chart *c, const char *path, struct error *error);

#endif
