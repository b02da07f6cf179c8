/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers (running statistics) are replaced with the update, and only if their new values are
 * finite. */
#include "attr.h"
#include "ops.h"
#include "optim/optim.h"

/* Collects up to `limit` buffers that the step updates, starting at *i, which it advances.  Returns
 * their number. */
static int next_buffers(const ckpt_tape *t, int32_t *i, int limit, int32_t *param)
{
    int n = 0;
    for (; *i < t->n_params && n < limit; (*i)++)
        if (t->param_next[*i])
            param[n++] = *i;
    return n;
}

int optim_check_buffers(ckpt_tape *t, ckpt_tensor *sums)
{
    ckpt_tensor x[ASSIGN_PAIRS];
    int32_t param[ASSIGN_PAIRS], i = 0;
    int n, count = 0;
    while ((n = next_buffers(t, &i, ASSIGN_PAIRS, param)) > 0) {
        for (int k = 0; k < n; k++)
            x[k] = tape_handle(t, t->param_next[param[k]]);
        ckpt_tensor sum = ops_record1(t, &op_sum_squares, n, x, NULL, 0);
        sums[count++] = ckpt_affine(t, sum, 0.f, 0.f);
    }
    return count;
}

void optim_assign_buffers(ckpt_tape *t, ckpt_tensor clip)
{
    ckpt_tensor in[2 * ASSIGN_PAIRS + 1], out[ASSIGN_PAIRS];
    int32_t param[ASSIGN_PAIRS], i = 0;
    int n;
    while ((n = next_buffers(t, &i, ASSIGN_PAIRS, param)) > 0) {
        for (int k = 0; k < n; k++) {
            in[k] = tape_slot(t, param[k], STORAGE_VALUE);
            in[n + k] = tape_handle(t, t->param_next[param[k]]);
        }
        in[2 * n] = clip;
        ckpt_record(t, &op_assign, 2 * n + 1, in, n, out, NULL, 0);
    }
}
