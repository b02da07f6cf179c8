/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder of a picture against transformers in float64 (make_sight_reference.py): the bytes of
 * the processor, the features in fp32 and bf16, the same bits under the smallest budget, and
 * settings that are refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "examples/common/say.h"
#include "examples/video/wan/sight.h"

const char say_program[] = "test_wan_sight";

enum { PATH = 4096, SIDE = 32, ROWS = 257, WIDTH = 12, FEATURES = ROWS * WIDTH };

static const char *reference(char path[PATH], const char *file)
{
    const char *root = getenv("srcdir");

    snprintf(path, PATH, "%s/tests/wan/clip%s", root ? root : ".", file);
    return path;
}

static void read_expected(const char *name, float *to, int64_t n)
{
    char path[PATH];
    ckpt_file *f;

    assert_int_equal(ckpt_file_open(&f, reference(path, "/features.safetensors")), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, name), to, n), 0);
    ckpt_file_close(f);
}

static void open_encoder(struct sight *s, enum ckpt_dtype dtype, int64_t vram)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    char path[PATH];

    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    o.vram = vram;
    assert_int_equal(sight_open(s, &o, reference(path, ""), dtype), 0);
    assert_int_equal(sight_rows(&s->config), ROWS);
    assert_int_equal(sight_check(s, path, ROWS, WIDTH), 0);
    assert_int_equal(sight_check(s, path, ROWS, 1280), -1);
}

static void encode(struct sight *s, float *features)
{
    float expected[SIDE * SIDE * 3];
    uint8_t rgb[SIDE * SIDE * 3];

    read_expected("pixels", expected, SIDE * SIDE * 3);
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        rgb[i] = (uint8_t)expected[i];
    assert_int_equal(sight_encode(s, rgb, features), 0);
}

static double distance(const float *x, const float *y)
{
    double error = 0, norm = 0;

    for (int i = 0; i < FEATURES; i++) {
        error += pow((double)x[i] - (double)y[i], 2);
        norm += pow((double)y[i], 2);
    }
    return sqrt(error / norm);
}

static void test_features(void **state)
{
    static float expected[FEATURES], unlimited[FEATURES], tight[FEATURES];
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct sight s;
    (void)state;

    read_expected("features", expected, FEATURES);
    open_encoder(&s, CKPT_F32, 0);
    encode(&s, unlimited);
    assert_int_equal(ckpt_program_info(s.program, &info), 0);
    sight_close(&s);
    assert_true(distance(unlimited, expected) <= 1e-5);
    open_encoder(&s, CKPT_F32, info.min_budget);
    encode(&s, tight);
    sight_close(&s);
    assert_memory_equal(unlimited, tight, sizeof tight);
    open_encoder(&s, CKPT_BF16, 0);
    encode(&s, tight);
    sight_close(&s);
    assert_true(distance(tight, expected) <= 2e-2);
}

/* The processor's own sums are of 16-bit weights, so a byte may differ by one. */
static void test_picture(void **state)
{
    float expected[SIDE * SIDE * 3];
    uint8_t rgb[SIDE * SIDE * 3];
    char path[PATH];
    struct sight s;
    struct video v;
    int other = 0;
    (void)state;

    open_encoder(&s, CKPT_F32, 0);
    if (video_open(&v, reference(path, "/picture.png"))) { /* built without FFmpeg */
        video_close(&v);
        sight_close(&s);
        skip();
    }
    assert_int_equal(sight_read(&s, &v, rgb), 0);
    video_close(&v);
    sight_close(&s);
    read_expected("pixels", expected, SIDE * SIDE * 3);
    for (int i = 0; i < SIDE * SIDE * 3; i++) {
        assert_true(fabs((double)rgb[i] - (double)expected[i]) <= 1);
        other += rgb[i] != (uint8_t)expected[i];
    }
    assert_true(other < SIDE * SIDE * 3 / 20);
}

/* ---- settings ------------------------------------------------------------------------------ */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

#define CONFIG                                                                                     \
    "{\"model_type\": \"clip_vision_model\", \"hidden_size\": 8, \"num_attention_heads\": 2, "     \
    "\"intermediate_size\": 8, \"image_size\": 4, \"patch_size\": 2"

static void test_settings(void **state)
{
    static const char *const rows[][2] = {
        {CONFIG ", \"num_hidden_layers\": 2, \"hidden_act\": \"gelu\"}", "{}"},
        {CONFIG ", \"num_hidden_layers\": 2, \"hidden_act\": \"quick_gelu\"}", "{}"},
        {CONFIG ", \"num_hidden_layers\": 2}", "{}"},
        {CONFIG ", \"num_hidden_layers\": 1, \"hidden_act\": \"gelu\"}", "{}"},
        {CONFIG ", \"num_hidden_layers\": 2, \"hidden_act\": \"gelu\", \"window\": 2}", "{}"},
        {CONFIG ", \"num_hidden_layers\": 2, \"hidden_act\": \"gelu\"}", "{\"resample\": 2}"},
        {CONFIG ", \"num_hidden_layers\": 2, \"hidden_act\": \"gelu\"}",
         "{\"size\": {\"shortest_edge\": 8}}"},
        {CONFIG ", \"num_hidden_layers\": 2, \"hidden_act\": \"gelu\"}",
         "{\"size\": {\"height\": 4, \"width\": 4}}"},
        {CONFIG ", \"num_hidden_layers\": 2, \"hidden_act\": \"gelu\"}",
         "{\"image_std\": [1, 0, 1]}"},
        {CONFIG ", \"num_hidden_layers\": 2, \"hidden_act\": \"gelu\"}", "{\"rescale_factor\": 1}"},
    };
    char dir[] = "test_sight_XXXXXX", config[PATH], processor[PATH];
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    (void)state;

    assert_non_null(mkdtemp(dir));
    snprintf(config, sizeof config, "%s/config.json", dir);
    snprintf(processor, sizeof processor, "%s/preprocessor_config.json", dir);
    o.device = "cpu";
    o.plan_only = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sight s;
        write_text(config, rows[i][0]);
        write_text(processor, rows[i][1]);
        assert_int_equal(sight_open(&s, &o, dir, CKPT_F32), i ? -1 : 0);
        sight_close(&s);
    }
    unlink(config);
    unlink(processor);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
