/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first run of every kind of op, on scratch bytes.  Libraries load code, compile and select
 * algorithms when a kernel first runs; here they do it before the budget is divided, so that a step
 * allocates nothing.
 *
 * Then ops that no machine file has times for are timed under the conditions of a step: an idle GPU
 * multiplies a sixth faster than one that has been busy for a tenth of a second, because then its
 * power limit lowers the clock.  So all these ops run in turn until the GPU is hot, and then for
 * some more rounds, which are timed.  An op that a step runs often runs several times in a round:
 * pauses between ops would let the GPU cool, and so would rounds with less arithmetic than a step
 * has.  Ops bound by memory find in the cache what it holds in a step: what ops just before write.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "core/fp8.h"
#include "dist/comm/comm.h"
#include "exec/program.h"
#include "expr/call.h"
#include "measure/warm.h"
#include "ops.h"

enum {
    REPEATS = 64,      /* in a round, of the op that a step runs most often */
    FEW = 3,           /* the same of rare ops, and of ops whose caches are flushed */
    COLLECTIVES = 5,   /* timed runs of a collective */
    ROUNDS = 4,        /* timed rounds over all untimed ops */
    PATTERN = 1 << 20, /* bytes of random numbers on the host */
    FLUSH = 192 << 20, /* bytes written before timing a smaller op: more than a cache holds */
    SAMPLE = 64 << 20, /* bytes of random numbers on the device */
    ZONE = CKPT_ALIGN, /* guard bytes behind a storage, under --verify */
    MARK = 0xa5,       /* value of a guard byte */
    SLACK = 64 << 20,  /* device bytes reserved for recording a step */
    /* The same for a step with collectives, whose plans NCCL keeps: 119 MiB for STDiT3-XL/2 on two
     * GPUs; sums over replicas make twice as many calls. */
    SHARED_SLACK = 192 << 20
};

#define HOT_SECONDS  2.0  /* untimed ops run this long before they are timed */
#define COLD_SECONDS 5e-3 /* of a step: if untimed ops take less, heating is not worth the time */
#define SHORT_RUN    60.0 /* seconds: timing takes ten or more, and pays in longer runs */

/* An op that no machine file has a time for. */
struct untimed {
    uint64_t key;
    int32_t op;    /* of the graph: the first with this key */
    int32_t ops;   /* how many have it, */
    int32_t times; /* and their runs per step */
    double seconds[ROUNDS];
};

struct warmer {
    struct ckpt_program *p;
    struct device *d;
    char *base;              /* of the scratch bytes, on the device */
    int64_t bytes;           /* scratch bytes for the operands of one op */
    int64_t flush;           /* bytes after these, written to flush caches */
    int64_t sample;          /* bytes after those: random numbers; then as many of 8 bits */
    struct ckpt_run *run;    /* on the host; the device reads its own copy */
    struct ckpt_view *views; /* of the operands of one op */
    int64_t *offset;         /* their offsets in the scratch bytes */
    int32_t *host;           /* values of an i32 operand; guard bytes */
    struct machine_cost *costs;
    int32_t n_costs;
    struct untimed *untimed;
    int32_t n_untimed;
    double flops; /* of a step, over all ops without a known time */
};

static const struct op *tape_op(const struct warmer *w, int32_t i)
{
    return &w->p->tape->ops.data[w->p->graph->ops[i].tape_op];
}

static const struct tensor *operand(const struct warmer *w, const struct op *o, int32_t k)
{
    int32_t id = w->p->tape->operands.data[o->operands + k];
    return id > 0 ? &w->p->tape->tensors.data[id] : NULL;
}

static int64_t storage_bytes(const struct warmer *w, const struct tensor *v)
{
    return round_up(max_i64(1, w->p->tape->storages.data[v->storage].bytes), CKPT_ALIGN);
}

static bool is_kernel(const struct op *o)
{
    return o->feed < 0 && o->fetch < 0;
}

