/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writing of one state of training.  One rank writes a file.  Of several ranks each writes what
 * it has as a part beside the path, and then rank 0 an index at the path; so a crash at any moment
 * leaves the old state or the new one.  No values pass between ranks.
 *
 * With options.save_async the bytes are copied to the host tier first, at a place that is planned
 * there, and a thread writes them.  It uses nothing of the context but those bytes.  Ranks do not
 * exchange messages while threads write: rank 0's waits for the files of the others to appear.
 */
#ifndef CKPT_STATE_SAVING_H
#define CKPT_STATE_SAVING_H

#include "dist/peers.h"
#include "state/save.h"

/* The notes become the caller's no more.  items: all of the state, on all ranks; taken as well.
 * Collective.  Returns when the state is on the disk, or copied.  0 or a code. */
int saving_begin(ckpt *c, const char *path, struct save_item *items, int n,
                 struct note_list *notes);

/* Waits for the state that is being written, if there is one.  Collective.  Returns 0 or the code
 * of that save, once. */
int saving_wait(ckpt *c);

/* States in the memory of the ranks (CKPT_PEERS).  saving_keep writes one; notes stay the caller's.
 * saving_open_kept opens the newest as a file, which is read by all ranks together; k outlives it.
 * Collective; return 0 or a code. */
struct kept_state {
    ckpt *c;
    struct peers_state peers;
};
int saving_keep(ckpt *c, struct save_item *items, int n, const struct note_list *notes);
int saving_open_kept(ckpt *c, struct kept_state *k, ckpt_file **out);

#endif
