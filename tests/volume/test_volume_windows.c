/* SPDX-License-Identifier: Apache-2.0 */
/* Windows blended over a volume, against MONAI in float64: see make_windows_reference.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "examples/common/say.h"
#include "examples/volume/windows.h"

const char say_program[] = "test_volume_windows";

enum { D = 7, H = 10, W = 5, VOXELS = D * H * W, CLASSES = 2, PLACES = 4 * 13 * 8 };

static const int64_t size[3] = {D, H, W};
static float image[VOXELS], out[VOXELS * CLASSES];
static int slices;

/* Slices arrive in order, each once. */
static int take(void *user, int64_t slice, const float *scores)
{
    (void)user;
    assert_int_equal(slice, slices);
    slices++;
    memcpy(out + slice * H * W * CLASSES, scores, H * W * CLASSES * sizeof *out);
    return 0;
}

static float voxel(int64_t z, int64_t y, int64_t x)
{
    bool inside = z >= 0 && z < D && y >= 0 && y < H && x >= 0 && x < W;

    return inside ? image[(z * H + y) * W + x] : 0;
}

static void predict(const int64_t at[3], const int64_t n[3], float *scores)
{
    int64_t places = n[0] * n[1] * n[2];

    for (int64_t p = 0; p < places; p++) {
        float x = voxel(at[0] + p / (n[1] * n[2]), at[1] + p / n[2] % n[1], at[2] + p % n[2]);
        for (int c = 0; c < CLASSES; c++)
            scores[p * CLASSES + c] = x * (1 + (float)p / (float)places) * (float)(c + 1);
    }
}

static void blend(const int64_t window[3], double overlap, bool gaussian)
{
    static float scores[PLACES * CLASSES];
    struct windows w;
    int64_t at[3];

    slices = 0;
    assert_int_equal(windows_open(&w, size, window, overlap, gaussian, CLASSES), 0);
    for (int64_t i = 0; i < windows_count(&w); i++) {
        windows_at(&w, i, at);
        predict(at, window, scores);
        assert_int_equal(windows_add(&w, i, scores, take, NULL), 0);
    }
    windows_close(&w);
    assert_int_equal(slices, D);
}

static void check(ckpt_file *f, const char *mode, const char *overlap, const char *name,
                  const int64_t window[3])
{
    static float expected[VOXELS * CLASSES];
    char key[64];

    snprintf(key, sizeof key, "%s.%s.%s", mode, overlap, name);
    int i = ckpt_file_find(f, key);
    assert_int_equal(ckpt_file_read_f32(f, i, expected, VOXELS * CLASSES), 0);
    blend(window, strtod(overlap, NULL), mode[0] == 'g');
    for (int k = 0; k < VOXELS * CLASSES; k++)
        if (!(fabsf(out[k] - expected[k]) <= 2e-5f))
            fail_msg("%s: element %d is %g, not %g", key, k, (double)out[k], (double)expected[k]);
}

static void test_reference(void **state)
{
    static const char *const modes[] = {"constant", "gaussian"}, *const overlaps[] = {"0", "0.25",
                                                                                      "0.75"};
    const char *root = getenv("srcdir");
    char path[4096];
    ckpt_file *f;

    (void)state;
    snprintf(path, sizeof path, "%s/tests/volume/windows.safetensors", root ? root : ".");
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "image"), image, VOXELS), 0);
    for (int m = 0; m < 2; m++)
        for (int o = 0; o < 3; o++) {
            check(f, modes[m], overlaps[o], "inside", (int64_t[]){4, 3, 2});
            check(f, modes[m], overlaps[o], "beyond", (int64_t[]){4, 13, 8});
            check(f, modes[m], overlaps[o], "one", (int64_t[]){7, 10, 5});
        }
    ckpt_file_close(f);
}

/* Published counts: 256^3 by 96^3 at 0.25 are 4^3 windows, at 0.5 5^3. */
static void test_counts(void **state)
{
    const int64_t cube[] = {64, 256, 256}, side[] = {64, 96, 96};
    struct windows w;

    (void)state;
    assert_int_equal(windows_open(&w, cube, side, 0.25, true, 1), 0);
    assert_int_equal(windows_count(&w), 16);
    windows_close(&w);
    assert_int_equal(windows_open(&w, cube, side, 0.5, true, 1), 0);
    assert_int_equal(windows_count(&w), 25);
    windows_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_counts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
