/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit copies with a scale for each block, by their definition; GELU on the way; products against
 * double of what the codes stand for; zeros, infinity and NaN; and what a scale for each tensor,
 * and for each block, costs.
 */
#include "fp8_copies.h"

/* ---- with a scale for each block ------------------------------------------------------------- */

/* Copies of x [rows, cols]: 1 x 128, or 128 x 128, share a scale. */
struct block_copies {
    int64_t rows, cols, pitch;
    bool square;
    struct ckpt_desc row_scales, column_scales;
    float *row_scale, *column_scale;
    uint8_t *by_rows, *by_columns;
};

static struct block_copies copy_blocks(const float *x, int64_t rows, int64_t cols, bool square,
                                       int which)
{
    const struct to_fp8_attr attr = {.dtype = CKPT_F8E4M3,
                                     .copies = which,
                                     .fill = square ? FP8_SIDE : FP8_LINE,
                                     .square = square};
    struct block_copies c = {
        .rows = rows, .cols = cols, .square = square, .pitch = fp8_pitch(rows, &attr)};
    uint16_t *half = malloc((size_t)(rows * cols) * 2);
    struct ckpt_view in = {.data = half,
                           .desc = {.dtype = CKPT_BF16, .ndim = 2, .shape = {rows, cols}}};
    struct ckpt_view out[4];
    int n = 0;
    ckpt_to_bf16(x, half, rows * cols);
    c.row_scales = fp8_scales(rows, cols, square);
    c.column_scales = fp8_scales(cols, c.pitch, square);
    c.row_scale = calloc((size_t)desc_numel(&c.row_scales), sizeof *c.row_scale);
    c.column_scale = calloc((size_t)desc_numel(&c.column_scales), sizeof *c.column_scale);
    c.by_rows = malloc((size_t)(rows * cols));
    c.by_columns = malloc((size_t)(c.pitch * cols));
    memset(c.by_columns, 0xff, (size_t)(c.pitch * cols));
    memset(c.row_scale, 0xff, (size_t)desc_bytes(&c.row_scales));
    memset(c.column_scale, 0xff, (size_t)desc_bytes(&c.column_scales));
    if (which & FP8_ROWS) {
        out[n++].data = c.row_scale;
        out[n++].data = c.by_rows;
    }
    if (which & FP8_COLUMNS) {
        out[n++].data = c.column_scale;
        out[n++].data = c.by_columns;
    }
    struct ckpt_kernel_args a = {
        .n_in = 1, .n_out = n, .in = &in, .out = out, .attr = &attr, .threads = 1};
    assert_int_equal(cpu_to_fp8_blocks(&a), 0);
    free(half);
    return c;
}

static void free_block_copies(struct block_copies *c)
{
    free(c->row_scale);
    free(c->column_scale);
    free(c->by_rows);
    free(c->by_columns);
}

static float row_scale(const struct block_copies *c, int64_t i, int64_t j)
{
    const int64_t ld = c->row_scales.shape[1];
    return c->square ? c->row_scale[i / 128 * ld + j / 128] : c->row_scale[j / 128 * ld + i];
}

static float column_scale(const struct block_copies *c, int64_t i, int64_t j)
{
    const int64_t ld = c->column_scales.shape[1];
    return c->square ? c->column_scale[j / 128 * ld + i / 128] : c->column_scale[i / 128 * ld + j];
}

/* The scale of a block that begins at (i, j), by the definition. */
static float scale_of(const float *x, int64_t rows, int64_t cols, int64_t i, int64_t j, int64_t n,
                      int64_t m)
{
    float most = 0.f;
    for (int64_t r = i; r < i + n && r < rows; r++)
        for (int64_t c = j; c < j + m && c < cols; c++)
            most = fmaxf(most, fabsf(x[r * cols + c]));
    return ldexpf(1.f, -fp8_exponent(float_bits(most), FP8_E4M3_TOP));
}

/* The expected scales of the copy by rows of x, one for each row and 128 columns; the transposed
 * copy has those of x transposed. */
static float *wanted(const float *x, int64_t rows, int64_t cols, bool square)
{
    const int64_t across = (cols + 127) / 128;
    float *want = calloc((size_t)(rows * across), sizeof *want);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < across; k++)
            want[i * across + k] = square && i % 128
                                       ? want[(i - 1) * across + k]
                                       : scale_of(x, rows, cols, i, k * 128, square ? 128 : 1, 128);
    return want;
}

static float *transposed(const float *x, int64_t rows, int64_t cols)
{
    float *y = calloc((size_t)(rows * cols), sizeof *y);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            y[j * rows + i] = x[i * cols + j];
    return y;
}

