/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside placement: which addresses are taken when, kept so that the lowest hole for an item is
 * found without a look at every item that is there.
 *
 * A binary tree stands over the sections.  The life of a placed item is cut into the few nodes that
 * make it up.  A node knows what is taken through all of it by the items cut into it, and what is
 * taken somewhere in it; both as extents that do not touch.  Those are few, for what is packed
 * tightly is one extent.
 */
#ifndef CKPT_PLAN_PLACE_ROOM_H
#define CKPT_PLAN_PLACE_ROOM_H

#include "core/base.h"

struct extent {
    int64_t begin, end;
};

/* In order, with gaps between them. */
struct extents {
    struct extent *data;
    int32_t n, capacity;
};

struct room_node {
    struct extents somewhere, through;
};

struct room {
    int32_t leaves; /* a power of two; leaf k is node leaves + k, node v lies above 2 v, 2 v + 1 */
    struct room_node *nodes;
    struct {
        struct extent **data;
        int64_t capacity;
    } blocks; /* memory of the extents */
    int32_t n_blocks;
    struct extent *free;
    int64_t left; /* unused extents at the end of the last block */
    int64_t work; /* looks at a node or an extent since room_init */
};

/* Sections [lower, upper). */
struct stretch {
    int32_t lower, upper;
};

int room_init(struct room *r, int32_t sections);
void room_free(struct room *r);
/* Nothing is taken any more. */
void room_clear(struct room *r);

/* The lowest address with so many bytes free in all of a life, and of another unless it is NULL. */
int64_t room_lowest(struct room *r, struct stretch life, const struct stretch *other,
                    int64_t bytes);

/* The highest address with so many bytes free below cap in the same, or -1 if there is none. */
int64_t room_highest(struct room *r, struct stretch life, const struct stretch *other,
                     int64_t bytes, int64_t cap);

/* Takes [at, at + bytes) through a life.  Returns 0 or CKPT_ENOMEM. */
int room_take(struct room *r, struct stretch life, int64_t at, int64_t bytes);

#endif
