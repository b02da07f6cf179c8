/* Walking the instructions of a step, once to record it, then for each step: then nothing is
 * decided and nothing is allocated. */
#include <math.h>
#include <stdlib.h>
#include "exec/program.h"
#include "exec/timing.h"

/* Fewer kernels in a row are handed over one by one. */
enum { STRETCH = 2 };

/* The slot of a step and a micro-step. */
struct moment {
    int flight;
    int32_t micro;
};

static struct ckpt_kernel_args kernel_args(struct ckpt_program *p, const struct instr *i,
                                           struct moment at)
{
    const struct op *o = &p->tape->ops.data[i->op];
    bool adds = o->accumulate == ACCUMULATE_ALWAYS ||
                (o->accumulate == ACCUMULATE_LATER_MICRO && at.micro > 0);
    return (struct ckpt_kernel_args){.n_in = o->n_in,
                                     .n_out = o->n_out,
                                     .in = p->lowered.views.data + i->first,
                                     .out = p->lowered.views.data + i->first + o->n_in,
                                     .attr = o->attr,
                                     .workspace = i->device,
                                     .workspace_bytes = i->bytes,
                                     .accumulate = adds,
                                     .op = i->op,
                                     .run = &p->runs[at.flight * p->tape->n_micro + at.micro],
                                     .run_device = p->c->device->run,
                                     .device = i->queue == QUEUE_COMM ? &p->ranks.ops : NULL};
}

/* The bytes of a port at this moment; constants have one slice. */
static char *port_bytes(const struct port *port, struct moment at)
{
    return port->data[at.flight] + (port->bytes > port->slice ? port->slice * at.micro : 0);
}

static void walk_compute(struct ckpt_program *p, const struct instr *i, struct moment at)
{
    struct device *d = p->c->device;
    struct ckpt_kernel_args args = kernel_args(p, i, at);
    double *seconds = p->timing ? timing_slot(p->timing, i->op) : NULL;
    char name[256];
    if (d->ops->range) {
        tape_op_name(p->tape, i->op, name, sizeof name);
        d->ops->range(d, name);
    }
    const struct ckpt_op_def *def = p->tape->ops.data[i->op].def;
    d->ops->compute(d, i->queue, i->queue == QUEUE_HOST ? def->cpu : program_kernel(p, i->op),
                    &args, seconds);
    if (d->ops->range)
        d->ops->range(d, NULL);
}

int program_write_tier(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct tier *t = user;
    return t->ops->write(t, offset, host, bytes);
}

int program_read_tier(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct tier *t = user;
    return t->ops->read(t, offset, host, bytes);
}

static void begin_write(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct tier *t = user;
    t->ops->begin(t, true, offset, host, bytes);
}

static void begin_read(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct tier *t = user;
    t->ops->begin(t, false, offset, host, bytes);
}

static void walk_io(struct ckpt_program *p, const struct instr *i)
{
    bool reads = i->kind == INSTR_READ;
    struct device_io io = {.call = reads ? program_read_tier : program_write_tier,
                           .begin = reads ? begin_read : begin_write,
                           .user = p->c->tiers[TIER_NVME],
                           .offset = i->offset,
                           .bytes = i->bytes,
                           .host = i->host,
                           .owner = p,
                           .what = i->park,
                           .step = p->before + p->submitted};
    p->c->device->ops->io(p->c->device, i->queue, &io);
}

