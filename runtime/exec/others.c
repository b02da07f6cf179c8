/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replans programs that were compiled before a new one.  All programs use the parameters of the
 * context, at the bottom of its arena; a program that adds parameters, or loads library code,
 * leaves fewer bytes above them.  A program that fitted and no longer does gets another plan for
 * what is left, and so does one whose plan defers updates where the new one trains, too: plans
 * change no numbers, so the order of compiling does not decide whether programs
 * fit. The recording stays, and with it the size of micro-steps.
 */
#include "exec/program.h"
#include "measure/timing.h"

bool program_trains_in_turn(const struct ckpt_program *p)
{
    const struct ckpt_program *o = p->programs->first;
    while (o && (o == p || !o->trains))
        o = o->next;
    return p->trains && (o || p->programs->in_turn);
}

/* Plans a new graph of the same recording: the context now has addresses for its parameters. */
static int plan_again(struct ckpt_program *o, int64_t below)
{
    struct programs *ps = o->programs;
    o->old_graph = o->graph;
    o->old_plan = o->plan;
    o->old_reserved = o->reserved;
    o->graph = NULL;
    o->plan = NULL;
    if (graph_from_tape(o->tape, &ps->machine, &o->graph))
        return error_set(CKPT_ENOMEM, "no memory for the graph");
    o->graph->in_turn = program_trains_in_turn(o);
    o->reserved = below - program_placed_bytes(o);
    return program_plan_asked(o);
}

/* Extends the sentence: it is about a program that the caller compiled earlier. */
static int refuse(int rc)
{
    if (rc != CKPT_EBUDGET)
        return rc;
    return error_set(
        rc, "a program compiled before no longer fits beside this program's parameters: %s",
        error_get());
}

/* Whether a plan defers updates.  If two programs trained in turn, the host would do them before
 * each step. */
static bool defers(const struct plan *p)
{
    return plan_find_deferred(p, p->n_body) < p->n_steps;
}

int program_fit_others(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    int64_t below = p->reserved + p->plan->persistent; /* the same on all ranks */
    int rc = 0;
    for (struct ckpt_program *o = p->next; o && !rc; o = o->next)
        if (below > ps->budget - o->plan->transient || (p->trains && defers(o->plan)))
            rc = program_plan_anyway(o, refuse(plan_again(o, below)));
    return rc;
}

void program_keep_others(struct programs *ps)
{
    for (struct ckpt_program *o = ps->first; o; o = o->next) {
        if (!o->old_plan)
            continue;
        plan_free(o->old_plan);
        graph_free(o->old_graph);
        o->old_plan = NULL;
        o->old_graph = NULL;
        o->lowered.whole = false;
        timing_forget(o->timing);
    }
}

void program_restore_others(struct programs *ps)
{
    for (struct ckpt_program *o = ps->first; o; o = o->next) {
        if (!o->old_plan)
            continue;
        plan_free(o->plan);
        graph_free(o->graph);
        o->plan = o->old_plan;
        o->graph = o->old_graph;
        o->reserved = o->old_reserved;
        o->old_plan = NULL;
        o->old_graph = NULL;
    }
}

int program_move_others(struct ckpt_program *p)
{
    int rc = 0;
    for (struct ckpt_program *o = p->next; o && !rc; o = o->next) {
        if (o->lowered.whole && o->lowered.base == p->programs->memory->persistent)
            continue;
        rc = plan_uses_host(o->plan) ? programs_open_steps(p->programs) : 0;
        if (!rc)
            rc = program_prepare(o);
    }
    return rc;
}
