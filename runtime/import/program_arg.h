/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads arguments: objects with one key, which names the kind.  A kind in the plural is a list of
 * the singular kind.
 */
#ifndef CKPT_IMPORT_PROGRAM_ARG_H
#define CKPT_IMPORT_PROGRAM_ARG_H

#include "import/program.h"

enum { PT2_AXES = 16, PT2_DEPTH = 8 }; /* of a tensor; graphs in graphs, and lists in lists */

/* One graph that is being read. */
struct pt2_reader {
    struct pt2_program *p;
    const char *path;
    json_t *index;           /* name of a value to its number */
    struct pt2_value *value; /* of this graph */
    unsigned char *defined;  /* per value: an input or a node before gave it */
    int32_t n_values;
    int depth;
    /* Reads a graph that is an argument. */
    int (*read_graph)(struct pt2_reader *r, const json_t *from, const struct pt2_graph **to);
};

/* "PATH: WHAT 'NAME'"; returns CKPT_EFORMAT. */
int pt2_bad(const struct pt2_reader *r, const char *what, const char *name);
/* The text of a key, or "". */
const char *pt2_text(const json_t *object, const char *key);

/* One argument; all of a list, whose values must be defined; those that a list defines. */
int pt2_read_arg(struct pt2_reader *r, const json_t *from, struct pt2_arg *to);
int pt2_read_args(struct pt2_reader *r, const json_t *from, const struct pt2_arg **to, int *n);
int pt2_define_args(struct pt2_reader *r, const json_t *from, const struct pt2_arg **to, int *n);

#endif
