/* The command line of stdit-train: its own table next to the library's, and the model presets. */
#ifndef STDIT_OPTIONS_H
#define STDIT_OPTIONS_H

#include "../common/say.h"

/* Values a preset or the data may fill in are 0 (counts) or -1 (where 0 means something). */
struct stdit_options {
    /* the model */
    const char *model, *dtype;
    int64_t hidden, heads, depth, in_channels, caption_channels, text_tokens;
    double mlp_ratio;
    bool freeze_caption, exact_timestep;
    /* the data */
    const char *features, *video, *latent, *size;
    int64_t frames, stride, clips;
    int64_t width, height;                              /* from size */
    int64_t latent_frames, latent_height, latent_width; /* from latent */
    /* training */
    const char *load, *save, *save_ema, *mask_stage, *grad_dtype;
    bool partial;
    int64_t batch, steps, warmup;
    double lr, clip_norm, weight_decay, ema_decay;
    /* what comes out */
    const char *log, *dump, *out;
    int64_t sample_steps, sample_seed;
    double guidance;
    bool help;
    bool demo_budget; /* library.vram is the demo's, not one that was asked for */
    struct ckpt_options library;
};

/*
 * Reads the command line and fills in the preset.  Returns 0 to go on, 1 when all is done (--help)
 * and -1 when a sentence was printed.
 */
int stdit_options_parse(struct stdit_options *o, int argc, char **argv);

#endif
