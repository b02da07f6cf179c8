/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of slots of parameters, written by one rank with what all of them have.
 *
 * The state room decides what of a training run survives it: files of weights, and states of
 * training with the optimizer's slots, counts and notes.  Its promises: a file is replaced whole
 * or the old one stays; everything about a file is checked before anything of the context changes;
 * what is saved is looked at for values that are not finite; a run that goes on from a state has
 * the bits of one that never stopped, or is told what differs (run_notes.h).  The format is
 * safetensors (safetensors.h), with checksums in its notes.
 *
 * A load that ends midway leaves a mark in the parameters (enum torn): nothing steps or saves
 * until a whole file was loaded.
 *
 * The room may know the context, for it reads and writes what all parts of it hold, and files by
 * name from the core.  It sees no plan and no device: values come and go through the public calls
 * of parameters, which find them wherever they are.  With several ranks all make each call; rank 0
 * writes.
 */
#ifndef CKPT_STATE_SAVE_H
#define CKPT_STATE_SAVE_H

#include "context/context.h"
#include "state/safetensors.h"

/* A slot of a parameter; its name in the file is that of the parameter behind a prefix. */
struct save_item {
    ckpt *c;
    ckpt_tensor param;
    enum ckpt_slot slot;
    const char *prefix;
    bool as_kept; /* bf16 where it is kept so, codes as words; else all is fp32 */
    bool merged;  /* with what its adapter adds */
};

/* The name in the file, to be freed; NULL without memory. */
char *save_name(const struct save_item *s);

/* Writes n items, which it sorts, and notes.  A call of all ranks, with the same items.  Returns 0
 * or a code, the sentence in the context. */
int save_items(ckpt *c, const char *path, struct save_item *items, int n,
               const struct file_note *notes, int n_notes);

#endif
