/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one rule that orders commands: a command waits for those it conflicts with.
 *
 * A command reads and writes address ranges.  Two commands of different queues conflict where they
 * touch one range and one of them writes it; the later one, in the order of the list, waits.  Of
 * each range only the last writer and, per queue, the last reader since then count.  A wait that
 * follows from others is dropped: every queue has a vector clock, which says how far it has
 * already waited for each other queue.
 *
 * The list is a body, run once for each micro-step, and a tail; step follows step.  So waits are
 * found on a time line of two steps, of which only the second one's waits are kept: it sees what
 * the first one left.  A wait refers to the last submission of a command; if that command comes
 * later in the list than the waiting one, this is the submission of the step before.  A body behind
 * another body may need other waits than a body behind a tail; every body gets both.
 *
 * If a step is recorded as a whole, nothing may wait for a command of another part of it or of
 * another step: then each part starts after all work before it and ends when all its work is done.
 */
#ifndef CKPT_HAZARDS_H
#define CKPT_HAZARDS_H

#include "exec/program.h"

/* Address spaces: equal offsets are the same bytes only within one space. */
enum space { SPACE_DEVICE, SPACE_HOST, SPACE_FILE, SPACE_SLOTS, SPACE_COUNT };

struct access {
    enum space space;
    int64_t offset, bytes;
    bool writes;
};

enum command_kind {
    COMMAND_RUNS,  /* instr */
    COMMAND_FORKS, /* no work: the first command of each queue in this part waits for it */
    COMMAND_JOINS  /* no work, on the compute queue: waits for every command with `joins` set */
};

struct command {
    enum command_kind kind;
    struct instr instr;
    int32_t access, n_access; /* [access, access + n_access) in the list of accesses */
    bool joins;               /* the part ends only after this command */
};

struct commands {
    struct {
        struct command *data;
        int64_t capacity;
    } list;
    struct {
        struct access *data;
        int64_t capacity;
    } access;
    int32_t n, n_body, n_access;
};

/* Command `waiting` waits for command `awaited`; sorted by waiting. */
struct hazard {
    int32_t waiting, awaited;
};

/* A command that touches a range before any write of the step, or after its last write. */
struct edge {
    enum space space;
    int64_t begin, end;
    int32_t command;
    bool writes;
};

/* Sorted by space and range; the ranges of two edges are equal or disjoint. */
struct edges {
    struct {
        struct edge *data;
        int64_t capacity;
    } list;
    int32_t n;
};

struct hazards {
    struct {
        struct hazard *data;
        int64_t capacity;
    } list;
    int32_t n;
    /* First and last accesses of a step, for waits between steps: each range and queue once.  Empty
     * if the step is recorded as a whole. */
    struct edges first, last;
};

/* whole: the step is recorded as a whole.  Returns 0 or CKPT_ENOMEM; free h in either case. */
int hazards_find(const struct commands *c, int32_t n_micro, bool whole, struct hazards *h);
void hazards_free(struct hazards *h);

#endif
