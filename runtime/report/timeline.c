/* SPDX-License-Identifier: Apache-2.0 */
/* Fills timeline.html with a plan: arrays of numbers and names as JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "core/json.h"
#include "core/number.h"
#include "exec/trace.h"
#include "plan/graph/lines.h"
#include "report/memory_viz.h"
#include "report/timeline.h"

/* Placeholder for the script in the page, and for the data in the script. */
#define SCRIPT "<script src=\"timeline.js\"></script>"
#define DATA   "/*DATA*/null"

struct timeline {
    const struct graph *g;
    const struct plan *p;
    const struct machine *machine;
    struct plan_clock clock;
    struct offload *offloads; /* with the times of the clock */
    int32_t n_offloads;
};

static void put_real(FILE *f, double value)
{
    char text[NUMBER_TEXT];
    number_format(text, value);
    fputs(text, f);
}

static void put_total(FILE *f, const char *name, double value)
{
    fprintf(f, "\"%s\":", name);
    put_real(f, value);
    fputs(",\n", f);
}

static void put_totals(FILE *f, const struct timeline *t)
{
    const struct plan *p = t->p;
    bool limited = p->budgets.device != INT64_MAX;
    fputs("{\"machine\":", f);
    json_write_string(f, t->machine->name);
    fputs(",\n", f);
    put_total(f, "budget", limited ? (double)p->budgets.device : 0);
    put_total(f, "process", (double)t->machine->process);
    put_total(f, "persistent", (double)p->persistent);
    put_total(f, "transient", (double)p->transient);
    put_total(f, "host_bytes", (double)p->host_bytes);
    put_total(f, "nvme_bytes", (double)p->nvme_bytes);
    put_total(f, "seconds", p->seconds);
    put_total(f, "recompute", p->recompute_seconds);
    put_total(f, "exposed", p->exposed_seconds + p->exposed_comm);
    put_total(f, "micro", t->g->n_micro);
}

/* [name, phase, seconds, workspace] and [name, kind, bytes, persistent] */
static void put_graph(FILE *f, const struct graph *g)
{
    fputs("\"ops\":[", f);
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        fputs(i ? ",\n[" : "[", f);
        json_write_string(f, o->name);
        fprintf(f, ",%d,", (int)o->phase);
        put_real(f, o->seconds);
        fprintf(f, ",%" PRId64 "]", o->workspace);
    }
    fputs("],\n\"storages\":[", f);
    for (int32_t s = 0; s < g->n_storages; s++) {
        const struct graph_storage *t = &g->storages[s];
        fputs(s ? ",\n[" : "[", f);
        json_write_string(f, t->name);
        fprintf(f, ",%d,%" PRId64 ",%d]", (int)t->kind, t->bytes, t->persistent);
    }
    fputs("],\n", f);
}

/* [storage, first, last, offset]; a residence that runs into the next step is split in two */
static void put_residences(FILE *f, const struct graph *g, const struct plan *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        bool over = r->last >= p->n_steps;
        if (r->tier != TIER_DEVICE || plan_is_backing(g, p, r))
            continue;
        for (int piece = 0; piece <= over; piece++, n++)
            fprintf(f, "%s[%" PRId32 ",%" PRId32 ",%" PRId32 ",%" PRId64 "]%s", n ? "," : "",
                    r->storage, piece ? 0 : r->first,
                    !over ? r->last : (piece ? r->last - p->n_steps : p->n_steps - 1), r->offset,
                    n % 8 == 7 ? "\n" : "");
    }
}

/* [storage, tier, out, free, in, use, offset, and the times of the two copies] */
static void put_offload(FILE *f, const struct offload *k)
{
    const double times[] = {k->out ? k->out->start : 0, k->out ? k->out->end : 0, k->in->start,
                            k->in->end};
    fprintf(f, "[%" PRId32 ",%d,%" PRId32 ",%" PRId32 ",%" PRId32 ",%" PRId32 ",%" PRId64,
            k->storage, (int)(k->tier == TIER_NVME ? FATE_OFFLOAD_NVME : FATE_OFFLOAD_HOST),
            k->out_step, k->free_step, k->in_step, k->use_step, k->tier_offset);
    for (int j = 0; j < 4; j++) {
        fputc(',', f);
        put_real(f, times[j]);
    }
    fputc(']', f);
}

