/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fusion: the same tape before and after fusion and pairs, run op by op, gives the same
 * bits; chains become one op, so do pairs, and ops that must not be fused are not. 300 random
 * expressions agree with an evaluator in fp64 that computes derivatives along.
 */
#include "dual.h"
#include "expr/expr.h"
#include "harness.h"
#include "kernels/kernel.h"
#include "passes/passes.h"
#include "recorders.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, COLS = 40, SIZE = ROWS * COLS, STEPS = 9, RANDOM = 300 };

static int failures;
static int64_t sizes[] = {ROWS, COLS};

/* ---- a tape without a context, run op by op ---------------------------------------------------*/

struct bench {
    struct param data[PARAMS];
    struct params params;
    ckpt_tensor w[PARAMS]; /* [ROWS, COLS], [COLS], [ROWS, 1] */
    ckpt_tape *t;
    char **bytes; /* per storage */
};

typedef ckpt_tensor (*model)(ckpt_tape *t, const ckpt_tensor *w, void *user);

static void set_param(struct bench *b, int i, enum ckpt_dtype dtype, int ndim, int64_t m, int64_t n)
{
    static char *const names[PARAMS] = {"w0", "w1", "w2"};
    struct param *p = &b->data[i];
    *p =
        (struct param){.name = names[i], .desc = {.dtype = dtype, .ndim = ndim}, .trainable = true};
    p->desc.shape[0] = m;
    p->desc.shape[1] = n;
    desc_dense(&p->desc);
    b->w[i] = (ckpt_tensor){.id = -i - 1};
}

static void record(struct bench *b, enum ckpt_dtype dtype, model f, void *user)
{
    *b = (struct bench){.params = {.data = b->data, .n = PARAMS}};
    set_param(b, 0, dtype, 2, sizes[0], sizes[1]);
    set_param(b, 1, dtype, 1, sizes[1], 0);
    set_param(b, 2, dtype, 2, sizes[0], 1);
    struct tape_env env = {.calls = &ops_calls,
                           .backend = CKPT_ON_CPU,
                           .params = &b->params,
                           .sharing = {.ranks = 1, .group_ranks = 1}};
    if (tape_new(&b->t, &env, sizes[0], 1))
        exit(99);
    ckpt_tensor y = f(b->t, b->w, user);
    y = ckpt_cast(b->t, y, CKPT_F32);
    pass_differentiate(&(struct compilation){
        .tape = b->t, .loss = ckpt_reshape(b->t, ckpt_mean(b->t, y, 3), 0, NULL)});
    if (b->t->error.code)
        failures += printf("FAIL recording: %s\n", b->t->error.text) > 0;
}

static void release(struct bench *b)
{
    for (int32_t s = 0; b->bytes && s < b->t->n_storages; s++)
        free(b->bytes[s]);
    free(b->bytes);
    b->bytes = NULL;
}

static void set_values(struct bench *b, int i, const double *x)
{
    const struct ckpt_desc *d = &b->data[i].desc;
    int32_t s = b->t->tensors.data[b->t->slots[i][SLOT_VALUE]].storage;
    for (int64_t k = 0; k < desc_numel(d); k++)
        if (d->dtype == CKPT_F32)
            ((float *)b->bytes[s])[k] = (float)x[k];
        else
            ((uint16_t *)b->bytes[s])[k] = (uint16_t)((union {
                                                          float f;
                                                          uint32_t u;
                                                      }){(float)x[k]}
                                                          .u >>
                                                      16);
}

static struct ckpt_view view_of(const struct bench *b, int32_t x)
{
    const struct tensor *v = &b->t->tensors.data[x > 0 ? x : 0];
    struct ckpt_view view = {.desc = v->desc};
    if (x > 0)
        view.data = b->bytes[v->storage] + v->desc.offset * ckpt_dtype_size(v->desc.dtype);
    return view;
}

