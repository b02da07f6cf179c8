/*
 * Parks become copies on their queues.
 *
 * Out: the copy waits for the end of the step behind which the storage leaves, and whoever takes
 * its room next waits for the copy.  In: the copy waits for the last step that needed the room, for
 * copies that still read there, and for the bytes to be in the tier; the step that uses the storage
 * waits for the copy.  Every queue is served in the order of the plan.
 *
 * What goes to a file passes through slots of host memory, a few for each direction in turn; the
 * events of a slot tell the queue of the device and that of the file whose turn it is.  Copies to
 * and from slots come at the speed of the drive, so no others stand behind them: they have queues
 * of their own.
 *
 * That a tier's bytes are not overwritten while they are still copied in needs no event: the next
 * copy out to them waits for a step that comes behind the one that has waited for the copy in.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/lower.h"

static bool wraps(const struct plan_park *k)
{
    return k->use_step <= k->out_step;
}

static bool in_file(const struct plan_park *k)
{
    return k->tier == FATE_PARK_NVME;
}

static int64_t park_bytes(const struct lowering *w, const struct plan_park *k)
{
    return w->p->graph->storages[k->storage].bytes;
}

/* ---- routes ---------------------------------------------------------------------------------- */

static int32_t find_instance(const struct plan *p, int32_t s, int32_t first, int32_t last)
{
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        if (t->storage == s && (first < 0 || t->first == first) && (last < 0 || t->last == last))
            return i;
    }
    return -1;
}

static int find_rooms(struct lowering *w, int32_t n)
{
    const struct plan *p = w->p->plan;
    const struct plan_park *k = &p->parks[n];
    struct route *r = &w->routes[n];
    int32_t out = find_instance(p, k->storage, -1, k->free_step);
    int32_t in = find_instance(p, k->storage, k->in_step, -1);
    if (out < 0 || in < 0)
        return CKPT_EPLAN;
    r->out = w->l->base + p->instances[out].offset;
    r->in = w->l->base + p->instances[in].offset;
    r->event = lower_event(w);
    r->departure = -1;
    if (k->clean)
        return 0;
    r->departure = lower_depart(w, r->out, park_bytes(w, k));
    if (r->departure < 0)
        return CKPT_ENOMEM;
    struct departure *d = &w->departures.data[r->departure];
    d->crosses = wraps(k) || k->out_step >= p->n_body;
    if (in_file(k))
        d->written = lower_event(w);
    w->left_by[out] = n;
    if (k->free_step < k->out_step) /* both pieces, before and after the end of the step */
        out = find_instance(p, k->storage, -1, p->n_steps - 1);
    if (out < 0)
        return CKPT_EPLAN;
    w->left_by[out] = n;
    return 0;
}

/* Steps back from a copy in to the end of the step behind which a copy out began. */
static int32_t distance(const struct plan *p, const struct plan_park *in,
                        const struct plan_park *out)
{
    int32_t steps = in->in_step - out->out_step;
    return steps > 0 ? steps : steps + p->n_steps;
}

/* The copy out that the bytes of park n come from: its own, or of a clean one the last before. */
static void find_source(struct lowering *w, int32_t n)
{
    const struct plan *p = w->p->plan;
    const struct plan_park *k = &p->parks[n];
    int32_t best = k->clean ? -1 : n;
    for (int32_t j = 0; j < p->n_parks && k->clean; j++) {
        const struct plan_park *from = &p->parks[j];
        if (from->storage == k->storage && !from->clean &&
            (best < 0 || distance(p, k, from) < distance(p, k, &p->parks[best])))
            best = j;
    }
    w->routes[n].source = best < 0 ? -1 : w->routes[best].departure;
}

/* The last step before in_step that needs any byte of the room; a copy out from there is awaited
 * on its own. */
static void find_room_step(struct lowering *w, int32_t n)
{
    const struct plan_park *k = &w->p->plan->parks[n];
    w->routes[n].room =
        lower_room_step(w, w->routes[n].in - w->l->base, park_bytes(w, k), k->in_step);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* One queue's order: the body's copies first, then by the clock of the plan. */
struct turn {
    int32_t park, part, step;
    double start;
};

static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->park < y->park ? -1 : 1;
}

static struct turn turn_of(const struct plan *p, int32_t n, bool out)
{
    const struct plan_park *k = &p->parks[n];
    if (out)
        return (struct turn){n, (k->out_step >= p->n_body) + wraps(k), k->out_step, k->out_start};
    return (struct turn){n, k->in_step >= p->n_body, k->use_step, k->in_start};
}

