/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of linear layers: y = x w^T + b, and the gradients of x, w and b.  All products are
 * struct gemm, with [..., K] viewed as rows of K; linear_gemm() and the similar functions say which
 * operand is transposed, for the shape rules and CUDA as well.  Column sums consist of at most
 * CHUNKS partial sums, divided by the number of rows alone and added in order, so the bits do not
 * depend on the number of threads.
 */
#include "core/fp8.h"
#include "attr.h"
#include "cpu.h"
#include "kernels.h"
#include "linear.h"

int64_t linear_rows(const struct ckpt_desc *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->ndim - 1; i++)
        rows *= x->shape[i];
    return rows;
}

struct gemm linear_gemm(const struct ckpt_desc *x, const struct ckpt_desc *w)
{
    return (struct gemm){.rows = linear_rows(x),
                         .cols = w->shape[0],
                         .inner = w->shape[1],
                         .a = {.dtype = x->dtype},
                         .b = {.dtype = w->dtype, .transposed = true},
                         .c_dtype = x->dtype};
}

struct gemm linear_dx_gemm(const struct ckpt_desc *dy, const struct ckpt_desc *w)
{
    return (struct gemm){.rows = linear_rows(dy),
                         .cols = w->shape[1],
                         .inner = w->shape[0],
                         .a = {.dtype = dy->dtype},
                         .b = {.dtype = w->dtype},
                         .c_dtype = w->dtype};
}

struct gemm linear_dw_gemm(const struct ckpt_desc *dy, const struct ckpt_desc *x,
                           enum ckpt_dtype dtype)
{
    return (struct gemm){.rows = dy->shape[dy->ndim - 1],
                         .cols = x->shape[x->ndim - 1],
                         .inner = linear_rows(x),
                         .a = {.dtype = dy->dtype, .transposed = true},
                         .b = {.dtype = x->dtype},
                         .c_dtype = dtype};
}

/* Derived from the shape of the scales, [K / 128, n] or [n / 128, K / 128], rounded up: these
 * differ for n >= 16. */
static enum gemm_scaling scaling_of(const struct ckpt_desc *scale, const struct ckpt_desc *codes)
{
    if (scale->ndim < 1)
        return SCALE_ALL;
    const int64_t blocks = (codes->shape[codes->ndim - 1] + FP8_BLOCK - 1) / FP8_BLOCK;
    return scale->shape[0] == blocks && scale->shape[1] >= linear_rows(codes) ? SCALE_ROWS
                                                                              : SCALE_BLOCKS;
}

static struct gemm_operand fp8_operand(const struct ckpt_view *in, bool transposed)
{
    const struct ckpt_desc *scale = &in[1].desc;
    return (struct gemm_operand){.data = in[0].data,
                                 .dtype = in[0].desc.dtype,
                                 .transposed = transposed,
                                 .scale = in[1].data,
                                 .scaling = scaling_of(scale, &in[0].desc),
                                 .scale_ld = scale->ndim < 1 ? 0 : scale->shape[1]};
}

struct gemm fp8_gemm(const struct ckpt_view *in, enum ckpt_dtype dtype)
{
    const struct ckpt_desc *a = &in[0].desc, *b = &in[2].desc;
    return (struct gemm){.rows = linear_rows(a),
                         .cols = b->shape[0],
                         .inner = b->shape[1],
                         .a = fp8_operand(in, false),
                         .b = fp8_operand(in + 2, true),
                         .c_dtype = dtype};
}

static int run(struct gemm *g, const struct ckpt_kernel_args *a)
{
    g->a.data = a->in[0].data;
    g->b.data = a->in[1].data;
    g->c = a->out[0].data;
    gemm_run(g, a->workspace);
    return CKPT_OK;
}

int cpu_linear(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_gemm(&a->in[0].desc, &a->in[1].desc);
    g.bias = a->in[2].data;
    g.addend = a->n_in > 3 ? a->in[3].data : NULL;
    return run(&g, a);
}

int cpu_linear_dx(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_dx_gemm(&a->in[0].desc, &a->in[1].desc);
    g.addend = a->in[2].data;
    return run(&g, a);
}

int cpu_linear_dw(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_dw_gemm(&a->in[0].desc, &a->in[1].desc, a->out[0].desc.dtype);
    g.accumulate = a->accumulate;
    return run(&g, a);
}

/* ---- GELU epilogues -------------------------------------------------------------------------- */

int linear_gelu_by_parts(const struct ckpt_kernel_args *a, const struct linear_gelu_parts *parts)
{
    struct ckpt_kernel_args product = *a, gelu = *a;
    const struct ckpt_view *pre = &a->out[a->out[0].data ? 0 : 1];
    product.n_out = gelu.n_in = gelu.n_out = 1;
    product.out = gelu.in = pre;
    gelu.out = &a->out[1];
    const int rc = pre->data ? parts->product(&product) : CKPT_OK;
    return rc || !a->out[1].data ? rc : parts->gelu(&gelu);
}

