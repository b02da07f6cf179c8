/* SPDX-License-Identifier: Apache-2.0 */
/* Small programs for the planner's tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "graphs.h"

const struct machine graphs_machine = {.name = "test",
                                       .d2h = 1.1e10,
                                       .h2d = 1.1e10,
                                       .d2h_both = 1e10,
                                       .h2d_both = 1e10,
                                       .copy_overhead = 1e-6,
                                       .host_update = 2e10,
                                       .nvme_read = 5e9,
                                       .nvme_write = 4e9};

#define ROOM 40000 /* storages and ops of the largest program */

struct graph_builder *build_new(void)
{
    struct graph_builder *k = calloc(1, sizeof(*k));
    k->g = calloc(1, sizeof(*k->g));
    k->g->storages = calloc(ROOM, sizeof(*k->g->storages));
    k->g->ops = calloc(ROOM, sizeof(*k->g->ops));
    k->g->refs = calloc(16 * ROOM, sizeof(*k->g->refs));
    k->gradient = calloc(ROOM, sizeof(*k->gradient));
    k->forward = calloc(ROOM, sizeof(*k->forward));
    build_storage(k, CKPT_ALIGN, KIND_TEMPORARY, "nothing"); /* so that 0 is no storage */
    return k;
}

int32_t build_storage(struct graph_builder *k, int64_t bytes, enum graph_kind kind,
                      const char *name)
{
    struct graph *g = k->g;
    assert_true(g->n_storages < ROOM);
    g->storages[g->n_storages] =
        (struct graph_storage){.bytes = round_up(bytes, CKPT_ALIGN),
                               .kind = kind,
                               .persistent = kind == KIND_PARAMETER || kind == KIND_OPTIMIZER,
                               .name = strdup(name)};
    k->gradient[g->n_storages] = -1;
    return g->n_storages++;
}

int32_t build_op(struct graph_builder *k, enum graph_phase phase, const char *name, int32_t n_reads,
                 const int32_t *reads, int32_t n_writes, const int32_t *writes, double seconds)
{
    struct graph *g = k->g;
    char text[64];
    assert_true(g->n_ops < ROOM && g->n_refs + n_reads + n_writes < 16 * ROOM);
    snprintf(text, sizeof(text), "%s (model.c:%d)", name, (int)g->n_ops);
    struct graph_op *o = &g->ops[g->n_ops];
    *o = (struct graph_op){.phase = phase,
                           .rerunnable = phase == GRAPH_FORWARD,
                           .seconds = seconds,
                           .tape_op = g->n_ops,
                           .name = strdup(text)};
    o->reads = g->n_refs;
    for (int32_t j = 0; j < n_reads; j++) {
        bool seen = false;
        for (int32_t i = o->reads; i < g->n_refs; i++)
            seen |= g->refs[i] == reads[j];
        if (!seen)
            g->refs[g->n_refs++] = reads[j];
    }
    o->n_reads = g->n_refs - o->reads;
    o->writes = g->n_refs;
    for (int32_t j = 0; j < n_writes; j++)
        g->refs[g->n_refs++] = writes[j];
    o->n_writes = n_writes;
    return g->n_ops++;
}

void build_forward(struct graph_builder *k, struct forward *f)
{
    int32_t reads[MOST_OPERANDS + 2];
    int32_t n = f->n_in;
    memcpy(reads, f->in, sizeof(f->in));
    if (f->weight > 0)
        reads[n++] = f->w = build_storage(k, f->weight, KIND_PARAMETER, "weight");
    if (f->changes > 0) {
        reads[n++] = f->changes;
        f->out[0] = f->changes;
    } else if (f->onto > 0) {
        f->out[0] = f->onto;
    } else {
        for (int32_t i = 0; i < f->n_out; i++)
            f->out[i] = build_storage(k, f->out_bytes[i], KIND_ACTIVATION, f->name);
    }
    int32_t op = build_op(k, GRAPH_FORWARD, f->name, n, reads, f->n_out, f->out, f->seconds);
    k->g->ops[op].workspace = f->workspace;
    k->g->ops[op].rerunnable = !f->once && f->changes <= 0;
    k->forward[k->n_forward++] = *f;
}

