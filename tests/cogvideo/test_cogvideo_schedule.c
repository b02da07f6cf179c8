/* SPDX-License-Identifier: Apache-2.0 */
/* Noise levels and sampling steps of CogVideoX: published values, diffusers' formulas in float64
 * (make_schedule_reference.py), limits, scheduler_config.json. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "examples/cogvideo/schedule.h"
#include "examples/common/say.h"
#include "schedule_reference.h"

const char say_program[] = "test_cogvideo_schedule";

static void expect(double is, double wanted, double tolerance)
{
    if (!(fabs(is - wanted) <= tolerance))
        fail_msg("%.12g must be %.12g", is, wanted);
}

static void test_levels(void **state)
{
    struct cogvideo_schedule s;
    (void)state;
    cogvideo_schedule(&s, 3);
    expect(s.signal[0], (1 - 0.00085) / (3 - 2 * (1 - 0.00085)), 1e-12);
    expect(s.signal[10], .9707857689, 5e-11);
    expect(s.signal[250], .3890537092, 5e-11);
    expect(s.signal[750], .0108389019, 5e-11);
    assert_true(s.signal[999] == 0);
    cogvideo_schedule(&s, 1);
    expect(s.signal[0], 1 - 0.00085, 1e-12);
    expect(s.signal[10], .9897937330, 5e-11);
    expect(s.signal[250], .6524570153, 5e-11);
    expect(s.signal[750], .0327991181, 5e-11);
    assert_true(s.signal[999] == 0);
    for (int t = 1; t < COGVIDEO_TIMES; t++)
        assert_true(s.signal[t] < s.signal[t - 1]);
}

static void test_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schedule_reference / sizeof *schedule_reference; i++) {
        const double *r = schedule_reference[i];
        struct cogvideo_schedule s;
        cogvideo_schedule(&s, r[0]);
        struct cogvideo_step x =
            cogvideo_step(&s, (enum cogvideo_solver)r[1], (int64_t)r[2], (int64_t)r[3]);
        assert_int_equal(x.t, (int64_t)r[4]);
        expect(x.keep, r[5], 1e-9);
        expect(x.clean, r[6], 1e-9);
        expect(x.old, r[7], 1e-9);
        expect(x.noise, r[8], 1e-9);
    }
}

/* Published factors of a step, and what the formulas become where they divide by 0. */
static void test_limits(void **state)
{
    struct cogvideo_schedule s;
    (void)state;
    cogvideo_schedule(&s, 1);
    struct cogvideo_step x = cogvideo_step(&s, COGVIDEO_DPM, 50, 10);
    expect(x.keep, .8728218044, 5e-11);
    expect(x.clean, .0356601268 * 1.4625104241, 1e-10);
    expect(x.old, -.0356601268 * .4625104241, 1e-10);
    expect(x.noise, .4781065837, 5e-11);
    x = cogvideo_step(&s, COGVIDEO_DPM, 50, 0); /* nothing of x is kept: it is noise alone */
    assert_true(x.a == 0 && x.keep == 0 && x.old == 0);
    expect(x.clean * x.clean + x.noise * x.noise, 1, 1e-12);
    expect(x.clean, sqrt(s.signal[979]), 1e-12);
    x = cogvideo_step(&s, COGVIDEO_DPM, 50, 1); /* of order 2, and no longer takes the old one */
    assert_true(x.old == 0 && isfinite(x.keep) && isfinite(x.noise) && x.clean > 0);
    for (int solver = COGVIDEO_DDIM; solver <= COGVIDEO_DPM; solver++) {
        x = cogvideo_step(&s, (enum cogvideo_solver)solver, 50, 49);
        assert_true(x.keep == 0 && x.clean == 1 && x.old == 0 && x.noise == 0);
        for (int64_t n = 1; n <= 1000; n += 37)
            for (int64_t i = 0; i < n; i++) {
                x = cogvideo_step(&s, (enum cogvideo_solver)solver, n, i);
                assert_true(x.t >= 0 && x.t < 1000);
                assert_true(isfinite(x.keep) && isfinite(x.clean) && isfinite(x.old) &&
                            isfinite(x.noise));
            }
    }
}

static void test_times(void **state)
{
    float t[4096], again[8];
    int low = 0, high = 0;
    (void)state;
    assert_int_equal(cogvideo_time(50, 0), 999);
    assert_int_equal(cogvideo_time(50, 49), 19);
    assert_int_equal(cogvideo_time(30, 1), 966);
    assert_int_equal(cogvideo_time(30, 2), 932);
    cogvideo_draw_times(3, 5, 4096, t);
    cogvideo_draw_times(3, 5, 8, again);
    assert_memory_equal(t, again, sizeof again);
    for (int i = 0; i < 4096; i++) {
        assert_true(t[i] >= 0 && t[i] <= 999 && t[i] == floorf(t[i]));
        low += t[i] < 100;
        high += t[i] >= 900;
    }
    assert_in_range(low, 330, 490);
    assert_in_range(high, 330, 490);
}

static void test_guidance(void **state)
{
    (void)state;
    expect(cogvideo_guidance(COGVIDEO_CONSTANT, 6, 50, 7), 6, 0);
    expect(cogvideo_guidance(COGVIDEO_COSINE, 6, 50, 0), 7, 1e-12);
    expect(cogvideo_guidance(COGVIDEO_COSINE, 6, 50, 25), 1 + 3 * (1 - cos(M_PI / 32)), 1e-12);
    expect(cogvideo_guidance(COGVIDEO_REFERENCE, 6, 50, 49),
           1 + 3 * (1 - cos(M_PI * pow(31. / 50, 5))), 1e-12);
    expect(cogvideo_guidance(COGVIDEO_REFERENCE, 6, 50, 0),
           1 + 3 * (1 - cos(M_PI * pow(-949. / 50, 5))), 1e-6);
}

/* ---- scheduler_config.json ------------------------------------------------------------------- */

static int read_config(const char *text, double *shift)
{
    char directory[] = "/tmp/cogvideo-schedule-XXXXXX", path[80];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/scheduler", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", directory);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    int rc = cogvideo_schedule_read(directory, shift);
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    rmdir(directory);
    return rc;
}

#define CLASS "{\"_class_name\": \"CogVideoXDDIMScheduler\""

static void test_file(void **state)
{
    double shift = 0;
    (void)state;
    assert_int_equal(read_config(CLASS ", \"snr_shift_scale\": 3.0}", &shift), 0);
    expect(shift, 3, 0);
    assert_int_equal(read_config(CLASS ", \"snr_shift_scale\": 1, \"beta_start\": 0.00085, "
                                       "\"rescale_betas_zero_snr\": true}",
                                 &shift),
                     0);
    expect(shift, 1, 0);
    assert_int_equal(read_config(CLASS "}", &shift), -1);
    assert_int_equal(read_config(CLASS ", \"snr_shift_scale\": 0}", &shift), -1);
    assert_int_equal(read_config("{\"_class_name\": \"DDIMScheduler\"}", &shift), -1);
    assert_int_equal(read_config("{", &shift), -1);
    assert_int_equal(read_config(CLASS ", \"prediction_type\": \"epsilon\"}", &shift), -1);
    assert_int_equal(read_config(CLASS ", \"beta_end\": 0.02}", &shift), -1);
    assert_int_equal(read_config(CLASS ", \"rescale_betas_zero_snr\": false}", &shift), -1);
    assert_int_equal(cogvideo_schedule_read("/nothing/here", &shift), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),   cmocka_unit_test(test_reference),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_times),
        cmocka_unit_test(test_guidance), cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
