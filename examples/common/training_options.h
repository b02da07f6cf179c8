/* SPDX-License-Identifier: Apache-2.0 */
/* Options that all trainers share: values, option rows and checks. */
#ifndef EXAMPLES_TRAINING_OPTIONS_H
#define EXAMPLES_TRAINING_OPTIONS_H

#include "dtype.h"
#include "options.h"

/* Values that a preset may fill in start as 0 (batch) or -1 (where 0 has a meaning). */
struct training_options {
    const char *load, *save, *save_ema, *save_int8, *grad_dtype, *schedule, *optimizer, *log, *dump;
    const char *save_low; /* of a pair of models: the weights of the second */
    const char
        *directory; /* for the weights in another format, of programs that have such an option */
    const char *archive; /* the same, a file */
    const char *time_limit;
    double limit, begun; /* seconds: 0 or the limit; run_clock_now value it counts from */
    const char *tensorboard;
    struct resume_options state;
    char dtype_note[DTYPE_NOTE]; /* of dtype_select */
    bool partial;
    int64_t batch, steps, warmup;
    int64_t samples; /* per step, over all ranks; known after the rendezvous */
    double lr, final_lr, clip_norm, weight_decay, ema_decay;
    double beta2;               /* of AdamW; below 0: the library's default */
    struct ckpt_schedule rates; /* from lr, warmup, schedule and final_lr */
};

/* Default values, as designated initializers. */
#define TRAINING_DEFAULTS                                                                          \
    .grad_dtype = "fp32", .optimizer = "adamw", .schedule = "constant", .steps = -1, .warmup = -1, \
    .lr = -1, .clip_norm = 1

/* Option rows for structs that have struct training_options as member `train`. */
#define GRAD_DTYPE_ROW                                                                             \
    ROW("grad-dtype", STRING, train.grad_dtype, "TYPE",                                            \
        "dtype of gradients of bf16 weights that are not accumulated: fp32 or bf16 (default "      \
        "fp32)")
#define WEIGHTS_ROWS                                                                               \
    CKPT_OPTION_GROUP("Weights and states"),                                                       \
        ROW("load", STRING, train.load, "FILE", "start from these weights (safetensors)"),         \
        PARTIAL_ROW(train.partial),                                                                \
        ROW("save", STRING, train.save, "FILE", "write the weights at the end"),                   \
        ROW("save-ema", STRING, train.save_ema, "FILE",                                            \
            "write the moving average of the weights at the end"),                                 \
        ROW("save-int8", STRING, train.save_int8, "FILE",                                          \
            "write the weights as the codes and scales of --qat at the end"),                      \
        RESUME_ROWS(train.state)
#define BATCH_ROW(what, usual)                                                                     \
    CKPT_OPTION_GROUP("Training"),                                                                 \
        RANGE("batch", INT, train.batch, "N", what " per step of each rank (default" usual ")", 1, \
              65536)
/* Arguments: the defaults of --steps, --lr, --warmup, --weight-decay and --ema-decay, as text. */
#define STEPS_ROWS(count, rate, rising, decay, average)                                            \
    OPTIMIZER_ROW,                                                                                 \
        RANGE("steps", INT, train.steps, "N", "training steps (default" count ")", 0,              \
              OPTION_MOST),                                                                        \
        ROW("time-limit", STRING, train.time_limit, "TIME",                                        \
            "save the state and stop before the program has run for this time, such as 3h30m "     \
            "(default: no limit)"),                                                                \
        RANGE("lr", FLOAT, train.lr, "X", "learning rate after the warm-up (default" rate ")", 0,  \
              OPTION_REAL),                                                                        \
        RANGE("warmup", INT, train.warmup, "N", "steps of the warm-up (default" rising ")", 0,     \
              OPTION_MOST),                                                                        \
        ROW("schedule", STRING, train.schedule, "KIND",                                            \
            "learning rate over --steps: constant, linear, cosine, wsd or invsqrt (default "       \
            "constant)"),                                                                          \
        RANGE("final-lr", FLOAT, train.final_lr, "X",                                              \
              "learning rate at the end of the schedule, as a fraction of --lr (default 0)", 0,    \
              OPTION_REAL),                                                                        \
        RANGE("clip-norm", FLOAT, train.clip_norm, "X",                                            \
              "clip the norm of the gradient to X (default 1; 0: off)", 0, OPTION_REAL),           \
        RANGE("weight-decay", FLOAT, train.weight_decay, "X", "weight decay (default " decay ")",  \
              0, OPTION_REAL),                                                                     \
        RANGE("ema-decay", FLOAT, train.ema_decay, "X",                                            \
              "decay of the moving average (default " average ")", 0, OPTION_DECAY)
#define BETA2_ROW(value)                                                                           \
    RANGE("beta2", FLOAT, train.beta2, "X", "decay of AdamW's second moment (default " value ")",  \
          0, OPTION_DECAY)
/* what: the contents of a --dump file between loss and gradients. */
#define LOG_ROWS(what)                                                                             \
    CKPT_OPTION_GROUP("Logs"),                                                                     \
        ROW("log", STRING, train.log, "FILE", "append one JSON line per run and one per step"),    \
        ROW("tensorboard", STRING, train.tensorboard, "DIR",                                       \
            "write the numbers of --log, and pictures, as TensorBoard events"),                    \
        ROW("dump", STRING, train.dump, "FILE",                                                    \
            "write loss, " what " and gradients of the first step")

/* Whether steps are run: asked for, or left by the state that is resumed. */
static inline bool training_has_steps(const struct training_options *t)
{
    return t->steps > 0 || t->state.from;
}

/* Replaces values that were not given by these. */
void training_preset(struct training_options *t, int64_t batch, int64_t steps, int64_t warmup,
                     double lr);

/* Checks the shared options, with the dtype selected, and fills in the schedule.  batch: samples
 * per step of a rank; 0: it varies from step to step.  Returns 0, or -1 after an error message. */
int training_check(struct training_options *t, const struct ckpt_options *library,
                   const char *dtype, int64_t batch);

/* The optimizer settings, for optimizer_make. */
struct ckpt_adamw training_adamw(const struct training_options *t);

#endif
