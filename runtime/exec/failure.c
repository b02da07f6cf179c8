/* What a failure of the device means: one sentence, and whether the weights are still there. */
#include "exec/program.h"
#include "ranks.h"

/* "writing blocks.3.weight (exp_avg) behind adamw in blocks.3" */
static void name_io(const struct device_io *io, char *dst, size_t size)
{
    const struct ckpt_program *p = io->owner;
    const struct plan_park *k = &p->plan->parks[io->what];
    bool write = io->call == program_write_tier;
    const struct plan_step *at = &p->plan->steps[write ? k->out_step : k->use_step];
    const char *name = p->graph->storages[k->storage].name;
    snprintf(dst, size, "%s %.200s %s %.200s", write ? "writing" : "reading",
             name ? name : "a storage", write ? "behind" : "for", p->graph->ops[at->op].name);
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
        name_io(&d->failed_io, name, sizeof name);
        step = d->failed_io.step + 1;
    } else if (d->failed_op >= 0 && p) {
        tape_op_name(p->tape, d->failed_op, name, sizeof name);
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
    return context_fail(c, CKPT_EDEVICE,
                        "step %lld failed before it was through, and left the weights in pieces: "
                        "open the context anew and load those saved last",
                        (long long)c->lost);
}
