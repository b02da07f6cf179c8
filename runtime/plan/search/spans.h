/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: holds that say more than one number can.  A storage may be dropped and made
 * again several times in one pass; it is there from the first to the last op of each of its spans
 * and nowhere else.  A span that begins where nothing needs the storage makes it there all the
 * same.
 */
#ifndef CKPT_PLAN_SPANS_H
#define CKPT_PLAN_SPANS_H

#include "plan/search/search.h"

/* Ops of the program, the first and the last use. */
struct span {
    int32_t from, to;
};

struct span_set {
    int32_t first, n;
};

struct spans {
    struct {
        struct span *data;
        int64_t capacity;
    } spans;
    struct {
        struct span_set *data;
        int64_t capacity;
    } sets;
    int32_t n_spans, n_sets;
    int32_t *table; /* of sets by their hash, or -1 */
    int64_t room;   /* a power of two */
};

void spans_free(struct spans *p);
/* The hold that stands for the spans, which are in order and do not touch; n may be 0.  Returns 0
 * or CKPT_ENOMEM. */
int spans_hold(struct spans *p, const struct span *list, int32_t n, int32_t *hold);
/* The spans of a hold; valid until the next call of spans_hold. */
const struct span *spans_of(const struct spans *p, int32_t hold, int32_t *n);

#endif
