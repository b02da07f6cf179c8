/* SPDX-License-Identifier: Apache-2.0 */
/* The options that all trainers have: their values, rows of tables and checks. */
#ifndef EXAMPLES_TRAINING_OPTIONS_H
#define EXAMPLES_TRAINING_OPTIONS_H

#include "options.h"

/* What a preset may fill in is 0 (batch) or -1 (where 0 means something) before. */
struct training_options {
    const char *load, *save, *save_ema, *grad_dtype, *schedule, *optimizer, *log, *dump;
    const char *time_limit;
    double limit, begun; /* seconds: 0 or the limit; the reading of run_clock_now it counts from */
    const char *tensorboard;
    struct resume_options state;
    bool partial;
    int64_t batch, steps, warmup;
    int64_t samples; /* of a step, of all ranks together; known once they have met */
    double lr, final_lr, clip_norm, weight_decay, ema_decay;
    double beta2;               /* of AdamW; below 0: the library's */
    struct ckpt_schedule rates; /* of lr, warmup, schedule and final_lr */
};

/* Defaults of all, among designated initializers. */
#define TRAINING_DEFAULTS                                                                          \
    .grad_dtype = "fp32", .optimizer = "adamw", .schedule = "constant", .steps = -1, .warmup = -1, \
    .lr = -1, .clip_norm = 1

/* Rows for all structs that have the one above as member `train`. */
#define GRAD_DTYPE_ROW                                                                             \
    ROW("grad-dtype", STRING, train.grad_dtype, "TYPE",                                            \
        "fp32 or bf16, of the gradients of bf16 weights that are not summed (default fp32)")
#define WEIGHTS_ROWS                                                                               \
    ROW("load", STRING, train.load, "FILE", "start from these weights (safetensors)"),             \
        ROW("partial", FLAG, train.partial, NULL, "let --load leave out parameters"),              \
        ROW("save", STRING, train.save, "FILE", "write the weights at the end"),                   \
        ROW("save-ema", STRING, train.save_ema, "FILE", "write their moving average at the end"),  \
        RESUME_ROWS(train.state)
#define BATCH_ROW(what, usual)                                                                     \
    RANGE("batch", INT, train.batch, "N", what " of a step, of each rank (default" usual ")", 1,   \
          65536)
/* The defaults, as text: of --steps, --lr, --warmup, --weight-decay and --ema-decay. */
#define STEPS_ROWS(count, rate, rising, decay, average)                                            \
    OPTIMIZER_ROW,                                                                                 \
        RANGE("steps", INT, train.steps, "N", "training steps (default" count ")", 0,              \
              OPTION_MOST),                                                                        \
        ROW("time-limit", STRING, train.time_limit, "TIME",                                        \
            "end in order, with the state saved, before the program has run so long, as 3h30m "    \
            "(default: no limit)"),                                                                \
        RANGE("lr", FLOAT, train.lr, "X", "learning rate after the warm-up (default" rate ")", 0,  \
              OPTION_REAL),                                                                        \
        RANGE("warmup", INT, train.warmup, "N", "steps of the warm-up (default" rising ")", 0,     \
              OPTION_MOST),                                                                        \
        ROW("schedule", STRING, train.schedule, "KIND",                                            \
            "learning rate over --steps: constant (default), linear, cosine, wsd, invsqrt"),       \
        RANGE("final-lr", FLOAT, train.final_lr, "X",                                              \
              "part of the learning rate that a schedule ends with (default 0)", 0, OPTION_REAL),  \
        RANGE("clip-norm", FLOAT, train.clip_norm, "X",                                            \
              "clip the gradient's norm to this (default 1, 0: off)", 0, OPTION_REAL),             \
        RANGE("weight-decay", FLOAT, train.weight_decay, "X", "weight decay (default " decay ")",  \
              0, OPTION_REAL),                                                                     \
        RANGE("ema-decay", FLOAT, train.ema_decay, "X",                                            \
              "decay of the moving average (default " average ")", 0, OPTION_DECAY)
#define BETA2_ROW                                                                                  \
    RANGE("beta2", FLOAT, train.beta2, "X", "decay of AdamW's second moment (default 0.95)", 0,    \
          OPTION_DECAY)
/* What --dump writes between the loss and the gradients. */
#define LOG_ROWS(what)                                                                             \
    ROW("log", STRING, train.log, "FILE", "append one JSON line for the run and one a step"),      \
        ROW("tensorboard", STRING, train.tensorboard, "DIR",                                       \
            "write the numbers of these lines, and pictures, as events for TensorBoard"),          \
        ROW("dump", STRING, train.dump, "FILE",                                                    \
            "write loss, " what " and gradients of the first step")

/* What was not given takes these values. */
void training_preset(struct training_options *t, int64_t batch, int64_t steps, int64_t warmup,
                     double lr);

/* Checks what all have, and fills in the rates.  batch: samples of every step of a rank; 0: they
 * differ from step to step.  Returns 0, or -1 after a sentence. */
int training_check(struct training_options *t, const struct ckpt_options *library, int64_t batch);

/* The settings of the optimizer, for optimizer_make. */
struct ckpt_adamw training_adamw(const struct training_options *t);

#endif
