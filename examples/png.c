/* SPDX-License-Identifier: Apache-2.0 */
/* Writes pictures as PNG (ISO/IEC 15948), compressed by zlib, or where that is not there in stored
 * blocks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "png.h"
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#define STORED_MAX 65535 /* bytes in one stored block */
#define LARGEST    16384 /* pixels along a side: a picture then fits in one chunk */

static void put_u32(uint8_t *dst, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        dst[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t crc32_add(uint32_t crc, const uint8_t *p, size_t n)
{
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* Length, name, data, checksum of name and data.  A write that fails is seen by png_write. */
static void put_chunk(FILE *f, const char *name, const uint8_t *data, size_t n)
{
    uint8_t head[8], tail[4];

    put_u32(head, (uint32_t)n);
    memcpy(head + 4, name, 4);
    put_u32(tail, crc32_add(crc32_add(0, head + 4, 4), data, n));
    fwrite(head, 1, sizeof(head), f);
    if (n)
        fwrite(data, 1, n, f);
    fwrite(tail, 1, sizeof(tail), f);
}

/* The rows, each behind a byte 0 that says "no filter". */
static uint8_t *filter_rows(int width, int height, const uint8_t *rgb, size_t *size)
{
    size_t row = 3 * (size_t)width;
    uint8_t *rows = malloc((row + 1) * (size_t)height);

    *size = (row + 1) * (size_t)height;
    for (int y = 0; rows && y < height; y++) {
        rows[(size_t)y * (row + 1)] = 0;
        memcpy(rows + (size_t)y * (row + 1) + 1, rgb + (size_t)y * row, row);
    }
    return rows;
}

#ifdef HAVE_ZLIB
static uint8_t *zlib_stream(const uint8_t *src, size_t n, size_t *size)
{
    uLongf room = compressBound(n);
    uint8_t *dst = malloc(room);

    if (dst && compress2(dst, &room, src, n, Z_BEST_COMPRESSION) != Z_OK) {
        free(dst);
        dst = NULL;
    }
    *size = room;
    return dst;
}
#else
static uint32_t adler_of(const uint8_t *p, size_t n)
{
    uint32_t a = 1, b = 0;

    for (size_t i = 0; i < n; i++) {
        a = (a + p[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

/* A zlib stream: two header bytes, stored blocks, the Adler checksum. */
static uint8_t *zlib_stream(const uint8_t *src, size_t n, size_t *size)
{
    size_t blocks = (n + STORED_MAX - 1) / STORED_MAX;
    uint8_t *dst = malloc(2 + 5 * blocks + n + 4), *p = dst;

    if (!dst)
        return NULL;
    *p++ = 0x78;
    *p++ = 0x01;
    for (size_t at = 0; at < n; at += STORED_MAX) {
        size_t part = n - at < STORED_MAX ? n - at : STORED_MAX;
        uint8_t head[5] = {at + part == n, (uint8_t)part, (uint8_t)(part >> 8), (uint8_t)~part,
                           (uint8_t)(~part >> 8)};
        memcpy(p, head, 5);
        memcpy(p + 5, src + at, part);
        p += 5 + part;
    }
    put_u32(p, adler_of(src, n));
    *size = (size_t)(p + 4 - dst);
    return dst;
}
#endif

static int write_file(FILE *f, const uint8_t header[13], const uint8_t *data, size_t n)
{
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

    errno = 0;
    fwrite(signature, 1, sizeof(signature), f);
    put_chunk(f, "IHDR", header, 13);
    put_chunk(f, "IDAT", data, n);
    put_chunk(f, "IEND", NULL, 0);
    if (fflush(f) || ferror(f))
        return errno ? -errno : -EIO;
    return 0;
}

int png_write(FILE *f, int width, int height, const uint8_t *rgb)
{
    uint8_t header[13] = {[8] = 8, [9] = 2}; /* 8 bits, RGB */
    size_t n_rows, n_data;

    if (width < 1 || height < 1 || width > LARGEST || height > LARGEST)
        return -EINVAL;
    uint8_t *rows = filter_rows(width, height, rgb, &n_rows);
    uint8_t *data = rows ? zlib_stream(rows, n_rows, &n_data) : NULL;
    free(rows);
    if (!data)
        return -ENOMEM;
    put_u32(header, (uint32_t)width);
    put_u32(header + 4, (uint32_t)height);
    int rc = write_file(f, header, data, n_data);
    free(data);
    return rc;
}

/* One frame, magnified, into a picture whose rows are stride bytes. */
static void place_frame(uint8_t *dst, size_t stride, int height, int width, const uint8_t *frame,
                        int zoom)
{
    for (int y = 0; y < height * zoom; y++) {
        const uint8_t *row = frame + 3 * (size_t)(y / zoom) * (size_t)width;
        for (int x = 0; x < width * zoom; x++)
            memcpy(dst + (size_t)y * stride + 3 * (size_t)x, row + 3 * (x / zoom), 3);
    }
}

int png_write_strip(FILE *f, int frames, int height, int width, const uint8_t *rgb, int zoom)
{
    if (frames < 1 || height < 1 || width < 1 || zoom < 1 || height > LARGEST / zoom ||
        width > (LARGEST / frames - 1) / zoom)
        return -EINVAL;
    int step = width * zoom + 1;
    int full = frames * step - 1;
    size_t stride = 3 * (size_t)full, frame = 3 * (size_t)height * (size_t)width;
    uint8_t *picture = malloc(stride * (size_t)(height * zoom));
    if (!picture)
        return -ENOMEM;
    memset(picture, 255, stride * (size_t)(height * zoom));
    for (int i = 0; i < frames; i++)
        place_frame(picture + 3 * (size_t)(i * step), stride, height, width,
                    rgb + (size_t)i * frame, zoom);
    int rc = png_write(f, full, height * zoom, picture);
    free(picture);
    return rc;
}
