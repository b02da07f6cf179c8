/* SPDX-License-Identifier: Apache-2.0 */
/* The sampling stages before and after the transformer: encoders of prompts and of a picture in
 * contexts of their own, and the decoder of latents. */
#ifndef VIDEO_STAGES_H
#define VIDEO_STAGES_H

#include "../text/captions.h"
#include "coder.h"
#include "options.h"

/* Sampling as the options ask for it. */
struct video_drawing video_drawing(const struct video_options *o);
/* Whether the model also predicts for the negative prompt. */
bool video_is_guided(const struct video_options *o);
/* Completes the options of sampling with the published values, and checks solver, guidance, picture
 * and negative prompt.  Returns 0, or -1 after an error message. */
int video_check_drawing(struct video_options *o);

/* Checks that a picture is given, by that option, where the model reads one, and nowhere else.
 * Returns 0, or -1 after an error message. */
int video_check_image(const struct video_options *o, const char *option);

struct video_prompts {
    struct prompts list; /* of the clips, and last the negative prompt if one is encoded */
    int64_t clips;
    struct text_features features;
};

/* Whether the options have prompts to encode. */
bool video_has_prompts(const struct video_options *o);

/* Reads the prompts and tokenizes them.  Returns 0, or -1 after an error message, as do all
 * below. */
int video_prompts_read(struct video_prompts *p, const struct video_options *o);
/* Encodes the prompts under the library's options; show: prints the plan. */
int video_prompts_encode(struct video_prompts *p, const struct video_options *o, bool show);
/* Moves the features into *y, malloc'ed [clips, tokens, width], and those of a negative prompt, if
 * it is encoded, into *negative. */
int video_prompts_take(struct video_prompts *p, float **y, float **negative);
void video_prompts_close(struct video_prompts *p);

/* Whether --image is a picture, by the ending of its name, and not its latents. */
bool video_has_picture(const struct video_options *o);
/* Encodes it under the library's options into *image, malloc'ed [channels, F, h, w], as the first
 * frame of a clip that is grey after it where the model takes whole clips; and, where the model
 * reads its features, into *sight [rows, width].  show: prints the plans. */
int video_picture_encode(const struct video_options *o, bool show, float **image, float **sight);

/* Reads the config of the autoencoder that the options name and checks it against the latents of
 * the model. */
int video_coder_configure(struct video_coder *k, const struct video_options *o, bool decode);

#endif
