/* SPDX-License-Identifier: Apache-2.0 */
/* --loss: the model's own, or one of an output and a tensor of the data. */
#ifndef PT2_LOSS_H
#define PT2_LOSS_H

#include "signature.h"

enum loss_kind { LOSS_OWN, LOSS_MSE, LOSS_L1, LOSS_HUBER, LOSS_BCE, LOSS_CE };

struct loss {
    enum loss_kind kind;
    int output;                  /* its number */
    char target[SIGNATURE_NAME]; /* "": none */
};

/* Reads --loss, or finds the model's own.  Returns 0, or -1 after an error message. */
int loss_read(struct loss *l, const struct signature *s, const char *text);

/* Whether the target has whole numbers. */
bool loss_counts(const struct loss *l);

/* Records the loss: out are the outputs of the model, target [samples of the step, ...] is
 * CKPT_NONE without one.  The tape keeps the sentence where both do not fit. */
ckpt_tensor loss_record(const struct loss *l, const struct signature *s, ckpt_tape *t,
                        const ckpt_tensor *out, ckpt_tensor target);

#endif