/* All values that were not set are NaN. */
static void run(struct bench *b, const double *const *values)
{
    const ckpt_tape *t = b->t;
    static const struct ckpt_run step = {.seed = 7, .step = 3, .n_micro = 1};
    static double scratch[1 << 16];
    kernel_bind(b->t);
    release(b);
    b->bytes = calloc((size_t)t->n_storages + 1, sizeof *b->bytes);
    for (int32_t s = 0; s < t->n_storages; s++) {
        b->bytes[s] = malloc((size_t)t->storages.data[s].bytes + 64);
        memset(b->bytes[s], 0xff, (size_t)t->storages.data[s].bytes);
    }
    for (int i = 0; i < PARAMS; i++)
        if (t->slots[i][SLOT_VALUE])
            set_values(b, i, values[i]);
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        struct ckpt_view in[16], out[2];
        if ((o->def->flags & CKPT_OP_VIEW) || o->fetch >= 0)
            continue;
        if (o->feed >= 0) {
            struct ckpt_view v = view_of(b, op_out(t, o, 0));
            memcpy(v.data, t->feeds.data[o->feed].constant, (size_t)desc_bytes(&v.desc));
            continue;
        }
        for (int k = 0; k < o->n_in; k++)
            in[k] = view_of(b, op_in(t, o, k));
        for (int k = 0; k < o->n_out; k++)
            out[k] = view_of(b, op_out(t, o, k));
        const struct ckpt_kernel_args a = {.n_in = o->n_in,
                                           .n_out = o->n_out,
                                           .extra = o->extra,
                                           .in = in,
                                           .out = out,
                                           .attr = o->attr,
                                           .workspace = scratch,
                                           .workspace_bytes = o->workspace,
                                           .accumulate = o->accumulate == ACCUMULATE_ALWAYS,
                                           .op = i,
                                           .number = o->number,
                                           .run = &step};
        o->run(&a);
    }
}

static int kernels(const ckpt_tape *t, enum phase phase)
{
    int n = 0;
    for (int32_t i = 0; i < t->n_ops; i++)
        n += t->ops.data[i].phase == phase && !(t->ops.data[i].def->flags & CKPT_OP_VIEW);
    return n;
}

/* Loss and gradients as consecutive bytes. */
static int64_t collect(const struct bench *b, char *dst)
{
    int64_t n = 0;
    int32_t all[PARAMS + 1] = {b->t->loss};
    memcpy(all + 1, b->t->param_gradient, PARAMS * sizeof *all);
    for (int i = 0; i <= PARAMS; i++) {
        if (all[i] <= 0)
            continue;
        struct ckpt_view v = view_of(b, all[i]);
        memcpy(dst + n, v.data, (size_t)desc_bytes(&v.desc));
        n += desc_bytes(&v.desc);
    }
    return n;
}

static void expect_bits(const struct bench *b, const char *bits, int64_t n, const char *name,
                        const char *what)
{
    static char now[1 << 16];
    if (collect(b, now) != n || memcmp(bits, now, (size_t)n))
        failures += printf("FAIL %s: %s bits differ\n", name, what) > 0;
}

/* Records, runs, fuses, runs again, pairs, runs again.  Returns the remaining ops of a pass. */
static int compare(const char *name, enum ckpt_dtype dtype, model f, void *user,
                   const double *const *values, enum phase phase, struct bench *b)
{
    static char before[1 << 16];
    record(b, dtype, f, user);
    run(b, values);
    int64_t n = collect(b, before);
    if (pass_fuse(&(struct compilation){.tape = b->t}))
        failures += printf("FAIL %s: %s\n", name, b->t->error.text) > 0;
    run(b, values);
    expect_bits(b, before, n, name, "fused");
    if (pass_pair(&(struct compilation){.tape = b->t}))
        failures += printf("FAIL %s: %s\n", name, b->t->error.text) > 0;
    run(b, values);
    expect_bits(b, before, n, name, "paired");
    return kernels(b->t, phase);
}

static void draw_values(struct rng *r, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = floor(rng_normal(r) * 64) / 64; /* bf16 has most of them */
}

/* ---- chains of known lengths ------------------------------------------------------------------*/

static ckpt_tensor chain_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor u = ckpt_add(t, ckpt_mul(t, w[0], w[1]), w[2]);
    (void)user;
    u = ckpt_gelu_tanh(t, ckpt_affine(t, u, 0.5f, 0.25f));
    u = ckpt_dropout(t, ckpt_tanh(t, u), 0.25f);
    return ckpt_where(t, ckpt_lt(t, u, w[0]), u, ckpt_silu(t, w[0]));
}

