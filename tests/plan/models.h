/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs and traces for the planner's benchmarks.  Sizes and flops are those of the real models;
 * seconds follow from machine m.  Synthetic graphs have seconds of their own.
 */
#ifndef TESTS_PLAN_MODELS_H
#define TESTS_PLAN_MODELS_H

#include "plan/search/search.h"
#include "net.h"

/* A training step of STDiT3 of width 1152 in bf16, op by op as the trainer records it. */
enum { STDIT_TOKENS = 15 * 23 * 40 };
struct stdit_shape {
    int32_t depth;  /* 28 is XL/2 */
    int64_t tokens; /* of 15 frames */
    bool ema;       /* AdamW keeps an average of the weights too */
    bool narrow;    /* gradients of weights in bf16, else fp32 */
};
struct graph *model_stdit_shape(const struct stdit_shape *s, const struct machine *m);
/* The same with STDIT_TOKENS and gradients in fp32. */
struct graph *model_stdit(int32_t depth, bool ema, const struct machine *m);

/* A rank's step in bf16: layers of one bucket each.  Sizes are of a layer, without sharing. */
enum { RANKS_LAYERS = 128 };
struct ranks_shape {
    int32_t layers, ranks;
    int64_t numel;        /* parameters */
    int64_t gradient;     /* bytes of a number of their gradients: 2 or 4 */
    int64_t stream, kept; /* bytes of its output, and of what else its gradient reads */
    double flops;         /* forward */
    bool early;           /* gradients are summed over ranks as they are made, not in the update */
    bool norm;            /* an op stands between a gather and what reads its output */
};
struct graph *model_ranks(const struct ranks_shape *s, const struct machine *m);

/* A GPU of 2017 to 2020 without tensor cores, as in published results of convolutional nets. */
extern const struct machine machine_fp32;

/* fp32, 224 x 224 pictures.  Convolutional nets have batch norm and relu in one op, and the
 * gradient of a weight before that of the input. */
struct graph *model_resnet50(int32_t batch, const struct machine *m);
/* fp32, 416 x 608 pictures, 64 channels at the top, skips by concatenation. */
struct graph *model_unet(int32_t batch, const struct machine *m);
/* fp32 encoder and decoder, 256 x 256 pictures, three halvings, with a latent that both read. */
struct graph *model_vae(int32_t batch, const struct machine *m);
/* Two transformers of other widths whose last outputs meet in one loss. */
struct graph *model_two_tower(const struct machine *m);

/* At most 60 ops, each with one output; see tests/plan/oracle. */
struct graph *model_chain(uint32_t seed, int32_t n, bool uniform);
struct graph *model_random(uint32_t seed, int32_t n);
struct graph *model_small_unet(uint32_t seed, int32_t levels);
/* By the name of an instance of the oracle, such as "random-7"; NULL for an unknown one. */
struct graph *model_small(const char *name);

/* About n ops in blocks, no two of them alike, some with skips over a few blocks. */
struct graph *model_synthetic(int32_t n);
/* The same with skips of up to a thousand layers: many bytes are alive after every op. */
struct graph *model_tangled(int32_t n);

/* Lifetimes as in training: forward allocates, backward frees, with short-lived buffers between.
 * Fills n items; returns the peak of live bytes. */
int64_t model_trace(uint32_t seed, int32_t n, struct place_item *items);

#endif
