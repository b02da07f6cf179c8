/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context: four parts, each of which knows those listed before it and none after, and the
 * options and error that they share.
 *
 *     parameters   what each is, which slots have a place and a value            params.h
 *     memory       device, tiers, budget; access to bytes in any place           memory.h
 *     ranks        the ranks of the job, their shares, what all of them agree on ranks.h
 *     programs     compiled programs and their steps                             exec/programs.h
 *
 * A part holds pointers to the parts before it; its functions take the part.  Calls in the other
 * direction use a callback that the context sets when it opens (a device that failed, a collective
 * that makes no progress), or pass a value as an argument (the number of steps).  The context owns
 * the options, to which every part has a pointer, and the error, whose sentence ckpt_error returns:
 * a public call begins with ERRORS_TO(context_error(c)), and all that fails in it is written there.
 *
 * This room has the public calls that need several parts: open and close, parameters and their
 * values, ranks and their requests.  It decides the order in which a context opens: options are
 * checked, ranks connect, outputs are checked, the device opens, then collectives on it, then the
 * tiers; last the budget is set.  Only these calls and the rooms above (train, nn, state) see
 * struct ckpt; a lower room that needs something from it should get an argument.
 *
 * One thread at a time uses a context and its programs; two contexts share nothing.
 */
#ifndef CKPT_CONTEXT_H
#define CKPT_CONTEXT_H

#include "exec/programs.h"
#include "memory/memory.h"
#include "core/notes.h"
#include "core/params.h"
#include "dist/ranks.h"

struct saving;

struct ckpt {
    struct ckpt_options options;
    char *texts;        /* those that options point to */
    struct error error; /* of the last call that failed */
    struct params params;
    struct memory memory;
    struct ranks ranks;
    struct programs programs;
    struct note_list notes; /* of ckpt_state_note */
    struct saving *saving;  /* a state that a thread is writing, or NULL (state/saving.h) */
    void (*close_saving)(struct saving *s); /* waits for it and frees it */
};

/* Quantization-aware training (qat.c): checks the options; marks parameter i, which was just made,
 * and makes those of its range; checks that each pattern of --qat-skip is that of a parameter.
 * Returns 0 or a code, with its sentence. */
int qat_check(const struct ckpt_options *o);
int qat_mark(ckpt *c, int32_t i);
int qat_check_skip(const ckpt *c);

/* The context's error; NULL without a context: the thread's error. */
static inline struct error *context_error(const ckpt *c)
{
    return c ? &((ckpt *)(uintptr_t)c)->error : NULL;
}

#endif
