/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the reader of plan files: shared by the readers of its two versions. */
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

/* Reads `count` lines into an array that grows line by line; get reads one element. */
void get_list(struct reader *r, void **data, int32_t count, size_t size,
              void (*get)(struct reader *r, void *element));
int64_t get_offset(struct reader *r);
int32_t get_index(struct reader *r, int64_t least, int64_t most);

/* Reads a file of version 3 from the totals to the line after its lists, and converts the lists to
 * the record. */
void get_version_3(struct reader *r, void (*get_step)(struct reader *r, void *element));

#endif