/* Host memory and files have queues of their own: a drive is slower than the link. */
static int sort_lines(struct lowering *w)
{
    const struct plan *p = w->p->plan;
    struct turn *turns = malloc(((size_t)p->n_parks + 1) * sizeof *turns);
    if (!turns)
        return CKPT_ENOMEM;
    for (int i = 0; i < LINE_COUNT; i++) {
        struct line *line = &w->lines[i];
        bool out = i == LINE_OUT || i == LINE_FILE_OUT, file = i >= LINE_FILE_IN;
        for (int32_t n = 0; n < p->n_parks; n++)
            if (in_file(&p->parks[n]) == file && !(out && p->parks[n].clean))
                turns[line->n++] = turn_of(p, n, out);
        qsort(turns, (size_t)line->n, sizeof *turns, by_turn);
        line->parks = malloc(((size_t)line->n + 1) * sizeof *line->parks);
        for (int32_t n = 0; n < line->n && line->parks; n++)
            line->parks[n] = turns[n].park;
        if (!line->parks)
            break;
    }
    free(turns);
    return w->lines[LINE_COUNT - 1].parks ? 0 : CKPT_ENOMEM;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* The ends of steps that copies wait for get an event each. */
static void number_ends(struct lowering *w)
{
    const struct plan *p = w->p->plan;
    for (int32_t n = 0; n < p->n_parks; n++) {
        lower_end(w, w->routes[n].room);
        if (!p->parks[n].clean)
            lower_end(w, p->parks[n].out_step);
    }
}

static void number_slots(struct lowering *w)
{
    for (int i = 0; i < PLAN_STAGING_SLOTS; i++) {
        w->out.full[i] = lower_event(w);
        w->out.empty[i] = lower_event(w);
        w->in.full[i] = lower_event(w);
        w->in.empty[i] = lower_event(w);
    }
}

int parks_start(struct lowering *w)
{
    const struct plan *p = w->p->plan;
    w->routes = calloc((size_t)p->n_parks + 1, sizeof *w->routes);
    w->left_by = malloc(((size_t)p->n_instances + 1) * sizeof *w->left_by);
    w->ends = malloc(((size_t)p->n_steps + 1) * sizeof *w->ends);
    if (!w->routes || !w->left_by || !w->ends)
        return CKPT_ENOMEM;
    memset(w->left_by, -1, ((size_t)p->n_instances + 1) * sizeof *w->left_by);
    memset(w->ends, NO_EVENT, ((size_t)p->n_steps + 1) * sizeof *w->ends);
    int rc = 0;
    for (int32_t i = 0; i < p->n_parks && !rc; i++)
        rc = find_rooms(w, i);
    if (rc || !p->n_parks)
        return rc;
    for (int32_t i = 0; i < p->n_parks; i++) {
        find_source(w, i);
        find_room_step(w, i);
    }
    number_ends(w);
    number_slots(w);
    return sort_lines(w);
}

void parks_free(struct lowering *w)
{
    free(w->routes);
    for (int i = 0; i < LINE_COUNT; i++)
        free(w->lines[i].parks);
    free(w->left_by);
    free(w->ends);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Of the copies in and out of a park. */
static enum queue queue_in(const struct plan_park *k)
{
    return in_file(k) ? QUEUE_FILE_IN : QUEUE_COPY_IN;
}

static enum queue queue_out(const struct plan_park *k)
{
    return in_file(k) ? QUEUE_FILE_OUT : QUEUE_COPY_OUT;
}

static void emit_copy(struct lowering *w, enum instr_kind kind, int32_t park, int64_t device,
                      void *host, int64_t bytes)
{
    const struct plan_park *k = &w->p->plan->parks[park];
    struct instr *i = lower_emit(w, kind, kind == INSTR_PARK_IN ? queue_in(k) : queue_out(k));
    i->park = park;
    i->device = lower_address(w, device);
    i->host = host;
    i->bytes = bytes;
}

static void emit_io(struct lowering *w, enum instr_kind kind, int32_t park, int64_t offset,
                    void *host, int64_t bytes)
{
    struct instr *i = lower_emit(w, kind, kind == INSTR_READ ? QUEUE_READ : QUEUE_WRITE);
    i->park = park;
    i->offset = offset;
    i->host = host;
    i->bytes = round_up(bytes, PLAN_NVME_ALIGN);
}

static char *slot(const struct lowering *w, bool in, int32_t n)
{
    return w->p->programs->memory->staging +
           (n + (in ? PLAN_STAGING_SLOTS : 0)) * PLAN_STAGING_SLOT;
}

static void *host_home(const struct lowering *w, const struct plan_park *k)
{
    struct tier *t = w->p->programs->memory->tiers[TIER_HOST];
    return t->ops->base(t) + k->tier_offset;
}

static void write_pieces(struct lowering *w, int32_t n)
{
    const struct plan_park *k = &w->p->plan->parks[n];
    int64_t all = park_bytes(w, k);
    for (int64_t at = 0; at < all; at += PLAN_STAGING_SLOT) {
        int64_t bytes = min_i64(all - at, PLAN_STAGING_SLOT);
        int32_t i = w->out.next++ % PLAN_STAGING_SLOTS;
        lower_wait(w, QUEUE_FILE_OUT, w->out.empty[i]);
        emit_copy(w, INSTR_PARK_OUT, n, w->routes[n].out + at, slot(w, false, i), bytes);
        lower_record_as(w, QUEUE_FILE_OUT, w->out.full[i], true);
        lower_wait(w, QUEUE_WRITE, w->out.full[i]);
        emit_io(w, INSTR_WRITE, n, k->tier_offset + at, slot(w, false, i), bytes);
        lower_record_as(w, QUEUE_WRITE, w->out.empty[i], false);
    }
    lower_record_as(w, QUEUE_WRITE, w->departures.data[w->routes[n].departure].written, false);
}

static void send_out(struct lowering *w, int32_t n)
{
    const struct plan_park *k = &w->p->plan->parks[n];
    const struct route *r = &w->routes[n];
    enum queue queue = queue_out(k);
    lower_wait(w, queue, w->ends[1 + k->out_step]);
    lower_await_bytes(w, queue, k->storage);
    if (w->leaving[k->storage] != NO_EVENT) /* under verify it is poisoned next */
        lower_wait(w, queue, w->leaving[k->storage]);
    if (!in_file(k))
        emit_copy(w, INSTR_PARK_OUT, n, r->out, host_home(w, k), park_bytes(w, k));
    else
        write_pieces(w, n);
    if (w->p->programs->options->verify)
        emit_copy(w, INSTR_POISON, n, r->out, NULL, park_bytes(w, k));
    lower_record_as(w, queue, w->departures.data[r->departure].event,
                    lodgings_made(w, k->storage) >= 0);
    lower_departed(w, r->departure);
}

static void read_pieces(struct lowering *w, int32_t n)
{
    const struct plan_park *k = &w->p->plan->parks[n];
    int64_t all = park_bytes(w, k);
    for (int64_t at = 0; at < all; at += PLAN_STAGING_SLOT) {
        int64_t bytes = min_i64(all - at, PLAN_STAGING_SLOT);
        int32_t i = w->in.next++ % PLAN_STAGING_SLOTS;
        lower_wait(w, QUEUE_READ, w->in.empty[i]);
        emit_io(w, INSTR_READ, n, k->tier_offset + at, slot(w, true, i), bytes);
        lower_record_as(w, QUEUE_READ, w->in.full[i], false);
        lower_wait(w, QUEUE_FILE_IN, w->in.full[i]);
        emit_copy(w, INSTR_PARK_IN, n, w->routes[n].in + at, slot(w, true, i), bytes);
        lower_record_as(w, QUEUE_FILE_IN, w->in.empty[i], true);
    }
}

/* Whoever reads the tier waits until the bytes are there. */
static void await_source(struct lowering *w, int32_t n)
{
    bool file = in_file(&w->p->plan->parks[n]);
    enum queue queue = file ? QUEUE_READ : QUEUE_COPY_IN;
    if (w->routes[n].source < 0)
        return;
    struct departure *d = &w->departures.data[w->routes[n].source];
    if (!d->waited[queue])
        lower_wait(w, queue, file ? d->written : d->event);
    d->waited[queue] = true;
}

static void bring_in(struct lowering *w, int32_t n)
{
    const struct plan_park *k = &w->p->plan->parks[n];
    const struct route *r = &w->routes[n];
    enum queue queue = queue_in(k);
    int32_t made = lodgings_made(w, k->storage);
    lower_wait(w, queue, w->ends[1 + r->room]);
    lower_take_room(w, queue, r->in, park_bytes(w, k));
    await_source(w, n);
    if (made >= 0)
        lower_wait(w, queue, w->stepped[made]);
    if (!in_file(k))
        emit_copy(w, INSTR_PARK_IN, n, r->in, host_home(w, k), park_bytes(w, k));
    else
        read_pieces(w, n);
    lower_record_as(w, queue, r->event, made >= 0);
    w->arriving[k->storage] = r->event;
}

void parks_before(struct lowering *w, int32_t step)
{
    const struct plan *p = w->p->plan;
    if (step == 0 && w->ends[0] != NO_EVENT)
        lower_record_as(w, QUEUE_COMPUTE, w->ends[0], false);
    for (int i = LINE_IN; i < LINE_COUNT; i += 2) {
        struct line *line = &w->lines[i];
        while (line->done < line->n && p->parks[line->parks[line->done]].in_step <= step)
            bring_in(w, line->parks[line->done++]);
    }
}

void parks_after(struct lowering *w, int32_t step)
{
    const struct plan *p = w->p->plan;
    if (w->ends[1 + step] != NO_EVENT)
        lower_record_as(w, QUEUE_COMPUTE, w->ends[1 + step], false);
    for (int i = LINE_OUT; i < LINE_COUNT; i += 2) {
        struct line *line = &w->lines[i];
        while (line->done < line->n && p->parks[line->parks[line->done]].out_step <= step)
            send_out(w, line->parks[line->done++]);
    }
}

bool parks_bring(const struct lowering *w, const struct plan_instance *i)
{
    const struct plan *p = w->p->plan;
    for (int32_t n = 0; n < p->n_parks; n++) {
        const struct plan_park *k = &p->parks[n];
        if (k->storage == i->storage &&
            (k->in_step == i->first || (i->first == 0 && k->free_step < k->out_step)))
            return true;
    }
    return false;
}

bool parks_take(const struct lowering *w, const struct plan_instance *i)
{
    return w->left_by[i - w->p->plan->instances] >= 0;
}
