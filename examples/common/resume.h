/* SPDX-License-Identifier: Apache-2.0 */
/* --resume, --save-state, --save-every and --keep: trainers that resume another run. */
#ifndef EXAMPLES_RESUME_H
#define EXAMPLES_RESUME_H

#include "ckpt_files.h"
#include "ckpt_tools.h"

struct resume_options {
    const char *from, *save; /* files, or NULL; RESUME_AUTO is replaced by resume_find */
    const char *weights[4];  /* --save, --save-ema, --save-int8, --save-low; set by resume_check */
    const char *when;        /* the argument of --save-every, or NULL */
    int64_t every;           /* steps between two saves; 0: only at the end */
    double seconds;          /* seconds between two saves; 0: no timed saves */
    int64_t keep;            /* number of last saves to keep; 0: the default */
    int64_t keep_every;      /* keep one save of every so many steps; 0: off */
    bool changed;            /* resume a state of different options */
    bool automatic;          /* from was RESUME_AUTO */
    int64_t elastic;         /* steps between two states in the memory of the ranks; 0: none */
    bool grows;              /* the job is to begin again with more ranks */
};

#define RESUME_AUTO "auto"

/* The rows of an option table; ROW is the program's own macro, field the member that holds the
 * struct. */
#define RESUME_ROWS(field)                                                                         \
    ROW("resume", STRING, field.from, "FILE",                                                      \
        "continue from the state in this file, with the bits of an uninterrupted run; weights "    \
        "below adapters are given again; auto: from the newest complete save of --save-state, if " \
        "there is one (default: start at step 0)"),                                                \
        ROW("save-state", STRING, field.save, "FILE",                                              \
            "write the state for --resume at the end, also after an interrupt"),                   \
        ROW("save-every", STRING, field.when, "N",                                                 \
            "write the state and the weights also every N steps, or after each interval such as "  \
            "30m or 1h30m (default: only at the end)"),                                            \
        RANGE("keep", INT, field.keep, "N",                                                        \
              "keep the last N saves as FILE-00000500 and so on next to FILE (default: FILE "      \
              "only; with --keep-every 1)",                                                        \
              1, 1000000),                                                                         \
        RANGE("keep-every", INT, field.keep_every, "N",                                            \
              "keep also the first save of every N steps (default: none)", 1, 1000000000),         \
        ROW("resume-changed", FLAG, field.changed, NULL,                                           \
            "let --resume continue with other options than those of the saved run"),               \
        RANGE("elastic", INT, field.elastic, "N",                                                  \
              "when a rank is lost, continue with the others; every N steps each rank keeps its "  \
              "part of the state in its memory and in that of the next one, which takes a part "   \
              "of --host (default: the job ends)",                                                 \
              1, 1000000)

/* Checks the options, before anything is loaded.  load, weights: the arguments of --load, and
 * of --save, --save-ema, --save-int8 and --save-low; directory: where the weights are written in
 * another format, or NULL.  Returns 0, or -1 after an error message. */
int resume_check(struct resume_options *o, const char *load, const char *const weights[4],
                 const char *directory);

/* Refuses a state that leaves out weights which `load` does not name.  Call it after resume_find,
 * before weights are loaded.  Returns 0, or -1 after an error message. */
int resume_check_base(const struct resume_options *o, const char *load);
/* Whether a state has the value of a parameter, or leaves it out as it was in a file. */
bool resume_knows(const ckpt_file *f, const char *name);

/* Replaces RESUME_AUTO by the file to resume, or by NULL if no save is intact.  An elastic job that
 * has formed again continues from the memory of its ranks (CKPT_PEERS), or from the last save if
 * that is later or the memory is lost.  All ranks must call it, after the rendezvous.  Returns 0,
 * or -1 after an error message. */
int resume_find(struct resume_options *o, ckpt *c);

/* Stores a table's options in the saved states of c, except those that do not affect the results.
 * Call it before a state is loaded or saved.  Returns 0, or -1 after an error message. */
int resume_note(ckpt *c, const struct ckpt_option *table, const void *owner);

/* Stores the number of available samples in the saved states of c, as note `name`.  Returns 0, or
 * -1 after an error message. */
int resume_note_count(ckpt *c, const char *name, int64_t n);

/* The note with the unreadable clips, in the format of loader_bad. */
#define RESUME_BAD "clips that cannot be read"
/* The note of a run whose order of clips depends on its ranks: their number.  A run that resumes it
 * with another says so. */
#define RESUME_DEALT "ranks that --balance deals to"

/* A run's position in its data, stored in its states as a note of this name.  A run with a position
 * can resume with a different number of samples per step. */
struct resume_place {
    const char *name; /* NULL: the number of steps gives the position */
    char *was;        /* value in the loaded state, malloc'ed; NULL: absent or unchanged */
    char *bad;        /* RESUME_BAD of the state, malloc'ed; NULL: absent */
};

/* Loads the state, if there is one, after the compile.  *step: number of steps in it; place: NULL
 * if the number of steps gives the position and no clips are read.  Options that differ from the
 * state's are refused; they are only reported if users change them on purpose or --resume-changed
 * was given.  Returns 0, or -1 after an error message. */
int resume_load(const struct resume_options *o, ckpt *c, struct resume_place *place, int64_t *step);

/* Whether saves are kept by their steps, beside the last one (saves.h). */
bool resume_keeps(const struct resume_options *o);
/* Whether a state is due after `step` steps. */
bool resume_due(const struct resume_options *o, int64_t step);

/* resume_save: writes the state, or begins to with --save-async; no step may be under way.
 * resume_keep: waits until it is written, and keeps it as --keep says; it is of `step` steps.
 * Return 0, or -1 after an error message. */
int resume_save(const struct resume_options *o, ckpt *c);
/* Keeps the state in the memory of the ranks of an elastic job.  Returns 0, or -1 after an error
 * message. */
int resume_keep_in_memory(const struct resume_options *o, ckpt *c);
int resume_keep(const struct resume_options *o, ckpt *c, int64_t step);
/* Keeps copies of the weights, which were written after `step` steps, as --keep says.  Returns 0,
 * or -1 after an error message. */
int resume_keep_weights(const struct resume_options *o, ckpt *c, int64_t step);

#endif
