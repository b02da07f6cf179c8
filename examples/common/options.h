/* What command lines of the programs share: rows of their tables, and how values are read. */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include "resume.h"

/* A row of an option table that fills the member field of struct owner.  Each table makes of it its
 * own ROW, without the owner. */
#define OPTION_ROW(owner, name, type, field, metavar, help)                                        \
    {                                                                                              \
        name, CKPT_OPT_##type, offsetof(owner, field), metavar, help                               \
    }

/* Rows for all structs that have members of these names. */
#define DTYPE_ROW                                                                                  \
    ROW("dtype", STRING, dtype, "TYPE", "fp32 or bf16, of weights and activations (default fp32)")
#define GRAD_DTYPE_ROW                                                                             \
    ROW("grad-dtype", STRING, grad_dtype, "TYPE",                                                  \
        "fp32 or bf16, of the gradients of bf16 weights that are not summed (default fp32)")
#define STRIDE_ROWS                                                                                \
    ROW("stride", INT, stride, "N", "take every N-th frame"),                                      \
        ROW("clips", INT, clips, "N",                                                              \
            "cut N clips, one after the other, from the file (default 1)")
#define WEIGHTS_ROWS                                                                               \
    ROW("load", STRING, load, "FILE", "start from these weights (safetensors)"),                   \
        ROW("partial", FLAG, partial, NULL, "let --load leave out parameters"),                    \
        ROW("save", STRING, save, "FILE", "write the weights at the end"),                         \
        ROW("save-ema", STRING, save_ema, "FILE", "write their moving average at the end"),        \
        RESUME_ROWS(state)
#define STEPS_ROWS                                                                                 \
    ROW("steps", INT, steps, "N", "training steps"),                                               \
        ROW("lr", FLOAT, lr, "X", "learning rate after the warm-up"),                              \
        ROW("warmup", INT, warmup, "N", "steps of the warm-up"),                                   \
        ROW("clip-norm", FLOAT, clip_norm, "X",                                                    \
            "clip the gradient's norm to this (default 1, 0: off)"),                               \
        ROW("weight-decay", FLOAT, weight_decay, "X", "weight decay (default 0)"),                 \
        ROW("ema-decay", FLOAT, ema_decay, "X", "decay of the moving average (default 0.99)")

/* What was not given takes the preset's value. */
static inline void option_take(int64_t *value, int64_t preset, int64_t unset)
{
    if (*value == unset)
        *value = preset;
}

/* Reads n sizes as in the example: a width and a height, or frames, height and width.  Returns 0,
 * or -1 after a sentence. */
int option_sizes(const char *option, const char *text, const char *example, int n, int64_t **value);

/* Whether the name is that of a type to compute in.  Returns 0, or -1 after a sentence. */
int option_dtype(const char *option, const char *name);

#endif
