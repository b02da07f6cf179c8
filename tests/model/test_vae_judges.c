/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures of an autoencoder: LPIPS against its definition in double precision, invalid LPIPS
 * files, and the codebook that follows its rows.
 */
#include <math.h>
#include <string.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "examples/video/vae/lpips.h"
#include "examples/video/vae/quantizer.h"
#include "ops/reference.h"
#include "unit/test_directory.h"

const char say_program[] = "test_vae_judges";

/* ---- LPIPS --------------------------------------------------------------------------------- */

enum { FRAMES = 2, SIDE = 17, PIXELS = FRAMES * SIDE * SIDE * 3 };

static const int layer[LPIPS_CONVS] = {0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28};
static const int64_t width[LPIPS_CONVS] = {64,  64,  128, 128, 256, 256, 256,
                                           512, 512, 512, 512, 512, 512};
/* The distance that is measured after a convolution, or -1. */
static const int tap[LPIPS_CONVS] = {-1, 0, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4};

struct vgg {
    float *weight[LPIPS_CONVS], *bias[LPIPS_CONVS], *lin[LPIPS_TAPS];
};

static float *drawn(int64_t n, float scale, uint32_t stream)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    ckpt_fill_normal(11, 0, stream, x, n);
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
    return x;
}

static struct vgg draw_vgg(void)
{
    struct vgg v;
    int64_t in = 3;
    for (int i = 0; i < LPIPS_CONVS; i++) {
        v.weight[i] = drawn(width[i] * in * 9, sqrtf(2.f / (float)(9 * in)), (uint32_t)(3 * i));
        v.bias[i] = drawn(width[i], 0.1f, (uint32_t)(3 * i + 1));
        in = width[i];
        if (tap[i] < 0)
            continue;
        v.lin[tap[i]] = drawn(in, 1.f, (uint32_t)(3 * i + 2));
        for (int64_t j = 0; j < in; j++)
            v.lin[tap[i]][j] = fabsf(v.lin[tap[i]][j]);
    }
    return v;
}

static void free_vgg(struct vgg *v)
{
    for (int i = 0; i < LPIPS_CONVS; i++) {
        free(v->weight[i]);
        free(v->bias[i]);
    }
    for (int i = 0; i < LPIPS_TAPS; i++)
        free(v->lin[i]);
}

/* The prefix before the number of a layer: torchvision's names, or those of the lpips package by
 * slices, each up to a distance. */
static const char *const torchvision[LPIPS_TAPS] = {"features", "features", "features", "features",
                                                    "features"};
static const char *const package[LPIPS_TAPS] = {"net.slice1", "net.slice2", "net.slice3",
                                                "net.slice4", "net.slice5"};

/* Writes the file without the tensor of this name; NULL: the complete file. */
static void write_vgg(const struct vgg *v, const char *const *names, const char *without)
{
    ckpt_file_writer *w;
    int64_t in = 3;
    int slice = 0;
    assert_int_equal(ckpt_file_create(&w, path), 0);
    for (int i = 0; i < LPIPS_CONVS; i++) {
        char name[64];
        int64_t shape[] = {width[i], in, 3, 3}, flat[] = {1, width[i], 1, 1};
        snprintf(name, sizeof name, "%s.%d.weight", names[slice], layer[i]);
        if (!without || strcmp(name, without))
            assert_int_equal(ckpt_file_add(w, name, CKPT_F32, 4, shape, v->weight[i]), 0);
        snprintf(name, sizeof name, "%s.%d.bias", names[slice], layer[i]);
        slice += tap[i] >= 0;
        assert_int_equal(ckpt_file_add(w, name, CKPT_F32, 1, shape, v->bias[i]), 0);
        snprintf(name, sizeof name, "lin%d.model.1.weight", tap[i]);
        if (tap[i] >= 0)
            assert_int_equal(ckpt_file_add(w, name, CKPT_F32, 4, flat, v->lin[tap[i]]), 0);
        in = width[i];
    }
    assert_int_equal(ckpt_file_commit(w), 0);
}

