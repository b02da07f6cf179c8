/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of the autoencoder of Open-Sora 1.2: the counts of its four parts, and every name
 * and shape in files.  The weights of the tiny model are written and read back bit for bit.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "context/context.h"
#include "examples/video/vae/model.h"
#include "state/safetensors.h"

static ckpt *create(struct vae *m, const char *preset, int64_t seed)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct vae_config config;
    ckpt *c;

    opt.seed = seed;
    opt.device = "cpu";
    assert_true(vae_preset(&config, preset));
    config.trained = VAE_ALL;
    assert_int_equal(ckpt_open(&c, &opt), 0);
    assert_int_equal(vae_create(m, c, &config), 0);
    return c;
}

/* ---- counts -------------------------------------------------------------------------------- */

static int part_of(const char *name)
{
    bool decoder = strstr(name, "decoder.") || strstr(name, "post_quant_conv");

    return (strncmp(name, "temporal_vae.", 13) ? 0 : 2) + decoder;
}

static void test_counts(void **state)
{
    static const int64_t expected[] = {34163664, 49490199, 144421200, 165265944};
    int64_t count[4] = {0};
    struct vae m;
    ckpt *c = create(&m, "v1.2", 1);

    (void)state;
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, ckpt_param_at(c, i), &info);
        if (info.trainable)
            count[part_of(info.name)] += info.numel;
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(count[i], expected[i]);
    ckpt_close(c);
}

/* Frozen parameters are buffers. */
static void test_frozen(void **state)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct vae_config config;
    struct vae m;
    ckpt *c;

    (void)state;
    vae_preset(&config, "tiny");
    config.trained = VAE_TEMPORAL;
    assert_int_equal(ckpt_open(&c, &opt), 0);
    assert_int_equal(vae_create(&m, c, &config), 0);
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, ckpt_param_at(c, i), &info);
        assert_int_equal(info.trainable, !strncmp(info.name, "temporal_vae.", 13));
    }
    ckpt_close(c);
}

/* ---- names and shapes ---------------------------------------------------------------------- */

/* "name 512x512x3x3" of the i-th parameter, in the order of files. */
static void describe(const ckpt *c, int i, char *line, size_t size)
{
    const struct param *p = &c->params.data[i];
    struct ckpt_desc d = param_file_desc(p);
    size_t n = (size_t)snprintf(line, size, "%s ", p->name);

    for (int k = 0; k < d.ndim; k++)
        n += (size_t)snprintf(line + n, size - n, "%s%lld", k ? "x" : "", (long long)d.shape[k]);
}

static void test_keys(void **state)
{
    const char *srcdir = getenv("srcdir");
    char path[512], line[256], have[256];
    struct vae m;
    ckpt *c = create(&m, "v1.2", 1);
    int n = ckpt_param_count(c), found = 0, lines = 0;

    (void)state;
    snprintf(path, sizeof path, "%s/tests/model/vae_keys.txt", srcdir ? srcdir : ".");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        lines++;
        for (int i = 0; i < n; i++) {
            describe(c, i, have, sizeof have);
            found += !strcmp(have, line);
        }
        if (found != lines)
            fail_msg("there is no parameter %s", line);
    }
    fclose(f);
    assert_int_equal(n, lines);
    ckpt_close(c);
}

/* ---- out and in again ---------------------------------------------------------------------- */

static char file[] = "test_vae_keys.tmp.safetensors";

static float *values(ckpt *c, int i, int64_t *n)
{
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;

    ckpt_param_info(c, ckpt_param_at(c, i), &info);
    float *x = malloc((size_t)info.numel * sizeof *x);
    assert_non_null(x);
    assert_int_equal(ckpt_param_get(c, ckpt_param_at(c, i), CKPT_VALUE, x, info.numel), 0);
    *n = info.numel;
    return x;
}

