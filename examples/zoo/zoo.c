/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run of a program: see zoo.h.  Batches are drawn by the number of the step alone, so a run
 * under a budget sees the same ones.  Only programs that train are in a dump.
 */
#include <stdlib.h>
#include "dump.h"

static struct ckpt_options options = CKPT_OPTIONS_INIT;
static const char *dump_path;

ckpt *zoo_open(int argc, char **argv, const struct ckpt_option *own, void *values)
{
    static const struct ckpt_option none = {NULL, CKPT_OPT_FLAG, 0, NULL, NULL, {0, 0}};
    static const struct ckpt_option shared[] = {
        {"dump",
         CKPT_OPT_STRING,
         0,
         "FILE",
         "run three steps and write what went in and came out",
         {0, 0}},
        {NULL, CKPT_OPT_FLAG, 0, NULL, NULL, {0, 0}}};
    const struct ckpt_option *tables[] = {own ? own : &none, shared, ckpt_options_table()};
    ckpt *c;

    if ((own && ckpt_option_table_parse(own, values, &argc, argv)) ||
        ckpt_option_table_parse(shared, &dump_path, &argc, argv) ||
        ckpt_options_parse(&options, &argc, argv) || ckpt_options_reject(argc, argv, 3, tables) ||
        ckpt_open(&c, &options)) {
        fprintf(stderr, "%s: %s\n", argv[0], ckpt_error(NULL));
        exit(2);
    }
    dump_open(c, dump_path);
    return c;
}

ckpt_tensor zoo_output(ckpt_tape *t, const char *name, ckpt_tensor x)
{
    ckpt_output(t, name, x);
    return x;
}

/* ---- a run ----------------------------------------------------------------------------------- */

enum { TRAINED = 2 }; /* programs at the most */

static int compile(ckpt *c, const struct zoo_run *z, const struct zoo_steps *s,
                   ckpt_program *p[TRAINED], ckpt_program **test)
{
    for (int i = 0; i < TRAINED && z->training[i].record; i++) {
        const struct zoo_training *r = &z->training[i];
        if (dump_compile(c, r->record, z->model, r->optimizer, r->trained ? r->trained : "",
                         s->batch, &p[i]))
            return -1;
    }
    *test = p[0];
    return z->record_test ? ckpt_compile(c, z->record_test, z->model, NULL,
                                         s->test_batch ? s->test_batch : s->batch, test)
                          : 0;
}

/* Draws a batch and feeds the inputs from number `first` on. */
static int feed(ckpt_program *p, const struct zoo_data *data, int first, int step)
{
    const int n = sizeof data->input / sizeof *data->input;

    data->draw((uint64_t)step);
    for (int i = first; i < n && data->input[i].name; i++) {
        const struct zoo_input *x = &data->input[i];
        if (dump_feed(p, x->name, x->data, dump_bytes(p, x->name)))
            return -1;
    }
    return 0;
}

/* One step of each training program; *loss: their sum. */
static int step(const struct zoo_run *z, const struct zoo_steps *s, ckpt_program *p[TRAINED], int i,
                float *loss)
{
    struct ckpt_schedule cosine = CKPT_SCHEDULE_INIT;
    float own;

    cosine.kind = CKPT_SCHEDULE_COSINE;
    cosine.warmup = s->warmup;
    cosine.total = s->steps;
    *loss = 0;
    for (int k = 0; k < TRAINED && p[k]; k++) {
        const struct zoo_data *data = z->training[k].data;
        if ((s->lr > 0 && ckpt_set_lr(p[k], (float)ckpt_schedule(&cosine, s->lr, i))) ||
            (data && feed(p[k], data, 0, i)) || dump_step(p[k], &own))
            return -1;
        *loss += own;
    }
    return 0;
}

