/* Compiling: record, differentiate, plan, map, lower.  What a step needs is taken here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_ways.h"
#include "exec/program.h"
#include "exec/timing.h"
#include "homes.h"
#include "ranks.h"
#include "optim/optim.h"
#include "plan/graph_file.h"

#define LOSS "ckpt.loss"
#define NORM "ckpt.grad_norm" /* recorded by optim_append */
#define WISH "ckpt.wish"      /* by optim_clip */

/* Replaces the context's sentence by one of the tape's or planner's. */
static int fail_with(ckpt *c, int code, const char *sentence)
{
    if (code == CKPT_EBUDGET && c->asked)
        return context_fail(c, code, "%s asked for, but the device has %s: %s",
                            human_bytes(c->asked), human_bytes(c->budget), sentence);
    return context_fail(c, code, "%s", sentence);
}

/* *micro becomes CKPT_AUTO where it is to be chosen.  --micro-batch is for what trains: a smaller
 * batch of a program without an update is taken whole. */
static int check_batch(ckpt *c, int64_t batch, bool trains, int64_t *micro)
{
    *micro = c->options.micro_batch ? c->options.micro_batch : batch;
    if (!trains && batch > 0 && *micro > batch)
        *micro = batch;
    if (batch < 1)
        return context_fail(c, CKPT_EINVAL, "a batch of %lld samples", (long long)batch);
    if (*micro == CKPT_AUTO)
        return 0;
    if (batch % *micro || batch / *micro > INT32_MAX)
        return context_fail(c, CKPT_EINVAL,
                            "--micro-batch %lld does not divide the batch of %lld samples",
                            (long long)*micro, (long long)batch);
    return 0;
}

static int record_tape(struct ckpt_program *p, ckpt_recorder record, void *user, int64_t micro,
                       const struct ckpt_adamw *opt)
{
    ckpt *c = p->c;
    if (tape_new(&p->tape, c, micro, (int32_t)(p->batch / micro)))
        return context_fail(c, CKPT_ENOMEM, "no memory for a tape");
    ckpt_tape *t = p->tape;
    t->grad_dtype = opt ? opt->grad_dtype : CKPT_F32;
    ckpt_tensor loss = record(t, micro, user);
    if (c->n_params != t->n_params)
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
        ckpt_output(t, LOSS, loss);
    return loss;
}

/* Of the bytes of the program's persistent storages those that have a place in the arena. */
static int64_t placed_bytes(const struct ckpt_program *p)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->graph->n_storages; i++)
        if (p->graph->storages[i].home == HOME_DEVICE)
            bytes += p->graph->storages[i].bytes;
    return bytes;
}

/* The transient bytes of programs compiled before must still fit above a larger bottom. */
static int check_others(ckpt *c, int64_t persistent)
{
    for (const struct ckpt_program *o = c->programs; o; o = o->next)
        if (persistent > c->budget - c->overhead - o->plan->transient)
            return context_fail(c, CKPT_EBUDGET,
                                "with this program's parameters another program would need %s, "
                                "over the budget of %s; raise --vram",
                                human_bytes(persistent + c->overhead + o->plan->transient),
                                human_bytes(c->budget));
    return 0;
}

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
    }
    bool runs_here = c->device && c->device->ops->backend == c->backend;
    int rc = runs_here ? check_kernels(p) : 0;
    if (!rc && c->comm)
        rc = ranks_agree(c, p->graph, opt);
    if (!rc)
        rc = program_take_algorithms(p);
    if (!rc)
        rc = program_warm(p);
    p->reserved = c->overhead + c->persistent - placed_bytes(p);
    return rc;
}

/* A plan file belongs to the program that trains: sampling beside it is planned anew. */
static bool plan_is_given(const struct ckpt_program *p)
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

static int make_plan(struct ckpt_program *p)
{
    ckpt *c = p->c;
    char message[CKPT_MESSAGE] = "";
    struct budgets budgets;
    int rc = program_find_budgets(p, &budgets);
    if (rc)
        return rc;
    if (c->rank == 0)
        rc = plan_is_given(p) ? read_plan(p, message) : search_plan(p, &budgets, message);
    rc = program_share_plan(p, rc);
    if (!rc)
        rc = program_keep_algorithms(p);
    if (rc)
        return rc;
    if (c->options.plan_out && p->trains) {
        rc = plan_write(p->graph, p->plan, c->options.plan_out, message);
        if (rc)
            return fail_with(c, rc, message);
    }
    return check_others(c, p->reserved - c->overhead + p->plan->persistent);
}

