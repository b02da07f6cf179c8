/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the tests of pipeline stages: layers of attention over an embedding and a head. */
#ifndef CKPT_TEST_PIPELINE_MODEL_H
#define CKPT_TEST_PIPELINE_MODEL_H

#include <time.h>
#include "dist/rank_threads.h"
#include "dist/through_host.h"
#include "exec/program.h"

enum { MOST = 6, SAMPLES = 8, LENGTH = 8, WIDTH = 32, HEADS = 4, CLASSES = 40, LAYERS = 5 };
enum { STEPS = 4 };
enum { NORM, QKV, OUT, UP, DOWN, PER_LAYER };
enum { EMBEDDING, PLACES, HEAD, FIRST, PARAMS = FIRST + LAYERS * PER_LAYER };

/* A send or a receive of a step, in its order. */
enum { TRANSFERS = 256 };
struct transfer {
    bool sends, next; /* to or from the next stage; else the one before */
    bool first;       /* of its key: the warm-up of a GPU runs it */
    int64_t bytes;
};

struct member {
    struct rank_thread as;
    struct ckpt_options options;
    enum ckpt_dtype dtype;
    int64_t micro;
    int pipelines; /* each with its own samples; 0: one */
    int batches;   /* of a pipeline that this rank has; 0: one */
    int zero;
    bool tied;     /* the head is the embedding */
    bool drops;    /* dropout in each layer */
    bool frozen;   /* the layers below the last two */
    bool outputs;  /* the step has an output */
    int64_t wide;  /* copies of the tokens below the third layer; 0: there are none */
    bool valid;    /* a program that does not train runs before and after each step */
    bool first;    /* it is compiled first */
    bool averaged; /* it reads moving averages */
    bool in_full;  /* the information tells the smallest budget */
    bool late;     /* the first ranks of a stage refuse it later than the deadline */
    int wrong;     /* this rank changes a weight after the first step; 0: none */
    ckpt_program *measure;
    float clip;
    int64_t vram[MOST]; /* of each stage; 0: no budget */
    const char *machine[MOST];
    int begin, steps, nan_step;
    const char *load, *save;
    ckpt_tensor param[PARAMS];
    /* results */
    int code;
    float losses[STEPS], valid_losses[2 * STEPS];
    float *last; /* its output */
    double norm;
    float *value[PARAMS], *moment[PARAMS];
    char sentence[1024];
    struct ckpt_program_info info;
    bool variants; /* first a forecast, then the first of two, of which the second does more */
    struct ckpt_forecast forecast;
    int chosen;
    int mine;         /* parameters that this rank has */
    int64_t resident; /* bytes of the host copies of parameters */
    struct transfer transfers[TRANSFERS];
    int n_transfers;
    bool unlike;           /* stages with an even number are on a device of their own */
    struct device_ops ops; /* of it: a CPU that is entered and left through host memory */
};

static int64_t classes = CLASSES; /* rows of the head */

static void shape_of(int k, int64_t shape[2])
{
    static const int64_t layer[PER_LAYER][2] = {
        {1, WIDTH}, {3 * WIDTH, WIDTH}, {WIDTH, WIDTH}, {2 * WIDTH, WIDTH}, {WIDTH, 2 * WIDTH}};
    const int64_t others[FIRST][2] = {{CLASSES, WIDTH}, {LENGTH, WIDTH}, {classes, WIDTH}};
    memcpy(shape, k < FIRST ? others[k] : layer[(k - FIRST) % PER_LAYER], 2 * sizeof *shape);
}

static int64_t numel(int k)
{
    int64_t shape[2];
    shape_of(k, shape);
    return shape[0] * shape[1];
}

