/* SPDX-License-Identifier: Apache-2.0 */
/* The table of CUDA, in every build: the scratch of its kernels, and its rows (kernels.def). */
#include "collective.h"
#include "shapes/conv.h"
#include "shapes/group_norm.h"
#include "kernels/common.h"
#include "kernels/cuda/attention/attention_workspace.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/segments.h"
#include "kernels/cuda/workspace.h"
#include "kernels/kernel.h"
#include "ops.h"

/* ---- products -------------------------------------------------------------------------------- */

static int64_t product_bytes(struct gemm g)
{
    return cuda_gemm_workspace(g.rows, g.cols);
}

static int64_t linear_bytes(const struct ckpt_call *call)
{
    return product_bytes(gemm_of_linear(call));
}

static int64_t linear_dx_bytes(const struct ckpt_call *call)
{
    return product_bytes(gemm_of_dx(call));
}

static int64_t linear_dw_bytes(const struct ckpt_call *call)
{
    return product_bytes(gemm_of_dw(call));
}

static int64_t linear_fp8_bytes(const struct ckpt_call *call)
{
    return product_bytes(gemm_of_fp8(call, FP8_QX));
}

static int64_t linear_fp8_dx_bytes(const struct ckpt_call *call)
{
    return product_bytes(gemm_of_fp8(call, 0));
}

static int64_t sums_bytes(const struct ckpt_desc *x)
{
    return cuda_column_sum_workspace(linear_rows(x), columns_of(x));
}

static int64_t column_sum_bytes(const struct ckpt_call *call)
{
    return sums_bytes(&call->in[0]);
}

static bool has_sums(const struct ckpt_call *call)
{
    return extra_has(call->extra, EXTRA_SUMS);
}

static int64_t gelu_dx_bytes(const struct ckpt_call *call)
{
    return has_sums(call) ? sums_bytes(&call->out[0]) : 0;
}

/* A product and, if requested, column sums of its result: in its epilogue or separately. */
static int64_t product_and_sums(const struct ckpt_call *call, int64_t product)
{
    const struct ckpt_desc *y = &call->out[0];
    if (!has_sums(call))
        return product;
    return max_i64(product,
                   max_i64(sums_bytes(y), cuda_gelu_sums_workspace(linear_rows(y), columns_of(y))));
}

static int64_t linear_dx_gelu_bytes(const struct ckpt_call *call)
{
    return product_and_sums(call, linear_dx_bytes(call));
}

static int64_t linear_fp8_dx_gelu_bytes(const struct ckpt_call *call)
{
    return product_and_sums(call, linear_fp8_dx_bytes(call));
}

/* The column sums of each tile of rows, and the scratch to add them. */
static int64_t to_fp8_bytes(const struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0];
    const int64_t down = (linear_rows(x) + FP8_LINE - 1) / FP8_LINE, cols = columns_of(x);
    if (!has_sums(call))
        return 0;
    return max_i64(sums_bytes(x),
                   down * cols * (int64_t)sizeof(float) + cuda_column_sum_workspace(down, cols));
}