static int make_port(struct ckpt_program *p, struct port *port, int32_t tensor, int64_t times,
                     int sets)
{
    struct device *d = p->c->device;
    port->slice = desc_bytes(&p->tape->tensors.data[tensor].desc);
    port->bytes = port->slice * times;
    for (int i = 0; i < DEVICE_FLIGHTS; i++) {
        port->data[i] = i < sets ? d->ops->host_alloc(d, port->bytes) : port->data[0];
        if (!port->data[i])
            return CKPT_ENOMEM;
    }
    return 0;
}

static int make_ports(struct ckpt_program *p)
{
    const ckpt_tape *t = p->tape;
    struct device *d = p->c->device;
    p->feeds = calloc((size_t)t->n_feeds + 1, sizeof *p->feeds);
    p->fetches = calloc((size_t)t->n_fetches + 1, sizeof *p->fetches);
    int64_t n_runs = (int64_t)t->n_micro * DEVICE_FLIGHTS;
    p->runs = d->ops->host_alloc(d, (int64_t)sizeof *p->runs * n_runs + (int64_t)sizeof *p->halt);
    int rc = p->feeds && p->fetches && p->runs ? 0 : CKPT_ENOMEM;
    p->halt = p->runs ? (int32_t *)(p->runs + n_runs) : NULL;
    for (int32_t i = 0; i < t->n_feeds && !rc; i++) {
        const struct feed *f = &t->feeds.data[i];
        rc = make_port(p, &p->feeds[i], f->tensor, f->constant ? 1 : t->n_micro,
                       f->constant ? 1 : DEVICE_FLIGHTS);
        if (!rc && f->constant)
            memcpy(p->feeds[i].data[0], f->constant, (size_t)p->feeds[i].bytes);
        p->feeds[i].fed = f->constant || !f->used;
    }
    /* What the update fetches is fetched once; the body's outputs once per micro-step. */
    for (int32_t i = 0; i < t->n_ops && !rc; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->fetch >= 0)
            rc = make_port(p, &p->fetches[o->fetch], op_in(t, o, 0),
                           o->phase == PHASE_UPDATE ? 1 : t->n_micro, DEVICE_FLIGHTS);
    }
    return rc ? context_fail(p->c, rc, "no host memory to stage inputs and outputs") : 0;
}

static int lower_and_record(struct ckpt_program *p)
{
    struct device *d = p->c->device;
    int rc = program_lower(p);
    if (rc)
        return context_fail(p->c, rc, "%s",
                            rc == CKPT_EPLAN ? "the plan parks what is not resident"
                                             : "no memory for the instructions");
    rc = program_record(p);
    return rc ? context_fail(p->c, rc, "the device cannot record the step: %s", d->reason) : 0;
}

/* Optimizer state that lives where steps on the host use it has no parks, but a home. */
static void place_parameter(struct ckpt_program *p, int32_t storage, const struct storage *s)
{
    const struct plan_lodging *l = plan_lodging_of(p->plan, storage);
    const struct plan_park home = {.tier = FATE_PARK_HOST, .tier_offset = l ? l->tier_offset : 0};
    bool lives_there = l && l->in_step < 0;
    context_place_slot(p->c, s->param, s->kind - STORAGE_VALUE,
                       lives_there ? &home : plan_park_of(p->plan, storage));
}

static void place_parameters(struct ckpt_program *p)
{
    for (int32_t i = 0; i < p->graph->n_storages; i++) {
        const struct storage *s = &p->tape->storages.data[p->graph->storages[i].tape_storage];
        if (p->graph->storages[i].persistent)
            place_parameter(p, i, s);
    }
}

/* A larger bottom moves what stands above it: programs compiled before, if not behind a compile
 * that failed. */
static int move_others(struct ckpt_program *p)
{
    int rc = 0;
    for (struct ckpt_program *o = p->next; o && !rc; o = o->next)
        if (o->lowered.base != p->c->persistent)
            rc = lower_and_record(o);
    return rc;
}

/* Takes the memory: places the parameters, maps the arena, writes their values.  The others have
 * left the places of these by then, whatever fails. */
static int take_memory(struct ckpt_program *p)
{
    ckpt *c = p->c;
    int rc = homes_reserve(c, p->plan);
    if (!rc && p->plan->n_lodgings)
        rc = homes_open_steps(c);
    if (rc)
        return rc;
    place_parameters(p);
    if (c->device->ops->map(c->device, context_arena_bytes(c)))
        return context_fail(c, CKPT_ENOMEM, "there is no %s for the arena of --device %s now",
                            human_bytes(context_arena_bytes(c)), c->device->ops->name);
    rc = move_others(p);
    if (!rc)
        rc = context_fill_slots(c);
    return rc ? rc : lower_and_record(p);
}

