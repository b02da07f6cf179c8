/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutional nets and two towers: cases that transformer chains do not cover. */
#include <string.h>
#include "models.h"

const struct machine machine_fp32 = {.name = "13 TFLOP/s in fp32",
                                     .estimate = true,
                                     .memory = INT64_C(16) << 30,
                                     .flops = 11e12,
                                     .bandwidth = 0.72e12,
                                     .overhead = 5e-6,
                                     .d2h = 12e9,
                                     .h2d = 12e9,
                                     .d2h_both = 10e9,
                                     .h2d_both = 10e9};

/* A batch of images [batch, channels, height, width]. */
struct maps {
    int32_t s;
    int64_t channels, height, width;
};

struct net_of {
    struct net *n;
    int64_t batch;
};

static int64_t maps_bytes(const struct net_of *k, const struct maps *x)
{
    return 4 * k->batch * x->channels * x->height * x->width;
}

static struct maps conv(struct net_of *k, struct maps x, int64_t channels, int64_t kernel,
                        int64_t stride)
{
    struct maps y = {0, channels, x.height / stride, x.width / stride};
    int64_t weight = channels * x.channels * kernel * kernel;
    y.s = net_layer(k->n, (struct net_layer){.name = "conv",
                                             .n_in = 1,
                                             .in = {x.s},
                                             .bytes = maps_bytes(k, &y),
                                             .weight = weight,
                                             .flops = 2. * (double)(k->batch * y.height) *
                                                      (double)y.width * (double)weight});
    return y;
}

static struct maps norm(struct net_of *k, struct maps x, const char *name, unsigned needs)
{
    x.s = net_layer(k->n, (struct net_layer){.name = name,
                                             .n_in = 1,
                                             .in = {x.s},
                                             .bytes = maps_bytes(k, &x),
                                             .stats = 8 * x.channels,
                                             .needs = needs});
    return x;
}

static struct maps batch_norm(struct net_of *k, struct maps x)
{
    return norm(k, x, "batch_norm", 1);
}

/* One op; its gradient gets the sign from the output. */
static struct maps batch_norm_relu(struct net_of *k, struct maps x)
{
    return norm(k, x, "batch_norm_relu", 1 | NET_OUTPUT);
}

static struct maps conv_norm_relu(struct net_of *k, struct maps x, int64_t channels, int64_t kernel,
                                  int64_t stride)
{
    return batch_norm_relu(k, conv(k, x, channels, kernel, stride));
}

static struct maps pool(struct net_of *k, struct maps x)
{
    struct maps y = {0, x.channels, x.height / 2, x.width / 2};
    y.s = net_layer(k->n, (struct net_layer){.name = "max_pool",
                                             .n_in = 1,
                                             .in = {x.s},
                                             .bytes = maps_bytes(k, &y),
                                             .needs = 1 | NET_OUTPUT});
    return y;
}

static struct maps upsample(struct net_of *k, struct maps x)
{
    struct maps y = {0, x.channels, 2 * x.height, 2 * x.width};
    y.s = net_layer(
        k->n,
        (struct net_layer){.name = "upsample", .n_in = 1, .in = {x.s}, .bytes = maps_bytes(k, &y)});
    return y;
}

static struct maps join(struct net_of *k, const char *name, struct maps x, struct maps y)
{
    struct maps z = x;
    z.channels = name[0] == 'c' ? x.channels + y.channels : x.channels;
    z.s = net_layer(
        k->n,
        (struct net_layer){.name = name, .n_in = 2, .in = {x.s, y.s}, .bytes = maps_bytes(k, &z)});
    return z;
}

static struct maps picture(struct net_of *k, int64_t height, int64_t width)
{
    struct maps x = {0, 3, height, width};
    x.s = net_feed(k->n, maps_bytes(k, &x));
    return x;
}

static struct graph *finish(struct net_of *k, struct maps x, const struct machine *m)
{
    net_layer(k->n,
              (struct net_layer){.name = "loss", .n_in = 1, .in = {x.s}, .bytes = 4, .needs = 1});
    net_backward(k->n);
    net_sgd(k->n);
    return net_finish(k->n, m);
}

static struct maps bottleneck(struct net_of *k, struct maps x, int64_t channels, int64_t stride)
{
    struct maps y = conv_norm_relu(k, x, channels, 1, 1);
    y = conv_norm_relu(k, y, channels, 3, stride);
    y = batch_norm(k, conv(k, y, 4 * channels, 1, 1));
    if (x.channels != y.channels)
        x = batch_norm(k, conv(k, x, 4 * channels, 1, stride));
    return join(k, "add_relu", y, x);
}

struct graph *model_resnet50(int32_t batch, const struct machine *m)
{
    static const int32_t blocks[] = {3, 4, 6, 3};
    struct net_of k = {net_new(), batch};
    struct maps x = pool(&k, conv_norm_relu(&k, picture(&k, 224, 224), 64, 7, 2));
    for (int32_t i = 0; i < 4; i++)
        for (int32_t j = 0; j < blocks[i]; j++)
            x = bottleneck(&k, x, 64 << i, i > 0 && j == 0 ? 2 : 1);
    struct maps y = {0, x.channels, 1, 1};
    y.s = net_layer(k.n, (struct net_layer){
                             .name = "mean", .n_in = 1, .in = {x.s}, .bytes = maps_bytes(&k, &y)});
    return finish(&k, conv(&k, y, 1000, 1, 1), m);
}

