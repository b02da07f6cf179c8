/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's schedule: resolution shift, times, frame masks, dropped captions, warm-up. */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>
#include "../../examples/video/stdit/schedule.c"
#include "../../examples/video/stdit/tables.c"

enum { FRAMES = 16, DRAWS = 20000 };

static double shift_of(double height, double width, int64_t frames)
{
    return stdit_shift(CKPT_F32, height, width, frames).r;
}

static void test_shift(void **state)
{
    /* Published values, 51 frames a clip of 15 latent ones. */
    static const struct {
        double height, width;
        int64_t frames;
        double r;
    } row[] = {{144, 256, 1, .375},    {144, 256, 15, 1.452},   {240, 426, 60, 4.837},
               {360, 640, 30, 5.135},  {480, 854, 1, 1.250},    {480, 854, 120, 13.698},
               {720, 1280, 15, 7.262}, {720, 1280, 120, 20.540}};

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t frames = stdit_video_frames(row[i].frames);
        double r = shift_of(row[i].height, row[i].width, frames);
        assert_true(fabs(r / row[i].r - 1) < 5e-4);
    }
    struct stdit_shift three = {3, 2}, seven = {7, 6};
    assert_true(fabs(stdit_shifted(three, 0.5) - 0.75) < 1e-12);
    assert_true(stdit_shifted(seven, 1) == 1 && stdit_shifted(seven, 0) == 0);
}

/* For 2 to 16 frames, for which Open-Sora's rule gives no latent frame, and for 2 to 4 latent
 * frames: a picture. */
static void test_short_clips(void **state)
{
    (void)state;
    for (int64_t frames = 1; frames <= 16; frames++)
        for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++)
            assert_true(stdit_shift((enum ckpt_dtype)dtype, 512, 512, frames).r == 1);
    for (int64_t latent = 1; latent <= 4; latent++)
        assert_true(shift_of(512, 512, stdit_video_frames(latent)) == 1);
    assert_true(shift_of(512, 512, 17) == sqrt(5));
    assert_true(shift_of(512, 512, stdit_video_frames(5)) == sqrt(5));
    assert_true(shift_of(512, 512, 33) == sqrt(5) && shift_of(512, 512, 34) == sqrt(10));
}

/* Rounded like Open-Sora with bf16, and not at all with fp32: make_rounding_reference.py. */
static void test_rounding(void **state)
{
    static const struct {
        double height, width;
        int64_t frames;
        double r, less_one, exact, exact_less_one;
    } rounded[] = {
        {144, 256, 1, 0.375, -0.625, 0.375, -0.625},
        {144, 256, 51, 1.453125, 0.453125, 1.4523687548277815, 0.4523687548277815},
        {240, 426, 204, 4.84375, 3.84375, 4.837445493878975, 3.837445493878975},
        {360, 640, 102, 5.125, 4.125, 5.134898976610932, 4.134898976610932},
        {480, 854, 1, 1.25, 0.25, 1.2504881859198032, 0.25048818591980315},
        {480, 854, 408, 13.6875, 12.6875, 13.698411746439804, 12.698411746439804},
        {720, 1280, 51, 7.25, 6.25, 7.261843774138907, 6.261843774138907},
        {1080, 1920, 1, 2.8125, 1.8125, 2.8125, 1.8125},
        {1023, 1537, 289, 21.875, 20.875, 22.579496454211114, 21.579496454211114},
        {301, 517, 339, 7.6875, 6.6875, 7.509661491475679, 6.509661491475679},
        {90, 77, 1, 0.1630859375, -0.8359375, 0.16259105772083915, -0.8374089422791609},
        {111, 2047, 901, 15.0, 14.0, 15.155608802681984, 14.155608802681984},
        {512, 512, 17, 2.234375, 1.234375, 2.23606797749979, 1.2360679774997898},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        struct stdit_shift s =
            stdit_shift(CKPT_BF16, rounded[i].height, rounded[i].width, rounded[i].frames);
        struct stdit_shift exact =
            stdit_shift(CKPT_F32, rounded[i].height, rounded[i].width, rounded[i].frames);
        assert_true(s.r == rounded[i].r && s.r_less_one == rounded[i].less_one);
        assert_true(fabs(exact.r - rounded[i].exact) < 1e-12);
        assert_true(fabs(exact.r_less_one - rounded[i].exact_less_one) < 1e-12);
        assert_true(stdit_shifted(s, 0.25) == .25 * s.r / (1 + .25 * rounded[i].less_one));
    }
}

