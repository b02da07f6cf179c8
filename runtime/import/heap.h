/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed as a whole: what was read of a file, what one recording computed. */
#ifndef CKPT_IMPORT_HEAP_H
#define CKPT_IMPORT_HEAP_H

#include "core/base.h"

struct heap {
    struct heap_block *last;
};

/* n elements of zeros, or NULL and the sentence of the thread.  n is at least 0. */
void *heap_zeros(struct heap *h, int64_t n, size_t element);
/* The first n characters of a text, with a NUL behind them; or NULL. */
char *heap_text(struct heap *h, const char *text, size_t n);
void heap_free(struct heap *h);

#endif
