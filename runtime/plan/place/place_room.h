/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside placement: the address ranges in use over time, a structure that finds the lowest hole for
 * an item without looking at every placed item.
 *
 * It is a segment tree over the sections.  The lifetime of a placed item is the union of few nodes.
 * A node has two lists of extents: `through`, addresses in use in all of its sections by items
 * assigned to this node, and `somewhere`, addresses in use in at least one of its sections. Extents
 * of a list neither overlap nor touch.  Lists are short, because tightly packed items form one
 * extent.
 */
#ifndef CKPT_PLAN_PLACE_ROOM_H
#define CKPT_PLAN_PLACE_ROOM_H

#include "plan/pool.h"

struct extent {
    int64_t begin, end;
};

/* Sorted by address, with gaps between them. */
struct extents {
    struct extent *data;
    int32_t n, capacity;
};

struct room_node {
    struct extents somewhere, through;
};

struct room {
    int32_t leaves; /* a power of two; leaf k is node leaves + k; children of v are 2 v, 2 v + 1 */
    struct room_node *nodes;
    struct pool *memory; /* of the extents */
    struct extent *free;
    int64_t left; /* number of unused extents from free on, at the end of the last block */
    int64_t work; /* nodes and extents inspected since room_init */
};

/* Sections [lower, upper). */
struct stretch {
    int32_t lower, upper;
};

int room_init(struct room *r, int32_t sections, struct pool *m);
/* Frees all addresses; keeps the memory of the lists. */
void room_clear(struct room *r);

/* The lowest address with `bytes` bytes free in all sections of life, and of other unless NULL. */
int64_t room_lowest(struct room *r, struct stretch life, const struct stretch *other,
                    int64_t bytes);

/* The highest such address whose bytes end at or below cap, or -1 if there is none. */
int64_t room_highest(struct room *r, struct stretch life, const struct stretch *other,
                     int64_t bytes, int64_t cap);

/* Marks [at, at + bytes) as in use in all sections of life.  Returns 0 or CKPT_ENOMEM. */
int room_take(struct room *r, struct stretch life, int64_t at, int64_t bytes);

#endif
