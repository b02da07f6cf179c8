/*
 * Inside of lowering: lower.c walks the steps, lower_parks.c moves what is parked, lower_ranks.c
 * orders collectives, lower_host.c sees to what steps on the host need and make.
 */
#ifndef CKPT_LOWER_H
#define CKPT_LOWER_H

#include "exec/program.h"

enum { NO_EVENT = -1 };

struct death {
    int32_t last, instance;
};

/* A copy out of a room of the arena, or a collective that reads there: whoever takes any of its
 * bytes next has to wait for it. */
struct departure {
    int64_t offset, bytes;
    int32_t event;            /* the copy has read all */
    int32_t written;          /* and the file has it; the same event where there is no file */
    bool crosses;             /* it may still be under way when the next step begins */
    bool joins;               /* the spine waits for it at the end of the part at the latest */
    bool over;                /* handed over in the part of the step at hand */
    bool waited[QUEUE_COUNT]; /* by these queues, since it was handed over */
};

/* What lowering knows of a park. */
struct route {
    int64_t out, in;   /* offsets of the room it leaves and of that it comes back to */
    int32_t departure; /* of its copy out, or -1: it is clean */
    int32_t source;    /* departure that the bytes in the tier come from, or -1: from no step */
    int32_t room;      /* the copy in waits for the end of this step, or -1: for the step before */
    int32_t event;     /* of its copy in */
};

/* The slots of one direction between the device and files. */
struct staging {
    int32_t full[PLAN_STAGING_SLOTS], empty[PLAN_STAGING_SLOTS]; /* events */
    int32_t next;
};

/* The parks whose copies one queue makes, in its order. */
enum { LINE_IN, LINE_OUT, LINE_FILE_IN, LINE_FILE_OUT, LINE_COUNT };
struct line {
    int32_t *parks, n, done;
};

/* What lowering knows of a lodging that is copied. */
struct lodger {
    int32_t departure; /* of its copy out */
    int32_t out_end;   /* of the step behind which that begins: an event */
    int32_t made;      /* the same of the step on the host that a copy in waits for */
    int32_t in_end;    /* and of the last step on the device */
    int32_t event;     /* of its copy in */
};

/* Lodgings in the order of their copies. */
struct lodging_line {
    const struct plan_lodging **list;
    int32_t n, done;
};

struct lowering {
    struct ckpt_program *p;
    struct lowered *l;
    struct death *deaths; /* instances ordered by last step */
    struct instr nowhere; /* written to when memory ran out */
    int64_t *offset;      /* per graph storage: where its bytes are now */
    int32_t *arriving;    /* per graph storage: event of a copy-in, or of the collective that makes
                             it, that the spine did not wait for yet, or NO_EVENT */
    int32_t *arrived;     /* the last that it did wait for, or NO_EVENT */
    int32_t *leaving;     /* the same for whoever reads it and has to be waited for by a write */
    int32_t *storage;     /* per tape storage: graph storage */
    int64_t workspace;    /* of the step at hand */
    int32_t born, dead;   /* instances seen so far */
    struct route *routes; /* per park */
    struct line lines[LINE_COUNT];
    int32_t *left_by; /* per instance: the park whose copy out reads it at its end, or -1; behind
                         the parks the lodgings */
    int32_t *made_by; /* per instance: the step of the collective that writes it, or -1 */
    int32_t *begins;  /* per step: a collective there waits for the end of this one, or -1 */
    int32_t *ends;    /* the event of the start, then per step that of its end, or NO_EVENT */
    struct {
        struct departure *data;
        int64_t capacity;
    } departures;
    int32_t n_departures;
    struct staging out, in;
    struct lodger *lodgers; /* per lodging */
    int32_t *stepped;       /* per step on the host the event of its end */
    struct lodging_line sent, back;
    bool failed;
};

struct instr *lower_emit(struct lowering *w, enum instr_kind kind, enum queue queue);
int32_t lower_event(struct lowering *w);
/* Records a new event on a queue; the other one an event that has its number.  for_threads: a queue
 * that is a thread on every device waits for it. */
int32_t lower_record(struct lowering *w, enum queue queue);
void lower_record_as(struct lowering *w, enum queue queue, int32_t event, bool for_threads);
void lower_wait(struct lowering *w, enum queue queue, int32_t event);
/* The event of the end of a step, or of the start (-1), which is recorded from now on. */
int32_t lower_end(struct lowering *w, int32_t step);
/* Another queue than the spine is about to read a storage: it waits for the copy or collective that
 * made it. */
void lower_await_bytes(struct lowering *w, enum queue queue, int32_t storage);
const struct graph_op *lower_op(const struct lowering *w, int32_t step);
char *lower_address(const struct lowering *w, int64_t offset);
int64_t lower_instance_bytes(const struct lowering *w, const struct plan_instance *i);
/* The instance of a storage at a step, or -1. */
int32_t lower_instance(const struct lowering *w, int32_t storage, int32_t step);

/* The last step that needs a byte of a room and ended before `before`, or -1.  Where a copy out
 * reads last, the step behind which it begins; those that cross are awaited as departures. */
int32_t lower_room_step(const struct lowering *w, int64_t offset, int64_t bytes, int32_t before);

/* The command of a step that computes, on a queue; on that of the host its operands are there. */
void lower_kernel(struct lowering *w, enum queue queue, const struct graph_op *g);

/* A copy out of a room, with its events.  Returns its index, or -1 without memory. */
int32_t lower_depart(struct lowering *w, int64_t offset, int64_t bytes);
/* Its events were recorded just now. */
void lower_departed(struct lowering *w, int32_t departure);
/* A queue is about to write to a room: it waits for what still reads there. */
void lower_take_room(struct lowering *w, enum queue queue, int64_t offset, int64_t bytes);

/* Plans the routes of all parks.  Returns 0, CKPT_ENOMEM, or CKPT_EPLAN for a park without rooms.
 */
int parks_start(struct lowering *w);
void parks_free(struct lowering *w);
/* Before a step: copies in that begin now.  After it: its end, and copies out. */
void parks_before(struct lowering *w, int32_t step);
void parks_after(struct lowering *w, int32_t step);
/* Whether an instance is not made by a step: it is copied in, or goes on from the step before. */
bool parks_bring(const struct lowering *w, const struct plan_instance *i);
/* Whether a copy out reads an instance when it ends. */
bool parks_take(const struct lowering *w, const struct plan_instance *i);

/* Finds what collectives wait for, and numbers these events.  After parks_start.  Returns 0 or
 * CKPT_ENOMEM. */
int ranks_start(struct lowering *w);
void ranks_free(struct lowering *w);
/* Whether a step is one of all ranks, and its commands. */
bool ranks_run(const struct lowering *w, int32_t step);
void ranks_step(struct lowering *w, int32_t step);

/* Plans the copies of all lodgings.  After ranks_start.  Returns 0, CKPT_ENOMEM or CKPT_EPLAN. */
int lodgings_start(struct lowering *w);
void lodgings_free(struct lowering *w);
/* Before a step: copies back to the device that are due.  After it: copies out. */
void lodgings_before(struct lowering *w, int32_t step);
void lodgings_after(struct lowering *w, int32_t step);
/* The commands of a step on the host, and where its operands are. */
void lodgings_step(struct lowering *w, int32_t step);
char *lodgings_address(struct lowering *w, int32_t tensor);
/* The step on the host that makes a storage, or -1. */
int32_t lodgings_made(const struct lowering *w, int32_t storage);

#endif
