/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bands of the 2-D autoencoder: every cut gives the bits of the whole frame, and narrower bands
 * need less memory.
 */
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "examples/video/vae/tiles.h"

const char say_program[] = "test_vae_tiles";

struct coded {
    struct vae m;
    struct vae_cut cut;
    int64_t frames, height, width; /* of the frames, or of the latents */
    bool decode;
    float slope;   /* from above to below: bands differ */
    int64_t first; /* row of a larger plane that x begins with */
    enum ckpt_dtype dtype;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    struct coded *k = user;
    int64_t channels = k->decode ? k->m.config.latent : 3;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 5,
                               (int64_t[]){batch, k->frames, k->height, k->width, channels});
    ckpt_tensor y =
        k->decode ? vae_tiled_decode(&k->m, t, x, k->cut) : vae_tiled_encode(&k->m, t, x, k->cut);
    y = ckpt_cast(t, y, CKPT_F32);
    ckpt_output(t, "y", y);
    return y;
}

static ckpt *open_model(struct coded *k, int64_t vram, bool plan_only)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct vae_config config;
    ckpt *c;

    o.device = "cpu";
    o.vram = vram;
    o.plan_only = plan_only;
    o.verify = !plan_only;
    assert_true(vae_preset(&config, "tiny"));
    config.dtype = k->dtype;
    assert_int_equal(ckpt_open(&c, &o), 0);
    assert_int_equal(vae_create(&k->m, c, &config), 0);
    return c;
}

static int64_t elements(const struct ckpt_desc *d)
{
    int64_t n = 1;

    for (int i = 0; i < d->ndim; i++)
        n *= d->shape[i];
    return n;
}

/* The result with one cut, malloc'ed. */
static float *result_of(struct coded *k, struct vae_cut cut, int64_t *n)
{
    ckpt *c = open_model(k, 0, false);
    ckpt_program *p;
    struct ckpt_desc in, out;

    k->cut = cut;
    if (ckpt_compile(c, record, k, NULL, 1, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_program_desc(p, "x", &in), 0);
    assert_int_equal(ckpt_program_desc(p, "y", &out), 0);
    int64_t m = elements(&in);
    float *x = malloc((size_t)m * sizeof *x), *y = malloc((size_t)elements(&out) * sizeof *y);
    assert_true(x && y);
    int64_t before = k->first * m / (k->frames * k->height);
    float *all = malloc((size_t)(before + m) * sizeof *all);
    assert_non_null(all);
    ckpt_fill_normal(3, 0, 0, all, before + m);
    memcpy(x, all + before, (size_t)m * sizeof *x);
    free(all);
    for (int64_t i = 0; i < m; i++)
        x[i] = 0.3f * x[i] + k->slope * (float)i / (float)m;
    *n = elements(&out);
    assert_int_equal(ckpt_feed(p, "x", x, m * (int64_t)sizeof *x), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_fetch(p, "y", y, *n * (int64_t)sizeof *y), 0);
    ckpt_close(c);
    free(x);
    return y;
}

static void check_cuts(struct coded *k)
{
    static const struct vae_cut cuts[] = {{1, 1, false}, {2, 3, false}, {0, 1000, false}};
    int64_t n, m;
    float *whole = result_of(k, (struct vae_cut){0, 1, false}, &n);
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(whole[i]));
    assert_true(most > 0.01f);
    for (size_t j = 0; j < sizeof cuts / sizeof *cuts; j++) {
        float *y = result_of(k, cuts[j], &m);
        int64_t differ = 0;
        assert_int_equal(m, n);
        for (int64_t i = 0; i < n; i++)
            differ += memcmp(&y[i], &whole[i], sizeof *y) != 0;
        print_message("%s, %d frames at a time in %d bands: %lld of %lld values differ\n",
                      k->decode ? "decode" : "encode", (int)cuts[j].part, (int)cuts[j].bands,
                      (long long)differ, (long long)n);
        assert_int_equal(differ, 0);
        free(y);
    }
    free(whole);
}

static void test_encode(void **state)
{
    struct coded k = {.frames = 3, .height = 40, .width = 24, .slope = 2};

    (void)state;
    check_cuts(&k);
}

static void test_decode(void **state)
{
    struct coded k = {.frames = 3, .height = 7, .width = 4, .decode = true, .slope = 2};

    (void)state;
    check_cuts(&k);
    k.dtype = CKPT_BF16;
    k.width = 5; /* rows that no tile of a product divides */
    check_cuts(&k);
}

/* The mean difference of two results, divided by the mean magnitude of the first. */
static double mean_difference(const float *whole, const float *y, int64_t n)
{
    double difference = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        difference += (double)fabsf(y[i] - whole[i]);
        size += (double)fabsf(whole[i]);
    }
    return difference / size;
}

