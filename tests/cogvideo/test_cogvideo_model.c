/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CogVideoX against diffusers in float64 (make_cogvideo_reference.py): each kind of model, read
 * from its directory, gives the loss, the output and all gradients of one training step, also under
 * the smallest budget and with micro-steps.  Also the parameter counts of the published models, and
 * invalid config.json files.  COGVIDEO_REFERENCE names another directory of references.  "make
 * check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "examples/video/cogvideo/model.h"
#include "examples/video/cogvideo/schedule.h"
#include "examples/common/say.h"

const char say_program[] = "test_cogvideo_model";

static const char *const names[] = {"2b", "5b", "5b-i2v", "15", "15-i2v"};
enum { KINDS = sizeof names / sizeof *names, BATCH = 2, PATH = 1024 };

/* ---- references ------------------------------------------------------------------------------ */

static const char *reference(char path[PATH], const char *name, const char *file)
{
    const char *own = getenv("COGVIDEO_REFERENCE"), *root = getenv("srcdir");
    if (own)
        snprintf(path, PATH, "%s/%s%s", own, name, file);
    else
        snprintf(path, PATH, "%s/tests/cogvideo/%s%s", root ? root : ".", name, file);
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
    ckpt_file *inputs, *file;
    ckpt *context;
    ckpt_program *program;
    struct cogvideo model;
    struct video_geometry geometry;
    struct cogvideo_schedule schedule;
    bool gradients;
    double tolerance, floor, norm; /* norm: of all gradients */
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct step *s = user;
    const struct video_geometry *g = &s->geometry;
    int64_t z[] = {batch, 16, g->frames, g->height, g->width};
    int64_t y[] = {batch, g->tokens, s->model.config.text_width};
    int64_t image[] = {batch, 16, 1, g->height, g->width};
    struct video_inputs in = {.x = ckpt_input(t, "x", CKPT_F32, 5, z),
                              .t = ckpt_input(t, "t", CKPT_F32, 1, &batch)};
    in.text = ckpt_cast(t, ckpt_input(t, "y", CKPT_F32, 3, y), s->model.dtype);
    if (cogvideo_has_image(&s->model.config))
        in.image = ckpt_input(t, "image", CKPT_F32, 5, image);
    ckpt_tensor target = ckpt_input(t, "target", CKPT_F32, 5, z);
    ckpt_tensor pred = ckpt_cast(t, cogvideo_forward(&s->model, t, g, &in), CKPT_F32);
    ckpt_output(t, "pred", pred);
    for (int i = 0; i < ckpt_param_count(s->context) && s->gradients; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        char name[200];
        assert_int_equal(ckpt_param_info(s->context, ckpt_param_at(s->context, i), &info), 0);
        snprintf(name, sizeof name, "grad.%s", info.name);
        if (info.trainable)
            ckpt_output_gradient(t, name, ckpt_param_at(s->context, i));
    }
    return ckpt_mse(t, pred, target, CKPT_NONE);
}

static void refuse_name(void *user, const char *what, const char *name)
{
    fail_msg("%s: %s %s", (const char *)user, what, name);
}

static void open_step(struct step *s, enum ckpt_dtype dtype, int64_t vram, int64_t micro)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct cogvideo_config config;
    char path[PATH];
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    o.vram = vram;
    o.micro_batch = micro;
    assert_int_equal(cogvideo_config_read(&config, reference(path, s->name, "")), 0);
    if (ckpt_open(&s->context, &o))
        fail_msg("%s", ckpt_error(NULL));
    assert_int_equal(cogvideo_create(&s->model, s->context, &config, dtype), 0);
    if (ckpt_load_params(s->context, path, refuse_name, (void *)s->name, NULL))
        fail_msg("%s", ckpt_error(s->context));
    assert_int_equal(ckpt_file_open(&s->inputs, reference(path, s->name, "/step.safetensors")), 0);
    assert_int_equal(ckpt_file_open(&s->file, reference(path, s->name, "/expected.safetensors")),
                     0);
    struct tensor z = read_tensor(s->inputs, "z");
    s->geometry = (struct video_geometry){.frames = z.entry.shape[2],
                                          .height = z.entry.shape[3],
                                          .width = z.entry.shape[4],
                                          .tokens = config.text_tokens};
    free(z.data);
    assert_int_equal(cogvideo_check_geometry(&config, &s->geometry), 0);
    if (ckpt_compile(s->context, record, s, ckpt_adamw(s->context, &adamw), BATCH, &s->program))
        fail_msg("%s: %s", s->name, ckpt_error(s->context));
}

