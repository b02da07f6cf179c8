/* SPDX-License-Identifier: Apache-2.0 */
/* A small transformer with all kinds of layers, for tests of whole steps.  Public API only. */
#ifndef CKPT_TESTS_TINY_H
#define CKPT_TESTS_TINY_H

#include "ckpt.h"

enum { TINY_BLOCKS = 6, TINY_PER_BLOCK = 9, TINY_PARAMS = TINY_BLOCKS * TINY_PER_BLOCK + 4 };

struct tiny {
    enum ckpt_dtype dtype;
    int64_t batch, length, width, heads;
    ckpt_tensor param[TINY_PARAMS];
    int n;
    bool no_gradients; /* they are no outputs: a frozen parameter has none */
};

/* The results of a run, to be compared bit by bit. */
struct tiny_result {
    int steps;
    float loss[64];
    double norm[64];
    float *gradients; /* of all parameters, after the last step */
    float *values;    /* fp32 masters */
    float *ema;
    int64_t numel;
    struct ckpt_program_info info;
};

void tiny_create(struct tiny *m, ckpt *c);
ckpt_tensor tiny_record(ckpt_tape *t, int64_t micro_batch, void *user);

/* AdamW with all options: clipping, decay, moving average. */
struct ckpt_adamw tiny_adamw(void);

/* Trains from scratch.  Returns 0 or the library's code, with the error in message. */
int tiny_train(struct tiny m, const struct ckpt_options *opt, const struct ckpt_adamw *adamw,
               int steps, struct tiny_result *r, char message[1024]);
void tiny_result_free(struct tiny_result *r);
/* Whether losses, norms, gradients, masters and EMA agree in every bit. */
bool tiny_same(const struct tiny_result *a, const struct tiny_result *b);

#endif
