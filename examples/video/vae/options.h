/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of vae-train: its own tables in addition to the library's. */
#ifndef VAE_OPTIONS_H
#define VAE_OPTIONS_H

#include "../../common/loader.h"
#include "../../common/outputs.h"
#include "model_options.h"

enum { VAE_MOST_LENGTHS = 64 };

struct vae_options {
    struct vae_model_options model;
    int64_t stage; /* 1, 2, 3 */
    /* the data */
    const char *video, *video_dir, *tensors, *random, *size, *lengths;
    int64_t frames, stride, clips;
    int64_t width, height;        /* from size */
    struct loader_options loader; /* of video_dir */
    double image_share;
    /* training */
    struct training_options train;
    int64_t part;
    double kl_weight;
    const char *lpips; /* file; NULL: off */
    double lpips_weight;
    const char *quantizer;
    int64_t codebook;
    double codebook_decay, commitment;
    /* output */
    const char *out;
    bool help, version;
    struct ckpt_options library;
    /* derived from the options above */
    struct vae_config config;
    int64_t length[VAE_MOST_LENGTHS]; /* of clips, ascending */
    int n_lengths;
    bool vq;         /* ---- quantizer vq  */
    bool image_only; /* the first length is only for the share of images */
};

/* The files named by the options; out only if something is written to it. */
struct training_files vae_files(const struct vae_options *o);

/* Sets the defaults, and names what replaces them; then checks it. */
struct option_reading vae_options_reading(struct vae_options *o);
int vae_options_check(void *options);

#endif
