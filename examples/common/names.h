/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of names from files, shortened to fit one message. */
#ifndef EXAMPLES_NAMES_H
#define EXAMPLES_NAMES_H

#include "ckpt.h"

enum { NAMES_SHOWN = 3, NAMES_LENGTH = 100 };

struct names {
    char shown[NAMES_SHOWN][NAMES_LENGTH]; /* the first names, truncated if long */
    int64_t n;                             /* number of all names */
};

void names_add(struct names *l, const char *name);

/* Writes "a, b, c and 1,399,997 more" to dst and returns it; "" if there are no names. */
enum { NAMES_TEXT = NAMES_SHOWN * (NAMES_LENGTH + 2) + 64 };
const char *names_text(const struct names *l, char dst[NAMES_TEXT]);

/* Prints "PROGRAM: PATH: WHAT: a, b, c and 2 more" to standard error if there are names. */
void names_report(const struct names *l, const char *path, const char *what);

/* Whether a weight without a place in the model shows that the model is another one: it is in a
 * numbered layer, or has scales of others.  A head, say, changes no result. */
bool names_is_of_layer(const char *name);
/* Refuses a file with such weights.  Returns 0 if there are none, or -1 after an error message. */
int names_refuse_layers(const struct names *l, const char *path);

#endif
