/* What a program is before it takes anything: its tape, the graph of that with times, a plan. */
#include "ckpt_ways.h"
#include "exec/program.h"
#include "homes.h"
#include "optim/optim.h"
#include "plan/graph_file.h"
#include "ranks.h"

/* Replaces the context's sentence by one of the tape's or planner's. */
static int fail_with(ckpt *c, int code, const char *sentence)
{
    if (code == CKPT_EBUDGET && c->asked)
        return context_fail(c, code, "%s asked for, but the device has %s: %s",
                            human_bytes(c->asked), human_bytes(c->budget), sentence);
    return context_fail(c, code, "%s", sentence);
}

static int record_tape(struct ckpt_program *p, ckpt_recorder record, void *user, int64_t micro,
                       const struct ckpt_adamw *opt)
{
    ckpt *c = p->c;
    struct tape_env env = context_tape_env(c);
    if (tape_new(&p->tape, &env, micro, (int32_t)(p->batch / micro)))
        return context_fail(c, CKPT_ENOMEM, "no memory for a tape");
    ckpt_tape *t = p->tape;
    t->grad_dtype = opt ? opt->grad_dtype : CKPT_F32;
    ckpt_tensor loss = record(t, micro, user);
    if (c->params.n != t->n_params)
        return context_fail(c, CKPT_EINVAL, "the recorder made a parameter: make them before");
    if (opt && !t->error && !tape_differentiate(t, loss)) {
        tape_fetch_gradients(t);
        tape_shard_gradients(t);
        optim_append(t, opt);
    }
    return t->error ? fail_with(c, t->error, t->message) : 0;
}

/* Records the loss as an output before the tape is differentiated, whatever the model returns. */
struct wrapped {
    bool of_ranks; /* the update makes their loss an output */
    ckpt_recorder record;
    void *user;
};

static ckpt_tensor record_with_loss(ckpt_tape *t, int64_t micro, void *user)
{
    const struct wrapped *w = user;
    ckpt_tensor loss = w->record(t, micro, w->user);
    struct ckpt_desc d = loss.id ? ckpt_desc_of(t, loss) : (struct ckpt_desc){.ndim = -1};
    if (d.ndim >= 0 && d.dtype == CKPT_F32 && desc_numel(&d) == 1 && !w->of_ranks)
        ckpt_output(t, PROGRAM_LOSS, loss);
    return loss;
}

/* Before any of it runs. */
static int check_kernels(struct ckpt_program *p)
{
    for (int32_t i = 0; i < p->tape->n_ops; i++) {
        const struct op *o = &p->tape->ops.data[i];
        char name[256];
        if (o->feed >= 0 || o->fetch >= 0 || (o->def->flags & CKPT_OP_VIEW) || program_kernel(p, i))
            continue;
        tape_op_name(p->tape, i, name, sizeof name);
        return context_fail(p->c, CKPT_EDEVICE, "%s has no kernel for --device %s", name,
                            p->c->device->ops->name);
    }
    return 0;
}

/* The graph with the times that planning goes by.  Ranks compare what they are about to run before
 * any of it runs: the warm-up does already. */
static int make_graph(struct ckpt_program *p, const struct ckpt_adamw *opt)
{
    ckpt *c = p->c;
    char message[CKPT_MESSAGE] = "";
    if (graph_from_tape(p->tape, &c->machine, &p->graph))
        return context_fail(c, CKPT_ENOMEM, "no memory for the graph");
    if (c->options.graph_out && p->trains) {
        int failed = graph_write(p->graph, c->options.graph_out, message);
        if (failed)
            return fail_with(c, failed, message);
        c->written |= WRITTEN_GRAPH;
    }
    bool runs_here = c->device && c->device->ops->backend == c->backend;
    int rc = runs_here ? check_kernels(p) : 0;
    if (!rc && c->comm)
        rc = ranks_agree(c, p->graph, opt);
    if (!rc)
        rc = program_take_algorithms(p);
    if (!rc)
        rc = program_warm(p);
    p->reserved = c->overhead + c->persistent - program_placed_bytes(p);
    return rc;
}

