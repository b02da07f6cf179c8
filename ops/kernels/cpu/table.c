/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the CPU: the scratch of its kernels, and its rows (kernels.def). */
#include "argsort.h"
#include "attention.h"
#include "attention_fold.h"
#include "collective.h"
#include "shapes/conv.h"
#include "shapes/group_norm.h"
#include "grouped_matmul.h"
#include "index_shape.h"
#include "kernels.h"
#include "kernels/common.h"
#include "kernels/kernel.h"
#include "kernels/parts.h"
#include "matmul.h"
#include "ops.h"
#include "optim/optim.h"
#include "rows.h"
#include "workspace.h"

/* ---- products -------------------------------------------------------------------------------- */

static int64_t linear_bytes(const struct ckpt_call *call)
{
    const struct gemm g = gemm_of_linear(call);
    return gemm_workspace(&g);
}

static int64_t linear_dx_bytes(const struct ckpt_call *call)
{
    const struct gemm g = gemm_of_dx(call);
    return gemm_workspace(&g);
}

static int64_t linear_dw_bytes(const struct ckpt_call *call)
{
    const struct gemm g = gemm_of_dw(call);
    return gemm_workspace(&g);
}

static int64_t linear_fp8_bytes(const struct ckpt_call *call)
{
    const struct gemm g = gemm_of_fp8(call, FP8_QX);
    return gemm_workspace(&g);
}

static int64_t linear_fp8_dx_bytes(const struct ckpt_call *call)
{
    const struct gemm g = gemm_of_fp8(call, 0);
    return gemm_workspace(&g);
}

static int64_t sums_bytes(const struct ckpt_desc *x)
{
    return column_sum_workspace(linear_rows(x), columns_of(x));
}

static int64_t column_sum_bytes(const struct ckpt_call *call)
{
    return sums_bytes(&call->in[0]);
}

/* A kernel's own scratch, or that of the column sums of out[0], which follow it. */
static int64_t with_sums(const struct ckpt_call *call, int64_t own)
{
    return extra_has(call->extra, EXTRA_SUMS) ? max_i64(own, sums_bytes(&call->out[0])) : own;
}

static int64_t dx_bytes(const struct ckpt_call *call)
{
    return with_sums(call, 0);
}

static int64_t linear_dx_gelu_bytes(const struct ckpt_call *call)
{
    return with_sums(call, linear_dx_bytes(call));
}

static int64_t linear_fp8_dx_gelu_bytes(const struct ckpt_call *call)
{
    return with_sums(call, linear_fp8_dx_bytes(call));
}

static int64_t linear_gated_bytes(const struct ckpt_call *call)
{
    return linear_bytes(call) + linear_gated_scratch(&call->out[0]);
}

static int64_t linear_dx_gated_bytes(const struct ckpt_call *call)
{
    return linear_dx_bytes(call) + (call->n_out > 2 ? 0 : linear_gated_scratch(&call->out[0]));
}

static int64_t to_fp8_bytes(const struct ckpt_call *call)
{
    return extra_has(call->extra, EXTRA_SUMS) ? sums_bytes(&call->in[0]) : 0;
}

static int64_t matmul_bytes(const struct ckpt_call *call)
{
    const struct matmul m = matmul_of(&call->in[0], &call->in[1], &call->out[0], call->attr);
    const int64_t products = desc_numel(&call->out[0]) / (m.g.rows * m.g.cols);
    return matmul_slots(products) * matmul_slot_bytes(&m.g);
}

static int64_t grouped_matmul_bytes(const struct ckpt_call *call)
{
    const struct grouped_attr *attr = call->attr;
    const struct gemm g = grouped_gemm(&call->in[0], &call->out[0], attr->transpose_w);
    return gemm_workspace_within(&g);
}