/* The first operand that lies in the storage of operand k. */
static int32_t first_of_storage(const struct warmer *w, const struct op *o, int32_t k)
{
    const struct tensor *v = operand(w, o, k);
    int32_t j = 0;
    while (!operand(w, o, j) || operand(w, o, j)->storage != v->storage)
        j++;
    return j;
}

static bool is_persistent(const struct warmer *w, const struct tensor *v)
{
    enum storage_kind kind = w->p->tape->storages.data[v->storage].kind;
    return kind >= STORAGE_VALUE && kind <= STORAGE_EXP_AVG_SQ_COL;
}

/*
 * Assigns the storages of an op to the scratch bytes: its workspace first, then storages other than
 * parameters and their state, then those.  If the bytes do not suffice, some of the latter overlap:
 * they start again behind the workspace.  The workspace itself is never overlapped, because it may
 * hold counters that a kernel waits for, and another write would make it wait for ever.  Returns
 * the bytes of a layout without overlap.
 */
static int64_t lay_out(const struct warmer *w, const struct op *o)
{
    int64_t zone = w->p->programs->options->verify ? ZONE : 0;
    int64_t workspace = round_up(o->workspace, CKPT_ALIGN) + zone, total = workspace;
    for (int persistent = 0; persistent < 2; persistent++)
        for (int32_t k = 0; k < o->n_in + o->n_out; k++) {
            const struct tensor *v = operand(w, o, k);
            if (!v || is_persistent(w, v) != persistent || first_of_storage(w, o, k) != k)
                continue;
            int64_t bytes = storage_bytes(w, v) + zone;
            w->offset[k] = total + bytes > w->bytes ? workspace : total;
            total += bytes;
        }
    return total;
}

static void set_views(struct warmer *w, const struct op *o)
{
    lay_out(w, o);
    for (int32_t k = 0; k < o->n_in + o->n_out; k++) {
        const struct tensor *v = operand(w, o, k);
        w->views[k] = (struct ckpt_view){.desc = {.ndim = -1}};
        if (!v)
            continue;
        int64_t offset = v->desc.offset * ckpt_dtype_size(v->desc.dtype);
        char *storage = w->base + w->offset[first_of_storage(w, o, k)];
        w->views[k] = (struct ckpt_view){storage + offset, v->desc};
    }
}

/* i32 operands select, count or index: each element is the number of rows of the operand before,
 * divided by its own number of elements, at least 1.  Returns 0 or the device's code. */
static int set_integers(struct warmer *w, const struct op *o)
{
    int rc = 0;
    for (int32_t k = 0; k < o->n_in && !rc; k++) {
        const struct ckpt_desc *d = &w->views[k].desc;
        if (d->ndim < 0 || d->dtype != CKPT_I32)
            continue;
        int64_t n = desc_numel(d),
                rows = k && w->views[k - 1].desc.ndim > 0 ? w->views[k - 1].desc.shape[0] : n;
        for (int64_t i = 0; i < min_i64(n, PATTERN / 4); i++)
            w->host[i] = (int32_t)max_i64(1, rows / max_i64(1, n));
        for (int64_t i = 0; i < n; i += PATTERN / 4)
            w->d->ops->copy(w->d, QUEUE_COMPUTE, (int32_t *)w->views[k].data + i, w->host,
                            min_i64(n - i, PATTERN / 4) * 4);
        rc = w->d->ops->sync(w->d); /* the next operand reuses the same host bytes */
    }
    return rc;
}

static enum queue queue_of(const struct op *o)
{
    return collective_is(o->def) ? QUEUE_COMM : QUEUE_COMPUTE;
}

/* Copies at most `most` bytes of the sample at a time: all copies read the same ones. */
static void copy_sample(struct warmer *w, char *dst, int64_t bytes, const char *sample,
                        int64_t most)
{
    int64_t n;
    for (; bytes > 0 && w->sample > 0; bytes -= n, dst += n) {
        n = min_i64(bytes, min_i64(most, w->sample));
        w->d->ops->copy(w->d, QUEUE_COMPUTE, dst, sample, n);
    }
}