/* The rounding of intermediate bf16 results is part of the numbers. */
static ckpt_tensor rounding_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor u = ckpt_cast(t, ckpt_exp(t, w[0]), CKPT_BF16);
    (void)user;
    for (int i = 0; i < 6; i++)
        u = ckpt_relu(t, ckpt_sub(t, ckpt_mul(t, u, w[1]), ckpt_affine(t, u, 1.25f, -0.125f)));
    return u;
}

/* An output in the middle of a chain is fetched: it must be stored. */
static ckpt_tensor output_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor u = ckpt_exp(t, ckpt_neg(t, w[0]));
    (void)user;
    ckpt_output(t, "u", u);
    return ckpt_mul(t, ckpt_sin(t, u), w[0]);
}

/* Sums over the last axes end a chain: softmax and a norm of rows, recorded one by one. */
static ckpt_tensor rows_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor u = ckpt_exp(t, ckpt_mul(t, w[0], w[1]));
    (void)user;
    u = ckpt_div(t, u, ckpt_sum(t, ckpt_add(t, u, ckpt_abs(t, w[2])), 2));
    ckpt_tensor v = ckpt_sub(t, w[0], ckpt_mean(t, ckpt_tanh(t, w[0]), 2));
    ckpt_tensor scale =
        ckpt_rsqrt(t, ckpt_affine(t, ckpt_mean(t, ckpt_mul(t, v, ckpt_sin(t, v)), 2), 1.f, 40.f));
    return ckpt_add(t, ckpt_cast(t, u, CKPT_F32), ckpt_mul(t, v, scale));
}

/* A softmax and a layer norm of activations, recorded one by one. */
static ckpt_tensor softmax_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor x = ckpt_cumsum(t, ckpt_tanh(t, w[0]), 0);
    ckpt_tensor u = ckpt_exp(t, ckpt_sub(t, x, ckpt_amax(t, x, 2)));
    (void)user;
    return ckpt_cumsum(t, ckpt_div(t, u, ckpt_sum(t, u, 2)), 0);
}

static ckpt_tensor norm_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor x = ckpt_cumsum(t, w[0], 0), v = ckpt_sub(t, x, ckpt_mean(t, x, 2));
    ckpt_tensor r = ckpt_affine(t, ckpt_mean(t, ckpt_mul(t, v, v), 2), 1.f, 1e-3f);
    (void)user;
    return ckpt_cumsum(t, ckpt_mul(t, v, ckpt_rsqrt(t, r)), 0);
}

/* The logarithm of the sum of each row. */
static ckpt_tensor loss_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor x = ckpt_tanh(t, ckpt_cumsum(t, w[0], 0));
    (void)user;
    return ckpt_sub(t, ckpt_log(t, ckpt_sum(t, ckpt_exp(t, x), 2)), w[2]);
}

/* Functions of sums of rows that write the columns of a concat: their results are not dense, so the
 * sums stay. */
static ckpt_tensor concat_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor part[3];
    (void)user;
    for (int i = 0; i < 3; i++) {
        ckpt_tensor x = ckpt_tanh(t, ckpt_affine(t, w[0], 1.f, 0.5f * (float)i));
        part[i] = ckpt_exp(t, ckpt_mean(t, ckpt_mul(t, x, w[1]), 2));
    }
    return ckpt_mul(t, ckpt_concat(t, 1, 3, part), w[2]);
}

/* The gradients of the parts of a split are such columns. */
static ckpt_tensor split_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor part[4], sum = CKPT_NONE;
    ckpt_tensor x = ckpt_reshape(t, ckpt_cumsum(t, w[0], 1), 3, (int64_t[]){ROWS, COLS, 1});
    (void)user;
    ckpt_split(t, x, 1, 4, part);
    for (int i = 0; i < 4; i++) {
        ckpt_tensor y = ckpt_sum(t, ckpt_mul(t, ckpt_tanh(t, part[i]), w[1]), 4);
        sum = i ? ckpt_add(t, sum, ckpt_sin(t, y)) : y;
    }
    return ckpt_reshape(t, sum, 2, (int64_t[]){ROWS, COLS / 4});
}

/* A dozen functions of two activations, most of which the backward pass reads: it recomputes them.
 * */
