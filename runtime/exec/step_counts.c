/* SPDX-License-Identifier: Apache-2.0 */
/* Step and update counts of the programs of a context, for states of training. */
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
            counts[--at] = (struct training_count){
                p->before + p->steps, p->batch * sharing_sample_groups(&ps->ranks->sharing)};
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

    if (ps->mixed) /* each rank has its own numbers, which add up to the same */
        return hash_mix(steps, programs_count_updates(ps));
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

int64_t program_under_way(const struct ckpt_program *p)
{
    return p->optimizer->submitted - p->optimizer->waited;
}

void program_set_runs(struct ckpt_program *p, int slot)
{
    const struct ranks *job = p->programs->ranks;
    const int32_t group = sharing_sample_group(&job->sharing, job->rank);
    const bool mixed = p->programs->mixed && p->trains;
    int64_t step = program_random_step(p);
    const struct ckpt_run before = p->runs[p->run_slot * p->tape->n_micro];

    /* Batches of other sizes have no common numbers for their samples. */
    if (mixed)
        step = step * job->sharing.ranks + group;
    for (int32_t m = 0; m < p->tape->n_micro; m++)
        p->runs[slot * p->tape->n_micro + m] = (struct ckpt_run){
            .seed = (uint64_t)p->programs->options->seed,
            .step = step,
            .micro = (p->explicit_step || mixed ? 0 : group * p->tape->n_micro) + m,
            .n_micro = p->tape->n_micro,
            .lr = p->lr,
            .opt_step = p->optimizer ? p->optimizer->updates + program_under_way(p) : 0,
            .halt = p->halt,
            .bad_index = &p->bad_index[slot]};
    p->runs_before[slot] =
        p->programs->pending == p ? before : p->runs[slot * p->tape->n_micro];
    p->bad_index[slot] = (struct index_report){.first = UINT64_MAX};
}
