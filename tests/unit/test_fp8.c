/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit values: every code and every rounding against tables that ml_dtypes made, and a search of
 * the nearest value in double; the power of two of a tensor by its definition; the copies of a
 * tensor, both ways round; products against double of what the codes stand for; zeros, one huge
 * value, infinity and NaN; and what rounding costs a product.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "core/fp8.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/gemm.h"
#include "shapes/linear.h"
#include "fp8.h"
#include "fp8_reference.h"

static const struct format {
    enum ckpt_dtype dtype;
    const uint32_t *values, *first;
    uint8_t largest;
} formats[] = {
    {CKPT_F8E4M3, e4m3_values, e4m3_first, 0x7e},
    {CKPT_F8E5M2, e5m2_values, e5m2_first, 0x7b},
};

enum { FORMATS = sizeof formats / sizeof *formats };

static float value_of(const struct format *f, uint8_t code)
{
    float x;
    cpu_load(&x, &code, f->dtype, 1);
    return x;
}

static uint8_t code_of(const struct format *f, float x)
{
    uint8_t code;
    cpu_store(&code, &x, f->dtype, 1);
    return code;
}

struct copies {
    int64_t rows, cols, pitch;
    float scale;
    uint8_t *by_rows, *by_columns;
};

static struct copies copy(const float *x, int64_t rows, int64_t cols, enum ckpt_dtype from,
                          enum ckpt_dtype to, int which)
{
    const struct to_fp8_attr attr = {
        .dtype = to, .copies = which, .fill = rows % 3 ? FP8_LINE : FP8_SIDE};
    struct copies c = {.rows = rows, .cols = cols, .pitch = fp8_pitch(rows, &attr)};
    uint16_t *half = malloc((size_t)(rows * cols) * 2);
    uint32_t most;
    struct ckpt_view in[] = {
        {.data = half, .desc = {.dtype = from, .ndim = 2, .shape = {rows, cols}}}, {.data = &most}};
    struct ckpt_view out[3] = {{.data = &c.scale}};
    int n = 1;
    ckpt_to_bf16(x, half, rows * cols);
    if (from == CKPT_F32)
        in[0].data = (void *)(uintptr_t)x;
    c.by_rows = malloc((size_t)(rows * cols));
    c.by_columns = malloc((size_t)(c.pitch * cols));
    memset(c.by_columns, 0xff, (size_t)(c.pitch * cols));
    if (which & FP8_ROWS)
        out[n++].data = c.by_rows;
    if (which & FP8_COLUMNS)
        out[n++].data = c.by_columns;
    const struct to_fp8_largest_attr largest = {FP8_OPERAND};
    struct ckpt_kernel_args
        a = {.n_in = 2, .n_out = n, .in = in, .out = out, .attr = &attr, .threads = 1},
        before = {.n_in = 1, .n_out = 1, .in = in, .out = in + 1, .attr = &largest, .threads = 1};
    assert_int_equal(cpu_to_fp8_largest(&before), 0);
    assert_int_equal(cpu_to_fp8(&a), 0);
    free(half);
    return c;
}

static void free_copies(struct copies *c)
{
    free(c->by_rows);
    free(c->by_columns);
}

