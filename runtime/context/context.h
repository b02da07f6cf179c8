/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context: four parts, each of which knows those before it and none behind, and what they
 * share.
 *
 *     parameters   what each is, which slots have a place and a value           params.h
 *     memory       device, tiers, budget; bytes in and out of places            memory.h
 *     ranks        who trains together, who has which share, what all agree on  ranks.h
 *     programs     what is compiled, and the steps of it                        exec/programs.h
 *
 * A part holds pointers to those it stands on; its functions take the part.  What has to go the
 * other way goes by a function that the context sets when it opens (a device that failed, a
 * collective without an end) or is an argument (how many steps were made).  The options and the
 * error, whose sentence ckpt_error gives, are the context's, and every part has a pointer to them.
 *
 * This room has the public calls that need several parts: open and close, parameters and their
 * values, ranks and their requests.  It decides the order in which a context opens: options are
 * checked, ranks meet, outputs are checked, the device opens, collectives on it, tiers, then the
 * budget is known.  Only these calls and the files of state see struct ckpt; a room below that
 * would like to is asking for an argument.
 *
 * A context and its programs are used by one thread at a time; two contexts share nothing.
 */
#ifndef CKPT_CONTEXT_H
#define CKPT_CONTEXT_H

#include "exec/programs.h"
#include "memory/memory.h"
#include "core/notes.h"
#include "core/params.h"
#include "dist/ranks.h"

struct ckpt {
    struct ckpt_options options;
    struct error error; /* of the last call that failed */
    struct params params;
    struct memory memory;
    struct ranks ranks;
    struct programs programs;
    struct note_list notes; /* of ckpt_state_note */
};

/* Adds to the values of a weight what its adapter adds to them, if it has one.  A call of all
 * ranks. Returns 0 or a code, the sentence in the context. */
int lora_add(ckpt *c, ckpt_tensor weight, float *values);

/* NULL for no context: the sentence of the thread. */
static inline struct error *context_error(const ckpt *c)
{
    return c ? &((ckpt *)(uintptr_t)c)->error : NULL;
}

#endif
