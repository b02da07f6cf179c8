/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmaxes at their extremes.  With a single key the probability is 1 whatever the score: the
 * result is v, and the gradients of q and k are exactly 0, not the difference of two sums of the
 * same numbers.  With scores of 1e9, for which lse is a multiple of 64, every probability is at
 * most 1.
 */
#include "ckpt_tools.h"
#include "harness.h"
#include "kernels/cpu/attention_core.h"
#include "kernels/cpu/blas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, OPERANDS };

/* Self attention of `sequences`, or cross attention on `lens` if there are any. */
struct row {
    const char *name;
    int64_t sequences, queries, keys, heads, width;
    int64_t lens[4]; /* of each sequence's text; a negative one ends them */
    bool packed;
    double size; /* of q and k, drawn from N(0, size^2) */
};

static const struct row one_key[] = {
    {"frames of an image", 50, 1, 1, 3, 72, {0}, false, 2},
    {"heads of 8", 3, 1, 1, 2, 8, {0}, false, 2},
    {"several queries", 3, 7, 1, 2, 72, {0}, false, 2},
    {"many queries", 2, 300, 1, 2, 72, {0}, false, 2},
    {"many queries of heads of 64", 2, 300, 1, 2, 64, {0}, false, 2},
    {"one place of an autoencoder", 2, 1, 1, 1, 512, {0}, false, 2},
    {"wide heads", 2, 3, 1, 1, 512, {0}, false, 2},
    {"many queries of a very wide head", 1, 40, 1, 1, 600, {0}, false, 2},
    {"scores of 1e9", 3, 5, 1, 2, 72, {0}, false, 1e4},
    {"text of one token", 2, 5, 0, 3, 72, {1, 1}, true, 2},
    {"text of one token, heads of 7", 2, 5, 0, 2, 7, {1, 1}, true, 2},
    {"one token among longer texts", 4, 130, 0, 2, 72, {3, 1, 0, 2}, true, 2},
    {"one token last", 2, 9, 0, 2, 64, {70, 1}, true, 2},
    {"one token before many", 2, 70, 0, 1, 72, {1, 330}, true, 2},
    {"one token of a very wide head", 3, 6, 0, 1, 136, {2, 1, 1}, true, 2},
};

static const struct row huge[] = {
    {"short sequences", 5, 6, 7, 2, 72, {0}, false, 1e4},
    {"sequences of 40", 2, 40, 50, 2, 72, {0}, false, 1e4},
    {"sequences of 300", 1, 300, 280, 1, 72, {0}, false, 1e4},
    {"sequences of 300 in heads of 64", 1, 300, 280, 1, 64, {0}, false, 1e4},
    {"wide heads", 1, 40, 50, 1, 512, {0}, false, 1e4},
    {"packed text", 3, 70, 0, 2, 72, {30, 1, 90}, true, 1e4},
};

static int failures;

static void check(bool ok, const struct row *row, enum ckpt_dtype dtype, const char *what)
{
    if (ok)
        return;
    printf("FAIL %s, %s: %s\n", row->name, dtype == CKPT_BF16 ? "bf16" : "fp32", what);
    failures++;
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* Operands and results of the library, dense [rows, heads, width]. */
struct run {
    const struct row *row;
    enum ckpt_dtype dtype;
    int64_t rows[OPERANDS], n[OPERANDS];
    float *x[OPERANDS], *gradient[OPERANDS], *out, *d_out;
    ckpt_tensor param[OPERANDS];
};

static const char *const names[] = {"q", "k", "v"};

static int64_t text_rows(const struct row *row)
{
    int64_t n = 2; /* rows of nobody */
    for (int64_t b = 0; b < row->sequences; b++)
        n += row->lens[b];
    return n;
}

static float *draw(struct rng *r, int64_t n, double size, enum ckpt_dtype dtype)
{
    float *x = calloc((size_t)n + 1, sizeof *x);
    uint16_t h;
    if (!x)
        exit(99);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(size * rng_normal(r));
        if (dtype == CKPT_BF16) {
            ckpt_to_bf16(&x[i], &h, 1);
            ckpt_from_bf16(&h, &x[i], 1);
        }
    }
    return x;
}

