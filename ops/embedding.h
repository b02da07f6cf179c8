/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of the timestep embedding. */
#ifndef CKPT_OPS_EMBEDDING_H
#define CKPT_OPS_EMBEDDING_H

#include <stdint.h>

struct timestep_attr {
    int64_t dim;
    float max_period;
    int32_t dtype;
};

#endif
