/* SPDX-License-Identifier: Apache-2.0 */
/* When a run saves and ends by the clock: see run_clock.h. */
#include <math.h>
#include <time.h>
#include "run_clock.h"

/* Safety factor for the final saves: a shared disk may be slower next time.  It also covers
 * weights, which are smaller than the state and may be written after it. */
static const double margin = 2;

double run_clock_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void run_clock_start(struct run_clock *k, double now)
{
    k->saved = now;
}

/* The first step includes one-time preparation; its time is used only until a second step is timed.
 */
void run_clock_step(struct run_clock *k, double from, double now)
{
    k->timed++;
    k->step = k->timed <= 2 ? now - from : fmax(k->step, now - from);
}

void run_clock_look(struct run_clock *k, double from, double now)
{
    k->look = fmax(k->look, now - from);
}

void run_clock_save(struct run_clock *k, double from, double now)
{
    k->save = fmax(k->save, now - from);
    k->saved = now;
    k->asked = false;
}

bool run_clock_ends(struct run_clock *k, double now, int ahead)
{
    if (k->limit <= 0 || k->over)
        return false;
    k->over = now - k->begun + ahead * k->step + k->look + margin * k->save >= k->limit;
    return k->over;
}

bool run_clock_saves(struct run_clock *k, double now)
{
    bool due = k->every > 0 && now - k->saved >= k->every;
    bool untimed = k->limit > 0 && k->save <= 0 && now - k->begun >= k->limit / 2;

    if (!k->saves || k->asked || k->over || (!due && !untimed))
        return false;
    k->asked = true;
    return true;
}