/* Features after every distance, of frames [T, H, W, 3] in fp64. */
static void features(const struct vgg *v, const double *pixels, struct array *out)
{
    static const double mean[] = {-.030, -.088, -.188}, spread[] = {.458, .448, .450};
    static const struct op_attr padded = {.conv = {{1, 1, 1}, {0, 1, 1}, {0, 1, 1}}};
    static const struct op_attr halved = {.size = {2, 2}};
    struct array in[3], y;
    int64_t channels = 3;
    array_init(&in[0], 4, (int64_t[]){FRAMES, SIDE, SIDE, 3});
    for (int64_t i = 0; i < PIXELS; i++)
        in[0].x[i] = (pixels[i] - mean[i % 3]) / spread[i % 3];
    for (int i = 0; i < LPIPS_CONVS; i++) {
        array_init(&in[1], 4, (int64_t[]){width[i], 3, 3, channels});
        array_init(&in[2], 1, &width[i]);
        for (int64_t j = 0; j < in[1].n; j++) { /* files hold [K, C, 3, 3] */
            int64_t c = j % channels, at = j / channels % 9, k = j / channels / 9;
            in[1].x[j] = (double)v->weight[i][(k * channels + c) * 9 + at];
        }
        for (int64_t j = 0; j < width[i]; j++)
            in[2].x[j] = (double)v->bias[i][j];
        ref_conv(in, &y, &padded);
        for (int k = 0; k < 3; k++)
            array_free(&in[k]);
        ref_relu(&y, &in[0], NULL);
        array_free(&y);
        channels = width[i];
        if (tap[i] < 0)
            continue;
        out[tap[i]] = in[0];
        if (i + 1 < LPIPS_CONVS)
            ref_max_pool(&out[tap[i]], &in[0], &halved);
    }
}

static double reference(const struct vgg *v, struct array *of_x, const double *y)
{
    struct array of_y[LPIPS_TAPS], in[3], one;
    double sum = 0;
    features(v, y, of_y);
    for (int i = 0; i < LPIPS_TAPS; i++) {
        int64_t c = of_y[i].shape[3];
        in[0] = of_y[i];
        in[1] = of_x[i];
        array_init(&in[2], 1, &c);
        for (int64_t j = 0; j < c; j++)
            in[2].x[j] = (double)v->lin[i][j];
        ref_feature_distance(in, &one, NULL);
        sum += one.x[0];
        array_free(&one);
        array_free(&in[2]);
        array_free(&of_y[i]);
    }
    return sum;
}

struct judged {
    struct vae_lpips lpips;
    ckpt_tensor y;
    const float *x;
    int64_t part;
};

static ckpt_tensor record_lpips(ckpt_tape *t, int64_t batch, void *user)
{
    struct judged *j = user;
    const int64_t shape[] = {1, FRAMES, SIDE, SIDE, 3};
    (void)batch;
    ckpt_output_gradient(t, "dy", j->y);
    return vae_lpips(&j->lpips, t, ckpt_constant(t, "x", CKPT_F32, 5, shape, j->x), j->y, j->part);
}

/* Loss and gradient with respect to y, `part` frames at a time. */
static float run_lpips(struct judged *j, const float *y, float *dy)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    const int64_t shape[] = {1, FRAMES, SIDE, SIDE, 3};
    ckpt *c;
    ckpt_program *p;
    float loss;
    assert_int_equal(ckpt_open(&c, NULL), 0);
    j->y = ckpt_param(c, "y", CKPT_F32, 5, shape, CKPT_ZEROS, true);
    assert_int_equal(ckpt_param_set(c, j->y, CKPT_VALUE, y, PIXELS), 0);
    if (ckpt_compile(c, record_lpips, j, ckpt_adamw(c, &adamw), 1, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_step(p, &loss), 0);
    assert_int_equal(ckpt_fetch(p, "dy", dy, PIXELS * (int64_t)sizeof *dy), 0);
    ckpt_close(c);
    return loss;
}

static void test_lpips(void **state)
{
    struct vgg v = draw_vgg();
    float *x = drawn(PIXELS, 0.5f, 100), *y = drawn(PIXELS, 0.5f, 101), *dy = drawn(PIXELS, 1, 102);
    float *along = drawn(PIXELS, 1.f, 103), *again = drawn(PIXELS, 1, 104);
    double *wide = calloc(PIXELS, sizeof *wide), slope = 0, found[2], h = 1e-8; /* few kinks */
    struct array of_x[LPIPS_TAPS];
    struct judged j = {.x = x};

    (void)state;
    write_vgg(&v, torchvision, NULL);
    assert_int_equal(vae_lpips_load(&j.lpips, path, CKPT_F32), 0);
    double loss = (double)run_lpips(&j, y, dy);
    for (int i = 0; i < PIXELS; i++) {
        wide[i] = (double)x[i];
        slope += (double)along[i] * (double)dy[i];
    }
    features(&v, wide, of_x);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < PIXELS; i++)
            wide[i] = (double)y[i] + (side ? h : -h) * (double)along[i];
        found[side] = reference(&v, of_x, wide);
    }
    print_message("LPIPS %.7f, by definition %.7f; along a line %.6f and %.6f\n", loss,
                  (found[0] + found[1]) / 2, slope, (found[1] - found[0]) / (2 * h));
    assert_true(fabs(loss - (found[0] + found[1]) / 2) < 1e-5 * loss);
    assert_true(fabs(slope - (found[1] - found[0]) / (2 * h)) < 1e-4 * fabs(slope) + 1e-6);
    vae_lpips_free(&j.lpips);
    write_vgg(&v, package, NULL);
    assert_int_equal(vae_lpips_load(&j.lpips, path, CKPT_F32), 0);
    j.part = 1;
    assert_true(fabs((double)run_lpips(&j, y, again) - loss) < 1e-6 * loss);
    for (int i = 0; i < PIXELS; i++)
        assert_true(fabsf(again[i] - dy[i]) < 1e-4f * fabsf(dy[i]) + 1e-7f);
    for (int i = 0; i < LPIPS_TAPS; i++)
        array_free(&of_x[i]);
    vae_lpips_free(&j.lpips);
    free_vgg(&v);
    free(x), free(y), free(dy), free(along), free(again), free(wide);
}

