/* SPDX-License-Identifier: Apache-2.0 */
/* Watching a search: see watch.h. */
#include "plan/watch.h"

void plan_watch_start(struct plan_watch *w)
{
    w->start = clock_seconds();
    w->reported = 0;
    w->ignored = w->stop ? atomic_load(w->stop) : 0;
}

int plan_watch_check(struct plan_watch *w)
{
    if (!w)
        return 0;
    if (w->stop && atomic_load_explicit(w->stop, memory_order_relaxed) != w->ignored)
        return CKPT_ESTOP;
    int seconds = w->report ? (int)(clock_seconds() - w->start) : 0;
    if (seconds > w->reported)
        w->report(w->user, w->reported = seconds);
    return 0;
}

int plan_fail(int code)
{
    return error_set(code, code == CKPT_ESTOP ? "the search for a plan was stopped by a request"
                                              : "planning ran out of host memory");
}
