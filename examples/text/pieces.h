/* SPDX-License-Identifier: Apache-2.0 */
/* A C interface to SentencePiece models (Kudo & Richardson 2018): libsentencepiece is C++. */
#ifndef TEXT_PIECES_H
#define TEXT_PIECES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pieces;

/* Loads the bytes of a spiece.model.  Returns 0, or -1: invalid bytes, or no memory. */
int pieces_open(struct pieces **p, const void *model, size_t bytes);
void pieces_close(struct pieces *p);

int32_t pieces_count(const struct pieces *p);
/* The number of a piece by its name; -1: no such piece. */
int32_t pieces_find(const struct pieces *p, const char *name);

/* The pieces of n bytes of text; the caller frees *ids.  Returns their number, or -1 without
 * memory. */
int64_t pieces_encode(const struct pieces *p, const char *text, size_t n, int32_t **ids);

#ifdef __cplusplus
}
#endif
#endif