static ckpt_tensor again_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor x = ckpt_cumsum(t, w[0], 1), y = ckpt_cumsum(t, x, 0);
    ckpt_tensor u = ckpt_add(t, ckpt_mul(t, x, w[1]), y);
    (void)user;
    u = ckpt_maximum(t, ckpt_sub(t, u, w[1]), ckpt_affine(t, u, 0.5f, 0.25f));
    u = ckpt_mul(t, ckpt_clamp(t, u, -4.f, 4.f), ckpt_abs(t, y));
    u = ckpt_silu(t, ckpt_leaky_relu(t, ckpt_minimum(t, u, x), 0.1f));
    return ckpt_sum(t, ckpt_mul(t, u, u), 2);
}

/* The backward pass reads one result of three activations: it is kept in their place. */
static ckpt_tensor result_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor x = ckpt_cumsum(t, w[0], 1), y = ckpt_cumsum(t, x, 0);
    ckpt_tensor u = ckpt_sin(t, ckpt_add(t, ckpt_add(t, x, y), ckpt_cumsum(t, y, 1)));
    (void)user;
    return ckpt_rms_norm(t, u, w[1], 1e-6f);
}

/* Longer than a program may be. */
static ckpt_tensor long_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor u = w[0];
    (void)user;
    for (int i = 0; i < 50; i++)
        u = ckpt_sin(t, ckpt_affine(t, u, 1.f, 0.01f * (float)i));
    return u;
}

/* More operands than a program may have. */
static ckpt_tensor wide_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor u = w[0];
    (void)user;
    for (int i = 0; i < 12; i++) {
        char name[16];
        float value[COLS];
        for (int k = 0; k < COLS; k++)
            value[k] = (float)(i + k) / 64;
        snprintf(name, sizeof name, "c%d", i);
        u = ckpt_mul(
            t, ckpt_add(t, u, ckpt_constant(t, name, CKPT_F32, 1, (int64_t[]){COLS}, value)), w[2]);
    }
    return u;
}

static void check_chains(void)
{
    static const struct {
        const char *name;
        model f;
        int least, most; /* ops of the forward pass; what the backward pass reads stays */
        int backward;    /* ops of the backward pass, if not 0; bf16 has another one */
    } chains[] = {{"chain", chain_model, 1, 1, 0},     {"rounding", rounding_model, 1, 2, 0},
                  {"output", output_model, 3, 3, 0},   {"rows", rows_model, 5, 5, 0},
                  {"long", long_model, 7, 8, 0},       {"wide", wide_model, 15, 15, 0},
                  {"again", again_model, 4, 4, 0},     {"result", result_model, 7, 7, 0},
                  {"softmax", softmax_model, 5, 5, 6}, {"norm", norm_model, 4, 4, 5},
                  {"loss", loss_model, 3, 3, 5},       {"concat", concat_model, 7, 7, 0},
                  {"split", split_model, 7, 7, 0}};
    struct rng r = {.state = 1, .scale = 1};
    double x[PARAMS][SIZE];
    const double *const values[] = {x[0], x[1], x[2]};
    for (int i = 0; i < PARAMS; i++)
        draw_values(&r, x[i], SIZE);
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++) {
            struct bench b;
            int n = compare(chains[i].name, (enum ckpt_dtype)dtype, chains[i].f, NULL, values,
                            PHASE_FORWARD, &b);
            if (n < chains[i].least || n > chains[i].most)
                failures += printf("FAIL %s: %d ops of the forward pass are left, not %d\n",
                                   chains[i].name, n, chains[i].most) > 0;
            n = kernels(b.t, PHASE_BACKWARD) - (dtype == CKPT_BF16);
            if (chains[i].backward && n != chains[i].backward)
                failures += printf("FAIL %s: %d ops of the backward pass are left, not %d\n",
                                   chains[i].name, n, chains[i].backward) > 0;
            release(&b);
            tape_free(b.t);
        }
}

/* Rows of one element, odd rows, long rows, a single row. */
static void check_rows(void)
{
    static const int64_t shapes[][2] = {{6, 1}, {1, 1}, {1, 77}, {3, 1500}, {5, 33}};
    const model models[] = {rows_model, softmax_model, norm_model, loss_model};
    static double x[PARAMS][4500];
    const double *const values[] = {x[0], x[1], x[2]};
    struct rng r = {.state = 3, .scale = 1};
    for (int i = 0; i < PARAMS; i++)
        draw_values(&r, x[i], 4500);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 8; k++) {
            struct bench b;
            char name[100];
            snprintf(name, sizeof name, "rows of %lld, model %d", (long long)shapes[i][1], k);
            memcpy(sizes, shapes[i], sizeof sizes);
            compare(name, k % 2 ? CKPT_BF16 : CKPT_F32, models[k / 2], NULL, values, PHASE_FORWARD,
                    &b);
            release(&b);
            tape_free(b.t);
        }
    memcpy(sizes, (int64_t[]){ROWS, COLS}, sizeof sizes);
}