static int64_t grouped_matmul_dw_bytes(const struct ckpt_call *call)
{
    const struct gemm g = linear_dw_gemm(&call->in[0], &call->in[1], call->out[0].dtype);
    return gemm_workspace_within(&g);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static int64_t conv_bytes(const struct ckpt_call *call)
{
    const struct conv_shape s = conv_shape_forward(call->in, call->attr);
    return cpu_conv_workspace(&s, call->in[0].dtype);
}

static int64_t conv_dx_bytes(const struct ckpt_call *call)
{
    const struct conv_shape s = conv_shape_dx(call->in, call->attr);
    return cpu_conv_dx_workspace(&s, call->in[1].dtype);
}

static int64_t conv_dw_bytes(const struct ckpt_call *call)
{
    const struct conv_shape s = conv_shape_dw(call->in, call->attr);
    return cpu_conv_dw_workspace(&s, call->in[1].dtype);
}

/* ---- attention ------------------------------------------------------------------------------- */

static int64_t attention_bytes(const struct ckpt_call *call)
{
    const struct attention_job job =
        attention_job_of(&call->in[ATTENTION_Q], &call->in[ATTENTION_K]);
    return attention_forward_workspace(&job);
}

static int64_t attention_dx_bytes(const struct ckpt_call *call)
{
    const struct attention_job job =
        attention_job_of(&call->in[ATTENTION_Q], &call->in[ATTENTION_K]);
    return attention_backward_workspace(&job);
}

static int64_t attention_dbias_bytes(const struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[ATTENTION_Q];
    const struct attention_job job = attention_job_of(q, &call->in[ATTENTION_K]);
    const struct attention_fold f =
        attention_fold_of(q, &call->in[ATTENTION_DX_PLAIN + ATTENTION_BIAS]);
    return attention_bias_workspace(&job, f.units);
}

static int64_t cross_attention_bytes(const struct ckpt_call *call)
{
    const struct attention_job job = cross_attention_job_of(&call->in[0], &call->in[1]);
    return attention_forward_workspace(&job);
}

static int64_t cross_attention_dx_bytes(const struct ckpt_call *call)
{
    const struct attention_job job = cross_attention_job_of(&call->in[0], &call->in[1]);
    return attention_backward_workspace(&job);
}

/* ---- norms ----------------------------------------------------------------------------------- */

static int64_t group_norm_bytes(const struct ckpt_call *call)
{
    const struct group_norm_shape s = group_norm_shape(&call->in[0], call->attr);
    return cpu_group_norm_workspace(&s);
}

static int64_t group_norm_dx_bytes(const struct ckpt_call *call)
{
    const struct group_norm_shape s = group_norm_shape(&call->in[1], call->attr);
    return cpu_group_norm_dx_workspace(&s);
}

static int64_t group_norm_moments_bytes(const struct ckpt_call *call)
{
    const struct group_norm_shape s = group_norm_row_shape(&call->in[0], call->attr);
    return cpu_group_norm_workspace(&s);
}

static int64_t group_norm_apply_bytes(const struct ckpt_call *call)
{
    const struct group_norm_shape s = group_norm_shape(&call->in[0], call->attr);
    return cpu_group_norm_apply_workspace(&s);
}

/* Sums of the gradients of two vectors: {dy, x, vector}. */
static int64_t two_sums_bytes(const struct ckpt_call *call)
{
    return with_sums(call, rows_partial_bytes(&call->in[1], &call->in[2], 2));
}

/* {dy, gate, a} */
static int64_t gated_residual_dx_bytes(const struct ckpt_call *call)
{
    return with_sums(call, rows_partial_bytes(&call->in[2], &call->in[1], 1));
}

/* A total and a block sum for each chunk of rows. */
static int64_t rms_norm_dx_bytes(const struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[1];
    const int64_t chunks = rows_sum_chunks(linear_rows(x));
    return with_sums(call, chunks * 2 * columns_of(x) * (int64_t)sizeof(float));
}

/* ---- lookups, reductions, losses ------------------------------------------------------------- */

/* Two buffers of (key, index) pairs for each of the groups of rows that threads sort at once. */
static int64_t argsort_bytes(const struct ckpt_call *call)
{
    const int64_t rows = linear_rows(&call->in[0]), n = columns_of(&call->in[0]);
    return min_i64(rows, SORT_SLOTS) * 2 * n * (int64_t)sizeof(uint64_t);
}

/* The list of uses of each position: offsets and entries. */
static int64_t index_add_bytes(const struct ckpt_call *call)
{
    const struct index_attr *attr = call->attr;
    const struct ckpt_desc *index = &call->in[1];
    const struct index_shape s =
        index_rows(&call->in[0], index, attr->axis, attr->size, index->ndim);
    return (s.size + 2 + s.n) * (int64_t)sizeof(int32_t);
}

static int64_t sum_bytes(const struct ckpt_call *call)
{
    return cpu_reduce_workspace(&call->in[0], &call->out[0]);
}

/* All tensors use the same scratch in turn. */
static int64_t sum_squares_bytes(const struct ckpt_call *call)
{
    int64_t chunks = 0;
    for (int i = 0; i < call->n_in; i++)
        chunks = max_i64(chunks, optim_chunks(&call->in[i]));
    return chunk_bytes(chunks);
}

const struct kernel cpu_kernels[KERNEL_ROWS + 1] = {
#define OP_BY(name, kernel) [ROW_##name].op = &op_##name, [ROW_##name].run = cpu_##kernel,
#define OP(name)            OP_BY(name, name)
#define OP_ALONE(name)
#include "ops.def"
#define KERNEL(name, bytes, more) [ROW_##name].workspace = bytes, [ROW_##name].can = more,
#include "kernels/cpu/kernels.def"
};
