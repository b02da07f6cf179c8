/* SPDX-License-Identifier: Apache-2.0 */
/* What cogvideo-encode and cogvideo-decode share: the model, and the program of a clip. */
#ifndef COGVIDEO_CODER_H
#define COGVIDEO_CODER_H

#include "ckpt_tools.h"
#include "vae.h"

/* What both programs are asked for. */
struct cogvae_coder_options {
    const char *model, *dtype;
    int64_t slice; /* CKPT_AUTO: chosen by the planner */
    bool help, version;
    struct ckpt_options library;
};

#define COGVAE_CODER_INIT                                                                          \
    {                                                                                              \
        .dtype = "bf16", .slice = CKPT_AUTO, .library = CKPT_OPTIONS_INIT                          \
    }

struct cogvae_coder {
    struct cogvae_coder_options options;
    char directory[4096]; /* of config.json and the weights */
    struct cogvae m;
    ckpt *context;
    bool decode, joined; /* joined: the context is not its own */
    /* the program, of clips of one size */
    struct cogvae_clip clip;
    struct cogvae_passes passes;
    ckpt_program *program;
    float *in; /* what a pass is fed */
    bool shown;
};

/* Parses the command line: the table of the program, which fills owner, then that of the coder and
 * the library's.  Returns 0 to go on, 1 when all is done and -1 when a sentence was printed. */
int cogvae_coder_parse(struct cogvae_coder *k, const struct ckpt_option *table, void *owner,
                       int argc, char **argv, const char *usage);

/* Reads the config, then opens the device and loads one half of the weights.  Return 0, or -1 after
 * a sentence, as all below. */
int cogvae_coder_config(struct cogvae_coder *k, bool decode);
int cogvae_coder_open(struct cogvae_coder *k);
/* The second in the context of another model, before the parameters of that are made. */
int cogvae_coder_join(struct cogvae_coder *k, ckpt *c);
void cogvae_coder_close(struct cogvae_coder *k);

/* Makes the program of clips of that many frames, height and width, of pixels or latents, unless it
 * is there; the plan of the first is shown. */
int cogvae_coder_compile(struct cogvae_coder *k, int64_t frames, int64_t height, int64_t width);

/* The same once more where others share the context: parameters stand below what programs work in,
 * and a program is planned with those that are known then.  So: these first, with least, in as few
 * bytes as can be; then the others; then these again, in whatever they leave. */
int cogvae_coder_compile_again(struct cogvae_coder *k, int64_t frames, int64_t height,
                               int64_t width, bool least);

/* Values of a frame that goes in, and of one that comes out. */
int64_t cogvae_coder_in(const struct cogvae_coder *k);
int64_t cogvae_coder_out(const struct cogvae_coder *k);
/* Frames that come out of a pass, and out of a clip. */
int64_t cogvae_coder_pass_out(const struct cogvae_coder *k, int64_t pass);
int64_t cogvae_coder_clip_out(const struct cogvae_coder *k);

/* Codes x, [frames, height, width, channels]; then the output of each pass into y. */
int cogvae_coder_run(struct cogvae_coder *k, const float *x);
int cogvae_coder_take(struct cogvae_coder *k, int64_t pass, float *y);

/* Both, of a clip [frames, height, width, 3] of bytes, of which x takes the values; its moments go
 * into y. */
int cogvae_coder_encode(struct cogvae_coder *k, const uint8_t *rgb, float *x, float *y);

/* Prints what the run took. */
void cogvae_coder_report(const struct cogvae_coder *k);

/*
 * The published tiling, approximate: every tile is a clip of its own, and tiles are blended where
 * they overlap.  Decodes z, latents [frames, height, width, Z], into y [frames, 8 height, 8 width,
 * 3]; compiles what it needs.
 */
bool cogvae_coder_tiles(const struct cogvae_coder *k, int64_t height, int64_t width);
int cogvae_coder_decode_tiled(struct cogvae_coder *k, const float *z, int64_t frames,
                              int64_t height, int64_t width, float *y);
/* Whether the programs of all its tiles fit, before the first runs. */
int cogvae_coder_prepare_tiled(struct cogvae_coder *k, int64_t frames, int64_t height,
                               int64_t width);

#endif
