/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products that do GELU or its gradient in their epilogue, on a GPU, against the ops one by one:
 * cuBLASLt's product, gelu, gelu_dx_sums.  Operands are small multiples of a power of two, so that
 * sums are exact in any order and all results have the same bits; sums over rows are compared with
 * those in double.  Memory behind operands is NaN, memory behind results stays as it was.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "core/bits.h"
#include "cuda/gemm_gelu.h"
#include "cuda/kernels.h"
#include "cuda/libs.h"
#include "cuda/workspace.h"
#include "must.h"

enum tensor_name { X, W, BIAS, PRE, POST, DY, WT, GIVEN, V, DPRE, SUMS, TENSORS };
enum { PLAIN, OURS, KINDS };
enum { WORKSPACE = 64 << 20, GUARD = 64 << 10 }; /* bytes */

struct shape {
    int64_t rows, inner, cols;
};

struct data {
    struct shape s;
    struct ckpt_desc desc[TENSORS];
    void *at[KINDS][TENSORS]; /* operands are the plain ones */
    char *workspace;
};

static int failures;

static void check(bool ok, const char *what, const struct shape *s)
{
    if (ok)
        return;
    printf("FAIL %s, %lld x %lld x %lld\n", what, (long long)s->rows, (long long)s->inner,
           (long long)s->cols);
    failures++;
}

/* ---- operands ------------------------------------------------------------------------------- */

static uint16_t bits_of(double x)
{
    return (uint16_t)(float_bits((float)x) >> 16);
}

/* -4 to 4 eighths. */
static void fill_exact(uint16_t *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = bits_of(((int)(seed >> 16) % 9 - 4) / 8.);
    }
}

/* Of both signs, -4 to 4: 1/64 apart, which bf16 has up to 4. */
static void fill_moderate(uint16_t *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = bits_of(((int)(seed >> 16) % 513 - 256) / 64.);
    }
}

static void fill_all_values(uint16_t *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint16_t)(i + seed);
}

static void set(struct data *d, enum tensor_name t,
                void (*fill)(uint16_t *x, int64_t n, uint32_t seed))
{
    const int64_t n = desc_numel(&d->desc[t]);
    uint16_t *x = malloc((size_t)n * sizeof *x);
    must(x, "memory");
    fill(x, n, (uint32_t)t + 1);
    must(!cudaMemcpy(d->at[PLAIN][t], x, (size_t)n * sizeof *x, cudaMemcpyHostToDevice), "a copy");
    free(x);
}

static void clear_result(const struct data *d, enum tensor_name t)
{
    must(!cudaMemset(d->at[OURS][t], 0xff, (size_t)desc_bytes(&d->desc[t]) + GUARD), "a result");
}

static void create(struct data *d, const struct shape *s)
{
    const int64_t R = s->rows, K = s->inner, N = s->cols;
    const int64_t size[TENSORS][2] = {{R, K}, {N, K}, {N, 0}, {R, N}, {R, N}, {R, K},
                                      {K, N}, {R, N}, {R, N}, {R, N}, {N, 0}};
    *d = (struct data){.s = *s};
    for (int t = 0; t < TENSORS; t++) {
        d->desc[t] = (struct ckpt_desc){.dtype = t == SUMS ? CKPT_F32 : CKPT_BF16,
                                        .ndim = size[t][1] ? 2 : 1,
                                        .shape = {size[t][0], size[t][1]}};
        desc_dense(&d->desc[t]);
        const size_t bytes = (size_t)desc_bytes(&d->desc[t]) + GUARD;
        for (int k = 0; k < KINDS; k++)
            must(!cudaMalloc(&d->at[k][t], bytes) && !cudaMemset(d->at[k][t], 0xff, bytes),
                 "device memory");
    }
    must(!cudaMalloc((void **)&d->workspace, WORKSPACE), "device memory");
    set(d, X, fill_exact);
    set(d, W, fill_exact);
    set(d, BIAS, fill_exact);
    set(d, DY, fill_exact);
    set(d, WT, fill_exact);
}

static void destroy(struct data *d)
{
    for (int t = 0; t < TENSORS; t++)
        for (int k = 0; k < KINDS; k++)
            cudaFree(d->at[k][t]);
    cudaFree(d->workspace);
}

/* ---- the ops one by one ---------------------------------------------------------------------- */

struct call {
    ckpt_kernel kernel;
    int n_in, n_out;
    int operand[4]; /* a tensor, or -1 for one that is absent */
};

static void run(const struct data *d, struct cuda_libs *libs, const struct call *c)
{
    struct ckpt_view views[4] = {{NULL}};
    for (int i = 0; i < c->n_in + c->n_out; i++)
        if (c->operand[i] >= 0)
            views[i] = (struct ckpt_view){d->at[PLAIN][c->operand[i]], d->desc[c->operand[i]]};
        else
            views[i].desc.ndim = -1;
    struct ckpt_kernel_args a = {.n_in = c->n_in,
                                 .n_out = c->n_out,
                                 .in = views,
                                 .out = views + c->n_in,
                                 .workspace = d->workspace,
                                 .workspace_bytes = 32 << 20,
                                 .device = libs};
    must(!c->kernel(&a), "an op");
}

