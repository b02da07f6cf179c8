/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins: which of its algorithms a library was told to use for a call, by the call's key.  Sums are
 * taken in another order by another algorithm, so a choice that was measured once is written down,
 * with the plan or for the machine, and taken again in every later run.
 */
#ifndef CKPT_OPS_PINS_H
#define CKPT_OPS_PINS_H

#include <stdio.h>
#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pin_origin {
    PIN_GIVEN,    /* a file names it; no call has used it */
    PIN_TAKEN,    /* a file names it, and a call uses it */
    PIN_PROPOSED, /* what the library proposes first */
    PIN_FASTER    /* measured in this process, and faster than that */
};

struct pin {
    uint64_t key;
    char *choice; /* a line of text that only the kernel that wrote it understands */
    enum pin_origin origin;
};

struct pins {
    struct pin *data; /* sorted by key, so that equal choices are written as equal text */
    int64_t capacity;
    int64_t n;
    int64_t ignored; /* pins that no longer fitted: of another library, of another card */
};

void pins_free(struct pins *p);

/* The choice for this key, or NULL. */
const char *pins_get(const struct pins *p, uint64_t key);

/* Sets or replaces the choice for this key, as a file does.  Returns 0 or CKPT_ENOMEM. */
int pins_set(struct pins *p, uint64_t key, const char *choice);

/* The same of another origin: choice may be that which the key has. */
int pins_put(struct pins *p, uint64_t key, const char *choice, enum pin_origin origin);

/* How many there are of this origin. */
int64_t pins_count(const struct pins *p, enum pin_origin origin);

/* Sets all pins of from, as a file does.  Returns 0 or CKPT_ENOMEM; some are then set. */
int pins_add(struct pins *p, const struct pins *from);

/* Writes "pin KEY CHOICE" lines, keys as 16 hexadecimal digits.  Returns 0 or CKPT_EIO. */
int pins_write(const struct pins *p, FILE *f);

/* Takes over one such line; *is_pin tells whether it was one.  Returns 0, CKPT_ENOMEM, or
 * CKPT_EFORMAT for a pin without key or choice. */
int pins_read(struct pins *p, const char *line, bool *is_pin);

#ifdef __cplusplus
}
#endif
#endif