static void check_block_copies(int64_t rows, int64_t cols, bool square, float scale)
{
    const struct format *f = &formats[0];
    float *x = normal((uint32_t)(rows * cols), rows * cols, scale);
    for (int64_t i = 0; i < rows; i++) /* rows and columns differ in size */
        for (int64_t j = 0; j < cols; j++)
            x[i * cols + j] *= ldexpf(1.f, (int)((i * 7 + j / 5 * 3) % 23) - 11);
    float *turned = transposed(x, rows, cols), *down = wanted(x, rows, cols, square),
          *right = wanted(turned, cols, rows, square);
    struct block_copies c = copy_blocks(x, rows, cols, square, FP8_ROWS | FP8_COLUMNS);
    struct block_copies r = copy_blocks(x, rows, cols, square, FP8_ROWS);
    struct block_copies t = copy_blocks(x, rows, cols, square, FP8_COLUMNS);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const int64_t at = i * cols + j;
            const float a = down[i * ((cols + 127) / 128) + j / 128];
            const float b = right[j * ((rows + 127) / 128) + i / 128];
            assert_true(row_scale(&c, i, j) == a && column_scale(&c, i, j) == b);
            assert_int_equal(c.by_rows[at], code_of(f, x[at] / a));
            assert_int_equal(c.by_columns[j * c.pitch + i], code_of(f, x[at] / b));
        }
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = rows; i < c.pitch; i++)
            assert_int_equal(c.by_columns[j * c.pitch + i], 0);
    const int64_t ld = c.row_scales.shape[1];
    for (int64_t i = 0; i < c.row_scales.shape[0]; i++)
        for (int64_t j = square ? (cols + 127) / 128 : rows; j < ld; j++)
            assert_true(c.row_scale[i * ld + j] == 0.f);
    assert_memory_equal(r.by_rows, c.by_rows, (size_t)(rows * cols));
    assert_memory_equal(r.row_scale, c.row_scale, (size_t)desc_bytes(&c.row_scales));
    assert_memory_equal(t.by_columns, c.by_columns, (size_t)(c.pitch * cols));
    assert_memory_equal(t.column_scale, c.column_scale, (size_t)desc_bytes(&c.column_scales));
    free(x), free(turned), free(down), free(right);
    free_block_copies(&c);
    free_block_copies(&r);
    free_block_copies(&t);
}

static void test_block_copies(void **state)
{
    static const int64_t sizes[][2] = {{4, 16}, {21, 144}, {128, 128}, {259, 272}, {144, 656}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = -1; k <= 1; k++) {
            check_block_copies(sizes[i][0], sizes[i][1], false, ldexpf(1.f, 60 * k));
            check_block_copies(sizes[i][0], sizes[i][1], true, ldexpf(1.f, 60 * k));
        }
}

/* Zeros stay zeros; infinity and NaN make their block NaN and do not affect other blocks. */
static void test_block_extremes(void **state)
{
    enum { ROWS = 256, COLS = 384, AT = 130 * COLS + 140 };
    static const float odd[] = {INFINITY, -INFINITY, NAN, 0.f};
    (void)state;
    for (int square = 0; square < 2; square++)
        for (int k = 0; k < 4; k++) {
            float *x = normal(9, ROWS * COLS, k == 3 ? 0.f : 1.f);
            x[AT] = odd[k];
            struct block_copies c = copy_blocks(x, ROWS, COLS, square, FP8_ROWS | FP8_COLUMNS);
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t j = 0; j < COLS; j++) {
                    const bool there = k < 3 && j / 128 == 1 && (square ? i / 128 == 1 : i == 130);
                    const bool too = k < 3 && i / 128 == 1 && (square ? j / 128 == 1 : j == 140);
                    assert_int_equal(isnan(row_scale(&c, i, j)), there);
                    assert_int_equal(isnan(column_scale(&c, i, j)), too);
                    if (k == 3)
                        assert_true(row_scale(&c, i, j) == 1.f &&
                                    !(c.by_rows[i * COLS + j] & 0x7f));
                }
            free(x);
            free_block_copies(&c);
        }
}

/* GELU and its gradient fused into the copy: equal to the copies of their ops' stored results, and
 * sums. */
