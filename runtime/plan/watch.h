/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search for a plan can be watched: it calls a function every second, and a request ends it.  No
 * decision depends on the clock.  The frontier of a search that was ended is not complete: free it.
 */
#ifndef CKPT_PLAN_WATCH_H
#define CKPT_PLAN_WATCH_H

#include <stdatomic.h>
#include "core/base.h"

struct plan_watch {
    void (*report)(void *user, int seconds); /* or NULL */
    void *user;
    const atomic_int *stop; /* a number of requests: when it is not `ignored`, the search ends; or
                               NULL */
    int ignored;
    double start; /* of the search */
    int reported; /* seconds */
};

/* Begins a search: its seconds count from here, and earlier requests to stop are not for it. */
void plan_watch_start(struct plan_watch *w);
/* Every search calls this at least each millisecond or so.  w may be NULL.  Returns 0, or
 * CKPT_ESTOP if the search must end. */
int plan_watch_check(struct plan_watch *w);
/* The sentence of a search that failed with CKPT_ENOMEM or CKPT_ESTOP; returns the code. */
int plan_fail(int code);

#endif
