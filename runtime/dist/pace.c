/* SPDX-License-Identifier: Apache-2.0 */
/* How long each rank computes in a step: see pace.h. */
#include <math.h>
#include <stdlib.h>
#include "dist/pace.h"

int pace_open(struct pace *w, int ranks, int rank)
{
    w->ranks = ranks;
    w->rank = rank;
    w->seconds = calloc((size_t)ranks, sizeof *w->seconds);
    if (!w->waited)
        w->waited = w->here;
    return w->seconds ? 0 : CKPT_ENOMEM;
}

void pace_close(struct pace *w)
{
    free(w->seconds);
    w->seconds = NULL;
}

void pace_step(struct pace *w, double submitted, double ended)
{
    w->busy += ended - fmax(submitted, w->ended);
    w->ended = ended;
    w->steps++;
}

/* The device may be in a wait of the next step, or have ended one: over the steps between two turns
 * that evens out. */
float pace_send(struct pace *w, int64_t update)
{
    if (!w->seconds || update % w->ranks != w->rank || !w->steps)
        return 0;
    int64_t waited = __atomic_load_n(w->waited, __ATOMIC_RELAXED);
    double own = (w->busy - (double)(waited - w->seen) * 1e-9) / (double)w->steps;
    w->seen = waited;
    w->busy = 0;
    w->steps = 0;
    return (float)fmin(fmax(own, 0), 1 << 19);
}

void pace_receive(struct pace *w, int64_t update, float seconds)
{
    if (w->seconds && seconds > 0 && isfinite(seconds))
        w->seconds[update % w->ranks] = (double)seconds;
}
