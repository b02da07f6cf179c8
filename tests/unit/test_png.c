/* SPDX-License-Identifier: Apache-2.0 */
/* The PNG writer: a separate reader takes the file apart. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#include "examples/png.h"

static char path[] = "test_png.tmp.png";

struct picture {
    int width, height;
    uint8_t *rgb;
};

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static size_t read_file(uint8_t **data)
{
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    *data = malloc(n);
    assert_int_equal(fread(*data, 1, n, f), n);
    fclose(f);
    return n;
}

/* Table-driven, unlike the writer's; IEEE 802.3 polynomial. */
static uint32_t crc_of(const uint8_t *p, size_t n)
{
    uint32_t table[256], crc = 0xffffffffu;

    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? 0xedb88320u ^ (table[i] >> 1) : table[i] >> 1;
    }
    while (n--)
        crc = table[(crc ^ *p++) & 255] ^ (crc >> 8);
    return ~crc;
}

/* The data of the chunk at *p, which must have this name; *p moves to the next chunk. */
static const uint8_t *chunk(const uint8_t **p, const char *name, size_t *n)
{
    const uint8_t *data = *p + 8;

    *n = get_u32(*p);
    assert_memory_equal(*p + 4, name, 4);
    assert_int_equal(get_u32(data + *n), crc_of(*p + 4, *n + 4));
    *p = data + *n + 4;
    return data;
}

#ifdef HAVE_ZLIB
/* The test's pictures have fewer bytes than this. */
enum { MOST = 1 << 20 };

static uint8_t *inflated(const uint8_t *p, size_t n, size_t *size)
{
    uint8_t *out = malloc(MOST);
    uLongf room = MOST;

    assert_int_equal(uncompress(out, &room, p, n), Z_OK);
    *size = room;
    return out;
}
#else
/* Joins the stored blocks of a zlib stream. */
static uint8_t *inflated(const uint8_t *p, size_t n, size_t *size)
{
    uint8_t *out = malloc(n);
    const uint8_t *end = p + n;
    uint32_t a = 1, b = 0;
    int last = 0;

    assert_int_equal(p[0] & 15, 8);
    assert_int_equal((p[0] * 256 + p[1]) % 31, 0);
    *size = 0;
    for (p += 2; !last;) {
        size_t part = p[1] | (size_t)p[2] << 8;
        assert_in_range(p[0], 0, 1);
        last = p[0];
        assert_int_equal(part ^ 0xffff, p[3] | (size_t)p[4] << 8);
        memcpy(out + *size, p + 5, part);
        *size += part;
        p += 5 + part;
    }
    for (size_t i = 0; i < *size; i++) {
        a = (a + out[i]) % 65521;
        b = (b + a) % 65521;
    }
    assert_int_equal(get_u32(p), b << 16 | a);
    assert_ptr_equal(p + 4, end);
    return out;
}
#endif

static struct picture read_picture(void)
{
    static const uint8_t rgb8[5] = {8, 2, 0, 0, 0};
    uint8_t *file;
    size_t size = read_file(&file), n, n_rows;
    const uint8_t *p = file + 8;

    assert_memory_equal(file, "\x89PNG\r\n\x1a\n", 8);
    const uint8_t *head = chunk(&p, "IHDR", &n);
    assert_int_equal(n, 13);
    struct picture pic = {(int)get_u32(head), (int)get_u32(head + 4), NULL};
    assert_memory_equal(head + 8, rgb8, 5);
    const uint8_t *data = chunk(&p, "IDAT", &n);
    uint8_t *rows = inflated(data, n, &n_rows);
    chunk(&p, "IEND", &n);
    assert_int_equal(n, 0);
    assert_ptr_equal(p, file + size);

    size_t row = 3 * (size_t)pic.width;
    assert_int_equal(n_rows, (row + 1) * (size_t)pic.height);
    pic.rgb = malloc(row * (size_t)pic.height);
    for (int y = 0; y < pic.height; y++) {
        assert_int_equal(rows[(size_t)y * (row + 1)], 0);
        memcpy(pic.rgb + (size_t)y * row, rows + (size_t)y * (row + 1) + 1, row);
    }
    free(rows);
    free(file);
    return pic;
}

static uint8_t *noise(size_t n)
{
    uint8_t *p = malloc(n);
    uint32_t x = 1;

    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (uint8_t)(x >> 24);
    }
    return p;
}

static int write_picture(int width, int height, const uint8_t *rgb)
{
    FILE *f = fopen(path, "wb");
    int rc = png_write(f, width, height, rgb);

    fclose(f);
    return rc;
}

static int write_strip(int frames, int height, int width, const uint8_t *rgb, int zoom)
{
    FILE *f = fopen(path, "wb");
    int rc = png_write_strip(f, frames, height, width, rgb, zoom);

    fclose(f);
    return rc;
}

static void check_round_trip(int width, int height)
{
    size_t n = 3 * (size_t)width * (size_t)height;
    uint8_t *rgb = noise(n);

    assert_int_equal(write_picture(width, height, rgb), 0);
    struct picture pic = read_picture();
    assert_int_equal(pic.width, width);
    assert_int_equal(pic.height, height);
    assert_memory_equal(pic.rgb, rgb, n);
    free(pic.rgb);
    free(rgb);
    unlink(path);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_round_trip(1, 1);
    check_round_trip(7, 5);
    check_round_trip(200, 160); /* several stored blocks */
    check_round_trip(1456, 15); /* rows of 65535 bytes in all: exactly one block */
}

static void test_strip(void **state)
{
    enum { T = 3, H = 2, W = 4, ZOOM = 2, FULL = T * (W * ZOOM + 1) - 1 };
    uint8_t *rgb = noise(T * H * W * 3);

    (void)state;
    assert_int_equal(write_strip(T, H, W, rgb, ZOOM), 0);
    struct picture pic = read_picture();
    assert_int_equal(pic.width, FULL);
    assert_int_equal(pic.height, H * ZOOM);
    for (int y = 0; y < H * ZOOM; y++) {
        for (int x = 0; x < FULL; x++) {
            static const uint8_t white[3] = {255, 255, 255};
            int frame = x / (W * ZOOM + 1), column = x % (W * ZOOM + 1);
            const uint8_t *want =
                column == W * ZOOM ? white : rgb + 3 * ((frame * H + y / ZOOM) * W + column / ZOOM);
            assert_memory_equal(pic.rgb + 3 * (y * FULL + x), want, 3);
        }
    }
    free(pic.rgb);
    free(rgb);
    unlink(path);
}

static void test_failures(void **state)
{
    (void)state;
    static const uint8_t pixel[3] = {1, 2, 3};

    assert_int_equal(write_picture(0, 1, pixel), -EINVAL);
    assert_int_equal(write_picture(1, 1 << 20, pixel), -EINVAL);
    assert_int_equal(write_strip(1, 1, 1, pixel, 0), -EINVAL);
    assert_int_equal(write_strip(1 << 30, 1, 1, pixel, 1), -EINVAL);
    assert_int_equal(write_strip(1, 1, 1, pixel, 1 << 30), -EINVAL);
    unlink(path);
    FILE *full = fopen("/dev/full", "wb");
    if (!full)
        skip();
    assert_int_equal(png_write(full, 1, 1, pixel), -ENOSPC);
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_strip),
        cmocka_unit_test(test_failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
