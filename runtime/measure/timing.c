/* SPDX-License-Identifier: Apache-2.0 */
/* Times of ops: see timing.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/trace.h"
#include "measure/timing.h"
#include "ops.h"

enum { SAMPLES = 16 }; /* times kept per op; the first is warm-up */
enum { PROGRAMS = 8 }; /* in a trace: the first to run, for each new one rewrites the file */

struct samples {
    double seconds[SAMPLES];
    int32_t n;
};

/* An instruction of the step that is traced. */
struct run_span {
    double start, end;     /* NaN: not recorded */
    double own;            /* seconds of a kernel that already has all its samples */
    const double *seconds; /* where the kernel's time is: a sample or own; NULL: not a kernel */
};

struct timing {
    struct samples *ops; /* per op of the tape */
    struct {
        struct run_span *data; /* per submitted instruction: see span_of */
        int64_t capacity;
    } spans;
    int64_t traced;             /* the step that spans belong to; -1: none is in flight */
    struct trace_slice *slices; /* of the last traced step; NULL: there was none */
    int32_t n_slices;
};

int timing_new(struct timing **out, const struct ckpt_program *p)
{
    struct timing *t = calloc(1, sizeof *t);
    if (!t)
        return CKPT_ENOMEM;
    t->ops = calloc((size_t)p->tape->n_ops + 1, sizeof *t->ops);
    if (!t->ops) {
        timing_free(t);
        return CKPT_ENOMEM;
    }
    t->traced = -1;
    *out = t;
    return 0;
}

void timing_free(struct timing *t)
{
    if (!t)
        return;
    free(t->spans.data);
    free(t->slices);
    free(t->ops);
    free(t);
}

/* ---- a step that is traced ------------------------------------------------------------------- */

static bool is_traced(const struct ckpt_program *p)
{
    return p->timing && p->timing->traced == p->submitted;
}

static int64_t count_spans(const struct ckpt_program *p)
{
    int64_t body = p->lowered.n_body;
    return body * p->tape->n_bodies + p->lowered.n_instrs - body;
}

/* Each body has its own spans; the tail's follow. */
static struct run_span *span_of(const struct ckpt_program *p, const struct instr *i, int32_t micro)
{
    int64_t n = i - p->lowered.instrs.data, body = p->lowered.n_body;
    return &p->timing->spans.data[n < body ? micro * body + n : n + body * (p->tape->n_bodies - 1)];
}

void timing_forget(struct timing *t)
{
    if (!t)
        return;
    free(t->slices);
    t->slices = NULL;
    t->n_slices = 0;
}

/* Whether the trace contains a step of p. */
static bool has_trace(const struct ckpt_program *p)
{
    return p->timing && p->timing->slices;
}

static bool has_place(const struct ckpt_program *p)
{
    int n = 0;
    for (const struct ckpt_program *o = p->programs->first; o; o = o->next)
        n += o != p && has_trace(o);
    return n < PROGRAMS;
}

/* Steps 1 to 4, 8 and 16, once the previous traced step was written or failed. */
static bool is_due(const struct ckpt_program *p)
{
    int64_t step = p->submitted + 1;
    return p->programs->options->trace_out && p->trains && has_place(p) &&
           (p->timing->traced < 0 || p->timing->traced >= p->submitted) &&
           (step <= 4 || step == 8 || step == SAMPLES);
}

void timing_begin_step(struct ckpt_program *p)
{
    if (!p->timing || !is_due(p))
        return;
    int64_t n = count_spans(p);
    if (array_reserve((void **)&p->timing->spans.data, &p->timing->spans.capacity, n,
                      sizeof *p->timing->spans.data))
        return; /* without a later trace, ckpt_unwritten reports it */
    for (int64_t k = 0; k < n; k++)
        p->timing->spans.data[k] = (struct run_span){NAN, NAN, NAN, NULL};
    p->timing->traced = p->submitted;
}

static bool takes_time(const struct instr *i)
{
    return i->kind != INSTR_RECORD && i->kind != INSTR_WAIT && i->kind != INSTR_POISON;
}

void timing_stamp(struct ckpt_program *p, const struct instr *i, int32_t micro, bool end)
{
    if (!is_traced(p) || !takes_time(i))
        return;
    struct device *d = p->programs->memory->device;
    struct run_span *s = span_of(p, i, micro);
    if (!end || i->kind != INSTR_COMPUTE)
        d->ops->stamp(d, i->queue, end ? &s->end : &s->start);
}

double *timing_slot(struct ckpt_program *p, const struct instr *i, int32_t micro)
{
    if (!p->timing)
        return NULL;
    struct samples *s = &p->timing->ops[i->op];
    /* What the host repeats is measured on the device. */
    bool again = i->queue == QUEUE_HOST && p->plan->steps[i->step].by == BY_BOTH;
    double *slot = s->n < SAMPLES && !again ? &s->seconds[s->n++] : NULL;
    if (!is_traced(p))
        return slot;
    struct run_span *span = span_of(p, i, micro);
    slot = slot ? slot : &span->own;
    span->seconds = slot;
    return slot;
}

/* ---- writing --------------------------------------------------------------------------------- */

