/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: memory that is allocated in pieces and freed at once.  A search, a simulation
 * or a check has one pool for all its arrays.  A failed allocation is noted in the pool, so callers
 * check once, after several allocations.
 */
#ifndef CKPT_PLAN_POOL_H
#define CKPT_PLAN_POOL_H

#include "core/base.h"

/* Empty if it is zeroed. */
struct pool {
    struct pool_block *first;
    bool failed; /* an allocation failed */
};

/* An array of n + 1 zeroed elements; NULL without memory. */
void *pool_array(struct pool *m, int64_t n, size_t element);
/* Sets a pointer to such an array. */
#define POOL_ARRAY(m, array, n) ((array) = pool_array((m), (n), sizeof(*(array))))
/* An array of n + 1 elements of this value; NULL without memory. */
int32_t *pool_filled(struct pool *m, int64_t n, int32_t value);
/* An array that POOL_RESERVE or ARRAY_RESERVE makes larger. */
#define LIST(type)                                                                                 \
    struct {                                                                                       \
        type *data;                                                                                \
        int64_t capacity;                                                                          \
    }
/* As array_reserve, for an array that the pool frees. */
int pool_reserve(struct pool *m, void **data, int64_t *capacity, int64_t n, size_t element);
#define POOL_RESERVE(m, a, n)                                                                      \
    ((n) < (a)->capacity                                                                           \
         ? 0                                                                                       \
         : pool_reserve((m), (void **)&(a)->data, &(a)->capacity, (n), sizeof(*(a)->data)))

/* 0 or CKPT_ENOMEM. */
static inline int pool_status(const struct pool *m)
{
    return m->failed ? CKPT_ENOMEM : 0;
}

/* Frees all arrays; the pool is then empty. */
void pool_free(struct pool *m);

#endif
