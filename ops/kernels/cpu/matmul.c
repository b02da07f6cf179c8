/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel: batched matrix products.  The bits do not depend on which thread computes a product. */
#include "cpu.h"
#include "kernels.h"
#include "matmul.h"
#include "workspace.h"

int cpu_matmul(const struct ckpt_kernel_args *a)
{
    struct matmul m = matmul_of(&a->in[0].desc, &a->in[1].desc, &a->out[0].desc, a->attr);
    const int64_t n = loops_count(&m.batch, m.batch.ndim), slots = matmul_slots(n);
    const int64_t bytes = matmul_slot_bytes(&m.g);
#pragma omp parallel for schedule(static) if (slots > 1)
    for (int64_t s = 0; s < slots; s++)
        for (int64_t i = s * n / slots; i < (s + 1) * n / slots; i++) {
            struct gemm g;
            matmul_seek(&m, a, m.batch.ndim, i, &g);
            gemm_run(&g, (char *)a->workspace + s * bytes);
        }
    return CKPT_OK;
}
