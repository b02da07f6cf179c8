/* How far the programs of a context have come, for states of training. */
#include "ckpt_state.h"
#include "exec/program.h"

int context_count_training(const ckpt *c)
{
    int n = 0;

    for (const struct ckpt_program *p = c->programs; p; p = p->next)
        n += p->trains;
    return n;
}

bool context_is_idle(const ckpt *c)
{
    for (const struct ckpt_program *p = c->programs; p; p = p->next)
        if (p->submitted != p->steps)
            return false;
    return true;
}

/* The list of the context begins with the youngest. */
void context_get_counts(const ckpt *c, struct training_count *counts)
{
    int at = context_count_training(c);

    for (const struct ckpt_program *p = c->programs; p; p = p->next)
        if (p->trains)
            counts[--at] =
                (struct training_count){p->before + p->steps, p->batch * c->sharing.ranks};
}

void context_set_counts(ckpt *c, const int64_t *steps)
{
    int at = context_count_training(c);

    for (struct ckpt_program *p = c->programs; p; p = p->next)
        if (p->trains)
            p->before = steps[--at] - p->steps;
}

int ckpt_set_random_step(ckpt_program *p, int64_t step)
{
    NOT_NULL(NULL, p);
    if (p->trains)
        return context_fail(p->c, CKPT_EINVAL,
                            "the random numbers of a program that trains follow from its steps");
    if (step < 0 || step >= INT64_C(1) << 52)
        return context_fail(p->c, CKPT_EINVAL, "step %lld is not in [0, 2^52)", (long long)step);
    bool anew = !p->told && p->c->rank;
    if (anew && p->submitted != p->steps)
        return context_fail(p->c, CKPT_EINVAL, "a step of the program is under way");
    p->shift = step - p->before - p->submitted;
    if (!anew)
        return CKPT_OK;
    p->told = true;
    /* A recorded step keeps its micro-steps, which were those of the rank. */
    int rc = program_record(p);
    return rc ? context_fail_device(p->c, p, rc) : CKPT_OK;
}
