/* SPDX-License-Identifier: Apache-2.0 */
/* The curve of a sweep, step time against device budget, as an SVG drawing. */
#ifndef CKPT_REPORT_SWEEP_SVG_H
#define CKPT_REPORT_SWEEP_SVG_H

#include "plan/plan.h"

struct sweep {
    const char *graph, *machine; /* file name of the graph; name of the machine or "" */
    const int64_t *budgets;      /* ascending */
    struct plan *const *plans;
    int32_t n;
    int64_t mark;    /* budget to mark, or 0 */
    int64_t process; /* part of each budget used by context and libraries */
    int64_t fastest; /* smallest budget without recompute or exposed copies, even if not drawn */
    int64_t host, nvme;
};

/* Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int sweep_svg_write(const struct sweep *s, const char *path);

#endif
