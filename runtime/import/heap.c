/* SPDX-License-Identifier: Apache-2.0 */
/* Small pieces share blocks; a large one has a block of its own. */
#include <stdlib.h>
#include <string.h>
#include "import/heap.h"

enum { BLOCK = 64 << 10, ALIGNMENT = 16 };

struct heap_block {
    struct heap_block *before;
    size_t used, size; /* of the bytes */
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

static struct heap_block *add_block(struct heap *h, size_t size)
{
    struct heap_block *b = calloc(1, sizeof *b + size);

    if (!b)
        return NULL;
    b->size = size;
    b->before = h->last;
    h->last = b;
    return b;
}

void *heap_zeros(struct heap *h, int64_t n, size_t element)
{
    size_t bytes;

    if (__builtin_mul_overflow((size_t)n, element, &bytes) || bytes > SIZE_MAX / 4) {
        error_set(CKPT_ENOMEM, "there is no memory for %lld elements", (long long)n);
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + (bytes ? 0 : ALIGNMENT);
    struct heap_block *b = h->last;
    if (!b || b->size - b->used < bytes)
        b = add_block(h, bytes > BLOCK ? bytes : BLOCK);
    if (!b) {
        error_set(CKPT_ENOMEM, "there is no memory for %lld bytes", (long long)bytes);
        return NULL;
    }
    b->used += bytes;
    return b->bytes + b->used - bytes;
}

char *heap_text(struct heap *h, const char *text, size_t n)
{
    char *copy = heap_zeros(h, (int64_t)n + 1, 1);

    return copy ? memcpy(copy, text, n) : NULL;
}

void heap_free(struct heap *h)
{
    while (h->last) {
        struct heap_block *b = h->last;
        h->last = b->before;
        free(b);
    }
}
