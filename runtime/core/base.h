/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small things that every room uses: growing arrays, errors, integer and text helpers,
 * descriptors.
 *
 * The core room is the lowest one: base, files by name, checksums, random numbers, threads for
 * one-time work, notes, options and sizes, and the parameters.  It decides
 *
 * - how a failure is reported: a call returns a code below 0, and error_set writes the sentence
 * where the public call that the thread is in keeps it: in its context, or else in the thread;
 * - how bytes reach a disk: a file is replaced whole or not at all (file.h), and file names of the
 *   user are checked before any work (paths.c);
 * - how random numbers are made: from a counter, never from a state (random.h), so a draw has the
 *   same bits whoever makes it, and when;
 * - what a digest is (checksum.h), for files and for comparisons between ranks;
 * - what a parameter is and which of its slots has a place and a value (params.h), since the tape,
 *   the memory and the ranks all need to know it.
 *
 * It may use the public headers and nothing else of the project: no op, no device, no plan.  Its
 * functions have no state but the thread's sentence, and any thread may call them.  Code that two
 * rooms need, neither of which should know the other, belongs here; code that one room needs stays
 * in that room.
 */
#ifndef CKPT_BASE_H
#define CKPT_BASE_H

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_ALIGN   512 /* bytes: alignment of every address in the arena */
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

/* A failure: its code and the sentence for the caller. */
struct error {
    int code;
    char text[CKPT_MESSAGE];
};

/* Writes the sentence of a failure, and its code, where this thread writes them now; an argument
 * may be the sentence there.  Returns code.  error_vset writes a sentence to dst. */
int error_set(int code, const char *fmt, ...) CKPT_PRINTF(2, 3);
#ifdef CKPT_ANALYZE /* an analyzer, which reads one file, learns what it returns */
#define error_set(code, ...) (error_set(code, __VA_ARGS__), (code))
#endif
int error_vset(char *dst, size_t size, int code, const char *fmt, va_list ap);
/* The sentence that this thread wrote last there. */
const char *error_get(void);

/* Until the end of the block, this thread writes sentences to e; NULL: to its own.  A public call
 * on a context begins with it, and so does code that drops the sentence of a call. */
#define ERRORS_TO(e)                                                                               \
    __attribute__((cleanup(error_end))) struct error *errors_before = error_begin(e)
struct error *error_begin(struct error *e);
void error_end(struct error **before);

/* Makes the sentence for a pointer argument that was NULL.  Returns CKPT_EINVAL. */
int error_null(const char *call, const char *argument);
/* For the head of a public call that returns a code: p must not be NULL. */
#define NOT_NULL(p)                                                                                \
    do {                                                                                           \
        if (!(p))                                                                                  \
            return error_null(__func__, #p);                                                       \
    } while (0)

/* FNV-1a over the bytes of a number, lowest first, so that every machine agrees; HASH_START is the
 * initial value. */
#define HASH_START UINT64_C(14695981039346656037)
uint64_t hash_mix(uint64_t h, int64_t value);
/* FNV-1a over the characters of a text, from HASH_START. */
uint64_t hash_text(const char *text);

/* Seconds of a monotonic clock; its origin has no meaning. */
double clock_seconds(void);
/* The time of that clock in this many seconds. */
struct timespec clock_after(double seconds);

/* The median of n > 0 values, which it sorts. */
double median_of(double *values, int32_t n);

/* Whether none of n values is infinite or NaN: fp32, or of any dtype; integers are always finite.
 */
bool floats_are_finite(const float *x, int64_t n);
bool values_are_finite(const void *x, enum ckpt_dtype dtype, int64_t n);

/* Copies text from a file into dst for use in a sentence, and returns dst.  Control characters are
 * written as \x1b, because a terminal would obey them; so are line ends: the text is one line. */
const char *text_shown(const char *text, char *dst, size_t size);
/* The same of a sentence of the library, which may go on in lines that begin with two blanks. */
const char *sentence_shown(const char *text, char *dst, size_t size);

bool text_is_utf8(const char *text);

/* Closes a stream of open_memstream().  On failure the text is freed and NULL: without memory
 * fclose() itself succeeds and leaves NULL. */
int text_close(FILE *f, char **text);

/* "1.25 GiB" and the like, in one of a few rotating thread-local buffers. */
const char *human_bytes(int64_t bytes);
/* The same for a time: "12.3 ms". */
const char *human_seconds(double seconds);

/* "[2, 3, 4]" into dst. */
void shape_format(char *dst, size_t size, int ndim, const int64_t *shape);
/* "fp32 [2, 3, 4]" into dst. */
void desc_format(char *dst, size_t size, const struct ckpt_desc *d);

/* A number that no other tape or context of the process has: the owner of its handles.  Handles
 * that the library itself makes from an index have owner 0, which is accepted everywhere. */
uint32_t handle_owner(void);

/* "fp32", "bf16" and so on; dtype is one of ckpt.h. */
const char *dtype_name(enum ckpt_dtype dtype);

/* Whether dtype is one of ckpt.h. */
static inline bool dtype_is_known(enum ckpt_dtype dtype)
{
    return (unsigned)dtype <= CKPT_F8E5M2;
}

/* Sets dense row-major strides; returns the number of elements. */
void desc_dense(struct ckpt_desc *d);
int64_t desc_numel(const struct ckpt_desc *d);
/* Whether its number of axes is possible, no axis is empty, and its size does not overflow. */
bool desc_is_sane(const struct ckpt_desc *d);
int64_t desc_bytes(const struct ckpt_desc *d);
bool desc_is_dense(const struct ckpt_desc *d);
/* The stride between consecutive elements in row-major order, if it is constant; else 0. */
int64_t desc_step(const struct ckpt_desc *d);
bool desc_same_shape(const struct ckpt_desc *a, const struct ckpt_desc *b);

#ifdef __cplusplus
}
#endif
#endif
