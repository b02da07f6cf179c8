/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder of a rank: the collective that it is in and the one that it completed last.
 * When ranks wait in vain, each tells both in its error: who never came to a call, or came to
 * another one, is to blame.  It allocates nothing.
 */
#ifndef CKPT_FLIGHT_H
#define CKPT_FLIGHT_H

#include "core/base.h"

enum { FLIGHT_NAME = 64, FLIGHT_TEXT = 512 };

struct flight_call {
    int64_t number; /* of the calls of this rank, from 1; 0: none */
    int64_t step, bytes;
    double begun;     /* in clock_seconds() */
    const char *kind; /* a constant, such as "all_reduce" */
    char name[FLIGHT_NAME];
};

/* While now has a number, calls inside it, such as a barrier that looks for missing ranks, are not
 * recorded. */
struct flight {
    int64_t calls; /* recorded so far */
    struct flight_call now, done;
};

/* Around a call.  begin returns whether it was recorded: then end is due, but a call that failed
 * stays in now. */
bool flight_begin(struct flight *f, const char *kind, const char *name, int64_t step,
                  int64_t bytes);
void flight_end(struct flight *f);

/* all_reduce "gradients of blocks.3" of step 12 */
void flight_describe(char *dst, size_t size, const char *kind, const char *name, int64_t step);

/* Writes what this rank has to say, as the end of a sentence; late: the ranks it waits for, or "".
 * flight_is_told: does a sentence have such an end? */
void flight_tell(char dst[FLIGHT_TEXT], const struct flight *f, int rank, const char *late);
bool flight_is_told(const char *sentence);

#endif
