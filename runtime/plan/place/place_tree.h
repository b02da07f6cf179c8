/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the tree search for a placement under a capacity: the state of the search and the
 * propagation of decisions.
 *
 * Items are placed from low addresses up.  The floor of a section is the address below which no
 * further item will be placed there.  So the base of an item, the highest floor of its sections, is
 * the lowest offset it can still get.  If there is any placement, there is one in which every item
 * lies at its base when it is placed.
 */
#ifndef CKPT_PLAN_PLACE_TREE_H
#define CKPT_PLAN_PLACE_TREE_H

#include "plan/place/place_sections.h"

enum tree_field { TREE_FLOOR, TREE_BASE, TREE_PLACED };

/* An entry of the undo log: the old value of a field that a decision changed. */
struct tree_change {
    enum tree_field field;
    int32_t index;
    int64_t old;
};

struct tree {
    const struct sections *s;
    const int64_t *bytes;
    int64_t capacity;
    struct rows alive, starting, ending;
    int32_t *prefix; /* per section: items of its alive row from this index on are all placed */
    /* per section */
    int64_t *floor, *left; /* left: bytes not yet placed */
    int32_t *open;         /* items not yet placed */
    int32_t *crossing;     /* of those, the items that are alive in the next section, too */
    int32_t *failures;     /* how often this section exceeded the capacity */
    /* per item */
    int64_t *base, *offset;
    bool *placed;
    /* scratch for sorting a row */
    int64_t *keys;
    int32_t *gone;
    LIST(struct tree_change) trail;
    int64_t n_trail;
    int64_t work; /* items inspected */
    struct pool memory;
};

int tree_init(struct tree *t, const struct sections *s, const int64_t *bytes, int64_t capacity);
void tree_free(struct tree *t);

/* Decisions: place an item at its base; raise a floor.  Return false if no solution is left.  The
 * caller undoes them in either case. */
bool tree_place(struct tree *t, int32_t item);
bool tree_raise(struct tree *t, int32_t section, int64_t floor);
void tree_undo(struct tree *t, int64_t n_trail);

/* Propagation before any decision; false: there is no solution. */
bool tree_root(struct tree *t);

/*
 * The search.  work is the number of items that may still be inspected; it is decreased.  until is
 * a time of place_clock, the processor seconds of this thread, or 0: no limit.
 */
struct place_limit {
    int64_t work;
    double until;
};
double place_clock(void);

enum tree_answer { TREE_FOUND, TREE_NONE, TREE_LIMIT, TREE_NO_MEMORY };
enum tree_answer tree_search(const struct sections *s, const int64_t *bytes, int64_t capacity,
                             struct place_limit *limit, int64_t *offsets);

/*
 * The same for any number of items: only about `most` of them, which are alive where the load is
 * high, take part in the search.  TREE_NONE is still a proof.
 */
enum tree_answer hot_search(const struct sections *s, const int64_t *bytes, int64_t capacity,
                            int32_t most, struct place_limit *limit, int64_t *offsets);

#endif
