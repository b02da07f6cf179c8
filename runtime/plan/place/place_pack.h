/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the quick placement: packing items one by one in a given order, each into the lowest hole
 * that holds it.  An item marked high goes to the highest hole below the cap if there is one. Items
 * nested in time around two points of a cycle thus fill the arena from both ends, with one hole
 * between. */
#ifndef CKPT_PLAN_PLACE_PACK_H
#define CKPT_PLAN_PLACE_PACK_H

#include "plan/place/place_room.h"
#include "plan/place/place_sections.h"

struct packing {
    const struct sections *s;
    const int64_t *bytes;
    int32_t *order;   /* items in the order of placement */
    int64_t work;     /* counted work so far; a unit is about a nanosecond */
    int32_t n;        /* placed items: order[0 .. n) */
    int32_t fixed;    /* the items order[0 .. fixed) keep the offsets they were given */
    int64_t *offsets; /* per item */
    bool *high;       /* per item; ignored without a cap */
    int64_t cap;      /* the high end, a multiple of CKPT_ALIGN; 0: none */
    uint32_t random;
    struct room room;
    struct pool *memory;
};

int packing_init(struct packing *k, const struct sections *s, const int64_t *bytes, struct pool *m);

/* Removes all but the first kept items of the order and rebuilds the address ranges in use. */
void packing_keep(struct packing *k, int32_t kept);

/*
 * Packs the items of the order behind the first kept ones, which are placed already.  Stops at the
 * first item that would end above limit, or when out of memory, and returns its rank in the order;
 * returns n_items and sets *peak if all were placed.
 */
int32_t packing_run(struct packing *k, int32_t kept, int64_t limit, int64_t *peak);

/* Places item order[rank] at an offset that the caller knows to be free. */
void packing_put(struct packing *k, int32_t rank, int64_t offset);

/* The lowest placement found so far. */
struct placement {
    int64_t peak;     /* INT64_MAX: none yet */
    int64_t *offsets; /* per item */
    int32_t *order;   /* the order in which the items were packed */
    bool *high;       /* per item: packed to the high end */
};

int placement_init(struct placement *best, int32_t n, struct pool *m);

/* The rank in the order of the placed item with the highest end. */
int32_t packing_highest(const struct packing *k);

/* Runs packing_run and keeps the placement if its peak is at most limit.  Returns whether it is;
 * *stop is the rank where the run stopped. */
bool packing_attempt(struct packing *k, int32_t kept, int64_t limit, struct placement *best,
                     int32_t *stop);

/* Sets the high end, rounded down to CKPT_ALIGN; 0: none. */
void packing_set_cap(struct packing *k, int64_t cap);

/*
 * Local search from the best order: the item that did not fit moves to an earlier rank, and
 * sometimes to the other end, until the peak is at most goal or the counted work reaches `until`.
 * An attempt succeeds if it lowers the peak by `gain` bytes.  Returns 0 or CKPT_ENOMEM.
 */
int packing_repair(struct packing *k, struct placement *best, int64_t goal, int64_t gain,
                   int64_t until);

#endif