/* ---- pairs ------------------------------------------------------------------------------------*/

/* Both factors have a gradient that reads the gradient of the product, and the gate. */
static ckpt_tensor gated_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    ckpt_tensor up = ckpt_rms_norm(t, w[0], w[1], 1e-6f);
    ckpt_tensor gate = ckpt_rms_norm(t, w[0], w[1], 1e-6f);
    ckpt_tensor (*act)(ckpt_tape *, ckpt_tensor) = *(ckpt_tensor(**)(ckpt_tape *, ckpt_tensor))user;
    return ckpt_rms_norm(t, ckpt_mul(t, act(t, gate), up), w[1], 1e-6f);
}

/* The second gradient reads the first, so they are not a pair. */
static ckpt_tensor chained_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    (void)user;
    ckpt_tensor u = ckpt_rms_norm(t, w[0], w[1], 1e-6f);
    return ckpt_rms_norm(t, ckpt_sin(t, ckpt_add(t, u, ckpt_sin(t, u))), w[1], 1e-6f);
}

static int pairs(const ckpt_tape *t)
{
    int n = 0;
    for (int32_t i = 0; i < t->n_ops; i++)
        n += t->ops.data[i].def == &op_expr && t->ops.data[i].n_out == 2;
    return n;
}

static void check_pairs(void)
{
    ckpt_tensor (*acts[])(ckpt_tape *, ckpt_tensor) = {ckpt_silu, ckpt_gelu_tanh, ckpt_tanh,
                                                       ckpt_sigmoid};
    struct rng r = {.state = 5, .scale = 1};
    double x[PARAMS][SIZE];
    const double *const values[] = {x[0], x[1], x[2]};
    for (int i = 0; i < PARAMS; i++)
        draw_values(&r, x[i], SIZE);
    for (int i = 0; i <= 4; i++)
        for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++) {
            struct bench b;
            compare(i < 4 ? "gated" : "chained", (enum ckpt_dtype)dtype,
                    i < 4 ? gated_model : chained_model, i < 4 ? &acts[i] : NULL, values,
                    PHASE_BACKWARD, &b);
            if (pairs(b.t) != (i < 4))
                failures += printf("FAIL %s %d: %d pairs\n", i < 4 ? "gated" : "chained", i,
                                   pairs(b.t)) > 0;
            release(&b);
            tape_free(b.t);
        }
}

static void check_name(void)
{
    struct bench b;
    char name[256] = "";
    record(&b, CKPT_F32, chain_model, NULL);
    pass_fuse(&(struct compilation){.tape = b.t});
    for (int32_t i = 0; i < b.t->n_ops && !strstr(name, "mul+add"); i++)
        if (b.t->ops.data[i].def == &op_expr)
            tape_op_name(b.t, i, name, sizeof name);
    const char *dash = strstr(name, "(test_fuse.c:") ? strchr(name, '-') : NULL;
    if (!strstr(name, "mul+add+affine+gelu") || !dash)
        failures += printf("FAIL the chain is named %s\n", name) > 0;
    tape_free(b.t);
}

/* Cases that no public function records but a caller of the internal op could. */
static void check_too_large(void)
{
    struct bench b;
    struct expr e;
    record(&b, CKPT_F32, output_model, NULL);
    expr_init(&e, "tower", 1);
    int y = 0;
    for (int i = 0; i < EXPR_LIMIT; i++)
        y = expr_unary(&e, EXPR_SIN, y);
    expr_finish(&e, y, NULL);
    expr_record(b.t, &e, &b.w[0]);
    if (!strstr(b.t->error.text, "tower: the expression is too large: it may have 128 operations"))
        failures += printf("FAIL a tower of functions: %s\n", b.t->error.text) > 0;
    tape_free(b.t);
    expr_init(&e, "full", 1);
    for (int i = y = 0; i < EXPR_NODES; i++)
        y = expr_node(&e, EXPR_SCALE, 0, 0, 0, 2.f + (float)i, 0.f);
    if (!e.full)
        failures += printf("FAIL a program that is full says so\n") > 0;
}

