/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line handling that the programs share: option rows, and readers of values. */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "optimizer.h"
#include "resume.h"

/* Upper bounds of most counts, and of positive real numbers. */
#define OPTION_MOST 1000000000
#define OPTION_REAL 1e30
/* Largest decay: below 1, also as a float. */
#define OPTION_DECAY 0.9999999

/* Option rows for structs that have members of these names. */
#define DTYPE_ROW                                                                                  \
    ROW("dtype", STRING, dtype, "TYPE",                                                            \
        "dtype of weights and activations: fp32 or bf16 (default: that of the weights or of the "  \
        "resumed run; fp32 without one)")
#define PARTIAL_ROW(field)                                                                         \
    ROW("partial", FLAG, field, NULL, "accept a --load file that lacks some parameters")
#define CACHE_ROWS                                                                                 \
    ROW("cache", STRING, cache, "DIR",                                                             \
        "train on latents and text features from video-encode (default: none)"),                   \
        ROW("check-cache", FLAG, check_cache, NULL,                                                \
            "verify the checksums of all values in --cache before the first step")
/* from: the option with the text encoder. */
#define SPIECE_ROW(field, from)                                                                    \
    ROW("tokenizer", STRING, field, "FILE",                                                        \
        "spiece.model or tokenizer.json, or its directory (default: from " from ")")
#define HELP_ROWS                                                                                  \
    CKPT_OPTION_GROUP("Help"), ROW("help", FLAG, help, NULL, "print this text (-h)"),              \
        ROW("version", FLAG, version, NULL, "print the version (-V)")
#define STRIDE_ROWS                                                                                \
    RANGE("stride", INT, stride, "N",                                                              \
          "spread a clip over N times as many frames of the file (default 1)", 1, 100000),         \
        RANGE("clips", INT, clips, "N", "cut N consecutive clips from the file (default 1)", 1,    \
              100000)

/* How an option affects the bits of a run's results, by its name.  An option in no list is
 * OPTION_SHAPES, so a new option is compared until somebody decides otherwise. */
enum option_role {
    OPTION_SHAPES, /* a resumed run must have the same value */
    OPTION_TUNES,  /* users change it on purpose, or the library records it: a change is reported */
    OPTION_FREE    /* inputs, outputs, budgets, duration: they do not affect the results */
};

enum option_role option_role(const char *name);

/* The value of a row as text: "yes", "12", "0.99", or the string itself; "none" if not given.  The
 * result is dst or the stored string. */
const char *option_text(const struct ckpt_option *row, const void *owner, char dst[32]);

/* Replaces a value that was not given by the preset's. */
static inline void option_take(int64_t *value, int64_t preset, int64_t unset)
{
    if (*value == unset)
        *value = preset;
}

/* Reads n sizes in the form of `example`: a width and a height, or frames, height and width.
 * Returns 0, or -1 after an error message. */
int option_sizes(const char *option, const char *text, const char *example, int n, int64_t **value);

/* Reads a time, as 3h30m: numbers with d, h, m or s, in this order.  Returns 0, or -1 after an
 * error message. */
int option_duration(const char *option, const char *text, double *seconds);

/* Checks the name of a compute dtype.  Returns 0, or -1 after an error message. */
int option_dtype(const char *option, const char *name);

/* Refuses --clip outside --plan-only, or beside the input in whose place it stands.  Returns 0, or
 * -1 after an error message. */
int option_clip(const char *clip, const char *input, bool plan_only, bool has_input);

/* Makes the schedule from --schedule, --warmup, --steps and --final-lr.  Returns 0, or -1 after an
 * error message. */
int option_schedule(const char *kind, int64_t warmup, int64_t steps, double final_lr,
                    struct ckpt_schedule *schedule);

/* Refuses to run alone where a launcher started several processes, each of which would write the
 * same files.  Returns 0, or -1 after an error message. */
int options_alone(const struct ckpt_options *library);

/* A copy of argv, which ends with NULL: parsers take words out of it.  NULL: no memory. */
char **options_copy(int argc, char **argv);

/* Before this process ends because it refuses its options: tells the other ranks, which wait for
 * it, what say_fail printed first. elastic: the job is.  options_read does so itself. */
void options_refuse(const struct ckpt_options *library, bool elastic);

enum { OPTION_PARTS = 2 };

/* A table of options with the struct that has their values.  title: of its section of --help; NULL:
 * the rows begin with one. */
struct option_part {
    const char *title;
    const struct ckpt_option *rows;
    void *values;
};

/* The command line of a program. */
struct option_reading {
    const char *usage; /* the first part of --help */
    struct ckpt_options *library;
    bool trains; /* it has all of the library's options */
    const bool *help, *version;
    struct option_part own[OPTION_PARTS]; /* the second may be missing */
    const char *const *once; /* an option that is refused if given twice, and what to do, or NULL */
};

/* That of a program with one table, whose values o have members of these names. */
#define OPTION_READING(o, table, usage, trains)                                                    \
    {                                                                                              \
        usage, &(o)->library, trains, &(o)->help, &(o)->version, {{NULL, table, o}}, NULL          \
    }

/*
 * Reads the values of all tables, and refuses what is in none.  Warns about unknown environment
 * variables.  Returns 0; 1 after the text of --help or --version was printed; or -1 after an error
 * message.
 */
int options_read(const struct option_reading *r, int argc, char **argv);
/* Its parts, for a program with arguments that are no options: read takes the options out of argv;
 * print returns 1 or 0; reject refuses what is left. */
int options_take(const struct option_reading *r, int *argc, char **argv);
int options_print(const struct option_reading *r);
int options_reject(const struct option_reading *r, int argc, char **argv);

/* Checks that all ranks have the same values of the program's own options; those that may differ
 * between ranks (as --log) are excluded.  Returns 0, or -1 after an error message. */
int options_agree(ckpt *c, const struct option_part own[OPTION_PARTS]);

#endif