static void test_position_scale(void **state)
{
    static const struct {
        double height, width, rounded, exact;
    } scales[] = {
        {144, 256, 0.375, 0.375},
        {240, 426, 0.6245115278659794, 0.6245115278659794},
        {360, 640, 0.9375, 0.9375},
        {480, 854, 1.2519516015006331, 1.2504881859198032},
        {720, 1280, 1.875, 1.875},
        {1080, 1920, 2.8125, 2.8125},
        {1023, 1537, 2.449489742783178, 2.4490902515633706},
        {301, 517, 0.7684498270666407, 0.7704750121741558},
        {90, 77, 0.16259105772083915, 0.16259105772083915},
        {111, 2047, 0.9312290266094587, 0.9310016480133189},
        {512, 512, 1.0, 1.0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        struct video_geometry g = {.pixel_height = scales[i].height,
                                   .pixel_width = scales[i].width};
        struct stdit_config bf16 = {.dtype = CKPT_BF16}, fp32 = {.dtype = CKPT_F32};
        assert_true(fabs(position_scale(&bf16, &g) - scales[i].rounded) < 1e-15);
        assert_true(fabs(position_scale(&fp32, &g) - scales[i].exact) < 1e-15);
    }
}

/* Half of the times lie below the shifted median; a larger batch begins with the same values. */
static void test_times(void **state)
{
    float *u = malloc(DRAWS * sizeof *u), few[8];
    int below = 0;

    (void)state;
    assert_non_null(u);
    stdit_draw_times(1, 5, (struct stdit_shift){2, 1}, DRAWS, u);
    for (int i = 0; i < DRAWS; i++) {
        assert_true(u[i] > 0 && u[i] < 1);
        below += u[i] < 2.0 / 3.0;
    }
    assert_true(abs(below - DRAWS / 2) < DRAWS / 50);
    stdit_draw_times(1, 5, (struct stdit_shift){2, 1}, 8, few);
    for (int i = 0; i < 8; i++)
        assert_true(few[i] == u[i]);
    free(u);
}

static void draw(const char *stage, int64_t frames, int32_t *mask)
{
    assert_int_equal(stdit_draw_masks(3, 0, stage, DRAWS, frames, mask), 0);
}

/* The share of each kind that its mask identifies. */
static void test_masks(void **state)
{
    int32_t *mask = malloc((size_t)DRAWS * FRAMES * sizeof *mask);
    int whole = 0, head = 0;

    (void)state;
    assert_non_null(mask);
    draw("3", FRAMES, mask);
    for (int i = 0; i < DRAWS; i++) {
        const int32_t *m = mask + i * FRAMES;
        int noised = 0;
        for (int f = 0; f < FRAMES; f++)
            noised += m[f];
        assert_true(noised > 0);
        whole += noised == FRAMES;
        head += noised == FRAMES - 1 && !m[0];
    }
    assert_true(fabs(whole / (double)DRAWS - .75) < .015);
    assert_true(fabs(head / (double)DRAWS - .22) < .015);
    free(mask);
}

/* Images and short clips: never masked, or never completely clean. */
static void test_short_masks(void **state)
{
    int32_t *mask = malloc((size_t)DRAWS * 3 * sizeof *mask);

    (void)state;
    assert_non_null(mask);
    draw("adapt", 1, mask);
    for (int i = 0; i < DRAWS; i++)
        assert_int_equal(mask[i], 1);
    for (int64_t frames = 2; frames <= 3; frames++) {
        draw("adapt", frames, mask);
        for (int i = 0; i < DRAWS; i++) {
            int noised = 0;
            for (int64_t f = 0; f < frames; f++)
                noised += mask[i * frames + f];
            assert_true(noised > 0);
        }
    }
    free(mask);
}

static void test_drops(void **state)
{
    int32_t *drop = malloc(DRAWS * sizeof *drop);
    int n = 0;

    (void)state;
    assert_non_null(drop);
    stdit_draw_drops(9, 2, DRAWS, drop);
    for (int i = 0; i < DRAWS; i++)
        n += drop[i];
    assert_true(fabs(n / (double)DRAWS - .1) < .01);
    free(drop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift),       cmocka_unit_test(test_short_clips),
        cmocka_unit_test(test_rounding),    cmocka_unit_test(test_position_scale),
        cmocka_unit_test(test_times),       cmocka_unit_test(test_masks),
        cmocka_unit_test(test_short_masks), cmocka_unit_test(test_drops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
