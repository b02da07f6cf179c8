/* Inside the planner: what leaves the device, when, and where it lies meanwhile. */
#ifndef CKPT_PLAN_TRANSFER_H
#define CKPT_PLAN_TRANSFER_H

#include "plan/search.h"

/* A stretch between two uses of a storage that may be spent elsewhere. */
struct absence {
    int32_t storage, instance; /* instance: of the plan; -1 for a persistent storage */
    int32_t out_step, use_step;
    int64_t bytes;
    double ready, due; /* when the use before it ends, and the one behind it begins */
    bool taken;
    struct plan_park park; /* if taken */
};

/* The absences of a plan without parks, in the order in which they go out. */
int absences_find(const struct graph *g, const struct plan *p, struct absence **list, int32_t *n);

/* The seconds at which every step starts, and after them the end. */
double *step_starts(const struct graph *g, const struct plan *p);

/*
 * Parks storages of p, which has steps and instances but no addresses, until no step needs more
 * than device bytes, persistent ones included.  Copies hide behind the ops, or are not made.
 * *fits says whether that went; then p has its parks, and instances that go with them.
 */
int plan_transfer(const struct graph *g, const struct machine *m, const struct budgets *b,
                  int64_t device, struct plan *p, bool *fits);

/* Addresses for instances of which two may be one storage at one address (wrapped[i] is the other
 * instance, or -1). */
int place_wrapped(struct place_item *items, const int32_t *wrapped, int32_t n, int64_t *peak);

#endif
