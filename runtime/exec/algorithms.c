/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Library algorithms as part of a plan and of a machine file: read from these files before the
 * first kernel runs, stored with the plan once all kernels have run.  Another algorithm adds in
 * another order, so a plan read from a file gives the same numbers only with the algorithms it was
 * made with: an algorithm named by the plan overrides the machine's.
 */
#include "exec/program.h"

static struct algorithms *algorithms(const struct programs *ps)
{
    return ps->memory->device->ops->algorithms
               ? ps->memory->device->ops->algorithms(ps->memory->device)
               : NULL;
}

static int no_memory(void)
{
    return error_set(CKPT_ENOMEM, "no memory for the algorithms of libraries");
}

static int read_algorithms(struct programs *ps, struct algorithms *to)
{
    if (algorithms_add(to, &ps->machine.algorithms))
        return no_memory();
    return ps->options->plan_in ? plan_read_algorithms(ps->options->plan_in, to) : 0;
}

int program_load_algorithms(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct algorithms *to = algorithms(ps);
    if (!to || ps->n_warm)
        return 0;
    if (ps->ranks->sharing.unlike) /* others have other devices */
        return read_algorithms(ps, to);
    return program_broadcast_algorithms(p, to, ps->ranks->rank ? 0 : read_algorithms(ps, to));
}

int program_broadcast_measured(struct ckpt_program *p)
{
    struct algorithms *own = algorithms(p->programs);
    return own ? program_broadcast_algorithms(p, own, 0) : 0;
}

int program_store_algorithms(struct ckpt_program *p)
{
    const struct algorithms *from = algorithms(p->programs);
    for (int64_t i = 0; from && i < from->n; i++)
        if (from->data[i].origin != ALGORITHM_GIVEN &&
            algorithms_set(&p->plan->algorithms, from->data[i].key, from->data[i].choice))
            return no_memory();
    return 0;
}

/* Whether the machine's choice for this key is not used here any more: the library proposed another
 * algorithm, and the plan names none. */
static bool is_outdated(const struct algorithms *used, uint64_t key)
{
    for (int64_t i = 0; i < used->n; i++)
        if (used->data[i].key == key)
            return used->data[i].origin == ALGORITHM_PROPOSED;
    return false;
}

int program_list_algorithms(const struct ckpt_program *p, struct algorithms *list)
{
    const struct algorithms *old = &p->programs->machine.algorithms,
                            *used = algorithms(p->programs);
    int rc = 0;
    for (int64_t i = 0; i < old->n && !rc; i++)
        if (!used || !is_outdated(used, old->data[i].key))
            rc = algorithms_set(list, old->data[i].key, old->data[i].choice);
    for (int64_t i = 0; used && i < used->n && !rc; i++)
        if (used->data[i].origin == ALGORITHM_FASTER)
            rc = algorithms_set(list, used->data[i].key, used->data[i].choice);
    return rc ? no_memory() : 0;
}