static ckpt_tensor block(const struct member *m, ckpt_tape *t, ckpt_tensor x, const ckpt_tensor *w)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    ckpt_tensor norm = ckpt_reshape(t, w[NORM], 1, (const int64_t[]){WIDTH}), part[3];
    ckpt_tensor y = ckpt_linear(t, ckpt_rms_norm(t, x, norm, 1e-5f), w[QKV], CKPT_NONE);
    y = ckpt_reshape(t, y, 4, (const int64_t[]){d.shape[0], LENGTH, 3 * HEADS, WIDTH / HEADS});
    for (int i = 0; i < 3; i++)
        part[i] = ckpt_slice(t, y, 2, i * HEADS, (i + 1) * HEADS);
    spec.causal = true;
    y = ckpt_attention(t, part[0], part[1], part[2], CKPT_NONE, &spec);
    x = ckpt_add(t, x, ckpt_linear(t, ckpt_reshape(t, y, 3, d.shape), w[OUT], CKPT_NONE));
    y = ckpt_linear(t, ckpt_gelu_tanh(t, ckpt_linear(t, x, w[UP], CKPT_NONE)), w[DOWN], CKPT_NONE);
    return ckpt_add(t, x, m->drops ? ckpt_dropout(t, y, .25f) : y);
}

/* Large activations without a parameter. */
static ckpt_tensor widen(const struct member *m, ckpt_tape *t, ckpt_tensor x)
{
    const int64_t times[] = {1, m->wide, 1};
    const ckpt_tensor y = ckpt_gelu_tanh(t, ckpt_repeat(t, x, times));
    return ckpt_add(t, x, ckpt_slice(t, y, 1, 0, LENGTH));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct member *m = user;
    const int64_t shape[] = {batch, LENGTH}, places[] = {1, LENGTH, WIDTH};
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    ckpt_tensor tokens = ckpt_input(t, "tokens", CKPT_I32, 2, shape);
    ckpt_tensor label = ckpt_input(t, "labels", CKPT_I32, 2, shape);
    ckpt_tensor x = ckpt_embedding(t, m->param[EMBEDDING], tokens, -1);
    x = ckpt_add(t, x, ckpt_reshape(t, m->param[PLACES], 3, places));
    for (int i = 0; i < LAYERS; i++) {
        x = m->wide && i == 2 ? widen(m, t, x) : x;
        x = block(m, t, x, m->param + FIRST + i * PER_LAYER);
    }
    if (m->outputs)
        ckpt_output(t, "last", x);
    spec.ignore_index = 0;
    x = ckpt_linear_cross_entropy(t, x, m->param[m->tied ? EMBEDDING : HEAD], CKPT_NONE, label,
                                  &spec);
    return ckpt_reshape(t, x, 1, (const int64_t[]){1}); /* a view, as some models return */
}

static ckpt_tensor record_measure(ckpt_tape *t, int64_t batch, void *user)
{
    struct member m = *(const struct member *)user;
    m.outputs = true;
    if (m.averaged)
        ckpt_read_ema(t);
    return record(t, batch, &m);
}

static ckpt_tensor record_more(ckpt_tape *t, int64_t batch, void *user)
{
    const ckpt_tensor loss = record(t, batch, user);
    return ckpt_mul(t, loss, ckpt_sigmoid(t, loss));
}

/* A limit lets a forecast look at bounds first. */
static int compile(struct member *m, ckpt *c, ckpt_optimizer *o, ckpt_program **p)
{
    const struct ckpt_variant both[] = {{.record = record, .user = m},
                                        {.record = record_more, .user = m}};
    if (!m->variants)
        return ckpt_compile(c, record, m, o, SAMPLES * (m->batches ? m->batches : 1), p);
    m->forecast = (struct ckpt_forecast)CKPT_FORECAST_INIT;
    const int rc = ckpt_forecast(c, record, m, o, SAMPLES, 1e30, &m->forecast);
    return rc ? rc : ckpt_compile_variants(c, 2, both, o, SAMPLES, p, &m->chosen);
}

