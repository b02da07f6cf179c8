/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of AdamW as training has them, for the tests of updates. */
#ifndef TESTS_UNIT_TYPICAL_UPDATE_H
#define TESTS_UNIT_TYPICAL_UPDATE_H

#include <math.h>
#include "optim/update_math.h"

static const struct update_constants typical = {.clip = 0.731f,
                                                .limit = INFINITY,
                                                .beta1 = 0.9f,
                                                .beta2 = 0.999f,
                                                .new1 = 0.1f,
                                                .new2 = 0.001f,
                                                .unbias1 = 5.263158f,
                                                .unbias2 = 500.25f,
                                                .eps = 1e-8f,
                                                .lr = 1.7e-3f,
                                                .weight_decay = 0.013f,
                                                .ema = 0.9999f,
                                                .new_ema = 1e-4f,
                                                .kind = UPDATE_ADAMW};

#endif
