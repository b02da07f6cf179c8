/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of uses: see uses.h. */
#include "tape/uses.h"
#include <stdlib.h>

int uses_reserve(struct uses *u, int64_t operands, int64_t tensors, int64_t storages)
{
    return ARRAY_RESERVE(&u->reads, operands) | ARRAY_RESERVE(&u->of, tensors) |
           ARRAY_RESERVE(&u->on, storages);
}

void uses_free(struct uses *u)
{
    free(u->reads.data);
    free(u->of.data);
    free(u->on.data);
}

static void put_on(struct uses *u, int32_t x, int32_t storage)
{
    u->of.data[x].older = u->on.data[storage];
    u->on.data[storage] = x;
}

void uses_add_tensor(struct uses *u, int32_t x, int32_t storage)
{
    u->of.data[x] = (struct tensor_uses){.first = -1, .last = -1};
    put_on(u, x, storage);
}

void uses_move_tensor(struct uses *u, int32_t x, int32_t from, int32_t to)
{
    int32_t *at = &u->on.data[from];
    while (*at != x)
        at = &u->of.data[*at].older;
    *at = u->of.data[x].older;
    put_on(u, x, to);
}

static int32_t *link_to(struct uses *u, int32_t x, int32_t before)
{
    return before >= 0 ? &u->reads.data[before].next : &u->of.data[x].first;
}

static int32_t *link_back(struct uses *u, int32_t x, int32_t next)
{
    return next >= 0 ? &u->reads.data[next].before : &u->of.data[x].last;
}

void uses_enter(struct uses *u, int32_t entry, int32_t x, int32_t i)
{
    int32_t before = u->of.data[x].last; /* ops are mostly entered in their order */
    while (before >= 0 && u->reads.data[before].op > i)
        before = u->reads.data[before].before;
    int32_t *to = link_to(u, x, before);
    u->reads.data[entry] = (struct use){.op = i, .before = before, .next = *to};
    *link_back(u, x, *to) = entry;
    *to = entry;
    u->of.data[x].n++;
}

void uses_leave(struct uses *u, int32_t entry, int32_t x)
{
    const struct use *use = &u->reads.data[entry];
    *link_to(u, x, use->before) = use->next;
    *link_back(u, x, use->next) = use->before;
    u->of.data[x].n--;
}

void uses_clear(struct uses *u, int32_t n)
{
    for (int32_t x = 0; x < n; x++) {
        struct tensor_uses *of = &u->of.data[x];
        of->first = of->last = -1;
        of->n = 0;
    }
}