static void walk_instr(struct ckpt_program *p, const struct instr *i, struct moment at)
{
    struct device *d = p->c->device;
    switch (i->kind) {
    case INSTR_COMPUTE:
        walk_compute(p, i, at);
        break;
    case INSTR_COPY_IN:
        d->ops->copy(d, i->queue, i->device, port_bytes(&p->feeds[i->port], at), i->bytes);
        break;
    case INSTR_COPY_OUT:
        d->ops->copy(d, i->queue, port_bytes(&p->fetches[i->port], at), i->device, i->bytes);
        break;
    case INSTR_PARK_IN:
        d->ops->copy(d, i->queue, i->device, i->host, i->bytes);
        break;
    case INSTR_PARK_OUT:
        d->ops->copy(d, i->queue, i->host, i->device, i->bytes);
        break;
    case INSTR_READ:
    case INSTR_WRITE:
        walk_io(p, i);
        break;
    case INSTR_RECORD:
        (i->for_threads ? d->ops->signal : d->ops->record)(d, i->queue, i->event);
        break;
    case INSTR_WAIT:
        d->ops->wait(d, i->queue, i->event);
        break;
    case INSTR_POISON: /* 0xff everywhere is a NaN in fp32 and bf16 */
        d->ops->fill(d, i->queue, i->device, 0xff, i->bytes);
        break;
    }
}

static void upload_run(struct ckpt_program *p, int flight)
{
    struct device *d = p->c->device;
    if (d->run)
        d->ops->copy(d, QUEUE_COMPUTE, d->run, &p->runs[flight * p->tape->n_micro], sizeof *d->run);
}

static void walk(struct ckpt_program *p, int flight)
{
    const struct instr *instrs = p->lowered.instrs.data;
    upload_run(p, flight);
    for (int32_t micro = 0; micro < p->tape->n_micro; micro++)
        for (int32_t i = 0; i < p->lowered.n_body; i++)
            walk_instr(p, &instrs[i], (struct moment){flight, micro});
    for (int32_t i = p->lowered.n_body; i < p->lowered.n_instrs; i++)
        walk_instr(p, &instrs[i], (struct moment){flight, 0});
}

/* Whether a stretch may go on with an instruction.  Threads that wait for an event are told of it
 * by the host when it is handed over. */
static bool goes_on(const struct ckpt_program *p, const struct instr *i)
{
    bool threads = p->c->tiers[TIER_NVME] || p->c->host_steps;
    return i->queue != QUEUE_COMPUTE || i->kind == INSTR_COMPUTE || i->kind == INSTR_POISON ||
           (i->kind == INSTR_RECORD && !threads);
}

/* And whether it is one of those recorded. */
static bool is_recorded(const struct instr *i)
{
    return i->queue == QUEUE_COMPUTE;
}

static void walk_one(struct ckpt_program *p, int32_t i, struct moment at)
{
    walk_instr(p, &p->lowered.instrs.data[i], at);
    if (i == p->lowered.last_fetch)
        p->c->device->ops->mark(p->c->device, at.flight, QUEUE_COPY_OUT);
}

/* Hands over instruction i, or the recorded stretch that begins there: the *next of its kind. What
 * other queues have to do meanwhile comes behind it, for they may wait for its events.  Returns the
 * instruction behind all. */
static int32_t walk_on(struct ckpt_program *p, int32_t i, struct moment at, int32_t *next)
{
    struct device *d = p->c->device;
    if (*next >= p->n_stretches || p->stretches.data[*next].first != i) {
        walk_one(p, i, at);
        return i + 1;
    }
    const struct stretch *s = &p->stretches.data[(*next)++];
    d->ops->replay(d, s->step);
    for (; i < s->end; i++)
        if (!is_recorded(&p->lowered.instrs.data[i]))
            walk_one(p, i, at);
    return s->end;
}

/*
 * A step with parks.  Its caller needs what is computed and fetched, and what was copied in was for
 * that.  All else may go on under the next step, which waits for what it needs of it.
 */
static void walk_parked(struct ckpt_program *p, int flight)
{
    struct device *d = p->c->device;
    int32_t i, next = 0;
    for (int q = 0; q < QUEUE_COUNT; q++)
        d->ops->mark(d, flight, (enum queue)q);
    upload_run(p, flight);
    for (int32_t micro = 0; micro < p->tape->n_micro; micro++)
        for (i = 0; i < p->lowered.n_body;)
            i = walk_on(p, i, (struct moment){flight, micro}, &next);
    for (i = p->lowered.n_body; i < p->lowered.n_instrs;)
        i = walk_on(p, i, (struct moment){flight, 0}, &next);
    d->ops->mark(d, flight, QUEUE_COMPUTE);
}

