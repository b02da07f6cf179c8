/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CogVideoX's autoencoder: counts and names of the published one, numbers against diffusers in
 * float64 (make_vae_reference.py), the same bits for every slice and budget.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "vae_draw.h"

const char say_program[] = "test_vae";

struct fixture {
    ckpt *c;
    struct cogvae m;
    struct autoencoder_clip clip;
    bool decode;
};

static char directory[64];

/* A directory with a model of random weights. */
static void make_model(const struct vae_drawn *d)
{
    snprintf(directory, sizeof directory, "/tmp/test_cogvae.XXXXXX");
    assert_non_null(mkdtemp(directory));
    vae_draw_model(directory, d);
}

static void remove_model(void)
{
    char path[128];

    snprintf(path, sizeof path, "%s/config.json", directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", directory);
    unlink(path);
    rmdir(directory);
}

static void open_model(struct fixture *f, enum ckpt_dtype dtype, int64_t vram, int64_t host)
{
    struct cogvae_config config;
    int half = f->decode ? COGVAE_DECODER : COGVAE_ENCODER;

    f->c = vae_draw_context(vram, host);
    assert_int_equal(cogvae_config_read(&config, directory), 0);
    config.dtype = dtype;
    assert_int_equal(cogvae_create(&f->m, f->c, &config, half), 0);
    assert_int_equal(autoencoder_load(&cogvideo_autoencoder, f->c, directory, f->decode), 0);
    f->clip.decode = f->decode;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    struct fixture *f = user;

    (void)batch;
    return f->decode ? cogvae_decode(&f->m, &f->clip, t) : cogvae_encode(&f->m, &f->clip, t);
}

/* ---- running ------------------------------------------------------------------------------- */

static int64_t elements(const struct ckpt_desc *d)
{
    int64_t n = 1;

    for (int i = 0; i < d->ndim; i++)
        n *= d->shape[i];
    return n;
}

/* Feeds the passes of x [frames, values], each with the frames before it. */
static void feed_clip(ckpt_program *p, const struct autoencoder_passes *passes, const float *x,
                      int64_t frame)
{
    for (int64_t i = 0; i < passes->n; i++) {
        int64_t n = autoencoder_pass_frames(passes, i), from = autoencoder_pass_begin(passes, i);
        float *in = malloc((size_t)((n + COGVAE_FRONT) * frame) * sizeof *in);
        char name[32];
        assert_non_null(in);
        for (int64_t j = -COGVAE_FRONT; j < n; j++)
            memcpy(in + (j + COGVAE_FRONT) * frame, x + (from + j < 0 ? 0 : from + j) * frame,
                   (size_t)frame * sizeof *x);
        snprintf(name, sizeof name, "in.%lld", (long long)i);
        assert_int_equal(ckpt_feed(p, name, in, (n + COGVAE_FRONT) * frame * (int64_t)sizeof *in),
                         0);
        free(in);
    }
}

/* The outputs of all passes in order, malloc'ed; *n: how many values. */
static float *fetch_clip(ckpt_program *p, const struct autoencoder_passes *passes, int64_t *n)
{
    float *y = NULL;

    *n = 0;
    for (int64_t i = 0; i < passes->n; i++) {
        struct ckpt_desc d;
        char name[32];
        snprintf(name, sizeof name, "out.%lld", (long long)i);
        assert_int_equal(ckpt_program_desc(p, name, &d), 0);
        y = realloc(y, (size_t)(*n + elements(&d)) * sizeof *y);
        assert_non_null(y);
        assert_int_equal(ckpt_fetch(p, name, y + *n, elements(&d) * (int64_t)sizeof *y), 0);
        *n += elements(&d);
    }
    return y;
}

/* Encodes or decodes the clip x or z that all tests here use. */
static float *coded(struct fixture *f, int64_t *n, struct ckpt_program_info *info)
{
    int64_t each = f->decode ? COGVAE_DECODE_PASS : COGVAE_ENCODE_PASS;
    int64_t frame = f->clip.height * f->clip.width * (f->decode ? f->m.config.latent : 3);
    struct autoencoder_passes passes = cogvae_passes(f->clip.frames, each);
    ckpt_program *p;
    float *x = malloc((size_t)(f->clip.frames * frame) * sizeof *x);

    assert_non_null(x);
    vae_draw(f->decode ? "z" : "x", 4.f, x, f->clip.frames * frame);
    if (ckpt_compile(f->c, record, f, NULL, 1, &p))
        fail_msg("%s", ckpt_error(f->c));
    feed_clip(p, &passes, x, frame);
    if (ckpt_step(p, NULL))
        fail_msg("%s", ckpt_error(f->c));
    float *y = fetch_clip(p, &passes, n);
    if (info)
        ckpt_program_info(p, info);
    free(x);
    return y;
}

/* ---- against float64 ----------------------------------------------------------------------- */

static void check_case(const char *tag, bool decode, int64_t frames, int64_t height, int64_t width)
{
    struct fixture f = {.decode = decode};
    char name[96];
    int64_t n, m;

    f.clip = (struct autoencoder_clip){.frames = frames, .height = height, .width = width};
    if (decode)
        f.clip = (struct autoencoder_clip){
            .frames = (frames + 3) / 4, .height = height / 8, .width = width / 8};
    open_model(&f, CKPT_F32, 0, 0);
    float *y = coded(&f, &n, NULL);
    snprintf(name, sizeof name, "%s/%lldx%lldx%lld/%s", tag, (long long)frames, (long long)height,
             (long long)width, decode ? "decoded" : "moments");
    float *e = vae_expected("cogvideo", name, &m);
    assert_int_equal((n + 2) / 3, m);
    double d = vae_difference(y, 3, e, m);
    print_message("%s: %lld values, %.1e\n", name, (long long)n, d);
    assert_true(d < 1e-5);
    ckpt_close(f.c);
    free(y);
    free(e);
}

static void test_reference(void **state)
{
    static const int64_t frames[] = {1, 5, 9, 16, 17, 25};

    (void)state;
    make_model(&vae_four);
    for (size_t i = 0; i < 2 * sizeof frames / sizeof *frames; i++)
        check_case("four", i % 2, frames[i / 2], 16, 24);
    check_case("four", false, 9, 40, 24);
    check_case("four", true, 9, 40, 24);
    remove_model();
    make_model(&vae_three);
    check_case("three", false, 17, 24, 40);
    check_case("three", true, 17, 24, 40);
    remove_model();
}

/* ---- the same bits ------------------------------------------------------------------------- */

static void check_same(const float *a, const float *b, int64_t n, const char *what)
{
    int64_t differ = 0;

    for (int64_t i = 0; i < n; i++)
        differ += memcmp(&a[i], &b[i], sizeof *a) != 0;
    if (differ)
        fail_msg("%s: %lld of %lld values differ", what, (long long)differ, (long long)n);
}

static float *coded_as(struct fixture *f, enum ckpt_dtype dtype, int64_t slice, int64_t vram,
                       int64_t host, struct ckpt_program_info *info)
{
    int64_t n;

    f->clip.slice = slice;
    open_model(f, dtype, vram, host);
    float *y = coded(f, &n, info);
    ckpt_close(f->c);
    return y;
}

static void check_slices(bool decode, enum ckpt_dtype dtype)
{
    struct fixture f = {.decode = decode};
    struct ckpt_program_info whole = CKPT_PROGRAM_INFO_INIT, info = whole;
    int64_t frames = decode ? 5 : 17, side = decode ? 3 : 24;
    const int64_t *slices = cogvideo_autoencoder.slice;
    int64_t n = decode ? 17 * 24 * 24 * 3 : 5 * 3 * 3 * 32;

    f.clip = (struct autoencoder_clip){.frames = frames, .height = side, .width = side};
    float *y = coded_as(&f, dtype, 0, 0, 0, &whole);
    for (int i = 1; i < AUTOENCODER_SLICES; i++) {
        float *other = coded_as(&f, dtype, slices[i], 0, 0, &info);
        print_message("%s, slices of %lld: at least %lld bytes, whole %lld\n",
                      decode ? "decode" : "encode", (long long)slices[i],
                      (long long)info.min_budget, (long long)whole.min_budget);
        check_same(y, other, n, "slices");
        free(other);
    }
    if (!getenv("CKPT_DEVICE")) /* on a GPU workspaces are larger than such small planes */
        assert_true(info.min_budget < whole.min_budget);
    for (int64_t host = 0; host < 2; host++) { /* the smallest budget, and less with a tier */
        float *other = coded_as(&f, dtype, 1, info.min_budget, host << 30, NULL);
        check_same(y, other, n, "budget");
        free(other);
    }
    free(y);
}

static void test_same_bits(void **state)
{
    (void)state;
    make_model(&vae_four);
    check_slices(false, CKPT_BF16);
    check_slices(true, CKPT_F32);
    remove_model();
}

/* ---- counts -------------------------------------------------------------------------------- */

/* The published widths: 215,583,907 parameters. */
static void test_counts(void **state)
{
    static const struct vae_drawn published = {4, {128, 256, 256, 512}, 3, 32};
    struct cogvae_config config;
    struct cogvae m;
    ckpt *c = vae_draw_context(0, 0);
    int64_t count = 0;

    (void)state;
    snprintf(directory, sizeof directory, "/tmp/test_cogvae.XXXXXX");
    assert_non_null(mkdtemp(directory));
    vae_draw_config(directory, &published);
    assert_int_equal(cogvae_config_read(&config, directory), 0);
    config.dtype = CKPT_BF16;
    assert_int_equal(cogvae_create(&m, c, &config, COGVAE_BOTH), 0);
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, ckpt_param_at(c, i), &info);
        assert_false(info.trainable);
        count += info.numel;
    }
    assert_int_equal(count, 215583907);
    ckpt_close(c);
    remove_model();
}

