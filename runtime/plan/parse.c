/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading of plan files.  Strict: every line in its place, every number in its range, and memory is
 * allocated only for lines that exist.  plan_check decides whether the plan is correct.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/graph/lines.h"
#include "plan/plan.h"
#include "plan/search/comm_cost.h"

struct reader {
    struct lines *l;
    const struct graph *g;
    struct plan *p;
};

static double get_seconds(struct lines *l, const char *key)
{
    if (lines_next(l) && !lines_take(l, key))
        lines_fail(l, CKPT_EFORMAT, "expected \"%s\" and a time in seconds", key);
    double value = lines_real(l, "a time in seconds", 1e300);
    lines_end(l);
    return value;
}

static void get_header(struct reader *r)
{
    struct lines *l = r->l;
    if (!lines_next(l))
        return;
    if (strncmp(l->line, "libckpt-plan ", 13) != 0)
        lines_fail(l, CKPT_EFORMAT, "a plan file begins \"libckpt-plan 4\"");
    else if (strcmp(l->line + 13, "4") != 0)
        lines_fail(l, CKPT_EFORMAT,
                   "plan files of version %.20s cannot be read, only those of version 4; make the "
                   "plan again with --plan-out",
                   l->line + 13);
    if (lines_next(l) && !lines_take(l, "signature"))
        lines_fail(l, CKPT_EFORMAT, "expected \"signature\" and 16 hex digits");
    r->p->signature = lines_hex(l, "a signature");
    lines_end(l);
    if (!l->rc && r->p->signature != graph_signature(r->g))
        lines_fail(l, CKPT_EPLAN,
                   "the plan was made for another program, batch or version; make it again with "
                   "--plan-out");
}

static void get_budget(struct reader *r)
{
    struct lines *l = r->l;
    r->p->budgets.device = INT64_MAX;
    if (!lines_next(l) || !strcmp(l->line, "budget none"))
        return;
    if (!lines_take(l, "budget"))
        lines_fail(l, CKPT_EFORMAT, "expected \"budget\" and a number");
    r->p->budgets.device = lines_number(l, "a budget", 0, INT64_MAX - 1);
    lines_end(l);
}

