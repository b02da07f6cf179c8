/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins: recorded choices of library algorithms, by the key of the call.  Another algorithm sums in
 * another order, so a choice that was measured once is saved with the plan or the machine file and
 * used in every later run.
 */
#ifndef CKPT_OPS_PINS_H
#define CKPT_OPS_PINS_H

#include <stdio.h>
#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pin_origin {
    PIN_GIVEN,    /* from a file; not used by a call yet */
    PIN_TAKEN,    /* from a file, and used by a call */
    PIN_PROPOSED, /* the first proposal of the library */
    PIN_FASTER    /* measured in this process as faster than the proposal */
};

struct pin {
    uint64_t key;
    char *choice; /* one line of text in a format private to the kernel that wrote it; owned */
    enum pin_origin origin;
};

struct pins {
    struct pin *data; /* sorted by key, so equal choices are written as equal text */
    int64_t capacity;
    int64_t n;
    int64_t ignored; /* pins that did not apply: from another library version or GPU */
};

void pins_free(struct pins *p);

/* The choice for this key, or NULL. */
const char *pins_get(const struct pins *p, uint64_t key);

/* Sets or replaces the choice for a key, with origin PIN_GIVEN.  Returns 0 or CKPT_ENOMEM. */
int pins_set(struct pins *p, uint64_t key, const char *choice);

/* The same with any origin.  choice may point to the current choice of the key. */
int pins_put(struct pins *p, uint64_t key, const char *choice, enum pin_origin origin);

/* Number of pins with this origin. */
int64_t pins_count(const struct pins *p, enum pin_origin origin);

/* Sets all pins of `from`, with origin PIN_GIVEN.  Returns 0 or CKPT_ENOMEM, after which some may
 * be set. */
int pins_add(struct pins *p, const struct pins *from);

/* Writes "pin KEY CHOICE" lines, keys as 16 hexadecimal digits.  Returns 0 or CKPT_EIO. */
int pins_write(const struct pins *p, FILE *f);

/* Reads one such line; *is_pin says whether it is one.  Returns 0, CKPT_ENOMEM, or CKPT_EFORMAT for
 * a pin without key or choice. */
int pins_read(struct pins *p, const char *line, bool *is_pin);

#ifdef __cplusplus
}
#endif
#endif
