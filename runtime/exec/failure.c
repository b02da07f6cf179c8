/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a failure of the device into one sentence, and marks the weights as lost. */
#include "exec/program.h"

/* Whether a program still exists: the device reports a hung operation again and again, also after
 * its program was freed. */
static bool is_alive(const struct programs *ps, const struct ckpt_program *program)
{
    const struct ckpt_program *p = ps->first;
    while (p && p != program)
        p = p->next;
    return p != NULL;
}

/* "writing blocks.3.weight (exp_avg) after adamw in blocks.3" */
static void name_io(const struct programs *ps, const struct device_io *io, char *dst, size_t size)
{
    const struct ckpt_program *p = io->owner;
    if (!is_alive(ps, p)) {
        snprintf(dst, size, "a file operation of a program that is gone");
        return;
    }
    const struct copy *k = &p->plan->copies[io->what];
    bool write = io->call == program_write_tier;
    const struct plan_step *at = &p->plan->steps[write ? k->after : k->before % p->plan->n_steps];
    const char *name = p->graph->storages[p->plan->residences[k->from].storage].name;
    snprintf(dst, size, "%s %.200s %s %.200s", write ? "writing" : "reading",
             name ? name : "a storage", write ? "after" : "for", p->graph->ops[at->op].name);
}

/* Failed kernels are known by op number only: it is p's unless other programs have steps in
 * flight. */
static void name_kernel(const struct programs *ps, const struct ckpt_program *p, int32_t op,
                        char *dst, size_t size)
{
    bool known = p != NULL;
    for (const struct ckpt_program *other = ps->first; other; other = other->next)
        known = known && (other == p || other->submitted == other->steps);
    if (known)
        tape_op_name(p->tape, op, dst, size);
    else
        snprintf(dst, size, "a kernel");
}

static const char *reason_of(const struct device *d)
{
    const struct tier *t = d->failed_io.call ? d->failed_io.user : NULL;
    return *d->reason ? d->reason : t ? t->reason : "";
}

int programs_fail_device(struct programs *ps, const struct ckpt_program *p, int rc)
{
    char name[512] = "a copy";
    const struct device *d = ps->memory->device;
    int64_t step = p ? p->before + p->steps + 1 : 0;
    if (d->failed_io.call) {
        name_io(ps, &d->failed_io, name, sizeof name);
        step = d->failed_io.step + 1;
    } else if (d->failed_op >= 0) {
        name_kernel(ps, p, d->failed_op, name, sizeof name);
    }
    char code[16]; /* a kernel of a program may return any number */
    snprintf(code, sizeof code, "%d", rc);
    const bool known = rc < 0 && rc >= CKPT_ESTOP;
    rc = known ? rc : CKPT_EDEVICE;
    const char *reason = rc == CKPT_ECOMM ? ps->ranks->comm->reason : reason_of(d);
    if (!ps->params->lost)
        ps->params->lost = step ? step : -1;
    error_set(rc, "step %lld: %s failed with %s%s%s", (long long)step, name,
              known ? ckpt_error_name(rc) : code, *reason ? ": " : "", reason);
    return ranks_give_up(ps->ranks, rc);
}
