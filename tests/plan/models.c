/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic graphs: small ones for the oracle, large ones without repetition, and traces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "models.h"

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 10) % n;
}

/* Draws the storages that a gradient reads; sometimes the output of the layer, too. */
static unsigned draw_needs(uint32_t *state, int32_t n_in)
{
    unsigned needs = draw(state, 1u << n_in);
    if (draw(state, 3) == 0 || needs == 0)
        needs |= NET_OUTPUT;
    return needs;
}

static struct graph *small_finish(struct net *n, int32_t x)
{
    net_layer(n, (struct net_layer){.name = "loss",
                                    .n_in = 1,
                                    .in = {x},
                                    .bytes = CKPT_ALIGN,
                                    .needs = 1,
                                    .seconds = 1e-3});
    net_backward(n);
    return net_finish(n, NULL);
}

struct graph *model_chain(uint32_t seed, int32_t n, bool uniform)
{
    struct net *k = net_new();
    uint32_t state = seed * 2654435761u + 7;
    int32_t x = net_feed(k, CKPT_ALIGN * 8);
    for (int32_t i = 0; i < n; i++)
        x = net_layer(
            k, (struct net_layer){.name = "layer",
                                  .n_in = 1,
                                  .in = {x},
                                  .bytes = CKPT_ALIGN * (uniform ? 16 : 1 + draw(&state, 32)),
                                  .needs = uniform ? 1 : draw_needs(&state, 1),
                                  .seconds = 1e-3 * (uniform ? 4 : 1 + draw(&state, 16))});
    return small_finish(k, x);
}

struct graph *model_random(uint32_t seed, int32_t n)
{
    struct net *k = net_new();
    uint32_t state = seed * 2654435761u + 1;
    int32_t known[64] = {net_feed(k, CKPT_ALIGN * 8)};
    for (int32_t i = 1; i <= n; i++) {
        struct net_layer l = {.name = "op", .n_in = 1, .in = {known[i - 1]}};
        if (i > 1 && draw(&state, 2)) {
            l.in[1] = known[i - 1 - (int32_t)draw(&state, (uint32_t)min_i64(i, 6))];
            l.n_in = l.in[1] == l.in[0] ? 1 : 2;
        }
        l.bytes = CKPT_ALIGN * (1 + draw(&state, 32));
        l.needs = draw_needs(&state, l.n_in);
        l.seconds = 1e-3 * (1 + draw(&state, 16));
        known[i] = net_layer(k, l);
    }
    return small_finish(k, known[n]);
}

static int32_t small_conv(struct net *k, uint32_t *state, int32_t x, int64_t bytes)
{
    x = net_layer(k, (struct net_layer){.name = "conv",
                                        .n_in = 1,
                                        .in = {x},
                                        .bytes = bytes,
                                        .needs = 1,
                                        .seconds = 1e-3 * (8 + draw(state, 8))});
    return net_layer(k, (struct net_layer){.name = "relu",
                                           .n_in = 1,
                                           .in = {x},
                                           .bytes = bytes,
                                           .needs = NET_OUTPUT,
                                           .seconds = 1e-3});
}

struct graph *model_small_unet(uint32_t seed, int32_t levels)
{
    struct net *k = net_new();
    uint32_t state = seed * 2654435761u + 3;
    int64_t bytes = CKPT_ALIGN * 32;
    int32_t skip[8], x = net_feed(k, CKPT_ALIGN * 8);
    for (int32_t i = 0; i < levels; i++) {
        skip[i] = x = small_conv(k, &state, x, bytes >> i);
        x = net_layer(k, (struct net_layer){.name = "pool",
                                            .n_in = 1,
                                            .in = {x},
                                            .bytes = bytes >> (i + 1),
                                            .needs = 1,
                                            .seconds = 1e-3});
    }
    for (int32_t i = levels - 1; i >= 0; i--) {
        x = net_layer(k, (struct net_layer){.name = "join",
                                            .n_in = 2,
                                            .in = {x, skip[i]},
                                            .bytes = bytes >> i << 1,
                                            .seconds = 2e-3});
        x = small_conv(k, &state, x, bytes >> i);
    }
    return small_finish(k, x);
}

struct graph *model_small(const char *name)
{
    unsigned seed;
    if (sscanf(name, "uniform-%u", &seed) == 1)
        return model_chain(seed, (int32_t)seed, true);
    if (sscanf(name, "chain-%u", &seed) == 1)
        return model_chain(seed, 14 + (int32_t)seed % 12, false);
    if (sscanf(name, "random-%u", &seed) == 1)
        return model_random(seed, 12 + (int32_t)seed % 10);
    if (sscanf(name, "few-%u", &seed) == 1)
        return model_random(1000 + seed, 8 + (int32_t)seed % 4);
    if (sscanf(name, "unet-%u", &seed) == 1)
        return model_small_unet(seed, 2 + (int32_t)seed % 2);
    return NULL;
}

