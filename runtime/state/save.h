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
 * values.h, which finds them wherever they are stored.  With several ranks all ranks make each
 * call. Of weights rank 0 gathers and writes whole tensors; of a state each rank writes what it has
 * (saving.h).
 */
#ifndef CKPT_STATE_SAVE_H
#define CKPT_STATE_SAVE_H

#include "context/context.h"
#include "dist/parts.h"
#include "state/safetensors.h"

/* What is written of the values: they, what --qat makes of them (save_int8.c), or the alpha of the
 * adapter whose A they are (adapters.c). */
enum save_form {
    SAVE_VALUES,
    SAVE_CODES,
    SAVE_SCALES,
    SAVE_INPUT_SCALE,
    SAVE_INPUT_ZERO,
    SAVE_ALPHA
};

/* A slot of a parameter to save; its name in the file is the prefix and the parameter's name, or
 * `alias`. */
struct save_item {
    ckpt *c;
    ckpt_tensor param;
    enum ckpt_slot slot;
    const char *prefix;
    char *alias;    /* owned by the caller; NULL: the parameter's name */
    bool as_stored; /* keep bf16 and codes (as words); else everything is fp32 */
    bool merged;    /* with the adapter's product added */
    int part;       /* 1 to n: the n-th of the tensors that files have of it; 0: all of it */
    struct save_wholes *wholes; /* of items that are parts; set by save_items */
    struct part_item own;       /* own.p: read this run alone, without other ranks */
    struct values_cache *cache; /* for own */
    bool unchecked;             /* whether it is finite is checked later, in the staged bytes */
    const void *staged;         /* its bytes, if they were copied */
    enum save_form form;
    ckpt_tensor more; /* of one element, added to the values; CKPT_NONE: none */
};

/* For a weight whose layers round it: makes the item one of codes, and the n - 1 items after it
 * those of scales and of the operand's range.  Returns n, 4 at most, or CKPT_ENOMEM. */
int save_int8_items(struct save_item *items, const struct param *p);
/* dtype and shape in the file of such an item, and its bytes from the values, which change. */
struct ckpt_desc save_int8_desc(const struct save_item *s);
int save_int8_read(const struct save_item *s, float *values, int64_t n, void *dst);
/* compressed-tensors' quantization_config for the items, malloc'ed; NULL: no memory. */
char *save_int8_config(const struct save_item *items, int n);

/* Bytes of the values in the file. */
int64_t save_item_bytes(const struct save_item *s);

/* The name in the file; the caller frees it.  NULL if there is no memory. */
char *save_name(const struct save_item *s);

/* Reads the bytes of the item in the file.  Collective, but for own items. */
int save_item_read(struct save_item *s, void *dst, int64_t bytes);
/* Makes a writer of the n items, which it sorts; notes stay the caller's until the file is written.
 * Returns 0 or a code. */
int save_open(ckpt_file_writer **w, const char *path, struct save_item *items, int n,
              const struct file_note *notes, int n_notes);

/* Sorts the n items and writes them with the notes.  Collective, with the same items on all ranks.
 * Returns 0 or a code, with the sentence in the context. */
int save_items(ckpt *c, const char *path, struct save_item *items, int n,
               const struct file_note *notes, int n_notes);

#endif
