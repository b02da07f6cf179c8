/* Inside the quick placement: packing items one by one, in an order, into holes. */
#ifndef CKPT_PLAN_PLACE_PACK_H
#define CKPT_PLAN_PLACE_PACK_H

#include "plan/place_room.h"
#include "plan/place_sections.h"

/* Where an item goes: the lowest hole that holds it, or the tightest one. */
enum fit { FIT_LOWEST, FIT_TIGHTEST, FIT_COUNT };

/* More items than this go the way of place_room.h, which knows no tightest hole. */
#define PACK_MANY 3000

struct packing {
    const struct sections *s;
    const int64_t *bytes;
    int32_t *order; /* items in the order of placement */
    enum fit fit;
    int64_t work;     /* placed items looked at so far, or what takes as long */
    int32_t n;        /* placed items, the first of the order */
    int64_t *offsets; /* per item */
    /* Of few items, by offset; in arrays of their own, for most of the time goes by the first two
     */
    int32_t *lower, *upper, *rank;
    int64_t *begin, *end;
    /* Of many */
    bool many;
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

/* The place in the order of the placed item that ends highest. */
int32_t packing_highest(const struct packing *k);

#endif
