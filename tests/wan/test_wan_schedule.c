/* SPDX-License-Identifier: Apache-2.0 */
/* Noise levels and sampling steps of Wan against diffusers' schedulers
 * (make_schedule_reference.py), and scheduler_config.json. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "examples/video/wan/schedule.h"
#include "examples/common/say.h"
#include "schedule_reference.h"

const char say_program[] = "test_wan_schedule";

static void expect(double is, double wanted, double tolerance)
{
    if (!(fabs(is - wanted) <= tolerance * (1 + fabs(wanted))))
        fail_msg("%.12g must be %.12g", is, wanted);
}

/* One value of a sampler (examples/video/sample.c). */
static double run(const struct wan_schedule *s, enum wan_solver solver, int64_t n, double x,
                  double *times)
{
    double before = 0, old = 0, older = 0;

    *times = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct video_step k = wan_step(s, solver, n, i);
        const struct video_correction *c = &k.correction;
        double v = (sin(2 * x + (double)i) + x) / 2;
        double x0 = k.level.signal * x - k.level.noise * v;
        if (k.corrects)
            x = c->keep * before + c->clean * x0 + c->old * old + c->older * older;
        before = x;
        x = k.keep * x + k.clean * x0 + k.old * old;
        older = old;
        old = x0;
        *times += (double)(i + 1) * k.t;
    }
    return x;
}

static void test_samples(void **state)
{
    static const double start[] = {-1.5, -0.25, 0.5, 1.75};

    (void)state;
    for (size_t i = 0; i < sizeof wan_samples / sizeof *wan_samples; i++) {
        const double *r = wan_samples[i];
        const struct wan_schedule s = {.shift = r[2]};
        for (int k = 0; k < 4; k++) {
            double times, x = run(&s, (enum wan_solver)r[0], (int64_t)r[1], start[k], &times);
            expect(times, r[3], 1e-6);
            expect(x, r[4 + k], 1e-6);
        }
    }
}

static void test_times(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wan_times / sizeof *wan_times; i++) {
        const struct wan_schedule s = {.shift = (double)wan_times[i][0]};
        double total = 0;
        for (int64_t k = 0; k < wan_times[i][1]; k++)
            total += (double)(k + 1) * wan_step(&s, WAN_UNIPC, wan_times[i][1], k).t;
        assert_true(total == (double)wan_times[i][2]);
    }
}

/* Levels that others print, and that every coefficient is finite. */
static void test_levels(void **state)
{
    const struct wan_schedule s = {.shift = 5};

    (void)state;
    expect(wan_level(&s, WAN_UNIPC, 50, 0), .999999, 1e-9);
    expect(wan_level(&s, WAN_UNIPC, 50, 1), .995939, 1e-6);
    expect(wan_level(&s, WAN_UNIPC, 50, 49), .096778, 1e-6);
    assert_true(wan_level(&s, WAN_UNIPC, 50, 50) == 0);
    for (int solver = WAN_UNIPC; solver <= WAN_EULER; solver++)
        for (int64_t n = 1; n <= 1000; n += 37)
            for (int64_t i = 0; i < n; i++) {
                struct video_step k = wan_step(&s, (enum wan_solver)solver, n, i);
                assert_true(k.t >= 0 && k.t <= 1000 && k.corrects == (i && solver != WAN_EULER));
                assert_true(isfinite(k.keep + k.clean + k.old + k.correction.keep +
                                     k.correction.clean + k.correction.old + k.correction.older));
                if (i + 1 == n)
                    assert_true(k.keep == 0 && k.clean == 1 && k.old == 0);
            }
}

/* ---- scheduler_config.json ------------------------------------------------------------------- */

static int read_config(const char *text, double shift, struct wan_schedule *s)
{
    char directory[] = "/tmp/wan-schedule-XXXXXX", path[80];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/scheduler", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", directory);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    int rc = wan_schedule_read(s, directory, shift);
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    rmdir(directory);
    return rc;
}

#define CLASS "{\"_class_name\": \"UniPCMultistepScheduler\""
#define FLOW  CLASS ", \"use_flow_sigmas\": true, \"prediction_type\": \"flow_prediction\""
#define EULER "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"shift\": 3.0"

static void test_files(void **state)
{
    static const char *const bad[] = {
        "{",
        "{\"_class_name\": \"DDIMScheduler\"}",
        CLASS "}",
        CLASS ", \"use_flow_sigmas\": true}",
        CLASS ", \"prediction_type\": \"flow_prediction\"}",
        FLOW ", \"flow_shift\": 0}",
        FLOW ", \"solver_order\": 3}",
        FLOW ", \"solver_type\": \"bh1\"}",
        FLOW ", \"disable_corrector\": [0]}",
        FLOW ", \"use_karras_sigmas\": true}",
        FLOW ", \"unknown\": 1}",
        EULER ", \"stochastic_sampling\": true}",
        EULER ", \"use_dynamic_shifting\": true}",
        EULER ", \"shift_terminal\": 0.02}",
    };
    struct wan_schedule s;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (read_config(bad[i], -1, &s) != -1)
            fail_msg("not refused: %s", bad[i]);
    assert_int_equal(read_config(FLOW "}", -1, &s), 0);
    assert_true(s.shift == 1 && s.solver == WAN_UNIPC);
    assert_int_equal(read_config(FLOW ", \"flow_shift\": 5.0, \"disable_corrector\": [], "
                                      "\"beta_end\": 0.02, \"shift_terminal\": null}",
                                 -1, &s),
                     0);
    assert_true(s.shift == 5);
    assert_int_equal(read_config(EULER "}", -1, &s), 0);
    assert_true(s.shift == 3 && s.solver == WAN_EULER);
    assert_int_equal(read_config(EULER "}", 12, &s), 0);
    assert_true(s.shift == 12);
    assert_int_equal(wan_schedule_read(&s, "/nothing/here", -1), 1);
}

static void test_names(void **state)
{
    enum wan_solver solver;

    (void)state;
    assert_int_equal(wan_solver("euler", &solver), 0);
    assert_int_equal(solver, WAN_EULER);
    assert_int_equal(wan_solver("unipc-original", &solver), 0);
    assert_int_equal(wan_solver("ddim", &solver), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples), cmocka_unit_test(test_times), cmocka_unit_test(test_levels),
        cmocka_unit_test(test_files),   cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
