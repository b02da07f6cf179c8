/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures of I2V: noise and posterior match a computation in double with the same random numbers,
 * by a separate encoder; the random numbers of a sample depend only on the seed and its number.
 */
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "examples/video/images.h"
#include "examples/video/cogvideo/vae.h"
#include "vae_draw.h"

const char say_program[] = "test_cogvideo_images";

enum {
    ROWS = 4,
    COLUMNS = 6,
    FACTOR = 8,
    Z = 16,
    CELLS = ROWS * COLUMNS,
    VALUES = CELLS * FACTOR * FACTOR * 3
};

struct fixture {
    char directory[64];
    ckpt *c;
    struct video_images m;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct ckpt_options o = CKPT_OPTIONS_INIT;

    strcpy(f->directory, "/tmp/test_images.XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    vae_draw_model(f->directory, &vae_four);
    o.device = "cpu";
    assert_int_equal(ckpt_open(&f->c, &o), 0);
    f->m = (struct video_images){.seed = 5, .mean = -3, .deviation = .5};
    f->m.encoder.options = (struct video_coder_options)VIDEO_CODER_INIT;
    f->m.encoder.options.model = f->directory;
    f->m.encoder.options.dtype = "fp32";
    assert_int_equal(video_coder_config(&f->m.encoder, &cogvideo_autoencoder, false), 0);
    assert_int_equal(video_images_join(&f->m, f->c, ROWS, COLUMNS), 0);
    assert_int_equal(video_images_compile(&f->m, false), 0);
    for (int i = 0; i < VALUES; i++)
        f->m.rgb[i] = (uint8_t)(i * 37 + i / 48 * 11);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char path[128];

    video_coder_close(&f->m.encoder);
    free(f->m.rgb);
    free(f->m.x);
    ckpt_close(f->c);
    snprintf(path, sizeof path, "%s/config.json", f->directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", f->directory);
    unlink(path);
    rmdir(f->directory);
    free(f);
    return 0;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct autoencoder_clip clip = {
        .frames = 1, .height = ROWS * FACTOR, .width = COLUMNS * FACTOR};

    (void)batch;
    return cogvae_encode(user, &clip, t);
}

/* Moments [h, w, 2 Z] of a frame, by a program of one pass. */
static void encode(const struct fixture *f, const float *x, float *moments)
{
    static float in[(1 + COGVAE_FRONT) * VALUES];
    ckpt_program *p;

    for (int i = 0; i <= COGVAE_FRONT; i++)
        memcpy(in + i * VALUES, x, VALUES * sizeof *x);
    assert_int_equal(ckpt_compile(f->c, record, f->m.encoder.own, NULL, 1, &p), 0);
    assert_int_equal(ckpt_feed(p, "in.0", in, sizeof in), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_fetch(p, "out.0", moments, (int64_t)CELLS * 2 * Z * 4), 0);
    ckpt_program_free(p);
}

/* As the published trainers: x + exp(-3 + level / 2) eps, then the posterior, then 0.7. */
static void expect(const struct fixture *f, int64_t sample, double *image)
{
    static float x[VALUES], eps[VALUES], moments[CELLS * 2 * Z], draw[CELLS * Z];
    uint64_t h = UINT64_C(14695981039346656037);
    char name[40];
    float level;

    ckpt_fill_normal(5, (uint64_t)sample, VIDEO_STREAM_LEVEL, &level, 1);
    ckpt_fill_normal(5, (uint64_t)sample, VIDEO_STREAM_NOISE, eps, VALUES);
    for (int i = 0; i < VALUES; i++)
        x[i] =
            (float)(f->m.rgb[i] / 255. * 2 - 1 + exp(f->m.mean + f->m.deviation * level) * eps[i]);
    encode(f, x, moments);
    snprintf(name, sizeof name, "image-%lld", (long long)sample);
    for (const char *c = name; *c; c++)
        h = (h ^ (uint8_t)*c) * UINT64_C(1099511628211);
    ckpt_fill_normal(5, h >> 12, 0, draw, CELLS * Z);
    for (int p = 0; p < CELLS; p++)
        for (int c = 0; c < Z; c++) {
            double logvar = fmin(fmax(moments[p * 2 * Z + Z + c], -30), 20);
            image[c * CELLS + p] =
                .7 * (moments[p * 2 * Z + c] + exp(logvar / 2) * draw[p * Z + c]);
        }
}

static void is_as_published(void **state)
{
    struct fixture *f = *state;
    static double wanted[CELLS * Z];
    static float image[CELLS * Z];

    for (int64_t sample = 0; sample < 3; sample++) {
        double error = 0, norm = 0;
        expect(f, sample * 1000, wanted);
        assert_int_equal(video_images_encode(&f->m, sample * 1000, image), 0);
        for (int i = 0; i < CELLS * Z; i++) {
            error += pow(image[i] - wanted[i], 2);
            norm += wanted[i] * wanted[i];
        }
        assert_true(norm > 0 && sqrt(error / norm) < 1e-5);
    }
}

static void follows_from_the_sample(void **state)
{
    struct fixture *f = *state;
    static float one[CELLS * Z], two[CELLS * Z];

    assert_int_equal(video_images_encode(&f->m, 7, one), 0);
    assert_int_equal(video_images_encode(&f->m, 8, two), 0);
    assert_memory_not_equal(one, two, sizeof one);
    assert_int_equal(video_images_compile(&f->m, true), 0); /* in less memory */
    assert_int_equal(video_images_encode(&f->m, 7, two), 0);
    assert_memory_equal(one, two, sizeof one);
}

/* Means of a normal distribution: 4 standard deviations of the mean of that many samples are
 * allowed. */
static void levels_are_log_normal(void **state)
{
    enum { N = 20000 };
    double sum = 0, squares = 0;

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        float level;
        ckpt_fill_normal(5, i, VIDEO_STREAM_LEVEL, &level, 1);
        sum += level;
        squares += level * level;
    }
    assert_true(fabs(sum / N) < 4 / sqrt(N));
    assert_true(fabs(squares / N - 1) < 4 * sqrt(2. / N));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_as_published, setup, teardown),
        cmocka_unit_test_setup_teardown(follows_from_the_sample, setup, teardown),
        cmocka_unit_test(levels_are_log_normal)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
