/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the quick placement: packing items one by one, in an order, each into the lowest hole that
 * holds it.  One that is high goes to the highest hole below the cap, if there is one: what is
 * nested in time at two places of a circle fills an arena from both ends, with one hole between. */
#ifndef CKPT_PLAN_PLACE_PACK_H
#define CKPT_PLAN_PLACE_PACK_H

#include "plan/place/place_room.h"
#include "plan/place/place_sections.h"

struct packing {
    const struct sections *s;
    const int64_t *bytes;
    int32_t *order;   /* items in the order of placement */
    int64_t work;     /* placed items looked at so far, or what takes as long */
    int32_t n;        /* placed items, the first of the order */
    int32_t fixed;    /* the first of the order, whose offsets are given and stay */
    int64_t *offsets; /* per item */
    bool *high;       /* per item; none is unless there is a cap */
    int64_t cap;      /* or 0; aligned, as all sizes are */
    uint32_t random;
    struct room room;
    bool out_of_memory;
};

int packing_init(struct packing *k, const struct sections *s, const int64_t *bytes);
void packing_free(struct packing *k);

/* Forgets all but the first kept items of the order; a room is then filled again. */
void packing_keep(struct packing *k, int32_t kept);

/*
 * Packs the order, whose first kept items are placed already.  Stops at the first item that ends
 * above limit, or for want of memory, and returns its place in the order; n_items if there was
 * none, and *peak is set.
 */
int32_t packing_run(struct packing *k, int32_t kept, int64_t limit, int64_t *peak);

/* Places item order[rank] at an offset that is known to be free. */
void packing_put(struct packing *k, int32_t rank, int64_t offset);

/* The lowest placement found so far. */
struct placement {
    int64_t peak;     /* INT64_MAX: there is none yet */
    int64_t *offsets; /* per item */
    int32_t *order;   /* in which the items were packed, */
    bool *high;       /* and to which end */
};

int placement_init(struct placement *best, int32_t n);
void placement_free(struct placement *best);

/* The place in the order of the placed item that ends highest. */
int32_t packing_highest(const struct packing *k);

/* Runs, and keeps what ends within limit.  Returns whether it does; *stop is where it failed. */
bool packing_attempt(struct packing *k, int32_t kept, int64_t limit, struct placement *best,
                     int32_t *stop);

void packing_set_cap(struct packing *k, int64_t cap);

/*
 * Goes on from the best order: the item that stood in the way goes earlier, and now and then to the
 * other end, until the peak is within goal, or so much work is done.  A gain is one of so many
 * bytes.  Returns 0 or CKPT_ENOMEM.
 */
int packing_repair(struct packing *k, struct placement *best, int64_t goal, int64_t gain,
                   int64_t until);

#endif