static void test_block_sources(void **state)
{
    enum { ROWS = 260, COLS = 144, N = ROWS * COLS };
    float *x = normal(1, N, 1.f), *u = normal(2, N, 2.f), *y = malloc(N * sizeof *y);
    uint16_t *half[3];
    (void)state;
    for (int i = 0; i < 3; i++)
        half[i] = malloc(N * sizeof **half);
    ckpt_to_bf16(x, half[0], N), ckpt_to_bf16(u, half[1], N);
    for (int source = FP8_GELU; source <= FP8_GELU_DX; source++) {
        const bool dx = source == FP8_GELU_DX;
        struct ckpt_view v[3];
        for (int i = 0; i < 3; i++) {
            v[i] =
                (struct ckpt_view){half[i], {.dtype = CKPT_BF16, .ndim = 2, .shape = {ROWS, COLS}}};
            desc_dense(&v[i].desc);
        }
        struct ckpt_kernel_args plain = {
            .n_in = 1 + dx, .n_out = 1, .in = v, .out = v + 2, .threads = 1};
        assert_int_equal((dx ? cpu_gelu_dx : cpu_gelu)(&plain), 0);
        cpu_load(y, half[2], CKPT_BF16, N);
        struct block_copies two = copy_blocks(y, ROWS, COLS, false, FP8_ROWS | FP8_COLUMNS);
        struct block_copies one = copy_blocks(x, ROWS, COLS, false, FP8_ROWS | FP8_COLUMNS);
        const struct to_fp8_attr attr = {CKPT_F8E4M3, FP8_ROWS | FP8_COLUMNS, FP8_LINE, false,
                                         source};
        float sums[COLS], parts[3 * COLS];
        struct ckpt_view out[] = {{one.row_scale, {0}},
                                  {one.by_rows, {0}},
                                  {one.column_scale, {0}},
                                  {one.by_columns, {0}},
                                  {sums, {0}}};
        struct ckpt_kernel_args a = {.n_in = 2,
                                     .n_out = 4 + dx,
                                     .extra = dx ? EXTRA_SUMS : 0,
                                     .in = v,
                                     .out = out,
                                     .attr = &attr,
                                     .workspace = parts,
                                     .workspace_bytes = sizeof parts,
                                     .threads = 1};
        assert_int_equal(cpu_to_fp8_blocks(&a), 0);
        assert_memory_equal(one.by_rows, two.by_rows, N);
        assert_memory_equal(one.by_columns, two.by_columns, (size_t)(two.pitch * COLS));
        assert_memory_equal(one.row_scale, two.row_scale, (size_t)desc_bytes(&two.row_scales));
        assert_memory_equal(one.column_scale, two.column_scale,
                            (size_t)desc_bytes(&two.column_scales));
        for (int64_t j = 0; j < COLS && dx; j++) {
            double sum = 0, norm = 0;
            for (int64_t i = 0; i < ROWS; i++) {
                sum += (double)y[i * COLS + j];
                norm += fabs((double)y[i * COLS + j]);
            }
            assert_true(fabs((double)sums[j] - sum) <= 1e-5 * norm);
        }
        free_block_copies(&one);
        free_block_copies(&two);
    }
    free(x), free(u), free(y);
    for (int i = 0; i < 3; i++)
        free(half[i]);
}

/* The products of copies by rows, c = a b^T: b is a weight, or has a row for each token. */
static void check_block_product(int64_t rows, int64_t cols, int64_t inner, bool square)
{
    float *a = normal(1, rows * inner, 1e-3f), *b = normal(2, cols * inner, 30.f);
    for (int64_t i = 0; i < rows * inner; i++)
        a[i] *= ldexpf(1.f, (int)(i / 100 % 13));
    struct block_copies qa = copy_blocks(a, rows, inner, false, FP8_ROWS);
    struct block_copies qb = copy_blocks(b, cols, inner, square, FP8_ROWS);
    float *y = calloc((size_t)(rows * cols), sizeof *y);
    const struct ckpt_view in[] = {
        {qa.by_rows, {.dtype = CKPT_F8E4M3, .ndim = 2, .shape = {rows, inner}}},
        {qa.row_scale, qa.row_scales},
        {qb.by_rows, {.dtype = CKPT_F8E4M3, .ndim = 2, .shape = {cols, inner}}},
        {qb.row_scale, qb.row_scales}};
    struct ckpt_view out = {y, {.dtype = CKPT_F32}};
    struct gemm g = fp8_gemm(in, CKPT_F32);
    void *workspace = calloc(1, (size_t)gemm_workspace(&g) + 1);
    struct ckpt_kernel_args args = {
        .n_in = 4, .n_out = 1, .in = in, .out = &out, .workspace = workspace, .threads = 1};
    assert_int_equal(cpu_linear_fp8_dw(&args), 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0, norm = 0;
            for (int64_t k = 0; k < inner; k++) {
                double term = (double)value_of(&formats[0], qa.by_rows[i * inner + k]) *
                              (double)row_scale(&qa, i, k) *
                              (double)value_of(&formats[0], qb.by_rows[j * inner + k]) *
                              (double)row_scale(&qb, j, k);
                sum += term;
                norm += fabs(term);
            }
            assert_true(fabs((double)y[i * cols + j] - sum) <= norm * 1e-6);
        }
    free(a), free(b), free(y), free(workspace);
    free_block_copies(&qa);
    free_block_copies(&qb);
}

