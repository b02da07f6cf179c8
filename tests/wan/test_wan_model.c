/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wan against diffusers in float64 (make_wan_reference.py): each kind of model, read from its
 * directory, gives the loss, the output and the gradients of one training step, also under the
 * smallest budget and with micro-steps; the levels and weights of noise; the parameter counts of
 * the published models; and invalid config.json files.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "examples/common/say.h"
#include "examples/video/wan/model.h"
#include "examples/video/wan/noise.h"
#include "noise_reference.h"

const char say_program[] = "test_wan_model";

static const char *const names[] = {"t2v", "ti2v", "i2v", "sight"};
enum { KINDS = sizeof names / sizeof *names, BATCH = 2, SIGHT = 3, PATH = 4096 };

/* ---- references ------------------------------------------------------------------------------ */

static const char *reference(char path[PATH], const char *name, const char *file)
{
    const char *root = getenv("srcdir");
    snprintf(path, PATH, "%s/tests/wan/%s%s", root ? root : ".", name, file);
    return path;
}

struct tensor {
    struct ckpt_file_entry entry;
    float *data;
};

static struct tensor read_tensor(ckpt_file *f, const char *name)
{
    struct tensor x = {.entry = CKPT_FILE_ENTRY_INIT};
    int i = ckpt_file_find(f, name);
    if (i < 0 || ckpt_file_entry(f, i, &x.entry))
        fail_msg("no %s in the reference", name);
    x.data = malloc((size_t)(x.entry.numel + 1) * sizeof *x.data);
    if (!x.data || ckpt_file_read_f32(f, i, x.data, x.entry.numel))
        fail_msg("%s", ckpt_error(NULL));
    return x;
}

/* ---- one step -------------------------------------------------------------------------------- */

struct step {
    const char *name;
    ckpt_file *file;
    ckpt *context;
    ckpt_program *program;
    struct wan model;
    struct video_geometry geometry;
    bool first; /* of each sample its first frame has a timestep of its own */
    double tolerance;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct step *s = user;
    const struct video_geometry *g = &s->geometry;
    int64_t z[] = {batch, s->model.config.channels, g->frames, g->height, g->width};
    int64_t y[] = {batch, g->tokens, s->model.config.text_width}, two[] = {batch, 2};
    struct video_inputs in = {.x = ckpt_input(t, "x", CKPT_F32, 5, z),
                              .t = ckpt_input(t, "t", CKPT_F32, s->first ? 2 : 1, two)};
    ckpt_tensor noised = CKPT_NONE;
    in.text = ckpt_cast(t, ckpt_input(t, "y", CKPT_F32, 3, y), s->model.dtype);
    if (s->model.config.has_image)
        in.image = ckpt_input(t, "image", CKPT_F32, 5, z);
    if (s->model.config.sight)
        in.sight =
            ckpt_input(t, "sight", CKPT_F32, 3, (int64_t[]){batch, SIGHT, s->model.config.sight});
    if (s->first)
        noised = ckpt_input(t, "noised", CKPT_I32, 2, (int64_t[]){batch, g->frames});
    ckpt_tensor target = ckpt_input(t, "target", CKPT_F32, 5, z);
    ckpt_tensor pred = ckpt_cast(t, wan_forward(&s->model, t, g, &in), CKPT_F32);
    ckpt_output(t, "pred", pred);
    for (int i = 0; i < ckpt_param_count(s->context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        char name[200];
        assert_int_equal(ckpt_param_info(s->context, ckpt_param_at(s->context, i), &info), 0);
        snprintf(name, sizeof name, "grad.%s", info.name);
        ckpt_output_gradient(t, name, ckpt_param_at(s->context, i));
    }
    return ckpt_mse(t, pred, target, noised);
}

static void refuse_name(void *user, const char *what, const char *name)
{
    fail_msg("%s: %s %s", (const char *)user, what, name);
}

static void open_step(struct step *s, enum ckpt_dtype dtype, int64_t vram, int64_t micro)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct wan_config config;
    char path[PATH], files[PATH];
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    o.vram = vram;
    o.micro_batch = micro;
    assert_int_equal(wan_config_read(&config, reference(path, s->name, ""), WAN_HIGH, files), 0);
    s->first = !strcmp(s->name, "ti2v");
    assert_int_equal(config.first, s->first);
    assert_int_equal(config.has_image, !strcmp(s->name, "i2v") || !strcmp(s->name, "sight"));
    assert_int_equal(config.sight, strcmp(s->name, "sight") ? 0 : 12);
    if (ckpt_open(&s->context, &o))
        fail_msg("%s", ckpt_error(NULL));
    assert_int_equal(wan_create(&s->model, s->context, &config, dtype, ""), 0);
    reference(path, s->first ? "t2v" : s->name, "");
    if (ckpt_load_params(s->context, path, refuse_name, (void *)s->name, NULL))
        fail_msg("%s", ckpt_error(s->context));
    assert_int_equal(ckpt_file_open(&s->file, reference(path, s->name, "/step.safetensors")), 0);
    struct tensor x = read_tensor(s->file, "x"), y = read_tensor(s->file, "y");
    s->geometry = (struct video_geometry){.frames = x.entry.shape[2],
                                          .height = x.entry.shape[3],
                                          .width = x.entry.shape[4],
                                          .tokens = y.entry.shape[1]};
    free(x.data);
    free(y.data);
    if (ckpt_compile(s->context, record, s, ckpt_adamw(s->context, &adamw), BATCH, &s->program))
        fail_msg("%s: %s", s->name, ckpt_error(s->context));
}

