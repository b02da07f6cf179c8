/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 2-D autoencoder on a GPU, in every variant and under several budgets: the same bits.  The
 * widths are Open-Sora's, for which cuDNN has many engines whose selection depends on the picture
 * size.  And which programs are timed first.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "examples/video/vae/tiles.h"

const char say_program[] = "test_gpu_variants";

enum { BUDGETS = 4 };

struct coded {
    struct vae m;
    struct vae_cut cut;
    enum ckpt_dtype dtype;
    bool decode;
    int64_t frames, rows, columns; /* of latents */
    bool several;                  /* budgets take more than one way */
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    struct coded *k = user;
    int64_t scale = k->decode ? 1 : vae_factor(&k->m.config);
    int64_t channels = k->decode ? k->m.config.latent : 3;
    ckpt_tensor x =
        ckpt_input(t, "x", CKPT_F32, 5,
                   (int64_t[]){batch, k->frames, k->rows * scale, k->columns * scale, channels});
    ckpt_tensor y =
        k->decode ? vae_tiled_decode(&k->m, t, x, k->cut) : vae_tiled_encode(&k->m, t, x, k->cut);
    y = ckpt_cast(t, y, CKPT_F32);
    ckpt_output(t, "y", y);
    return y;
}

/* The result of one variant, or of the best of several under a budget; malloc'ed. */
struct result {
    float *y;
    int64_t n;
    int way;
    struct ckpt_program_info info;
};

static struct result run(const struct coded *k, const struct vae_cut *cut, int n, int64_t vram)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct coded user[VAE_CUTS];
    struct ckpt_variant variants[VAE_CUTS];
    struct vae_config config;
    struct ckpt_desc in, out;
    struct vae m;
    struct result r = {0};
    ckpt_program *p;
    ckpt *c;

    o.device = "cuda";
    o.vram = vram;
    assert_true(vae_preset(&config, "v1.2"));
    config.dtype = k->dtype;
    config.trained = 0;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    assert_int_equal(vae_create(&m, c, &config), 0);
    for (int i = 0; i < n; i++) {
        user[i] = *k;
        user[i].m = m;
        user[i].cut = cut[i];
        variants[i] = (struct ckpt_variant){record, &user[i], true};
    }
    if (ckpt_compile_variants(c, n, variants, NULL, 1, &p, &r.way))
        fail_msg("--vram %lld: %s", (long long)vram, ckpt_error(c));
    assert_int_equal(ckpt_program_desc(p, "x", &in), 0);
    assert_int_equal(ckpt_program_desc(p, "y", &out), 0);
    int64_t m_in = in.shape[0] * in.stride[0];
    r.n = out.shape[0] * out.stride[0];
    float *x = malloc((size_t)m_in * sizeof *x);
    r.y = malloc((size_t)r.n * sizeof *r.y);
    assert_true(x && r.y);
    ckpt_fill_normal(5, 0, 0, x, m_in);
    assert_int_equal(ckpt_feed(p, "x", x, m_in * (int64_t)sizeof *x), 0);
    if (ckpt_step(p, NULL))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_fetch(p, "y", r.y, r.n * (int64_t)sizeof *r.y), 0);
    r.info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, &r.info);
    assert_false(r.info.choice_changes_bits);
    ckpt_close(c);
    free(x);
    return r;
}

static int64_t differing(const struct result *a, const struct result *b)
{
    int64_t n = 0;

    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++)
        n += memcmp(&a->y[i], &b->y[i], sizeof *a->y) != 0;
    return n;
}

static void check(const struct coded *k)
{
    struct vae_cut cut[VAE_CUTS];
    const char *what = k->decode ? "decode" : "encode";
    int n = vae_cuts(cut, k->frames, k->rows);
    struct result whole = run(k, cut, 1, 0), least = {0};
    int64_t wrong = 0, taken = 0;

    for (int i = 1; i < n; i++) {
        struct result r = run(k, &cut[i], 1, 0);
        int64_t d = differing(&whole, &r);
        print_message("%s, %d frames at a time in %d bands: %lld of %lld values differ; %.0f MiB, "
                      "%.1f ms predicted\n",
                      what, (int)cut[i].part, (int)cut[i].bands, (long long)d, (long long)r.n,
                      (double)r.info.planned_peak / 1048576, 1e3 * r.info.step_seconds);
        wrong += d;
        free(r.y);
        least = r;
    }
    int64_t high = whole.info.planned_peak + whole.info.overhead_bytes;
    int64_t low = least.info.min_budget + (INT64_C(64) << 20);
    for (int i = 0; i < BUDGETS; i++) {
        int64_t vram = low + (high - low) * i / (BUDGETS - 1);
        struct result r = run(k, cut, n, vram);
        int64_t d = differing(&whole, &r);
        print_message("%s under %.0f MiB: way %d, %lld values differ\n", what,
                      (double)vram / 1048576, r.way, (long long)d);
        wrong += d;
        taken |= INT64_C(1) << r.way;
        free(r.y);
    }
    assert_int_equal(wrong, 0);
    assert_int_equal((taken & (taken - 1)) != 0, k->several);
    free(whole.y);
}

static void test_decode_bf16(void **state)
{
    (void)state;
    check(&(struct coded){.dtype = CKPT_BF16,
                          .decode = true,
                          .frames = 5,
                          .rows = 24,
                          .columns = 40,
                          .several = true});
}

static void test_encode_bf16(void **state)
{
    (void)state;
    check(&(struct coded){
        .dtype = CKPT_BF16, .frames = 5, .rows = 24, .columns = 40, .several = true});
}

static void test_decode_fp32(void **state)
{
    (void)state;
    check(&(struct coded){.dtype = CKPT_F32, .decode = true, .frames = 2, .rows = 4, .columns = 8});
}

/* ---- timing ---------------------------------------------------------------------------------- */

static ckpt_tensor record_sums(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4567});

    (void)user;
    ckpt_output(t, "y", ckpt_sum(t, x, 1u << 1));
    return CKPT_NONE;
}

/* Ops of a program that were timed before it was planned, for so many expected runs. */
static int timed_ops(int64_t runs)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt_program *p;
    char *text = NULL, *at;
    size_t size;
    ckpt *c;

    o.device = "cuda";
    o.runs = runs;
    assert_int_equal(ckpt_open(&c, &o), 0);
    if (ckpt_compile(c, record_sums, NULL, NULL, 3, &p))
        fail_msg("%s", ckpt_error(c));
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    ckpt_plan_print(p, f);
    fclose(f);
    ckpt_close(c);
    at = strstr(text, " ops timed");
    assert_non_null(at);
    while (at > text && *at != ';')
        at--;
    int n = (int)strtol(at + 1, NULL, 10);
    free(text);
    return n;
}

static void test_short_runs(void **state)
{
    (void)state;
    assert_int_equal(timed_ops(1), 0);
    assert_true(timed_ops(0) > 0);
    assert_true(timed_ops(INT64_MAX) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_runs),
        cmocka_unit_test(test_decode_bf16),
        cmocka_unit_test(test_encode_bf16),
        cmocka_unit_test(test_decode_fp32),
    };
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;

    o.device = "cuda";
    if (ckpt_open(&c, &o)) {
        printf("skipped: %s\n", ckpt_error(NULL));
        return 77;
    }
    ckpt_close(c);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
