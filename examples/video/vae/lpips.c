/* SPDX-License-Identifier: Apache-2.0 */
/* LPIPS: thirteen convolutions of VGG16, and a distance after the last convolution of each size. */
#include <stdlib.h>
#include <string.h>
#include "../../common/say.h"
#include "../../common/tensors.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "lpips.h"
#include "model.h"

/* Index in torchvision's list of layers, width, and whether a distance follows. */
static const struct {
    int layer;
    int64_t width;
    bool tap;
} convs[LPIPS_CONVS] = {
    {0, 64, false},   {2, 64, true},    {5, 128, false},  {7, 128, true},   {10, 256, false},
    {12, 256, false}, {14, 256, true},  {17, 512, false}, {19, 512, false}, {21, 512, true},
    {24, 512, false}, {26, 512, false}, {28, 512, true},
};

/* ---- the file ------------------------------------------------------------------------------ */

/* Returns x, or its values in dtype in a new buffer that replaces x. */
static void *to_dtype(float *x, int64_t n, enum ckpt_dtype dtype)
{
    if (!x || dtype != CKPT_BF16)
        return x;
    uint16_t *half = malloc((size_t)n * sizeof *half);
    if (half)
        ckpt_to_bf16(x, half, n);
    else
        say_fail("no memory for the weights of LPIPS");
    free(x);
    return half;
}

/* The values of a tensor with this shape, or NULL after a sentence. */
static float *read_tensor(ckpt_file *f, const char *path, const char *name, int ndim,
                          int64_t *shape)
{
    if (ckpt_file_find(f, name) >= 0)
        return tensor_read(f, path, name, ndim, shape);
    say_fail(
        "--lpips %s: there is no '%s': the file must hold features.N.weight and .bias of VGG16 "
        "and linK.model.1.weight of LPIPS",
        path, name);
    return NULL;
}

/* [K, C, 3, 3] -> [K, 3, 3, C] */
static float *channels_last(float *from, int64_t out, int64_t in)
{
    float *to = from ? malloc((size_t)(out * in * 9) * sizeof *to) : NULL;

    for (int64_t k = 0; to && k < out; k++)
        for (int64_t c = 0; c < in; c++)
            for (int64_t tap = 0; tap < 9; tap++)
                to[(k * 9 + tap) * in + c] = from[(k * in + c) * 9 + tap];
    free(from);
    return to;
}

/* torchvision's name, or the name in the lpips package, which has the same layer numbers in slices;
 * each slice ends at a distance. */
static void name_layer(char name[64], const ckpt_file *f, int i, int slice, const char *what)
{
    snprintf(name, 64, "net.slice%d.%d.%s", slice + 1, convs[i].layer, what);
    if (ckpt_file_find(f, name) < 0)
        snprintf(name, 64, "features.%d.%s", convs[i].layer, what);
}

static int read_conv(struct vae_lpips *l, ckpt_file *f, const char *path, int i, int slice)
{
    int64_t out = convs[i].width, in = i ? convs[i - 1].width : 3, n = out * in * 9;
    char name[64];

    name_layer(name, f, i, slice, "weight");
    l->conv[i].out = out;
    l->conv[i].in = in;
    float *w = channels_last(read_tensor(f, path, name, 4, (int64_t[]){out, in, 3, 3}), out, in);
    l->conv[i].weight = to_dtype(w, n, l->dtype);
    if (!l->conv[i].weight)
        return -1;
    name_layer(name, f, i, slice, "bias");
    l->conv[i].bias = to_dtype(read_tensor(f, path, name, 1, &out), out, l->dtype);
    return l->conv[i].bias ? 0 : -1;
}

static int read_all(struct vae_lpips *l, ckpt_file *f, const char *path)
{
    int taps = 0;

    for (int i = 0; i < LPIPS_CONVS; i++) {
        int64_t width = convs[i].width;
        char name[64];
        if (read_conv(l, f, path, i, taps))
            return -1;
        if (!convs[i].tap)
            continue;
        snprintf(name, sizeof name, "lin%d.model.1.weight", taps);
        float *w = read_tensor(f, path, name, 4, (int64_t[]){1, width, 1, 1});
        l->lin[taps] = to_dtype(w, width, l->dtype);
        if (!l->lin[taps++])
            return -1;
    }
    return 0;
}

int vae_lpips_load(struct vae_lpips *l, const char *path, enum ckpt_dtype dtype)
{
    ckpt_file *f;

    *l = (struct vae_lpips){.dtype = dtype};
    if (ckpt_file_open(&f, path))
        return say_fail("--lpips %s: %s", path, ckpt_error(NULL));
    int rc = read_all(l, f, path);
    ckpt_file_close(f);
    if (rc)
        vae_lpips_free(l);
    return rc;
}

