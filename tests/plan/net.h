/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Benchmark programs, built layer by layer: sizes in bytes, work in flops, and a backward pass that
 * follows from the inputs of every layer's gradient.  Without cmocka, since benchmarks and fuzzers
 * use them too.
 */
#ifndef TESTS_PLAN_NET_H
#define TESTS_PLAN_NET_H

#include "plan/graph/machine.h"
#include "plan/plan.h"

#define NET_OPERANDS 12

/* A trained parameter: what the update reads and changes. */
struct net_param {
    int32_t value, gradient;
    int64_t numel;
};

/* A forward layer with one output that counts. */
struct net_layer {
    const char *name;
    int32_t n_in, in[4];
    int64_t bytes;        /* of the output */
    int64_t stats;        /* bytes of a second output that the gradient reads, or 0 */
    int64_t weight;       /* numbers in its weight, or 0 */
    unsigned needs;       /* what the gradient of an input reads: bit i input i, NET_OUTPUT */
    double flops;         /* forward; the gradient of an input or of the weight takes as many */
    double seconds;       /* > 0: instead of what flops and bytes say */
    int32_t out, side, w; /* filled in */
};
#define NET_OUTPUT 16u

struct net {
    struct graph *g;
    int64_t storage_room, op_room, ref_room;
    const char *label;
    int64_t tokens;   /* of a transformer: the rows of its largest tensors */
    int64_t gradient; /* bytes of a number of a gradient of a parameter: 4 unless set otherwise */
    struct {
        struct net_param *data;
        int64_t capacity;
    } params;
    int32_t n_params;
    struct {
        struct net_layer *data;
        int64_t capacity;
    } layers;
    int32_t n_layers;
};

/* One op: operands end at the first 0. */
struct net_op {
    enum graph_phase phase;
    const char *name;
    int32_t in[NET_OPERANDS], out[NET_OPERANDS];
    const int32_t *more; /* further inputs */
    int32_t n_more;
    double flops, bytes; /* bytes 0: of all operands */
    double seconds;
    int64_t workspace;
};

struct net *net_new(void);
int32_t net_storage(struct net *n, enum graph_kind kind, int64_t bytes, const char *name);
int32_t net_add(struct net *n, const struct net_op *op);
/* A storage, and the op that makes it. */
int32_t net_make(struct net *n, enum graph_kind kind, int64_t bytes, const struct net_op *op);
int32_t net_feed(struct net *n, int64_t bytes);
int32_t net_param(struct net *n, int64_t numel, int64_t element, const char *name);
int32_t net_layer(struct net *n, struct net_layer layer);
/* Appends the gradients of all layers, the loss being the last one. */
void net_backward(struct net *n);
/* Appends norm, clip and AdamW with a master copy, two moments and an average if ema is set. */
void net_adamw(struct net *n, bool master, bool ema);
/* Appends SGD with momentum. */
void net_sgd(struct net *n);
/* The graph, priced for machine m unless that is NULL; frees the rest. */
struct graph *net_finish(struct net *n, const struct machine *m);

#endif
