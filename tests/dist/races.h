/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that no two queues of a program access the same bytes without an order. */
#ifndef TESTS_DIST_RACES_H
#define TESTS_DIST_RACES_H

#include "context/context.h"
#include "exec/program.h"

struct races {
    int64_t pairs; /* of accesses that nothing orders and of which one writes */
    char first[256];
    int64_t ahead; /* collectives that may run before a step that comes before them has ended */
    int64_t under; /* steps that may run before a collective that comes before them has ended */
};

/* Two whole steps.  without: an instruction to leave out, or -1.  False without memory. */
bool races_find(const struct ckpt_program *p, int32_t without, struct races *r);

#endif
