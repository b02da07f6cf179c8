/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one rule that orders commands: a command waits for those it conflicts with.
 *
 * A command reads and writes address ranges.  Two commands of different queues conflict where they
 * touch one range and one of them writes it; the later one, in the order of the list, waits.  Of
 * each range only the last writer and, per queue, the last reader since then count.  A wait that
 * follows from others is dropped: every queue has a vector clock, which says how far each other
 * queue is known to be.
 *
 * The list is a body, run once for each micro-step, and a tail; step follows step.  So waits are
 * found on a time line of two steps, of which the second is kept: it begins with what the first one
 * left.  A wait is for the last time that a command was handed over, which is in the step before
 * where it stands behind the waiting one.  Bodies in a row may need other waits than one behind a
 * tail; they get both.
 *
 * Where a step is recorded as a whole, nothing may wait for a command of another part of it or of
 * another step: then each part begins behind all before it and ends with all that it began.
 */
#ifndef CKPT_HAZARDS_H
#define CKPT_HAZARDS_H

#include "exec/program.h"

/* Where addresses mean the same bytes. */
enum space { SPACE_DEVICE, SPACE_HOST, SPACE_FILE, SPACE_SLOTS, SPACE_COUNT };

struct access {
    enum space space;
    int64_t offset, bytes;
    bool writes;
};

enum command_kind {
    COMMAND_RUNS,  /* instr */
    COMMAND_FORKS, /* nothing: the first command of each queue in this part waits for it */
    COMMAND_JOINS  /* nothing, on the compute queue: it waits for what `joins` was set of */
};

struct command {
    enum command_kind kind;
    struct instr instr;
    int32_t access, n_access; /* in the list of accesses */
    bool joins;               /* the part does not end before it has */
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

/* waiting waits for awaited; sorted by waiting. */
struct hazard {
    int32_t waiting, awaited;
};

/* A command that touches a range before any other writes it, or that nobody wrote it behind. */
struct edge {
    enum space space;
    int64_t begin, end;
    int32_t command;
    bool writes;
};

/* By space and range: ranges of two edges are the same, or apart. */
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
    /* What a step meets of the one before and leaves to the next, of each range and queue once;
     * none where the step is recorded as a whole. */
    struct edges first, last;
};

/* whole: the step is recorded as a whole.  Returns 0 or CKPT_ENOMEM; free h in either case. */
int hazards_find(const struct commands *c, int32_t n_micro, bool whole, struct hazards *h);
void hazards_free(struct hazards *h);

#endif
