/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: holds that are sets of spans.  A storage may be dropped and recomputed
 * several times in one pass.  It is resident from the first to the last op of each span and nowhere
 * else. It is recomputed at the start of a span even if no op needs it there.
 */
#ifndef CKPT_PLAN_SPANS_H
#define CKPT_PLAN_SPANS_H

#include "plan/search/search.h"

/* The ops of the first and the last use. */
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
    int32_t *table; /* hash table of sets, -1 if empty */
    int64_t room;   /* of the table; a power of two */
};

void spans_free(struct spans *p);
/* Sets the hold of a list of spans, which are in order and do not touch; n may be 0.  Returns 0 or
 * CKPT_ENOMEM. */
int spans_hold(struct spans *p, const struct span *list, int32_t n, int32_t *hold);
/* The spans of a hold; valid until the next call of spans_hold. */
const struct span *spans_of(const struct spans *p, int32_t hold, int32_t *n);

#endif