static void close_step(struct step *s)
{
    ckpt_file_close(s->file);
    wan_free(&s->model);
    ckpt_close(s->context);
}

static void feed(struct step *s, const char *name)
{
    struct tensor x = read_tensor(s->file, name);
    int32_t whole[64];
    const bool mask = !strcmp(name, "noised");
    for (int64_t i = 0; i < x.entry.numel && mask; i++)
        whole[i] = (int32_t)x.data[i];
    if (ckpt_feed(s->program, name, mask ? (void *)whole : x.data, x.entry.numel * 4))
        fail_msg("%s", ckpt_error(s->context));
    free(x.data);
}

static float run_step(struct step *s)
{
    float loss;
    feed(s, "x");
    feed(s, "target");
    feed(s, "t");
    feed(s, "y");
    if (s->first)
        feed(s, "noised");
    if (s->model.config.has_image)
        feed(s, "image");
    if (s->model.config.sight)
        feed(s, "sight");
    if (ckpt_step(s->program, &loss))
        fail_msg("%s", ckpt_error(s->context));
    return loss;
}

static float *fetch(const struct step *s, const char *name, int64_t n)
{
    float *y = malloc((size_t)(n + 1) * sizeof *y);
    if (!y || ckpt_fetch(s->program, name, y, n * 4))
        fail_msg("%s", ckpt_error(s->context));
    return y;
}

/* |actual - expected| / |expected| in the L2 norm. */
static void compare(const struct step *s, const char *name)
{
    struct tensor x = read_tensor(s->file, name);
    float *y = fetch(s, name, x.entry.numel);
    double error = 0, norm = 0;
    for (int64_t i = 0; i < x.entry.numel; i++) {
        error += pow((double)y[i] - (double)x.data[i], 2);
        norm += pow((double)x.data[i], 2);
    }
    if (!(sqrt(error / norm) <= s->tolerance))
        fail_msg("%s: %s: relative error %g", s->name, name, sqrt(error / norm));
    free(x.data);
    free(y);
}

static double pattern(int64_t i, int k)
{
    return (double)((i * (3 + 4 * k) + k) % (11 + 2 * k)) - 5;
}

/* The sum of squares, and products with two patterns, against the norm of all gradients, of which
 * `floor` is enough. */