static int train(const struct zoo_run *z, const struct zoo_steps *s, ckpt_program *p[TRAINED])
{
    int steps = dump_path && s->steps > DUMP_STEPS ? DUMP_STEPS : s->steps;
    float loss;

    for (int i = 0; i < steps; i++) {
        if (step(z, s, p, i, &loss))
            return -1;
        if (i % (s->steps / 5) == 0 || i == s->steps - 1)
            printf("step %4d  loss %.9g\n", i + 1, (double)loss);
    }
    return 0;
}

int zoo_run(ckpt *c, const struct zoo_run *z, const struct zoo_steps *steps)
{
    ckpt_program *p[TRAINED] = {NULL}, *test;
    bool learned = true;
    int failed = compile(c, z, steps, p, &test);

    for (int i = 0; i < TRAINED && p[i] && !failed; i++)
        ckpt_plan_print(p[i], stdout);
    if (!failed && !options.plan_only)
        failed = train(z, steps, p) || z->test(test, &learned);
    if (failed)
        fprintf(stderr, "%s\n", ckpt_error(c));
    else if (dump_path)
        failed = dump_write();
    else if (!learned)
        fprintf(stderr, "not learned\n");
    dump_close();
    ckpt_close(c);
    return failed || !(learned || dump_path);
}

/* ---- classifiers ----------------------------------------------------------------------------- */

/* A process has one. */
static struct {
    const struct zoo_classifier *z;
    const struct zoo_steps *steps;
    int classes;
} one;

static ckpt_tensor record_loss(ckpt_tape *t, int64_t batch, void *model)
{
    ckpt_tensor logits = one.z->forward(t, batch, true, model);
    struct ckpt_desc d = ckpt_desc_of(t, logits);
    ckpt_tensor right = ckpt_input(t, one.z->data->input[0].name, CKPT_I32, d.ndim - 1, d.shape);

    one.classes = d.ndim ? (int)d.shape[d.ndim - 1] : 0;
    return ckpt_cross_entropy(t, logits, right, NULL);
}

static ckpt_tensor record_answer(ckpt_tape *t, int64_t batch, void *model)
{
    ckpt_tensor logits = one.z->forward(t, batch, false, model);

    return zoo_output(t, "answer", ckpt_argmax(t, logits, ckpt_desc_of(t, logits).ndim - 1));
}

static bool most_are_right(const int64_t *n, int k)
{
    int64_t right = 0, all = 0;

    for (int i = 0; i < k * k; i++) {
        right += i / k == i % k ? n[i] : 0;
        all += n[i];
    }
    printf("learned: %.1f %% of new answers are right\n", 100. * (double)right / (double)all);
    return (double)right > 0.9 * (double)all;
}

/* Counts the answers to batches after those of the training. */
static int count_answers(ckpt_program *p, int32_t *answer, int64_t *n)
{
    const int32_t *right = one.z->data->input[0].data;
    int64_t bytes = dump_bytes(p, "answer");
    int end = one.steps->steps + one.steps->tests;

    for (int i = one.steps->steps; i < end; i++) {
        if (feed(p, one.z->data, 1, i) || ckpt_step(p, NULL) ||
            ckpt_fetch(p, "answer", answer, bytes))
            return -1;
        for (int64_t k = 0; k < bytes / (int64_t)sizeof *answer; k++)
            n[right[k] * one.classes + answer[k]]++;
    }
    return 0;
}

static int test_answers(ckpt_program *p, bool *learned)
{
    int64_t *n = calloc((size_t)one.classes * (size_t)one.classes, sizeof *n);
    int32_t *answer = malloc((size_t)dump_bytes(p, "answer"));
    int failed = !n || !answer || count_answers(p, answer, n);

    if (!failed)
        *learned = (one.z->judge ? one.z->judge : most_are_right)(n, one.classes);
    free(answer);
    free(n);
    return failed;
}

int zoo_classify(ckpt *c, const struct zoo_classifier *z, const struct zoo_steps *steps)
{
    struct zoo_run run = {z->model,
                          {{record_loss, z->optimizer, z->data, NULL}},
                          record_answer,
                          z->test ? z->test : test_answers};

    one.z = z;
    one.steps = steps;
    return zoo_run(c, &run, steps);
}
