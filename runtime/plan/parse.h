/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the reader of plan files: what its two versions share. */
#ifndef CKPT_PLAN_PARSE_H
#define CKPT_PLAN_PARSE_H

#include "plan/graph/lines.h"
#include "plan/plan.h"

struct reader {
    struct lines *l;
    const struct graph *g;
    struct plan *p;
    bool old; /* version 3 */
};

/* Gets a line each of what stands in an array that grows with them. */
void get_list(struct reader *r, void **data, int32_t count, size_t size,
              void (*get)(struct reader *r, void *element));
int64_t get_offset(struct reader *r);
int32_t get_index(struct reader *r, int64_t least, int64_t most);

/* The rest of a file of version 3 behind the totals, up to the line behind its lists: makes the
 * record of what stands there. */
void get_version_3(struct reader *r, void (*get_step)(struct reader *r, void *element));

#endif
