/* SPDX-License-Identifier: Apache-2.0 */
/* See vae_draw.h. */
#include "vae_draw.h"
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_files.h"

const struct vae_drawn vae_four = {4, {32, 32, 64, 64}, 1, 32};
const struct vae_drawn vae_three = {3, {16, 16, 32}, 2, 8};

static uint32_t fnv(const char *text)
{
    uint32_t h = 2166136261u;

    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 16777619u;
    return h;
}

static double number(uint32_t name, int64_t i)
{
    uint32_t x = (uint32_t)(i + 1) * 2654435761u + name;

    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    x ^= x >> 16;
    return (double)(x >> 8) / 16777216 - 0.5;
}

void vae_draw(const char *name, float scale, float *dst, int64_t n)
{
    uint32_t h = fnv(name);

    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)((double)scale * number(h, i));
}

void vae_draw_config(const char *dir, const struct vae_drawn *d)
{
    char path[256];

    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"_class_name\": \"AutoencoderKLCogVideoX\", \"scaling_factor\": 0.7,\n");
    fprintf(f, " \"layers_per_block\": %lld, \"norm_num_groups\": %lld,\n", (long long)d->layers,
            (long long)d->groups);
    fprintf(f, " \"sample_height\": 96, \"sample_width\": 160, \"shift_factor\": null,\n");
    fprintf(f, " \"block_out_channels\": [");
    for (int i = 0; i < d->levels; i++)
        fprintf(f, "%s%lld", i ? ", " : "", (long long)d->width[i]);
    fprintf(f, "]}\n");
    assert_int_equal(fclose(f), 0);
}

/* [out, kernel..., in] -> [out, in, kernel...]; returns the axes. */
static int file_shape(const struct ckpt_desc *d, int64_t shape[CKPT_MAX_DIMS])
{
    shape[0] = d->shape[0];
    for (int i = 1; i < d->ndim; i++)
        shape[i] = d->shape[i == 1 ? d->ndim - 1 : i - 1];
    return d->ndim;
}

static void draw_weight(const char *name, const struct ckpt_param_info *info, float *x)
{
    bool map = strstr(name, "norm") && !strstr(name, "conv");
    const char *end = strrchr(name, '.');
    int64_t fan = info->desc.ndim > 1 ? info->numel / info->desc.shape[0] : 1;
    float scale = 4.f;

    if (info->desc.ndim > 1) {
        while (scale * scale * (float)fan > 16.f)
            scale /= 2;
        vae_draw(name, scale, x, info->numel);
        return;
    }
    map = map && (!strcmp(end, ".weight") || !strcmp(end, ".gamma"));
    vae_draw(name, map ? 0.5f : 0.25f, x, info->numel);
    for (int64_t i = 0; map && i < info->numel; i++)
        x[i] = (float)((double)x[i] + 1.);
}

void vae_draw_weights(const char *dir, ckpt *c)
{
    int n = ckpt_param_count(c);
    float **x = calloc((size_t)n, sizeof *x);
    ckpt_file_writer *w;
    char path[256];

    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", dir);
    assert_non_null(x);
    assert_int_equal(ckpt_file_create(&w, path), 0);
    for (int i = 0; i < n; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        int64_t shape[CKPT_MAX_DIMS];
        assert_int_equal(ckpt_param_info(c, ckpt_param_at(c, i), &info), 0);
        const char *name = info.name + strlen(COGVAE_PREFIX);
        x[i] = malloc((size_t)info.numel * sizeof(float));
        assert_non_null(x[i]);
        draw_weight(name, &info, x[i]);
        int axes = file_shape(&info.desc, shape);
        assert_int_equal(ckpt_file_add(w, name, CKPT_F32, axes, shape, x[i]), 0);
    }
    assert_int_equal(ckpt_file_commit(w), 0);
    for (int i = 0; i < n; i++)
        free(x[i]);
    free(x);
}

void vae_draw_model(const char *dir, const struct vae_drawn *d)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct cogvae_config config;
    struct cogvae m;
    ckpt *c;

    o.device = "cpu";
    vae_draw_config(dir, d);
    assert_int_equal(ckpt_open(&c, &o), 0);
    assert_int_equal(cogvae_config_read(&config, dir), 0);
    config.dtype = CKPT_F32;
    assert_int_equal(cogvae_create(&m, c, &config, COGVAE_BOTH), 0);
    vae_draw_weights(dir, c);
    ckpt_close(c);
}

float *vae_expected(const char *model, const char *name, int64_t *n)
{
    const char *dir = getenv("srcdir");
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    ckpt_file *file;
    char path[512];

    snprintf(path, sizeof path, "%s/tests/%s/vae_expected.safetensors", dir ? dir : ".", model);
    assert_int_equal(ckpt_file_open(&file, path), 0);
    int i = ckpt_file_find(file, name);
    assert_true(i >= 0);
    assert_int_equal(ckpt_file_entry(file, i, &e), 0);
    *n = e.numel;
    float *y = malloc((size_t)e.numel * sizeof *y);
    assert_non_null(y);
    assert_int_equal(ckpt_file_read_f32(file, i, y, e.numel), 0);
    ckpt_file_close(file);
    return y;
}

double vae_difference(const float *y, int64_t step, const float *e, int64_t n)
{
    double most = 0, largest = 0;

    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)y[step * i] - (double)e[i]));
        largest = fmax(largest, fabs((double)e[i]));
    }
    assert_true(largest > 0.1);
    return most / largest;
}

ckpt *vae_draw_context(int64_t vram, int64_t host)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    const char *device = getenv("CKPT_DEVICE");
    ckpt *c;

    o.device = device ? device : "cpu";
    o.vram = vram;
    o.host = host;
    o.verify = true;
    assert_int_equal(ckpt_open(&c, &o), 0);
    return c;
}
