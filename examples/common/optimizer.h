/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer of a trainer: --optimizer. */
#ifndef EXAMPLES_OPTIMIZER_H
#define EXAMPLES_OPTIMIZER_H

#include "ckpt.h"

/* An option row for structs that have a struct training_options as member `train`. */
#define OPTIMIZER_ROW                                                                              \
    ROW("optimizer", STRING, train.optimizer, "KIND",                                              \
        "adamw, sgd (momentum 0.9), lion, adafactor, or muon (matrices; adamw for the rest); "     \
        "--lr has the same default for all (default adamw)")

/* Checks the name of the optimizer.  Returns 0, or -1 after an error message. */
int optimizer_check(const char *kind);

/* Makes an optimizer of this kind.  Learning rate, weight decay, clipping, moving average and
 * gradient dtype come from s; kinds other than adamw use the library's defaults for the rest. */
ckpt_optimizer *optimizer_make(ckpt *c, const char *kind, const struct ckpt_adamw *s);

/* With muon: updates this matrix by AdamW instead, as for embeddings. */
void optimizer_keep_adamw(ckpt *c, ckpt_optimizer *o, const char *kind, ckpt_tensor table);

#endif
