/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States in the memory of an elastic job.  A rank keeps its part of a state and that of the rank
 * before it, twice: while one pair is written the other is whole.  So any rank may be lost, and the
 * others have the newest state that all have finished.
 *
 * The bytes lie in anonymous files that stay when the process executes its program again
 * (peers_restart).  Each pair says of which job it is, so a job that formed again reads the pairs
 * of the one before.
 *
 * hosts is the communicator for host memory of the job; NULL: it has one rank.
 */
#ifndef CKPT_DIST_PEERS_H
#define CKPT_DIST_PEERS_H

#include "dist/comm/comm.h"

struct peers;

/* Opens those that an earlier program left, or new ones.  *rank and *size: in the job before; size
 * 0: there is none.  Returns 0 or a code. */
int peers_open(struct peers **out, int *rank, int *size);
void peers_close(struct peers *p);
/* The job has formed: from now on states are of it.  Collective.  Returns 0 or a code. */
int peers_join(struct peers *p, struct comm *hosts);

/*
 * Writing.  peers_begin: the place for a part of `bytes`, in the file *fd at *offset; what was
 * there is gone.  peers_end: the part of `bytes` is written, of a state after `updates`; the ranks
 * exchange theirs.  Collective; return 0 or a code.
 */
int peers_begin(struct peers *p, struct comm *hosts, int64_t bytes, int *fd, int64_t *offset);
int peers_end(struct peers *p, struct comm *hosts, int64_t bytes, int64_t updates);

/* Where the parts of a state are. */
struct peers_state {
    uint64_t job; /* that wrote it */
    int64_t updates;
    int parts;      /* 0: no state is complete */
    int *holder;    /* rank that has it */
    int *half;      /* its pair */
    bool *previous; /* the second of the pair */
    int64_t *bytes;
};
/* Finds the newest state of which all parts are there.  Collective; returns 0 or a code. */
int peers_find(struct peers *p, struct comm *hosts, struct peers_state *s);
void peers_state_free(struct peers_state *s);
/* Reads n bytes of a part on all ranks.  Collective; returns 0 or a code. */
int peers_read(struct peers *p, struct comm *hosts, const struct peers_state *s, int part,
               void *dst, int64_t n, int64_t offset);

/* Whether any rank was in a job before this one; whether a state of it is on the disk, which
 * peers_note_saved says of this job.  Collective; returns 0 or a code. */
int peers_history(struct peers *p, struct comm *hosts, bool *again, bool *saved);
void peers_note_saved(struct peers *p);

/* Plans `bytes` for a part: the largest of all ranks, with its header, in two pairs.  *more: host
 * memory that was not planned before.  Collective; returns 0 or a code. */
int peers_plan(struct peers *p, struct comm *hosts, int64_t bytes, int64_t *more);
int64_t peers_planned(const struct peers *p);
/* Bytes of host memory that states take already. */
int64_t peers_held(const struct peers *p);

/* As peers_close, but the next peers_open has the states of a process that was in a job. */
void peers_leave(struct peers *p);
bool peers_are_left(void);

/* Executes this program with these arguments, keeping the states.  NULL: those that were left.
 * Returns a code if it cannot. */
int peers_restart(struct peers *p, char *const *argv);

#endif
