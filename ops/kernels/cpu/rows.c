/* SPDX-License-Identifier: Apache-2.0 */
/* Row-wise kernels on the CPU, in chunks: see rows.h. */
#include "rows.h"

void rows_for_all(const struct rows *r, int64_t c, rows_leaf leaf, const void *extra)
{
    int64_t per = rows_per_chunk(c), chunks = (r->count + per - 1) / per;
#pragma omp parallel for schedule(static) if (chunks > 1)
    for (int64_t i = 0; i < chunks; i++) {
        struct row_run run;
        int64_t end = min_i64(r->count, (i + 1) * per);
        for (int64_t row = i * per; row < end; row += run.n) {
            rows_run(r, row, end, &run);
            leaf(&run, c, extra);
        }
    }
}
