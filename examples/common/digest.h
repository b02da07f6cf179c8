/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a (Fowler, Noll and Vo): digests of data and weights.  States and caches keep them, so the
 * values never change. */
#ifndef COMMON_DIGEST_H
#define COMMON_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define DIGEST_START UINT64_C(0xcbf29ce484222325)

/* Adds a word of any width as one unit. */
static inline uint64_t digest_word(uint64_t digest, uint64_t x)
{
    return (digest ^ x) * UINT64_C(0x100000001b3);
}

static inline uint64_t digest_bytes(uint64_t digest, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        digest = digest_word(digest, ((const unsigned char *)bytes)[i]);
    return digest;
}

#endif
