/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small things that every room uses: growing arrays, errors, integer and text helpers,
 * descriptors.
 *
 * The core room is the ground floor: base, files by name, checksums, random numbers, threads for
 * work that comes once, notes, options and sizes, and the parameters.  It decides
 *
 * - how a failure travels: a code below 0 is returned, the sentence stands in a struct error that
 *   was handed down, or, for calls that have no context, in that of the thread (error_get);
 * - how bytes reach a disk: a file is replaced whole or not at all (file.h), and what a user names
 *   is checked before any work (paths.c);
 * - where random numbers come from: a counter, never a state (random.h), so the same draw has the
 *   same bits whoever makes it, and when;
 * - what a digest is (checksum.h), for files and for ranks that compare what they have;
 * - what a parameter is and which of its slots has a place and a value (params.h), as the tape,
 *   the memory and the ranks all have to know it.
 *
 * It may know the public headers and nothing else of the project: no op, no device, no plan.  What
 * it offers has no state but the thread's sentence, and every function may be called from any
 * thread.  Whatever two rooms need, and neither should know the other for, belongs here; whatever
 * one room needs stays in that room.
 */
#ifndef CKPT_BASE_H
#define CKPT_BASE_H

#include <stdarg.h>
#include <stdio.h>
#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_ALIGN   512 /* of every address in the arena */
#define CKPT_MESSAGE 1024

static inline int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/*
 * Makes room for one more element in a growing array: a pointer, a count and a capacity.  Returns 0
 * or CKPT_ENOMEM; the array is then unchanged.
 */
int array_reserve(void **data, int64_t *capacity, int64_t count, size_t element);
#define ARRAY_RESERVE(a, n)                                                                        \
    ((n) < (a)->capacity                                                                           \
         ? 0                                                                                       \
         : array_reserve((void **)&(a)->data, &(a)->capacity, (n), sizeof(*(a)->data)))

/* The sentence kept per thread for calls without a context.  Both return code. */
int error_set(int code, const char *fmt, ...) CKPT_PRINTF(2, 3);
int error_vset(char *dst, size_t size, int code, const char *fmt, va_list ap);
const char *error_get(void);

/* A failure, handed down to where it may happen: its code and the sentence for the caller. */
struct error {
    int code;
    char text[CKPT_MESSAGE];
};

/* Stores both, in e or, without one, in that of the thread, and returns code.  An argument may be
 * the text that stands there. */
int error_fail(struct error *e, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* The sentence about a pointer that a public call was given as NULL, in e or, without one, in that
 * of the thread.  Returns CKPT_EINVAL. */
int error_null(struct error *e, const char *call, const char *argument);
/* For the head of a public call that returns a code: p must not be NULL. */
#define NOT_NULL(e, p)                                                                             \
    do {                                                                                           \
        if (!(p))                                                                                  \
            return error_null(e, __func__, #p);                                                    \
    } while (0)

/* FNV-1a over the bytes of a number, lowest first, so that every machine agrees; where it starts.
 */
#define HASH_START UINT64_C(14695981039346656037)
uint64_t hash_mix(uint64_t h, int64_t value);
/* From the start on, over the characters of a text. */
uint64_t hash_text(const char *text);

/* Seconds of a clock that only goes forward; where it starts means nothing. */
double clock_seconds(void);

/* The middle one of n > 0 values, which are sorted for it. */
double median_of(double *values, int32_t n);

/* Whether none of n values is infinite or NaN: fp32, or of any dtype; integers never are. */
bool floats_are_finite(const float *x, int64_t n);
bool values_are_finite(const void *x, enum ckpt_dtype dtype, int64_t n);

/* Text out of a file as it fits a sentence of one line, in dst, which is returned: control
 * characters as \x1b, for a terminal must not obey what is written there. */
const char *text_shown(const char *text, char *dst, size_t size);

bool text_is_utf8(const char *text);

/* Ends a stream of open_memstream(), whose text is then whole, else freed and NULL: without memory
 * its fclose() succeeds and leaves NULL. */
int text_close(FILE *f, char **text);

/* "1.25 GiB" and the like, into one of a few rotating thread-local buffers. */
const char *human_bytes(int64_t bytes);
/* The same of a time: "12.3 ms". */
const char *human_seconds(double seconds);

/* "fp32 [2, 3, 4]" into dst. */
void desc_format(char *dst, size_t size, const struct ckpt_desc *d);

/* A number that no other tape or context of the process has: the owner of its handles.  0 is what
 * the library itself makes of an index, and taken everywhere. */
uint32_t handle_owner(void);

/* "fp32", "bf16" and so on, of one of ckpt.h. */
const char *dtype_name(enum ckpt_dtype dtype);

/* Is it one of ckpt.h? */
static inline bool dtype_is_known(enum ckpt_dtype dtype)
{
    return (unsigned)dtype <= CKPT_F8E5M2;
}

/* Fills dense row-major strides; number of elements; whether it is dense row-major. */
void desc_dense(struct ckpt_desc *d);
int64_t desc_numel(const struct ckpt_desc *d);
/* Whether it has axes as many as are possible, none of them empty, and a size that can be. */
bool desc_is_sane(const struct ckpt_desc *d);
int64_t desc_bytes(const struct ckpt_desc *d);
bool desc_is_dense(const struct ckpt_desc *d);
/* The step between neighbours, elements taken in row-major order, where there is one; else 0. */
int64_t desc_step(const struct ckpt_desc *d);
bool desc_same_shape(const struct ckpt_desc *a, const struct ckpt_desc *b);

#ifdef __cplusplus
}
#endif
#endif
