/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of bytes: of blocks that are offloaded to disks, and of tensors and headers in files.
 * The definition is part of the file format (CHECKSUM_NAME), so it never changes: another function
 * needs another name.
 *
 *     h[i] = i + 1 for i in 0..7                                  eight chains
 *     h[i] = step(h[i], w[i])                                     for each 64 bytes w[0..7]
 *     sum  = step(FNV-1a offset basis, number of bytes), then step(sum, h[i]) for i in 0..7
 *     step(h, x) = y ^ (y >> 32),  y = (h ^ x) * 0x9fb21c651e98df25 mod 2^64
 *
 * Words are little-endian; the last 64 bytes are padded with zeros.
 */
#ifndef CKPT_CHECKSUM_H
#define CKPT_CHECKSUM_H

#include "core/base.h"

#define CHECKSUM_NAME "ckpt64-1"

enum { CHECKSUM_CHAINS = 8, CHECKSUM_BLOCK = 8 * CHECKSUM_CHAINS };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "checksums read words as they lie");

/* Any change within one aligned word of 8 bytes changes the checksum; any other change goes
 * unnoticed once in 2^64.  bytes may be any number. */
uint64_t checksum(const void *data, int64_t bytes);

/* The same for bytes in parts: every part but the last is a multiple of CHECKSUM_BLOCK. */
struct checksum {
    uint64_t h[CHECKSUM_CHAINS];
    int64_t bytes;
};

void checksum_begin(struct checksum *s);
void checksum_add(struct checksum *s, const void *data, int64_t bytes);
uint64_t checksum_end(const struct checksum *s);

#endif
