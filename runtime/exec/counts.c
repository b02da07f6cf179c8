/* How far the programs of a context have come, for states of training. */
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
            counts[--at] = (struct training_count){p->before + p->steps, p->batch * c->ranks};
}

void context_set_counts(ckpt *c, const int64_t *steps)
{
    int at = context_count_training(c);

    for (struct ckpt_program *p = c->programs; p; p = p->next)
        if (p->trains)
            p->before = steps[--at] - p->steps;
}
