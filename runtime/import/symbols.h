/* SPDX-License-Identifier: Apache-2.0 */
/* The dynamic dimensions of a program: their sizes, and expressions of them. */
#ifndef CKPT_IMPORT_SYMBOLS_H
#define CKPT_IMPORT_SYMBOLS_H

#include "import/program.h"

struct symbol {
    const char *name; /* "s17" */
    int64_t n;        /* its size */
    int64_t min, max;
};

struct symbols {
    int n;
    struct symbol *at;
};

/* Those of the program, with their sizes at the export.  Returns 0 or CKPT_ENOMEM. */
int symbols_read(struct symbols *s, struct pt2_program *p);

/* Sets one by its name, or by an input of the program and its axis ("ids.0").  Returns 0,
 * CKPT_ENAME or CKPT_ESHAPE with the sentence of the thread. */
int symbols_set(struct symbols *s, const struct pt2_program *p, const char *name, int64_t n);

/* The name of the dimension that a size is; "" for an expression of some; NULL for a number. */
const char *symbols_name(const struct symbols *s, const struct pt2_size *size);

/* The value of a size.  Returns 0, or CKPT_EFORMAT and the sentence for an expression that cannot
 * be read or has no value. */
int symbols_value(const struct symbols *s, const struct pt2_size *size, int64_t *n);

/*
 * Makes a size have the value n, by the symbol that it is or is a multiple of.  An expression of
 * another form is only compared.  Returns 0, or CKPT_ESHAPE and the sentence if it cannot be n.
 */
int symbols_bind(struct symbols *s, const struct pt2_size *size, int64_t n);

#endif
