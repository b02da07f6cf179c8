/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From plan to instructions: every operand gets its address, every copy its queue; then hazards.c
 * finds the waits.
 *
 * First come commands, in the order of the plan: before step k the copies into residences that
 * begin there, then step k, then the copies submitted after it.  Each command lists the ranges that
 * it reads and writes.  Copies to or from a file pass in pieces through staging slots of pinned
 * memory, used in rotation, a few for each direction: one queue moves a piece between device and
 * slot, another between slot and file, so that copies to host memory do not wait for a drive.
 * Collectives have their own queue, in the order of the plan, which is the same on all ranks: no
 * collective overtakes another, so ranks never wait for each other in a cycle.
 *
 * Deferred updates come before the step for which they wait, with their host command; host commands
 * of other repeated updates come at the end.  Such commands conflict with copies like all others.
 *
 * Then come instructions: a command that others wait for records an event.  In the very first step
 * such waits return at once, because no event was recorded before.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/handover.h"

/* The events below FIRST_EVENT are used at handovers between programs: see handover.h. */
enum { NO_EVENT = -1, FIRST_EVENT = 2 * QUEUE_COUNT };

/* A residence or a copy, and the step at which it is handled. */
struct due {
    int32_t step, index;
};

struct lowering {
    struct ckpt_program *p;
    const struct plan *plan;
    struct lowered *l;
    struct commands c;
    int64_t *here, *below; /* per graph storage: its current offset in the arena, and in host
                              memory */
    int32_t *last;         /* per graph storage: the last step of its current residence */
    int32_t *storage;      /* per tape storage: graph storage */
    bool *sent;            /* per residence: a copy reads it when it ends */
    int64_t workspace;     /* arena offset of the current step's workspace */
    int32_t begun;         /* device residences that have begun, in order of `first` */
    int32_t host_begun;    /* the same for the host tier */
    struct due *ends;      /* device residences by their last step, modulo the step count */
    struct due *copies;    /* by the point at which they are submitted: see point_of */
    int32_t n_ends, ended, n_copies, copied;
    int32_t deferred; /* the next deferred update */
    int32_t slot[2];  /* pieces so far to files and from files */
    int rc;
};

/* ---- commands -------------------------------------------------------------------------------- */

static struct command *add_command(struct lowering *w, enum instr_kind kind, enum queue queue)
{
    static struct command nowhere;
    if (w->rc || ARRAY_RESERVE(&w->c.list, w->c.n)) {
        w->rc = CKPT_ENOMEM;
        return &nowhere;
    }
    struct command *c = &w->c.list.data[w->c.n++];
    *c = (struct command){
        .access = w->c.n_access,
        .instr = {
            .kind = kind, .queue = queue, .op = -1, .event = NO_EVENT, .buffer = -1, .copy = -1}};
    return c;
}

/* Adds a range to the accesses of the last command. */
static void add_access(struct lowering *w, enum space space, int64_t offset, int64_t bytes,
                       bool writes)
{
    if (bytes == 0 || w->rc)
        return;
    if (ARRAY_RESERVE(&w->c.access, w->c.n_access)) {
        w->rc = CKPT_ENOMEM;
        return;
    }
    w->c.access.data[w->c.n_access++] = (struct access){space, offset, bytes, writes};
    w->c.list.data[w->c.n - 1].n_access++;
}

static char *device_address(const struct lowering *w, int64_t offset)
{
    struct device *d = w->p->programs->memory->device;
    return d->ops->base(d) + offset;
}

static char *host_address(const struct lowering *w, int64_t offset)
{
    struct tier *t = w->p->programs->memory->tiers[TIER_HOST];
    return t->ops->base(t) + offset;
}

static const struct graph_op *op_at(const struct lowering *w, int32_t step)
{
    return &w->p->graph->ops[w->plan->steps[step].op];
}