/* The product's result is overwritten by the gradient of GELU.  An extra output for the largest
 * magnitude is written by that kernel. */
int linear_dx_gelu_by_parts(const struct ckpt_kernel_args *a, const struct linear_gelu_parts *parts)
{
    const struct linear_dx_gelu_attr *attr = a->attr;
    const struct ckpt_view pre = a->in[parts->pre], of_dx[] = {a->out[0], pre};
    struct ckpt_view of_product[LINEAR_DX_OPERANDS + 1];
    struct ckpt_kernel_args product = *a, dx = *a, gelu = *a;
    memcpy(of_product, a->in, (size_t)parts->pre * sizeof *of_product);
    of_product[parts->pre] = (struct ckpt_view){.desc = {.ndim = -1}}; /* no addend */
    product.in = of_product;
    product.n_out = gelu.n_in = gelu.n_out = 1;
    dx.in = of_dx;
    dx.n_in = 2;
    dx.n_out = a->n_out - attr->post;
    gelu.in = &pre;
    gelu.out = &a->out[1 + attr->sums];
    int rc = parts->product(&product);
    if (!rc)
        rc = (attr->sums ? parts->dx_sums : parts->dx)(&dx);
    return rc || !attr->post ? rc : parts->gelu(&gelu);
}

int cpu_linear_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {.product = cpu_linear, .gelu = cpu_gelu};
    return linear_gelu_by_parts(a, &parts);
}

int cpu_linear_dx_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {.product = cpu_linear_dx,
                                                   .gelu = cpu_gelu,
                                                   .dx = cpu_gelu_dx,
                                                   .dx_sums = cpu_gelu_dx_sums,
                                                   .pre = 2};
    return linear_dx_gelu_by_parts(a, &parts);
}

/* ---- gate epilogues -------------------------------------------------------------------------- */

int64_t linear_gated_scratch(const struct ckpt_desc *gate)
{
    return round_up(desc_bytes(gate), GATED_ALIGN);
}

/* Calls a kernel with one result and the workspace after the first `taken` bytes. */
static int call_part(const struct ckpt_kernel_args *a, ckpt_kernel kernel, int n_in,
                     const struct ckpt_view *in, const struct ckpt_view *out, int64_t taken)
{
    struct ckpt_kernel_args own = *a;
    struct ckpt_view result = *out;
    own.n_in = n_in;
    own.in = in;
    own.n_out = 1;
    own.out = &result;
    own.workspace = (char *)a->workspace + taken;
    own.workspace_bytes = a->workspace_bytes - taken;
    return kernel(&own);
}

/* Places an absent result into the workspace and sets *taken to its bytes.  Fails if the workspace
 * is too small. */
static int place_in_workspace(const struct ckpt_kernel_args *a, struct ckpt_view *result,
                              int64_t *taken)
{
    *taken = linear_gated_scratch(&result->desc);
    if (a->workspace_bytes < *taken)
        return CKPT_EDEVICE;
    result->data = a->workspace;
    return CKPT_OK;
}

/* If gate is absent, it is computed in h, where its SiLU is computed, too. */
int linear_gated_by_parts(const struct ckpt_kernel_args *a, const struct linear_gated_parts *parts)
{
    const struct ckpt_view none = {.desc = {.ndim = -1}}, h = a->out[2];
    const struct ckpt_view of_gate[] = {a->in[0], a->in[1], none};
    const struct ckpt_view of_up[] = {a->in[0], a->in[2], none};
    struct ckpt_view up = a->out[1];
    const struct ckpt_view gate = a->out[0].data ? a->out[0] : h;
    int64_t taken = 0;
    int rc = h.data && !up.data ? place_in_workspace(a, &up, &taken) : CKPT_OK;
    if (!rc && gate.data)
        rc = call_part(a, parts->product, 3, of_gate, &gate, taken);
    if (!rc && up.data)
        rc = call_part(a, parts->product, 3, of_up, &up, taken);
    if (!rc && h.data)
        rc = call_part(a, parts->silu, 1, &gate, &h, taken);
    if (!rc && h.data)
        rc = call_part(a, parts->mul, 2, (struct ckpt_view[]){h, up}, &h, taken);
    return rc;
}

