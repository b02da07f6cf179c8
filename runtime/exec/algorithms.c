/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Algorithms of libraries as part of a plan: taken from the plan file before the first kernel runs,
 * kept with the plan when all have run once.  Another algorithm adds in another order, so a plan
 * that is read gives the same numbers only with those it was made with.
 */
#include "exec/program.h"

static struct pins *algorithms(const struct programs *ps)
{
    return ps->memory->device->ops->algorithms
               ? ps->memory->device->ops->algorithms(ps->memory->device)
               : NULL;
}

int program_take_algorithms(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct pins *to = algorithms(ps);
    if (!to || !ps->options->plan_in || ps->n_warm)
        return 0;
    return plan_read_pins(ps->options->plan_in, to, ps->error);
}

int program_keep_algorithms(struct ckpt_program *p)
{
    const struct pins *from = algorithms(p->programs);
    int rc = from ? pins_add(&p->plan->pins, from) : 0;
    return rc ? error_fail(p->programs->error, rc, "no memory for the algorithms of the plan") : 0;
}