static void run_open(struct run *u, const struct row *row, enum ckpt_dtype dtype)
{
    struct rng r = {.state = 12};
    *u = (struct run){.row = row, .dtype = dtype};
    u->rows[Q] = row->sequences * row->queries;
    u->rows[K] = u->rows[V] = row->packed ? text_rows(row) : row->sequences * row->keys;
    for (int i = 0; i < OPERANDS; i++) {
        u->n[i] = u->rows[i] * row->heads * row->width;
        u->x[i] = draw(&r, u->n[i], i == V ? 1 : row->size, dtype);
        u->gradient[i] = draw(&r, u->n[i], 1, CKPT_F32);
    }
    u->out = draw(&r, u->n[Q], 1, CKPT_F32);
    u->d_out = draw(&r, u->n[Q], 1, dtype);
}

static void run_close(struct run *u)
{
    for (int i = 0; i < OPERANDS; i++) {
        free(u->x[i]);
        free(u->gradient[i]);
    }
    free(u->out);
    free(u->d_out);
}

static float scale_of(const struct row *row)
{
    return (float)(1 / sqrt((double)row->width));
}

/* The loss is sum(out d_out), whose gradient is d_out. */
static ckpt_tensor record(ckpt_tape *t, int64_t micro_batch, void *user)
{
    struct run *u = user;
    const struct row *row = u->row;
    int64_t shape[] = {row->sequences, row->queries, row->heads, row->width};
    ckpt_tensor y;
    (void)micro_batch;
    for (int i = 0; i < OPERANDS; i++)
        ckpt_output_gradient(t, names[i], u->param[i]);
    if (row->packed) {
        int32_t lens[4];
        for (int64_t b = 0; b < row->sequences; b++)
            lens[b] = (int32_t)row->lens[b];
        ckpt_tensor l = ckpt_constant(t, "lens", CKPT_I32, 1, &row->sequences, lens);
        y = ckpt_cross_attention(t, u->param[Q], u->param[K], u->param[V], l, scale_of(row));
    } else {
        struct ckpt_attention_spec scaled = CKPT_ATTENTION_INIT;
        scaled.scale = scale_of(row);
        y = ckpt_attention(t, u->param[Q], u->param[K], u->param[V], CKPT_NONE, &scaled);
    }
    ckpt_output(t, "out", ckpt_cast(t, y, CKPT_F32));
    ckpt_tensor d = ckpt_constant(t, "d_out", CKPT_F32, 4, shape, u->d_out);
    return ckpt_reshape(t, ckpt_sum(t, ckpt_mul(t, ckpt_cast(t, y, CKPT_F32), d), 15), 0, NULL);
}

static int make_params(ckpt *c, struct run *u)
{
    const struct row *row = u->row;
    int e = 0;
    for (int i = 0; !e && i < OPERANDS; i++) {
        int64_t whole[] = {row->sequences, u->rows[i] / row->sequences, row->heads, row->width};
        int64_t packed[] = {u->rows[i], row->heads, row->width};
        bool text = row->packed && i != Q;
        u->param[i] = ckpt_param(c, names[i], u->dtype, text ? 3 : 4, text ? packed : whole,
                                 CKPT_ZEROS, true);
        e = ckpt_param_set(c, u->param[i], CKPT_VALUE, u->x[i], u->n[i]);
    }
    return e;
}

static int fetch(ckpt_program *p, struct run *u)
{
    int e = ckpt_fetch(p, "out", u->out, u->n[Q] * 4);
    for (int i = 0; !e && i < OPERANDS; i++)
        e = ckpt_fetch(p, names[i], u->gradient[i], u->n[i] * 4);
    return e;
}

static bool on_gpu(void)
{
    return getenv("CKPT_TEST_GPU") != NULL;
}

static int execute(struct run *u)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p = NULL;
    ckpt *c = NULL;
    options.device = on_gpu() ? "cuda" : "cpu";
    options.verify = true;
    adamw.lr = 0;
    int e = ckpt_open(&c, &options);
    e = e ? e : make_params(c, u);
    e = e ? e : ckpt_compile(c, record, u, ckpt_adamw(c, &adamw), 1, &p);
    e = e ? e : ckpt_step(p, NULL);
    e = e ? e : fetch(p, u);
    if (e)
        check(false, u->row, u->dtype, ckpt_error(c));
    ckpt_program_free(p);
    ckpt_close(c);
    return e;
}