static void drop_plan(struct ckpt_program *p)
{
    plan_free(p->plan);
    graph_free(p->graph);
    tape_free(p->tape);
    p->plan = NULL;
    p->graph = NULL;
    p->tape = NULL;
}

/* What is chosen among: what ranks share over, ways to record the step, sizes of its micro-steps.
 */
struct choice {
    const struct ckpt_way *ways;
    int n;
    int way;
    int64_t micro; /* CKPT_AUTO until it is known */
    enum ranks_over over;
    double seconds;
};

static int record_way(struct ckpt_program *p, const struct choice *k, const struct ckpt_adamw *opt,
                      int way, int64_t micro)
{
    struct wrapped model = {program_is_shared(p), k->ways[way].record, k->ways[way].user};
    int rc = record_tape(p, record_with_loss, &model, micro, opt);

    return rc ? rc : make_graph(p, opt);
}

static int plan_way(struct ckpt_program *p, const struct choice *k, const struct ckpt_adamw *opt,
                    int way, int64_t micro)
{
    int rc = record_way(p, k, opt, way, micro);

    return rc ? rc : make_plan(p);
}

/* Whether a plan may fit and be faster than the fastest so far; seen without making one, which
 * takes most of the time. */
static bool is_promising(const struct ckpt_program *p, const struct choice *k)
{
    return plan_is_given(p) || (graph_seconds(p->graph) < k->seconds &&
                                graph_largest_op(p->graph) <= p->c->budget - p->reserved);
}

/* Plans one way at one size, and remembers it where it is the fastest so far. */
static int consider(struct ckpt_program *p, struct choice *k, const struct ckpt_adamw *opt,
                    enum ranks_over over, int way, int64_t micro)
{
    int rc = record_way(p, k, opt, way, micro);
    bool promising = !rc && is_promising(p, k);

    if (!rc)
        rc = program_decide(p, &promising);
    if (!rc)
        rc = promising ? make_plan(p) : CKPT_EBUDGET;
    if (!rc && p->plan->seconds < k->seconds) {
        k->seconds = p->plan->seconds;
        k->over = over;
        k->way = way;
        k->micro = micro;
    }
    if (!rc || rc == CKPT_EBUDGET)
        drop_plan(p);
    return rc == CKPT_EBUDGET ? 0 : rc;
}

/* All ways and sizes: all those that divide the batch where none is given.  Returns the last. */
static int consider_sizes(struct ckpt_program *p, struct choice *k, const struct ckpt_adamw *opt,
                          enum ranks_over over, int64_t given, int64_t *last)
{
    int rc = ranks_share(p->c, over);

    for (int way = 0; way < k->n; way++) {
        for (int64_t size = p->batch; size >= 1 && !rc; size--) {
            if (p->batch % size || p->batch / size > INT32_MAX ||
                (given != CKPT_AUTO && size != given))
                continue;
            *last = size;
            rc = consider(p, k, opt, over, way, size);
        }
    }
    return rc;
}

/* The way and the size of micro-steps whose plan is the fastest, and what ranks share over then.
 * Where nothing fits it is the last one tried, to be refused. */
static int choose(struct ckpt_program *p, struct choice *k, const struct ckpt_adamw *opt)
{
    int64_t given = k->micro, last = given;
    enum ranks_over last_over = OVER_ALL;
    int rc = 0;

    k->micro = CKPT_AUTO;
    k->seconds = INFINITY;
    for (int over = 0; over < OVER_COUNT && !rc; over++)
        if (ranks_may_share(p->c, (enum ranks_over)over)) {
            last_over = (enum ranks_over)over;
            rc = consider_sizes(p, k, opt, last_over, given, &last);
        }
    if (k->micro == CKPT_AUTO) {
        k->over = last_over;
        k->way = k->n - 1;
        k->micro = last;
    }
    return rc;
}

/* What ranks share over may be chosen with the first program; others are compiled for it. */
static int check_over(struct ckpt_program *p, bool *open)
{
    *open = ranks_may_share(p->c, OVER_HOST) && ranks_may_share(p->c, OVER_ALL);
    if (*open && plan_is_given(p))
        return context_fail(p->c, CKPT_EINVAL,
                            "--plan-in with ranks on several hosts: the plan is for one way to "
                            "share; add --shard-over host or all");
    return 0;
}

