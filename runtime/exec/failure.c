/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a failure of the device, or an update that breaks a weight, into one sentence, and marks
 * the weights as lost. */
#include <math.h>
#include <stdlib.h>
#include "dist/values.h"
#include "exec/program.h"
#include "optim/optimizer.h"

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

/* ---- updates --------------------------------------------------------------------------------- */

int program_abandon(struct ckpt_program *p, int rc)
{
    struct ckpt_optimizer *optimizer = p->optimizer;
    p->submitted = p->steps;
    if (!optimizer)
        return rc;
    optimizer->waited = optimizer->submitted;
    for (struct ckpt_program *o = p->programs->first; o; o = o->next)
        if (o->optimizer == optimizer)
            o->submitted = o->steps;
    return rc;
}

static const struct param *find_broken(struct programs *ps)
{
    for (int32_t i = 0; i < ps->params->n; i++) {
        struct param *w = &ps->params->data[i];
        int64_t n = desc_numel(&w->desc);
        float *value =
            w->trainable && !w->place.elsewhere ? malloc((size_t)n * sizeof *value) : NULL;
        bool bad =
            value && !values_read(ps->ranks, w, CKPT_VALUE, value) && !floats_are_finite(value, n);
        free(value);
        if (bad)
            return w;
    }
    return NULL;
}

/* Uses only this rank's shares: other ranks may still be in the step. */
static void name_broken(struct programs *ps, char *where, size_t size)
{
    const struct param *p =
        ps->ranks->sharing.layout ? ranks_find_broken(ps->ranks) : find_broken(ps);
    snprintf(where, size, p ? "'%.200s'" : "a parameter", p ? p->name : "");
}

/* Gradients were finite and the weights are not: they cannot be restored and must not be saved. */
int program_report_update(struct ckpt_program *p, int64_t step, double norm)
{
    struct programs *ps = p->programs;
    char where[300], how[120] = "";
    int rc = ps->memory->device->ops->sync(ps->memory->device);
    program_abandon(p, rc);
    if (rc)
        return programs_fail_device(ps, p, rc);
    *p->halt = 0;
    name_broken(ps, where, sizeof where);
    if (isfinite(norm))
        snprintf(how, sizeof how, ", with a learning rate of %g and a gradient norm of %g",
                 (double)p->lr, norm);
    error_set(CKPT_ENAN,
              "step %lld: the update made %s infinite or NaN%s; the weights are lost: load those "
              "saved last",
              (long long)step, where, how);
    ps->params->lost = step;
    return ranks_give_up(ps->ranks, CKPT_ENAN);
}