/* A file that lacks one tensor, and one whose first layer has one channel. */
static void test_wrong_files(void **state)
{
    struct vgg v = draw_vgg();
    struct vae_lpips l;
    ckpt_file_writer *w;
    (void)state;
    write_vgg(&v, torchvision, "features.17.weight");
    assert_int_equal(vae_lpips_load(&l, path, CKPT_BF16), -1);
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(
        ckpt_file_add(w, "features.0.weight", CKPT_F32, 4, (int64_t[]){64, 1, 3, 3}, v.weight[0]),
        0);
    assert_int_equal(ckpt_file_commit(w), 0);
    assert_int_equal(vae_lpips_load(&l, path, CKPT_F32), -1);
    assert_int_equal(vae_lpips_load(&l, "none.safetensors", CKPT_F32), -1);
    free_vgg(&v);
}

/* ---- the codebook -------------------------------------------------------------------------- */

enum { ROWS = 64, ENTRIES = 8, WIDTH = 2 };

struct coded {
    struct vae_quantizer q;
    ckpt *c;
    ckpt_program *p;
    float z[ROWS * WIDTH];
};

static ckpt_tensor record_coded(ckpt_tape *t, int64_t batch, void *user)
{
    struct coded *k = user;
    ckpt_tensor commitment;
    ckpt_tensor z = ckpt_input(t, "z", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    vae_quantizer_record(&k->q, t, z, &commitment);
    return commitment;
}

static void open_coded(struct coded *k, int64_t micro)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.micro_batch = micro;
    assert_int_equal(ckpt_open(&k->c, &o), 0);
    assert_int_equal(vae_quantizer_create(&k->q, k->c, ENTRIES, WIDTH, 0.9, 5), 0);
    if (ckpt_compile(k->c, record_coded, k, NULL, ROWS, &k->p))
        fail_msg("%s", ckpt_error(k->c));
}

/* A step with rows around four points. */
static float step_coded(struct coded *k, int step, struct vae_codes *codes)
{
    float *z = k->z, loss;
    ckpt_fill_normal(7, (uint64_t)step, 0, z, ROWS * WIDTH);
    for (int i = 0; i < ROWS * WIDTH; i++)
        z[i] = 0.1f * z[i] + (i / WIDTH % 4 / (i % WIDTH ? 2 : 1) % 2 ? 1.5f : -1.5f);
    assert_int_equal(ckpt_feed(k->p, "z", z, sizeof k->z), 0);
    assert_int_equal(ckpt_step(k->p, &loss), 0);
    assert_int_equal(vae_quantizer_update(&k->q, k->c, k->p, step, codes), 0);
    return loss;
}

static void get_book(const struct coded *k, float *book)
{
    assert_int_equal(ckpt_param_get(k->c, k->q.book, CKPT_VALUE, book, ENTRIES * WIDTH), 0);
}

/* The codebook in double precision. */
struct codebook {
    double book[ENTRIES * WIDTH], count[ENTRIES], total[ENTRIES * WIDTH];
};

/* The entry has moved to a row that no other entry has. */
static void check_moved(struct codebook *w, int entry, const float *place, const float *z,
                        bool *taken)
{
    int r = 0;
    while (r < ROWS && (taken[r] || memcmp(place, z + r * WIDTH, WIDTH * sizeof *z)))
        r++;
    assert_true(r < ROWS);
    taken[r] = true;
    w->count[entry] = ROWS / (double)ENTRIES;
    for (int j = 0; j < WIDTH; j++) {
        w->book[entry * WIDTH + j] = (double)z[r * WIDTH + j];
        w->total[entry * WIDTH + j] = w->count[entry] * (double)z[r * WIDTH + j];
    }
}