/* ---- large graphs without repetition -------------------------------------------------------- */

/* A layer that reads x, and also another storage if that is not x. */
static int32_t drawn_layer(struct net *k, uint32_t *state, int32_t x, int32_t other)
{
    struct net_layer l = {.name = "op", .n_in = 1, .in = {x}};
    if (other != x) {
        l.in[1] = other;
        l.n_in = 2;
    }
    if (draw(state, 3) == 0)
        l.weight = 1024 * (1 + draw(state, 64));
    l.bytes = INT64_C(4096) * (256 + draw(state, 4096));
    l.needs = draw_needs(state, l.n_in);
    l.seconds = 1e-6 * (20 + draw(state, l.weight ? 2000 : 100));
    return net_layer(k, l);
}

static struct graph *drawn_finish(struct net *k, int32_t x)
{
    net_layer(k,
              (struct net_layer){
                  .name = "loss", .n_in = 1, .in = {x}, .bytes = 4, .needs = 1, .seconds = 1e-5});
    net_backward(k);
    net_sgd(k);
    return net_finish(k, NULL);
}

struct graph *model_synthetic(int32_t n)
{
    struct net *k = net_new();
    uint32_t state = 12345;
    int32_t back[8] = {net_feed(k, 1 << 20)}, x = back[0];
    /* A layer has about two and a half ops: itself and its gradients. */
    for (int32_t i = 1; k->g->n_ops * 5 / 2 < n; i++) {
        int32_t other = x;
        if (draw(&state, 4) == 0)
            other = back[draw(&state, (uint32_t)min_i64(i, 8))];
        back[i % 8] = x = drawn_layer(k, &state, x, other);
    }
    return drawn_finish(k, x);
}

struct graph *model_tangled(int32_t n)
{
    struct net *k = net_new();
    uint32_t state = 777;
    int32_t *back = calloc((size_t)n + 2, sizeof(*back)), x = net_feed(k, 1 << 20);
    if (!back)
        exit(1);
    back[0] = x;
    for (int32_t i = 1; k->g->n_ops * 5 / 2 < n; i++) {
        int32_t other = x;
        if (i > 2 && draw(&state, 5) == 0) {
            uint32_t reach = (uint32_t)min_i64(i, INT64_C(4) << draw(&state, 9));
            other = back[i - 1 - (int32_t)draw(&state, reach)];
        }
        back[i] = x = drawn_layer(k, &state, x, other);
    }
    free(back);
    return drawn_finish(k, x);
}

/* ---- traces --------------------------------------------------------------------------------- */

static int compare_first(const void *a, const void *b)
{
    const struct place_item *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->last != y->last)
        return x->last < y->last ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int64_t most_alive(const struct place_item *items, int32_t n, int32_t end)
{
    int64_t *change = calloc((size_t)end + 2, sizeof(*change)), now = 0, most = 0;
    if (!change)
        exit(1);
    for (int32_t i = 0; i < n; i++) {
        change[items[i].first] += items[i].bytes;
        change[items[i].last + 1] -= items[i].bytes;
    }
    for (int32_t t = 0; t <= end; t++) {
        now += change[t];
        most = max_i64(most, now);
    }
    free(change);
    return most;
}

/* Three of ten buffers live from forward to backward, mirrored at the middle; the others end
 * within a few ops.  Sizes repeat, as those of layers do. */
int64_t model_trace(uint32_t seed, int32_t n, struct place_item *items)
{
    uint32_t state = seed * 2654435761u + 5;
    int64_t sizes[24];
    for (int i = 0; i < 24; i++)
        sizes[i] = CKPT_ALIGN * (INT64_C(1) + draw(&state, 1u << (4 + draw(&state, 12))));
    for (int32_t i = 0; i < n; i++) {
        int32_t at = (int32_t)draw(&state, (uint32_t)n) * 2 + (int32_t)draw(&state, 2);
        int32_t last = at + 1 + (int32_t)draw(&state, 6);
        if (at < n && draw(&state, 10) < 6)
            last = 2 * n - at + (int32_t)draw(&state, 4);
        items[i] = (struct place_item){
            .first = at, .last = (int32_t)min_i64(last, 2 * n), .bytes = sizes[draw(&state, 24)]};
    }
    qsort(items, (size_t)n, sizeof(*items), compare_first);
    return most_alive(items, n, 2 * n);
}