int32_t build_unary(struct graph_builder *k, const char *name, int32_t x, int64_t bytes,
                    int64_t weight, unsigned needs, double seconds)
{
    struct forward f = {.name = name,
                        .n_in = 1,
                        .in = {x},
                        .n_out = 1,
                        .out_bytes = {bytes},
                        .weight = weight,
                        .needs = needs,
                        .seconds = seconds};
    build_forward(k, &f);
    return f.out[0];
}

int32_t build_input(struct graph_builder *k, int64_t bytes)
{
    int32_t s = build_storage(k, bytes, KIND_INPUT, "input");
    build_op(k, GRAPH_FORWARD, "feed", 0, NULL, 1, &s, 1e-6);
    return s;
}

/* Adds an op that reads reads and contributes to the gradient of x. */
static void contribute(struct graph_builder *k, const struct forward *f, int32_t x, int32_t n,
                       const int32_t *reads)
{
    int32_t all[3 * MOST_OPERANDS];
    memcpy(all, reads, (size_t)n * sizeof(*reads));
    if (k->gradient[x] < 0)
        k->gradient[x] =
            build_storage(k, k->g->storages[x].bytes, KIND_TEMPORARY, "activation gradient");
    else
        all[n++] = k->gradient[x];
    build_op(k, GRAPH_BACKWARD, f->name, n, all, 1, &k->gradient[x], f->seconds);
}

static void backward_of(struct graph_builder *k, struct forward *f)
{
    int32_t reads[3 * MOST_OPERANDS], n = 0;
    for (int32_t i = 0; i < f->n_out; i++)
        if (!(f->constant_outputs >> i & 1) && k->gradient[f->out[i]] >= 0)
            reads[n++] = k->gradient[f->out[i]];
    if (n == 0)
        return;
    int32_t gradients = n;
    for (int32_t i = 0; i < f->n_in + f->n_out; i++)
        if (f->needs >> i & 1)
            reads[n++] = i < f->n_in ? f->in[i] : f->out[i - f->n_in];
    if (f->weight > 0) {
        int32_t write = f->dw;
        bool add = k->g->storages[f->dw].carried;
        reads[n] = f->dw;
        f->trained = true;
        build_op(k, GRAPH_BACKWARD, "linear_dw", n + add, reads, 1, &write, f->seconds);
        n = gradients;
        reads[n++] = f->w;
    }
    for (int32_t i = 0; i < f->n_in; i++)
        if (k->g->storages[f->in[i]].kind != KIND_INPUT)
            contribute(k, f, f->in[i], n, reads);
}

static void update_of(struct graph_builder *k, const struct forward *f)
{
    if (!f->trained)
        return;
    int32_t moment = build_storage(k, 2 * f->weight, KIND_OPTIMIZER, "moments");
    int32_t reads[] = {f->dw, f->w, moment}, writes[] = {f->w, moment};
    build_op(k, GRAPH_UPDATE, "adamw", 3, reads, 2, writes, 1e-5);
}

struct graph *build_finish(struct graph_builder *k, int32_t loss_of, int32_t n_micro)
{
    struct graph *g = k->g;
    for (int32_t i = 0; i < k->n_forward; i++)
        if (k->forward[i].weight > 0) {
            k->forward[i].dw =
                build_storage(k, 2 * k->forward[i].weight, KIND_GRADIENT, "gradient");
            g->storages[k->forward[i].dw].carried = n_micro > 1;
        }
    k->gradient[loss_of] =
        build_storage(k, g->storages[loss_of].bytes, KIND_TEMPORARY, "loss gradient");
    build_op(k, GRAPH_BACKWARD, "loss", 1, &loss_of, 1, &k->gradient[loss_of], 1e-6);
    for (int32_t i = k->n_forward - 1; i >= 0; i--)
        backward_of(k, &k->forward[i]);
    g->n_body = g->n_ops;
    for (int32_t i = 0; i < k->n_forward; i++)
        if (k->forward[i].weight > 0)
            update_of(k, &k->forward[i]);
    g->n_micro = n_micro;
    free(k->gradient);
    free(k->forward);
    free(k);
    return g;
}