/* ---- random expressions -----------------------------------------------------------------------*/

struct node {
    int function, a, b; /* nodes before it; below PARAMS are the parameters */
};

struct random_expr {
    struct node node[STEPS];
};

enum { FUNCTIONS = 20, ROW_FUNCTIONS = 4 };

static ckpt_tensor row_mean(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    return ckpt_cast(t, ckpt_mean(t, x, 1u << (d.ndim - 1)), d.dtype);
}

/* The largest element of each row minus the smallest one. */
static ckpt_tensor row_range(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    const unsigned last = 1u << (d.ndim - 1);
    return ckpt_cast(t, ckpt_sub(t, ckpt_amax(t, x, last), ckpt_amin(t, x, last)), d.dtype);
}

static ckpt_tensor call(ckpt_tape *t, int function, ckpt_tensor a, ckpt_tensor b)
{
    switch (function) {
    case 0:
        return ckpt_add(t, a, b);
    case 1:
        return ckpt_sub(t, a, b);
    case 2:
        return ckpt_mul(t, a, b);
    case 3:
        return ckpt_div(t, a, ckpt_affine(t, ckpt_mul(t, b, b), 1.f, 1.f));
    case 4:
        return ckpt_tanh(t, a);
    case 5:
        return ckpt_sigmoid(t, a);
    case 6:
        return ckpt_sin(t, a);
    case 7:
        return ckpt_cos(t, a);
    case 8:
        return ckpt_softplus(t, a);
    case 9:
        return ckpt_log1p(t, ckpt_mul(t, a, a));
    case 10:
        return ckpt_sqrt(t, ckpt_affine(t, ckpt_mul(t, a, a), 1.f, 0.5f));
    case 11:
        return ckpt_rsqrt(t, ckpt_affine(t, ckpt_mul(t, a, a), 1.f, 0.5f));
    case 12:
        return ckpt_erf(t, a);
    case 13:
        return ckpt_gelu_erf(t, a);
    case 14:
        return ckpt_where(t, ckpt_lt(t, a, b), a, b);
    case 15:
        return ckpt_maximum(t, a, b);
    case 16:
        return ckpt_exp(t, ckpt_tanh(t, a));
    case 17:
        return ckpt_gelu_tanh(t, a);
    case 18:
        return ckpt_silu(t, a);
    case 19:
        return ckpt_neg(t, ckpt_elu(t, a, 0.75f));
    case 20:
        return ckpt_sub(t, a, row_mean(t, b));
    case 21:
        return ckpt_div(t, a, row_mean(t, ckpt_exp(t, ckpt_tanh(t, b))));
    case 22:
        return ckpt_sub(t, a, row_range(t, b));
    default:
        return ckpt_mul(t, a, ckpt_rsqrt(t, ckpt_affine(t, row_mean(t, ckpt_abs(t, b)), 1.f, 1.f)));
    }
}

static void draw_expr(struct random_expr *e, struct rng *r, int functions)
{
    for (int i = 0; i < STEPS; i++) {
        int n = PARAMS + i; /* mostly what was made last, so that chains are long */
        e->node[i].function = (int)rng_range(r, 0, functions - 1);
        e->node[i].a = i && rng_range(r, 0, 2) ? n - 1 : (int)rng_range(r, 0, n - 1);
        e->node[i].b = (int)rng_range(r, 0, n - 1);
    }
    e->node[0].a = 0; /* of the shape that the mean is over */
}

static ckpt_tensor random_model(ckpt_tape *t, const ckpt_tensor *w, void *user)
{
    const struct random_expr *e = user;
    ckpt_tensor v[PARAMS + STEPS] = {w[0], w[1], w[2]}, sum = w[0];
    for (int i = 0; i < STEPS; i++)
        v[PARAMS + i] = call(t, e->node[i].function, v[e->node[i].a], v[e->node[i].b]);
    for (int i = 0; i < STEPS; i++) /* so that each is used */
        sum = ckpt_add(t, sum, ckpt_tanh(t, v[PARAMS + i]));
    return sum;
}

