/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STDiT on pictures and on captions of one token: softmaxes with a single key.  Under AdamW with
 * an epsilon of 1e-15 every gradient that is not exactly 0 makes a step of the learning rate.  So
 * in five steps what makes the queries and keys of temporal attention, and those of cross
 * attention, may not move by one bit, and what makes the values moves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "examples/video/stdit/model.h"

enum { HIDDEN = 144, HEADS = 2, DEPTH = 1, STEPS = 5, BATCH = 2, TOKENS = 3, CAPTION = 8 };

struct image {
    struct stdit model;
    struct video_geometry geometry;
};

static int failures;

static void fail(const char *name, const char *what)
{
    printf("FAIL %s: %s\n", name, what);
    failures++;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct image *m = user;
    const struct video_geometry *g = &m->geometry;
    int64_t z[] = {batch, 4, g->frames, g->height, g->width};
    int64_t y[] = {batch, TOKENS, CAPTION};
    struct stdit_inputs in = {0};
    in.x = ckpt_input(t, "z", CKPT_F32, 5, z);
    in.t = ckpt_input(t, "t", CKPT_F32, 1, &batch);
    in.y = ckpt_input(t, "y", m->model.config.dtype, 3, y);
    in.mask = ckpt_input(t, "mask", CKPT_I32, 2, (int64_t[]){batch, TOKENS});
    in.fps = ckpt_input(t, "fps", CKPT_F32, 1, &batch);
    ckpt_tensor both = stdit_forward(&m->model, t, g, &in);
    ckpt_tensor pred = ckpt_cast(t, ckpt_slice(t, both, 1, 0, 4), CKPT_F32);
    return ckpt_mse(t, pred, in.x, CKPT_NONE);
}

/* Captions of one token each, at different positions of the row. */
static int step(ckpt_program *p, const struct image *m, int i)
{
    const struct video_geometry *g = &m->geometry;
    enum { MOST = BATCH * 4 * 3 * 4 * 6 };
    static float z[MOST], y[BATCH * TOKENS * CAPTION];
    static uint16_t narrow[BATCH * TOKENS * CAPTION];
    const int64_t n = BATCH * 4 * g->frames * g->height * g->width, n_y = BATCH * TOKENS * CAPTION;
    const float t[BATCH] = {700, 300}, fps[BATCH] = {120, 120};
    const int32_t mask[BATCH * TOKENS] = {0, 1, 0, 1, 0, 0};
    const bool bf16 = m->model.config.dtype == CKPT_BF16;
    ckpt_fill_normal(1, (uint64_t)i, 1, z, n);
    ckpt_fill_normal(1, (uint64_t)i, 2, y, n_y);
    ckpt_to_bf16(y, narrow, n_y);
    int e = ckpt_feed(p, "z", z, n * 4);
    e = e ? e : ckpt_feed(p, "t", t, sizeof t);
    e = e ? e : ckpt_feed(p, "y", bf16 ? (void *)narrow : y, n_y * (bf16 ? 2 : 4));
    e = e ? e : ckpt_feed(p, "mask", mask, sizeof mask);
    e = e ? e : ckpt_feed(p, "fps", fps, sizeof fps);
    return e ? e : ckpt_step(p, NULL);
}

static float *value_of(ckpt *c, int i, struct ckpt_param_info *info)
{
    ckpt_param_info(c, ckpt_param_at(c, i), info);
    float *x = malloc((size_t)info->numel * sizeof *x);
    if (!x || ckpt_param_get(c, ckpt_param_at(c, i), CKPT_VALUE, x, info->numel))
        exit(99);
    return x;
}

/* How many of the first elements must not move: queries come first, then keys, then values. */
static int64_t still_part(const struct ckpt_param_info *p, bool image)
{
    const char *part = strrchr(p->name, '.') ? strstr(p->name, "attn.") : NULL;
    if (!part)
        return 0;
    if (!strncmp(p->name, "temporal_blocks.", 16) && !strstr(p->name, "cross_attn.")) {
        if (strstr(part, "q_norm") || strstr(part, "k_norm"))
            return image ? p->numel : 0;
        return image && strstr(part, "qkv") ? p->numel / 3 * 2 : 0;
    }
    if (strstr(p->name, "cross_attn.q_linear"))
        return p->numel;
    return strstr(p->name, "cross_attn.kv_linear") ? p->numel / 2 : 0;
}

static bool moved(const float *a, const float *b, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        if (a[i] != b[i])
            return true;
    return false;
}

static void compare(ckpt *c, float **before, bool image)
{
    int parts = 0;
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        float *after = value_of(c, i, &info);
        int64_t still = still_part(&info, image);
        parts += still > 0;
        if (moved(before[i], after, 0, still))
            fail(info.name, "queries or keys of a single key moved");
        if (still > 0 && still < info.numel && !moved(before[i], after, still, info.numel))
            fail(info.name, "values did not move");
        if (strstr(info.name, "attn.qkv") && !still && !moved(before[i], after, 0, info.numel / 3))
            fail(info.name, "queries of several keys did not move");
        free(after);
    }
    /* q_linear and kv_linear of each block; qkv, q_norm and k_norm of the temporal ones. */
    if (parts != DEPTH * (2 * 4 + (image ? 4 : 0)))
        fail("names", "other parts than expected");
}

static int run(enum ckpt_dtype dtype, int64_t frames)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct stdit_config config = {HIDDEN, HEADS, DEPTH, 4, CAPTION, TOKENS, 4, dtype, false, false};
    struct image m = {.geometry = {frames, 4, 6, TOKENS, 32, 48, 0}};
    ckpt *c = NULL;
    ckpt_program *p = NULL;
    float **before = NULL;
    options.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    adamw.lr = 1e-3f;
    adamw.eps = 1e-15f;
    adamw.weight_decay = 0;
    int e = ckpt_open(&c, &options);
    e = e ? e : stdit_create(&m.model, c, &config);
    e = e ? e : ckpt_compile(c, record, &m, ckpt_adamw(c, &adamw), BATCH, &p);
    if (!e && !(before = calloc((size_t)ckpt_param_count(c), sizeof *before)))
        exit(99);
    for (int i = 0; !e && i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        before[i] = value_of(c, i, &info);
    }
    for (int i = 0; !e && i < STEPS; i++)
        e = step(p, &m, i);
    if (e)
        fail("run", ckpt_error(c));
    else
        compare(c, before, frames == 1);
    for (int i = 0; before && i < ckpt_param_count(c); i++)
        free(before[i]);
    free(before);
    ckpt_program_free(p);
    stdit_free(&m.model);
    ckpt_close(c);
    return e;
}

int main(void)
{
    for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++)
        for (int64_t frames = 1; frames <= 3; frames += 2)
            run((enum ckpt_dtype)dtype, frames);
    printf("%s: pictures and captions of one token\n", failures ? "FAIL" : "ok");
    return failures ? 1 : 0;
}