static void close_step(struct step *s)
{
    ckpt_file_close(s->inputs);
    ckpt_file_close(s->file);
    cogvideo_free(&s->model);
    ckpt_close(s->context);
}

static void feed(struct step *s, const char *name, struct tensor *x)
{
    if (ckpt_feed(s->program, name, x->data, x->entry.numel * 4))
        fail_msg("%s", ckpt_error(s->context));
    free(x->data);
}

/* x = sqrt(a) z + sqrt(1 - a) eps, and the velocity. */
static void feed_noise(struct step *s)
{
    struct tensor z = read_tensor(s->inputs, "z"), eps = read_tensor(s->inputs, "eps");
    struct tensor t = read_tensor(s->inputs, "t");
    int64_t n = z.entry.numel / BATCH;
    for (int64_t i = 0; i < z.entry.numel; i++) {
        double a = s->schedule.signal[(int)t.data[i / n]], x0 = (double)z.data[i];
        double e = (double)eps.data[i];
        z.data[i] = (float)(sqrt(a) * x0 + sqrt(1 - a) * e);
        eps.data[i] = (float)(sqrt(a) * e - sqrt(1 - a) * x0);
    }
    feed(s, "x", &z);
    feed(s, "target", &eps);
    feed(s, "t", &t);
}

static void run_step(struct step *s, float *loss)
{
    struct tensor y = read_tensor(s->inputs, "y");
    cogvideo_schedule(&s->schedule, strcmp(s->name, "2b") ? 1 : 3);
    feed_noise(s);
    feed(s, "y", &y);
    if (cogvideo_has_image(&s->model.config)) {
        struct tensor image = read_tensor(s->inputs, "image");
        feed(s, "image", &image);
    }
    if (ckpt_step(s->program, loss))
        fail_msg("%s", ckpt_error(s->context));
}

/* |actual - expected| / |expected| in the L2 norm, which is at least floor. */
static double distance(const struct tensor *x, const float *y, double floor)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < x->entry.numel; i++) {
        double e = (double)y[i] - (double)x->data[i];
        error += e * e;
        norm += (double)x->data[i] * (double)x->data[i];
    }
    return sqrt(error) / fmax(sqrt(norm), floor + 1e-300);
}

static void compare(struct step *s, const char *name)
{
    struct tensor x = read_tensor(s->file, name);
    float *y = malloc((size_t)x.entry.numel * sizeof *y);
    if (!y || ckpt_fetch(s->program, name, y, x.entry.numel * 4))
        fail_msg("%s", ckpt_error(s->context));
    double r = distance(&x, y, strncmp(name, "grad.", 5) ? 0 : s->floor * s->norm);
    if (!(r <= s->tolerance))
        fail_msg("%s: %s: relative error %g, allowed %g", s->name, name, r, s->tolerance);
    free(x.data);
    free(y);
}

static double norm_of_gradients(const struct step *s)
{
    double sum = 0;
    for (int i = 0; i < ckpt_file_count(s->file); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        ckpt_file_entry(s->file, i, &e);
        if (strncmp(e.name, "grad.", 5))
            continue;
        struct tensor x = read_tensor(s->file, e.name);
        for (int64_t k = 0; k < x.entry.numel; k++)
            sum += (double)x.data[k] * (double)x.data[k];
        free(x.data);
    }
    return sqrt(sum);
}

static void compare_all(struct step *s, float loss)
{
    struct tensor wanted = read_tensor(s->file, "loss");
    int compared = 0;
    if (!(distance(&wanted, &loss, 0) <= s->tolerance))
        fail_msg("%s: loss %.9g instead of %.9g", s->name, (double)loss, (double)wanted.data[0]);
    free(wanted.data);
    s->norm = norm_of_gradients(s);
    compare(s, "pred");
    for (int i = 0; i < ckpt_file_count(s->file); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        ckpt_file_entry(s->file, i, &e);
        if (strncmp(e.name, "grad.", 5))
            continue;
        compare(s, e.name);
        compared++;
    }
    int made = ckpt_param_count(s->context);
    assert_int_equal(compared, made - s->model.config.learned);
}

