/* SPDX-License-Identifier: Apache-2.0 */
/* What command lines of the programs share: rows of their tables, and how values are read. */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "optimizer.h"
#include "resume.h"

/* Most of what is counted, and of what may be any positive number. */
#define OPTION_MOST 1000000000
#define OPTION_REAL 1e30
/* A decay is below 1, also as a float. */
#define OPTION_DECAY 0.9999999

/* Rows for all structs that have members of these names. */
#define DTYPE_ROW                                                                                  \
    ROW("dtype", STRING, dtype, "TYPE", "fp32 or bf16, of weights and activations (default fp32)")
#define HELP_ROWS                                                                                  \
    ROW("help", FLAG, help, NULL, "print this text (-h)"),                                         \
        ROW("version", FLAG, version, NULL, "print the version (-V)")
#define STRIDE_ROWS                                                                                \
    RANGE("stride", INT, stride, "N", "spread a clip over N times as many frames (default 1)", 1,  \
          100000),                                                                                 \
        RANGE("clips", INT, clips, "N",                                                            \
              "cut N clips, one after the other, from the file (default 1)", 1, 100000)

/* What an option is to the bits of a run, by its name.  One that no list names shapes them, so a
 * new option is compared until somebody decides otherwise. */
enum option_role {
    OPTION_SHAPES, /* a run that goes on must have it as it was */
    OPTION_TUNES,  /* users change it on purpose, or the library notes it: a change is said */
    OPTION_FREE    /* what is read and written where, budgets, how long: no bits follow from it */
};

enum option_role option_role(const char *name);

/* The value of a row as text, in dst or as it stands there, which is returned: "yes", "12", "0.99",
 * the string; "none" for one that was not given. */
const char *option_text(const struct ckpt_option *row, const void *owner, char dst[32]);

/* What was not given takes the preset's value. */
static inline void option_take(int64_t *value, int64_t preset, int64_t unset)
{
    if (*value == unset)
        *value = preset;
}

/* Reads n sizes as in the example: a width and a height, or frames, height and width.  Returns 0,
 * or -1 after a sentence. */
int option_sizes(const char *option, const char *text, const char *example, int n, int64_t **value);

/* A time, as 3h30m: numbers with d, h, m or s, in this order.  Returns 0, or -1 after a sentence.
 */
int option_duration(const char *option, const char *text, double *seconds);

/* Whether the name is that of a type to compute in.  Returns 0, or -1 after a sentence. */
int option_dtype(const char *option, const char *name);

/* The learning rates of --schedule, --warmup, --steps and --final-lr.  Returns 0, or -1 after a
 * sentence. */
int option_schedule(const char *kind, int64_t warmup, int64_t steps, double final_lr,
                    struct ckpt_schedule *schedule);

/* The options of the library that a program honours, for its --help: trains says whether it does.
 * The others are about what ranks share and about plans of programs that train. */
const struct ckpt_option *options_of_library(bool trains);

/* A part of --help. */
struct option_section {
    const char *title;
    const struct ckpt_option *rows;
};

/*
 * Prints what --help (usage, then n sections) or --version asks for and returns 1.  Else warns
 * about variables of the environment that nothing reads, and returns 0.
 */
int options_print(bool help, bool version, const char *usage, int n,
                  const struct option_section *sections);

/* A table and what it filled. */
struct option_table {
    const struct ckpt_option *rows;
    const void *values;
};

/* All ranks must have been started with the same values, but for those of rows that say where a
 * rank writes what is its own.  Returns 0, or -1 after a sentence. */
int options_agree(ckpt *c, int n, const struct option_table *tables);

#endif
