/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STDiT3 of Open-Sora 1.2: a diffusion transformer on video, with alternating spatial and temporal
 * blocks.  The parameters have the names of Open-Sora's files.
 *
 * B samples, T frames, S tokens a frame, C = hidden.
 */
#ifndef STDIT_MODEL_H
#define STDIT_MODEL_H

#include "../model.h"

struct stdit_config {
    int64_t hidden, heads, depth;
    int64_t in_channels, caption_channels;
    int64_t text_tokens; /* rows of the null caption */
    double mlp_ratio;
    enum ckpt_dtype dtype;
    bool freeze_caption; /* the caption projection is not trained */
    bool exact_timestep; /* with bf16: the timestep is not rounded */
};

struct stdit_block {
    ckpt_tensor scale_shift_table;
    struct ckpt_nn_linear qkv, proj;
    ckpt_tensor q_norm, k_norm;
    struct ckpt_nn_linear cross_q, cross_kv, cross_proj;
    struct ckpt_nn_linear fc1, fc2;
};

struct stdit {
    struct stdit_config config;
    struct ckpt_nn_linear patch, time[2], fps[2], time_block, caption[2], final;
    ckpt_tensor final_table, null_caption, rope_freqs;
    struct stdit_block *spatial, *temporal; /* config.depth of each */
};

/* Creates the parameters in c.  Returns 0 or CKPT_ENOMEM; other errors are sticky in c. */
int stdit_create(struct stdit *m, ckpt *c, const struct stdit_config *config);
void stdit_free(struct stdit *m);

/* Writes the rotary frequencies into their buffer; they are computed, never loaded. */
int stdit_set_rope(const struct stdit *m, ckpt *c);

struct stdit_inputs {
    ckpt_tensor x;      /* [B, in, T, H, W] fp32 */
    ckpt_tensor t;      /* [B] fp32, 0 .. 1000 */
    ckpt_tensor y;      /* [B, L, caption] of the model's dtype */
    ckpt_tensor mask;   /* [B, L] i32: 1 for valid text tokens */
    ckpt_tensor fps;    /* [B] fp32 */
    ckpt_tensor x_mask; /* [B, T] i32: 1 for noised frames; CKPT_NONE: all */
    ckpt_tensor drop;   /* [B] i32: 1 for samples with the null caption; CKPT_NONE: none */
};

/* Records the model; the result is [B, 2 in, T, H, W] in the model's dtype. */
ckpt_tensor stdit_forward(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g,
                          const struct stdit_inputs *in);

/* ---- internal to the model's files -------------------------------------------------------- */

/* Outputs of the embedders, inputs of the blocks and the final layer. */
struct stdit_condition {
    ckpt_tensor t, t0;      /* [B, C]; t0 for frames that are not noised, or CKPT_NONE */
    ckpt_tensor t6, t06;    /* [B, 6, C] */
    ckpt_tensor frame_mask; /* [B, T, 1, 1] i32, or CKPT_NONE */
    ckpt_tensor y, lens;    /* packed text [R, C] and i32 [B] */
    ckpt_tensor rope;       /* fp32 [T, D/2, 2] */
};

void stdit_embed(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g,
                 const struct stdit_inputs *in, struct stdit_condition *c);
ckpt_tensor stdit_block_forward(const struct stdit *m, const struct stdit_block *b, ckpt_tape *t,
                                const struct stdit_condition *c, ckpt_tensor x, bool temporal);

/* The position table added to the tokens, [S, C] in the model's dtype. */
ckpt_tensor stdit_position(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g);
/* The rotary frequencies [D/2], rounded to the model's dtype. */
void stdit_rope_frequencies(const struct stdit_config *c, float *dst);
ckpt_tensor stdit_rope(const struct stdit *m, ckpt_tape *t, int64_t frames);

#endif
