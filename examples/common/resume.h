/* SPDX-License-Identifier: Apache-2.0 */
/* --resume, --save-state, --save-every and --keep: trainers that go on where another run ended. */
#ifndef EXAMPLES_RESUME_H
#define EXAMPLES_RESUME_H

#include "ckpt_tools.h"

struct resume_options {
    const char *from, *save; /* files, or NULL; from RESUME_AUTO: what resume_find finds */
    const char *when;        /* as --save-every has it, or NULL */
    int64_t every;           /* steps between two saves; 0: one at the end */
    double seconds;          /* between two saves; 0: not by the clock */
    int64_t keep;            /* last saves side by side; 0: the default */
    int64_t keep_every;      /* of each so many steps one save stays; 0: none does */
    bool changed;            /* go on from a state of other options */
    bool automatic;          /* from was RESUME_AUTO */
};

#define RESUME_AUTO "auto"

/* The rows of an option table; ROW is the program's own macro, field where the struct stands. */
#define RESUME_ROWS(field)                                                                         \
    ROW("resume", STRING, field.from, "FILE",                                                      \
        "go on from the state in this file, with the bits of a run that was never interrupted; "   \
        "auto: from the newest whole save of --save-state, if there is one (default: begin "       \
        "anew)"),                                                                                  \
        ROW("save-state", STRING, field.save, "FILE",                                              \
            "write all that --resume needs at the end, also when interrupted"),                    \
        ROW("save-every", STRING, field.when, "N",                                                 \
            "write it every N steps, too, or every so often, as 30m or 1h30m (default: at the "    \
            "end)"),                                                                               \
        RANGE("keep", INT, field.keep, "N",                                                        \
              "keep the last N saves, as FILE-00000500 beside FILE (default: FILE alone; with "    \
              "--keep-every 1)",                                                                   \
              1, 1000000),                                                                         \
        RANGE("keep-every", INT, field.keep_every, "N",                                            \
              "keep the first save of every N steps, too (default: none)", 1, 1000000000),         \
        ROW("resume-changed", FLAG, field.changed, NULL,                                           \
            "let --resume go on with other options than the state was made with")

/* Before anything is loaded; load is what --load gives.  Returns 0, or -1 after a sentence. */
int resume_check(struct resume_options *o, const char *load);

/* Puts the file in the place of RESUME_AUTO, or NULL: there is no whole save.  A call of all ranks,
 * when they have met.  Returns 0, or -1 after a sentence. */
int resume_find(struct resume_options *o, ckpt *c);

/* Notes the options of a table in the states of c, but for those that no bits follow from.  Before
 * a state is loaded or saved.  Returns 0, or -1 after a sentence. */
int resume_note(ckpt *c, const struct ckpt_option *table, const void *owner);

/* Notes in the states of c how many samples there are to draw from, under that name.  Returns 0, or
 * -1 after a sentence. */
int resume_note_count(ckpt *c, const char *name, int64_t n);

/* The note with the clips that the run could not read, as loader_bad has them. */
#define RESUME_BAD "clips that cannot be read"

/* Where a run stands in its data, as a note of that name says it in the states it writes.  A run
 * that has one goes on with any number of samples a step. */
struct resume_place {
    const char *name; /* NULL: the steps tell */
    char *was;        /* found, malloc'ed; NULL: in no state, or as the note is already */
    char *bad;        /* RESUME_BAD of the state, malloc'ed; NULL: it has none */
};

/* Loads the state, if there is one, behind the compile.  *step: how many steps it has; place: NULL
 * where the steps tell and no clips are read.  Options that differ from those it was made with are
 * refused or, where users change them on purpose or said --resume-changed, said.  Returns 0, or -1
 * after a sentence.
 */
int resume_load(const struct resume_options *o, ckpt *c, struct resume_place *place, int64_t *step);

/* Whether the state is to be written after so many steps. */
bool resume_due(const struct resume_options *o, int64_t step);

/* Writes the state, of so many steps; none may be under way.  Returns 0, or -1 after a sentence. */
int resume_save(const struct resume_options *o, ckpt *c, int64_t step);

#endif
