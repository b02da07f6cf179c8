/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transformer of CogVideoX (Yang et al. 2024).  Text and video tokens share one attention; each
 * stream has its own shift, scale and gate of a shared layer norm.  Parameters have the names that
 * diffusers uses in its files.
 *
 * B samples, F latent frames of h x w, S text tokens, N video tokens, D = width.
 */
#ifndef COGVIDEO_MODEL_H
#define COGVIDEO_MODEL_H

#include "../model.h"
#include "config.h"

/* A layer norm whose shift, scale and gate are computed from the timestep. */
struct cogvideo_norm {
    struct ckpt_nn_linear linear; /* [6 D, time]; after the last block [2 D, time] */
    struct ckpt_nn_norm norm;
};

struct cogvideo_block {
    struct cogvideo_norm norm1, norm2;
    struct ckpt_nn_linear q, k, v, out;
    struct ckpt_nn_norm norm_q, norm_k; /* per head */
    struct ckpt_nn_linear up, down;
};

struct cogvideo {
    struct cogvideo_config config;
    enum ckpt_dtype dtype;
    struct ckpt_nn_linear patch; /* weight [D, C, 2, 2]; 1.5 models [D, 8 C] */
    struct ckpt_nn_linear text, time[2], ofs[2], proj;
    ckpt_tensor position; /* [1, S + N, D], learned; CKPT_NONE: not in the file */
    struct ckpt_nn_norm norm;
    struct cogvideo_norm norm_out;
    struct cogvideo_block *block; /* [config.layers] */
};

/* Makes the parameters in c.  Returns 0 or CKPT_ENOMEM; c keeps other errors. */
int cogvideo_create(struct cogvideo *m, ckpt *c, const struct cogvideo_config *config,
                    enum ckpt_dtype dtype);
void cogvideo_free(struct cogvideo *m);

/* The number of parameters of a model of this shape, without making it.  A learned position table
 * is a buffer in diffusers and does not count. */
int64_t cogvideo_parameters(const struct cogvideo_config *c);

/* Checks that the model can be recorded with this shape.  Returns 0, or -1 after an error
 * message. */
int cogvideo_check_geometry(const struct cogvideo_config *c, const struct video_geometry *g);

/* Records the model; the result is [B, out, F, h, w] in the model's dtype. */
ckpt_tensor cogvideo_forward(const struct cogvideo *m, ckpt_tape *t, const struct video_geometry *g,
                             const struct video_inputs *in);

/* ---- private to the files of the model ---------------------------------------------------- */

/* Tokens of the video: frame groups, rows and columns. */
struct cogvideo_grid {
    int64_t frames, rows, columns, tokens;
};

struct cogvideo_grid cogvideo_grid(const struct cogvideo_config *c, const struct video_geometry *g);

/* The outputs of the embedders, inputs of the blocks: text [B, S, D], video [B, N, D], of which
 * ranks may have a part (--sequence), SiLU of the embedded timestep [B, time], the rotary table
 * fp32 [S + N, head/2, 2] or CKPT_NONE. */
struct cogvideo_state {
    ckpt_tensor text, video, time, rope;
};

void cogvideo_embed(const struct cogvideo *m, ckpt_tape *t, const struct video_geometry *g,
                    const struct video_inputs *in, struct cogvideo_state *s);

/* Records one block.  The text output of the last block has no reader: it is not computed, and is
 * CKPT_NONE. */
void cogvideo_block_forward(const struct cogvideo *m, const struct cogvideo_block *b, ckpt_tape *t,
                            struct cogvideo_state *s, bool last);

/* LN(x) (1 + scale) + shift with the weights of n, in one pass over x; shift and scale are fp32 [B,
 * 1, D]. */
ckpt_tensor cogvideo_modulated_norm(const struct cogvideo *m, ckpt_tape *t,
                                    const struct ckpt_nn_norm *n, ckpt_tensor x, ckpt_tensor shift,
                                    ckpt_tensor scale);

/* The rows of a modulation: n tensors [B, 1, D] from a linear layer of the embedded timestep. */
void cogvideo_rows(const struct cogvideo *m, ckpt_tape *t, const struct ckpt_nn_linear *linear,
                   ckpt_tensor time, int n, ckpt_tensor *row);

/* Cosines and sines of all tokens [S + N, head/2, 2]; the angle of text is 0. */
void cogvideo_rotary_table(const struct cogvideo_config *c, const struct video_geometry *g,
                           float *table);
/* The sin-cos positions of the video tokens [N, D]. */
void cogvideo_position_table(const struct cogvideo_config *c, const struct video_geometry *g,
                             float *table);

#endif