/* The samples of some groups of ranks, from one on. */
static int feed(ckpt_program *p, int step, int first, int groups)
{
    static _Thread_local int32_t tokens[MOST * SAMPLES][LENGTH], labels[MOST * SAMPLES][LENGTH];
    static _Thread_local float u[MOST * SAMPLES][LENGTH][3];
    const size_t bytes = (size_t)groups * sizeof tokens / MOST;
    for (int g = 0; g < groups; g++)
        ckpt_fill_uniform(5, (uint64_t)step, (uint64_t)(1 + first + g), &u[g * SAMPLES][0][0],
                          SAMPLES * LENGTH * 3);
    for (int b = 0; b < groups * SAMPLES; b++)
        for (int i = 0; i < LENGTH; i++) {
            tokens[b][i] = (int32_t)(u[b][i][0] * CLASSES);
            labels[b][i] = u[b][i][2] * LENGTH < (float)i + 1 ? (int32_t)(u[b][i][1] * CLASSES) : 0;
        }
    const int rc = ckpt_feed(p, "tokens", tokens, bytes);
    return rc ? rc : ckpt_feed(p, "labels", labels, bytes);
}

static void make(struct member *m, ckpt *c)
{
    char name[64];
    static const char *const names[] = {"embedding", "places", "head"};
    static const char *const parts[] = {"norm", "qkv", "out", "up", "down"};
    for (int k = 0; k < PARAMS; k++) {
        int64_t shape[2];
        const int layer = (k - FIRST) / PER_LAYER, part = (k - FIRST) % PER_LAYER;
        if (k >= FIRST)
            snprintf(name, sizeof name, "layers.%d.%s", layer, parts[part]);
        else
            snprintf(name, sizeof name, "%s", names[k]);
        shape_of(k, shape);
        m->param[k] = ckpt_param(
            c, name, m->dtype, 2, shape, k >= FIRST && part == NORM ? CKPT_ONES : CKPT_NORMAL(.2f),
            !(m->frozen && k >= FIRST && layer < LAYERS - 2) && !(m->tied && k == HEAD));
    }
}

static void visit_host(struct device *d, void *stream, const struct device_visit *v)
{
    (void)d;
    (void)stream;
    memcpy(v->host_src, v->src, (size_t)v->src_bytes);
    v->call(v->user);
    memcpy(v->dst, v->host_dst, (size_t)v->dst_bytes);
}

/* As ranks_open_device where some stages have GPUs. */
static int be_unlike(struct member *m, ckpt *c)
{
    struct device *d = c->memory.device;
    c->ranks.sharing.unlike = c->ranks.comm != NULL;
    if (!c->ranks.comm || m->as.rank % 2)
        return 0;
    m->ops = *d->ops;
    m->ops.visit_host = visit_host;
    d->ops = &m->ops;
    return comm_open_through_host(&c->ranks.comm, c->ranks.comm, d);
}

/* Adds 1 to what this rank has of a weight. */
static int change(ckpt *c)
{
    const struct param *p = c->params.data;
    while (!p->place.filled[SLOT_VALUE])
        p++;
    const int64_t n = param_slot_numel(p, SLOT_VALUE);
    float *values = malloc((size_t)n * sizeof *values);
    int rc = values ? memory_read(&c->memory, p, SLOT_VALUE, values, n) : CKPT_ENOMEM;
    for (int64_t i = 0; i < n && !rc; i++)
        values[i] += 1;
    rc = rc ? rc : memory_write(&c->memory, p, SLOT_VALUE, values, n);
    free(values);
    return rc;
}

/* As if planning took twice the deadline. */
static int refuse_late(ckpt *c, ckpt_program *p)
{
    const struct timespec twice = {.tv_sec = 1};
    int64_t bytes = 0;
    ranks_hosts(&c->ranks)->deadline = .5;
    if (ranks_lead(&c->ranks))
        nanosleep(&twice, NULL);
    int rc = program_broadcast_bytes(p, 0, &bytes);
    if (!rc && ranks_lead(&c->ranks))
        nanosleep(&twice, NULL);
    rc = rc ? rc : error_set(CKPT_EBUDGET, "late: refused");
    return rc == CKPT_EBUDGET ? program_broadcast_plan(p, rc) : rc;
}

#endif
