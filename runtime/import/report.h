/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a .pt2 archive, and what of it can be recorded: facts without a context. */
#ifndef CKPT_IMPORT_REPORT_H
#define CKPT_IMPORT_REPORT_H

#include "import/program.h"
#include "import/symbols.h"
#include "import/weights.h"

/* All calls of one op. */
struct op_use {
    const char *target;
    const struct pt2_node *first;
    int calls;
    int folded; /* of them: their operands are constants, so that loading computes them */
    bool known; /* it can be recorded */
};

struct import_report {
    struct archive *archive;
    struct weights *weights;
    struct pt2_program program;
    struct symbols symbols;
    struct op_use *use; /* in the order of targets */
    int n_uses, calls, folded;
};

/* Reads an archive.  Returns 0, or a code with the sentence of the thread; free it in any case. */
int import_report_make(struct import_report *r, const char *path);
void import_report_free(struct import_report *r);

/* Sets dynamic dimensions from "NAME=N[,NAME=N...]": a symbol of the program, or INPUT.AXIS.
 * Returns 0, or a code with the sentence of the thread. */
int import_report_set_sizes(struct import_report *r, const char *text);

#endif