static float *normal(uint32_t stream, int64_t n, float scale)
{
    float *x = malloc((size_t)n * sizeof *x);
    ckpt_fill_normal(5, 0, stream, x, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = bf16_load(bf16_round(x[i] * scale));
    return x;
}

static double dequantised(const struct copies *c, const struct format *f, int64_t i, int64_t j)
{
    return (double)value_of(f, c->by_rows[i * c->cols + j]) * (double)c->scale;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void test_values(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++)
        for (int code = 0; code < 256; code++) {
            float x = value_of(f, (uint8_t)code);
            float expected = float_of_bits(f->values[code & 0x7f]);
            assert_int_equal(isnan(x), isnan(expected));
            if (isnan(x))
                continue;
            assert_int_equal(float_bits(x), float_bits(expected) | (uint32_t)(code & 0x80) << 24);
            uint8_t finite =
                (code & 0x7f) <= f->largest ? (uint8_t)code : (uint8_t)((code & 0x80) | f->largest);
            assert_int_equal(code_of(f, x), finite);
        }
    assert_true(value_of(&formats[0], 0x7e) == 448.f && value_of(&formats[1], 0x7b) == 57344.f);
    assert_true(isinf(value_of(&formats[1], 0xfc)));
}

/* The code whose first fp32 is at or below these bits, from the table alone. */
static uint8_t by_table(const struct format *f, uint32_t magnitude)
{
    int code = f->largest;
    while (f->first[code] > magnitude)
        code--;
    return (uint8_t)code;
}

/* All bf16 values, the only inputs of 8-bit rounding. */
static void test_bf16(void **state)
{
    static uint8_t codes[1 << 16];
    static float x[1 << 16];
    (void)state;
    for (int i = 0; i < 1 << 16; i++)
        x[i] = bf16_load((uint16_t)i);
    for (const struct format *f = formats; f < formats + FORMATS; f++) {
        cpu_store(codes, x, f->dtype, 1 << 16);
        for (int i = 0; i < 1 << 16; i++) {
            uint32_t magnitude = float_bits(x[i]) & 0x7fffffff;
            if (isnan(x[i]))
                assert_int_equal(codes[i], 0x7f);
            else
                assert_int_equal(codes[i], by_table(f, magnitude) | (i >> 8 & 0x80));
        }
    }
}

/* On both sides of every boundary between two codes. */
static void test_borders(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++)
        for (int code = 1; code <= f->largest; code++)
            for (uint32_t sign = 0; sign <= 1; sign++) {
                float at = float_of_bits(f->first[code] | sign << 31);
                float below = float_of_bits((f->first[code] - 1) | sign << 31);
                assert_int_equal(code_of(f, at), code | (int)(sign << 7));
                assert_int_equal(code_of(f, below), (code - 1) | (int)(sign << 7));
            }
}

/* The nearest value, with ties to the even code; values that are too large become the largest. */
static uint8_t nearest(const struct format *f, double x)
{
    int best = 0;
    for (int code = 1; code <= f->largest; code++) {
        double away = fabs((double)value_of(f, (uint8_t)code) - fabs(x));
        double before = fabs((double)value_of(f, (uint8_t)best) - fabs(x));
        if (away < before || (away == before && code % 2 == 0))
            best = code;
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

static void test_nearest(void **state)
{
    enum { N = 4096 };
    static float x[N];
    (void)state;
    ckpt_fill_normal(3, 0, 1, x, N);
    for (const struct format *f = formats; f < formats + FORMATS; f++)
        for (int i = 0; i < N; i++) {
            float y = ldexpf(x[i], i % 48 - 24);
            assert_int_equal(code_of(f, y), nearest(f, (double)y));
        }
}

/* ---- the power of two ------------------------------------------------------------------------ */

static void check_power(const struct format *f, float most)
{
    const int k = fp8_exponent(float_bits(most), fp8_top(f->dtype));
    const double largest = (double)value_of(f, f->largest);
    assert_in_range(k + 126, 0, 252);
    assert_true(ldexp((double)most, k) <= largest);
    if (k < 126)
        assert_true(ldexp((double)most, k + 1) > largest);
    assert_true(float_of_bits(fp8_power_bits(k)) == ldexpf(1.f, k));
}

static void test_power(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++) {
        assert_int_equal(fp8_exponent(0, fp8_top(f->dtype)), 0);
        for (uint32_t half = 1; half < 0x7f80; half++)
            check_power(f, bf16_load((uint16_t)half));
        check_power(f, 448.f);
        check_power(f, nextafterf(448.f, 449.f));
        check_power(f, 3.4028235e38f);
    }
    assert_false(fp8_is_odd(0x7f7fffff));
    assert_true(fp8_is_odd(0x7f800000) && fp8_is_odd(0x7fc00001));
}

/* ---- copies ---------------------------------------------------------------------------------- */

static float largest_of(const float *x, int64_t n)
{
    float most = 0.f;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* Each code is the nearest to the value times the power of two; the transposed copy has the same
 * codes, and zeros. */
static void check_copies(const struct format *f, int64_t rows, int64_t cols, enum ckpt_dtype from,
                         float scale)
{
    float *x = normal((uint32_t)(rows * cols), rows * cols, scale);
    struct copies c = copy(x, rows, cols, from, f->dtype, FP8_ROWS | FP8_COLUMNS);
    struct copies r = copy(x, rows, cols, from, f->dtype, FP8_ROWS);
    struct copies t = copy(x, rows, cols, from, f->dtype, FP8_COLUMNS);
    int k = fp8_exponent(float_bits(largest_of(x, rows * cols)), fp8_top(f->dtype));
    assert_true(c.scale == ldexpf(1.f, -k) && r.scale == c.scale && t.scale == c.scale);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t at = i * cols + j;
            assert_int_equal(c.by_rows[at], code_of(f, x[at] * ldexpf(1.f, k)));
            assert_int_equal(c.by_columns[j * c.pitch + i], c.by_rows[at]);
        }
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = rows; i < c.pitch; i++)
            assert_int_equal(c.by_columns[j * c.pitch + i], 0);
    assert_memory_equal(r.by_rows, c.by_rows, (size_t)(rows * cols));
    assert_memory_equal(t.by_columns, c.by_columns, (size_t)(c.pitch * cols));
    free(x);
    free_copies(&c);
    free_copies(&r);
    free_copies(&t);
}