/* ---- one key -------------------------------------------------------------------------------- */

/* The first key of a sequence and how many it has. */
static int64_t first_key(const struct row *row, int64_t sequence, int64_t *n)
{
    int64_t first = 0;
    *n = row->packed ? row->lens[sequence] : row->keys;
    for (int64_t b = 0; b < sequence; b++)
        first += row->packed ? row->lens[b] : row->keys;
    return first;
}

static bool all_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

/* dv is the sum of d_out over the queries, exactly d_out for one query. */
static bool sums_fit(const float *dv, const float *d_out, int64_t queries, int64_t n,
                     enum ckpt_dtype dtype)
{
    const double allowed = queries == 1 ? 0 : dtype == CKPT_BF16 ? 1e-2 : 1e-6;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < queries; l++) {
            sum += d_out[l * n + i];
            size += fabs(d_out[l * n + i]);
        }
        if (!(fabs(dv[i] - sum) <= allowed * size))
            return false;
    }
    return true;
}

static void check_one_key(const struct row *row, enum ckpt_dtype dtype)
{
    struct run u;
    const int64_t n = row->heads * row->width, of_queries = row->queries * n;
    run_open(&u, row, dtype);
    int e = execute(&u);
    for (int64_t b = 0; !e && b < row->sequences; b++) {
        int64_t keys, first = first_key(row, b, &keys) * n;
        const float *out = u.out + b * of_queries, *d_out = u.d_out + b * of_queries;
        if (keys != 1)
            continue;
        check(all_zero(u.gradient[Q] + b * of_queries, of_queries), row, dtype, "dq is not 0");
        check(all_zero(u.gradient[K] + first, n), row, dtype, "dk is not 0");
        check(sums_fit(u.gradient[V] + first, d_out, row->queries, n, dtype), row, dtype,
              "dv is not the sum of d_out");
        for (int64_t l = 0; l < row->queries; l++)
            check(!memcmp(out + l * n, u.x[V] + first, (size_t)n * sizeof *out), row, dtype,
                  "the result is not v");
    }
    run_close(&u);
}

/* ---- huge scores ---------------------------------------------------------------------------- */

/* The contribution of one query to dv, and a bound of its |ds|; probabilities in fp64. */
static void add_query(const struct run *u, int64_t query, int64_t first, int64_t keys, int64_t head,
                      double *dv)
{
    const int64_t width = u->row->width, pitch = u->row->heads * width;
    const float *q = u->x[Q] + query * pitch + head * width;
    const float *d_out = u->d_out + query * pitch + head * width;
    double *p = calloc((size_t)keys + 1, sizeof *p), top = -INFINITY, total = 0;
    if (!p)
        exit(99);
    for (int64_t m = 0; m < keys; m++) {
        const float *k = u->x[K] + (first + m) * pitch + head * width;
        for (int64_t d = 0; d < width; d++)
            p[m] += (double)q[d] * k[d];
        p[m] *= keys == 1 ? 0 : scale_of(u->row);
        top = fmax(top, p[m]);
    }
    for (int64_t m = 0; m < keys; m++)
        total += p[m] = exp(p[m] - top);
    for (int64_t m = 0; m < keys; m++)
        for (int64_t d = 0; d < width; d++)
            dv[(first + m) * pitch + head * width + d] += p[m] / total * d_out[d];
    free(p);
}

static double largest(const float *x, int64_t n)
{
    double top = 0;
    for (int64_t i = 0; i < n; i++)
        top = isfinite(x[i]) ? fmax(top, fabs((double)x[i])) : INFINITY;
    return top;
}

/*
 * The largest score is far above the others: dv of fp64 is met up to a row whose two largest are
 * one, and dq and dk, in truth 0, are what p (dp - delta) is rounded by times a key or a query.
 * Kernels of GPUs find scores to base 2 and their lse to base e: between the two a score of 1e9 is
 * rounded, and its probability may come out as 0, so there dv is bounded only.
 */
