/* SPDX-License-Identifier: Apache-2.0 */
/* Notes in a state about the run that made it, and their comparison with the current run. */
#ifndef CKPT_STATE_RUN_NOTES_H
#define CKPT_STATE_RUN_NOTES_H

#include "ckpt_files.h"
#include "context/context.h"
#include "state/safetensors.h"

/* The callback that decides about differences, and the sentence about the refused ones. */
struct differences {
    ckpt_state_change allow;
    void *user;
    char text[CKPT_MESSAGE - 200];
    int refused;
};

/* Lists the notes of this run: those set by the program, then the library's notes about its
 * programs.  Returns 0 or CKPT_ENOMEM; free the list in any case. */
int state_list_notes(const ckpt *c, struct note_list *l);

/* The metadata key of a note; the caller frees it.  NULL if there is no memory. */
char *state_note_key(const char *name);

/* Passes each difference to the callback.  Returns 0, CKPT_EINVAL if one was refused, or
 * CKPT_ENOMEM. */
int state_compare_notes(const ckpt *c, const ckpt_file *f, struct differences *d);

#endif
