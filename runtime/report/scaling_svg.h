/* SPDX-License-Identifier: Apache-2.0 */
/* Scaling curves as a drawing: speed and memory of a rank against the number of ranks. */
#ifndef CKPT_REPORT_SCALING_SVG_H
#define CKPT_REPORT_SCALING_SVG_H

#include "core/base.h"

struct scaling_chart {
    const char *title, *machine;
    const int32_t *ranks; /* ascending; powers of two except perhaps the last */
    int32_t n;
    const char *const *names;        /* one per line */
    const double *const *efficiency; /* per line and number of ranks; below 0: no value */
    const double *const *bytes; /* per rank, context and libraries included; below 0: no value */
    double budget;              /* per rank; 0: none */
    int32_t n_lines;            /* at most 8 */
};

/* Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int scaling_svg_write(const struct scaling_chart *c, const char *path);

#endif