static int64_t matmul_bytes(const struct ckpt_call *call)
{
    const int64_t cols = columns_of(&call->out[0]);
    return cuda_gemm_workspace(desc_numel(&call->out[0]) / cols, cols);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static int64_t conv_bytes(const struct ckpt_call *call)
{
    const struct conv_shape s = conv_shape_forward(call->in, call->attr);
    return cuda_conv_workspace(&s, call->in[0].dtype);
}

static int64_t conv_dx_bytes(const struct ckpt_call *call)
{
    const struct conv_shape s = conv_shape_dx(call->in, call->attr);
    return cuda_conv_workspace(&s, call->in[1].dtype);
}

static int64_t conv_dw_bytes(const struct ckpt_call *call)
{
    const struct conv_shape s = conv_shape_dw(call->in, call->attr);
    return cuda_conv_dw_workspace(&s, call->in[1].dtype);
}

/* ---- attention ------------------------------------------------------------------------------- */

static int64_t attention_bytes(const struct ckpt_call *call)
{
    return cuda_attention_workspace(&call->in[ATTENTION_Q], &call->in[ATTENTION_K]);
}

static int64_t attention_dx_bytes(const struct ckpt_call *call)
{
    return cuda_attention_dx_workspace(&call->in[ATTENTION_Q], &call->in[ATTENTION_K],
                                       !call->deterministic);
}

static int64_t cross_attention_dx_bytes(const struct ckpt_call *call)
{
    return cuda_attention_own_dx_workspace(&call->in[0], &call->in[1], true);
}

/* ---- norms ----------------------------------------------------------------------------------- */

static int64_t group_norm_bytes(const struct ckpt_call *call)
{
    const struct group_norm_shape s = group_norm_shape(&call->in[0], call->attr);
    return cuda_group_norm_workspace(&s, call->in[0].dtype);
}

static int64_t group_norm_dx_bytes(const struct ckpt_call *call)
{
    const struct group_norm_shape s = group_norm_shape(&call->in[1], call->attr);
    return cuda_group_norm_dx_workspace(&s, call->in[1].dtype);
}

static int64_t group_norm_moments_bytes(const struct ckpt_call *call)
{
    const struct group_norm_shape s = group_norm_row_shape(&call->in[0], call->attr);
    return cuda_group_norm_rows_workspace(&s);
}

/* {dy, x, scale} -> dx and the sums of two vectors. */
static int64_t two_sums_bytes(const struct ckpt_call *call)
{
    return cuda_row_sums_workspace(&call->in[1], &call->in[2], 2, has_sums(call));
}

/* {dy, gate, a} */
static int64_t gated_residual_dx_bytes(const struct ckpt_call *call)
{
    return cuda_row_sums_workspace(&call->in[2], &call->in[1], 1, has_sums(call));
}

static int64_t layer_norm_dx_bytes(const struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[1];
    return has_sums(call) ? cuda_sums_workspace(1, linear_rows(x), columns_of(x), 0, true) : 0;
}

/* The larger scratch of two kernels, for short rows and for any rows. */
static int64_t layer_norm_affine_dx_bytes(const struct ckpt_call *call)
{
    const int64_t rows = linear_rows(&call->in[1]), c = columns_of(&call->in[1]);
    return max_i64(2 * cuda_weight_sums_workspace(rows, c),
                   cuda_sums_workspace(1, rows, c, 2, has_sums(call)));
}

/* As above; the kernel for short rows writes no column sums. */
static int64_t rms_norm_dx_bytes(const struct ckpt_call *call)
{
    const int64_t rows = linear_rows(&call->in[1]), c = columns_of(&call->in[1]);
    const int64_t any = cuda_sums_workspace(1, rows, c, 1, has_sums(call));
    return has_sums(call) ? any : max_i64(cuda_weight_sums_workspace(rows, c), any);
}

/* ---- lookups, reductions, losses ------------------------------------------------------------- */

static int64_t argsort_bytes(const struct ckpt_call *call)
{
    return cuda_argsort_workspace(linear_rows(&call->in[0]), columns_of(&call->in[0]));
}

static int64_t index_add_bytes(const struct ckpt_call *call)
{
    const struct index_attr *attr = call->attr;
    const struct ckpt_desc *index = &call->in[1];
    const struct index_shape s =
        index_rows(&call->in[0], index, attr->axis, attr->size, index->ndim);
    return cuda_index_add_workspace(&s);
}

static int64_t scatter_bytes(const struct ckpt_call *call)
{
    const struct index_attr *attr = call->attr;
    const struct index_shape s = index_lanes(&call->in[1], attr->axis, attr->size);
    return cuda_scatter_workspace(&s);
}

static int64_t sum_bytes(const struct ckpt_call *call)
{
    return cuda_reduce_workspace(&call->in[0], &call->out[0]);
}

static int64_t pack_bytes(const struct ckpt_call *call)
{
    return cuda_pack_workspace(desc_numel(&call->in[1]));
}

static int64_t sum_squares_bytes(const struct ckpt_call *call)
{
    return cuda_sum_squares_workspace(call->in, call->n_in);
}

static int64_t clip_bytes(const struct ckpt_call *call)
{
    (void)call;
    return cuda_clip_workspace();
}

/* Rows of a build without CUDA have no function to run. */
#ifdef HAVE_CUDA
#define RUN(kernel) cuda_##kernel
#else
#define RUN(kernel) NULL
#endif

const struct kernel cuda_kernels[KERNEL_ROWS + 1] = {
#define OP_BY(name, kernel) [ROW_##name].op = &op_##name, [ROW_##name].run = RUN(kernel),
#define OP(name)            OP_BY(name, name)
#define OP_ALONE(name)
#include "ops.def"
#define KERNEL(name, bytes, more) [ROW_##name].workspace = bytes, [ROW_##name].can = more,
#include "kernels/cuda/kernels.def"
};
