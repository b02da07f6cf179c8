/* SPDX-License-Identifier: Apache-2.0 */
/* gpt FILE: trains a small byte-level GPT on a text, on the CPU or a GPU, within a memory budget
 * such as --vram 6M. */
#include <math.h>
#include <ckpt.h>

enum { BYTES = 256, WIDTH = 64, HEADS = 4, LAYERS = 2, LENGTH = 64, BATCH = 16, STEPS = 300 };

struct gpt {
    struct ckpt_nn_embedding bytes, places;
    struct ckpt_nn_transformer_layer block[LAYERS];
    struct ckpt_nn_norm norm;
};

static void create(struct gpt *m, ckpt *c)
{
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_nn nn = CKPT_NN_INIT;
    struct ckpt_init small = CKPT_NORMAL(0.02f), zeros = CKPT_ZEROS;

    nn.context = c, nn.weight = &small, nn.bias = &zeros;
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

/* Logits of the byte after each position, [batch, LENGTH, BYTES]. */
static ckpt_tensor forward(const struct gpt *m, ckpt_tape *t, int64_t batch)
{
    struct ckpt_attention_spec causal = CKPT_ATTENTION_INIT;
    ckpt_tensor bytes = ckpt_input(t, "bytes", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor x = ckpt_add(t, ckpt_nn_apply_embedding(t, &m->bytes, bytes), m->places.weight);

    causal.causal = true;
    for (int i = 0; i < LAYERS; i++)
        x = ckpt_nn_apply_transformer_layer(t, &m->block[i], x, CKPT_NONE, CKPT_NONE, &causal);
    return ckpt_linear(t, ckpt_nn_apply_norm(t, &m->norm, x), m->bytes.weight, CKPT_NONE);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor next = ckpt_input(t, "next", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    return ckpt_cross_entropy(t, forward(user, t, batch), next, NULL);
}

static ckpt_tensor record_scores(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor scores = forward(user, t, batch);
    ckpt_output(t, "scores", scores);
    return scores;
}

/* Training steps on excerpts that start at random positions of the text. */
static int train(ckpt_program *p, const unsigned char *text, size_t size)
{
    static int32_t bytes[BATCH][LENGTH], next[BATCH][LENGTH];

    for (int step = 0; step < STEPS; step++) {
        float begin[BATCH], loss;
        ckpt_fill_uniform(1, (uint64_t)step, 1, begin, BATCH);
        for (int b = 0; b < BATCH; b++) {
            const unsigned char *at = text + (size_t)(begin[b] * (float)(size - LENGTH));
            for (int i = 0; i < LENGTH; i++)
                bytes[b][i] = at[i], next[b][i] = at[i + 1];
        }
        if (ckpt_feed(p, "bytes", bytes, sizeof bytes) || ckpt_feed(p, "next", next, sizeof next) ||
            ckpt_step(p, &loss))
            return -1;
        if (step % 100 == 0 || step == STEPS - 1)
            printf("step %3d  loss %.4f\n", step + 1, loss);
    }
    return 0;
}

/* Writes one byte at a time, each sampled from the model's prediction after the bytes before it. */
static int write_text(ckpt_program *p)
{
    static float scores[LENGTH][BYTES];
    int32_t bytes[LENGTH] = {'\n'};

    for (int last = 0; last < LENGTH - 1; last++) {
        float u, sum = 0, *row = scores[last];
        int chosen = 0;
        if (ckpt_feed(p, "bytes", bytes, sizeof bytes) || ckpt_step(p, NULL) ||
            ckpt_fetch(p, "scores", scores, sizeof scores))
            return -1;
        for (int i = 0; i < BYTES; i++)
            sum += row[i] = expf(row[i] / 0.8f);
        ckpt_fill_uniform(2, (uint64_t)last, 2, &u, 1);
        for (u *= sum; chosen < BYTES - 1 && u >= row[chosen]; chosen++)
            u -= row[chosen];
        bytes[last + 1] = chosen;
        putchar(chosen >= ' ' || chosen == '\n' ? chosen : '?');
    }
    putchar('\n');
    return 0;
}

/* Reads the beginning of a file; returns its bytes, or 0 after an error message. */
static size_t read_text(const char *path, unsigned char *text, size_t room)
{
    FILE *f = fopen(path, "rb");
    size_t size = f ? fread(text, 1, room, f) : 0;

    if (!f)
        perror(path);
    else if (size <= LENGTH + 1)
        fprintf(stderr, "gpt: %s: the text is too short\n", path);
    if (f)
        fclose(f);
    return size > LENGTH + 1 ? size : 0;
}

int main(int argc, char **argv)
{
    static unsigned char text[1 << 20];
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *training, *writing;
    struct gpt model;
    ckpt *c = NULL;

    bool wrong = ckpt_options_parse(&opt, &argc, argv), usage = argc != 2 || argv[1][0] == '-';
    if (wrong || usage || ckpt_open(&c, &opt)) {
        fprintf(stderr, "gpt: %s\n",
                usage && !wrong ? "usage: gpt FILE [--vram SIZE]..." : ckpt_error(NULL));
        return 2;
    }
    size_t size = read_text(argv[1], text, sizeof text);
    create(&model, c);
    adamw.lr = 3e-3f;
    int failed = !size ||
                 ckpt_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH, &training) ||
                 ckpt_compile(c, record_scores, &model, NULL, 1, &writing) ||
                 (!opt.plan_only && (train(training, text, size) || write_text(writing)));
    if (failed && size)
        fprintf(stderr, "gpt: %s\n", ckpt_error(c));
    ckpt_close(c);
    return failed;
}
