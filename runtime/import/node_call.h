/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One recording of a graph: what each name stands for, and the call of an op on them.
 *
 * A tensor is a variable.  Some own a storage; a view belongs to the storage of another variable
 * and is computed when it is read, by the op that made it.  An op in place gives a storage a new
 * value: a write through views is put back into what each was taken from, and every other view of
 * the storage is computed again when it is read next.  So what is recorded has no op in place.
 */
#ifndef CKPT_IMPORT_NODE_CALL_H
#define CKPT_IMPORT_NODE_CALL_H

#include "import/tensor.h"

struct call;

struct variable {
    struct variable *parent; /* of a view; NULL: it owns a storage */
    const struct call *call; /* of a view: the call that made it, */
    int part;                /* and which of its results it is */
    const struct pt2_tensor *facts;
    struct tensor now; /* its value at a version of the storage; 0: none yet */
    int64_t seen;
    int64_t version;       /* of a storage: from 1 on */
    bool differentiable;   /* of a storage: it depends on a trained parameter */
    int32_t uses;          /* in the graph */
    struct variable *next; /* of those that nobody has read yet */
};

enum item_kind { ITEM_NONE, ITEM_TENSOR, ITEM_INT, ITEM_FLOAT, ITEM_BOOL };

/* What a name of a graph stands for. */
struct item {
    enum item_kind kind;
    union {
        struct variable *v;
        int64_t i;
        double f;
        bool b;
    };
};

struct frame {
    const struct pt2_graph *graph;
    struct item *item; /* per value of the graph */
    int32_t *uses;     /* the same: how often nodes and outputs name it */
};

/*
 * An op of PyTorch.  An op without `put` has results of its own.  One with `put` is a view: put
 * gives the value of the tensor it looks at, after the view of it was given a value.  `is_copy`
 * tells the calls of such an op that copy after all, by what the file says.  One that `acts` is
 * recorded even if nobody reads its result.
 */
struct op {
    const char *name; /* "aten.add.Tensor" */
    struct tensor (*record)(struct call *c, int part);
    struct tensor (*put)(struct call *c, int part, struct tensor whole, struct tensor view);
    bool (*is_copy)(const struct pt2_node *n, const struct pt2_tensor *self,
                    const struct pt2_tensor *result);
    bool acts;
};

struct call {
    struct recording *r;
    struct frame *f;
    const struct pt2_node *node;
    const struct op *op;
    const struct pt2_tensor *facts; /* of the result that is recorded */
    int dtype;                      /* and its dtype; of a part of complex numbers: float32 */
    bool imaginary;                 /* of complex numbers the imaginary part is recorded */
};

/* Records a result; one of complex numbers in two parts, each by the op on that part of its
 * operands. */
struct tensor call_record(struct call *c, int part);

/* The value of a variable. */
struct tensor *variable_read(struct recording *r, struct variable *v);
/* Gives a variable a value of its shape and dtype. */
void variable_write(struct recording *r, struct variable *v, struct tensor now);
/* Whether an argument of a node depends on a trained parameter, where gradients are recorded. */
bool call_differentiable(const struct call *c);
/* The argument that result `part` of a view looks at: "self", the "input" of a dropout, or one of a
 * list.  NULL: there is none. */
const struct pt2_arg *viewed_argument(const struct pt2_node *n, int part);
/* `put` of views through which nothing is written: a failure; of those that are the same; and of
 * those that may repeat elements, which are not written. */
struct tensor put_nothing(struct call *c, int part, struct tensor whole, struct tensor view);
struct tensor put_same(struct call *c, int part, struct tensor whole, struct tensor view);
struct tensor put_expand(struct call *c, int part, struct tensor whole, struct tensor view);
/* Gives the variable `self` of an op in place what the op computes. */
void variable_change(struct call *c, struct variable *self);
/* The same later: before its storage is read, or anything else is written. */
void variable_defer(struct call *c);
/* Records a deferred change that a node would read. */
void variable_flush(const struct call *c);
/* A variable that owns its storage; NULL and a failure without memory. */
struct variable *variable_new(struct recording *r, const struct pt2_tensor *facts,
                              struct tensor now);
struct variable *variable_storage(struct variable *v);
/* Whether it looks at its storage without a gradient. */
bool variable_detached(const struct variable *v);

/* ---- arguments ------------------------------------------------------------------------------- */
/* By name; what a node does not have is the default of the schema (defaults.h). */

/* Whether the argument is there and not None. */
bool call_has(struct call *c, const char *name);
int64_t call_int(struct call *c, const char *name);
double call_double(struct call *c, const char *name);
bool call_bool(struct call *c, const char *name);
const char *call_text(struct call *c, const char *name);
/* At most `most` whole numbers, of a list or one alone; returns how many. */
int call_ints(struct call *c, const char *name, int64_t *to, int most);
/* n numbers: a list of n, or one for all. */
void call_ints_of(struct call *c, const char *name, int64_t *to, int n);
/* The same, for sizes from `least` to CALL_LARGEST: what is computed of them fits in 64 bits, also
 * after a refusal, when they are `least`. */
#define CALL_LARGEST (INT64_C(1) << 24)
void call_sizes_of(struct call *c, const char *name, int64_t least, int64_t *to, int n);
/* A tensor, of complex numbers the part that is recorded; numbers become tensors with no axis.
 * call_variable: NULL for numbers and None. */
struct tensor call_tensor(struct call *c, const char *name);
/* A part of complex numbers. */
struct tensor call_part(struct call *c, const char *name, bool imaginary);
/* The tensor on the tape in a float dtype; CKPT_NONE for None. */
ckpt_tensor call_operand(struct call *c, const char *name, int dtype);
struct variable *call_variable(struct call *c, const char *name);
/* The elements of a list of tensors, NULL for those that are None; returns how many. */
int call_variables(struct call *c, const char *name, struct variable ***list);
/* An axis of a tensor. */
int call_axis(struct call *c, const char *name, const struct tensor *of);

/* The number of the i-th argument of a node without names. */
struct item call_item(struct call *c, const struct pt2_arg *a);

/* The sizes of the result, where the file writes them as numbers; else n is -1. */
int call_sizes(struct call *c, int64_t *to);

#endif
