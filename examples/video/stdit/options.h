/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of stdit-train and stdit-sample: tables in addition to the library's, and
 * presets. */
#ifndef STDIT_OPTIONS_H
#define STDIT_OPTIONS_H

#include "../../common/say.h"
#include "../options.h"

/* Defaults of all programs.  The preset (options.c) fills in sizes, batch, steps, warm-up, rate and
 * guidance. */
#define STDIT_OPTIONS_INIT                                                                         \
    {                                                                                              \
        .model = "tiny", .mlp_ratio = 4, .mask_stage = "none",                                     \
        .train = {TRAINING_DEFAULTS, .ema_decay = 0.99, .beta2 = -1}, .sample_steps = -1,          \
        .loader = {LOADER_DEFAULTS}, .guidance = -1, .library = CKPT_OPTIONS_INIT                  \
    }

/* Option rows of the model, for the tables of both programs. */
#define STDIT_SIZE_ROWS                                                                            \
    RANGE("hidden", INT, hidden, "N", "width of the model (default: the preset's)", 4, 65536),     \
        RANGE("heads", INT, heads, "N", "attention heads (default: the preset's)", 1, 65536),      \
        RANGE("depth", INT, depth, "N",                                                            \
              "pairs of a spatial and a temporal block (default: the preset's)", 1, 1024),         \
        RANGE("mlp-ratio", FLOAT, mlp_ratio, "X",                                                  \
              "width of the MLP divided by the width of the model (default 4)", 0.001, 1000)
#define STDIT_CAPTION_ROWS                                                                         \
    RANGE("caption-channels", INT, caption_channels, "N",                                          \
          "width of the text features (default: the preset's)", 1, 65536),                         \
        RANGE("text-tokens", INT, text_tokens, "N",                                                \
              "tokens of the null caption (default: the preset's)", 1, 65536)
#define STDIT_NUMBER_ROWS                                                                          \
    ROW("exact-timestep", FLAG, exact_timestep, NULL,                                              \
        "with bf16: do not round the timestep (Open-Sora 1.2 does)"),                              \
        DTYPE_ROW

/* Parts of stdit_options_check, for a program with its own table; all return 0, or -1 after a
 * sentence. */
int stdit_fill_preset(struct video_options *o);
int stdit_check_size(struct video_options *o);
int stdit_check_model(const struct video_options *o);

/* Sets the defaults, and names what replaces them; then checks it and fills in the preset. */
struct option_reading stdit_options_reading(struct video_options *o, const struct video_model *m);
int stdit_options_check(void *options);
/* Default directory of frames. */
#define STDIT_OUT "stdit-out"
/* Reads and checks those of stdit-sample.  Returns 0 to continue, 1 if the program is done (--help)
 * and -1 after printing a sentence. */
int stdit_sample_options_parse(struct video_options *o, int argc, char **argv);

#endif
