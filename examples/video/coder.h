/* SPDX-License-Identifier: Apache-2.0 */
/* An autoencoder with the program of a clip, for the programs that encode and decode. */
#ifndef VIDEO_CODER_H
#define VIDEO_CODER_H

#include "ckpt_tools.h"
#include "autoencoder.h"

/* The options of both programs. */
struct video_coder_options {
    const char *model, *dtype;
    int64_t slice; /* CKPT_AUTO: selected by the planner */
    bool help, version;
    struct ckpt_options library;
};

#define VIDEO_CODER_INIT                                                                           \
    {                                                                                              \
        .dtype = "bf16", .slice = CKPT_AUTO, .library = CKPT_OPTIONS_INIT                          \
    }

struct video_coder {
    struct video_coder_options options;
    char directory[4096]; /* of config.json and the weights */
    const struct autoencoder *kind;
    struct autoencoder_sizes sizes;
    enum ckpt_dtype dtype;
    void *own; /* the autoencoder's, from video_coder_config to video_coder_close */
    ckpt *context;
    bool joined; /* the context belongs to another model */
    /* the program, for clips of one size */
    struct autoencoder_clip clip;
    struct autoencoder_passes passes;
    ckpt_program *program;
    float *in;    /* the input of a pass */
    int64_t seen; /* frames of bytes before all are grey, by video_coder_encode; 0: all */
    bool shown;
};

/* Parses the command line of an autoencoder: the program's own table, which fills owner, then the
 * coder's table and the library's.  Returns 0 to go on, 1 to exit and -1 after an error message. */
int video_coder_parse(struct video_coder *k, const struct autoencoder *kind,
                      const struct ckpt_option *table, void *owner, int argc, char **argv,
                      const char *usage);

/* Read the config; open the device and load one half of the weights.  Return 0, or -1 after an
 * error message, as do all below. */
int video_coder_config(struct video_coder *k, const struct autoencoder *kind, bool decode);
int video_coder_open(struct video_coder *k);
/* As video_coder_open, but in the context of another model, before that model's parameters are
 * made. */
int video_coder_join(struct video_coder *k, ckpt *c);
void video_coder_close(struct video_coder *k);

/* Compiles the program for clips of that many frames, height and width, in pixels or latents,
 * unless it exists.  Shows the plan of the first program. */
int video_coder_compile(struct video_coder *k, int64_t frames, int64_t height, int64_t width);

/* Compiles again where other programs share the context.  Parameters lie below the working memory
 * of the programs, and a program is planned with the parameters known at that time.  So compile
 * this program first with `least`, in as few bytes as possible; then the other programs; then this
 * program again, in the memory that they leave. */
int video_coder_compile_again(struct video_coder *k, int64_t frames, int64_t height, int64_t width,
                              bool least);

/* Values of an output frame. */
int64_t video_coder_out(const struct video_coder *k);
/* Output frames of a pass, and of a clip. */
int64_t video_coder_pass_out(const struct video_coder *k, int64_t pass);
int64_t video_coder_clip_out(const struct video_coder *k);

/* Encodes or decodes x, [frames, height, width, channels]; then copies the output of each pass into
 * y. */
int video_coder_run(struct video_coder *k, const float *x);
int video_coder_take(struct video_coder *k, int64_t pass, float *y);

/* Does both for a clip [frames, height, width, 3] of bytes.  x is the buffer for its values; its
 * moments are stored in y. */
int video_coder_encode(struct video_coder *k, const uint8_t *rgb, float *x, float *y);

/* Prints the statistics of the run. */
void video_coder_report(const struct video_coder *k);

/*
 * The published tiling, which is approximate: every tile is decoded as a clip of its own, and tiles
 * are blended where they overlap.  Decodes z, latents [frames, height, width, Z], into y [frames, 8
 * height, 8 width, 3]; compiles the programs that it needs.
 */
bool video_coder_tiles(const struct video_coder *k, int64_t height, int64_t width);
int video_coder_decode_tiled(struct video_coder *k, const float *z, int64_t frames, int64_t height,
                             int64_t width, float *y);
/* Checks that the programs of all tiles fit, before the first one runs. */
int video_coder_prepare_tiled(struct video_coder *k, int64_t frames, int64_t height, int64_t width);

#endif
