/* The trainer's schedule: resolution shift, times, frame masks, dropped captions, warm-up. */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>
#include "../../examples/common/training.h"
#include "../../examples/stdit/schedule.c"

enum { FRAMES = 16, DRAWS = 20000 };

static void test_shift(void **state)
{
    /* Published values; 854 pixels count as 856 there, hence the tolerance. */
    static const struct {
        double height, width;
        int64_t frames;
        double r;
    } row[] = {{144, 256, 1, .375},    {144, 256, 15, 1.452},   {240, 426, 60, 4.837},
               {360, 640, 30, 5.135},  {480, 854, 1, 1.250},    {480, 854, 120, 13.698},
               {720, 1280, 15, 7.262}, {720, 1280, 120, 20.540}};

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double r = stdit_shift(row[i].height, row[i].width, row[i].frames);
        assert_true(fabs(r / row[i].r - 1) < 2e-3);
    }
    assert_true(stdit_shift(512, 512, 3) == 1.0); /* shorter than 17 frames: as an image */
    assert_true(fabs(stdit_shift(480, 854, 1) - sqrt(480.0 * 856 / 262144)) < 1e-12);
    assert_true(fabs(stdit_shifted(3, 0.5) - 0.75) < 1e-12);
    assert_true(stdit_shifted(7, 1) == 1 && stdit_shifted(7, 0) == 0);
}

/* Half of the times lie below the shifted median; a larger batch begins with the same values. */
static void test_times(void **state)
{
    float *u = malloc(DRAWS * sizeof *u), few[8];
    int below = 0;

    (void)state;
    assert_non_null(u);
    stdit_draw_times(1, 5, 2.0, DRAWS, u);
    for (int i = 0; i < DRAWS; i++) {
        assert_true(u[i] > 0 && u[i] < 1);
        below += u[i] < 2.0 / 3.0;
    }
    assert_true(abs(below - DRAWS / 2) < DRAWS / 50);
    stdit_draw_times(1, 5, 2.0, 8, few);
    for (int i = 0; i < 8; i++)
        assert_true(few[i] == u[i]);
    free(u);
}

static void draw(const char *stage, int64_t frames, int32_t *mask)
{
    assert_int_equal(stdit_draw_masks(3, 0, stage, DRAWS, frames, mask), 0);
}

/* The share of each kind that can be told from its mask. */
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

/* Images and short clips: never masked, or never wholly clean. */
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

static void test_warmup(void **state)
{
    (void)state;
    assert_true(fabs(training_warmup(1e-4, 0, 1000) - 1e-4 / 1001) < 1e-15);
    assert_true(fabs(training_warmup(1e-4, 999, 1000) - 1e-4 * 1000 / 1001) < 1e-15);
    assert_true(training_warmup(1e-4, 1000, 1000) == 1e-4);
    assert_true(training_warmup(1e-4, 0, 0) == 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift), cmocka_unit_test(test_times),
        cmocka_unit_test(test_masks), cmocka_unit_test(test_short_masks),
        cmocka_unit_test(test_drops), cmocka_unit_test(test_warmup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
