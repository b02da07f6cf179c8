/*
 * The context: four parts, each of which knows those before it and none behind, and what they
 * share.  Only public calls and files of state see all of it.
 */
#ifndef CKPT_CONTEXT_H
#define CKPT_CONTEXT_H

#include "exec/programs.h"
#include "memory.h"
#include "notes.h"
#include "params.h"
#include "ranks.h"

struct ckpt {
    struct ckpt_options options;
    struct error error; /* of the last call that failed */
    struct params params;
    struct memory memory;
    struct ranks ranks;
    struct programs programs;
    struct note_list notes; /* of ckpt_state_note */
};

/* NULL for no context: the sentence of the thread. */
static inline struct error *context_error(const ckpt *c)
{
    return c ? &((ckpt *)(uintptr_t)c)->error : NULL;
}

#endif