double timing_median(const struct timing *t, int32_t op)
{
    const struct samples *s = &t->ops[op];
    double sorted[SAMPLES];
    if (!s->n)
        return 0;
    int32_t skip = s->n > 1, n = s->n - skip;
    for (int32_t i = 0; i < n; i++)
        sorted[i] = s->seconds[i + skip];
    return median_of(sorted, n);
}

/* Keeps one entry per key: the median over the ops with this key. */
static int32_t merge(struct machine_cost *costs, int32_t n)
{
    int32_t kept = 0;
    machine_sort_costs(costs, n);
    for (int32_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && costs[end].key == costs[i].key; end++)
            ;
        costs[kept++] = costs[i + (end - i) / 2];
    }
    return kept;
}

/* Collects the times of ops that ran, and the machine's costs for all other keys. */
static int32_t collect(const struct timing *t, const struct ckpt_program *p,
                       struct machine_cost *costs)
{
    struct machine measured = {.costs = costs};
    double seconds;
    for (int32_t i = 0; i < p->graph->n_ops; i++) {
        const struct graph_op *o = &p->graph->ops[i];
        if (t->ops[o->tape_op].n)
            costs[measured.n_costs++] =
                (struct machine_cost){o->cost_key, timing_median(t, o->tape_op)};
    }
    measured.n_costs = merge(costs, measured.n_costs);
    int32_t n = measured.n_costs;
    for (int32_t i = 0; i < p->programs->machine.n_costs; i++)
        if (!machine_cost(&measured, p->programs->machine.costs[i].key, &seconds))
            costs[n++] = p->programs->machine.costs[i];
    machine_sort_costs(costs, n);
    return n;
}

static int write_machine(const struct timing *t, const struct ckpt_program *p)
{
    struct machine m = p->programs->machine;
    size_t capacity = (size_t)p->graph->n_ops + (size_t)m.n_costs + 1;
    if (!p->programs->options->machine_out || !p->trains || p->steps > SAMPLES ||
        (p->steps & (p->steps - 1)))
        return 0;
    m.algorithms = (struct algorithms){0};
    m.costs = calloc(capacity, sizeof *m.costs);
    if (!m.costs)
        return error_set(CKPT_ENOMEM, "no memory for the times of ops");
    m.n_costs = collect(t, p, m.costs);
    int rc = program_list_algorithms(p, &m.algorithms);
    if (!rc)
        rc = machine_write(&m, p->programs->options->machine_out);
    if (!rc)
        p->programs->written |= WRITTEN_MACHINE;
    algorithms_free(&m.algorithms);
    free(m.costs);
    return rc;
}

/* The slice of an instruction: its step or copy, and its times. */
static struct trace_slice slice_of(const struct ckpt_program *p, const struct instr *i,
                                   int32_t micro, int32_t step)
{
    const struct run_span *s = span_of(p, i, micro);
    struct trace_slice slice = {i->queue, step, i->copy, micro, i->bytes, NULL, s->start, s->end};
    if (s->seconds) {
        const struct op *op = &p->tape->ops.data[i->op];
        slice.end = s->start + *s->seconds;
        slice.kind = ops_name(op->def, op->attr);
    }
    return slice;
}

/* Instructions that are not copies of the plan correspond to its steps. */
static int32_t collect_slices(const struct ckpt_program *p, struct trace_slice *slices)
{
    int32_t n = 0, n_body = p->lowered.n_body;
    for (int32_t k = 0; k < p->lowered.n_instrs; k++) {
        const struct instr *i = &p->lowered.instrs.data[k];
        if (!takes_time(i))
            continue;
        for (int32_t micro = k < n_body ? 0 : p->tape->n_bodies - 1; micro < p->tape->n_bodies;
             micro++) {
            slices[n] = slice_of(p, i, micro, i->copy < 0 ? i->step : -1);
            n += isfinite(slices[n].start) && isfinite(slices[n].end);
        }
    }
    return n;
}

/* The programs in the trace, in the order they were compiled. */
static int32_t list_traced(const struct programs *ps, struct trace_program *list)
{
    int32_t n = 0, number = programs_count_training(ps);
    for (const struct ckpt_program *p = ps->first; p; p = p->next) {
        if (has_trace(p))
            list[PROGRAMS - ++n] = (struct trace_program){p->graph, p->plan, p->timing->slices,
                                                          p->timing->n_slices, number};
        number -= p->trains;
    }
    memmove(list, list + PROGRAMS - n, (size_t)n * sizeof *list);
    return n;
}

static int write_trace(struct timing *t, const struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct trace_program list[PROGRAMS];
    timing_forget(t);
    t->slices = malloc((size_t)(count_spans(p) + 1) * sizeof *t->slices);
    if (!t->slices)
        return error_set(CKPT_ENOMEM, "no memory for the trace");
    t->n_slices = collect_slices(p, t->slices);
    int32_t n = list_traced(ps, list);
    int rc = trace_write(list, n, &ps->machine, ps->options->trace_out);
    if (!rc)
        ps->written |= WRITTEN_TRACE;
    return rc;
}

int timing_step(struct timing *t, const struct ckpt_program *p)
{
    int rc = 0;
    if (t->traced >= 0 && t->traced < p->steps) {
        rc = write_trace(t, p);
        t->traced = -1;
    }
    return rc ? rc : write_machine(t, p);
}
