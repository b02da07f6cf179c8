/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement: static addresses for stretches of time that need bytes.  Two stretches that share a
 * step must not share a byte; the highest end, the peak, should be low.  No peak is below the load,
 * the most bytes alive at one step.
 */
#ifndef CKPT_PLAN_PLACE_H
#define CKPT_PLAN_PLACE_H

#include "plan/place/place_item.h"

/*
 * Gives every item an offset; *peak is the end of the highest.  Tries no more once that is within
 * load, or close to the most bytes alive at once where load is not above these.  Quick, for use
 * inside the planner.  Returns 0 or CKPT_ENOMEM.
 */
int place_items(struct place_item *items, int32_t n, int64_t load, int64_t *peak);
/* The same; *looks counts what was looked at to find holes: the measure of the work. */
int place_counted(struct place_item *items, int32_t n, int64_t load, int64_t *peak, int64_t *looks);

/*
 * The same on a circle of so many steps.  Tries no more once the peak is within goal, or that of
 * the load where goal is below it.
 */
int place_circle(struct place_item *items, int32_t n, int32_t period, int64_t goal, int64_t *peak);
/* The same around items that are fixed: these have their offsets, where no two of them share a byte
 * at a step.  The goal is not below their highest end. */
int place_around(struct place_item *items, int32_t n, const bool *fixed, int32_t period,
                 int64_t goal, int64_t *peak);

/* The lower bound: most bytes alive at one step.  Returns 0 or CKPT_ENOMEM. */
int place_load(const struct place_item *items, int32_t n, int64_t *load);

struct place_request {
    int64_t capacity; /* a peak that is low enough, or 0 for as low as can be found */
    int64_t work;     /* counted steps of search after the quick heuristics, or 0 for the usual */
    double seconds;   /* also stop after this processor time, or 0; the result then depends on the
                         machine */
};

struct place_result {
    int64_t peak, load;
    int64_t work; /* counted steps of search that were used */
    bool proved;  /* no placement has a lower peak; with a capacity that was missed: none has it */
};

/*
 * Tries hard: heuristics, then a local search, then a tree search that ends in a placement or in
 * the proof that there is none.  Always gives valid offsets, whether or not capacity was met.
 * Returns 0 or CKPT_ENOMEM.
 */
int plan_place(struct place_item *items, int32_t n, const struct place_request *request,
               struct place_result *result);

/* A list of buffers as a file has it: half-open lifetimes in any unit of time. */
struct place_file {
    struct place_item *items; /* steps are ranks of the times in the file */
    char **ids;
    int64_t *lower, *upper;
    int32_t n;
};

/*
 * Reads "id,lower,upper,size" lines, with or without that header.  Returns 0, CKPT_EIO,
 * CKPT_EFORMAT or CKPT_ENOMEM with one sentence in error.
 */
int place_file_read(const char *path, struct place_file *file, struct error *error);
/* Writes "id,lower,upper,size,offset".  Returns 0 or CKPT_EIO with one sentence in error. */
int place_file_write(const struct place_file *file, const char *path, struct error *error);
void place_file_free(struct place_file *file);

#endif