void vae_lpips_free(struct vae_lpips *l)
{
    for (int i = 0; i < LPIPS_CONVS; i++) {
        free(l->conv[i].weight);
        free(l->conv[i].bias);
    }
    for (int i = 0; i < LPIPS_TAPS; i++)
        free(l->lin[i]);
    *l = (struct vae_lpips){0};
}

/* ---- recording ----------------------------------------------------------------------------- */

/* The constants of a tape. */
struct weights {
    ckpt_tensor conv[LPIPS_CONVS], bias[LPIPS_CONVS], lin[LPIPS_TAPS], scale, shift;
    enum ckpt_dtype dtype;
};

static ckpt_tensor constant(ckpt_tape *t, enum ckpt_dtype dtype, const char *what, int i, int ndim,
                            const int64_t *shape, const void *data)
{
    char name[64];

    snprintf(name, sizeof name, "lpips.%s.%d", what, i);
    return ckpt_constant(t, name, dtype, ndim, shape, data);
}

static struct weights take_weights(const struct vae_lpips *l, ckpt_tape *t)
{
    static const float mean[] = {-.030f, -.088f, -.188f}, spread[] = {.458f, .448f, .450f};
    float scale[3], shift[3];
    struct weights w = {.dtype = l->dtype};
    int taps = 0;

    for (int i = 0; i < 3; i++) {
        scale[i] = 1.f / spread[i];
        shift[i] = -mean[i] / spread[i];
    }
    w.scale = constant(t, CKPT_F32, "scale", 0, 1, (int64_t[]){3}, scale);
    w.shift = constant(t, CKPT_F32, "shift", 0, 1, (int64_t[]){3}, shift);
    for (int i = 0; i < LPIPS_CONVS; i++) {
        int64_t shape[] = {l->conv[i].out, 3, 3, l->conv[i].in};
        w.conv[i] = constant(t, l->dtype, "conv", i, 4, shape, l->conv[i].weight);
        w.bias[i] = constant(t, l->dtype, "bias", i, 1, shape, l->conv[i].bias);
        if (convs[i].tap) {
            w.lin[taps] = constant(t, l->dtype, "lin", taps, 1, shape, l->lin[taps]);
            taps++;
        }
    }
    return w;
}

/* The features of frames [N, H, W, 3] at which a distance is computed. */
static void features(const struct weights *w, ckpt_tape *t, ckpt_tensor x, ckpt_tensor *tap)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    int taps = 0;

    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = 1;
    x = ckpt_add(t, ckpt_mul(t, ckpt_cast(t, x, CKPT_F32), w->scale), w->shift);
    x = ckpt_cast(t, x, w->dtype);
    for (int i = 0; i < LPIPS_CONVS; i++) {
        if (i > 0 && convs[i - 1].tap)
            x = ckpt_max_pool(t, x, (int64_t[]){2, 2}, NULL);
        x = ckpt_relu(t, ckpt_conv(t, x, w->conv[i], w->bias[i], &spec));
        if (convs[i].tap)
            tap[taps++] = x;
    }
}

static ckpt_tensor distance(const struct weights *w, ckpt_tape *t, ckpt_tensor x, ckpt_tensor y)
{
    ckpt_tensor of_x[LPIPS_TAPS], of_y[LPIPS_TAPS], sum = CKPT_NONE;

    features(w, t, x, of_x);
    features(w, t, y, of_y);
    for (int i = 0; i < LPIPS_TAPS; i++) {
        ckpt_tensor d = ckpt_feature_distance(t, of_y[i], of_x[i], w->lin[i]);
        sum = i ? ckpt_add(t, sum, d) : d;
    }
    return sum;
}

ckpt_tensor vae_lpips(const struct vae_lpips *l, ckpt_tape *t, ckpt_tensor x, ckpt_tensor y,
                      int64_t part)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t frames = d.shape[0] * d.shape[1], shape[] = {frames, d.shape[2], d.shape[3], 3};
    ckpt_tensor sum = CKPT_NONE;

    if (d.ndim != 5)
        return CKPT_NONE;
    ckpt_label(t, "LPIPS");
    struct weights w = take_weights(l, t);
    x = ckpt_reshape(t, x, 4, shape);
    y = ckpt_reshape(t, y, 4, shape);
    part = part < 1 || part > frames ? frames : part;
    for (int64_t at = 0; at < frames; at += part) {
        int64_t end = at + part < frames ? at + part : frames;
        ckpt_tensor one = distance(&w, t, vae_part(t, x, 0, at, end), vae_part(t, y, 0, at, end));
        one = ckpt_affine(t, one, (float)(end - at) / (float)frames, 0.f);
        sum = at ? ckpt_add(t, sum, one) : one;
    }
    return sum;
}
