/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the tree search for a placement under a capacity: the state of the search and what
 * follows from a decision.
 *
 * Items are put down from below.  The floor of a section is the height under which nothing more
 * will be placed there, so an item's base, the highest floor of its sections, is the lowest offset
 * it can still get.  Only solutions in which no item can move down are looked for: if there is a
 * placement, there is one of those.
 */
#ifndef CKPT_PLAN_PLACE_TREE_H
#define CKPT_PLAN_PLACE_TREE_H

#include "plan/place/place_sections.h"

enum tree_field { TREE_FLOOR, TREE_BASE, TREE_SOLID, TREE_PLACED };

/* A value that a decision changed, to be put back. */
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
    int32_t *prefix; /* per section: behind so many of its alive items all are placed */
    /* per section */
    int64_t *floor, *solid; /* solid: the end of the topmost placed item, at most floor */
    int64_t *left;          /* bytes not yet placed */
    int32_t *open;          /* items not yet placed */
    int32_t *crossing;      /* of those, the ones that go on into the next section */
    int32_t *failures;      /* how often this section had no room */
    /* per item */
    int64_t *base, *offset;
    bool *placed;
    int32_t *twin; /* the one before it that is the same in everything, or -1 */
    /* of a row while it is sorted */
    int64_t *keys;
    int32_t *gone;
    struct {
        struct tree_change *data;
        int64_t capacity;
    } trail;
    int64_t n_trail;
    int64_t work; /* items looked at */
    bool out_of_memory;
};

int tree_init(struct tree *t, const struct sections *s, const int64_t *bytes, int64_t capacity);
void tree_free(struct tree *t);

/* Decisions.  False: no solution is left; the caller undoes either way. */
bool tree_place(struct tree *t, int32_t item); /* at its base */
bool tree_raise(struct tree *t, int32_t section, int64_t floor);
void tree_undo(struct tree *t, int64_t n_trail);

/* What the floors alone imply, before any decision. */
bool tree_root(struct tree *t);

/*
 * The search.  work counts items looked at and is taken down; until is a time of place_clock, which
 * tells the processor seconds of this thread, or 0.
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
 * The same, for any number of items: at most about so many of them, alive where the load is high,
 * take part in the search.  TREE_NONE is then still a proof.
 */
enum tree_answer hot_search(const struct sections *s, const int64_t *bytes, int64_t capacity,
                            int32_t most, struct place_limit *limit, int64_t *offsets);

#endif
