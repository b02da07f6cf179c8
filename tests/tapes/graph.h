/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse mode in fp64.  Every element is a node: a value and its derivatives by earlier nodes.  A
 * pass over the nodes from the last to the first gives all gradients, so that no call has a
 * gradient rule here, and nothing is shared with the library.
 */
#ifndef CKPT_TESTS_GRAPH_H
#define CKPT_TESTS_GRAPH_H

#include "recording.h"

struct edge {
    int32_t from;
    double slope;
};

struct node {
    double x, gradient, scale; /* scale: the gradient, of magnitudes */
    int64_t first;             /* edges [first, first of the next node) */
    uint8_t dtype;             /* the gradient is rounded to it; CKPT_I32: it is not */
};

struct graph {
    struct node *node;
    struct edge *edge;
    int64_t n, room, n_edges, edge_room;
    enum rounding rounding;
    /* An element is close to a branch, nearer than the margin relative to a value there; or equal
     * elements were normalised. */
    bool near;
    double largest, margin;
};

double round_to(double x, enum ckpt_dtype dtype, enum rounding rounding);

int32_t node_new(struct graph *g, double x);
/* Adds an edge to the last node. */
void node_edge(struct graph *g, int32_t from, double slope);
double node_at(const struct graph *g, int32_t i);

/* Nodes with one and two edges. */
int32_t node_one(struct graph *g, double x, int32_t a, double da);
int32_t node_two(struct graph *g, double x, int32_t a, double da, int32_t b, double db);
int32_t node_mul(struct graph *g, int32_t a, int32_t b);
int32_t node_scaled(struct graph *g, int32_t a, double factor);

/* Of n nodes, `step` apart: the sum times a factor; log of the sum of exponentials. */
int32_t node_sum(struct graph *g, const int32_t *x, int64_t n, int64_t step, double factor);
int32_t node_log_sum(struct graph *g, const int32_t *x, int64_t n, int64_t step);
/* 1 / sqrt(mean of squares + eps) */
int32_t node_inverse_root(struct graph *g, const int32_t *x, int64_t n, double eps);
/* A sum of n products of nodes `da` and `db` apart, plus a node unless it is -1. */
int32_t node_product(struct graph *g, const int32_t *a, int64_t da, const int32_t *b, int64_t db,
                     int64_t n, int32_t plus);
/* The largest, or with sign -1 the smallest. */
int32_t node_largest(struct graph *g, const int32_t *x, int64_t n, double sign);

/* Notes that a value at x is `distance` from a branch. */
void graph_branch(struct graph *g, double distance, double x);
void graph_backward(struct graph *g, int32_t from, double gradient);

#endif
