/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit products with a part of GELU in their epilogue, on a GPU, against the separate ops:
 * cuBLASLt's product and the following passes.  Codes are -1, 0 and 1, so sums are exact in any
 * order and results have the same bits; results of normal values are compared within rounding.
 * Sums over rows are compared with sums in double.  Memory after operands has other codes; memory
 * after results must stay unchanged.  "times" prints times.
 */
#include <stdio.h>
#include "attr.h"
#include "core/bits.h"
#include "kernels/cuda/gemm_gelu.h"
#include "fp8_buffers.h"

enum { MORE = 16 /* rows after a matrix */ };

struct shape {
    int64_t rows, inner, cols;
};

/* For both directions.  Backward: x is dy, y is the gradient that reaches GELU. */
struct data {
    struct shape s;
    struct buffer x, x_scale, w, w_scale, bias, pre;
    struct buffer y, largest, dpre, sums; /* of the ops one by one */
    struct buffer own, own_largest, own_sums;
};

static void check(bool ok, const char *what, const struct shape *s)
{
    expect(ok, "%s, %lld x %lld x %lld", what, (long long)s->rows, (long long)s->inner,
           (long long)s->cols);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* A matrix followed by rows of 0xa5 bytes. */
static struct buffer matrix(enum ckpt_dtype dtype, int64_t rows, int64_t cols)
{
    struct buffer b = make(dtype, 2, rows + MORE, cols);
    memset(b.host, 0xa5, (size_t)desc_bytes(&b.desc));
    b.desc.shape[0] = rows;
    return b;
}

static struct buffer scalar(float x)
{
    struct buffer b = make(CKPT_F32, 0, 0, 0);
    *(float *)b.host = x;
    send(&b);
    return b;
}

/* Converts floats to a buffer of any dtype. */
static void fill(const struct buffer *b, const float *x)
{
    cpu_store(b->host, x, b->desc.dtype, desc_numel(&b->desc));
    send(b);
}

/* exact: -s, 0 or s; otherwise normal values with deviation s. */
static void fill_values(const struct buffer *b, bool exact, float s, uint32_t seed)
{
    const int64_t n = desc_numel(&b->desc);
    float *x = malloc((size_t)n * sizeof *x);
    must(x, "memory");
    ckpt_fill_normal(3, 1, seed, x, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = exact ? (x[i] > 0.5f ? s : x[i] < -0.5f ? -s : 0.f) : x[i] * s;
    fill(b, x);
    free(x);
}

/* pre is not filled if only times are measured. */
static void create(struct data *d, const struct shape *s, bool backward, bool exact, bool times)
{
    const int64_t R = s->rows, K = s->inner, N = s->cols;
    *d = (struct data){.s = *s};
    d->x = matrix(backward ? CKPT_F8E5M2 : CKPT_F8E4M3, R, K);
    d->w = matrix(CKPT_F8E4M3, N, K);
    d->x_scale = scalar(0.5f);
    d->w_scale = scalar(exact ? 0.125f : ldexpf(1.f, -(int)log2((double)K) / 2));
    d->bias = make(CKPT_BF16, 1, N, 0);
    d->pre = matrix(CKPT_BF16, R, N);
    d->y = matrix(CKPT_BF16, R, N);
    d->dpre = matrix(CKPT_BF16, R, N);
    d->own = matrix(CKPT_BF16, R, N);
    d->sums = make(CKPT_F32, 1, N, 0);
    d->own_sums = make(CKPT_F32, 1, N, 0);
    d->largest = scalar(0);
    d->own_largest = scalar(0);
    fill_values(&d->x, exact, 1.f, 1);
    fill_values(&d->w, exact, 1.f, 2);
    fill_values(&d->bias, exact, 0.5f, 3);
    if (!times)
        fill_values(&d->pre, false, 2.f, 4);
}

static void destroy(struct data *d)
{
    struct buffer *all[] = {&d->x,    &d->x_scale,  &d->w,          &d->w_scale, &d->bias,
                            &d->pre,  &d->y,        &d->own,        &d->largest, &d->dpre,
                            &d->sums, &d->own_sums, &d->own_largest};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        drop(all[i]);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static const struct linear_fp8_attr product = {CKPT_BF16};

static void run_layer(const struct data *d, struct cuda_libs *libs, const struct buffer *to,
                      const struct buffer *most, bool bias)
{
    const struct buffer *operand[FP8_INPUTS + 2] = {[FP8_BIAS] = bias ? &d->bias : NULL,
                                                    [FP8_QX] = &d->x,
                                                    [FP8_SX] = &d->x_scale,
                                                    [FP8_QW] = &d->w,
                                                    [FP8_SW] = &d->w_scale,
                                                    [FP8_INPUTS] = to,
                                                    [FP8_INPUTS + 1] = most};
    must(!run_extra(cuda_linear_fp8, libs, &product, FP8_INPUTS, 1 + (most != NULL), operand,
                    most ? EXTRA_GELU_LARGEST : 0, false),
         "linear_fp8");
}

static void run_plain(const struct data *d, struct cuda_libs *libs, bool bias)
{
    run_layer(d, libs, &d->y, NULL, bias);
    must(!find_largest(&d->y, &d->largest, FP8_GELU, libs), "to_fp8_largest");
}

static void run_product_dx(const struct data *d, struct cuda_libs *libs)
{
    const struct buffer *operand[] = {&d->x, &d->x_scale, &d->w, &d->w_scale, NULL, &d->y};
    must(!run(cuda_linear_fp8_dx, libs, &product, 5, 1, operand, false), "linear_fp8_dx");
}

/* The list of column sums, largest magnitude or both. */
static uint32_t extras(bool sums, bool largest)
{
    return sums ? EXTRA_SUMS | (largest ? EXTRA_LARGEST << 4 : 0) : largest ? EXTRA_LARGEST : 0;
}

static void run_pass_dx(const struct data *d, struct cuda_libs *libs, bool sums)
{
    const struct buffer *operand[5] = {&d->y, &d->pre, &d->dpre};
    int n = 3;
    if (sums)
        operand[n++] = &d->sums;
    operand[n++] = &d->largest;
    must(!run_extra(cuda_gelu_dx, libs, NULL, 2, n - 2, operand, extras(sums, true), false),
         "gelu_dx");
}

static void run_own_dx(const struct data *d, struct cuda_libs *libs, const struct buffer *to,
                       bool sums, bool largest)
{
    const struct buffer *operand[8] = {&d->x, &d->x_scale, &d->w, &d->w_scale, &d->pre, to};
    int n = 6;
    if (sums)
        operand[n++] = &d->own_sums;
    if (largest)
        operand[n++] = &d->own_largest;
    must(!run_extra(cuda_linear_fp8_dx_gelu, libs, NULL, 5, n - 5, operand, extras(sums, largest),
                    false),
         "linear_fp8_dx_gelu");
}

/* ---- results --------------------------------------------------------------------------------- */

static void *fetch(const struct buffer *b, size_t more)
{
    const size_t bytes = (size_t)desc_bytes(&b->desc) + more;
    void *to = malloc(bytes);
    must(to && !cudaMemcpy(to, b->device, bytes, cudaMemcpyDeviceToHost), "a copy");
    return to;
}

static uint32_t word(const struct buffer *b)
{
    uint32_t *x = fetch(b, 0), w = *x;
    free(x);
    return w;
}

/* Whether one matrix has the other's bits, and the memory after it is unchanged. */
static bool same_matrix(const struct buffer *got, const struct buffer *expected)
{
    const size_t bytes = (size_t)desc_bytes(&got->desc);
    const size_t more = (size_t)(MORE * got->desc.shape[1] * 2);
    unsigned char *x = fetch(got, more), *y = fetch(expected, 0);
    bool ok = !memcmp(x, y, bytes);
    for (size_t i = bytes; i < bytes + more; i++)
        ok &= x[i] == 0xa5;
    free(x), free(y);
    return ok;
}

static double value(const uint16_t *x, int64_t i)
{
    return (double)float_of_bits((uint32_t)x[i] << 16);
}

/* The relative error (root mean square) of one matrix against the other. */
static double error_against(const struct buffer *got, const struct buffer *expected)
{
    uint16_t *x = fetch(got, 0), *y = fetch(expected, 0);
    double square = 0, norm = 0;
    for (int64_t i = 0; i < desc_numel(&got->desc); i++) {
        square += (value(x, i) - value(y, i)) * (value(x, i) - value(y, i));
        norm += value(y, i) * value(y, i);
    }
    free(x), free(y);
    return sqrt(square / norm);
}

/* Whether own_largest is the largest magnitude of the written values. */
static bool good_largest(const struct data *d)
{
    uint16_t *x = fetch(&d->own, 0), most = 0;
    for (int64_t i = 0; i < desc_numel(&d->own.desc); i++)
        most = (x[i] & 0x7fff) > most ? x[i] & 0x7fff : most;
    free(x);
    return word(&d->own_largest) == (uint32_t)most << 16;
}

/* Whether own_sums are the sums over rows of the written values, within fp32 rounding. */
static bool good_sums(const struct data *d)
{
    const int64_t rows = d->s.rows, cols = d->s.cols;
    uint16_t *x = fetch(&d->own, 0);
    float *sums = fetch(&d->own_sums, 0);
    bool ok = true;
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0, size = 0;
        for (int64_t r = 0; r < rows; r++) {
            sum += value(x, r * cols + c);
            size += fabs(value(x, r * cols + c));
        }
        ok &= fabs(sum - (double)sums[c]) <= 1e-6 * size;
    }
    free(x), free(sums);
    return ok;
}

static void clear_result(const struct buffer *b)
{
    must(!cudaMemset(b->device, 0xa5, (size_t)(desc_bytes(&b->desc) + MORE * b->desc.shape[1] * 2)),
         "a result");
}

/* ---- tests ----------------------------------------------------------------------------------- */

static bool same_forward(const struct data *d)
{
    return same_matrix(&d->own, &d->y) && word(&d->own_largest) == word(&d->largest);
}

/* Biases for which the largest magnitude of GELU comes from positive operands, from operands in
 * GELU's dip, and from operands far below, where GELU is almost 0. */
static void test_forward(const struct shape *s, struct cuda_libs *libs)
{
    static const float shift[] = {0.f, -3.f, -60.f};
    struct data d;
    create(&d, s, false, true, false);
    run_plain(&d, libs, false);
    run_layer(&d, libs, &d.own, &d.own_largest, false);
    check(same_forward(&d), "forward without a bias", s);
    for (int i = 0; i < 3; i++) {
        float *x = malloc((size_t)s->cols * sizeof *x);
        must(x, "memory");
        for (int64_t c = 0; c < s->cols; c++)
            x[c] = shift[i] + (float)(c % 5) / 4.f;
        fill(&d.bias, x);
        free(x);
        *(float *)d.x_scale.host = i ? 0x1p-9f : 0.5f;
        send(&d.x_scale);
        clear_result(&d.own);
        run_plain(&d, libs, true);
        run_layer(&d, libs, &d.own, &d.own_largest, true);
        check(same_forward(&d), i == 0 ? "forward" : i == 1 ? "GELU's dip" : "far below 0", s);
    }
    destroy(&d);
}

/* If a value is infinite or NaN, so is the largest magnitude. */
static void test_odd(const struct shape *s, struct cuda_libs *libs)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    struct data d;
    create(&d, s, false, true, false);
    for (int i = 0; i < 3; i++) {
        float *x = calloc((size_t)s->cols, sizeof *x);
        must(x, "memory");
        x[s->cols - 1] = odd[i];
        fill(&d.bias, x);
        free(x);
        run_layer(&d, libs, &d.own, &d.own_largest, true);
        check(fp8_is_odd(word(&d.own_largest)), "a layer that is not finite", s);
    }
    *(float *)d.w_scale.host = NAN;
    send(&d.w_scale);
    run_own_dx(&d, libs, &d.own, true, true);
    check(fp8_is_odd(word(&d.own_largest)), "a gradient that is not finite", s);
    destroy(&d);
}

/* All results, twice; then without optional ones, and in the place of GELU's operand. */
static void test_backward(const struct shape *s, struct cuda_libs *libs)
{
    struct data d;
    create(&d, s, true, true, false);
    run_product_dx(&d, libs);
    run_pass_dx(&d, libs, true);
    run_own_dx(&d, libs, &d.own, true, true);
    check(same_matrix(&d.own, &d.dpre), "backward", s);
    check(good_sums(&d), "sums", s);
    check(word(&d.own_largest) == word(&d.largest) && good_largest(&d), "largest", s);
    float *sums = fetch(&d.own_sums, 0);
    clear_result(&d.own);
    run_own_dx(&d, libs, &d.own, true, true);
    float *again = fetch(&d.own_sums, 0);
    check(same_matrix(&d.own, &d.dpre) && !memcmp(sums, again, (size_t)desc_bytes(&d.sums.desc)) &&
              word(&d.own_largest) == word(&d.largest),
          "another run", s);
    free(sums), free(again);
    clear_result(&d.own);
    run_own_dx(&d, libs, &d.own, false, true);
    check(same_matrix(&d.own, &d.dpre) && word(&d.own_largest) == word(&d.largest),
          "backward without sums", s);
    run_own_dx(&d, libs, &d.pre, true, false);
    check(same_matrix(&d.pre, &d.dpre), "backward in place", s);
    destroy(&d);
}

/* Normal values: tensor cores truncate sums to 14 bits, in an unspecified order. */
static void test_normal(const struct shape *s, struct cuda_libs *libs)
{
    struct data d;
    create(&d, s, false, false, false);
    run_plain(&d, libs, true);
    run_layer(&d, libs, &d.own, &d.own_largest, true);
    const double forward = error_against(&d.own, &d.y);
    destroy(&d);
    create(&d, s, true, false, false);
    run_product_dx(&d, libs);
    run_pass_dx(&d, libs, true);
    run_own_dx(&d, libs, &d.own, true, true);
    const double backward = error_against(&d.own, &d.dpre);
    check(good_sums(&d) && good_largest(&d), "sums and largest of normal values", s);
    destroy(&d);
    printf("%lld x %lld x %lld: differs from cuBLASLt by %.1e forward, %.1e backward\n",
           (long long)s->rows, (long long)s->inner, (long long)s->cols, forward, backward);
    check(forward < 4e-3 && backward < 4e-3, "normal values", s);
}

/* ---- times ----------------------------------------------------------------------------------- */

enum { RUNS = 11 };

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum timed { LAYER, GELU_PASS, OWN_LAYER, PRODUCT_DX, PASS_DX, OWN_DX, TIMED };

static void run_timed(const struct data *d, struct cuda_libs *libs, enum timed which)
{
    if (which == LAYER)
        run_layer(d, libs, &d->y, NULL, true);
    else if (which == GELU_PASS)
        must(!find_largest(&d->y, &d->largest, FP8_GELU, libs), "to_fp8_largest");
    else if (which == OWN_LAYER)
        run_layer(d, libs, &d->own, &d->own_largest, true);
    else if (which == PRODUCT_DX)
        run_product_dx(d, libs);
    else if (which == PASS_DX)
        run_pass_dx(d, libs, true);
    else
        run_own_dx(d, libs, &d->own, true, true);
}

/* Prints medians of times with operands from memory, not from the cache. */
static void show_times(const struct shape *s, struct cuda_libs *libs)
{
    static const size_t caches = (size_t)128 << 20;
    float ms[TIMED][RUNS];
    struct data forward, backward;
    cudaEvent_t begin, end;
    void *cold;
    create(&forward, s, false, false, true);
    create(&backward, s, true, false, true);
    must(!cudaEventCreate(&begin) && !cudaEventCreate(&end), "events");
    must(!cudaMalloc(&cold, caches), "device memory");
    for (int i = -2; i < RUNS; i++)
        for (int t = 0; t < TIMED; t++) {
            const struct data *d = t < PRODUCT_DX ? &forward : &backward;
            must(!cudaMemsetAsync(cold, i, caches, NULL) && !cudaEventRecord(begin, NULL), "begin");
            run_timed(d, libs, (enum timed)t);
            must(!cudaEventRecord(end, NULL) && !cudaEventSynchronize(end) &&
                     !cudaEventElapsedTime(&ms[t][i < 0 ? 0 : i], begin, end),
                 "end");
        }
    for (int t = 0; t < TIMED; t++)
        qsort(ms[t], RUNS, sizeof ms[t][0], by_size);
    printf("%lld x %lld x %lld, ms: layer %.4f and pass %.4f, ours %.4f; gradient %.4f and pass "
           "%.4f, ours %.4f\n",
           (long long)s->rows, (long long)s->inner, (long long)s->cols, (double)ms[LAYER][RUNS / 2],
           (double)ms[GELU_PASS][RUNS / 2], (double)ms[OWN_LAYER][RUNS / 2],
           (double)ms[PRODUCT_DX][RUNS / 2], (double)ms[PASS_DX][RUNS / 2],
           (double)ms[OWN_DX][RUNS / 2]);
    cudaFree(cold);
    destroy(&forward);
    destroy(&backward);
}

static void test(const struct shape *s, struct cuda_libs *libs)
{
    must(cuda_gelu_sums_workspace(s->rows, s->cols) <= WORKSPACE, "workspace");
    test_forward(s, libs);
    test_backward(s, libs);
}

/* "times" prints times of some layers, or of one given by three numbers; with only three numbers
 * this shape is tested, as for a sanitizer. */
int main(int argc, char **argv)
{
    static const int64_t rows[] = {1, 129, 1300}, inner[] = {16, 144, 1152},
                         cols[] = {16, 208, 768};
    static const struct shape odd = {200, 128, 208},
                              normal[] = {{1300, 1152, 4608}, {300, 4608, 1152}},
                              timed[] = {{54000, 1152, 4608},
                                         {17776, 3072, 12288},
                                         {13800, 1152, 4608},
                                         {4096, 768, 3072},
                                         {1024, 768, 3072}};
    struct cuda_libs *libs;
    struct cudaDeviceProp card;
    if (cudaGetDeviceProperties(&card, 0) != cudaSuccess) {
        printf("no GPU here\n");
        return 77;
    }
    if (card.major != 9 || card.minor != 0) {
        printf("another card: compute capability %d.%d\n", card.major, card.minor);
        return 77;
    }
    must(!cuda_libs_open(&libs), "libs");
    const bool times = argc > 1 && !strcmp(argv[1], "times");
    if (argc >= 4) {
        const char **last = (const char **)argv + argc - 3;
        const struct shape s = {atoll(last[0]), atoll(last[1]), atoll(last[2])};
        times ? show_times(&s, libs) : test(&s, libs);
    } else if (times) {
        for (size_t i = 0; i < sizeof timed / sizeof *timed; i++)
            show_times(&timed[i], libs);
    } else {
        for (int i = 0; i < 27; i++)
            test(&(struct shape){rows[i / 9], inner[i / 3 % 3], cols[i % 3]}, libs);
        test_odd(&odd, libs);
        for (size_t i = 0; i < sizeof normal / sizeof *normal; i++)
            test_normal(&normal[i], libs);
    }
    cuda_libs_close(libs);
    return test_result();
}
