/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer of a trainer: --optimizer. */
#ifndef EXAMPLES_OPTIMIZER_H
#define EXAMPLES_OPTIMIZER_H

#include "ckpt.h"

/* A row for all structs that have a struct training_options as member `train`. */
#define OPTIMIZER_ROW                                                                              \
    ROW("optimizer", STRING, train.optimizer, "KIND",                                              \
        "adamw (default), sgd (momentum 0.9), lion, adafactor, or muon for matrices and adamw "    \
        "for the rest; --lr has the default of adamw")

/* Whether there is such a kind.  Returns 0, or -1 after a sentence. */
int optimizer_check(const char *kind);

/* One of this kind; learning rate, decay, clipping, moving average and dtype of gradients are those
 * of s, the rest is the library's default where the kind is not adamw. */
ckpt_optimizer *optimizer_make(ckpt *c, const char *kind, const struct ckpt_adamw *s);

/* With muon: this matrix is one for adamw all the same, as embeddings are. */
void optimizer_keep_adamw(ckpt *c, ckpt_optimizer *o, const char *kind, ckpt_tensor table);

#endif