static int record_stretch(struct ckpt_program *p, int32_t first, int32_t end, int32_t micro)
{
    struct device *d = p->c->device;
    if (ARRAY_RESERVE(&p->stretches, p->n_stretches))
        return CKPT_ENOMEM;
    struct stretch *s = &p->stretches.data[p->n_stretches];
    *s = (struct stretch){.first = first, .end = end};
    d->ops->begin(d, true);
    for (int32_t i = first; i < end; i++)
        if (is_recorded(&p->lowered.instrs.data[i]))
            walk_instr(p, &p->lowered.instrs.data[i], (struct moment){0, micro});
    int rc = d->ops->end(d, &s->step);
    p->n_stretches += !rc;
    return rc;
}

/* Finds the stretch that begins at an instruction: its end, and where to look for the next one.
 * Returns the kernels it has. */
static int32_t find_stretch(const struct ckpt_program *p, int32_t first, int32_t to, int32_t *end,
                            int32_t *next)
{
    const struct instr *instrs = p->lowered.instrs.data;
    int32_t kernels = 0, i = first;
    for (; i < to && goes_on(p, &instrs[i]); i++) {
        if (!is_recorded(&instrs[i]))
            continue;
        kernels += instrs[i].kind == INSTR_COMPUTE;
        *end = i + 1;
    }
    *next = i > first ? i : first + 1;
    return kernels;
}

/* Of instructions [from, to). */
static int record_stretches(struct ckpt_program *p, int32_t from, int32_t to, int32_t micro)
{
    int rc = 0;
    for (int32_t first = from, end, next; first < to && !rc; first = next) {
        next = first + 1;
        if (is_recorded(&p->lowered.instrs.data[first]) &&
            find_stretch(p, first, to, &end, &next) >= STRETCH)
            rc = record_stretch(p, first, end, micro);
    }
    return rc;
}

/* A step recorded as a whole would not overlap with the copies of the one before. */
static int record_parked(struct ckpt_program *p)
{
    int rc = 0;
    program_set_runs(p, 0);
    for (int32_t micro = 0; micro < p->tape->n_micro && !rc; micro++)
        rc = record_stretches(p, 0, p->lowered.n_body, micro);
    return rc ? rc : record_stretches(p, p->lowered.n_body, p->lowered.n_instrs, 0);
}

int program_record(struct ckpt_program *p)
{
    struct device *d = p->c->device;
    int rc = 0;
    program_forget(p);
    if (!d->ops->begin || p->timing)
        return 0;
    if (program_is_parked(p))
        return record_parked(p);
    for (int flight = 0; flight < DEVICE_FLIGHTS && !rc; flight++) {
        program_set_runs(p, flight);
        d->ops->begin(d, false);
        walk(p, flight);
        rc = d->ops->end(d, &p->recorded[flight]);
    }
    return rc;
}

void program_forget(struct ckpt_program *p)
{
    struct device *d = p->c->device;
    for (int flight = 0; flight < DEVICE_FLIGHTS; flight++) {
        if (p->recorded[flight])
            d->ops->forget(d, p->recorded[flight]);
        p->recorded[flight] = NULL;
    }
    for (int32_t i = 0; i < p->n_stretches; i++)
        d->ops->forget(d, p->stretches.data[i].step);
    free(p->stretches.data);
    p->stretches.data = NULL;
    p->stretches.capacity = p->n_stretches = 0;
}

/* Copies of another program may still be under way, and its events have the same numbers. */
static void join_programs(struct ckpt_program *p)
{
    struct device *d = p->c->device;
    const struct ckpt_program *before = p->c->walked;
    int n = p->c->tiers[TIER_NVME] || p->c->host_steps ? QUEUE_COUNT : QUEUE_READ;
    p->c->walked = p;
    if (!before || before == p || !(program_is_parked(before) || program_is_parked(p)))
        return;
    for (int q = 0; q < n; q++)
        d->ops->signal(d, (enum queue)q, q);
    for (int q = 0; q < n; q++)
        for (int other = 0; other < n; other++)
            if (other != q)
                d->ops->wait(d, (enum queue)q, other);
}