static void run_plain(const struct data *d, struct cuda_libs *libs, bool bias)
{
    const struct call calls[] = {{cuda_linear, 3, 1, {X, W, bias ? BIAS : -1, PRE}},
                                 {cuda_gelu, 1, 1, {PRE, POST}}};
    for (int i = 0; i < 2; i++)
        run(d, libs, &calls[i]);
}

static void run_plain_dx(const struct data *d, struct cuda_libs *libs)
{
    const struct call calls[] = {{cuda_linear_dx, 3, 1, {DY, WT, -1, V}},
                                 {cuda_gelu_dx_sums, 2, 2, {V, GIVEN, DPRE, SUMS}},
                                 {cuda_gelu, 1, 1, {GIVEN, POST}}};
    for (int i = 0; i < 3; i++)
        run(d, libs, &calls[i]);
}

/* ---- results -------------------------------------------------------------------------------- */

static void *fetch(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    must(to && !cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "a copy");
    return to;
}

/* Says how many of so many 16-bit values differ, and the first. */
static void show_difference(const uint16_t *x, const uint16_t *y, size_t n, int64_t cols)
{
    size_t differ = 0, first = 0;
    for (size_t i = n; i-- > 0;)
        if (x[i] != y[i]) {
            differ++;
            first = i;
        }
    printf("%zu of %zu differ, first at %zu, %zu: %04x for %04x\n", differ, n,
           first / (size_t)cols, first % (size_t)cols, y[first], x[first]);
}

/* The plain one's bits at `at`, and nothing behind them. */
static bool same_at(const struct data *d, enum tensor_name t, const void *at)
{
    const size_t bytes = (size_t)desc_bytes(&d->desc[t]);
    unsigned char *x = fetch(d->at[PLAIN][t], bytes), *y = fetch(at, bytes + GUARD);
    bool ok = !memcmp(x, y, bytes);
    if (!ok)
        show_difference((uint16_t *)(void *)x, (uint16_t *)(void *)y, bytes / 2, d->s.cols);
    for (size_t i = bytes; i < bytes + GUARD; i++)
        ok &= y[i] == 0xff;
    free(x), free(y);
    return ok;
}

static bool same(const struct data *d, enum tensor_name t)
{
    return same_at(d, t, d->at[OURS][t]);
}

/* dpre's sums over rows, to within what fp32 loses. */
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

/* With and without a bias, and either result alone. */
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

/* Everything, twice: the same bits. */
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

/* Without what may be absent, dpre in the place of pre, whose values are all that there are. */
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
    struct data d;
    must(cuda_gelu_sums_workspace(s->rows, s->cols) <= WORKSPACE, "workspace");
    create(&d, s);
    test_forward(&d, libs);
    set(&d, GIVEN, fill_moderate);
    run_plain_dx(&d, libs);
    test_backward(&d);
    set(&d, GIVEN, fill_all_values);
    run_plain_dx(&d, libs);
    test_parts(&d);
    destroy(&d);
}

/* Sizes that fit, and none else. */
static void test_takes(void)
{
    static const struct shape large = {65536, 768, 3072};
    static const struct shape shapes[] = {{0, 64, 64},      {64, 0, 64},
                                          {64, 64, 0},      {64, 60, 64},
                                          {64, 64, 60},     {(int64_t)1 << 31, 64, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check(!cuda_gemm_gelu_takes(shapes[i].rows, shapes[i].inner, shapes[i].cols), "takes",
              &shapes[i]);
    check(cuda_gemm_gelu_takes(large.rows, large.inner, large.cols), "does not take", &large);
}

/* With three numbers only that shape, as for a sanitizer. */
int main(int argc, char **argv)
{
    static const int64_t rows[] = {1, 127, 129, 4097}, inner[] = {8, 72, 768, 1152},
                         cols[] = {8, 136, 4608};
    static const struct shape more[] = {{300, 64, 65536}, {70000, 72, 200}};
    struct cuda_libs *libs;
    struct cudaDeviceProp card;
    if (cudaGetDeviceProperties(&card, 0) != cudaSuccess) {
        printf("no GPU here\n");
        return 77;
    }
    if (card.major != 9 || card.minor != 0) {
        printf("another card: compute capability %d.%d\n", card.major, card.minor);
        return cuda_gemm_gelu_takes(65536, 768, 3072) ? 1 : 77;
    }
    must(!cuda_libs_open(&libs), "libs");
    if (argc == 4) {
        test(&(struct shape){atoll(argv[1]), atoll(argv[2]), atoll(argv[3])}, libs);
        cuda_libs_close(libs);
        return failures ? 1 : 0;
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 3; k++)
                test(&(struct shape){rows[i], inner[j], cols[k]}, libs);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        test(&more[i], libs);
    test_takes();
    cuda_libs_close(libs);
    printf("%s\n", failures ? "FAIL" : "ok");
    return failures != 0;
}
