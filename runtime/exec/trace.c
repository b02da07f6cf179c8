/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces: see trace.h.  Slices of one thread must not overlap, so times are whole nanoseconds and a
 * slice ends, at the latest, where the next one of its queue begins.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/json.h"
#include "exec/trace.h"
#include "plan/graph/lines.h"

enum process { PLANNED = 1, MEASURED };

static const char *const queue_names[QUEUE_COUNT] = {
    [QUEUE_COMPUTE] = "compute",  [QUEUE_COPY_IN] = "copies in",  [QUEUE_COPY_OUT] = "copies out",
    [QUEUE_COMM] = "collectives", [QUEUE_FILE_IN] = "staging in", [QUEUE_FILE_OUT] = "staging out",
    [QUEUE_READ] = "NVMe reads",  [QUEUE_WRITE] = "NVMe writes",  [QUEUE_HOST] = "updates on host"};

struct slices {
    struct trace_slice *data;
    int64_t capacity;
    int32_t n;
    double zero; /* start of the trace is `before` seconds ahead of this time */
};

struct trace {
    const struct graph *g;
    const struct plan *p;
    const struct machine *m;
    struct slices planned, measured;
    int64_t *bytes[TIER_COUNT + 1]; /* bytes in use per step: device, then tiers */
    double before;                  /* seconds by which copies begin ahead of the planned step */
    int32_t number;                 /* of the program; 0: there is only one */
    int32_t pids;                   /* process numbers used by earlier programs */
    int32_t written;                /* events so far, of all programs */
};

struct traces {
    struct trace *data; /* of each program */
    int32_t n;
};

/* ---- planned slices -------------------------------------------------------------------------- */

static int add(struct slices *s, const struct trace_slice *slice)
{
    if (ARRAY_RESERVE(s, s->n))
        return CKPT_ENOMEM;
    s->data[s->n++] = *slice;
    return 0;
}

static enum queue step_queue(const struct graph *g, const struct plan_step *s)
{
    if (s->by == BY_HOST)
        return QUEUE_HOST;
    return g->ops[s->op].collective ? QUEUE_COMM : QUEUE_COMPUTE;
}

/* A copy to or from a drive also uses a staging slot; its one slice is the drive's. */
static enum queue copy_queue(const struct residence *r, const struct copy *c)
{
    bool out = copy_is_out(r, c);
    if (copy_tier(r, c) == TIER_NVME)
        return out ? QUEUE_WRITE : QUEUE_READ;
    return out ? QUEUE_COPY_OUT : QUEUE_COPY_IN;
}

static bool copy_in_body(const struct plan *p, const struct copy *c)
{
    return copy_is_out(p->residences, c) ? c->after < p->n_body
                                         : p->residences[c->to].first < p->n_body;
}

/* Adds the body of a micro-step, or the tail behind all bodies. */
static int add_part(struct trace *t, const struct plan_clock *k, int32_t micro, bool body)
{
    const struct plan *p = &k->plan;
    double shift = micro * k->body;
    int rc = 0;
    for (int32_t i = body ? 0 : p->n_body; i < (body ? p->n_body : p->n_steps) && !rc; i++)
        rc = add(&t->planned,
                 &(struct trace_slice){step_queue(t->g, &p->steps[i]), i, -1, micro, 0, NULL,
                                       k->steps[i].start + shift, k->steps[i].end + shift});
    for (int32_t i = p->n_body; i < p->n_steps && !body && !rc; i++)
        if (p->steps[i].by == BY_BOTH)
            rc = add(&t->planned,
                     &(struct trace_slice){QUEUE_HOST, i, -1, micro, 0, NULL,
                                           k->repeats[i].start + shift, k->repeats[i].end + shift});
    for (int32_t i = 0; i < p->n_copies && !rc; i++) {
        const struct copy *c = &p->copies[i];
        if (copy_in_body(p, c) == body)
            rc = add(&t->planned,
                     &(struct trace_slice){copy_queue(p->residences, c), -1, i, micro,
                                           t->g->storages[p->residences[c->from].storage].bytes,
                                           NULL, c->start + shift, c->end + shift});
    }
    return rc;
}

static int plan_slices(struct trace *t)
{
    struct plan_clock clock;
    int rc = plan_clock(t->g, t->m, t->p, &clock);
    if (rc)
        return rc;
    for (int32_t micro = 0; micro < t->g->n_micro && !rc; micro++)
        rc = add_part(t, &clock, micro, true);
    if (!rc)
        rc = add_part(t, &clock, t->g->n_micro - 1, false);
    plan_clock_free(&clock);
    return rc;
}

/* ---- bytes per step -------------------------------------------------------------------------- */