/* The arena offset of a residence on the device. */
static int64_t place_of(const struct lowering *w, const struct residence *r)
{
    const struct graph *g = w->p->graph;
    if (r->offset != -1)
        return w->l->base + r->offset;
    const struct storage *s = &w->p->tape->storages.data[g->storages[r->storage].tape_storage];
    return w->p->programs->params->data[s->param].place.offset[s->kind - STORAGE_VALUE];
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int32_t storage_of(const struct lowering *w, int32_t tensor)
{
    return w->storage[w->p->tape->tensors.data[tensor].storage];
}

/* The address of a tensor, as an offset in the arena or in host memory. */
static int64_t offset_of(const struct lowering *w, int32_t tensor, bool on_host)
{
    const struct tensor *v = &w->p->tape->tensors.data[tensor];
    int32_t s = w->storage[v->storage];
    return (on_host ? w->below : w->here)[s] + v->desc.offset * ckpt_dtype_size(v->desc.dtype);
}

/* An input or an output; its host side is an I/O buffer of the program. */
static void lower_io(struct lowering *w, int32_t step, const struct op *o, bool in)
{
    int32_t tensor = in ? op_out(w->p->tape, o, 0) : op_in(w->p->tape, o, 0);
    int32_t s = storage_of(w, tensor);
    struct command *c =
        add_command(w, in ? INSTR_COPY_IN : INSTR_COPY_OUT, in ? QUEUE_COPY_IN : QUEUE_COPY_OUT);
    c->joins = true;
    c->instr.step = step;
    c->instr.buffer = in ? o->feed : o->fetch;
    c->instr.micro = o->micro;
    c->instr.device = device_address(w, offset_of(w, tensor, false));
    c->instr.bytes = desc_bytes(&w->p->tape->tensors.data[tensor].desc);
    add_access(w, SPACE_DEVICE, w->here[s], w->p->graph->storages[s].bytes, in);
}

static struct ckpt_view view_of(const struct lowering *w, int32_t tensor, bool on_host)
{
    if (tensor <= 0)
        return (struct ckpt_view){.desc = {.ndim = -1}};
    int64_t offset = offset_of(w, tensor, on_host);
    return (struct ckpt_view){.data = on_host ? host_address(w, offset) : device_address(w, offset),
                              .desc = w->p->tape->tensors.data[tensor].desc};
}

/* Whether no step reads what this one writes to operand k: the operand's residence ends here. */
static bool is_for_nobody(const struct lowering *w, int32_t step, const struct op *o, int32_t k)
{
    const int32_t x = w->p->tape->operands.data[o->operands + k];
    return k >= o->n_in && o->def->flags & CKPT_OP_OPTIONAL_OUT && x > 0 &&
           w->last[storage_of(w, x)] == step;
}

static int add_views(struct lowering *w, int32_t step, const struct op *o, bool on_host)
{
    int32_t n = o->n_in + o->n_out;
    if (array_reserve((void **)&w->l->views.data, &w->l->views.capacity, w->l->n_views + n,
                      sizeof *w->l->views.data))
        return CKPT_ENOMEM;
    for (int32_t k = 0; k < n; k++) {
        struct ckpt_view *v = &w->l->views.data[w->l->n_views++];
        *v = view_of(w, w->p->tape->operands.data[o->operands + k], on_host);
        if (is_for_nobody(w, step, o, k))
            v->data = NULL;
    }
    return 0;
}

static void lower_kernel(struct lowering *w, enum queue queue, int32_t step)
{
    const struct graph_op *g = op_at(w, step);
    const struct op *o = &w->p->tape->ops.data[g->tape_op];
    const struct graph *all = w->p->graph;
    bool on_host = queue == QUEUE_HOST;
    enum space space = on_host ? SPACE_HOST : SPACE_DEVICE;
    const int64_t *at = on_host ? w->below : w->here;
    struct command *c = add_command(w, INSTR_COMPUTE, queue);
    c->joins = queue == QUEUE_COMM;
    c->instr.op = g->tape_op;
    c->instr.step = step;
    c->instr.micro = o->micro;
    c->instr.first = w->l->n_views;
    c->instr.bytes = o->workspace;
    c->instr.device = device_address(w, w->workspace);
    for (int32_t j = 0; j < g->n_reads; j++) {
        int32_t s = all->refs[g->reads + j];
        add_access(w, space, at[s], all->storages[s].bytes, false);
    }
    for (int32_t j = 0; j < g->n_writes; j++) {
        int32_t s = all->refs[g->writes + j];
        add_access(w, space, at[s], all->storages[s].bytes, true);
    }
    if (g->workspace)
        add_access(w, SPACE_DEVICE, w->workspace, g->workspace, true);
    if (add_views(w, step, o, on_host))
        w->rc = CKPT_ENOMEM;
}

/* A deferred update, on the device and on the host. */
static void lower_deferred(struct lowering *w, int32_t step)
{
    lower_kernel(w, QUEUE_COMPUTE, step);
    if (!w->rc)
        w->c.list.data[w->c.n - 1].instr.deferred = true;
    lower_kernel(w, QUEUE_HOST, step);
    if (!w->rc)
        w->c.list.data[w->c.n - 1].instr.deferred = w->l->defers = true;
}

/* Those before a step of the body. */
static void lower_all_deferred(struct lowering *w, int32_t step)
{
    const struct plan *p = w->plan;
    while (w->deferred < p->n_steps && p->steps[w->deferred].before == step && !w->rc) {
        lower_deferred(w, w->deferred);
        w->deferred = plan_find_deferred(p, w->deferred + 1);
    }
}

/* The host repeats updates of the tail once it has run its own. */
static void lower_repeated(struct lowering *w)
{
    const struct plan *p = w->plan;
    for (int32_t step = p->n_body; step < p->n_steps; step++)
        if (p->steps[step].by == BY_BOTH && !p->steps[step].before)
            lower_kernel(w, QUEUE_HOST, step);
}

static void lower_step(struct lowering *w, int32_t step)
{
    const struct graph_op *g = op_at(w, step);
    const struct op *o = &w->p->tape->ops.data[g->tape_op];
    if (w->plan->steps[step].before)
        return;
    if (w->plan->steps[step].by == BY_HOST)
        lower_kernel(w, QUEUE_HOST, step);
    else if (o->feed >= 0 || o->fetch >= 0)
        lower_io(w, step, o, o->feed >= 0);
    else
        lower_kernel(w, collective_is(o->def) ? QUEUE_COMM : QUEUE_COMPUTE, step);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Between device and host memory: host is an offset in the host tier, or in the staging slots. */
static void move(struct lowering *w, int32_t copy, int64_t device, enum space space, int64_t host,
                 int64_t bytes)
{
    const struct copy *k = &w->plan->copies[copy];
    bool out = copy_is_out(w->plan->residences, k), file = space == SPACE_SLOTS;
    enum queue queue =
        out ? (file ? QUEUE_FILE_OUT : QUEUE_COPY_OUT) : (file ? QUEUE_FILE_IN : QUEUE_COPY_IN);
    struct command *c = add_command(w, out ? INSTR_OFFLOAD_OUT : INSTR_OFFLOAD_IN, queue);
    c->instr.copy = copy;
    c->instr.device = device_address(w, device);
    c->instr.host = file ? w->p->programs->memory->staging + host : host_address(w, host);
    c->instr.bytes = bytes;
    add_access(w, SPACE_DEVICE, device, bytes, !out);
    add_access(w, space, host, bytes, out);
}

/* Between a staging slot and the file. */
static void transfer(struct lowering *w, int32_t copy, bool out, int64_t slot, int64_t offset,
                     int64_t bytes)
{
    struct command *c =
        add_command(w, out ? INSTR_WRITE : INSTR_READ, out ? QUEUE_WRITE : QUEUE_READ);
    c->instr.copy = copy;
    c->instr.offset = offset;
    c->instr.host = w->p->programs->memory->staging + slot;
    c->instr.bytes = round_up(bytes, PLAN_NVME_ALIGN);
    add_access(w, SPACE_SLOTS, slot, bytes, !out);
    add_access(w, SPACE_FILE, offset, c->instr.bytes, out);
}

/* The offset of the staging slot for the next piece in a direction. */
static int64_t next_slot(struct lowering *w, bool out)
{
    int32_t n = w->slot[!out]++ % PLAN_STAGING_SLOTS;
    return (n + (out ? 0 : PLAN_STAGING_SLOTS)) * w->p->programs->memory->slot;
}

static void lower_copy(struct lowering *w, int32_t copy)
{
    const struct copy *k = &w->plan->copies[copy];
    const struct residence *from = &w->plan->residences[k->from];
    const struct residence *to = &w->plan->residences[k->to];
    bool out = from->tier == TIER_DEVICE;
    const struct residence *below = out ? to : from;
    int64_t device = place_of(w, out ? from : to),
            all = residence_bytes(w->p->graph, w->plan, from);
    if (below->tier == TIER_HOST) {
        move(w, copy, device, SPACE_HOST, below->offset, all);
        return;
    }
    for (int64_t at = 0; at < all; at += w->p->programs->memory->slot) {
        int64_t bytes = min_i64(all - at, w->p->programs->memory->slot), slot = next_slot(w, out);
        if (out)
            move(w, copy, device + at, SPACE_SLOTS, slot, bytes);
        transfer(w, copy, out, slot, below->offset + at, bytes);
        if (!out)
            move(w, copy, device + at, SPACE_SLOTS, slot, bytes);
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

/* The point at which a copy is submitted: out after step k at 2k + 1, in before step k at 2k. */
static int32_t point_of(const struct plan *p, const struct copy *c)
{
    return 2 * c->after + (copy_is_out(p->residences, c) ? 1 : 2);
}

static int by_step(const void *a, const void *b)
{
    const struct due *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void lower_copies(struct lowering *w, int32_t point)
{
    for (; w->copied < w->n_copies && w->copies[w->copied].step <= point; w->copied++)
        lower_copy(w, w->copies[w->copied].index);
}

/* Begins the residences of a step: its operands are at their addresses from here on. */
static void begin(struct lowering *w, int32_t step)
{
    const struct residence *r = w->plan->residences;
    for (; w->begun < w->plan->n_residences && r[w->begun].tier == TIER_DEVICE &&
           r[w->begun].first <= step;
         w->begun++) {
        int32_t s = r[w->begun].storage;
        *(s < 0 ? &w->workspace : &w->here[s]) = place_of(w, &r[w->begun]);
        if (s >= 0)
            w->last[s] =
                w->sent[w->begun] || r[w->begun].offset == -1 ? INT32_MAX : r[w->begun].last;
    }
    for (; w->host_begun < w->plan->n_residences && r[w->host_begun].tier == TIER_HOST &&
           r[w->host_begun].first <= step;
         w->host_begun++)
        w->below[r[w->host_begun].storage] = r[w->host_begun].offset;
}

/* Under --verify: fills residences that have ended with NaN, after the copies that read them. */
static void end(struct lowering *w, int32_t step)
{
    for (; w->ended < w->n_ends && w->ends[w->ended].step <= step; w->ended++) {
        const struct residence *r = &w->plan->residences[w->ends[w->ended].index];
        struct command *c = add_command(
            w, INSTR_POISON, w->sent[w->ends[w->ended].index] ? QUEUE_COPY_OUT : QUEUE_COMPUTE);
        c->instr.device = device_address(w, place_of(w, r));
        c->instr.bytes = residence_bytes(w->p->graph, w->plan, r);
        add_access(w, SPACE_DEVICE, place_of(w, r), c->instr.bytes, true);
    }
}

/* Begins or ends a part, if the step is recorded as a whole.  A step with copies only has the join:
 * the caller waits for the compute queue. */
static void add_mark(struct lowering *w, enum command_kind kind)
{
    if (kind == COMMAND_JOINS || w->plan->n_copies == 0)
        add_command(w, INSTR_RECORD, QUEUE_COMPUTE)->kind = kind;
}

static void lower_part(struct lowering *w, int32_t from, int32_t to)
{
    add_mark(w, COMMAND_FORKS);
    for (int32_t step = from; step < to; step++) {
        begin(w, step);
        lower_copies(w, 2 * step);
        if (step < w->plan->n_body)
            lower_all_deferred(w, step);
        lower_step(w, step);
        lower_copies(w, 2 * step + 1);
        end(w, step);
    }
    if (to == w->plan->n_steps) {
        lower_repeated(w);
        lower_copies(w, 2 * to);
    }
    add_mark(w, COMMAND_JOINS);
}

static int start(struct lowering *w)
{
    const struct graph *g = w->p->graph;
    const struct plan *p = w->plan;
    size_t n = (size_t)g->n_storages + 1, residences = (size_t)p->n_residences + 1;
    w->here = calloc(n, sizeof *w->here);
    w->below = calloc(n, sizeof *w->below);
    w->last = calloc(n, sizeof *w->last);
    w->storage = calloc((size_t)w->p->tape->n_storages + 1, sizeof *w->storage);
    w->sent = calloc(residences, sizeof *w->sent);
    w->ends = malloc(residences * sizeof *w->ends);
    w->copies = malloc(((size_t)p->n_copies + 1) * sizeof *w->copies);
    if (!w->here || !w->below || !w->last || !w->storage || !w->sent || !w->ends || !w->copies)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < g->n_storages; i++)
        w->storage[g->storages[i].tape_storage] = i;
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        w->host_begun += r->tier < TIER_HOST;
        if (r->last >= p->n_steps && r->storage >= 0) /* the step begins with it */
            *(r->tier == TIER_DEVICE ? &w->here[r->storage] : &w->below[r->storage]) =
                r->tier == TIER_DEVICE ? place_of(w, r) : r->offset;
        if (r->tier == TIER_DEVICE && r->offset != -1 && w->p->programs->options->verify)
            w->ends[w->n_ends++] =
                (struct due){r->last < p->n_steps ? r->last : r->last - p->n_steps, i};
    }
    w->deferred = plan_find_deferred(p, p->n_body);
    for (int32_t i = 0; i < p->n_copies; i++) {
        w->copies[w->n_copies++] = (struct due){point_of(p, &p->copies[i]), i};
        w->sent[p->copies[i].from] = true;
    }
    qsort(w->ends, (size_t)w->n_ends, sizeof *w->ends, by_step);
    qsort(w->copies, (size_t)w->n_copies, sizeof *w->copies, by_step);
    return 0;
}

/* ---- instructions ---------------------------------------------------------------------------- */

static struct instr *add_instr(struct lowered *l)
{
    return ARRAY_RESERVE(&l->instrs, l->n_instrs) ? NULL : &l->instrs.data[l->n_instrs++];
}

static int add_event(struct lowered *l, enum instr_kind kind, enum queue queue, int32_t event,
                     bool for_threads)
{
    struct instr *i = add_instr(l);
    if (i)
        *i = (struct instr){.kind = kind,
                            .queue = queue,
                            .op = -1,
                            .event = event,
                            .buffer = -1,
                            .copy = -1,
                            .for_threads = for_threads};
    return i ? 0 : CKPT_ENOMEM;
}

/* Event numbers of commands, and which of them host threads wait for. */
struct events {
    int32_t *number;
    bool *for_threads;
    int32_t n;
};

/* Numbers the awaited commands.  A queue from QUEUE_READ on is a host thread on every device and
 * needs events that threads can wait for. */
static void find_events(struct lowering *w, const struct hazards *h, struct events *e)
{
    const struct command *c = w->c.list.data;
    for (int32_t i = 0; i < w->c.n; i++)
        e->number[i] = NO_EVENT;
    for (int32_t i = 0; i < h->n; i++) {
        int32_t to = h->list.data[i].awaited;
        if (e->number[to] == NO_EVENT)
            e->number[to] = e->n++;
        e->for_threads[to] |=
            c[h->list.data[i].waiting].instr.queue >= QUEUE_READ && c[to].instr.queue < QUEUE_READ;
    }
}

/* The first of n consecutive events that no other program uses.  A step may begin with waits for
 * the step before; an event that another program has recorded since (in a recording of a whole
 * step, for example) must not end such a wait. */
static int32_t free_events(const struct ckpt_program *p, int32_t n)
{
    int32_t first = FIRST_EVENT;
    for (const struct ckpt_program *o = p->programs->first; o;) {
        bool meets = o->lowered.first_event < first + n && first < o->lowered.end_event;
        first = meets ? o->lowered.end_event : first;
        o = meets ? p->programs->first : o->next;
    }
    return first;
}

/* Another program's step may wait for the last access to a range, and for nothing after it. Kernels
 * record no event for this: an event between two kernels would end a segment. */
static void find_last_events(const struct lowering *w, const struct hazards *h, struct events *e)
{
    for (int32_t i = 0; i < h->last.n; i++) {
        int32_t to = h->last.list.data[i].command;
        enum queue queue = w->c.list.data[to].instr.queue;
        bool records = queue == QUEUE_HOST || (queue != QUEUE_COMPUTE && queue < QUEUE_READ);
        if (records && e->number[to] == NO_EVENT)
            e->number[to] = e->n++;
    }
}

static void number_events(struct lowering *w, struct events *e)
{
    w->l->first_event = free_events(w->p, e->n);
    w->l->end_event = w->l->first_event + e->n;
    for (int32_t i = 0; i < w->c.n; i++)
        if (e->number[i] != NO_EVENT)
            e->number[i] += w->l->first_event;
}

/* Emits a command and its waits; *at is the instruction that the command becomes. */
static int emit(struct lowering *w, int32_t i, const struct hazards *h, int32_t *next,
                const struct events *e, int32_t *at)
{
    struct lowered *l = w->l;
    const struct command *c = &w->c.list.data[i];
    int rc = 0;
    for (; *next < h->n && h->list.data[*next].waiting == i && !rc; (*next)++) {
        int32_t awaited = h->list.data[*next].awaited;
        rc = add_event(l, INSTR_WAIT, c->instr.queue, e->number[awaited], false);
        if (!rc)
            l->instrs.data[l->n_instrs - 1].for_ranks =
                c->instr.queue == QUEUE_COMPUTE &&
                w->c.list.data[awaited].instr.queue == QUEUE_COMM;
    }
    *at = l->n_instrs;
    if (!rc && c->kind == COMMAND_RUNS) {
        struct instr *to = add_instr(l);
        if (!to)
            return CKPT_ENOMEM;
        *to = c->instr;
        if (to->kind == INSTR_COPY_OUT)
            l->last_fetch = l->n_instrs - 1;
    }
    if (!rc && e->number[i] != NO_EVENT)
        rc = add_event(l, INSTR_RECORD, c->instr.queue, e->number[i], e->for_threads[i]);
    return rc;
}

static int emit_all(struct lowering *w, const struct hazards *h)
{
    size_t n = (size_t)w->c.n + 1;
    struct events e = {malloc(n * sizeof(*e.number)), calloc(n, sizeof(*e.for_threads)), 0};
    int32_t *at = malloc(n * sizeof(*at));
    int rc = e.number && e.for_threads && at ? 0 : CKPT_ENOMEM;
    if (!rc) {
        find_events(w, h, &e);
        find_last_events(w, h, &e);
        number_events(w, &e);
    }
    for (int32_t i = 0, next = 0; i < w->c.n && !rc; i++) {
        rc = emit(w, i, h, &next, &e, &at[i]);
        if (i + 1 == w->c.n_body)
            w->l->n_body = w->l->n_instrs;
    }
    if (!rc && w->plan->n_copies)
        rc = handover_new(w->p, &w->c, h, at);
    free(e.number);
    free(e.for_threads);
    free(at);
    return rc;
}

/* ---- the whole step -------------------------------------------------------------------------- */

static int lower(struct lowering *w)
{
    struct device *d = w->p->programs->memory->device;
    struct hazards h = {0};
    int rc = start(w);
    if (!rc) {
        lower_part(w, 0, w->plan->n_body);
        w->c.n_body = w->c.n;
        lower_part(w, w->plan->n_body, w->plan->n_steps);
        rc = w->rc;
    }
    if (!rc)
        rc = hazards_find(&w->c, w->p->graph->n_micro, w->plan->n_copies == 0, &h);
    if (!rc)
        rc = emit_all(w, &h);
    hazards_free(&h);
    return rc ? rc : d->ops->events(d, w->l->end_event);
}

int program_lower(struct ckpt_program *p)
{
    struct lowering w = {.p = p, .plan = p->plan, .l = &p->lowered};
    lowered_free(&p->lowered);
    p->lowered.base = p->programs->memory->persistent;
    p->lowered.last_fetch = -1;
    int rc = lower(&w);
    p->lowered.whole = rc == 0;
    if (rc)
        lowered_free(&p->lowered);
    free(w.here);
    free(w.below);
    free(w.last);
    free(w.storage);
    free(w.sent);
    free(w.ends);
    free(w.copies);
    free(w.c.list.data);
    free(w.c.access.data);
    return rc;
}

void lowered_free(struct lowered *l)
{
    free(l->instrs.data);
    free(l->views.data);
    handover_free(l->handover);
    *l = (struct lowered){0};
}