static void check_kind(const char *name, enum ckpt_dtype dtype, int64_t vram, int64_t micro)
{
    struct step s = {.name = name, .gradients = true, .tolerance = 1e-5, .floor = 1e-3};
    float loss;
    if (dtype == CKPT_BF16) {
        s.tolerance = 3e-2;
        s.floor = 3e-2;
    }
    open_step(&s, dtype, vram, micro);
    run_step(&s, &loss);
    compare_all(&s, loss);
    close_step(&s);
}

static void test_reference(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++)
        check_kind(names[i], CKPT_F32, 0, 0);
    check_kind("2b", CKPT_BF16, 0, 0);
    check_kind("15-i2v", CKPT_BF16, 0, 0);
    check_kind("15-i2v", CKPT_F32, 0, 1);
}

/* ---- the budget changes no bit --------------------------------------------------------------- */

static float *run_for_output(const char *name, int64_t vram, int64_t *n, int64_t *smallest)
{
    struct step s = {.name = name};
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct ckpt_desc d;
    float loss, *pred;
    open_step(&s, CKPT_F32, vram, 0);
    run_step(&s, &loss);
    assert_int_equal(ckpt_program_info(s.program, &info), 0);
    assert_int_equal(ckpt_program_desc(s.program, "pred", &d), 0);
    *smallest = info.min_budget;
    *n = d.shape[0] * d.shape[1] * d.shape[2] * d.shape[3] * d.shape[4];
    pred = malloc((size_t)(*n + 1) * sizeof *pred);
    assert_non_null(pred);
    assert_int_equal(ckpt_fetch(s.program, "pred", pred, *n * 4), 0);
    pred[(*n)++] = (float)info.grad_norm;
    close_step(&s);
    return pred;
}

static void test_budget(void **state)
{
    int64_t n, smallest, again;
    (void)state;
    float *free_run = run_for_output("5b-i2v", 0, &n, &smallest);
    float *tight = run_for_output("5b-i2v", smallest, &n, &again);
    assert_memory_equal(free_run, tight, (size_t)n * sizeof *tight);
    free(free_run);
    free(tight);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static struct cogvideo_config published(int64_t heads, int64_t layers, int64_t channels, bool new,
                                        int64_t ofs)
{
    return (struct cogvideo_config){.heads = heads,
                                    .head = 64,
                                    .width = heads * 64,
                                    .layers = layers,
                                    .in_channels = channels,
                                    .out_channels = 16,
                                    .time_width = 512,
                                    .ofs_width = ofs,
                                    .text_width = 4096,
                                    .text_tokens = 226,
                                    .patch = 2,
                                    .patch_frames = new ? 2 : 1,
                                    .flat_patch = new,
                                    .sample_frames = 49,
                                    .sample_height = 60,
                                    .sample_width = 90,
                                    .compression = 4};
}

static void test_parameters(void **state)
{
    struct cogvideo_config c = published(30, 30, 16, false, 0);
    (void)state;
    assert_int_equal(cogvideo_parameters(&c), 1693783872);
    c = published(48, 42, 16, false, 0);
    assert_int_equal(cogvideo_parameters(&c), 5570283072);
    c = published(48, 42, 32, false, 0); /* 16 more channels of 2 x 2 */
    assert_int_equal(cogvideo_parameters(&c), 5570283072 + 3072 * 64);
    c = published(48, 42, 16, true, 0); /* two frames in a patch, in and out */
    assert_int_equal(cogvideo_parameters(&c), 5570283072 + 3072 * 64 + 64 * 3073);
    c = published(48, 42, 32, true, 512);
    assert_int_equal(cogvideo_parameters(&c), 5570283072 + 3072 * 192 + 64 * 3073 + 525312);
}

/* The formula counts the parameters that are created. */
static void test_count(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct cogvideo_config config;
        struct cogvideo m;
        int64_t n = 0;
        char path[PATH];
        ckpt *c;
        assert_int_equal(cogvideo_config_read(&config, reference(path, names[i], "")), 0);
        assert_int_equal(ckpt_open(&c, NULL), 0);
        assert_int_equal(cogvideo_create(&m, c, &config, CKPT_F32), 0);
        for (int k = 0; k < ckpt_param_count(c); k++) {
            struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
            assert_int_equal(ckpt_param_info(c, ckpt_param_at(c, k), &info), 0);
            n += info.trainable ? info.numel : 0;
        }
        assert_int_equal(n, cogvideo_parameters(&config));
        cogvideo_free(&m);
        ckpt_close(c);
    }
}

