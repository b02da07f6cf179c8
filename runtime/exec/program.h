/*
 * A compiled program: the tape, its plan, the instructions they lower to, and the host bytes that
 * inputs come from and outputs go to.  Everything is made by ckpt_compile; a step only walks.
 */
#ifndef CKPT_PROGRAM_H
#define CKPT_PROGRAM_H

#include "context.h"
#include "plan/plan.h"
#include "tape/tape.h"

enum instr_kind {
    INSTR_COMPUTE,
    INSTR_COPY_IN,
    INSTR_COPY_OUT,
    INSTR_RECORD,
    INSTR_WAIT,
    INSTR_POISON
};

struct instr {
    enum instr_kind kind;
    enum queue queue;
    int32_t op;    /* COMPUTE: position on the tape */
    int32_t first; /* COMPUTE: its operands in lowered.views */
    int32_t event; /* RECORD, WAIT */
    int32_t port;  /* COPY_IN: feed; COPY_OUT: fetch */
    void *device;  /* COPY, POISON: device bytes; COMPUTE: workspace */
    int64_t bytes;
};

struct lowered {
    struct {
        struct instr *data;
        int64_t capacity;
    } instrs;
    struct {
        struct ckpt_view *data;
        int64_t capacity;
    } views;
    int32_t n_instrs, n_body; /* the body's instructions come first */
    int32_t n_views, n_events;
    int64_t base; /* of the transient region when this was made */
};

/* Host bytes of an input or output: one slice per micro-step. */
struct port {
    char *data;
    int64_t slice; /* bytes of one micro-step */
    int64_t bytes; /* of all */
    bool fed;
};

struct ckpt_program {
    struct ckpt *c;
    struct ckpt_program *next;
    ckpt_tape *tape;
    struct graph *graph;
    struct plan *plan;
    struct lowered lowered;
    struct timing *timing; /* NULL unless the ops are timed */
    struct port *feeds, *fetches; /* per tape feed and fetch */
    struct ckpt_run *runs;        /* per micro-step */
    int64_t batch, steps;
    float lr;
    bool trains;
    double grad_norm;
    int32_t loss, norm; /* fetches, or -1 */
};

/* Resolves the plan to instructions with addresses.  Returns 0 or a code. */
int program_lower(struct ckpt_program *p);
void lowered_free(struct lowered *l);

/* Hands all instructions of one step to the device and waits.  Returns the device's code. */
int program_walk(struct ckpt_program *p);

/* Walks the body of the last step again, op by op, up to the first result that is not finite.
 * Its tape op, or -1; *feed is set to an input that was not finite to begin with, or -1. */
int32_t program_find_nan(struct ckpt_program *p, int32_t *feed);

#endif
