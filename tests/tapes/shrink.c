/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a recording that fails smaller while it still fails in the same way: leaves out settings,
 * terms of the loss, and calls, whose readers then read an operand of the call.
 */
#include <string.h>
#include "trial.h"

/* A number that is off must stay far off: a rounding error is another failure. */
static bool same_failure(const struct verdict *a, const struct verdict *b)
{
    const double least = a->excess < 40 ? a->excess / 2 : 20;
    return a->failure == b->failure && (a->failure != FAIL_CODE || a->code == b->code) &&
           (a->failure != FAIL_NUMBER || b->excess >= least);
}

/* Rebuilds *to from the calls of r that are kept, with value x replaced by `by`.  Returns false if
 * it no longer fits together. */
static bool rebuild(const struct recording *r, const bool *keep, const int *replace,
                    struct recording *to)
{
    int at[MAX_VALUES];
    *to = *r;
    to->n_calls = to->n_values = 0;
    for (int k = 0; k < MAX_VALUES; k++)
        at[k] = -1;
    for (int i = 0; i < r->n_calls; i++) {
        struct call c = r->call[i];
        if (!keep[i])
            continue;
        for (int k = 0; k < c.n_in; k++) {
            int x = c.in[k];
            while (x >= 0 && replace[x] >= 0)
                x = replace[x];
            c.in[k] = x < 0 ? -1 : at[x];
            if (x >= 0 && at[x] < 0)
                return false;
        }
        to->value[to->n_values] = r->value[c.out];
        const int first = c.out;
        if (!recording_infer(to, &c))
            return false;
        for (int k = 0; k < c.n_out; k++)
            at[first + k] = c.out + k;
        to->call[to->n_calls++] = c;
        to->n_values += c.n_out;
    }
    int loss = r->loss;
    while (loss >= 0 && replace[loss] >= 0)
        loss = replace[loss];
    to->loss = loss < 0 ? -1 : at[loss];
    return to->loss >= 0 && !to->value[to->loss].ndim && to->value[to->loss].dtype == CKPT_F32;
}

/* Leaves out calls whose results are not read. */
static void mark_needed(const struct recording *r, bool *keep, const int *replace)
{
    bool read[MAX_VALUES] = {false};
    int loss = r->loss;
    while (loss >= 0 && replace[loss] >= 0)
        loss = replace[loss];
    if (loss >= 0)
        read[loss] = true;
    for (int i = r->n_calls - 1; i >= 0; i--) {
        const struct call *c = &r->call[i];
        bool needed = false;
        for (int k = 0; k < c->n_out; k++)
            needed |= read[c->out + k];
        keep[i] &= needed;
        for (int k = 0; k < c->n_in && keep[i]; k++) {
            int x = c->in[k];
            while (x >= 0 && replace[x] >= 0)
                x = replace[x];
            if (x >= 0)
                read[x] = true;
        }
    }
}

static bool try_recording(struct recording *r, const struct recording *smaller, struct verdict *v)
{
    struct verdict now;
    trial(smaller, &now);
    if (!same_failure(v, &now))
        return false;
    *r = *smaller;
    *v = now;
    return true;
}

/* Leaves out call i; its results become operand k of it, or nothing if k is -1. */
static bool without_call(struct recording *r, int i, int k, struct verdict *v)
{
    static struct recording smaller;
    bool keep[MAX_CALLS];
    int replace[MAX_VALUES];
    const struct call *c = &r->call[i];
    memset(keep, true, sizeof keep);
    for (int x = 0; x < MAX_VALUES; x++)
        replace[x] = -1;
    keep[i] = false;
    for (int x = 0; x < c->n_out && k >= 0; x++)
        replace[c->out + x] = c->in[k];
    mark_needed(r, keep, replace);
    return rebuild(r, keep, replace, &smaller) && try_recording(r, &smaller, v);
}

static bool without_setting(struct recording *r, int which, struct verdict *v)
{
    static struct recording simpler;
    simpler = *r;
    simpler.n_micro = which == 0 ? 1 : r->n_micro;
    simpler.adamw &= which != 1;
    simpler.bf16_gradient &= which != 2;
    simpler.verify &= which != 3;
    simpler.threads = which == 4 ? 1 : r->threads;
    return memcmp(&simpler, r, sizeof *r) && try_recording(r, &simpler, v);
}

void shrink(struct recording *r, struct verdict *v)
{
    bool smaller = true;
    for (int which = 0; which < 5; which++)
        without_setting(r, which, v);
    while (smaller) {
        smaller = false;
        for (int i = r->n_calls - 1; i >= 0; i--) {
            if (i >= r->n_calls)
                continue;
            for (int k = r->call[i].n_in - 1; k >= 0; k--)
                if (r->call[i].in[k] >= 0 && without_call(r, i, k, v)) {
                    smaller = true;
                    break;
                }
        }
    }
}
