/* SPDX-License-Identifier: Apache-2.0 */
/* The published tiling of CogVideoX's decoder against diffusers in float64, and the result of the
 * whole frame if one tile covers it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "examples/video/coder.h"
#include "vae_draw.h"

const char say_program[] = "test_vae_tiling";

static char directory[64] = "/tmp/test_tiling.XXXXXX";

static int make_model(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(directory));
    vae_draw_model(directory, &vae_four);
    return 0;
}

static int remove_model(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s/config.json", directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", directory);
    unlink(path);
    return rmdir(directory);
}

static void open_coder(struct video_coder *k)
{
    const char *device = getenv("CKPT_DEVICE");

    *k = (struct video_coder){.options = VIDEO_CODER_INIT};
    k->options.model = directory;
    k->options.dtype = "fp32";
    k->options.library.device = device ? device : "cpu";
    k->shown = true;
    assert_int_equal(video_coder_config(k, &cogvideo_autoencoder, true), 0);
    assert_int_equal(video_coder_open(k), 0);
}

/* Tiles of 6 x 10 cells begin every 5 rows and 8 columns. */
static void test_tiles(void **state)
{
    int64_t latents = 3, height = 9, width = 14, values = 9 * 72 * 112 * 3, n;
    struct video_coder k;
    float *z = malloc((size_t)(latents * height * width * 16) * sizeof *z);
    float *y = malloc((size_t)values * sizeof *y), *e = vae_expected("cogvideo", "tiled", &n);

    (void)state;
    assert_true(z && y);
    open_coder(&k);
    vae_draw("z", 4.f, z, latents * height * width * 16);
    assert_true(video_coder_tiles(&k, height, width));
    assert_int_equal(video_coder_prepare_tiled(&k, latents, height, width), 0);
    assert_int_equal(video_coder_decode_tiled(&k, z, latents, height, width, y), 0);
    assert_int_equal((values + 46) / 47, n);
    double d = vae_difference(y, 47, e, n);
    print_message("tiled: %.1e\n", d);
    assert_true(d < 1e-5);
    video_coder_close(&k);
    free(z);
    free(y);
    free(e);
}

/* A frame no larger than a tile is not blended. */
static void test_one(void **state)
{
    struct video_coder k;

    (void)state;
    open_coder(&k);
    assert_false(video_coder_tiles(&k, 6, 10));
    assert_true(video_coder_tiles(&k, 7, 10));
    assert_true(video_coder_tiles(&k, 6, 11));
    video_coder_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_one),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