/* The gradient of h is first stored in dup. */
int linear_dx_gated_by_parts(const struct ckpt_kernel_args *a,
                             const struct linear_gated_parts *parts)
{
    const struct ckpt_view none = {.desc = {.ndim = -1}}, gate = a->in[2], up = a->in[3];
    const struct ckpt_view of_product[] = {a->in[0], a->in[1], none};
    const struct ckpt_view *dgate = &a->out[0], *dup = &a->out[1];
    struct ckpt_view silu = a->n_out > 2 ? a->out[2] : (struct ckpt_view){.desc = gate.desc};
    int64_t taken = 0;
    int rc = silu.data ? CKPT_OK : place_in_workspace(a, &silu, &taken);
    if (!rc)
        rc = call_part(a, parts->product, 3, of_product, dup, taken);
    if (!rc)
        rc = call_part(a, parts->mul, 2, (struct ckpt_view[]){*dup, up}, dgate, taken);
    if (!rc)
        rc = call_part(a, parts->silu_dx, 2, (struct ckpt_view[]){*dgate, gate}, dgate, taken);
    if (!rc)
        rc = call_part(a, parts->silu, 1, &gate, &silu, taken);
    if (!rc)
        rc = call_part(a, parts->mul, 2, (struct ckpt_view[]){*dup, silu}, dup, taken);
    if (!rc && a->n_out > 2)
        rc = call_part(a, parts->mul, 2, (struct ckpt_view[]){silu, up}, &silu, taken);
    return rc;
}

int cpu_linear_gated(const struct ckpt_kernel_args *a)
{
    static const struct linear_gated_parts parts = {
        .product = cpu_linear, .silu = cpu_silu, .mul = cpu_mul};
    return linear_gated_by_parts(a, &parts);
}

int cpu_linear_dx_gated(const struct ckpt_kernel_args *a)
{
    static const struct linear_gated_parts parts = {
        .product = cpu_linear_dx, .silu = cpu_silu, .mul = cpu_mul, .silu_dx = cpu_silu_dx};
    return linear_dx_gated_by_parts(a, &parts);
}

/* ---- column_sum: partial sums of chunks of rows, added in order -------------------------- */

enum { CHUNKS = 16, CHUNK_ROWS = 64, BLOCK_ROWS = 32, BLOCK_COLS = 512 };

static int64_t chunk_count(int64_t rows)
{
    return min_i64((rows + CHUNK_ROWS - 1) / CHUNK_ROWS, CHUNKS);
}

int64_t column_sum_workspace(int64_t rows, int64_t cols)
{
    return chunk_count(rows) * cols * (int64_t)sizeof(float);
}

CKPT_CLONES static void add_rows_f32(float *restrict sum, const float *restrict x, int64_t ld,
                                     int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            sum[j] += x[i * ld + j];
}

CKPT_CLONES static void add_rows_bf16(float *restrict sum, const uint16_t *restrict x, int64_t ld,
                                      int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            sum[j] += bf16_load(x[i * ld + j]);
}

/* sum = rows [begin, end) of x, in blocks: short partial sums keep the rounding error small. */
static void sum_rows(float *sum, const struct ckpt_view *x, int64_t begin, int64_t end,
                     int64_t cols)
{
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t i = begin; i < end; i += BLOCK_ROWS) {
        int64_t rows = min_i64(BLOCK_ROWS, end - i);
        for (int64_t j = 0; j < cols; j += BLOCK_COLS) {
            float block[BLOCK_COLS] = {0};
            int64_t n = min_i64(BLOCK_COLS, cols - j), at = i * cols + j;
            if (x->desc.dtype == CKPT_BF16)
                add_rows_bf16(block, (const uint16_t *)x->data + at, cols, rows, n);
            else
                add_rows_f32(block, (const float *)x->data + at, cols, rows, n);
            add_rows_f32(sum + j, block, n, 1, n);
        }
    }
}

int cpu_column_sum(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[0];
    const int64_t rows = linear_rows(&x->desc), cols = x->desc.shape[x->desc.ndim - 1];
    const int64_t chunks = chunk_count(rows);
    float *partial = a->workspace, *out = a->out[0].data;
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t c = 0; c < chunks; c++)
        sum_rows(partial + c * cols, x, c * rows / chunks, (c + 1) * rows / chunks, cols);
    add_rows_f32(partial, partial + cols, cols, chunks - 1, cols);
    if (a->accumulate)
        add_rows_f32(out, partial, cols, 1, cols);
    else
        memcpy(out, partial, (size_t)cols * sizeof *out);
    return CKPT_OK;
}

int cpu_with_dx_sums(const struct ckpt_kernel_args *a, int n, ckpt_kernel dx)
{
    struct ckpt_kernel_args own = *a, sums = *a;
    own.n_out = n;
    sums.n_in = sums.n_out = 1;
    sums.in = &a->out[0];
    sums.out = &a->out[n];
    const int rc = dx(&own);
    return cpu_write_largest(a, n + 1, rc ? rc : cpu_column_sum(&sums));
}
