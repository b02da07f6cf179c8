/* SPDX-License-Identifier: Apache-2.0 */
/* Latents encoded again from decoded frames: they equal the latents of the frames as bytes, up to
 * rounding; only the requested chunks are encoded; and the frames do not change. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../examples/video/stdit/autoencoder.c"
#include "ckpt_tools.h"

const char say_program[] = "test_stdit_again";

enum { FRAMES = 37, HEIGHT = 9, WIDTH = 15 }; /* two chunks and a part; no whole cells */

static void test_again(void **state)
{
    struct video_options o = STDIT_OPTIONS_INIT;
    struct video_clips clips;
    struct stdit_vae v;
    ckpt *c;

    (void)state;
    o.dtype = "fp32";
    o.vae_model = "tiny";
    o.library.device = "cpu";
    o.library.threads = 1;
    assert_int_equal(stdit_vae_configure(&v, &o), 0);
    stdit_vae_size(&v, &clips, FRAMES, HEIGHT, WIDTH);
    assert_int_equal(ckpt_open(&c, &o.library), 0);
    assert_int_equal(stdit_vae_open(&v, c, &o), 0);
    assert_int_equal(stdit_vae_add(&v, &clips, STDIT_ENCODE), 0);
    assert_int_equal(stdit_vae_add(&v, &clips, STDIT_DECODE), 0);
    assert_int_equal(stdit_vae_compile(&v, false), 0);

    int64_t plane = clips.rows * clips.columns, n = v.channels * clips.latent_frames * plane;
    size_t frames = (size_t)(FRAMES * HEIGHT * WIDTH * 3);
    float *z = malloc((size_t)n * sizeof *z), *again = calloc((size_t)n, sizeof *again);
    float *bytes = malloc((size_t)n * sizeof *bytes);
    uint8_t *rgb = malloc(frames), *plain = malloc(frames);
    assert_true(z && again && bytes && rgb && plain);
    ckpt_fill_normal(1, 0, 0, z, n);
    /* Latent frame 6 is in the second chunk, 11 in the partial one after it. */
    const struct stdit_again a = {.sample = 3, .first = 6, .end = 11, .z = again};
    assert_int_equal(stdit_vae_decode(&v, &clips, z, rgb, &a), 0);
    assert_int_equal(stdit_vae_decode(&v, &clips, z, plain, NULL), 0);
    assert_memory_equal(rgb, plain, frames);
    assert_int_equal(stdit_vae_encode(&v, &clips, 3, rgb, bytes), 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t frame = i / plane % clips.latent_frames;
        if (frame < 5)
            assert_true(again[i] == 0);
        else
            assert_true(fabsf(again[i] - bytes[i]) < 0.05f);
    }
    free(z);
    free(again);
    free(bytes);
    free(rgb);
    free(plain);
    stdit_vae_close(&v);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_again)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