static void test_block_products(void **state)
{
    static const int64_t sizes[][3] = {
        {4, 16, 16}, {36, 48, 160}, {132, 144, 528}, {16, 128, 2064}, {128, 128, 656}};
    (void)state;
    assert_int_equal(blas_open(1), 0);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int square = 0; square < 2; square++)
            check_block_product(sizes[k][0], sizes[k][1], sizes[k][2], square);
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

struct price {
    double tensor, block; /* relative errors, the root of the mean over rows of their squares */
};

/* Errors of a b^T against the product of the unrounded operands; a of tokens, b of weights or of
 * tokens. */
static struct price price(const struct format *fa, int64_t inner, enum values kind, bool square)
{
    enum { SIDE = 32 };
    float *a = draw_values(11, SIDE, inner, kind), *b = normal(12, SIDE * inner, 1.f);
    struct copies qa = copy(a, SIDE, inner, CKPT_BF16, fa->dtype, FP8_ROWS);
    struct copies qb = copy(b, SIDE, inner, CKPT_BF16, CKPT_F8E4M3, FP8_ROWS);
    struct block_copies ba = copy_blocks(a, SIDE, inner, false, FP8_ROWS);
    struct block_copies bb = copy_blocks(b, SIDE, inner, square, FP8_ROWS);
    struct price p = {0, 0};
    for (int64_t i = 0; i < SIDE; i++) {
        double norm = 0, square_tensor = 0, square_block = 0;
        for (int64_t j = 0; j < SIDE; j++) {
            double exact = 0, tensor = 0, block = 0;
            for (int64_t k = 0; k < inner; k++) {
                exact += (double)a[i * inner + k] * (double)b[j * inner + k];
                tensor += dequantised(&qa, fa, i, k) * dequantised(&qb, &formats[0], j, k);
                block += (double)value_of(&formats[0], ba.by_rows[i * inner + k]) *
                         (double)row_scale(&ba, i, k) *
                         (double)value_of(&formats[0], bb.by_rows[j * inner + k]) *
                         (double)row_scale(&bb, j, k);
            }
            norm += exact * exact;
            square_tensor += (tensor - exact) * (tensor - exact);
            square_block += (block - exact) * (block - exact);
        }
        p.tensor += square_tensor / norm / SIDE;
        p.block += square_block / norm / SIDE;
    }
    free(a), free(b);
    free_copies(&qa);
    free_copies(&qb);
    free_block_copies(&ba);
    free_block_copies(&bb);
    return (struct price){sqrt(p.tensor), sqrt(p.block)};
}

/* For normal values, as in doc/numerics.md: at most half an ulp, 2^-4 and 2^-3, for each factor. */
static void test_price(void **state)
{
    (void)state;
    for (int64_t inner = 128; inner <= 4096; inner *= 32) {
        const struct price forward = price(&formats[0], inner, NORMAL, true);
        const struct price backward = price(&formats[1], inner, NORMAL, false);
        print_message("summed over %lld: relative error of y %.4f, of dx and dw %.4f; with a scale "
                      "for each block %.4f, %.4f\n",
                      (long long)inner, forward.tensor, backward.tensor, forward.block,
                      backward.block);
        assert_true(forward.tensor > 0.03 && forward.tensor < 0.045);
        assert_true(backward.tensor > 0.05 && backward.tensor < 0.075);
        assert_true(forward.block > 0.03 && forward.block < 0.045);
        assert_true(backward.block > 0.03 && backward.block < 0.045);
    }
}

/* If values differ much in size, a scale per tensor loses accuracy; a scale per block does not. */
static void test_price_of_sizes(void **state)
{
    static const char *const names[] = {
        [SPREAD] = "rows between 1 and 2^-20", [OUTLIERS] = "a large one of 4,096 values"};
    (void)state;
    for (enum values kind = SPREAD; kind < VALUES; kind++) {
        const struct price forward = price(&formats[0], 4096, kind, true);
        const struct price backward = price(&formats[1], 4096, kind, false);
        print_message("%s: relative error of y %.4f, of dx and dw %.4f; with a scale for each "
                      "block %.4f, %.4f\n",
                      names[kind], forward.tensor, backward.tensor, forward.block, backward.block);
        assert_true(forward.block < forward.tensor && backward.block < backward.tensor);
        if (kind == SPREAD)
            assert_true(forward.block < 0.045 && backward.block < 0.045);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_copies),  cmocka_unit_test(test_block_extremes),
        cmocka_unit_test(test_block_sources), cmocka_unit_test(test_block_products),
        cmocka_unit_test(test_price),         cmocka_unit_test(test_price_of_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