/* Positions are those of the published grid; a smaller grid is centred in it. */
static void test_places(void **state)
{
    struct cogvideo_config c = published(48, 42, 16, false, 0);
    struct video_geometry g = {.frames = 1, .height = 60, .width = 90, .tokens = 3};
    const int64_t half = 32, last = 3 + 30 * 45 - 1;
    float *table = malloc((size_t)(last + 1) * half * 2 * sizeof *table);
    (void)state;
    assert_non_null(table);
    cogvideo_rotary_table(&c, &g, table);
    for (int64_t k = 0; k < 3 * half; k++)
        assert_true(table[2 * k] == 1 && table[2 * k + 1] == 0);
    assert_true(fabs((double)table[(last * half + 8) * 2] - cos(29)) < 1e-6);
    assert_true(fabs((double)table[(last * half + 20) * 2 + 1] - sin(44)) < 1e-6);
    g = (struct video_geometry){
        .frames = 1, .height = 60, .width = 60, .tokens = 0}; /* 30 x 30: columns from 8 on */
    cogvideo_rotary_table(&c, &g, table);
    assert_true(fabs((double)table[20 * 2] - cos(8)) < 1e-6);
    assert_true(fabs((double)table[(29 * half + 20) * 2] - cos(38 * 29. / 30)) < 1e-5);
    free(table);
}

/* ---- wrong input ----------------------------------------------------------------------------- */

static void refuse_config(const char *text)
{
    struct cogvideo_config c;
    char path[] = "/tmp/cogvideo-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(cogvideo_config_read(&c, path), -1);
    unlink(path);
}

#define CLASS "{\"_class_name\": \"CogVideoXTransformer3DModel\""

static void test_wrong_configs(void **state)
{
    struct cogvideo_config c;
    char path[PATH];
    (void)state;
    refuse_config("{");
    refuse_config("[]");
    refuse_config("{\"_class_name\": \"STDiT3\"}");
    refuse_config(CLASS ", \"num_layers\": -1}");
    refuse_config(CLASS ", \"num_layers\": \"30\"}");
    refuse_config(CLASS ", \"activation_fn\": \"geglu\"}");
    refuse_config(CLASS ", \"activation_fn\": 3}");
    refuse_config(CLASS ", \"attention_bias\": false}");
    refuse_config(CLASS ", \"attention_head_dim\": 24}");
    refuse_config(CLASS ", \"in_channels\": 48}");
    refuse_config(CLASS ", \"dropout\": 0.1}");
    refuse_config(CLASS ", \"ofs_embed_dim\": 256}");
    refuse_config(CLASS ", \"use_learned_positional_embeddings\": true}");
    assert_int_equal(cogvideo_config_read(&c, "/nothing/here"), -1);
    assert_int_equal(cogvideo_config_read(&c, reference(path, "5b-i2v", "")), 0);
    struct video_geometry g = {.frames = 3, .height = 8, .width = 12, .tokens = 5};
    assert_int_equal(cogvideo_check_geometry(&c, &g), 0);
    g.frames = 2;
    assert_int_equal(cogvideo_check_geometry(&c, &g), -1);
    assert_int_equal(cogvideo_config_read(&c, reference(path, "15", "")), 0);
    g = (struct video_geometry){.frames = 3, .height = 8, .width = 12, .tokens = 5};
    assert_int_equal(cogvideo_check_geometry(&c, &g), -1);
    g = (struct video_geometry){.frames = 2, .height = 7, .width = 12, .tokens = 5};
    assert_int_equal(cogvideo_check_geometry(&c, &g), -1);
    g = (struct video_geometry){.frames = 2, .height = 22, .width = 12, .tokens = 5};
    assert_int_equal(cogvideo_check_geometry(&c, &g), -1);
    assert_int_equal(cogvideo_config_read(&c, reference(path, "2b", "")), 0);
    g = (struct video_geometry){.frames = 1, .height = 2, .width = 2, .tokens = 4};
    assert_int_equal(cogvideo_check_geometry(&c, &g), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),  cmocka_unit_test(test_budget),
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_count),
        cmocka_unit_test(test_places),     cmocka_unit_test(test_wrong_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
