/* SPDX-License-Identifier: Apache-2.0 */
/* Small programs for the planner's tests.  Forward ops are added one by one; build_finish derives
 * the backward pass and the update. */
#ifndef TESTS_PLAN_GRAPHS_H
#define TESTS_PLAN_GRAPHS_H

#include "plan/search/search.h"

#define MOST_OPERANDS 8

/* A program under construction: its graph, and the gradient of every storage. */
struct graph_builder {
    struct graph *g;
    int32_t storage_room, op_room, ref_room;
    int32_t *gradient; /* per storage: its gradient, or -1 */
    struct forward *forward;
    int32_t n_forward;
};

/* A forward op.  needs: the storages that its gradient reads besides the gradients of its outputs;
 * bit i is input i, bit n_in + i is output i. */
struct forward {
    const char *name;
    int32_t n_in, in[MOST_OPERANDS], n_out, out[MOST_OPERANDS];
    int64_t out_bytes[MOST_OPERANDS], weight, workspace;
    unsigned needs;
    unsigned constant_outputs; /* bit i: output i has no gradient */
    double seconds;
    bool once;       /* must not run again */
    int32_t onto;    /* > 0: writes a part of this storage instead of out[0] */
    int32_t changes; /* > 0: changes this storage in place */
    int32_t w, dw;   /* filled in: the weight, its gradient, */
    bool trained;    /* whether the loss depends on it */
};

struct graph_builder *build_new(void);
int32_t build_storage(struct graph_builder *k, int64_t bytes, enum graph_kind kind,
                      const char *name);
int32_t build_op(struct graph_builder *k, enum graph_phase phase, const char *name, int32_t n_reads,
                 const int32_t *reads, int32_t n_writes, const int32_t *writes, double seconds);
/* Adds a forward op; creates the storages of its outputs and returns them in f->out. */
void build_forward(struct graph_builder *k, struct forward *f);
/* Adds y = op(x) of bytes, whose gradient reads the storages in needs; returns y. */
int32_t build_unary(struct graph_builder *k, const char *name, int32_t x, int64_t bytes,
                    int64_t weight, unsigned needs, double seconds);
int32_t build_input(struct graph_builder *k, int64_t bytes);
/* Appends the loss, the backward pass and the update; frees k. */
struct graph *build_finish(struct graph_builder *k, int32_t loss_of, int32_t n_micro);

/* n layers of bytes each; the backward op of a layer reads its input, its output and a gradient. */
struct graph *graph_chain(int32_t n, int64_t bytes);
/* Blocks of 13 ops as in a diffusion transformer; unit is one activation of the residual stream. */
struct graph *graph_transformer(int32_t blocks, int64_t unit, int32_t n_micro);
/* Down and up again, with a skip connection on every level. */
struct graph *graph_unet(int32_t levels, int64_t bytes);
/* A recurrent cell in steps: gates of four units from the last output and from the input of all
 * steps, a state, and a loss of each step. */
struct graph *graph_recurrent(int32_t steps, int64_t unit);
/* Random connections, several outputs, parts, changes in place, ops that run once. */
struct graph *graph_random(uint32_t seed, int32_t n);

/* A link and a drive that are slow next to the ops of these programs, so that every tier matters.
 */
extern const struct machine graphs_machine;

/* The peak bytes of a plan. */
int64_t plan_peak(const struct plan *p);
/* Plans, checks the plan, and returns it; fails the test otherwise. */
struct plan *plan_checked(const struct graph *g, int64_t budget);
/* The plan of a frontier without a search, or NULL. */
struct plan *plan_unsearched(const struct graph *g, const struct machine *m,
                             const struct budgets *b, int64_t reserved);
/* Sorts and checks a record that a test has changed. */
int plan_check_again(const struct graph *g, struct plan *p);
/* The same with a frontier that is already searched. */
struct plan *frontier_checked(struct frontier *pf, int64_t budget);

/* An offload of a plan, for tests that inspect or change it. */
struct leave {
    struct offload is;
    bool wraps; /* round the end of the step */
    struct copy *out, *in;
    struct residence *before, *behind, *below; /* before, behind: on the device */
};
/* Lists them in the order of their copies back: free() it.  Returns how many there are. */
int32_t list_leaves(const struct graph *g, const struct plan *p, struct leave **list);

#endif
