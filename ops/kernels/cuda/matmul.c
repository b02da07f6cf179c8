/* SPDX-License-Identifier: Apache-2.0 */
/* Batched matrix products: one launch covers the innermost of the merged batch axes. */
#include "kernels/cuda/attention/attention_workspace.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kernels.h"
#include "matmul.h"

int cuda_matmul(const struct ckpt_kernel_args *a)
{
    struct matmul m = matmul_of(&a->in[0].desc, &a->in[1].desc, &a->out[0].desc, a->attr);
    const int last = m.batch.ndim - 1;
    const int64_t outer = loops_count(&m.batch, last), size = m.batch.shape[last];
    const int64_t *const step[] = {m.batch.stride[1], m.batch.stride[2], m.batch.stride[0]};
    struct gemm_batch batch = {.row = {m.g.a.ld, m.g.b.ld, m.g.cols}};
    for (int k = 0; k < 3; k++)
        batch.step[k] = step[k][last];
    for (int64_t i = 0; i < outer; i++)
        for (int64_t first = 0; first < size; first += CUDA_WIDE_BATCH) {
            struct gemm g;
            batch.count = min_i64(CUDA_WIDE_BATCH, size - first);
            matmul_seek(&m, a, m.batch.ndim, i * size + first, &g);
            int rc = cuda_gemm_batch(a, &g, &batch);
            if (rc)
                return rc;
        }
    return CKPT_OK;
}
