/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a recorder: what its source repeats.  A list is a module with numbered children, as
 * "model.layers"; the calls of a child in a row are a segment.  Segments whose source is the same,
 * but for the child's number and what comes from outside, are calls of one function.
 */
#ifndef CKPT_IMPORT_SOURCE_PARTS_H
#define CKPT_IMPORT_SOURCE_PARTS_H

#include <stdio.h>
#include "import/source_model.h"

struct list {
    const char *path;  /* "model.layers" */
    const char *ident; /* "model_layers" */
    int n;             /* numbers of its children are below */
    int n_calls, n_segments;
    bool uniform; /* its children have the same parameters */
};

/* Where a parameter is. */
struct source_place {
    int list, child;    /* -1: at the top */
    const char *member; /* in the struct of the child or of the model */
    const char *rest;   /* its name behind the child's */
};

struct segment {
    int first, last; /* calls */
    int list, child;
    int function;
    const char *body;
    int n_outer;
    int32_t *outer; /* values from outside in the order of their first use: the arguments */
};

struct function {
    int segment; /* the first with this body */
    const char *name;
    int n_results;
    int32_t *result; /* the call's number in the segment, times 4, plus the result of it */
};

/* A size of inputs and parameters, named after the first that has it. */
struct named_size {
    int64_t n;
    const char *name;
};

struct parts {
    const struct source *s;
    struct heap heap;
    struct list *list;
    int n_lists;
    struct source_place *param;
    int32_t n_values;
    int32_t *maker;    /* per value: its call, or -1 */
    const char **name; /* per value: in the function that is written; NULL: none */
    int32_t *reads;    /* per value */
    int *owner;        /* per call: its segment, or -1 */
    struct segment *segment;
    int n_segments;
    struct function *function;
    int n_functions;
    struct named_size *size;
    int n_sizes;
};

/* 0 or CKPT_ENOMEM. */
int parts_find(struct parts *p, const struct source *s);

/* The call of a number in a segment, where constants have none: which segment has one first
 * differs. */
int parts_call(const struct parts *p, const struct segment *g, int n);

/* Finds the lists.  0 or CKPT_ENOMEM. */
int parts_lists(struct parts *p);
/* The list and child of a path with a number, or -1; *rest is behind it. */
int parts_list_of(const struct parts *p, const char *path, int *child, const char **rest);

/* Names the sizes.  0 or CKPT_ENOMEM. */
int parts_sizes(struct parts *p);
/* Writes a size by its name, or (p NULL, or it has none) as a number. */
void parts_put_size(const struct parts *p, int64_t n, FILE *f);

/* An identifier of C. */
const char *parts_ident(struct parts *p, const char *text);

/* Writes the calls of a segment, or of the top (NULL), as statements.  body_call writes one. */
struct body {
    struct parts *p;
    struct segment *segment;
    const char *label;
    FILE *f;
    struct {
        const char *name;
        int n;
    } count[200]; /* of local names */
    int n_count;
};

void body_call(struct body *b, int call);
/* A name like no other in the function. */
const char *body_name(struct body *b, const char *stem);
/* How the function names a value. */
const char *body_value(struct body *b, int32_t value);
/* Writes a statement, broken at 100 columns. */
void source_statement(FILE *f, int indent, const char *text);
/* Renders a segment, whose values keep their names until parts_forget. */
const char *parts_body(struct parts *p, struct segment *g);
void parts_forget(struct parts *p);
/* The source of a parameter at the top, or in a function of its child. */
const char *parts_param(struct parts *p, int32_t param, const struct segment *inside);

#endif