static void compare_gradient(const struct step *s, const char *name, int64_t n, double floor)
{
    struct tensor x = read_tensor(s->file, name);
    float *g = fetch(s, name, n);
    double sum[3] = {0};
    for (int64_t i = 0; i < n; i++) {
        sum[0] += pow((double)g[i], 2);
        for (int k = 0; k < 2; k++)
            sum[1 + k] += (double)g[i] * pattern(i, k);
    }
    double norm = sqrt(fmax((double)x.data[0], floor * floor));
    double e[] = {(sum[0] - (double)x.data[0]) / (norm * norm),
                  (sum[1] - (double)x.data[1]) / (norm * 4 * sqrt((double)n)),
                  (sum[2] - (double)x.data[2]) / (norm * 4 * sqrt((double)n))};
    for (int k = 0; k < 3; k++)
        if (!(fabs(e[k]) <= s->tolerance))
            fail_msg("%s: %s: relative error %g of sum %d", s->name, name, e[k], k);
    free(x.data);
    free(g);
}

static void check_kind(const char *name, enum ckpt_dtype dtype, int64_t micro)
{
    struct step s = {.name = name, .tolerance = dtype == CKPT_BF16 ? 1e-2 : 1e-5};
    open_step(&s, dtype, 0, micro);
    double loss = (double)run_step(&s), all = 0;
    struct tensor wanted = read_tensor(s.file, "loss");
    if (!(fabs(loss / (double)wanted.data[0] - 1) <= s.tolerance))
        fail_msg("%s: loss %.9g instead of %.9g", name, loss, (double)wanted.data[0]);
    free(wanted.data);
    compare(&s, "pred");
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < ckpt_param_count(s.context); i++) {
            struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
            char key[200];
            ckpt_param_info(s.context, ckpt_param_at(s.context, i), &info);
            snprintf(key, sizeof key, "grad.%s", info.name);
            struct tensor x = read_tensor(s.file, key);
            all += pass ? 0 : (double)x.data[0];
            free(x.data);
            if (pass)
                compare_gradient(&s, key, info.numel,
                                 sqrt(all) * (dtype == CKPT_BF16 ? 0.1 : 1e-2));
        }
    close_step(&s);
}

static void test_reference(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++)
        check_kind(names[i], CKPT_F32, 0);
    for (int i = 0; i < KINDS; i++)
        check_kind(names[i], CKPT_BF16, 0);
    check_kind("ti2v", CKPT_F32, 1);
}

/* ---- the budget changes no bit --------------------------------------------------------------- */

static float *run_for_output(const char *name, int64_t vram, int64_t *n, int64_t *smallest)
{
    struct step s = {.name = name};
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct tensor wanted;
    open_step(&s, CKPT_F32, vram, 0);
    (void)run_step(&s);
    wanted = read_tensor(s.file, "pred");
    *n = wanted.entry.numel;
    free(wanted.data);
    assert_int_equal(ckpt_program_info(s.program, &info), 0);
    *smallest = info.min_budget;
    float *pred = fetch(&s, "pred", *n);
    pred[(*n)++] = (float)info.grad_norm;
    close_step(&s);
    return pred;
}

static void test_budget(void **state)
{
    int64_t n, smallest, again;
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        float *unlimited = run_for_output(names[i], 0, &n, &smallest);
        float *tight = run_for_output(names[i], smallest, &n, &again);
        assert_memory_equal(unlimited, tight, (size_t)n * sizeof *tight);
        free(unlimited);
        free(tight);
    }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int64_t parameters(int64_t heads, int64_t layers, int64_t inner, int64_t channels,
                          bool image, int64_t sight)
{
    const struct wan_config c = {.heads = heads,
                                 .head = 128,
                                 .layers = layers,
                                 .width = heads * 128,
                                 .inner = inner,
                                 .channels = channels,
                                 .has_image = image,
                                 .sight = sight,
                                 .frequencies = 256,
                                 .text_width = 4096,
                                 .text_tokens = 512};
    return wan_parameters(&c);
}

static void test_parameters(void **state)
{
    (void)state;
    assert_int_equal(parameters(12, 30, 8960, 16, false, 0), 1418996800);
    assert_int_equal(parameters(24, 30, 14336, 48, false, 0), 4999787712);
    assert_int_equal(parameters(40, 40, 13824, 16, false, 0), 14288491584);
    assert_int_equal(parameters(40, 40, 13824, 16, true, 0), 14288901184);
    assert_int_equal(parameters(40, 40, 13824, 16, true, 1280), 16394878784);
}

/* ---- noise ----------------------------------------------------------------------------------- */