enum { ON_DEVICE, COLLECTIVE, ON_HOST, DEFERRED }; /* queue numbers of the page */

/* [op, recomputed, queue, start, end] */
static void put_step(FILE *f, const struct timeline *t, int32_t k)
{
    const struct plan_step *s = &t->p->steps[k];
    int queue = s->by == BY_HOST ? ON_HOST : t->g->ops[s->op].collective ? COLLECTIVE : ON_DEVICE;
    queue = s->before ? DEFERRED : queue;
    fprintf(f, "%s[%" PRId32 ",%d,%d,", k ? "," : "", s->op, s->again, queue);
    put_real(f, t->clock.steps[k].start);
    fputc(',', f);
    put_real(f, t->clock.steps[k].end);
    fputs(k % 16 == 15 ? "]\n" : "]", f);
}

/* [step, start, end] of what the host repeats */
static void put_repeats(FILE *f, const struct timeline *t)
{
    const char *before = "";
    for (int32_t k = 0; k < t->p->n_steps; k++) {
        if (t->p->steps[k].by != BY_BOTH)
            continue;
        fprintf(f, "%s[%" PRId32 ",", before, k);
        put_real(f, t->clock.repeats[k].start);
        fputc(',', f);
        put_real(f, t->clock.repeats[k].end);
        fputc(']', f);
        before = ",";
    }
}

static void put_plan(FILE *f, const struct timeline *t)
{
    const struct plan *p = t->p;
    fputs("\"steps\":[", f);
    for (int32_t k = 0; k < p->n_steps; k++)
        put_step(f, t, k);
    fputs("],\n\"repeats\":[", f);
    put_repeats(f, t);
    fputs("],\n\"instances\":[", f);
    put_residences(f, t->g, p);
    fputs("],\n\"offloads\":[", f);
    for (int32_t i = 0; i < t->n_offloads; i++) {
        fputs(i ? ",\n" : "", f);
        put_offload(f, &t->offloads[i]);
    }
    fputs("]}", f);
}

/* Writes the script with the data in place of its placeholder. */
static void put_script(FILE *f, const struct timeline *t)
{
    for (const char *const *line = timeline_script; *line; line++) {
        const char *mark = strstr(*line, DATA);
        if (mark) {
            fwrite(*line, 1, (size_t)(mark - *line), f);
            put_totals(f, t);
            put_graph(f, t->g);
            put_plan(f, t);
        }
        fprintf(f, "%s\n", mark ? mark + strlen(DATA) : *line);
    }
}

static void put_page(FILE *f, const void *user)
{
    for (const char *const *line = timeline_page; *line; line++) {
        if (strcmp(*line, SCRIPT)) {
            fprintf(f, "%s\n", *line);
            continue;
        }
        fputs("<script>\n", f);
        put_script(f, user);
        fputs("</script>\n", f);
    }
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n > k && !strcmp(path + n - k, end);
}

int timeline_write(const struct graph *g, const struct plan *p, const struct machine *machine,
                   const char *path)
{
    struct timeline t = {.g = g, .p = p, .machine = machine};
    if (ends_with(path, ".json"))
        return trace_write(&(struct trace_program){.graph = g, .plan = p}, 1, machine, path);
    if (ends_with(path, ".pickle"))
        return memory_viz_write(g, p, machine, path);
    bool good = !plan_clock(g, machine, p, &t.clock) &&
                !plan_offloads(g, &t.clock.plan, &t.offloads, &t.n_offloads);
    int rc = good ? lines_write("timeline", path, put_page, &t)
                  : error_set(CKPT_ENOMEM, "no memory for the timeline");
    free(t.offloads);
    plan_clock_free(&t.clock);
    return rc;
}
