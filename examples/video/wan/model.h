/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transformer of Wan 2.1 and 2.2 (Wan Team 2025).  Video tokens have self-attention with a
 * rotary embedding in three axes, and cross-attention to the text.  Parameters have the names that
 * diffusers uses in its files.
 *
 * B samples, F latent frames of h x w, S text tokens, N video tokens, D = width.
 */
#ifndef WAN_MODEL_H
#define WAN_MODEL_H

#include "../model.h"
#include "config.h"

struct wan_attention {
    struct ckpt_nn_linear q, k, v, out;
    struct ckpt_nn_norm norm_q, norm_k; /* over all heads together */
    /* Of cross-attention with the features of a picture: keys and values from those. */
    struct ckpt_nn_linear sight_k, sight_v;
    struct ckpt_nn_norm norm_sight;
};

struct wan_block {
    ckpt_tensor table; /* [1, 6, D] fp32: added to the modulation */
    struct wan_attention self, cross;
    struct ckpt_nn_norm norm2; /* before cross-attention; the other norms have no weights */
    struct ckpt_nn_linear up, down;
};

struct wan {
    struct wan_config config;
    enum ckpt_dtype dtype;
    struct ckpt_nn_linear patch; /* weight [D, C, 1, 2, 2] */
    struct ckpt_nn_linear time[2], time_proj, text[2], proj;
    struct ckpt_nn_linear sight[2]; /* of the features of a picture, and the norms around them */
    struct ckpt_nn_norm norm_sight[2];
    ckpt_tensor table;       /* [1, 2, D] fp32: of the head */
    struct wan_block *block; /* [config.layers] */
};

/* Makes the parameters in c, whose names begin with that.  Returns 0 or CKPT_ENOMEM; c keeps other
 * errors. */
int wan_create(struct wan *m, ckpt *c, const struct wan_config *config, enum ckpt_dtype dtype,
               const char *begin);
void wan_free(struct wan *m);

/* The number of parameters of a model of this shape, without making it. */
int64_t wan_parameters(const struct wan_config *c);

/* Video tokens. */
int64_t wan_tokens(const struct video_geometry *g);

/* Checks that the model can be recorded with this shape.  Returns 0, or -1 after an error
 * message. */
int wan_check_geometry(const struct wan_config *c, const struct video_geometry *g);

/* Records the model; the result is [B, channels, F, h, w] in the model's dtype. */
ckpt_tensor wan_forward(const struct wan *m, ckpt_tape *t, const struct video_geometry *g,
                        const struct video_inputs *in);

/* ---- private to the files of the model ---------------------------------------------------- */

/* The outputs of the embedders, inputs of the blocks: video [B, N, D], of which ranks may have a
 * part (--sequence), text [B, S, D], sight [B, 257, D] or CKPT_NONE, the rotary table fp32 [N, head
 * / 2, 2]; fp32 modulation of the head and of the blocks, [B, 1 or F, 2 or 6, D], with one row for
 * all frames or one for each. */
struct wan_state {
    ckpt_tensor video, text, sight, rope, head, rows;
};

void wan_embed(const struct wan *m, ckpt_tape *t, const struct video_geometry *g,
               const struct video_inputs *in, struct wan_state *s);

/* Records one block, which replaces s->video. */
void wan_block_forward(const struct wan *m, const struct wan_block *b, ckpt_tape *t,
                       struct wan_state *s);

/* Splits rows + table, n rows per frame, into n tensors [B, 1 or F, 1, D] of the model's dtype. */
void wan_rows(const struct wan *m, ckpt_tape *t, ckpt_tensor rows, ckpt_tensor table, int n,
              ckpt_tensor *row);

/* LN(x) (1 + scale) + shift of x [B, N, D], without weights; rows as of wan_rows. */
ckpt_tensor wan_modulated_norm(const struct wan *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor shift,
                               ckpt_tensor scale);

#endif