struct graph *graph_chain(int32_t n, int64_t bytes)
{
    struct graph_builder *k = build_new();
    int32_t x = build_input(k, bytes);
    for (int32_t i = 0; i < n; i++)
        x = build_unary(k, "layer", x, bytes, 0, 3, 1e-3);
    return build_finish(k, x, 1);
}

/* A modulated norm; the caller adds the op that reads it. */
static int32_t norm_modulate(struct graph_builder *k, int32_t x, int64_t unit, double t)
{
    struct forward norm = {.name = "layer_norm",
                           .n_in = 1,
                           .in = {x},
                           .n_out = 2,
                           .out_bytes = {unit, unit / 64},
                           .needs = 1 | 4,
                           .constant_outputs = 2,
                           .seconds = t};
    build_forward(k, &norm);
    return build_unary(k, "modulate", norm.out[0], unit, 0, 1, t);
}

static int32_t gated_residual(struct graph_builder *k, int32_t x, int32_t a, int64_t unit, double t)
{
    struct forward f = {.name = "gated_residual",
                        .n_in = 2,
                        .in = {x, a},
                        .n_out = 1,
                        .out_bytes = {unit},
                        .needs = 2,
                        .seconds = t};
    build_forward(k, &f);
    return f.out[0];
}

static int32_t attention(struct graph_builder *k, int32_t qkv, int32_t qk, int64_t unit, double t)
{
    struct forward f = {.name = "attention",
                        .n_in = 2,
                        .in = {qk, qkv},
                        .n_out = 2,
                        .out_bytes = {unit, unit / 32},
                        .needs = 15,
                        .constant_outputs = 2,
                        .workspace = unit / 4,
                        .seconds = t};
    build_forward(k, &f);
    return f.out[0];
}

struct graph *graph_transformer(int32_t blocks, int64_t unit, int32_t n_micro)
{
    /* Seconds of an elementwise op on a unit; a matrix product of unit by [d, d] takes 8 of them.
     */
    double t = 1e-9 * (double)unit;
    int64_t w = unit / 4;
    struct graph_builder *k = build_new();
    int32_t x = build_unary(k, "embed", build_input(k, unit / 16), unit, w, 1, 2 * t);
    for (int32_t b = 0; b < blocks; b++) {
        int32_t m = norm_modulate(k, x, unit, 2 * t);
        int32_t qkv = build_unary(k, "linear_qkv", m, 3 * unit, 3 * w, 1, 24 * t);
        int32_t qk = build_unary(k, "rope", qkv, 2 * unit, 0, 1, 3 * t);
        int32_t o = attention(k, qkv, qk, unit, 16 * t);
        int32_t a = build_unary(k, "linear_out", o, unit, w, 1, 8 * t);
        x = gated_residual(k, x, a, unit, 2 * t);
        m = norm_modulate(k, x, unit, 2 * t);
        int32_t f = build_unary(k, "linear_up", m, 4 * unit, 4 * w, 1, 32 * t);
        f = build_unary(k, "gelu", f, 4 * unit, 0, 1, 6 * t);
        a = build_unary(k, "linear_down", f, unit, 4 * w, 1, 32 * t);
        x = gated_residual(k, x, a, unit, 2 * t);
    }
    return build_finish(k, build_unary(k, "head", x, unit / 16, w, 1, 2 * t), n_micro);
}

static int32_t join(struct graph_builder *k, const char *name, int32_t a, int32_t b, int64_t bytes,
                    unsigned needs)
{
    struct forward f = {.name = name,
                        .n_in = 2,
                        .in = {a, b},
                        .n_out = 1,
                        .out_bytes = {bytes},
                        .needs = needs,
                        .seconds = 1e-4};
    build_forward(k, &f);
    return f.out[0];
}