static void check_huge(const struct row *row, enum ckpt_dtype dtype)
{
    struct run u;
    run_open(&u, row, dtype);
    double *dv = calloc((size_t)u.n[V] + 1, sizeof *dv), error = 0, norm = 0;
    if (!dv)
        exit(99);
    int e = execute(&u);
    for (int64_t query = 0; !e && query < u.rows[Q]; query++)
        for (int64_t head = 0; head < row->heads; head++) {
            int64_t keys, first = first_key(row, query / row->queries, &keys);
            add_query(&u, query, first, keys, head, dv);
        }
    for (int64_t i = 0; i < u.n[V]; i++) {
        error += (u.gradient[V][i] - dv[i]) * (u.gradient[V][i] - dv[i]);
        norm += dv[i] * dv[i];
    }
    if (!on_gpu())
        check(sqrt(error / norm) < (dtype == CKPT_BF16 ? 2e-2 : 1e-4), row, dtype, "dv is off");
    check(largest(u.gradient[V], u.n[V]) <= 1.01 * (double)u.rows[Q] * largest(u.d_out, u.n[Q]),
          row, dtype, "dv is out of bounds");
    const double ds = (dtype == CKPT_BF16 ? 1 : 1e-2) * largest(u.d_out, u.n[Q]);
    check(largest(u.gradient[Q], u.n[Q]) < ds * largest(u.x[K], u.n[K]), row, dtype,
          "dq is out of bounds");
    check(largest(u.gradient[K], u.n[K]) < ds * largest(u.x[Q], u.n[Q]), row, dtype,
          "dk is out of bounds");
    free(dv);
    run_close(&u);
}

/* ---- an lse that was rounded down ----------------------------------------------------------- */

enum { ROWS = 3, WIDTH = 8 };

/* One head of equal scores, whose lse is rounded by 64 below them. */
static struct attention_head *rounded_head;

static void locate(const struct ckpt_kernel_args *a, int64_t head, struct attention_head *h)
{
    (void)a;
    (void)head;
    *h = *rounded_head;
}

static void check_rounded_lse(void)
{
    static float q[ROWS * WIDTH], k[ROWS * WIDTH], one[ROWS * WIDTH], lse[ROWS];
    static float dq[ROWS * WIDTH], dk[ROWS * WIDTH], dv[ROWS * WIDTH], scratch[1 << 16];
    const struct row row = {.name = "an lse rounded down"};
    struct attention_head h = {.n_queries = ROWS, .n_keys = ROWS, .n_rows = ROWS, .lse = lse};
    struct attention_job job = {.n_heads = 1,
                                .group = 1,
                                .n_queries = ROWS,
                                .n_keys = ROWS,
                                .width = WIDTH,
                                .scale = 1,
                                .dtype = CKPT_F32,
                                .locate = locate};
    float *at[] = {q, k, one, one, one, dq, dk, dv};
    struct attention_rows *rows[] = {&h.q, &h.k, &h.v, &h.o, &h.d_o, &h.dq, &h.dk, &h.dv};
    for (int i = 0; i < ROWS * WIDTH; i++) {
        q[i] = k[i] = 11585.24f; /* a product of about 2^30 over the width */
        one[i] = 1;
    }
    for (int i = 0; i < 8; i++)
        *rows[i] = (struct attention_rows){at[i], CKPT_F32, WIDTH};
    for (int i = 0; i < ROWS; i++)
        lse[i] = nextafterf(nextafterf(8 * q[0] * q[0], 0), 0);
    check(attention_backward_workspace(&job) <= (int64_t)sizeof scratch, &row, CKPT_F32, "scratch");
    check(!blas_open(1), &row, CKPT_F32, "no OpenBLAS"); /* no device opened it */
    rounded_head = &h;
    attention_backward(&job, scratch);
    blas_close(1);
    for (int i = 0; i < ROWS * WIDTH; i++)
        check(dv[i] >= 1 && dv[i] <= ROWS, &row, CKPT_F32, "a probability is above 1");
}

int main(void)
{
    for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++) {
        for (size_t i = 0; i < sizeof one_key / sizeof *one_key; i++)
            check_one_key(&one_key[i], (enum ckpt_dtype)dtype);
        for (size_t i = 0; i < sizeof huge / sizeof *huge; i++)
            check_huge(&huge[i], (enum ckpt_dtype)dtype);
    }
    check_rounded_lse();
    printf("%s: one key, huge scores\n", failures ? "FAIL" : "ok");
    return failures ? 1 : 0;
}