static void test_round_trip(void **state)
{
    struct vae m;
    ckpt *a = create(&m, "tiny", 1), *b = create(&m, "tiny", 2);
    int unmatched = -1;

    (void)state;
    assert_int_equal(ckpt_save_params(a, file, CKPT_VALUE), 0);
    assert_int_equal(ckpt_load_params(b, file, NULL, NULL, &unmatched), 0);
    assert_int_equal(unmatched, 0);
    for (int i = 0; i < ckpt_param_count(a); i++) {
        int64_t n;
        float *x = values(a, i, &n), *y = values(b, i, &n);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        free(x);
        free(y);
    }
    ckpt_close(a);
    ckpt_close(b);
    unlink(file);
}

/* Kernels in files have their channels before their positions: x[k][c][p] is w[k][p][c] here. */
static void test_kernel_order(void **state)
{
    struct vae m;
    ckpt *c = create(&m, "tiny", 1);
    const char *name = "temporal_vae.encoder.conv_in.conv.weight";
    ckpt_tensor w;
    ckpt_file *f;

    (void)state;
    assert_int_equal(ckpt_param_find(c, name, &w), 0);
    struct ckpt_desc d = params_at(&c->params, w)->desc;
    int64_t n = desc_numel(&d), out = d.shape[0], in = d.shape[4];
    float *own = malloc((size_t)n * sizeof *own), *there = malloc((size_t)n * sizeof *there);
    assert_true(own && there);
    assert_int_equal(ckpt_save_params(c, file, CKPT_VALUE), 0);
    assert_int_equal(ckpt_param_get(c, w, CKPT_VALUE, own, n), 0);
    assert_int_equal(ckpt_file_open(&f, file), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, name), there, n), 0);
    for (int64_t k = 0; k < out; k++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t p = 0; p < 27; p++)
                assert_true(there[(k * in + i) * 27 + p] == own[(k * 27 + p) * in + i]);
    ckpt_file_close(f);
    free(own);
    free(there);
    ckpt_close(c);
    unlink(file);
}

/* ---- frames -------------------------------------------------------------------------------- */

static void test_frames(void **state)
{
    (void)state;
    assert_int_equal(vae_latent_frames(1, VAE_CHUNK), 1);
    assert_int_equal(vae_latent_frames(17, VAE_CHUNK), 5);
    assert_int_equal(vae_latent_frames(51, VAE_CHUNK), 15);
    assert_int_equal(vae_latent_frames(20, VAE_CHUNK), 6);
    assert_int_equal(vae_latent_frames(33, 0), 9);
}

/* The outputs of a program that encodes and decodes clips of this many frames. */
struct trip {
    const struct vae *m;
    int64_t frames;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct trip *r = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 5, (int64_t[]){batch, r->frames, 16, 8, 3});
    struct vae_posterior p = vae_posterior(t, vae_spatial_encode(r->m, t, x, 4));
    ckpt_tensor z = ckpt_affine(t, vae_sample(t, &p, CKPT_NONE), VAE_FACTOR, 0.f);
    p = vae_posterior(t, vae_temporal_encode(r->m, t, z, VAE_CHUNK));
    ckpt_output(t, "z", p.mean);
    ckpt_tensor y = vae_temporal_decode(r->m, t, p.mean, r->frames, VAE_CHUNK);
    y = vae_spatial_decode(r->m, t, y, 4);
    ckpt_output(t, "y", y);
    return y;
}

static void check_trip(int64_t frames, int64_t latents)
{
    struct vae m;
    ckpt *c = create(&m, "tiny", 1);
    ckpt_program *p;
    struct ckpt_desc z, y;

    if (ckpt_compile(c, record, &(struct trip){&m, frames}, NULL, 1, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_program_desc(p, "z", &z), 0);
    assert_int_equal(ckpt_program_desc(p, "y", &y), 0);
    const int64_t expected[] = {1, latents, 2, 1, 4}, clip[] = {1, frames, 16, 8, 3};
    assert_memory_equal(z.shape, expected, sizeof expected);
    assert_memory_equal(y.shape, clip, sizeof clip);
    ckpt_close(c);
}

static void test_trips(void **state)
{
    (void)state;
    check_trip(1, 1);
    check_trip(17, 5);
    check_trip(51, 15);
    check_trip(19, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),       cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_keys),         cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_kernel_order), cmocka_unit_test(test_frames),
        cmocka_unit_test(test_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