/* Two bands of 8 rows of latents that overlap by one row: each alone, and their blend in the
 * overlap. */
static void check_mixture(struct coded *k, const float *y, int64_t n)
{
    enum { ROWS = 16, FROM = 7, TO = 9 };
    int64_t band, height = k->height, each = n / ROWS; /* results for a row of latents */
    int64_t lines = k->decode ? 8 : 1, line = each / lines;
    struct vae_cut whole = {0, 1, false};

    k->height = height / ROWS * TO;
    k->first = 0;
    float *above = result_of(k, whole, &band);
    assert_int_equal(band, TO * each);
    k->first = height / ROWS * FROM;
    float *below = result_of(k, whole, &band);
    k->first = 0;
    k->height = height;
    for (int64_t i = 0; i < n; i++) {
        float share = ((float)(i / line - FROM * lines) + 0.5f) / (float)(2 * lines);
        float want = i < FROM * each  ? above[i]
                     : i >= TO * each ? below[i - FROM * each]
                                      : above[i] + share * (below[i - FROM * each] - above[i]);
        assert_true(fabsf(y[i] - want) <= 1e-5f * fmaxf(1.f, fabsf(want)));
    }
    free(above);
    free(below);
}

/* Blended bands are near the result of the whole frame but not equal; a plane too low to be cut is
 * equal. */
static void check_blend(struct coded *k)
{
    struct vae_cut whole = {0, 1, false}, two = {0, 2, true};
    int64_t n, m;
    float *x = result_of(k, whole, &n), *y = result_of(k, two, &m);
    double off = mean_difference(x, y, n);

    assert_int_equal(m, n);
    print_message("%s, 2 blended bands: off by %.3f\n", k->decode ? "decode" : "encode", off);
    assert_true(off > 1e-3 && off < 0.7);
    check_mixture(k, y, n);
    free(x);
    free(y);
    k->height = k->height / 16 * 3;
    x = result_of(k, whole, &n);
    y = result_of(k, two, &m);
    assert_memory_equal(x, y, (size_t)n * sizeof *y);
    free(x);
    free(y);
}

static void test_blend(void **state)
{
    struct coded encode = {.frames = 1, .height = 16 * 8, .width = 16};
    struct coded decode = {.frames = 1, .height = 16, .width = 2, .decode = true};

    (void)state;
    check_blend(&encode);
    check_blend(&decode);
}

/* ---- memory -------------------------------------------------------------------------------- */

static int64_t peak_of(struct coded *k, struct vae_cut cut)
{
    ckpt *c = open_model(k, 0, true);
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;

    k->cut = cut;
    assert_int_equal(ckpt_compile(c, record, k, NULL, 1, &p), 0);
    ckpt_program_info(p, &info);
    ckpt_close(c);
    return info.planned_peak;
}

/* Fewer frames at a time need less memory, bands need less, and a budget selects the cut that fits.
 * */
static void check_memory(struct coded *k)
{
    struct vae_cut cut[VAE_CUTS];
    struct coded user[VAE_CUTS];
    struct ckpt_variant variants[VAE_CUTS];
    int n = vae_cuts(cut, k->frames, k->decode ? k->height : k->height / 8), way;
    int64_t last = INT64_MAX, peak[VAE_CUTS] = {0};
    ckpt_program *p;

    assert_true(n >= 5);
    for (int i = 0; i < n; i++) {
        peak[i] = peak_of(k, cut[i]);
        print_message("%s, %d frames at a time in %d bands: peak %lld bytes\n",
                      k->decode ? "decode" : "encode", (int)cut[i].part, (int)cut[i].bands,
                      (long long)peak[i]);
        assert_true(cut[i].bands > 2 || peak[i] < last);
        last = peak[i];
    }
    ckpt *c = open_model(k, peak[n - 1], true);
    for (int i = 0; i < n; i++) {
        user[i] = *k;
        user[i].m = k->m;
        user[i].cut = cut[i];
        variants[i] = (struct ckpt_variant){record, &user[i], true};
    }
    if (ckpt_compile_variants(c, n, variants, NULL, 1, &p, &way))
        fail_msg("%s", ckpt_error(c));
    assert_true(way >= n - 2);
    ckpt_close(c);
}

static void test_memory(void **state)
{
    struct coded encode = {.frames = 2, .height = 64, .width = 128};
    struct coded decode = {.frames = 2, .height = 8, .width = 16, .decode = true};

    (void)state;
    check_memory(&encode);
    check_memory(&decode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_blend),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