static void test_copies(void **state)
{
    static const int64_t sizes[][2] = {{1, 16},  {16, 16},   {17, 32},
                                       {33, 32}, {128, 144}, {200, 272}};
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int k = -1; k <= 1; k++) {
                check_copies(f, sizes[i][0], sizes[i][1], CKPT_BF16, ldexpf(1.f, 60 * k));
                check_copies(f, sizes[i][0], sizes[i][1], CKPT_F32, ldexpf(1.f, 60 * k));
            }
}

/* Zeros stay zeros; beside one huge value the others use the remaining range. */
static void test_extremes(void **state)
{
    enum { N = 16 * 32 };
    float x[N] = {0};
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++) {
        memset(x, 0, sizeof x);
        struct copies c = copy(x, 16, 32, CKPT_BF16, f->dtype, FP8_ROWS);
        assert_true(c.scale == 1.f);
        for (int i = 0; i < N; i++)
            assert_int_equal(c.by_rows[i], 0);
        free_copies(&c);
        for (int i = 0; i < N; i++)
            x[i] = i == 77 ? -0x1.fep127f : ldexpf(1.f, 127 - i % 64);
        c = copy(x, 16, 32, CKPT_BF16, f->dtype, FP8_ROWS);
        for (int i = 0; i < N; i++) {
            double y = (double)value_of(f, c.by_rows[i]) * (double)c.scale;
            double half = (double)value_of(f, 1) / 2 * (double)c.scale;
            assert_true(fabs(y - (double)x[i]) <= fmax(fabs((double)x[i]) / 8, half));
        }
        free_copies(&c);
    }
}

/* Infinity and NaN at any place make every product NaN. */
static void test_not_finite(void **state)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN};
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++)
        for (int k = 0; k < 9; k++) {
            float *x = normal(9, 40 * 32, 1.f);
            x[k / 3 * 639] = odd[k % 3];
            for (int from = CKPT_F32; from <= CKPT_BF16; from++) {
                struct copies c =
                    copy(x, 40, 32, (enum ckpt_dtype)from, f->dtype, FP8_ROWS | FP8_COLUMNS);
                assert_true(isnan(c.scale));
                free_copies(&c);
            }
            free(x);
        }
}

/* ---- products -------------------------------------------------------------------------------- */

struct product {
    int64_t rows, cols, inner;
    struct copies a, b;
    uint16_t *bias, *addend;
    void *y;
};

static double expected(const struct product *p, int64_t i, int64_t j, double *norm)
{
    double sum = p->bias ? (double)bf16_load(p->bias[j]) : 0;
    sum += p->addend ? (double)bf16_load(p->addend[i * p->cols + j]) : 0;
    *norm = fabs(sum);
    for (int64_t k = 0; k < p->inner; k++) {
        double term = dequantised(&p->a, &formats[1], i, k) * dequantised(&p->b, &formats[0], j, k);
        sum += term;
        *norm += fabs(term);
    }
    return sum;
}