int program_draft(struct ckpt_program *p, const struct ckpt_way *way, const struct ckpt_adamw *opt,
                  int64_t micro)
{
    struct wrapped model = {program_is_shared(p), way->record, way->user};
    int rc = record_tape(p, record_with_loss, &model, micro, opt);

    return rc ? rc : make_graph(p, opt);
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* The addresses in the tiers of a plan from a file must be free here. */
static int check_tiers(struct ckpt_program *p)
{
    ckpt *c = p->c;
    const struct plan *plan = p->plan;
    int64_t has[] = {[TIER_HOST] = c->options.host, [TIER_NVME] = c->directories.bytes};
    int64_t own[] = {[TIER_HOST] = plan->host_bytes, [TIER_NVME] = plan->nvme_bytes};
    for (int i = 0; i < TIER_COUNT; i++) {
        const char *name = i == TIER_HOST ? "--host" : "--nvme";
        int64_t base = plan->budgets.tier_base[i], taken = homes_tier_bytes(c, i);
        if (own[i] && base < taken)
            return context_fail(c, CKPT_EPLAN,
                                "%s: the plan parks from byte %lld of %s on, of which programs "
                                "compiled before take %lld",
                                c->options.plan_in, (long long)base, name, (long long)taken);
        if (own[i] > has[i] - base)
            return context_fail(c, CKPT_EBUDGET, "%s: the plan needs %s %s", c->options.plan_in,
                                name, human_bytes(base + own[i]));
    }
    return 0;
}

static int read_plan(struct ckpt_program *p, char *message)
{
    ckpt *c = p->c;
    int rc = plan_read(p->graph, c->options.plan_in, &p->plan, message);
    if (!rc)
        rc = plan_check(p->graph, p->plan, message);
    if (rc)
        return fail_with(c, rc, message);
    int64_t needs = p->reserved + p->plan->persistent + p->plan->transient;
    if (needs > c->budget)
        return context_fail(c, CKPT_EBUDGET, "%s: the plan needs %s, over the budget of %s",
                            c->options.plan_in, human_bytes(needs), human_bytes(c->budget));
    return c->options.plan_only ? 0 : check_tiers(p);
}

bool program_plan_is_given(const struct ckpt_program *p)
{
    return p->c->options.plan_in && p->trains;
}

static int search_plan(struct ckpt_program *p, const struct budgets *budgets, char *message)
{
    ckpt *c = p->c;
    int rc = plan_make(p->graph, &c->machine, budgets, p->reserved, &p->plan, message);
    if (!rc && c->options.verify)
        rc = plan_check(p->graph, p->plan, message);
    return rc ? fail_with(c, rc, message) : 0;
}

int program_plan(struct ckpt_program *p)
{
    ckpt *c = p->c;
    char message[CKPT_MESSAGE] = "";
    struct budgets budgets;
    int rc = program_find_budgets(p, &budgets);
    if (rc)
        return rc;
    if (c->rank == 0)
        rc = program_plan_is_given(p) ? read_plan(p, message) : search_plan(p, &budgets, message);
    rc = program_share_plan(p, rc);
    if (!rc)
        rc = program_keep_algorithms(p);
    return rc;
}

int program_write_plan(struct ckpt_program *p)
{
    ckpt *c = p->c;
    char message[CKPT_MESSAGE] = "";
    if (!c->options.plan_out || !p->trains)
        return 0;
    int rc = plan_write(p->graph, p->plan, c->options.plan_out, message);
    if (rc)
        return fail_with(c, rc, message);
    c->written |= WRITTEN_PLAN;
    return 0;
}

void program_drop_plan(struct ckpt_program *p)
{
    plan_free(p->plan);
    graph_free(p->graph);
    tape_free(p->tape);
    p->plan = NULL;
    p->graph = NULL;
    p->tape = NULL;
}