/* Refills the operands of an op with random numbers, where earlier ops left results: repeated sums
 * soon overflow, and products on constant bits take less power. */
static void refresh(struct warmer *w, const struct op *o)
{
    int64_t at = round_up(o->workspace, CKPT_ALIGN), end = min_i64(lay_out(w, o), w->bytes);
    const char *sample = w->base + w->bytes + w->flush;
    copy_sample(w, w->base + at, end - at, sample, w->sample);
    for (int32_t k = 0; k < o->n_in; k++) {
        const struct tensor *v = operand(w, o, k);
        if (v && dtype_is_fp8(v->desc.dtype))
            copy_sample(w, w->base + w->offset[first_of_storage(w, o, k)], storage_bytes(w, v),
                        sample + w->sample, w->sample);
    }
}

/* Writes the inputs again that a step has in the cache when it runs op i.  Half of the cache is for
 * what is written; the rest holds what the same ops read. */
static void fill_cache(struct warmer *w, int32_t i)
{
    const struct op *o = tape_op(w, i);
    const char *sample = w->base + w->bytes + w->flush;
    for (int32_t k = 0; k < o->n_in; k++) {
        const struct tensor *v = operand(w, o, k);
        if (!v || v->desc.dtype == CKPT_I32 || is_persistent(w, v) ||
            first_of_storage(w, o, k) != k ||
            !graph_is_cached(w->p->graph, i, v->storage, w->d->cache / 2))
            continue;
        copy_sample(w, w->base + w->offset[k], storage_bytes(w, v),
                    sample + (dtype_is_fp8(v->desc.dtype) ? w->sample : 0), PATTERN);
    }
}

/* Sets the arguments of an op's kernel.  Returns 0 or the device's code. */
static int set_arguments(struct warmer *w, int32_t op, const struct op *o,
                         struct ckpt_kernel_args *args)
{
    set_views(w, o);
    *args = (struct ckpt_kernel_args){.n_in = o->n_in,
                                      .n_out = o->n_out,
                                      .extra = o->extra,
                                      .in = w->views,
                                      .out = w->views + o->n_in,
                                      .attr = o->attr,
                                      .workspace = w->base,
                                      .workspace_bytes = o->workspace,
                                      .op = op,
                                      .number = o->number,
                                      .run = w->run,
                                      .run_device = w->d->run,
                                      .accumulate = o->accumulate != ACCUMULATE_NEVER &&
                                                    (o->def->flags & CKPT_OP_ACCUMULATE),
                                      .device = collective_is(o->def) ? &w->p->ranks.ops : NULL};
    return set_integers(w, o);
}

/* Calls fn with the guard bytes behind the workspace and behind each storage that the op writes, as
 * long as it returns 0. */
static int each_zone(struct warmer *w, const struct op *o,
                     int (*fn)(struct warmer *w, int out, char *at, int64_t bytes))
{
    int64_t end = round_up(o->workspace, CKPT_ALIGN) + ZONE;
    int rc = fn(w, -1, w->base + o->workspace, end - o->workspace);
    for (int32_t k = o->n_in; k < o->n_in + o->n_out && !rc; k++) {
        const struct tensor *v = operand(w, o, k);
        int64_t bytes = v ? w->p->tape->storages.data[v->storage].bytes : 0;
        if (v)
            rc = fn(w, k - o->n_in, w->base + w->offset[first_of_storage(w, o, k)] + bytes,
                    round_up(max_i64(1, bytes), CKPT_ALIGN) + ZONE - bytes);
    }
    return rc;
}

static int mark_zone(struct warmer *w, int out, char *at, int64_t bytes)
{
    (void)out;
    w->d->ops->fill(w->d, QUEUE_COMPUTE, at, MARK, bytes);
    return 0;
}