static void get_totals(struct reader *r)
{
    const int64_t most = INT64_MAX / 4;
    struct plan *p = r->p;
    struct lines *l = r->l;
    get_budget(r);
    p->budgets.host = lines_total(l, "host", 0, INT64_MAX - 1);
    p->budgets.nvme = lines_total(l, "nvme", 0, INT64_MAX - 1);
    p->budgets.tier_base[TIER_HOST] = lines_total(l, "host_base", 0, most);
    p->budgets.tier_base[TIER_NVME] = lines_total(l, "nvme_base", 0, most);
    p->persistent = lines_total(l, "persistent", 0, most);
    p->transient = lines_total(l, "transient", 0, most);
    p->load = lines_total(l, "load", 0, most);
    p->peak_step = (int32_t)lines_total(l, "peak_step", 0, INT32_MAX - 1);
    p->min_budget = lines_total(l, "min_budget", 0, INT64_MAX - 1);
    p->min_peak_op = (int32_t)lines_total(l, "min_peak_op", -1, r->g->n_ops - 1);
    p->host_bytes = lines_total(l, "host_bytes", 0, most);
    p->nvme_bytes = lines_total(l, "nvme_bytes", 0, most);
    p->staging_bytes = lines_total(l, "staging_bytes", 0, most);
    p->seconds = get_seconds(l, "seconds");
    p->recompute_seconds = get_seconds(l, "recompute_seconds");
    p->exposed_seconds = get_seconds(l, "exposed_seconds");
    if (graph_has_collectives(r->g)) {
        p->exposed_comm = get_seconds(l, "exposed_comm");
        p->comm_seconds = get_seconds(l, "comm_seconds");
    }
    p->bound_seconds = get_seconds(l, "bound_seconds");
    p->next_budget = lines_total(l, "next_budget", 0, INT64_MAX - 1);
    p->next_seconds = get_seconds(l, "next_seconds");
    p->n_steps = (int32_t)lines_total(l, "steps", 0, INT32_MAX / 4);
    p->n_body = (int32_t)lines_total(l, "body", 0, p->n_steps);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Reads `count` lines into an array that grows line by line; get reads one element. */
static void get_list(struct reader *r, void **data, int32_t count, size_t size,
                     void (*get)(struct reader *r, void *element))
{
    int64_t capacity = 0;
    for (int32_t i = 0; i < count && lines_next(r->l); i++) {
        if (array_reserve(data, &capacity, i, size)) {
            lines_fail(r->l, CKPT_ENOMEM, "out of host memory");
            return;
        }
        memset((char *)*data + (size_t)i * size, 0, size);
        get(r, (char *)*data + (size_t)i * size);
    }
}

static void get_step(struct reader *r, void *element)
{
    static const char *const kinds[] = {"run", "again", "host", "both", "next"};
    enum { RUN, AGAIN, HOST, BOTH, NEXT, KINDS };
    struct plan_step *s = element;
    int kind = RUN;
    while (kind < KINDS && !lines_take(r->l, kinds[kind]))
        kind++;
    if (kind == KINDS)
        lines_fail(r->l, CKPT_EFORMAT, "expected run, again, host, both or next");
    s->again = kind == AGAIN;
    s->by = kind == HOST ? BY_HOST : kind == BOTH || kind == NEXT ? BY_BOTH : BY_DEVICE;
    s->op = (int32_t)lines_number(r->l, "an op", 0, r->g->n_ops - 1);
    if (kind == NEXT)
        s->before = (int32_t)lines_number(r->l, "a step of the body", 1,
                                          max_i64(1, (int64_t)r->p->n_body - 1));
    lines_name(r->l);
}

static int64_t get_offset(struct reader *r)
{
    return lines_number(r->l, "an offset", 0, INT64_MAX / 4);
}

static int32_t get_index(struct reader *r, int64_t least, int64_t most)
{
    return (int32_t)lines_number(r->l, "an index", least, most);
}

static void get_residence(struct reader *r, void *element)
{
    struct residence *t = element;
    int32_t steps = r->p->n_steps;
    if (lines_take(r->l, "workspace")) {
        t->tier = TIER_DEVICE;
        t->first = t->last = get_index(r, 0, steps - 1);
        t->storage = -1 - t->first;
        t->offset = get_offset(r);
        lines_end(r->l);
        return;
    }
    bool host = lines_take(r->l, "host"), nvme = !host && lines_take(r->l, "nvme");
    if (!host && !nvme && !lines_take(r->l, "device"))
        lines_fail(r->l, CKPT_EFORMAT, "expected device, host, nvme or workspace");
    t->tier = host ? TIER_HOST : nvme ? TIER_NVME : TIER_DEVICE;
    t->storage = get_index(r, 0, r->g->n_storages - 1);
    t->first = get_index(r, 0, steps - 1);
    t->last = get_index(r, t->first, 2 * (int64_t)steps - 1);
    t->offset = lines_take(r->l, "-") ? -1 : get_offset(r);
    lines_name(r->l);
}

static void get_copy(struct reader *r, void *element)
{
    struct copy *c = element;
    int32_t steps = r->p->n_steps;
    if (!lines_take(r->l, "copy"))
        lines_fail(r->l, CKPT_EFORMAT, "expected copy");
    c->from = get_index(r, 0, r->p->n_residences - 1);
    c->to = get_index(r, 0, r->p->n_residences - 1);
    c->after = get_index(r, -1, steps - 1);
    c->before = get_index(r, 0, 2 * (int64_t)steps);
    c->start = lines_real(r->l, "a time in seconds", 1e300);
    c->end = lines_real(r->l, "a time in seconds", 1e300);
    lines_end(r->l);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Adds the current line to the algorithms if it is one. */
static bool get_algorithm(struct lines *l, struct algorithms *algorithms)
{
    bool is_algorithm;
    int rc = l->rc ? 0 : algorithms_read(algorithms, l->line, &is_algorithm);
    if (rc == CKPT_ENOMEM)
        lines_fail(l, rc, "out of host memory");
    else if (rc)
        lines_fail(l, CKPT_EFORMAT, "expected pin, a key of 16 hex digits and a choice");
    return !l->rc && is_algorithm;
}

static void get_plan(struct lines *l, void *user)
{
    struct reader *r = user;
    struct plan *p = r->p;
    r->l = l;
    get_header(r);
    get_totals(r);
    p->n_residences = (int32_t)lines_total(l, "residences", 0, INT32_MAX / 4);
    p->n_copies = (int32_t)lines_total(l, "copies", 0, INT32_MAX / 4);
    get_list(r, (void **)&p->steps, p->n_steps, sizeof(*p->steps), get_step);
    get_list(r, (void **)&p->residences, p->n_residences, sizeof(*p->residences), get_residence);
    get_list(r, (void **)&p->copies, p->n_copies, sizeof(*p->copies), get_copy);
    lines_next(l);
    while (get_algorithm(l, &p->algorithms))
        lines_next(l);
    lines_last(l);
}

/* From a file, or from text if path is NULL. */
static int get_all(const struct graph *g, const char *path, char *text, size_t size,
                   struct plan **p)
{
    struct lines l;
    struct reader r = {.g = g, .p = *p = calloc(1, sizeof(*r.p))};
    if (!r.p)
        return error_set(CKPT_ENOMEM, "out of host memory");
    int rc = path ? lines_read(&l, "plan file", path, get_plan, &r)
                  : lines_parse(&l, "plan", text, size, get_plan, &r);
    if (rc) {
        plan_free(r.p);
        *p = NULL;
    }
    return rc;
}

int plan_read(const struct graph *g, const char *path, struct plan **p)
{
    return get_all(g, path, NULL, 0, p);
}

int plan_parse(const struct graph *g, char *text, size_t size, struct plan **p)
{
    return get_all(g, NULL, text, size, p);
}

/* Other lines are skipped. */
static void get_algorithms(struct lines *l, void *user)
{
    while (lines_next(l) && strcmp(l->line, "end") != 0)
        get_algorithm(l, user);
}

int plan_read_algorithms(const char *path, struct algorithms *algorithms)
{
    struct algorithms found = {0};
    struct lines l;
    int rc = lines_read(&l, "plan file", path, get_algorithms, &found);
    if (!rc && algorithms_add(algorithms, &found))
        rc = error_set(CKPT_ENOMEM, "out of host memory");
    algorithms_free(&found);
    return rc;
}
