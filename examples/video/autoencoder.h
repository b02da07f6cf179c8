/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the coder (coder.h) asks of an autoencoder of videos.  A clip is encoded or decoded in
 * passes over some frames each, all of them in one program; a new autoencoder is a struct
 * autoencoder: the reader of its configuration, its parameters and the recorder of its passes.
 *
 * Tensors are channels last: clips [T, H, W, 3] with values in [-1, 1], latents [T, h, w, Z].
 */
#ifndef VIDEO_AUTOENCODER_H
#define VIDEO_AUTOENCODER_H

#include "ckpt.h"

struct autoencoder_sizes {
    int64_t channels, latent; /* of frames and of latents */
    int64_t factor;           /* pixels along the side of a latent cell */
    int64_t front;            /* frames before the first one of a pass that it reads */
    double fps;               /* of the model's videos */
    double scaling;           /* latents of the diffusion model = scaling times those coded */
    /* NULL, or for each channel: latents of the diffusion model are (mean of the posterior - mean)
     * / deviation; none is drawn. */
    const double *mean, *deviation;
    struct autoencoder_tiles {
        int64_t rows, columns;             /* of a tile, in cells */
        int64_t down, right;               /* distance between neighbouring tiles, in cells */
        int64_t blend_rows, blend_columns; /* of their overlap, in pixels */
    } tiles;
};

/* The passes of a clip: first, then `each` repeatedly. */
struct autoencoder_passes {
    int64_t n, first, each;
};

/* A clip of the input, [frames, height, width]. */
struct autoencoder_clip {
    int64_t frames, height, width;
    /* Frames that a layer computes at a time, 0: all of a pass.  The bits are the same; fewer
     * frames need less memory and more time. */
    int64_t slice;
    bool decode;
};

enum { AUTOENCODER_SLICES = 4 };

/* own: what read made.  Functions that return int return 0, or -1 after an error message. */
struct autoencoder {
    const char
        *family; /* in the setup of a cache, and its prefix of parameter names in a context */
    const char *prefix;
    const char *class_name;            /* in its config.json */
    const char *published;             /* the model to which it belongs, for messages */
    size_t size;                       /* of own */
    int64_t slice[AUTOENCODER_SLICES]; /* to choose from; the last needs the least memory */
    /* Reads DIR/config.json. */
    int (*read)(void *own, const char *dir, enum ckpt_dtype dtype, struct autoencoder_sizes *s);
    /* Makes the parameters of the encoder or the decoder in c, frozen. */
    int (*create)(void *own, ckpt *c, bool decode);

    struct autoencoder_passes (*passes)(const struct autoencoder_clip *clip);
    /* Output frames of a pass over that many frames. */
    int64_t (*out)(const void *own, int64_t frames, bool first, bool decode);
    /*
     * Records all passes of a clip.  The inputs "in.0", "in.1", ... are fp32 [1, front + frames of
     * the pass, height, width, channels], the last frames of the previous pass first; the outputs
     * "out.0", ... are fp32 [frames of the pass, ...]: moments with 2 Z channels, mean then logvar,
     * or pixels.
     */
    ckpt_tensor (*record)(const void *own, const struct autoencoder_clip *clip, ckpt_tape *t);
};

static inline int64_t autoencoder_pass_frames(const struct autoencoder_passes *p, int64_t pass)
{
    return pass ? p->each : p->first;
}

static inline int64_t autoencoder_pass_begin(const struct autoencoder_passes *p, int64_t pass)
{
    return pass ? p->first + (pass - 1) * p->each : 0;
}

/* Whether a parameter of a context belongs to it. */
bool autoencoder_owns(const struct autoencoder *a, const char *name);
/* Copies to dst the directory of its files: DIR, or DIR/vae. */
const char *autoencoder_directory(char *dst, size_t size, const char *dir);
/* Loads the values of the encoder or the decoder from DIR/diffusion_pytorch_model.safetensors; all
 * must be there.  Returns 0, or -1 after an error message. */
int autoencoder_load(const struct autoencoder *a, ckpt *c, const char *dir, bool decode);
/* Output frames of a clip, pass by pass. */
int64_t autoencoder_clip_out(const struct autoencoder *a, const void *own,
                             const struct autoencoder_clip *clip);

#endif
