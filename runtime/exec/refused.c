/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One refusal for all programs of a run.  A program that no plan fits is planned within its
 * smallest budget instead, and the budget of the programs rises to that.  So the programs compiled
 * after it are planned beside its parameters, and so are those before it.  A program that does not
 * fit this budget either raises it again.  The last sentence then names a budget that is enough for
 * all of them.  Nothing is mapped any more, and nothing runs.
 */
#include <unistd.h>
#include "exec/program.h"

int program_plan_asked(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    int64_t raised = ps->budget;
    int rc = program_plan(p);
    if (rc != CKPT_EBUDGET || !ps->n_refused)
        return rc;
    ps->budget = ps->asked;
    rc = program_plan(p);
    ps->budget = raised;
    return rc;
}

/* Nothing will run, so no plan of a program that was compiled before is left behind. */
static void remove_plan(struct programs *ps)
{
    if (!(ps->written & WRITTEN_PLAN))
        return;
    unlink(ps->options->plan_out);
    ps->written &= ~(unsigned)WRITTEN_PLAN;
}

int program_plan_anyway(struct ckpt_program *p, int rc)
{
    struct programs *ps = p->programs;
    char sentence[CKPT_MESSAGE];
    int64_t least = INT64_MAX;
    if (rc != CKPT_EBUDGET || !ps->gathers || ps->ranks->sharing.stages > 1 ||
        ps->options->vram == CKPT_VRAM_NONE || program_plan_is_given(p))
        return rc;
    snprintf(sentence, sizeof sentence, "%s", error_get());
    int failed = program_least_budget(p, &least);
    if (!failed && least < INT64_MAX) {
        ps->asked = ps->n_refused++ ? ps->asked : ps->budget;
        ps->budget = least;
        remove_plan(ps);
        failed = program_plan(p);
    }
    if (failed)
        return failed;
    error_set(CKPT_EBUDGET, "%s", sentence);
    return p->plan ? 0 : CKPT_EBUDGET;
}
