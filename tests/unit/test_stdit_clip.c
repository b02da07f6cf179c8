/* SPDX-License-Identifier: Apache-2.0 */
/* The raw clip format of the trainer: frames, stride, resizing, and files that are not right. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/common/memory.c"
#include "../../examples/common/raw.c"

static char said[512];

/* The sentence, kept instead of printed. */
int say_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return -1;
}

static char path[64];

static int make_file(void **state)
{
    (void)state;
    strcpy(path, "/tmp/test_stdit_clip_XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* frames frames of 4 x 2 whose red is 10 f + column, green 100 row, blue 7. */
static void write_clip(const char *header, int frames, int missing)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    fputs(header, f);
    for (int i = 0; i < frames * 8 - missing; i++) {
        uint8_t pixel[] = {(uint8_t)(10 * (i / 8) + i % 4), (uint8_t)(100 * (i / 4 % 2)), 7};
        fwrite(pixel, 1, 3, f);
    }
    fclose(f);
}

static void test_same_size(void **state)
{
    struct clip c = {.width = 4, .height = 2, .frames = 2, .stride = 2};

    (void)state;
    write_clip("RGBCLIP 4 2 4 12.5\n", 4, 0);
    assert_true(clip_is_raw(path));
    assert_int_equal(clip_read_raw(&c, path), 0);
    assert_true(c.fps == 12.5);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(c.rgb[i * 3], 20 * (i / 8) + i % 4);
        assert_int_equal(c.rgb[i * 3 + 1], 100 * (i / 4 % 2));
        assert_int_equal(c.rgb[i * 3 + 2], 7);
    }
    free(c.rgb);
}

/* Halving averages pairs; going up by a part weighs the parts of a pixel. */
static void test_resize(void **state)
{
    struct clip half = {.width = 2, .height = 1, .frames = 1, .stride = 1};
    struct clip third = {.width = 3, .height = 2, .frames = 1, .stride = 1};

    (void)state;
    write_clip("RGBCLIP 4 2 1 8\n", 1, 0);
    assert_int_equal(clip_read_raw(&half, path), 0);
    assert_int_equal(half.rgb[1], 50);
    assert_true(half.rgb[0] <= 1 && half.rgb[3] >= 2 && half.rgb[3] <= 3);
    assert_int_equal(clip_read_raw(&third, path), 0);
    assert_int_equal(third.rgb[3], 2); /* columns 1.33 .. 2.67 of 0 1 2 3: 1.5 */
    free(half.rgb);
    free(third.rgb);
}

static void refuse(const char *header, int frames, int missing, const char *why)
{
    struct clip c = {.width = 4, .height = 2, .frames = 4, .stride = 1};

    said[0] = 0;
    write_clip(header, frames, missing);
    assert_int_equal(clip_read_raw(&c, path), -1);
    assert_non_null(strstr(said, why));
    free(c.rgb);
}

static void test_bad_files(void **state)
{
    struct clip c = {.width = 4, .height = 2, .frames = 1, .stride = 1};

    (void)state;
    refuse("RGBCLIP 4 2 4 8\n", 4, 1, "ends before the 4 frames");
    refuse("RGBCLIP 4 2 3 8\n", 3, 0, "has 3 frames");
    refuse("RGBCLIP 4 2 4\n", 4, 0, "first line");
    refuse("RGBCLIP 0 2 4 8\n", 4, 0, "first line");
    refuse("RGBCLIP 4 -2 4 8\n", 4, 0, "first line");
    refuse("RGBCLIP 4294967300 2 4 8\n", 4, 0, "first line");
    refuse("RGBCLIP 4 2 99999999999999999999 8\n", 4, 0, "first line");
    refuse("RGBCLIP 4 2 4 nan\n", 4, 0, "first line");
    refuse("RGBCLIP 4 2 4 8x\n", 4, 0, "first line");
    refuse("RGBCLIP 4 2x4 4 8\n", 4, 0, "first line");
    refuse("RGBCLIP 99999 99999 4 8\n", 4, 0, "first line");
    refuse("", 0, 0, "first line");
    assert_int_equal(clip_read_raw(&c, "/nonexistent/clip.rgb"), -1);
    assert_non_null(strstr(said, "cannot be read"));
    assert_int_equal(clip_is_raw("/nonexistent/clip.rgb"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_size),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file) ? 1 : 0;
}