/* The same update; book is the result of the step.  Returns how many entries were dead. */
static int follow(struct codebook *w, const float *z, const float *book)
{
    double n[ENTRIES] = {0}, sum[ENTRIES * WIDTH] = {0};
    struct array entries = {.ndim = 2, .shape = {ENTRIES, WIDTH}, .x = w->book};
    bool taken[ROWS] = {false};
    int dead = 0;
    for (int r = 0; r < ROWS; r++) {
        double row[WIDTH] = {(double)z[r * WIDTH], (double)z[r * WIDTH + 1]}, least;
        int64_t k = ref_nearest(&entries, row, &least);
        n[k]++;
        for (int j = 0; j < WIDTH; j++)
            sum[k * WIDTH + j] += row[j];
    }
    for (int k = 0; k < ENTRIES; k++) {
        w->count[k] = 0.9 * w->count[k] + 0.1 * n[k];
        for (int j = k * WIDTH; j < (k + 1) * WIDTH; j++) {
            w->total[j] = 0.9 * w->total[j] + 0.1 * sum[j];
            w->book[j] = n[k] > 0 ? w->total[j] / w->count[k] : w->book[j];
        }
        if (w->count[k] >= 0.3 * ROWS / ENTRIES)
            continue;
        check_moved(w, k, book + k * WIDTH, z, taken);
        dead++;
    }
    return dead;
}

/* The codebook approaches the rows, whatever the size of micro-steps. */
static void check_codebook(int64_t micro, float *book)
{
    struct coded k;
    struct codebook w = {.count = {0}};
    float first = 0, loss = 0;
    double worst = 0;
    open_coded(&k, micro);
    get_book(&k, book);
    for (int i = 0; i < ENTRIES * WIDTH; i++)
        w.book[i] = (double)book[i];
    for (int step = 0; step < 40; step++) {
        struct vae_codes codes;
        loss = step_coded(&k, step, &codes);
        first = step ? first : loss;
        get_book(&k, book);
        assert_int_equal(codes.moved, follow(&w, k.z, book));
        assert_true(codes.used >= 1 && codes.used <= ENTRIES);
        assert_true(codes.perplexity >= 1 && codes.perplexity <= (double)codes.used * 1.000001);
    }
    for (int i = 0; i < ENTRIES * WIDTH; i++)
        worst = fmax(worst, fabs((double)book[i] - w.book[i]));
    print_message("commitment %.4f -> %.4f, codebook off by %.1e\n", (double)first, (double)loss,
                  worst);
    assert_true(worst < 1e-4);
    assert_true(loss < 0.5f * first);
    ckpt_close(k.c);
}

static void test_codebook(void **state)
{
    float book[ENTRIES * WIDTH], pieces[ENTRIES * WIDTH];
    (void)state;
    check_codebook(ROWS, book);
    check_codebook(ROWS / 4, pieces);
    assert_memory_equal(book, pieces, sizeof book);
}

/* All entries but one are far away, as if rows had been near them: they are replaced when that is
 * long enough ago, and in the end all have rows. */
static void test_dead_entries(void **state)
{
    float book[ENTRIES * WIDTH], count[ENTRIES], total[ENTRIES * WIDTH];
    struct vae_codes codes;
    struct coded k;
    int64_t moved = 0;
    (void)state;
    open_coded(&k, ROWS);
    for (int i = 0; i < ENTRIES * WIDTH; i++) {
        count[i / WIDTH] = ROWS / ENTRIES;
        book[i] = i < WIDTH ? 0 : 1e3f;
        total[i] = count[i / WIDTH] * book[i];
    }
    assert_int_equal(ckpt_param_set(k.c, k.q.book, CKPT_VALUE, book, ENTRIES * WIDTH), 0);
    assert_int_equal(ckpt_param_set(k.c, k.q.count, CKPT_VALUE, count, ENTRIES), 0);
    assert_int_equal(ckpt_param_set(k.c, k.q.total, CKPT_VALUE, total, ENTRIES * WIDTH), 0);
    for (int step = 0; step < 60; step++) {
        step_coded(&k, step, &codes);
        moved += codes.moved;
        if (step < 10)
            assert_true(codes.used == 1 && !moved && fabs(codes.perplexity - 1) < 1e-12);
    }
    assert_true(moved >= ENTRIES - 1);
    assert_int_equal(codes.used, ENTRIES);
    assert_true(codes.perplexity > ENTRIES / 2);
    ckpt_close(k.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lpips),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_codebook),
        cmocka_unit_test(test_dead_entries),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
