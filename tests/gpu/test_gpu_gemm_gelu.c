/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with GELU or its gradient in their epilogue, on a GPU, against the separate ops:
 * cuBLASLt's product, gelu, gelu_dx (gemm_data.h).  Sums over rows are compared with sums in
 * double.
 */
#include <math.h>
#include "kernels/cuda/gemm_gelu.h"
#include "kernels/cuda/workspace.h"
#include "gemm_data.h"

enum tensor_name { X, W, BIAS, PRE, POST, DY, WT, GIVEN, V, DPRE, SUMS, TENSORS };

/* ---- the separate ops ------------------------------------------------------------------------ */

static void run_plain(const struct data *d, struct cuda_libs *libs, bool bias)
{
    const struct call calls[] = {{cuda_linear, 3, 1, {X, W, bias ? BIAS : -1, PRE}, NULL},
                                 {cuda_gelu, 1, 1, {PRE, POST}, NULL}};
    for (int i = 0; i < 2; i++)
        run(d, libs, &calls[i]);
}

static void run_plain_dx(const struct data *d, struct cuda_libs *libs)
{
    const struct call calls[] = {{cuda_linear_dx, 3, 1, {DY, WT, -1, V}, NULL},
                                 {cuda_gelu_dx, 2, 2, {V, GIVEN, DPRE, SUMS}, NULL},
                                 {cuda_gelu, 1, 1, {GIVEN, POST}, NULL}};
    for (int i = 0; i < 3; i++)
        run_extra(d, libs, &calls[i], i == 1 ? EXTRA_SUMS : 0);
}

/* ---- results -------------------------------------------------------------------------------- */

/* Whether dpre's sums over rows are right within fp32 rounding. */
static bool good_sums(const struct data *d)
{
    const int64_t rows = d->s.rows, cols = d->s.cols;
    uint16_t *x = fetch(d->at[OURS][DPRE], (size_t)desc_bytes(&d->desc[DPRE]));
    float *sums = fetch(d->at[OURS][SUMS], (size_t)desc_bytes(&d->desc[SUMS]));
    bool ok = true;
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0, size = 0;
        for (int64_t r = 0; r < rows; r++) {
            const double v = float_of_bits((uint32_t)x[r * cols + c] << 16);
            sum += v;
            size += fabs(v);
        }
        ok &= fabs(sum - sums[c]) <= 1e-6 * size;
    }
    free(x), free(sums);
    return ok;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void run_forward(const struct data *d, const struct gemm_gelu *g)
{
    clear_result(d, PRE);
    clear_result(d, POST);
    must(!cuda_gemm_gelu(g, NULL) && !cudaDeviceSynchronize(), "cuda_gemm_gelu");
}

/* With and without a bias, and each result alone. */
static void test_forward(struct data *d, struct cuda_libs *libs)
{
    const struct shape *s = &d->s;
    struct gemm_gelu g = {.rows = s->rows,
                          .inner = s->inner,
                          .cols = s->cols,
                          .x = d->at[PLAIN][X],
                          .w = d->at[PLAIN][W],
                          .pre = d->at[OURS][PRE],
                          .post = d->at[OURS][POST]};
    run_plain(d, libs, false);
    run_forward(d, &g);
    check(same(d, PRE) && same(d, POST), "forward without a bias", s);
    g.bias = d->at[PLAIN][BIAS];
    run_plain(d, libs, true);
    run_forward(d, &g);
    check(same(d, PRE) && same(d, POST), "forward", s);
    g.pre = NULL;
    run_forward(d, &g);
    check(same(d, POST), "GELU alone", s);
    g.pre = d->at[OURS][PRE];
    g.post = NULL;
    run_forward(d, &g);
    check(same(d, PRE), "the product alone", s);
}

static struct gemm_gelu_dx backward_of(const struct data *d)
{
    return (struct gemm_gelu_dx){.rows = d->s.rows,
                                 .inner = d->s.inner,
                                 .cols = d->s.cols,
                                 .dy = d->at[PLAIN][DY],
                                 .w = d->at[PLAIN][WT],
                                 .pre = d->at[PLAIN][GIVEN],
                                 .dpre = d->at[OURS][DPRE],
                                 .post = d->at[OURS][POST],
                                 .sums = d->at[OURS][SUMS],
                                 .workspace = d->workspace};
}

static void run_backward(const struct data *d, const struct gemm_gelu_dx *g)
{
    clear_result(d, POST);
    clear_result(d, SUMS);
    must(!cuda_gemm_gelu_dx(g, NULL) && !cudaDeviceSynchronize(), "cuda_gemm_gelu_dx");
}

/* All results, twice: the same bits. */
static void test_backward(const struct data *d)
{
    const struct gemm_gelu_dx g = backward_of(d);
    const size_t bytes = (size_t)desc_bytes(&d->desc[SUMS]);
    clear_result(d, DPRE);
    run_backward(d, &g);
    check(same(d, DPRE) && same(d, POST), "backward", &d->s);
    check(good_sums(d), "sums", &d->s);
    void *sums = fetch(d->at[OURS][SUMS], bytes + GUARD);
    run_backward(d, &g);
    void *again = fetch(d->at[OURS][SUMS], bytes + GUARD);
    check(!memcmp(sums, again, bytes + GUARD) && same(d, DPRE), "another run", &d->s);
    free(sums), free(again);
}

/* Without optional results, with dpre in the memory of pre, for all bf16 values. */
static void test_parts(struct data *d)
{
    struct gemm_gelu_dx g = backward_of(d);
    g.post = NULL;
    clear_result(d, DPRE);
    run_backward(d, &g);
    check(same(d, DPRE), "backward without GELU", &d->s);
    g.post = d->at[OURS][POST];
    g.sums = NULL;
    g.dpre = d->at[PLAIN][GIVEN];
    run_backward(d, &g);
    check(same_at(d, DPRE, g.dpre) && same(d, POST), "backward in place", &d->s);
}

static void test(const struct shape *s, struct cuda_libs *libs)
{
    const int64_t R = s->rows, K = s->inner, N = s->cols;
    const int64_t size[TENSORS][2] = {{R, K}, {N, K}, {N, 0}, {R, N}, {R, N}, {R, K},
                                      {K, N}, {R, N}, {R, N}, {R, N}, {N, 0}};
    struct data d;
    must(cuda_gelu_sums_workspace(s->rows, s->cols) <= WORKSPACE, "workspace");
    create(&d, s, TENSORS, size);
    d.desc[SUMS].dtype = CKPT_F32;
    for (int t = X; t <= WT; t++)
        if (t != PRE && t != POST)
            set(&d, t, fill_exact);
    test_forward(&d, libs);
    set(&d, GIVEN, fill_moderate);
    run_plain_dx(&d, libs);
    test_backward(&d);
    set(&d, GIVEN, fill_all_values);
    run_plain_dx(&d, libs);
    test_parts(&d);
    destroy(&d);
}

int main(int argc, char **argv)
{
    return test_shapes(argc, argv, test, cuda_gemm_gelu_takes);
}
