/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that run different programs in one step: ckpt_mix_programs.  A collective is a meeting of
 * all ranks, so the plans of these programs must have the same collectives in the same order, as
 * often.  That is compared here, for every step that the ranks can make together; while a step
 * runs, only ranks on CPUs would notice a difference.
 */
#include "collective.h"
#include "exec/program.h"

/* One collective of a step. */
struct meeting {
    const char *op, *label;
    int64_t count;
    enum ckpt_dtype dtype;
    bool tail; /* in the update, not in each micro-step */
};

/* The next collective of the plan from step *k on. */
static bool next_meeting(const struct ckpt_program *p, int32_t *k, struct meeting *m)
{
    const ckpt_tape *t = p->tape;

    for (; *k < p->plan->n_steps; ++*k) {
        const int32_t at = p->plan->steps[*k].op;
        if (!p->graph->ops[at].collective)
            continue;
        const struct op *o = &t->ops.data[p->graph->ops[at].tape_op];
        const struct ckpt_desc *in = &t->tensors.data[t->operands.data[o->operands]].desc;
        *m = (struct meeting){o->def->name, t->labels.data[o->label], desc_numel(in), in->dtype,
                              at >= p->graph->n_body};
        ++*k;
        return true;
    }
    return false;
}

static bool is_same(const struct meeting *a, const struct meeting *b)
{
    return !strcmp(a->op, b->op) && !strcmp(a->label, b->label) && a->count == b->count &&
           a->dtype == b->dtype && a->tail == b->tail;
}

static void describe(char *text, size_t size, const struct meeting *m, bool is)
{
    if (is)
        snprintf(text, size, "%s \"%s\" of %lld values", m->op, m->label, (long long)m->count);
    else
        snprintf(text, size, "none");
}

/* number: of p among the programs that train, from 1 in the order of compilation. */
static int compare(const struct ckpt_program *first, const struct ckpt_program *p, int number)
{
    struct meeting a = {0}, b = {0};
    char mine[160], other[160];
    int32_t i = 0, k = 0, n = 0;
    bool more;

    if (p->optimizer != first->optimizer)
        return error_set(CKPT_EINVAL,
                         "ckpt_mix_programs: program %d trains with another optimizer than "
                         "program 1, so ranks cannot run them in one step",
                         number);
    if (p->tape->n_micro != first->tape->n_micro)
        return error_set(CKPT_EINVAL,
                         "ckpt_mix_programs: program %d has %d micro-steps and program 1 has %d: "
                         "give all the same number",
                         number, (int)p->tape->n_micro, (int)first->tape->n_micro);
    do {
        const bool has = next_meeting(first, &i, &a);
        more = next_meeting(p, &k, &b);
        n++;
        if (has == more && (!more || is_same(&a, &b)))
            continue;
        describe(other, sizeof other, &a, has);
        describe(mine, sizeof mine, &b, more);
        return error_set(CKPT_EINVAL,
                         "ckpt_mix_programs: collective %d of program %d is %s, of program 1 %s, "
                         "so ranks cannot run them in one step; try --zero 2, or more --vram",
                         (int)n, number, mine, other);
    } while (more);
    return 0;
}

/* Draws are numbered by step and rank from now on, and a recorded step keeps its numbers. */
static int record_again(struct programs *ps)
{
    int rc = 0;

    for (struct ckpt_program *p = ps->first; p && !rc; p = p->next)
        if (p->trains && ps->ranks->rank)
            rc = program_record(p);
    return rc ? programs_fail_device(ps, NULL, rc) : 0;
}

int programs_mix(struct programs *ps, const struct ckpt_program **differs)
{
    const struct ckpt_program *first = NULL;
    int number = programs_count_training(ps), rc = 0;

    *differs = NULL;
    if (!programs_are_idle(ps))
        return error_set(CKPT_EINVAL, "ckpt_mix_programs: a step is under way: call ckpt_wait "
                                      "before");
    if (ps->ranks->sharing.stages > 1)
        return error_set(CKPT_EINVAL, "ckpt_mix_programs: the stages of a pipeline run one program "
                                      "together; leave out --stages");
    if (ps->ranks->sharing.ranks < 2)
        return 0;
    for (struct ckpt_program *p = ps->first; p; p = p->next)
        first = p->trains ? p : first;
    for (struct ckpt_program *p = ps->first; p && !rc; p = p->next)
        if (p->trains) {
            rc = compare(first, p, number--);
            *differs = rc ? p : NULL;
        }
    if (rc || ps->mixed)
        return rc;
    ps->mixed = true;
    return programs_only_plan(ps) ? 0 : record_again(ps);
}