static struct maps double_conv(struct net_of *k, struct maps x, int64_t middle, int64_t channels)
{
    return conv_norm_relu(k, conv_norm_relu(k, x, middle, 3, 1), channels, 3, 1);
}

struct graph *model_unet(int32_t batch, const struct machine *m)
{
    struct net_of k = {net_new(), batch};
    struct maps x = double_conv(&k, picture(&k, 416, 608), 64, 64), skip[4];
    for (int i = 0; i < 4; i++) {
        int64_t channels = i < 3 ? 128 << i : 512;
        skip[i] = x;
        x = double_conv(&k, pool(&k, x), channels, channels);
    }
    for (int i = 3; i >= 0; i--) {
        x = join(&k, "concat", skip[i], upsample(&k, x));
        x = double_conv(&k, x, 64 << i, i > 0 ? 32 << i : 64);
    }
    return finish(&k, conv(&k, x, 2, 1, 1), m);
}

static struct maps residual(struct net_of *k, struct maps x, int64_t channels)
{
    struct maps y = conv_norm_relu(k, x, channels, 3, 1);
    y = batch_norm(k, conv(k, y, channels, 3, 1));
    if (x.channels != channels)
        x = conv(k, x, channels, 1, 1);
    return join(k, "add_relu", y, x);
}

struct graph *model_vae(int32_t batch, const struct machine *m)
{
    struct net_of k = {net_new(), batch};
    struct maps x = conv(&k, picture(&k, 256, 256), 64, 3, 1);
    for (int i = 0; i < 3; i++)
        x = conv(&k, residual(&k, residual(&k, x, 64 << i), 64 << i), 128 << i, 3, 2);
    struct maps mean = conv(&k, x, 16, 1, 1), spread = conv(&k, x, 16, 1, 1);
    x = conv(&k, join(&k, "add", mean, spread), 512, 3, 1);
    for (int i = 3; i > 0; i--) {
        x = residual(&k, residual(&k, x, 64 << i), 64 << i);
        x = conv(&k, upsample(&k, x), 32 << i, 3, 1);
    }
    return finish(&k, conv(&k, residual(&k, x, 64), 3, 3, 1), m);
}

/* ---- two towers ----------------------------------------------------------------------------- */

struct tower {
    struct net *n;
    int64_t rows, width, length; /* length: of a sequence */
};

static int32_t dense(const struct tower *t, int32_t x, int64_t in, int64_t out)
{
    return net_layer(t->n, (struct net_layer){.name = "linear",
                                              .n_in = 1,
                                              .in = {x},
                                              .bytes = 2 * t->rows * out,
                                              .weight = in * out,
                                              .flops = 2. * (double)(t->rows * in) * (double)out});
}

static int32_t pointwise(const struct tower *t, const char *name, int32_t x, int32_t y, int64_t w)
{
    return net_layer(t->n, (struct net_layer){.name = name,
                                              .n_in = y > 0 ? 2 : 1,
                                              .in = {x, y},
                                              .bytes = 2 * t->rows * w,
                                              .needs = y > 0 ? 0 : 1});
}

static int32_t tower_block(const struct tower *t, int32_t x)
{
    int64_t d = t->width;
    int32_t qkv = dense(t, pointwise(t, "layer_norm", x, 0, d), d, 3 * d);
    struct net_layer attention = {.name = "attention",
                                  .n_in = 1,
                                  .in = {qkv},
                                  .bytes = 2 * t->rows * d,
                                  .stats = 4 * t->rows * d / 64,
                                  .needs = 1 | NET_OUTPUT,
                                  .flops = 4. * (double)(t->rows * t->length) * (double)d};
    int32_t o = dense(t, net_layer(t->n, attention), d, d);
    x = pointwise(t, "add", x, o, d);
    int32_t h = dense(t, pointwise(t, "layer_norm", x, 0, d), d, 4 * d);
    return pointwise(t, "add", x, dense(t, pointwise(t, "gelu", h, 0, 4 * d), 4 * d, d), d);
}

static int32_t tower(const struct tower *t, int32_t blocks)
{
    int32_t x = dense(t, net_feed(t->n, 2 * t->rows * 768), 768, t->width);
    for (int32_t i = 0; i < blocks; i++)
        x = tower_block(t, x);
    return dense(t, x, t->width, 512);
}

struct graph *model_two_tower(const struct machine *m)
{
    struct net *n = net_new();
    struct tower image = {n, 64 * 256, 1024, 256}, text = {n, 64 * 77, 512, 77};
    int32_t a = tower(&image, 24), b = tower(&text, 12);
    net_layer(
        n, (struct net_layer){
               .name = "contrast", .n_in = 2, .in = {a, b}, .bytes = 4, .needs = 3, .flops = 1e9});
    net_backward(n);
    net_adamw(n, true, false);
    return net_finish(n, m);
}