static int check_zone(struct warmer *w, int out, char *at, int64_t bytes)
{
    const unsigned char *host = (const unsigned char *)w->host;
    char what[32] = "its workspace";
    w->d->ops->copy(w->d, QUEUE_COMPUTE, w->host, at, bytes);
    int rc = w->d->ops->sync(w->d);
    for (int64_t i = 0; i < bytes && !rc; i++)
        rc = host[i] == MARK ? 0 : CKPT_EINVAL;
    if (rc == CKPT_EINVAL) {
        if (out >= 0)
            snprintf(what, sizeof what, "output %d", out);
        snprintf(w->d->reason, sizeof w->d->reason, "its kernel wrote after %s", what);
    }
    return rc;
}

/* Runs an op for the first time.  The code that adds to a result (in a later micro-step, or for
 * another layer) may differ from the code that sets it, so both run. */
static int run_first(struct warmer *w, int32_t i)
{
    const struct op *o = tape_op(w, i);
    int32_t op = w->p->graph->ops[i].tape_op;
    struct ckpt_kernel_args args;
    int rc = set_arguments(w, op, o, &args);
    bool zones = w->p->programs->options->verify && lay_out(w, o) <= w->bytes;
    if (!rc && zones)
        each_zone(w, o, mark_zone);
    for (int k = 0; !rc && k <= ((o->def->flags & CKPT_OP_ACCUMULATE) != 0); k++) {
        args.accumulate = k == 1;
        w->d->ops->compute(w->d, queue_of(o), w->p->tape->ops.data[op].run, &args, NULL);
    }
    if (!rc)
        rc = w->d->ops->sync(w->d);
    return rc || !zones ? rc : each_zone(w, o, check_zone);
}

/* Whether the bytes of an op take longer than its arithmetic. */
static bool moves_bytes(const struct warmer *w, int32_t i)
{
    const struct graph_op *o = &w->p->graph->ops[i];
    const struct machine *m = &w->p->programs->machine;
    return o->bytes * m->flops > o->flops * m->bandwidth;
}

/* Whether caches are flushed before each run: they could hold all that the op reads, which then
 * takes less time than in a step. */
static bool is_flushed(const struct warmer *w, int32_t i)
{
    return lay_out(w, tape_op(w, i)) < w->flush && moves_bytes(w, i);
}

/* Runs an op n times.  Returns 0 or the device's code. */
static int run_timed(struct warmer *w, int32_t i, int n, double *seconds)
{
    const struct op *o = tape_op(w, i);
    int32_t op = w->p->graph->ops[i].tape_op;
    struct ckpt_kernel_args args;
    if (queue_of(o) == QUEUE_COMPUTE)
        refresh(w, o);
    int rc = set_arguments(w, op, o, &args);
    bool flush = is_flushed(w, i);
    for (int k = 0; k < n && !rc; k++) {
        if (flush) {
            w->d->ops->fill(w->d, queue_of(o), w->base + w->bytes, 0, w->flush);
            if (queue_of(o) == QUEUE_COMPUTE)
                fill_cache(w, i);
        }
        w->d->ops->compute(w->d, queue_of(o), w->p->tape->ops.data[op].run, &args, &seconds[k]);
    }
    return rc ? rc : w->d->ops->sync(w->d);
}

static bool is_warm(const struct programs *ps, uint64_t key)
{
    for (int32_t i = 0; i < ps->n_warm; i++)
        if (ps->warm.data[i] == key)
            return true;
    return false;
}

static int report(struct warmer *w, int32_t i, int rc)
{
    char name[256];
    tape_op_name(w->p->tape, w->p->graph->ops[i].tape_op, name, sizeof name);
    if (rc == CKPT_ECOMM)
        return error_set(rc, "%s", w->p->programs->ranks->comm->reason);
    return error_set(rc, "%s does not run on %s: %s%s%s", name, w->d->name, ckpt_error_name(rc),
                     *w->d->reason ? ": " : "", w->d->reason);
}