struct graph *graph_recurrent(int32_t steps, int64_t unit)
{
    struct graph_builder *k = build_new();
    int32_t x = build_input(k, steps * unit), h = build_input(k, unit), state = h;
    int32_t table = build_input(k, 32 * unit), total = build_input(k, 8);
    table = build_unary(k, "scale", table, 32 * unit, CKPT_ALIGN, 1, 1e-4);
    for (int32_t i = 0; i < steps; i++) {
        int32_t of_h = build_unary(k, "product", h, 4 * unit, 0, 1, 2e-3);
        int32_t of_x = build_unary(k, "product", x, 4 * unit, 0, 1, 2e-3);
        int32_t gates = join(k, "add", of_h, of_x, 4 * unit, 0);
        gates = build_unary(k, "sigmoid", gates, 4 * unit, 0, 2, 1e-4);
        int32_t old = join(k, "mul", gates, state, unit, 3);
        int32_t new = build_unary(k, "mul", gates, unit, 0, 1, 1e-4);
        state = join(k, "add", old, new, unit, 0);
        int32_t squashed = build_unary(k, "tanh", state, unit, 0, 2, 1e-4);
        h = join(k, "mul", gates, squashed, unit, 3);
        int32_t scores = join(k, "product", h, table, 8 * unit, 3);
        scores = build_unary(k, "softmax", scores, 8 * unit, 0, 2, 1e-4);
        total = join(k, "loss", scores, total, 8, 1);
    }
    return build_finish(k, total, 1);
}

struct graph *graph_unet(int32_t levels, int64_t bytes)
{
    struct graph_builder *k = build_new();
    int32_t skip[32], x = build_input(k, bytes);
    for (int32_t i = 0; i < levels; i++) {
        x = build_unary(k, "conv", x, bytes >> i, 4096, 1, 4e-3);
        skip[i] = x = build_unary(k, "silu", x, bytes >> i, 0, 1, 1e-3);
        x = build_unary(k, "down", x, bytes >> (i + 1), 4096, 1, 1e-3);
    }
    for (int32_t i = levels - 1; i >= 0; i--) {
        struct forward f = {.name = "up",
                            .n_in = 2,
                            .in = {x, skip[i]},
                            .n_out = 1,
                            .out_bytes = {bytes >> i},
                            .weight = 4096,
                            .needs = 3,
                            .seconds = 4e-3};
        build_forward(k, &f);
        x = build_unary(k, "silu", f.out[0], bytes >> i, 0, 1, 1e-3);
    }
    return build_finish(k, x, 1);
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 10) % n;
}

static int32_t random_op(struct graph_builder *k, uint32_t *state, const int32_t *known, int32_t n)
{
    struct forward f = {.name = "op", .n_out = 1 + (draw(state, 4) == 0)};
    f.n_in = 1 + (int32_t)draw(state, 3);
    for (int32_t i = 0; i < f.n_in; i++)
        f.in[i] = known[n - 1 - (int32_t)draw(state, (uint32_t)min_i64(n, 6))];
    for (int32_t i = 0; i < f.n_out; i++)
        f.out_bytes[i] = CKPT_ALIGN * (1 + draw(state, 64));
    f.needs = draw(state, 1u << (f.n_in + f.n_out));
    f.seconds = 1e-6 * (1 + draw(state, 1000));
    f.workspace = draw(state, 3) ? 0 : CKPT_ALIGN * draw(state, 32);
    f.weight = draw(state, 4) ? 0 : CKPT_ALIGN * (1 + draw(state, 8));
    f.once = draw(state, 8) == 0;
    build_forward(k, &f);
    return f.out[0];
}

/* A storage of which two ops write one half each. */
static int32_t random_parts(struct graph_builder *k, uint32_t *state, const int32_t *known,
                            int32_t n)
{
    int32_t whole = build_storage(k, CKPT_ALIGN * 40, KIND_ACTIVATION, "concat");
    for (int i = 0; i < 2; i++) {
        struct forward f = {.name = "part", .n_in = 1, .n_out = 1, .onto = whole, .seconds = 1e-5};
        f.in[0] = known[n - 1 - (int32_t)draw(state, (uint32_t)min_i64(n, 4))];
        build_forward(k, &f);
    }
    return whole;
}

