/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run could be given that was refused for its memory: options that save some, each with what
 * the run needs then.  The program is planned again with them, by a process of its own.
 */
#ifndef EXAMPLES_REMEDIES_H
#define EXAMPLES_REMEDIES_H

#include "ckpt.h"

enum { REMEDIES = 8, REMEDY_WORDS = 4 };

struct remedy {
    const char *word[REMEDY_WORDS]; /* options and their values, up to NULL */
    int64_t needs; /* bytes of the device; 0: it fits; -1: it is refused otherwise */
};

struct remedies {
    char **command; /* the command line as given, up to NULL */
    struct remedy row[REMEDIES];
    int n;
};

void remedies_add(struct remedies *r, const struct remedy *remedy);

/* Whether this process plans for another: it must stop when its programs are compiled. */
bool remedies_planning(void);

/* Sets the options of such a process: it runs nothing, and leaves no file that the user would take
 * for one of his own run. */
void remedies_set_options(struct ckpt_options *library);

/* Plans this program with these words, up to NULL, in a process of its own, which writes its graph
 * to the file graph; NULL: to none.  Returns its exit status, with what fits of what it said in
 * output; -1: it did not start or end. */
enum { REMEDIES_OUTPUT = 1 << 16 };
int remedies_plan(char *const *words, const char *graph, char output[REMEDIES_OUTPUT]);

/* Plans the command with each option, and, if none is enough, with all that help; prints those that
 * help to standard error, the best first.  needs: bytes without them. */
void remedies_print(struct remedies *r, int64_t needs);

/* The bytes in the sentence of a refusal; 0: there are none. */
int64_t remedies_needs(const char *sentence);

#endif