static int64_t frames_of(const struct cogvae *m, int64_t frames, bool decode)
{
    const struct autoencoder_clip clip = {.frames = frames, .decode = decode};

    return autoencoder_clip_out(&cogvideo_autoencoder, m, &clip);
}

static void test_passes(void **state)
{
    static const int64_t clips[][3] = {{1, 1, 1},    {5, 2, 2},    {9, 3, 3},
                                       {16, 4, 4},   {17, 5, 5},   {25, 7, 7},
                                       {49, 13, 13}, {81, 21, 21}, {161, 41, 41}};
    const struct cogvae m = {.config = {.levels = 4, .time_levels = 2}};

    (void)state;
    for (size_t i = 0; i < sizeof clips / sizeof *clips; i++)
        assert_int_equal(frames_of(&m, clips[i][0], false), clips[i][1]);
    assert_int_equal(frames_of(&m, 13, true), 49);
    assert_int_equal(frames_of(&m, 4, true), 16);
    struct autoencoder_passes p = cogvae_passes(13, COGVAE_DECODE_PASS);
    assert_int_equal(p.n, 6);
    assert_int_equal(autoencoder_pass_frames(&p, 0), 3);
    assert_int_equal(autoencoder_pass_begin(&p, 5), 11);
}

/* "model DIR" writes one, for test_vae_programs.sh. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_same_bits),
    };

    if (argc == 3 && !strcmp(argv[1], "model")) {
        vae_draw_model(argv[2], &vae_four);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