struct graph *graph_random(uint32_t seed, int32_t n)
{
    struct graph_builder *k = build_new();
    int32_t *known = calloc((size_t)n + 1, sizeof(*known));
    uint32_t state = seed * 2654435761u + 1;
    int32_t m = 0;
    known[m++] = build_input(k, CKPT_ALIGN * 16);
    while (m < n) {
        uint32_t what = draw(&state, 16);
        if (what == 0) {
            known[m] = random_parts(k, &state, known, m);
        } else if (what == 1 && m > 1) {
            struct forward f = {.name = "change", .n_in = 1, .n_out = 1, .seconds = 1e-5};
            f.in[0] = known[m - 2];
            f.changes = known[m - 1];
            build_forward(k, &f);
            known[m] = known[m - 1];
        } else {
            known[m] = random_op(k, &state, known, m);
        }
        m++;
    }
    int32_t last = known[m - 1];
    free(known);
    return build_finish(k, last, 1 + (int32_t)(seed % 2));
}

int64_t plan_peak(const struct plan *p)
{
    return p->persistent + p->transient;
}

int plan_check_again(const struct graph *g, struct plan *p)
{
    assert_int_equal(plan_sort(p), 0);
    return plan_check(g, p);
}

struct plan *frontier_checked(struct frontier *pf, int64_t budget)
{
    struct plan *p;
    if (frontier_plan(pf, &machine_cpu, &(struct budgets){.device = budget}, 0, &p))
        fail_msg("no plan: %s", error_get());
    if (plan_check(pf->p->g, p))
        fail_msg("plan_check: %s", error_get());
    assert_true(p->transient >= p->load);
    assert_true(p->load >= graph_largest_op(pf->p->g));
    assert_true(p->seconds >= graph_seconds(pf->p->g) * (1 - 1e-12));
    assert_true(plan_peak(p) <= budget);
    return p;
}

struct plan *plan_checked(const struct graph *g, int64_t budget)
{
    struct frontier *pf;
    assert_int_equal(frontier_build(g, &pf), 0);
    struct plan *p = frontier_checked(pf, budget);
    frontier_free(pf);
    return p;
}

struct plan *plan_unsearched(const struct graph *g, const struct machine *m,
                             const struct budgets *b, int64_t reserved)
{
    struct frontier *pf;
    struct plan *p;
    assert_int_equal(frontier_build_first(g, &pf), 0);
    assert_int_equal(frontier_first(pf, m, b, reserved, &p), 0);
    frontier_free(pf);
    return p;
}

/* The residence on the device that ends before an offload. */
static struct residence *find_before(const struct plan *p, const struct offload *o)
{
    int32_t last = o->free_step + (o->free_step < o->out_step ? p->n_steps : 0);
    for (int32_t i = 0; i < p->n_residences; i++)
        if (p->residences[i].storage == o->storage && p->residences[i].tier == TIER_DEVICE &&
            p->residences[i].last == last)
            return &p->residences[i];
    return NULL;
}

int32_t list_leaves(const struct graph *g, const struct plan *p, struct leave **list)
{
    struct offload *offloads;
    int32_t n;
    assert_int_equal(plan_offloads(g, p, &offloads, &n), 0);
    *list = calloc((size_t)n + 1, sizeof(**list));
    for (int32_t i = 0; i < n; i++) {
        const struct offload *o = &offloads[i];
        (*list)[i] = (struct leave){.is = *o,
                                    .wraps = o->use_step <= o->out_step,
                                    .out = o->out ? &p->copies[o->out - p->copies] : NULL,
                                    .in = &p->copies[o->in - p->copies],
                                    .before = find_before(p, o),
                                    .behind = &p->residences[o->in->to],
                                    .below = &p->residences[o->in->from]};
    }
    free(offloads);
    return n;
}
