/*
 * Algorithms of libraries as part of a plan: taken from the plan file before the first kernel runs,
 * kept with the plan when all have run once.  Another algorithm adds in another order, so a plan
 * that is read gives the same numbers only with those it was made with.
 */
#include "exec/program.h"

static struct pins *algorithms(const ckpt *c)
{
    return c->device->ops->algorithms ? c->device->ops->algorithms(c->device) : NULL;
}

int program_take_algorithms(struct ckpt_program *p)
{
    ckpt *c = p->c;
    char message[CKPT_MESSAGE];
    struct pins *to = algorithms(c);
    if (!to || !c->options.plan_in || c->n_warm)
        return 0;
    int rc = plan_read_pins(c->options.plan_in, to, message);
    return rc ? context_fail(c, rc, "%s", message) : 0;
}

int program_keep_algorithms(struct ckpt_program *p)
{
    const struct pins *from = algorithms(p->c);
    int rc = from ? pins_add(&p->plan->pins, from) : 0;
    return rc ? context_fail(p->c, rc, "no memory for the algorithms of the plan") : 0;
}
