/* SPDX-License-Identifier: Apache-2.0 */
/* Clips of the raw format: selection of frames, sizes, and invalid files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/common/clip.c"
#include "../../examples/common/memory.c"
#include "../../examples/common/raw.c"
#include "../../examples/common/resize.c"
#include "../../examples/common/shortage.c"
#include "../../examples/common/video.c"
#include "resize_reference.h"
#include "said.h"

int video_open_decoder(struct video *v)
{
    return say_fail("%s: not our format: the first line", v->path);
}

static char path[64];
static const struct video_file file = {.path = path};

static int make_file(void **state)
{
    (void)state;
    strcpy(path, "/tmp/test_video_raw_XXXXXX");
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
    const struct clip c = {.size = {4, 2, true}, .frames = 2, .skip = 1, .stride = 2};
    double fps;

    (void)state;
    write_clip("RGBCLIP 4 2 4 12.5\n", 4, 0);
    assert_int_equal(video_is_raw(path), 1);
    uint8_t *rgb = clip_read(&c, &file, &fps);
    assert_non_null(rgb);
    assert_true(fps == 12.5);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(rgb[i * 3], 20 * (i / 8) + 10 + i % 4);
        assert_int_equal(rgb[i * 3 + 1], 100 * (i / 4 % 2));
        assert_int_equal(rgb[i * 3 + 2], 7);
    }
    free(rgb);
}

/* numpy.linspace(start, end - 1, frames, dtype=int), for complete and truncated windows. */
static void test_places(void **state)
{
    static const int64_t whole[] = {2, 5, 8, 11, 15, 18, 21, 25}, cut[] = {0, 3, 6, 9, 12, 15},
                         next[] = {7, 8, 9};
    const struct clip a = {.frames = 8, .skip = 2, .stride = 3}, b = {.frames = 6, .stride = 3},
                      c = {.frames = 3, .skip = 7, .stride = 1}, d = {.frames = 1, .stride = 9};

    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(clip_place(&a, 90, i), whole[i]);
    for (int i = 0; i < 6; i++)
        assert_int_equal(clip_place(&b, 16, i), cut[i]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(clip_place(&c, 16, i), next[i]);
    assert_int_equal(clip_place(&d, 3, 0), 0);
}

/* Unchanged, rotated and upside down in memory. */
static struct pixels turned_source(uint8_t *bytes, int turned)
{
    ptrdiff_t w = SOURCE_WIDTH, h = SOURCE_HEIGHT;
    struct pixels p[] = {{bytes, 3, 3 * w, w, h},
                         {bytes + (w - 1) * h * 3, -3 * h, 3, w, h},
                         {bytes + (w * h - 1) * 3, -3, -3 * w, w, h}};

    for (uint32_t i = 0; i < (uint32_t)(w * h * 3); i++) {
        ptrdiff_t pixel = i / 3;
        uint8_t *at = (uint8_t *)(uintptr_t)p[turned].at + pixel % w * p[turned].right +
                      pixel / w * p[turned].down;
        at[i % 3] = (uint8_t)(i * 2654435761u >> 24);
    }
    return p[turned];
}

static void test_resize(void **state)
{
    uint8_t bytes[SOURCE_WIDTH * SOURCE_HEIGHT * 3], to[40 * 40 * 3];
    struct resize r = {.image = false};

    (void)state;
    for (size_t i = 0; i < 3 * sizeof resized / sizeof *resized; i++) {
        struct pixels p = turned_source(bytes, (int)i % 3);
        const struct picture_size *size = &resized[i / 3].size;
        size_t n = (size_t)(size->width * size->height * 3);
        assert_int_equal(resize_run(&r, &p, size, false, to), 0);
        assert_memory_equal(to, resized[i / 3].frame, n);
        assert_int_equal(resize_run(&r, &p, size, true, to), 0);
        assert_memory_equal(to, resized[i / 3].image, n);
    }
    resize_free(&r);
}

static float between(float a, float b, float share)
{
    return a + (b - a) * share;
}

/* One number of the result, computed separately. */
static uint8_t bilinear_at(const struct resize *r, const struct pixels *p, int64_t x, int64_t y,
                           int c)
{
    const uint8_t *top = p->at + r->down.first[y] * p->down + r->across.first[x] * p->right + c;
    const uint8_t *bottom = top + r->down.n[y] * p->down;
    ptrdiff_t next = r->across.n[x] * p->right;
    float share = r->across.share[3 * x];

    return (uint8_t)(between(between(top[0], top[next], share),
                             between(bottom[0], bottom[next], share), r->down.share[3 * y]) +
                     0.5f);
}

/* Rows reused from one result row to the next, and pixels read in pairs: any sizes, in memory that
 * ends with the picture. */
static void test_sizes(void **state)
{
    static const int64_t side[] = {1, 2, 3, 4, 5, 7, 16, 33};
    struct resize r = {.image = false};

    (void)state;
    for (int i = 0; i < 8 * 8 * 8; i++) {
        int64_t w = side[i % 8], h = side[i / 8 % 8], width = side[i / 64], height = 1 + i % 21;
        uint8_t *bytes = malloc((size_t)(w * h * 3)), *to = malloc((size_t)(width * height * 3));
        struct pixels p = {bytes, 3, w * 3, w, h};
        for (uint32_t k = 0; k < w * h * 3; k++)
            bytes[k] = (uint8_t)((k + (uint32_t)i) * 2654435761u >> 24);
        if (i % 3 == 1) /* on its head */
            p = (struct pixels){bytes + (w * h - 1) * 3, -3, -3 * w, w, h};
        const struct picture_size size = {width, height, i % 2};
        assert_int_equal(resize_run(&r, &p, &size, false, to), 0);
        for (int64_t k = 0; k < width * height * 3; k++)
            assert_int_equal(to[k], bilinear_at(&r, &p, k / 3 % width, k / 3 / width, k % 3));
        free(bytes);
        free(to);
    }
    resize_free(&r);
}

static void refuse(const char *header, int frames, int missing, const char *why)
{
    const struct clip c = {.size = {4, 2, true}, .frames = 4, .stride = 1};
    double fps;

    said[0] = 0;
    write_clip(header, frames, missing);
    assert_null(clip_read(&c, &file, &fps));
    assert_non_null(strstr(said, why));
}

static void test_bad_files(void **state)
{
    const struct clip c = {.size = {4, 2, true}, .frames = 1, .stride = 1};
    double fps;

    (void)state;
    refuse("RGBCLIP 4 2 4 8\n", 4, 1, "ends before the 4 announced frames");
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
    assert_null(clip_read(&c, &(struct video_file){.path = "/nonexistent/clip.rgb"}, &fps));
    assert_non_null(strstr(said, "cannot be read"));
    assert_int_equal(video_is_raw("/nonexistent/clip.rgb"), -1);
}

/* Frames by number, in any order; none after the last. */
static void test_frames(void **state)
{
    const struct picture_size size = {4, 2, true};
    static const int order[] = {3, 0, 2, 2, 1};
    uint8_t rgb[24];
    struct video v;

    (void)state;
    write_clip("RGBCLIP 4 2 5 8\n", 4, 0);
    assert_int_equal(video_open(&v, path), 0);
    assert_int_equal(v.announced, 5);
    assert_int_equal(video_frames(&v), 4);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(video_read(&v, order[i], &size, rgb), 1);
        assert_int_equal(rgb[0], 10 * order[i]);
    }
    assert_int_equal(video_read(&v, 4, &size, rgb), 0);
    video_close(&v);
    assert_int_equal(video_open(&v, path), 0);
    v.most_pixels = 7;
    assert_int_equal(video_read(&v, 0, &size, rgb), -1);
    assert_non_null(strstr(said, "larger than announced"));
    video_close(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_size), cmocka_unit_test(test_places),
        cmocka_unit_test(test_resize),    cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_bad_files), cmocka_unit_test(test_frames),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file) ? 1 : 0;
}
