/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swaps weights and their moving average: see average.h.  A master weight and its average have the
 * same type; so do a bf16 parameter without a master and its average.  So each can store the other
 * exactly.
 */
#include <stdlib.h>
#include "average.h"
#include "memory.h"
#include "say.h"

static int swap_one(ckpt *c, ckpt_tensor w, int64_t n, float *value, float *mean)
{
    int rc = ckpt_param_get(c, w, CKPT_VALUE, value, n);

    if (!rc)
        rc = ckpt_param_get(c, w, CKPT_EMA, mean, n);
    if (rc)
        return rc;
    rc = ckpt_param_set(c, w, CKPT_VALUE, mean, n);
    if (!rc)
        rc = ckpt_param_set(c, w, CKPT_EMA, value, n);
    if (rc)
        ckpt_param_set(c, w, CKPT_VALUE, value, n);
    return rc;
}

/* Number of elements of a trainable parameter; 0: it is not trained. */
static int64_t trained(ckpt *c, int i, struct ckpt_param_info *info)
{
    *info = (struct ckpt_param_info)CKPT_PARAM_INFO_INIT;
    return !ckpt_param_info(c, ckpt_param_at(c, i), info) && info->trainable ? info->numel : 0;
}

/* Swaps the parameters with index below `end`. */
static int swap_first(ckpt *c, int end, float *value, float *mean, int *failed)
{
    struct ckpt_param_info info;

    for (int i = 0; i < end; i++) {
        int64_t n = trained(c, i, &info);
        if (n && swap_one(c, ckpt_param_at(c, i), n, value, mean)) {
            *failed = i;
            return say_fail("the moving average of %s cannot be used: %s", info.name,
                            ckpt_error(c));
        }
    }
    return 0;
}

int average_swap(ckpt *c)
{
    struct ckpt_param_info info;
    int64_t most = 0;
    int count = ckpt_param_count(c), failed;

    for (int i = 0; i < count; i++) {
        int64_t n = trained(c, i, &info);
        most = n > most ? n : most;
    }
    float *value = MEMORY_FOR(sizeof *value, most), *mean = MEMORY_FOR(sizeof *mean, most);
    int rc = value && mean ? swap_first(c, count, value, mean, &failed)
                           : say_fail("no memory for the moving average of a parameter");
    if (rc && value && mean)
        swap_first(c, failed, value, mean, &failed);
    free(value);
    free(mean);
    return rc;
}