static void test_noise(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof noise_reference / sizeof *noise_reference; i++) {
        struct wan_noise n = {
            .shift = noise_reference[i].shift, .low = 0, .high = 1, .weighted = true};
        wan_noise_begin(&n);
        double level = noise_reference[i].level, weight = noise_reference[i].weight;
        assert_true(fabs(wan_noise_weight(&n, level) - weight) < 1e-9 * (1 + weight));
        double u = 1 - wan_shift(1 / n.shift, level);
        assert_true(fabs(wan_noise_level(&n, u) - level) < 1e-12);
    }
}

/* The part of each expert is the distribution of one model, cut at the boundary. */
static void test_experts(void **state)
{
    enum { DRAWS = 4000 };
    (void)state;
    for (int normal = 0; normal < 2; normal++) {
        struct wan_noise all = {.shift = 5, .normal = normal, .low = 0, .high = 1};
        struct wan_noise high = all, low = all;
        double above = 0, middle = 0, before = 2;
        high.low = low.high = 0.875;
        for (int i = 0; i < DRAWS; i++) {
            double u = (i + 0.5) / DRAWS, s = wan_noise_level(&all, u);
            above += s >= 0.875;
            middle += s > 5. / 6; /* what 1/2 is shifted to */
            assert_true(s < before && s > 0 && s <= 1);
            before = s;
        }
        assert_true(fabs(middle / DRAWS - 0.5) < 1e-3);
        above /= DRAWS;
        assert_true(fabs(wan_noise_level(&high, 0.5) - wan_noise_level(&all, 0.5 * above)) < 1e-3);
        assert_true(fabs(wan_noise_level(&low, 0.5) -
                         wan_noise_level(&all, above + 0.5 * (1 - above))) < 1e-3);
        assert_true(fabs(wan_noise_level(&high, 1) - 0.875) < 1e-12);
        assert_true(fabs(wan_noise_level(&low, 0) - 0.875) < 1e-12);
    }
}

/* ---- config.json ----------------------------------------------------------------------------- */

#define REST                                                                                       \
    "\"num_attention_heads\": 2, \"attention_head_dim\": 16, \"out_channels\": 4, \"text_dim\": "  \
    "8, "                                                                                          \
    "\"ffn_dim\": 16, \"num_layers\": 1"

static int read_text(const char *text, struct wan_config *c)
{
    char path[] = "test_wan_XXXXXX.json", files[PATH];
    int fd = mkstemps(path, 5), rc;
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    rc = wan_config_read(c, path, WAN_HIGH, files);
    unlink(path);
    return rc;
}

static void test_config(void **state)
{
    static const char *const wrong[] = {
        "{\"_class_name\": \"CogVideoXTransformer3DModel\"}",
        "{\"_class_name\": \"WanTransformer3DModel\", \"in_channels\": 5, " REST "}",
        "{\"_class_name\": \"WanTransformer3DModel\", \"in_channels\": 4, \"image_dim\": "
        "1280, " REST "}",
        "{\"_class_name\": \"WanTransformer3DModel\", \"in_channels\": 12, \"image_dim\": "
        "1280, " REST "}",
        "{\"_class_name\": \"WanTransformer3DModel\", \"in_channels\": 12, \"image_dim\": "
        "1280, \"added_kv_proj_dim\": 32, \"pos_embed_seq_len\": 514, " REST "}",
        "{\"_class_name\": \"WanTransformer3DModel\", \"in_channels\": 4, \"patch_size\": [2, 2, "
        "2], " REST "}",
        "{\"_class_name\": \"WanTransformer3DModel\", \"in_channels\": 4, \"qk_norm\": "
        "\"rms_norm\", " REST "}",
        "{\"_class_name\": \"WanTransformer3DModel\", \"in_channels\": 4, \"window\": 3, " REST "}",
    };
    struct wan_config c;
    (void)state;
    assert_int_equal(
        read_text("{\"_class_name\": \"WanTransformer3DModel\", \"in_channels\": 4, " REST "}", &c),
        0);
    assert_int_equal(c.width, 32);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(read_text(wrong[i], &c), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),  cmocka_unit_test(test_budget),
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_noise),
        cmocka_unit_test(test_experts),    cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
