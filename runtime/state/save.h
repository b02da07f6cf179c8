/* Files of slots of parameters, written by one rank with what all of them have. */
#ifndef CKPT_STATE_SAVE_H
#define CKPT_STATE_SAVE_H

#include "context.h"
#include "state/safetensors.h"

/* A slot of a parameter; its name in the file is that of the parameter behind a prefix. */
struct save_item {
    ckpt *c;
    ckpt_tensor param;
    enum ckpt_slot slot;
    const char *prefix;
};

/* The name in the file, to be freed; NULL without memory. */
char *save_name(const struct save_item *s);

/* Writes n items, which it sorts, and notes.  A call of all ranks, with the same items.  Returns 0
 * or a code, the sentence in the context. */
int save_items(ckpt *c, const char *path, struct save_item *items, int n,
               const struct file_note *notes, int n_notes);

#endif
