/* SPDX-License-Identifier: Apache-2.0 */
/* The curve of a sweep, step time against device budget, as an SVG drawing. */
#ifndef CKPT_REPORT_SWEEP_SVG_H
#define CKPT_REPORT_SWEEP_SVG_H

#include "plan/plan.h"

struct sweep {
    const char *graph, *machine; /* the name of its file; "" */
    const int64_t *budgets;      /* ascending */
    struct plan *const *plans;
    int32_t n;
    int64_t mark;    /* a budget to mark, or 0 */
    int64_t process; /* of each budget: context and libraries */
    int64_t fastest; /* the smallest budget in which nothing is given up, drawn or not */
    int64_t host, nvme;
};

/* Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int sweep_svg_write(const struct sweep *s, const char *path, struct error *error);

#endif
