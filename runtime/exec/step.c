/* Feeding, stepping, fetching: the calls of a running program. */
#include <math.h>
#include <string.h>
#include "exec/program.h"
#include "exec/timing.h"

static int32_t find_feed(const struct ckpt_program *p, const char *name)
{
    for (int32_t i = 0; i < p->tape->n_feeds; i++)
        if (!p->tape->feeds.data[i].constant && !strcmp(p->tape->feeds.data[i].name, name))
            return i;
    return -1;
}

static int32_t find_fetch(const struct ckpt_program *p, const char *name)
{
    for (int32_t i = 0; i < p->tape->n_fetches; i++)
        if (!strcmp(p->tape->fetches.data[i].name, name))
            return i;
    return -1;
}

static int refuse_plan_only(struct ckpt_program *p)
{
    return context_fail(p->c, CKPT_EINVAL, "this program was only planned (--plan-only)");
}

int ckpt_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes)
{
    if (!p->feeds)
        return refuse_plan_only(p);
    int32_t i = find_feed(p, name);
    if (i < 0)
        return context_fail(p->c, CKPT_ENAME, "there is no input '%s'", name);
    if (bytes != p->feeds[i].bytes)
        return context_fail(p->c, CKPT_EINVAL, "input '%s' takes %lld bytes a batch, not %lld",
                            name, (long long)p->feeds[i].bytes, (long long)bytes);
    memcpy(p->feeds[i].data, data, (size_t)bytes);
    p->feeds[i].fed = true;
    return 0;
}

int ckpt_fetch(ckpt_program *p, const char *name, void *dst, int64_t bytes)
{
    if (!p->fetches)
        return refuse_plan_only(p);
    int32_t i = find_fetch(p, name);
    if (i < 0)
        return context_fail(p->c, CKPT_ENAME, "there is no output '%s'", name);
    if (bytes != p->fetches[i].bytes)
        return context_fail(p->c, CKPT_EINVAL, "output '%s' has %lld bytes, not %lld", name,
                            (long long)p->fetches[i].bytes, (long long)bytes);
    if (!p->steps)
        return context_fail(p->c, CKPT_EINVAL, "output '%s': no step was run yet", name);
    memcpy(dst, p->fetches[i].data, (size_t)bytes);
    return 0;
}

int ckpt_program_desc(const ckpt_program *p, const char *name, struct ckpt_desc *desc)
{
    int32_t i = find_feed(p, name);
    bool in = i >= 0;
    if (!in)
        i = find_fetch(p, name);
    if (i < 0)
        return context_fail(p->c, CKPT_ENAME, "there is no input or output '%s'", name);
    const struct tensor *v =
        &p->tape->tensors
             .data[in ? p->tape->feeds.data[i].tensor : p->tape->fetches.data[i].tensor];
    *desc = v->desc;
    desc->offset = 0;
    const struct port *port = p->feeds ? (in ? &p->feeds[i] : &p->fetches[i]) : NULL;
    int64_t times = port ? port->bytes / port->slice : p->tape->n_micro;
    if (!desc->ndim && times > 1)
        desc->shape[desc->ndim++] = 1;
    if (desc->ndim)
        desc->shape[0] *= times;
    desc_dense(desc);
    return 0;
}

void ckpt_set_lr(ckpt_program *p, float lr)
{
    p->lr = lr;
}

static int check_fed(struct ckpt_program *p)
{
    for (int32_t i = 0; i < p->tape->n_feeds; i++)
        if (!p->feeds[i].fed)
            return context_fail(p->c, CKPT_EINVAL, "input '%s' was never fed",
                                p->tape->feeds.data[i].name);
    return 0;
}

static void set_runs(struct ckpt_program *p)
{
    for (int32_t m = 0; m < p->tape->n_micro; m++)
        p->runs[m] = (struct ckpt_run){.seed = (uint64_t)p->c->options.seed,
                                       .step = p->steps,
                                       .micro = m,
                                       .n_micro = p->tape->n_micro,
                                       .lr = p->lr,
                                       .opt_step = p->c->updates};
}

/* The mean over the micro-steps, in order. */
static float read_loss(const struct ckpt_program *p)
{
    double sum = 0;
    if (p->loss < 0)
        return NAN;
    const float *loss = (const float *)p->fetches[p->loss].data;
    for (int32_t m = 0; m < p->tape->n_micro; m++)
        sum += loss[m];
    return (float)(sum / p->tape->n_micro);
}

static int report_device(struct ckpt_program *p, int rc)
{
    char name[256];
    tape_op_name(p->tape, p->c->device->failed_op, name, sizeof name);
    return context_fail(p->c, rc, "step %lld: %s failed with %s", (long long)p->steps + 1, name,
                        ckpt_error_name(rc));
}

static int report_nan(struct ckpt_program *p, float loss)
{
    int32_t feed, op = program_find_nan(p, &feed);
    char where[300] = "the update";
    if (feed >= 0)
        snprintf(where, sizeof where, "the input '%s'", p->tape->feeds.data[feed].name);
    else if (op >= 0)
        tape_op_name(p->tape, op, where, sizeof where);
    return context_fail(p->c, CKPT_ENAN,
                        "step %lld: loss %g, gradient norm %g; the first value that is not finite "
                        "comes from %s; the weights are those of the step before",
                        (long long)p->steps + 1, (double)loss, p->grad_norm, where);
}

int ckpt_step(ckpt_program *p, float *loss)
{
    if (!p->feeds)
        return refuse_plan_only(p);
    int rc = check_fed(p);
    if (rc)
        return rc;
    set_runs(p);
    rc = program_walk(p);
    if (rc)
        return report_device(p, rc);
    float value = read_loss(p);
    if (loss)
        *loss = value;
    if (p->norm >= 0)
        p->grad_norm = ((const float *)p->fetches[p->norm].data)[0];
    if (p->trains && (!isfinite(value) || !isfinite(p->grad_norm)))
        return report_nan(p, value);
    p->steps++;
    p->c->updates += p->trains;
    char message[CKPT_MESSAGE];
    rc = p->timing ? timing_step(p->timing, p, message) : 0;
    return rc ? context_fail(p->c, rc, "%s", message) : 0;
}
