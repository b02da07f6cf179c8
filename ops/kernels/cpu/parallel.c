/* SPDX-License-Identifier: Apache-2.0 */
/* Parallel loops of CPU kernels: see ckpt_op.h. */
#ifdef _OPENMP
#include <omp.h>
#endif
#include "core/base.h"
#include "ckpt_op.h"

static int thread_number(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

void ckpt_parallel_for(const struct ckpt_kernel_args *a, int64_t n, int64_t piece, ckpt_loop body,
                       void *user)
{
    if (n <= 0 || !body)
        return;
    piece = max_i64(1, piece);
    int64_t pieces = (n - 1) / piece + 1;
    int threads = (int)min_i64(a && a->threads > 0 ? a->threads : 1, pieces);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < pieces; i++)
        body(i * piece, min_i64(n, (i + 1) * piece), thread_number(), user);
}