/* How often a step runs an op. */
static int32_t times_of(const struct warmer *w, int32_t i)
{
    return i < w->p->graph->n_body ? w->p->graph->n_micro : 1;
}

/* Counts another op with the key of an untimed one. */
static void count_untimed(struct warmer *w, int32_t i)
{
    for (int32_t n = 0; n < w->n_untimed; n++)
        if (w->untimed[n].key == w->p->graph->ops[i].cost_key) {
            w->untimed[n].ops++;
            w->untimed[n].times += times_of(w, i);
        }
}

/* All ranks must run a collective equally often, whether or not they know its time.  The smallest
 * time counts, because the others include waiting for a rank that came later. */
static int time_collective(struct warmer *w, int32_t i, bool timed)
{
    double seconds[COLLECTIVES] = {0};
    int rc = run_timed(w, i, COLLECTIVES, seconds);
    if (rc)
        return report(w, i, rc);
    for (int k = 1; k < COLLECTIVES; k++)
        seconds[0] = fmin(seconds[0], seconds[k]);
    if (timed)
        w->costs[w->n_costs++] = (struct machine_cost){w->p->graph->ops[i].cost_key, seconds[0]};
    return 0;
}

static int warm_op(struct warmer *w, int32_t i)
{
    struct programs *ps = w->p->programs;
    const struct graph_op *o = &w->p->graph->ops[i];
    double known;
    bool timed = !machine_cost(&ps->machine, o->cost_key, &known);
    w->flops += timed ? o->flops * times_of(w, i) : 0;
    if (!is_kernel(tape_op(w, i)))
        return 0;
    if (is_warm(ps, o->cost_key)) {
        count_untimed(w, i);
        return 0;
    }
    if (ARRAY_RESERVE(&ps->warm, ps->n_warm))
        return error_set(CKPT_ENOMEM, "no memory for the times of ops");
    int rc = run_first(w, i);
    if (rc)
        return report(w, i, rc);
    ps->warm.data[ps->n_warm++] = o->cost_key;
    if (collective_is(tape_op(w, i)->def))
        return time_collective(w, i, timed);
    if (timed)
        w->untimed[w->n_untimed++] =
            (struct untimed){.key = o->cost_key, .op = i, .ops = 1, .times = times_of(w, i)};
    return 0;
}

/* How often a round runs an op: in proportion to its runs in a step, of which the most frequent op
 * has `most`.  Flushes are no work of a step. */
static int repeats_of(const struct warmer *w, const struct untimed *f, int32_t most)
{
    int64_t share = is_flushed(w, f->op) ? 0 : (int64_t)REPEATS * f->times / most;
    return (int)min_i64(f->times, max_i64(FEW, share));
}