static void run_product(struct product *p, ckpt_kernel kernel, enum ckpt_dtype dtype,
                        bool accumulate)
{
    const struct ckpt_desc a = {.dtype = CKPT_F8E5M2, .ndim = 2, .shape = {p->rows, p->inner}};
    const struct ckpt_desc b = {.dtype = CKPT_F8E4M3, .ndim = 2, .shape = {p->cols, p->inner}};
    const struct ckpt_view operands[] = {
        {p->a.by_rows, a}, {&p->a.scale, {0}}, {p->b.by_rows, b}, {&p->b.scale, {0}}};
    struct ckpt_view in[FP8_INPUTS] = {{NULL}}, out = {p->y, {.dtype = dtype}};
    const bool forward = kernel == cpu_linear_fp8;
    memcpy(in + (forward ? FP8_QX : 0), operands, sizeof operands);
    in[forward ? FP8_ADDEND : 4].data = p->addend;
    if (forward)
        in[FP8_BIAS].data = p->bias;
    struct gemm g = fp8_gemm(operands, dtype);
    void *workspace = calloc(1, (size_t)gemm_workspace(&g) + 1);
    struct ckpt_kernel_args args = {.n_in = forward ? FP8_INPUTS : 5,
                                    .n_out = 1,
                                    .in = in,
                                    .out = &out,
                                    .workspace = workspace,
                                    .accumulate = accumulate,
                                    .threads = 1};
    assert_int_equal(kernel(&args), 0);
    free(workspace);
}

static void check_product(struct product *p, enum ckpt_dtype dtype, double before)
{
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->cols; j++) {
            double norm, want = expected(p, i, j, &norm) + before;
            double got = dtype == CKPT_F32 ? (double)((float *)p->y)[i * p->cols + j]
                                           : (double)bf16_load(((uint16_t *)p->y)[i * p->cols + j]);
            double limit =
                (norm + fabs(before)) * 1e-6 + (dtype == CKPT_F32 ? 0 : fabs(want) * 0x1p-8);
            assert_true(fabs(got - want) <= limit);
        }
}

static void test_products(void **state)
{
    static const int64_t sizes[][3] = {{1, 16, 16}, {33, 48, 160}, {130, 144, 528}};
    (void)state;
    assert_int_equal(blas_open(1), 0);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct product p = {.rows = sizes[k][0], .cols = sizes[k][1], .inner = sizes[k][2]};
        float *a = normal(1, p.rows * p.inner, 1e-3f), *b = normal(2, p.cols * p.inner, 30.f);
        float *bias = normal(3, p.cols, 1.f), *addend = normal(4, p.rows * p.cols, 1.f);
        uint16_t *halves = malloc((size_t)(p.cols + p.rows * p.cols) * 2);
        ckpt_to_bf16(bias, halves, p.cols);
        ckpt_to_bf16(addend, halves + p.cols, p.rows * p.cols);
        p.a = copy(a, p.rows, p.inner, CKPT_BF16, CKPT_F8E5M2, FP8_ROWS);
        p.b = copy(b, p.cols, p.inner, CKPT_BF16, CKPT_F8E4M3, FP8_ROWS);
        p.y = calloc((size_t)(p.rows * p.cols), sizeof(float));
        for (int both = 0; both <= 3; both++) {
            p.bias = both & 1 ? halves : NULL;
            p.addend = both & 2 ? halves + p.cols : NULL;
            run_product(&p, cpu_linear_fp8, CKPT_BF16, false);
            check_product(&p, CKPT_BF16, 0);
        }
        p.bias = NULL;
        run_product(&p, cpu_linear_fp8_dx, CKPT_BF16, false);
        check_product(&p, CKPT_BF16, 0);
        p.addend = NULL;
        run_product(&p, cpu_linear_fp8_dw, CKPT_F32, false);
        check_product(&p, CKPT_F32, 0);
        for (int64_t i = 0; i < p.rows * p.cols; i++)
            ((float *)p.y)[i] = 0.25f;
        run_product(&p, cpu_linear_fp8_dw, CKPT_F32, true);
        check_product(&p, CKPT_F32, 0.25);
        free(p.y), free(a), free(b), free(bias), free(addend), free(halves);
        free_copies(&p.a);
        free_copies(&p.b);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_file(void **state)
{
    char path[] = "test_fp8.safetensors";
    uint8_t codes[256];
    float x[256];
    (void)state;
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    for (const struct format *f = formats; f < formats + FORMATS; f++) {
        ckpt_file_writer *w;
        ckpt_file *file;
        assert_int_equal(ckpt_file_create(&w, path), 0);
        assert_int_equal(ckpt_file_add(w, "codes", f->dtype, 2, (int64_t[]){16, 16}, codes), 0);
        assert_int_equal(ckpt_file_commit(w), 0);
        assert_int_equal(ckpt_file_open(&file, path), 0);
        assert_int_equal(ckpt_file_read_f32(file, 0, x, 256), 0);
        for (int i = 0; i < 256; i++) {
            float y = value_of(f, (uint8_t)i);
            assert_true((isnan(x[i]) && isnan(y)) || float_bits(x[i]) == float_bits(y));
        }
        ckpt_file_close(file);
    }
    remove(path);
}

/* ---- what it costs ----------------------------------------------------------------------------
 */

enum values {
    NORMAL,   /* of one deviation */
    SPREAD,   /* rows whose deviations lie between 1 and 2^-20 */
    OUTLIERS, /* one of 128 values a million times as large */
    VALUES
};

static float *draw_values(uint32_t stream, int64_t rows, int64_t cols, enum values kind)
{
    float *x = normal(stream, rows * cols, 1.f);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            if (kind == SPREAD)
                x[i * cols + j] *= ldexpf(1.f, -20 * (int)i / (int)(rows - 1));
            if (kind == OUTLIERS && i % 8 == 3 && j % 512 == 77)
                x[i * cols + j] *= 0x1p20f;
        }
    return x;
}

