/* SPDX-License-Identifier: Apache-2.0 */
/* What a state says of the run that made it, and how that differs from another run. */
#ifndef CKPT_STATE_RUN_NOTES_H
#define CKPT_STATE_RUN_NOTES_H

#include "ckpt_files.h"
#include "context/context.h"
#include "state/safetensors.h"

/* Who is asked about differences, and the sentence of those that were refused. */
struct differences {
    ckpt_state_change allow;
    void *user;
    char text[CKPT_MESSAGE - 200];
    int refused;
};

/* The notes of this run: its own, then what the library says of its programs.  Returns 0 or
 * CKPT_ENOMEM; free the list in any case. */
int state_list_notes(const ckpt *c, struct note_list *l);

/* The name of a note in a file, to be freed; NULL without memory. */
char *state_note_key(const char *name);

/* Asks about each difference.  Returns 0, CKPT_EINVAL where one was refused, or CKPT_ENOMEM. */
int state_compare_notes(const ckpt *c, const ckpt_file *f, struct differences *d);

#endif