static int by_key(const void *a, const void *b)
{
    const struct untimed *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* An op with the key of f: each round takes another one, because what the cache holds depends on
 * the ops before it. */
static int32_t op_of_round(const struct warmer *w, const struct untimed *f, int round)
{
    int32_t skip = f->ops * round / ROUNDS, i = f->op;
    for (int32_t next = i; skip; skip--, i = next)
        do
            next++;
        while (w->p->graph->ops[next].cost_key != f->key);
    return i;
}

/*
 * Runs all untimed ops, in the mix of a step; every second round goes backwards through the list.
 * A GPU at its limit of power lowers its clock by the average power of what ran before, so ops take
 * the time of a step only in this mix, and less after ops that need little power.
 */
static int run_round(struct warmer *w, int round)
{
    int32_t most = 1;
    for (int32_t n = 0; n < w->n_untimed; n++)
        most = w->untimed[n].times > most ? w->untimed[n].times : most;
    for (int32_t n = 0; n < w->n_untimed; n++) {
        struct untimed *f = &w->untimed[round % 2 ? w->n_untimed - 1 - n : n];
        double seconds[REPEATS] = {0};
        int32_t op = op_of_round(w, f, round);
        int repeats = repeats_of(w, f, most), rc = run_timed(w, op, repeats, seconds);
        if (rc)
            return report(w, op, rc);
        f->seconds[round] = median_of(seconds, repeats);
    }
    return 0;
}

static double mean_of(const double *values, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += values[i];
    return sum / n;
}

bool program_keeps_times(const struct ckpt_program *p)
{
    int64_t runs = p->programs->options->runs;
    return runs > 0 && (double)runs * graph_seconds(p->graph) < SHORT_RUN;
}

static int time_untimed(struct warmer *w)
{
    if (program_keeps_times(w->p))
        return 0;
    bool hot = w->flops > COLD_SECONDS * w->p->programs->machine.flops;
    double until = clock_seconds() + (hot ? HOT_SECONDS : 0);
    int rc = 0;
    /* Keys are hashes: in their order ops that need little power (updates) lie among the others. */
    if (w->n_untimed)
        qsort(w->untimed, (size_t)w->n_untimed, sizeof *w->untimed, by_key);
    while (!rc && clock_seconds() < until)
        rc = run_round(w, 0);
    for (int k = 0; k < ROUNDS && !rc; k++)
        rc = run_round(w, k);
    for (int32_t n = 0; n < w->n_untimed && !rc; n++)
        w->costs[w->n_costs++] =
            (struct machine_cost){w->untimed[n].key, mean_of(w->untimed[n].seconds, ROUNDS)};
    return rc;
}

/* The smallest number of scratch bytes for an op: its parameters may overlap. */
static int64_t min_bytes(const struct warmer *w, const struct op *o)
{
    int64_t largest = 0;
    for (int32_t k = 0; k < o->n_in + o->n_out; k++)
        if (operand(w, o, k) && is_persistent(w, operand(w, o, k)))
            largest = max_i64(largest, storage_bytes(w, operand(w, o, k)));
    return round_up(o->workspace, CKPT_ALIGN) + largest +
           (w->p->programs->options->verify ? 2 * ZONE : 0);
}

/* Maps scratch bytes for the largest op and for a flush, as far as the budget allows. */
static int map_scratch(struct warmer *w)
{
    struct programs *ps = w->p->programs;
    int64_t need = PATTERN, smallest = max_i64(graph_largest_op(w->p->graph), PATTERN);
    for (int32_t i = 0; i < w->p->graph->n_ops; i++)
        if (is_kernel(tape_op(w, i))) {
            need = max_i64(need, lay_out(w, tape_op(w, i)));
            smallest = max_i64(smallest, min_bytes(w, tape_op(w, i)));
        }
    int64_t left = ps->budget - ps->memory->device->ops->overhead(w->d) - ps->memory->persistent;
    if (left < smallest) /* no plan can fit either; the planner reports that in more detail */
        return error_set(CKPT_EBUDGET, "the budget has no bytes for the first runs of kernels");
    w->bytes = min_i64(need, left / CKPT_ALIGN * CKPT_ALIGN);
    w->flush = min_i64(FLUSH, left - w->bytes) / CKPT_ALIGN * CKPT_ALIGN;
    w->sample = min_i64(SAMPLE, (left - w->bytes - w->flush) / 2) / CKPT_ALIGN * CKPT_ALIGN;
    int64_t end = max_i64(ps->memory->persistent + w->bytes + w->flush + 2 * w->sample,
                          programs_arena_bytes(ps));
    if (w->d->ops->map(w->d, end))
        return error_set(CKPT_ENOMEM, "%s for the arena of --device %s cannot be allocated now",
                         human_bytes(end), w->d->ops->name);
    w->base = w->d->ops->base(w->d) + ps->memory->persistent;
    return 0;
}

static int no_memory(void)
{
    return error_set(CKPT_ENOMEM, "no memory for the first run of the kernels");
}

/* Fills bytes of the device with the pattern on the host.  Returns 0 or the device's code. */
static int repeat_pattern(struct warmer *w, char *at, int64_t bytes)
{
    w->d->ops->copy(w->d, QUEUE_COMPUTE, at, w->host, min_i64(PATTERN, bytes));
    for (int64_t n = PATTERN; n < bytes; n *= 2)
        w->d->ops->copy(w->d, QUEUE_COMPUTE, at + n, at, min_i64(n, bytes - n));
    return w->d->ops->sync(w->d);
}

/* Fills all scratch bytes with random numbers in bf16, and those of the second sample in 8 bits,
 * finite in both formats: on zeros or NaN matrix products would run faster. */
static int fill_scratch(struct warmer *w)
{
    enum { N = PATTERN / 4, SPREAD = 60 };
    float *values = malloc(N * sizeof *values);
    uint16_t *half = (uint16_t *)w->host;
    uint8_t *code = (uint8_t *)w->host;
    if (!values)
        return no_memory();
    for (int i = 0; i < 2; i++) {
        ckpt_fill_normal(1, 0, (uint32_t)i, values, N);
        ckpt_to_bf16(values, half + (int64_t)i * N, N);
    }
    int rc = repeat_pattern(w, w->base, w->bytes + w->flush + w->sample);
    for (int64_t i = 0; i < PATTERN; i++)
        code[i] = e4m3_round(SPREAD * values[i % N]);
    free(values);
    if (!rc)
        rc = repeat_pattern(w, w->base + w->bytes + w->flush + w->sample, w->sample);
    if (!rc && w->d->run) {
        w->d->ops->copy(w->d, QUEUE_COMPUTE, w->d->run, w->run, sizeof *w->run);
        rc = w->d->ops->sync(w->d);
    }
    return rc ? error_set(rc, "the arena of --device %s cannot be filled: %s", w->d->ops->name,
                          w->d->reason)
              : 0;
}

/* Adds the new times to the machine and prices the graph again. */
static void add_costs(struct warmer *w)
{
    struct machine *m = &w->p->programs->machine;
    memcpy(w->costs + w->n_costs, m->costs, (size_t)m->n_costs * sizeof *m->costs);
    free(m->costs);
    m->costs = w->costs;
    m->n_costs += w->n_costs;
    w->costs = NULL;
    machine_sort_costs(m->costs, m->n_costs);
    graph_price(w->p->graph, m);
}

/* Compiles all expressions at once; the first runs would compile them one after the other. */
static int compile_programs(struct warmer *w)
{
    if (!w->d->ops->compile)
        return 0;
    struct expr_call *calls = calloc((size_t)w->p->graph->n_ops + 1, sizeof *calls);
    int64_t n = 0;
    if (!calls)
        return no_memory();
    for (int32_t i = 0; i < w->p->graph->n_ops; i++) {
        const struct op *o = tape_op(w, i);
        if (o->def != &op_expr || is_warm(w->p->programs, w->p->graph->ops[i].cost_key))
            continue;
        calls[n].program = o->attr;
        calls[n].dtype[0] = operand(w, o, o->n_in)->desc.dtype;
        for (int32_t k = 0; k < o->n_in; k++)
            calls[n].dtype[k + 1] = operand(w, o, k)->desc.dtype;
        n++;
    }
    w->d->ops->compile(w->d, calls, n);
    free(calls);
    return 0;
}

static int warm_kinds(struct warmer *w, bool collectives)
{
    int rc = 0;
    for (int32_t i = 0; i < w->p->graph->n_ops && !rc; i++)
        if (collective_is(tape_op(w, i)->def) == collectives)
            rc = warm_op(w, i);
    return rc;
}

/* With --tune rank 0 measures algorithms before the other ranks run their kernels; collectives then
 * run on all ranks together. */
static int warm_ops(struct warmer *w)
{
    const struct programs *ps = w->p->programs;
    const bool unlike = ps->ranks->sharing.unlike;
    bool broadcasts = ps->options->tune && ps->ranks->comm && !unlike,
         receives = broadcasts && ps->ranks->rank;
    double begin = clock_seconds();
    int rc = fill_scratch(w);
    begin = startup_add(w->p->programs, STARTUP_SCRATCH, begin);
    if (!rc)
        rc = compile_programs(w);
    begin = startup_add(w->p->programs, STARTUP_COMPILE, begin);
    if (!rc && !receives)
        rc = warm_kinds(w, false);
    if (!rc && broadcasts)
        rc = program_broadcast_measured(w->p);
    if (!rc && receives)
        rc = warm_kinds(w, false);
    if (!rc)
        rc = unlike ? program_reserve_transfers(w->p) : warm_kinds(w, true);
    begin = startup_add(w->p->programs, STARTUP_FIRST_RUNS, begin);
    if (!rc)
        rc = time_untimed(w);
    startup_add(w->p->programs, STARTUP_TIMES, begin);
    if (!rc)
        add_costs(w);
    return rc;
}

static int prepare(struct warmer *w)
{
    size_t n = (size_t)w->p->graph->n_ops + (size_t)w->p->programs->machine.n_costs + 1;
    size_t max_operands = 1; /* operands of one op */
    for (int32_t i = 0; i < w->p->tape->n_ops; i++) {
        const struct op *o = &w->p->tape->ops.data[i];
        max_operands = (size_t)max_i64((int64_t)max_operands, o->n_in + o->n_out);
    }
    w->views = calloc(max_operands, sizeof *w->views);
    w->offset = calloc(max_operands, sizeof *w->offset);
    w->host = w->d->ops->host_alloc(w->d, PATTERN);
    w->run = w->d->ops->host_alloc(w->d, sizeof *w->run);
    w->costs = calloc(n, sizeof *w->costs);
    w->untimed = calloc((size_t)w->p->graph->n_ops + 1, sizeof *w->untimed);
    if (!w->views || !w->offset || !w->host || !w->run || !w->costs || !w->untimed)
        return no_memory();
    *w->run = (struct ckpt_run){.seed = 1, .n_micro = 1};
    return 0;
}

int program_warm(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct warmer w = {.p = p, .d = ps->memory->device};
    const bool unlike = ps->ranks->sharing.unlike;
    if (ps->memory->device->ops->backend == CKPT_ON_CPU)
        return 0;
    const double begin = clock_seconds();
    int rc = prepare(&w);
    if (!rc)
        rc = map_scratch(&w);
    if (ps->ranks->sharing.stages > 1 && ps->ranks->comm && !unlike && (!rc || rc == CKPT_EBUDGET))
        rc = ranks_agree_code(ps->ranks, rc); /* else others wait for this one in transfers */
    startup_add(ps, STARTUP_SCRATCH, begin);
    if (w.d->ops->measure)
        w.d->ops->measure(w.d, !rc && ps->options->tune && (!ps->ranks->rank || unlike),
                          w.base + w.bytes, w.flush);
    if (!rc)
        rc = warm_ops(&w);
    if (w.d->ops->measure)
        w.d->ops->measure(w.d, false, NULL, 0);
    w.d->ops->map(w.d, programs_arena_bytes(ps));
    int64_t shared = ps->ranks->sharing.replicas > 1 ? 2 * (int64_t)SHARED_SLACK : SHARED_SLACK;
    ps->memory->overhead = w.d->ops->overhead(w.d) + (program_is_shared(w.p) ? shared : SLACK);
    w.d->ops->host_free(w.d, w.host);
    w.d->ops->host_free(w.d, w.run);
    free(w.views);
    free(w.offset);
    free(w.costs);
    free(w.untimed);
    return rc == CKPT_EBUDGET ? 0 : rc;
}
