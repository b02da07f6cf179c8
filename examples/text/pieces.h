/* SPDX-License-Identifier: Apache-2.0 */
/* A model of SentencePiece (Kudo & Richardson 2018) behind a C face: libsentencepiece is C++. */
#ifndef TEXT_PIECES_H
#define TEXT_PIECES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pieces;

/* Takes the bytes of a spiece.model.  Returns 0, or -1: they are none, or there is no memory. */
int pieces_open(struct pieces **p, const void *model, size_t bytes);
void pieces_close(struct pieces *p);

int32_t pieces_count(const struct pieces *p);
/* The number of a piece by its name; -1: there is none. */
int32_t pieces_find(const struct pieces *p, const char *name);

/* The pieces of n bytes of text, *ids to be freed.  Returns how many, or -1 without memory. */
int64_t pieces_encode(const struct pieces *p, const char *text, size_t n, int32_t **ids);

#ifdef __cplusplus
}
#endif
#endif