void program_walk(struct ckpt_program *p, int flight)
{
    struct device *d = p->c->device;
    join_programs(p);
    if (program_is_parked(p)) {
        walk_parked(p, flight);
        return;
    }
    if (p->recorded[flight])
        d->ops->replay(d, p->recorded[flight]);
    else
        walk(p, flight);
    for (int q = 0; q < QUEUE_COUNT; q++)
        d->ops->mark(d, flight, (enum queue)q);
}

static bool bytes_are_finite(const char *data, const struct ckpt_desc *d, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = d->dtype == CKPT_BF16 ? (uint32_t)((const uint16_t *)data)[i] << 16
                                              : ((const uint32_t *)data)[i];
        if ((bits & 0x7f800000) == 0x7f800000)
            return false;
    }
    return true;
}

/* Looks at the elements themselves: a strided output shares its storage with others. */
static bool view_is_finite(struct ckpt_program *p, const struct ckpt_view *v, char *host)
{
    if (!v->data || v->desc.dtype == CKPT_I32 || !desc_is_dense(&v->desc))
        return true;
    struct device *d = p->c->device;
    d->ops->copy(d, QUEUE_COPY_OUT, host, v->data, desc_bytes(&v->desc));
    d->ops->sync(d);
    return bytes_are_finite(host, &v->desc, desc_numel(&v->desc));
}

static bool instr_is_finite(struct ckpt_program *p, const struct instr *i, char *host)
{
    const struct op *o = &p->tape->ops.data[i->op];
    for (int32_t k = 0; k < o->n_out; k++)
        if (!view_is_finite(p, &p->lowered.views.data[i->first + o->n_in + k], host))
            return false;
    return true;
}

static int32_t find_input(const struct ckpt_program *p, int flight)
{
    for (int32_t i = 0; i < p->tape->n_feeds; i++) {
        const struct ckpt_desc *d = &p->tape->tensors.data[p->tape->feeds.data[i].tensor].desc;
        const struct port *port = &p->feeds[i];
        if (d->dtype != CKPT_I32 && port->data[flight] &&
            !bytes_are_finite(port->data[flight], d, port->bytes / ckpt_dtype_size(d->dtype)))
            return i;
    }
    return -1;
}

/* The tail behind a replay: gradients may stand where values were, and the update puts these back.
 * It changes nothing else, whatever the replay gave. */
static void walk_restoring(struct ckpt_program *p, int flight)
{
    *p->halt = 1;
    for (int32_t i = p->lowered.n_body; i < p->lowered.n_instrs; i++)
        walk_instr(p, &p->lowered.instrs.data[i], (struct moment){flight, 0});
    p->c->device->ops->sync(p->c->device);
    *p->halt = 0;
}

int32_t program_find_nan(struct ckpt_program *p, int flight, int32_t *feed)
{
    int64_t largest = 1;
    for (int32_t i = 0; i < p->tape->n_storages; i++)
        largest = max_i64(largest, p->tape->storages.data[i].bytes);
    *feed = find_input(p, flight);
    char *host = *feed < 0 ? malloc((size_t)largest) : NULL;
    if (!host)
        return -1;
    int32_t found = -1;
    upload_run(p, flight);
    for (int32_t micro = 0; micro < p->tape->n_micro; micro++) {
        for (int32_t i = 0; i < p->lowered.n_body; i++) {
            const struct instr *instr = &p->lowered.instrs.data[i];
            walk_instr(p, instr, (struct moment){flight, micro});
            if (found >= 0)
                continue;
            p->c->device->ops->sync(p->c->device);
            if (instr->kind == INSTR_COMPUTE && !instr_is_finite(p, instr, host))
                found = instr->op;
        }
    }
    walk_restoring(p, flight);
    free(host);
    return found;
}
