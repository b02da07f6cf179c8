/* SPDX-License-Identifier: Apache-2.0 */
/* Names out of files, for one sentence however many there are. */
#ifndef EXAMPLES_NAMES_H
#define EXAMPLES_NAMES_H

#include "ckpt.h"

enum { NAMES_SHOWN = 3, NAMES_LENGTH = 100 };

struct names {
    char shown[NAMES_SHOWN][NAMES_LENGTH]; /* the first, cut where they are long */
    int64_t n;                             /* of all */
};

void names_add(struct names *l, const char *name);

/* "a, b, c and 1,399,997 more" into dst, which is returned; "" where there is none. */
enum { NAMES_TEXT = NAMES_SHOWN * (NAMES_LENGTH + 2) + 64 };
const char *names_text(const struct names *l, char dst[NAMES_TEXT]);

/* Prints "PROGRAM: PATH: WHAT: a, b, c and 2 more" to standard error, if there is a name. */
void names_report(const struct names *l, const char *path, const char *what);

#endif
