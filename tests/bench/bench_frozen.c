/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_frozen BASE TEXT [STEPS]: the effect of frozen weights in codes on learning.  A small GPT
 * in bf16 first learns a base, the bytes of one text.  Then adapters of rank 8 learn another text,
 * with the base stored in bf16, int8 and nf4, for the same number of steps at a constant learning
 * rate, with three seeds that determine the adapters and the order of samples.  A row has the mean
 * loss of the first 10 steps, which is the loss of the base, of the last 100, and of the last 250.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"

enum { BYTES = 256, WIDTH = 64, HEADS = 4, LAYERS = 2, LENGTH = 64, BATCH = 8, SEEDS = 3 };

#define BASE_FILE "bench_frozen.base"

struct gpt {
    struct ckpt_nn_embedding bytes, places;
    struct ckpt_nn_transformer_layer block[LAYERS];
    struct ckpt_nn_norm norm;
};

struct text {
    unsigned char *data;
    size_t size;
};

static void create(struct gpt *m, ckpt *c)
{
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_nn nn = CKPT_NN_INIT;
    struct ckpt_init small = CKPT_NORMAL(0.02f), zeros = CKPT_ZEROS;

    nn.context = c;
    nn.dtype = CKPT_BF16;
    nn.weight = &small;
    nn.bias = &zeros;
    attention.width = mlp.width = WIDTH;
    attention.heads = HEADS;
    mlp.inner = 4 * WIDTH;
    layer.attention = &attention;
    layer.mlp = &mlp;
    m->bytes = ckpt_nn_embedding(&nn, BYTES, WIDTH, "bytes");
    m->places = ckpt_nn_embedding(&nn, LENGTH, WIDTH, "places");
    for (int i = 0; i < LAYERS; i++)
        m->block[i] = ckpt_nn_transformer_layer(&nn, &layer, "block.%d", i);
    m->norm = ckpt_nn_layer_norm(&nn, WIDTH, 1e-5f, "norm");
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct gpt *m = user;
    struct ckpt_attention_spec causal = CKPT_ATTENTION_INIT;
    ckpt_tensor bytes = ckpt_input(t, "bytes", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor next = ckpt_input(t, "next", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor x = ckpt_add(t, ckpt_nn_apply_embedding(t, &m->bytes, bytes), m->places.weight);

    causal.causal = true;
    for (int i = 0; i < LAYERS; i++)
        x = ckpt_nn_apply_transformer_layer(t, &m->block[i], x, CKPT_NONE, CKPT_NONE, &causal);
    x = ckpt_linear(t, ckpt_nn_apply_norm(t, &m->norm, x), m->bytes.weight, CKPT_NONE);
    return ckpt_cross_entropy(t, x, next, NULL);
}

/* Parts of the text that begin at any byte. */
static int step(ckpt_program *p, const struct text *text, int seed, int number, float *loss)
{
    static int32_t bytes[BATCH][LENGTH], next[BATCH][LENGTH];
    float begin[BATCH];

    ckpt_fill_uniform((uint64_t)seed, (uint64_t)number, 1, begin, BATCH);
    for (int b = 0; b < BATCH; b++) {
        const unsigned char *at =
            text->data + (size_t)((double)begin[b] * (double)(text->size - LENGTH - 1));
        for (int i = 0; i < LENGTH; i++)
            bytes[b][i] = at[i], next[b][i] = at[i + 1];
    }
    return ckpt_feed(p, "bytes", bytes, sizeof bytes) || ckpt_feed(p, "next", next, sizeof next) ||
           ckpt_step(p, loss);
}

static double mean(const float *loss, int from, int end)
{
    double sum = 0;

    for (int i = from; i < end; i++)
        sum += (double)loss[i];
    return sum / (end - from);
}

/* Trains adapters above a base in this format, or without one the base itself, which is saved. */
static int run(const struct text *text, const char *format, int seed, int steps)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_lora lora = CKPT_LORA_INIT;
    float *loss = calloc((size_t)steps, sizeof *loss);
    struct gpt model;
    ckpt_program *p;
    ckpt *c = NULL;

    o.device = "cpu";
    o.threads = 1;
    o.seed = seed;
    int rc = !loss || ckpt_open(&c, &o);
    if (!rc)
        create(&model, c);
    lora.pattern = "block.*.weight";
    if (!rc && format)
        rc = ckpt_load_params(c, BASE_FILE, NULL, NULL, NULL) || ckpt_lora(c, &lora) < 0 ||
             (strcmp(format, "bf16") && ckpt_quantize_frozen(c, lora.pattern, format) < 0);
    adamw.lr = 3e-3f;
    rc = rc || ckpt_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH, &p);
    for (int i = 0; i < steps && !rc; i++)
        rc = step(p, text, seed, i, &loss[i]);
    if (!rc && !format)
        rc = ckpt_save_params(c, BASE_FILE, CKPT_VALUE);
    if (rc)
        fprintf(stderr, "bench_frozen: %s\n", ckpt_error(c));
    else
        printf("%-8s %4d %10.5f %10.5f %10.5f\n", format ? format : "base", seed, mean(loss, 0, 10),
               mean(loss, steps - 100, steps), mean(loss, steps - 250, steps));
    fflush(stdout);
    ckpt_close(c);
    free(loss);
    return rc;
}

static int read_text(struct text *text, const char *path)
{
    enum { MOST = 1 << 22 };
    FILE *f = fopen(path, "rb");

    text->data = malloc(MOST);
    text->size = f && text->data ? fread(text->data, 1, MOST, f) : 0;
    if (f)
        fclose(f);
    if (text->size > 2 * LENGTH)
        return 0;
    fprintf(stderr, "bench_frozen: %s: no text\n", path);
    return -1;
}

int main(int argc, char **argv)
{
    static const char *const formats[] = {"bf16", "int8", "nf4"};
    struct text base, other;
    int steps = argc > 3 ? atoi(argv[3]) : 2000;

    if (argc < 3 || steps < 250) {
        fputs("usage: bench_frozen BASE TEXT [STEPS], 250 or more\n", stderr);
        return 2;
    }
    if (read_text(&base, argv[1]) || read_text(&other, argv[2]))
        return 1;
    printf("%-8s %4s %10s %10s %10s\n", "frozen", "seed", "first 10", "last 100", "last 250");
    int rc = run(&base, NULL, 1, steps);
    for (int seed = 1; seed <= SEEDS && !rc; seed++)
        for (size_t k = 0; k < sizeof formats / sizeof *formats && !rc; k++)
            rc = run(&other, formats[k], seed, steps);
    unlink(BASE_FILE);
    free(base.data);
    free(other.data);
    return rc ? 1 : 0;
}
