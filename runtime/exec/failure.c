/* What a failure of the device means: one sentence, and whether the weights are still there. */
#include "exec/program.h"
#include "ranks.h"

/* One without an end is told of again and again, also when its program is gone. */
static bool is_alive(const ckpt *c, const struct ckpt_program *program)
{
    const struct ckpt_program *p = c->programs;
    while (p && p != program)
        p = p->next;
    return p != NULL;
}

/* "writing blocks.3.weight (exp_avg) behind adamw in blocks.3" */
static void name_io(const ckpt *c, const struct device_io *io, char *dst, size_t size)
{
    const struct ckpt_program *p = io->owner;
    if (!is_alive(c, p)) {
        snprintf(dst, size, "a file operation of a program that is gone");
        return;
    }
    const struct plan_park *k = &p->plan->parks[io->what];
    bool write = io->call == program_write_tier;
    const struct plan_step *at = &p->plan->steps[write ? k->out_step : k->use_step];
    const char *name = p->graph->storages[k->storage].name;
    snprintf(dst, size, "%s %.200s %s %.200s", write ? "writing" : "reading",
             name ? name : "a storage", write ? "behind" : "for", p->graph->ops[at->op].name);
}

/* Kernels are known by their op alone, which is one of p unless others have steps under way. */
static void name_kernel(const ckpt *c, const struct ckpt_program *p, int32_t op, char *dst,
                        size_t size)
{
    bool known = p != NULL;
    for (const struct ckpt_program *other = c->programs; other; other = other->next)
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

int context_fail_device(ckpt *c, const struct ckpt_program *p, int rc)
{
    char name[512] = "a copy";
    const struct device *d = c->device;
    int64_t step = p ? p->before + p->steps + 1 : 0;
    if (d->failed_io.call) {
        name_io(c, &d->failed_io, name, sizeof name);
        step = d->failed_io.step + 1;
    } else if (d->failed_op >= 0) {
        name_kernel(c, p, d->failed_op, name, sizeof name);
    }
    const char *reason = rc == CKPT_ECOMM ? c->comm->reason : reason_of(d);
    if (!c->lost)
        c->lost = step ? step : -1;
    context_fail(c, rc, "step %lld: %s failed with %s%s%s", (long long)step, name,
                 ckpt_error_name(rc), *reason ? ": " : "", reason);
    return ranks_give_up(c, rc);
}

int context_check_lost(ckpt *c)
{
    if (!c->lost)
        return 0;
    if (c->differ)
        return context_fail(c, CKPT_ECOMM,
                            "the ranks differ since step %lld or before: start anew from what was "
                            "saved last",
                            (long long)c->lost);
    return context_fail(c, CKPT_EDEVICE,
                        "step %lld failed before it was through, and left the weights in pieces: "
                        "open the context anew and load those saved last",
                        (long long)c->lost);
}

int context_check_whole(ckpt *c)
{
    int rc = context_check_lost(c);

    if (rc || !c->torn)
        return rc;
    return context_fail(c, CKPT_EIO,
                        "a load ended midway, and left some values of the file and some that were "
                        "there before: load a whole file first");
}