/* The mean and its gradients, in fp64.  Returns false where an element is next to a branch. */
static bool expected(const struct random_expr *e, const double *const *x, double *loss,
                     double gradient[PARAMS][SIZE])
{
    bool near = false;
    *loss = 0;
    memset(gradient, 0, PARAMS * sizeof *gradient);
    for (int i = 0; i < SIZE; i++) {
        int at[PARAMS] = {i, i % COLS, i / COLS};
        struct dual v[PARAMS + STEPS] = {{0}}, sum;
        for (int k = 0; k < PARAMS; k++) {
            v[k].x = x[k][at[k]];
            v[k].d[k] = 1;
        }
        sum = v[0];
        for (int k = 0; k < STEPS; k++) {
            const struct node *n = &e->node[k];
            struct dual t;
            v[PARAMS + k] = evaluate(n->function, &v[n->a], &v[n->b], &near);
            t = evaluate(4, &v[PARAMS + k], &v[0], &near);
            sum = two(sum.x + t.x, 1, &sum, 1, &t);
        }
        *loss += sum.x / SIZE;
        for (int k = 0; k < PARAMS; k++)
            gradient[k][at[k]] += sum.d[k] / SIZE;
    }
    return !near;
}

static void check_gradient(const struct bench *b, int trial, int k, const double *want)
{
    double got[SIZE] = {0};
    int64_t n = desc_numel(&b->data[k].desc);
    if (b->t->param_gradient[k] > 0) {
        struct ckpt_view v = view_of(b, b->t->param_gradient[k]);
        for (int64_t i = 0; i < n; i++)
            got[i] = ((const float *)v.data)[i];
    }
    double e = relative_error(got, want, n, 1e-3);
    if (!(e < 2e-5))
        failures += printf("FAIL expression %d: gradient %d is off by %.2e\n", trial, k, e) > 0;
}

static void check_random(void)
{
    struct rng r = {.state = 11, .scale = 1}, of_rows = {.state = 17, .scale = 1};
    static double x[PARAMS][SIZE], gradient[PARAMS][SIZE];
    const double *const values[] = {x[0], x[1], x[2]};
    int checked = 0, before = 0, after = 0;
    for (int trial = 0; checked < RANDOM && trial < 4 * RANDOM; trial++) {
        struct random_expr e, rows;
        struct bench b;
        double loss;
        draw_expr(&e, &r, FUNCTIONS);
        for (int i = 0; i < PARAMS; i++)
            draw_values(&r, x[i], SIZE);
        bool sure = expected(&e, values, &loss, gradient);
        if (trial % 3 == 0) { /* bits alone */
            compare("random bf16", CKPT_BF16, random_model, &e, values, PHASE_FORWARD, &b);
            release(&b);
            tape_free(b.t);
            draw_expr(&rows, &of_rows, FUNCTIONS + ROW_FUNCTIONS);
            compare("random rows", (enum ckpt_dtype)(trial % 2), random_model, &rows, values,
                    PHASE_FORWARD, &b);
            release(&b);
            tape_free(b.t);
        }
        if (!sure)
            continue;
        checked++;
        record(&b, CKPT_F32, random_model, &e);
        before += kernels(b.t, PHASE_FORWARD) + kernels(b.t, PHASE_BACKWARD);
        tape_free(b.t);
        after += compare("random", CKPT_F32, random_model, &e, values, PHASE_FORWARD, &b) +
                 kernels(b.t, PHASE_BACKWARD);
        float got = *(const float *)view_of(&b, b.t->loss).data;
        if (!(fabs(got - loss) < 3e-6 * (1 + fabs(loss))))
            failures += printf("FAIL expression %d: %.9g, not %.9g\n", trial, got, loss) > 0;
        for (int k = 0; k < PARAMS; k++)
            check_gradient(&b, trial, k, gradient[k]);
        release(&b);
        tape_free(b.t);
    }
    printf("%d random expressions, %d ops fused to %d\n", checked, before, after);
    if (checked < RANDOM || after * 2 > before)
        failures += printf("FAIL too few expressions, or fused too little\n") > 0;
}

int main(void)
{
    check_chains();
    check_rows();
    check_pairs();
    check_name();
    check_too_large();
    check_random();
    return failures != 0;
}
