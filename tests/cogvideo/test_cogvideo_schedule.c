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
#include "examples/video/cogvideo/schedule.h"
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
    struct cogvideo_schedule s;
    float t[4096], again[8];
    int low = 0, high = 0;
    (void)state;
    cogvideo_schedule(&s, 1);
    assert_int_equal(cogvideo_time(&s, 50, 0), 999);
    assert_int_equal(cogvideo_time(&s, 50, 49), 19);
    assert_int_equal(cogvideo_time(&s, 30, 1), 966);
    assert_int_equal(cogvideo_time(&s, 30, 2), 932);
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

/* Every number of steps has the timesteps of diffusers, or is refused where it has one more. */
static void test_all_times(void **state)
{
    struct cogvideo_schedule s;
    (void)state;
    cogvideo_schedule(&s, 1);
    for (size_t k = 0; k < sizeof schedule_times / sizeof *schedule_times; k++) {
        const long long *r = schedule_times[k];
        long long total = 0;
        s.spacing = (enum cogvideo_spacing)r[0];
        s.offset = r[1];
        if (r[3] != r[2] || r[2] == 1000) {
            assert_int_equal(cogvideo_check_steps(&s, r[2]), -1);
            continue;
        }
        assert_int_equal(cogvideo_check_steps(&s, r[2]), 0);
        for (int64_t i = 0; i < r[2]; i++)
            total += (i + 1) * cogvideo_time(&s, r[2], i);
        if (total != r[4])
            fail_msg("spacing %lld, %lld steps", r[0], r[2]);
    }
    s.spacing = COGVIDEO_TRAILING;
    assert_int_equal(cogvideo_check_steps(&s, 61), -1);
    assert_int_equal(cogvideo_check_steps(&s, 1000), 0);
    s.spacing = COGVIDEO_LEADING;
    s.offset = 1;
    assert_int_equal(cogvideo_check_steps(&s, 1000), -1);
}

static void test_guidance(void **state)
{
    struct cogvideo_schedule s;
    (void)state;
    cogvideo_schedule(&s, 1);
    expect(cogvideo_guidance(&s, COGVIDEO_CONSTANT, 6, 50, 7), 6, 0);
    expect(cogvideo_guidance(&s, COGVIDEO_COSINE, 6, 50, 0), 7, 1e-12);
    expect(cogvideo_guidance(&s, COGVIDEO_COSINE, 6, 50, 25), 1 + 3 * (1 - cos(M_PI / 32)), 1e-12);
    expect(cogvideo_guidance(&s, COGVIDEO_REFERENCE, 6, 50, 49),
           1 + 3 * (1 - cos(M_PI * pow(31. / 50, 5))), 1e-12);
    expect(cogvideo_guidance(&s, COGVIDEO_REFERENCE, 6, 50, 0),
           1 + 3 * (1 - cos(M_PI * pow(-949. / 50, 5))), 1e-6);
}

/* ---- scheduler_config.json ------------------------------------------------------------------- */

static void write_file(FILE *f, const char *text)
{
    const char *betas = strstr(text, "\"BETAS\"");

    fwrite(text, 1, betas ? (size_t)(betas - text) : strlen(text), f);
    for (int t = 0; betas && t < COGVIDEO_TIMES; t++)
        fprintf(f, "%s0.00%d", t ? "," : "[", 1 + t % 7);
    if (betas)
        fprintf(f, "]%s", betas + strlen("\"BETAS\""));
}

static int read_config(const char *text, double shift, struct cogvideo_schedule *s)
{
    char directory[] = "/tmp/cogvideo-schedule-XXXXXX", path[80];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/scheduler", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", directory);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    write_file(f, text);
    fclose(f);
    int rc = cogvideo_schedule_read(s, directory, shift);
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    rmdir(directory);
    return rc;
}

/* Files as diffusers reads them: missing keys have the defaults of the class.  diffusers keeps
 * betas that are not scaled_linear in fp32. */
static void test_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schedule_file_steps / sizeof *schedule_file_steps; i++) {
        const double *r = schedule_file_steps[i];
        const char *text = schedule_files[(int)r[0]];
        struct cogvideo_schedule s;
        assert_int_equal(read_config(text, -1, &s), 0);
        assert_int_equal(s.solver, strstr(text, "DPM") ? COGVIDEO_DPM : COGVIDEO_DDIM);
        struct cogvideo_step x = cogvideo_step(&s, s.solver, (int64_t)r[1], (int64_t)r[2]);
        double digits = strstr(text, "\"linear") || strstr(text, "cap_v2") || strstr(text, "BETAS")
                            ? 4e-4
                            : 1e-8;
        assert_int_equal(x.t, (int64_t)r[3]);
        expect(x.keep, r[4], digits);
        expect(x.clean, r[5], digits);
        expect(x.old, r[6], digits);
        expect(x.noise, r[7], digits);
    }
}

#define CLASS "{\"_class_name\": \"CogVideoXDDIMScheduler\""
#define FULL  CLASS ", \"prediction_type\": \"v_prediction\""

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "{",
        "{\"_class_name\": \"DDIMScheduler\"}",
        CLASS "}",
        CLASS ", \"prediction_type\": \"epsilon\"}",
        FULL ", \"snr_shift_scale\": 0}",
        FULL ", \"beta_schedule\": \"sigmoid\"}",
        FULL ", \"timestep_spacing\": \"log\"}",
        FULL ", \"trained_betas\": [0.1]}",
        FULL ", \"num_train_timesteps\": 500}",
        FULL ", \"steps_offset\": 0.5}",
        FULL ", \"thresholding\": true}",
        FULL ", \"use_karras_sigmas\": true}",
    };
    struct cogvideo_schedule s;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (read_config(bad[i], -1, &s) != -1)
            fail_msg("not refused: %s", bad[i]);
    assert_int_equal(read_config(FULL ", \"rescale_betas_zero_snr\": true}", 1, &s), 0);
    expect(s.signal[250], .6524570153, 5e-11); /* the shift of the options */
    assert_int_equal(cogvideo_schedule_read(&s, "/nothing/here", -1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),   cmocka_unit_test(test_reference),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_times),
        cmocka_unit_test(test_guidance), cmocka_unit_test(test_all_times),
        cmocka_unit_test(test_files),    cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