static int compile(struct ckpt_program *p, struct choice *k, const struct ckpt_adamw *opt)
{
    bool open = false;
    int rc = check_batch(p->c, p->batch, p->trains, &k->micro);
    if (!rc)
        rc = check_over(p, &open);
    if (!rc && (k->micro == CKPT_AUTO || k->n > 1 || open)) {
        rc = choose(p, k, opt);
        if (!rc)
            rc = ranks_share(p->c, k->over);
    }
    ranks_settle(p->c);
    if (!rc)
        rc = plan_way(p, k, opt, k->way, k->micro);
    if (rc)
        return rc;
    p->next = p->c->programs;
    p->c->programs = p;
    if (p->c->options.plan_only)
        return 0;
    p->loss = program_find_fetch(p, LOSS);
    p->norm = program_find_fetch(p, NORM);
    p->wish = program_find_fetch(p, WISH);
    rc = make_ports(p);
    if (!rc && ((p->c->options.machine_out && p->trains) || p->c->options.profile) &&
        timing_new(&p->timing, p))
        rc = context_fail(p->c, CKPT_ENOMEM, "no memory for the times of ops");
    return rc ? rc : take_memory(p);
}

static bool all_recorders(const struct ckpt_way *ways, int n)
{
    for (int i = 0; i < n; i++)
        if (!ways[i].record)
            return false;
    return n > 0;
}

/* Steps of other programs end first: kernels are tried on the bytes above the parameters, which are
 * theirs. */
static int await_steps(ckpt *c)
{
    int rc = c->device ? c->device->ops->sync(c->device) : 0;
    return rc ? context_fail_device(c, NULL, rc) : 0;
}

int ckpt_compile_fastest(ckpt *c, int n, const struct ckpt_way *ways,
                         const struct ckpt_adamw *optimizer, int64_t batch, ckpt_program **out,
                         int *way)
{
    struct choice k = {.ways = ways, .n = n};
    *out = NULL;
    if (c->error)
        return c->error;
    if (!all_recorders(ways, n) || (optimizer && optimizer->size != sizeof *optimizer))
        return context_fail(c, CKPT_EINVAL,
                            "ckpt_compile: no recorder, or an optimizer that was "
                            "not set with CKPT_ADAMW_INIT");
    struct ckpt_program *p = calloc(1, sizeof *p);
    if (!p)
        return context_fail(c, CKPT_ENOMEM, "no memory for a program");
    *p = (struct ckpt_program){.c = c,
                               .batch = batch,
                               .trains = optimizer != NULL,
                               .lr = optimizer ? optimizer->lr : 0.f,
                               .grad_norm = NAN,
                               .loss = -1,
                               .norm = -1,
                               .wish = -1};
    program_join_ranks(p);
    int rc = await_steps(c);
    if (!rc)
        rc = ranks_lay_out(c);
    if (!rc)
        rc = compile(p, &k, optimizer);
    if (rc)
        ckpt_program_free(p);
    else
        *out = p;
    ranks_give_up(c, rc);
    if (way)
        *way = k.way;
    return rc;
}

int ckpt_compile(ckpt *c, ckpt_recorder record, void *user, const struct ckpt_adamw *optimizer,
                 int64_t batch, ckpt_program **out)
{
    return ckpt_compile_fastest(c, 1, &(struct ckpt_way){record, user}, optimizer, batch, out,
                                NULL);
}

static void free_ports(struct device *d, struct port *ports, int32_t n)
{
    for (int32_t i = 0; ports && i < n; i++) {
        for (int k = 1; k < DEVICE_FLIGHTS; k++)
            if (ports[i].data[k] != ports[i].data[0])
                d->ops->host_free(d, ports[i].data[k]);
        d->ops->host_free(d, ports[i].data[0]);
    }
    free(ports);
}

static void unlink_program(struct ckpt_program *p)
{
    struct ckpt_program **at = &p->c->programs;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
}

void ckpt_program_free(ckpt_program *p)
{
    if (!p)
        return;
    struct device *d = p->c->device;
    int rc = d ? d->ops->sync(d) : 0; /* a plan alone has no device */
    if (rc)                           /* nobody will ask any more */
        context_fail_device(p->c, p, rc);
    unlink_program(p);
    if (p->c->walked == p)
        p->c->walked = NULL;
    program_forget(p);
    lowered_free(&p->lowered);
    timing_free(p->timing);
    free_ports(d, p->feeds, p->tape ? p->tape->n_feeds : 0);
    free_ports(d, p->fetches, p->tape ? p->tape->n_fetches : 0);
    if (p->runs)
        d->ops->host_free(d, p->runs);
    drop_plan(p);
    free(p);
}
