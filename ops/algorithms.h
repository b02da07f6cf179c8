/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded choices of library algorithms, by the key of the call.  Another algorithm sums in
 * another order, so a choice that was measured once is saved with the plan or the machine file and
 * used in every later run.
 */
#ifndef CKPT_OPS_ALGORITHMS_H
#define CKPT_OPS_ALGORITHMS_H

#include <stdio.h>
#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum algorithm_origin {
    ALGORITHM_GIVEN,    /* from a file; not used by a call yet */
    ALGORITHM_TAKEN,    /* from a file, and used by a call */
    ALGORITHM_PROPOSED, /* the first proposal of the library */
    ALGORITHM_FASTER    /* measured in this process as faster than the proposal */
};

struct algorithm {
    uint64_t key;
    char *choice; /* one line of text in a format private to the kernel that wrote it; owned */
    enum algorithm_origin origin;
};

struct algorithms {
    struct algorithm *data; /* sorted by key, so equal choices are written as equal text */
    int64_t capacity;
    int64_t n;
    int64_t ignored; /* choices that did not apply: from another library version or GPU */
};

void algorithms_free(struct algorithms *p);

/* The choice for this key, or NULL. */
const char *algorithms_get(const struct algorithms *p, uint64_t key);

/* Sets or replaces the choice for a key, with origin ALGORITHM_GIVEN.  Returns 0 or CKPT_ENOMEM. */
int algorithms_set(struct algorithms *p, uint64_t key, const char *choice);

/* The same with any origin.  choice may point to the current choice of the key. */
int algorithms_put(struct algorithms *p, uint64_t key, const char *choice,
                   enum algorithm_origin origin);

/* Number of choices with this origin. */
int64_t algorithms_count(const struct algorithms *p, enum algorithm_origin origin);

/* Sets all choices of `from`, with origin ALGORITHM_GIVEN.  Returns 0 or CKPT_ENOMEM, after which
 * some may be set. */
int algorithms_add(struct algorithms *p, const struct algorithms *from);

/* Writes "pin KEY CHOICE" lines, keys as 16 hexadecimal digits.  Returns 0 or CKPT_EIO. */
int algorithms_write(const struct algorithms *p, FILE *f);

/* Reads one such line; *is_algorithm says whether it is one.  Returns 0, CKPT_ENOMEM, or
 * CKPT_EFORMAT for one without key or choice. */
int algorithms_read(struct algorithms *p, const char *line, bool *is_algorithm);

#ifdef __cplusplus
}
#endif
#endif
