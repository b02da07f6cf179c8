/* SPDX-License-Identifier: Apache-2.0 */
/* Step and update counts of the programs of a context, for states of training. */
#include "ckpt_files.h"
#include "exec/program.h"
#include "optim/optimizer.h"

int programs_count_training(const struct programs *ps)
{
    int n = 0;

    for (const struct ckpt_program *p = ps->first; p; p = p->next)
        n += p->trains;
    return n;
}

bool programs_are_idle(const struct programs *ps)
{
    for (const struct ckpt_program *p = ps->first; p; p = p->next)
        if (p->submitted != p->steps)
            return false;
    return true;
}

/* The list of the context begins with the program compiled last. */
void programs_get_counts(const struct programs *ps, struct training_count *counts)
{
    int at = programs_count_training(ps);

    for (const struct ckpt_program *p = ps->first; p; p = p->next)
        if (p->trains)
            counts[--at] =
                (struct training_count){p->before + p->steps, p->batch * ps->ranks->sharing.ranks};
}

/* An optimizer that all programs share gets the count of all updates; each of several optimizers
 * gets the steps of its own programs. */
static void set_updates(struct programs *ps, int64_t updates)
{
    const struct ckpt_optimizer *first = NULL;
    bool one = true;

    for (struct ckpt_program *p = ps->first; p; p = p->next)
        if (p->trains) {
            first = first ? first : p->optimizer;
            one &= p->optimizer == first;
            p->optimizer->updates = 0;
        }
    for (struct ckpt_program *p = ps->first; p; p = p->next)
        if (p->trains && one)
            p->optimizer->updates = updates;
        else if (p->trains)
            p->optimizer->updates += p->before + p->steps;
}

void programs_set_counts(struct programs *ps, const int64_t *steps, int64_t updates)
{
    int at = programs_count_training(ps);

    for (struct ckpt_program *p = ps->first; p; p = p->next)
        if (p->trains)
            p->before = steps[--at] - p->steps;
    set_updates(ps, updates);
    ps->params->updates = updates;
}

uint64_t programs_digest_steps(const struct programs *ps)
{
    uint64_t steps = HASH_START;

    for (const struct ckpt_program *p = ps->first; p; p = p->next)
        if (p->trains)
            steps = hash_mix(steps, p->before + p->submitted);
    return steps;
}

int64_t programs_count_updates(const struct programs *ps)
{
    int64_t n = ps->params->updates;

    for (const struct ckpt_program *p = ps->first; p; p = p->next)
        n += p->trains ? p->submitted - p->steps : 0;
    return n;
}

int64_t program_random_step(const struct ckpt_program *p)
{
    return (p->trains ? programs_count_updates(p->programs) : p->before + p->submitted) +
           p->random_offset;
}

void program_draw_as(struct ckpt_program *p, int64_t step)
{
    p->random_offset += step - program_random_step(p);
}

int ckpt_set_random_step(ckpt_program *p, int64_t step)
{
    NOT_NULL(NULL, p);
    if (p->trains)
        return error_fail(p->programs->error, CKPT_EINVAL,
                          "the random numbers of a program that trains follow from its steps");
    if (step < 0 || step >= INT64_C(1) << 52)
        return error_fail(p->programs->error, CKPT_EINVAL, "step %lld is not in [0, 2^52)",
                          (long long)step);
    bool anew = !p->explicit_step && p->programs->ranks->rank;
    if (anew && p->submitted != p->steps)
        return error_fail(p->programs->error, CKPT_EINVAL, "a step of the program is under way");
    program_draw_as(p, step);
    if (!anew)
        return CKPT_OK;
    p->explicit_step = true;
    /* A recorded step keeps its micro-step numbers, which were those of the rank. */
    int rc = program_record(p);
    return rc ? programs_fail_device(p->programs, p, rc) : CKPT_OK;
}
