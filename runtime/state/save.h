/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of parameter slots, gathered from all ranks and written by one.
 *
 * The state room decides which parts of a training run are saved: files of weights, and training
 * states with the optimizer's slots, counts and notes.  Invariants: a file is replaced atomically
 * or stays as it was; a file is validated completely before the context changes; saved values are
 * checked to be finite; a run resumed from a state computes the same bits as a run that never
 * stopped, or an error lists the differences (run_notes.h).  The format is safetensors
 * (safetensors.h), with checksums in its metadata.
 *
 * A load that fails midway sets a mark in the parameters (enum torn): no step or save is allowed
 * until a complete file was loaded.
 *
 * The room may use the context, because it reads and writes the state of all its parts, and the
 * named files of the core.  It does not use plans or devices: values are read and written through
 * the public calls for parameters, which find them wherever they are stored.  With several ranks
 * all ranks make each call; rank 0 writes.
 */
#ifndef CKPT_STATE_SAVE_H
#define CKPT_STATE_SAVE_H

#include "context/context.h"
#include "state/safetensors.h"

/* A slot of a parameter to save; its name in the file is the prefix and the parameter's name, or
 * `alias`. */
struct save_item {
    ckpt *c;
    ckpt_tensor param;
    enum ckpt_slot slot;
    const char *prefix;
    char *alias; /* owned by the caller; NULL: the parameter's name */
    bool as_stored; /* keep bf16 and codes (as words); else everything is fp32 */
    bool merged;    /* with the adapter's product added */
};

/* Bytes of the values in the file. */
int64_t save_item_bytes(const struct save_item *s);

/* The name in the file; the caller frees it.  NULL if there is no memory. */
char *save_name(const struct save_item *s);

/* Sorts the n items and writes them with the notes.  Collective, with the same items on all ranks.
 * Returns 0 or a code, with the sentence in the context. */
int save_items(ckpt *c, const char *path, struct save_item *items, int n,
               const struct file_note *notes, int n_notes);

#endif
