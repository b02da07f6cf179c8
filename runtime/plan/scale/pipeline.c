/* SPDX-License-Identifier: Apache-2.0 */
/* The seconds of a pipeline from those of its stages: see pipeline.h. */
#include <math.h>
#include <stdlib.h>
#include "plan/scale/pipeline.h"

/* Beside the passes of the first micro-step parameters are gathered, beside the last backward pass
 * gradients are summed over the pipelines; what takes longer comes on top. */
static double beyond(double collectives, double pass)
{
    return fmax(0, collectives - pass);
}

/* A loss waits for the number of targets of all pipelines. */
static bool is_awaited(const struct graph_op *o)
{
    return o->collective == GRAPH_ALL_REDUCE && o->phase == GRAPH_FORWARD;
}

struct stage_seconds stage_seconds(const struct graph *g, const struct plan *p)
{
    const double n = g->pipeline.unrolled, all = n * g->n_micro;
    const double more = p->recompute_seconds + p->exposed_seconds;
    struct stage_seconds s = {0};
    double gathers = 0, sums = 0;
    bool trains = false;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        const bool forward = o->phase == GRAPH_FORWARD;
        const double seconds = o->collective ? o->comm_seconds : o->seconds;
        trains |= !forward;
        if (i >= g->n_body)
            s.update += seconds;
        else if (!o->collective || is_awaited(o))
            *(forward ? &s.forward : &s.backward) += seconds / n;
        else if (o->collective == GRAPH_SEND)
            *(forward ? &s.send : &s.send_back) += seconds / n;
        else if (o->collective != GRAPH_RECEIVE)
            *(forward ? &gathers : &sums) += seconds;
    }
    *(trains ? &s.backward : &s.forward) += more > 0 ? more / all : 0;
    s.update += beyond(gathers, s.forward) + beyond(sums, s.backward);
    return s;
}

struct clock_of {
    const struct stage_seconds *s;
    int n, micro;
    /* When a pass of a stage and micro-step has ended, and when what it needs has come; -1: not yet
     * known. */
    double *forward, *backward, *activation, *gradient;
};

static double *at(const struct clock_of *k, double *when, int stage, int micro)
{
    return &when[stage * k->micro + micro];
}

/* Forward passes of a stage before its first backward pass, but one; all where there is none. */
static int first_of(const struct clock_of *k, int stage)
{
    if (k->s[k->n - 1].backward <= 0)
        return k->micro;
    return k->n - 1 - stage < k->micro ? k->n - 1 - stage : k->micro;
}

/* When a transfer that may begin then has come: a link has one at a time.  A stage asks for them in
 * their order. */
static double arrival(const struct clock_of *k, double *when, int stage, int micro, double begins,
                      double seconds)
{
    const double before = micro ? *at(k, when, stage, micro - 1) : 0;
    return *at(k, when, stage, micro) = begins < 0 ? -1 : fmax(begins, before) + seconds;
}

/* When a gradient is there; 0 where none comes; -1: not yet known. */
static double gradient_comes(const struct clock_of *k, int stage, int micro)
{
    if (stage == k->n - 1)
        return 0;
    return arrival(k, k->gradient, stage, micro, *at(k, k->backward, stage + 1, micro),
                   k->s[stage + 1].send_back);
}

/* When an activation is there: a stage sends it after it has the gradient that is due. */
static double activation_comes(const struct clock_of *k, int stage, int micro)
{
    if (stage == 0)
        return 0;
    const int due = micro - first_of(k, stage - 1);
    const double made = *at(k, k->forward, stage - 1, micro),
                 turn = due < 0 ? 0 : gradient_comes(k, stage - 1, due);
    return arrival(k, k->activation, stage, micro, made < 0 || turn < 0 ? -1 : fmax(made, turn),
                   k->s[stage - 1].send);
}

/* Runs the passes of a stage from *next on that can run; returns whether any did. */
static bool advance(const struct clock_of *k, int stage, int *next, double *now)
{
    const int first = first_of(k, stage), was = *next;
    for (; *next < 2 * k->micro; ++*next) {
        /* first forward passes, then a forward and a backward pass in turns, then the rest */
        const int turn = *next - first, turns = 2 * (k->micro - first);
        const bool back = turn >= 0 && (turn >= turns || turn % 2);
        const int micro = turn < 0        ? *next
                          : turn >= turns ? *next - k->micro
                          : back          ? turn / 2
                                          : first + turn / 2;
        const double comes =
            back ? gradient_comes(k, stage, micro) : activation_comes(k, stage, micro);
        if (comes < 0)
            break;
        *now = (comes > *now ? comes : *now) + (back ? k->s[stage].backward : k->s[stage].forward);
        *at(k, back ? k->backward : k->forward, stage, micro) = *now;
    }
    return *next > was;
}

double pipeline_seconds(const struct stage_seconds *s, int n, int micro)
{
    const size_t size = (size_t)n * (size_t)micro;
    double *when = malloc(4 * size * sizeof *when);
    if (!when)
        return NAN;
    struct clock_of k = {s, n, micro, when, when + size, when + 2 * size, when + 3 * size};
    int *next = calloc((size_t)n, sizeof *next);
    double *now = calloc((size_t)n, sizeof *now), update = 0;
    bool moves = next && now;
    double end = moves ? 0 : NAN;
    for (size_t i = 0; i < 4 * size && moves; i++)
        when[i] = -1;
    while (moves) {
        moves = false;
        for (int stage = 0; stage < n; stage++)
            moves |= advance(&k, stage, &next[stage], &now[stage]);
    }
    for (int stage = 0; stage < n && next && now; stage++) {
        end = next[stage] < 2 * micro ? NAN : now[stage] > end ? now[stage] : end;
        update = s[stage].update > update ? s[stage].update : update;
    }
    free(when);
    free(next);
    free(now);
    return end + update; /* the norm is of all gradients */
}