static void add_bytes(int64_t *at, int32_t first, int32_t last, int64_t bytes)
{
    at[first] += bytes;
    at[last + 1] -= bytes;
}

static void count_residence(struct trace *t, const struct residence *r)
{
    const struct plan *p = t->p;
    int64_t *at = t->bytes[r->tier + 1];
    int64_t bytes = residence_bytes(t->g, p, r);
    if (r->tier == TIER_DEVICE && plan_is_backing(t->g, p, r))
        return; /* is in p->persistent */
    if (r->last < p->n_steps) {
        add_bytes(at, r->first, r->last, bytes);
        return;
    }
    add_bytes(at, r->first, p->n_steps - 1, bytes);
    add_bytes(at, 0, r->last - p->n_steps, bytes);
}

static int count_bytes(struct trace *t)
{
    for (int tier = 0; tier <= TIER_COUNT; tier++) {
        t->bytes[tier] = calloc((size_t)t->p->n_steps + 1, sizeof *t->bytes[tier]);
        if (!t->bytes[tier])
            return CKPT_ENOMEM;
    }
    t->bytes[0][0] = t->m->process + t->p->persistent;
    for (int32_t i = 0; i < t->p->n_residences; i++)
        count_residence(t, &t->p->residences[i]);
    for (int tier = 0; tier <= TIER_COUNT; tier++)
        for (int32_t k = 1; k < t->p->n_steps; k++)
            t->bytes[tier][k] += t->bytes[tier][k - 1];
    return 0;
}

/* ---- times ----------------------------------------------------------------------------------- */

