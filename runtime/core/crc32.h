/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of zip archives: CRC-32 with the reflected polynomial 0xedb88320. */
#ifndef CKPT_CORE_CRC32_H
#define CKPT_CORE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The sum of bytes that follow those with the sum `sum`; of the first ones 0. */
uint32_t crc32_add(uint32_t sum, const void *bytes, size_t n);

#endif