/* The relative error of a b^T against the product of the unrounded operands, the root of the mean
 * over rows of its square.  a is rounded to format fa, b to e4m3. */
static double price(const struct format *fa, int64_t inner, enum values kind)
{
    enum { SIDE = 32 };
    float *a = draw_values(11, SIDE, inner, kind), *b = normal(12, SIDE * inner, 1.f);
    struct copies qa = copy(a, SIDE, inner, CKPT_BF16, fa->dtype, FP8_ROWS);
    struct copies qb = copy(b, SIDE, inner, CKPT_BF16, CKPT_F8E4M3, FP8_ROWS);
    double error = 0;
    for (int64_t i = 0; i < SIDE; i++) {
        double norm = 0, square = 0;
        for (int64_t j = 0; j < SIDE; j++) {
            double exact = 0, rounded = 0;
            for (int64_t k = 0; k < inner; k++) {
                exact += (double)a[i * inner + k] * (double)b[j * inner + k];
                rounded += dequantised(&qa, fa, i, k) * dequantised(&qb, &formats[0], j, k);
            }
            norm += exact * exact;
            square += (rounded - exact) * (rounded - exact);
        }
        error += square / norm / SIDE;
    }
    free(a), free(b);
    free_copies(&qa);
    free_copies(&qb);
    return sqrt(error);
}

/* For normal values, as in doc/numerics.md: at most half an ulp, 2^-4 and 2^-3, for each factor. */
static void test_price(void **state)
{
    (void)state;
    for (int64_t inner = 128; inner <= 4096; inner *= 32) {
        const double forward = price(&formats[0], inner, NORMAL);
        const double backward = price(&formats[1], inner, NORMAL);
        print_message("summed over %lld: relative error of y %.4f, of dx and dw %.4f\n",
                      (long long)inner, forward, backward);
        assert_true(forward > 0.03 && forward < 0.045);
        assert_true(backward > 0.05 && backward < 0.075);
    }
}

/* Values that differ much in size lose e4m3's range, but not e5m2's. */
static void test_price_of_sizes(void **state)
{
    static const char *const names[] = {
        [SPREAD] = "rows between 1 and 2^-20", [OUTLIERS] = "a large one of 4,096 values"};
    (void)state;
    for (enum values kind = SPREAD; kind < VALUES; kind++) {
        const double forward = price(&formats[0], 4096, kind);
        const double backward = price(&formats[1], 4096, kind);
        print_message("%s: relative error of y %.4f, of dx and dw %.4f\n", names[kind], forward,
                      backward);
        assert_true(forward > 0.3 && forward < 1);
        assert_true(backward > 0.05 && backward < 0.075);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),   cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_borders),  cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_power),    cmocka_unit_test(test_copies),
        cmocka_unit_test(test_extremes), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_products), cmocka_unit_test(test_file),
        cmocka_unit_test(test_price),    cmocka_unit_test(test_price_of_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