static int by_queue(const void *a, const void *b)
{
    const struct trace_slice *x = a, *y = b;
    if (x->queue != y->queue)
        return x->queue < y->queue ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

static void arrange(struct slices *s)
{
    if (s->n)
        qsort(s->data, (size_t)s->n, sizeof *s->data, by_queue);
    for (int32_t i = 0; i + 1 < s->n; i++)
        if (s->data[i].queue == s->data[i + 1].queue)
            s->data[i].end = fmin(s->data[i].end, s->data[i + 1].start);
}

static double earliest(const struct slices *s)
{
    double first = s->n ? s->data[0].start : 0;
    for (int32_t i = 1; i < s->n; i++)
        first = fmin(first, s->data[i].start);
    return first;
}

static int64_t nanoseconds(const struct trace *t, const struct slices *s, double seconds)
{
    return llround(1e9 * (seconds - s->zero + t->before));
}

/* ---- events ---------------------------------------------------------------------------------- */

static void begin_event(struct trace *t, FILE *f, const char *kind, enum process process,
                        int thread)
{
    fprintf(f, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", t->written++ ? ",\n" : "", kind,
            t->pids + (int)process, thread);
}

static void put_meta(struct trace *t, FILE *f, enum process process, int thread, const char *what,
                     const char *name)
{
    begin_event(t, f, "M", process, thread);
    fprintf(f, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    json_write_string(f, name);
    fputs("}}", f);
}

/* Threads in the order of the queues. */
static void put_names(struct trace *t, FILE *f, enum process process, const struct slices *s)
{
    const char *what = process == PLANNED ? "planned" : "measured";
    char name[64];
    snprintf(name, sizeof name, "program %d, %s", (int)t->number, what);
    put_meta(t, f, process, 0, "process_name", t->number ? name : what);
    begin_event(t, f, "M", process, 0);
    fprintf(f, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
            t->pids + (int)process);
    for (int32_t i = 0; i < s->n; i++) {
        int thread = (int)s->data[i].queue + 1;
        if (i && s->data[i - 1].queue == s->data[i].queue)
            continue;
        put_meta(t, f, process, thread, "thread_name", queue_names[s->data[i].queue]);
        begin_event(t, f, "M", process, thread);
        fprintf(f, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}", thread);
    }
}

/* Microseconds, to the nanosecond. */
static void put_time(FILE *f, const char *key, int64_t ns)
{
    fprintf(f, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_copy(const struct trace *t, FILE *f, const struct trace_slice *s)
{
    const struct residence *r = t->p->residences;
    const struct copy *c = &t->p->copies[s->copy];
    const char *tier = copy_tier(r, c) == TIER_NVME ? "NVMe" : "host memory";
    char name[512];
    snprintf(name, sizeof name, "%.400s %s %s", t->g->storages[r[c->from].storage].name,
             copy_is_out(r, c) ? "to" : "from", tier);
    json_write_string(f, name);
    fprintf(f, ",\"cat\":\"copy\",\"args\":{\"bytes\":%" PRId64 "}}", s->bytes);
}

static void put_step(const struct trace *t, FILE *f, const struct trace_slice *s)
{
    static const char *const phases[] = {"forward", "backward", "update"};
    const struct plan_step *step = &t->p->steps[s->step];
    const struct graph_op *o = &t->g->ops[step->op];
    json_write_string(f, o->name);
    fprintf(f, ",\"cat\":\"%s\",\"args\":{\"step\":%" PRId32 ",\"micro\":%" PRId32,
            step->again ? "recompute" : phases[o->phase], s->step, s->micro);
    if (s->kind) {
        fputs(",\"kind\":", f);
        json_write_string(f, s->kind);
    }
    fputs("}}", f);
}

static void put_slice(struct trace *t, FILE *f, enum process process, const struct slices *all,
                      const struct trace_slice *s)
{
    int64_t start = nanoseconds(t, all, s->start), end = nanoseconds(t, all, s->end);
    begin_event(t, f, "X", process, (int)s->queue + 1);
    put_time(f, "ts", start);
    put_time(f, "dur", end - start);
    fputs(",\"name\":", f);
    (s->copy >= 0 ? put_copy : put_step)(t, f, s);
}

/* Counters: the bytes in each tier when a step of the compute queue begins. */
static void put_bytes(struct trace *t, FILE *f, enum process process, const struct slices *all,
                      const struct trace_slice *s)
{
    static const char *const names[] = {"device bytes", "host bytes", "NVMe bytes"};
    int64_t of_tier[] = {1, t->p->host_bytes, t->p->nvme_bytes};
    for (int tier = 0; tier <= TIER_COUNT; tier++) {
        if (!of_tier[tier])
            continue;
        begin_event(t, f, "C", process, 0);
        put_time(f, "ts", nanoseconds(t, all, s->start));
        fprintf(f, ",\"name\":\"%s\",\"args\":{\"bytes\":%" PRId64 "}}", names[tier],
                t->bytes[tier][s->step]);
    }
}

static void put_process(struct trace *t, FILE *f, enum process process, const struct slices *s)
{
    if (!s->n)
        return;
    put_names(t, f, process, s);
    for (int32_t i = 0; i < s->n; i++) {
        put_slice(t, f, process, s, &s->data[i]);
        if (s->data[i].step >= 0 && s->data[i].queue == QUEUE_COMPUTE)
            put_bytes(t, f, process, s, &s->data[i]);
    }
}

static void put_all(FILE *f, const void *user)
{
    const struct traces *all = user;
    int32_t written = 0;
    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"machine\":", f);
    json_write_string(f, all->data->m->name);
    fputs("},\"traceEvents\":[\n", f);
    for (int32_t i = 0; i < all->n; i++) {
        struct trace t = all->data[i];
        t.written = written;
        put_process(&t, f, PLANNED, &t.planned);
        put_process(&t, f, MEASURED, &t.measured);
        written = t.written;
    }
    fputs("\n]}\n", f);
}

/* ---- the file -------------------------------------------------------------------------------- */

static int prepare(struct trace *t, const struct trace_program *p)
{
    int rc = count_bytes(t);
    if (!rc)
        rc = plan_slices(t);
    for (int32_t i = 0; i < p->n_measured && !rc; i++)
        rc = add(&t->measured, &p->measured[i]);
    if (rc)
        return rc;
    arrange(&t->planned);
    arrange(&t->measured);
    t->before = fmax(0, -earliest(&t->planned));
    t->measured.zero = earliest(&t->measured);
    return 0;
}

static int prepare_all(struct traces *all, const struct trace_program *programs, int32_t n,
                       const struct machine *m)
{
    int rc = 0;
    all->data = calloc((size_t)n, sizeof *all->data);
    for (; all->data && all->n < n && !rc; all->n++) {
        const struct trace_program *p = &programs[all->n];
        struct trace *t = &all->data[all->n];
        *t = (struct trace){.g = p->graph,
                            .p = p->plan,
                            .m = m,
                            .number = n > 1 ? p->number : 0,
                            .pids = MEASURED * all->n};
        rc = prepare(t, p);
    }
    return all->data ? rc : CKPT_ENOMEM;
}

static void free_all(struct traces *all)
{
    for (int32_t i = 0; i < all->n; i++) {
        for (int tier = 0; tier <= TIER_COUNT; tier++)
            free(all->data[i].bytes[tier]);
        free(all->data[i].planned.data);
        free(all->data[i].measured.data);
    }
    free(all->data);
}

int trace_write(const struct trace_program *programs, int32_t n, const struct machine *m,
                const char *path)
{
    struct traces all = {0};
    int rc = prepare_all(&all, programs, n, m) ? error_set(CKPT_ENOMEM, "no memory for the trace")
                                               : lines_write("trace", path, put_all, &all);
    free_all(&all);
    return rc;
}
