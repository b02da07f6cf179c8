/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small training job with the public interface, for the torture test and to count the allocations
 * of a step:
 *
 *     job STEPS BATCH STATE_IN|- STATE_OUT|- WEIGHTS|- [options of the library]
 *
 * It prints "calls KIND N": how often memory and threads were requested between the second step and
 * the last, if tests/torture/shim.c was loaded before it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"

enum { LAYERS = 5, WIDTH = 64 };

struct model {
    ckpt_tensor weight[LAYERS], bias[LAYERS];
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH}), h = x;
    for (int i = 0; i < LAYERS; i++)
        h = ckpt_gelu_tanh(t, ckpt_linear(t, h, m->weight[i], m->bias[i]));
    return ckpt_mean(t, ckpt_mul(t, ckpt_sub(t, h, x), ckpt_sub(t, h, x)), 3);
}

static void create(struct model *m, ckpt *c)
{
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d.weight", i);
        m->weight[i] =
            ckpt_param(c, name, CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
        snprintf(name, sizeof name, "layer%d.bias", i);
        m->bias[i] = ckpt_param(c, name, CKPT_F32, 1, (int64_t[]){WIDTH}, CKPT_ZEROS, true);
    }
}

static const char *const memory[] = {"malloc",   "calloc", "realloc",
                                     "memalign", "mmap",   "pthread_create"};
enum { KINDS = sizeof memory / sizeof *memory };

static void count(long *n)
{
    long (*calls)(const char *);
    *(void **)&calls = dlsym(RTLD_DEFAULT, "torture_calls");
    for (int i = 0; i < KINDS; i++)
        n[i] = calls ? calls(memory[i]) : 0;
}

static int train(ckpt *c, ckpt_program *p, float *x, int64_t n, int64_t steps)
{
    long before[KINDS] = {0}, after[KINDS];
    for (int64_t step = ckpt_updates(c); step < steps; step++) {
        float loss;
        ckpt_fill_normal(7, (uint64_t)(step * ckpt_ranks(c) + ckpt_rank(c)), 1, x, n);
        int rc = ckpt_feed(p, "x", x, n * (int64_t)sizeof *x);
        if (!rc)
            rc = ckpt_step(p, &loss);
        if (rc)
            return rc;
        if (step == 1)
            count(before);
    }
    count(after);
    for (int i = 0; i < KINDS; i++)
        printf("calls %s %ld\n", memory[i], after[i] - before[i]);
    return 0;
}

static int say(const char *sentence)
{
    fprintf(stderr, "job: %s\n", sentence);
    return 1;
}

static bool given(const char *path)
{
    return strcmp(path, "-") != 0;
}

static int run(ckpt *c, char **files, int64_t steps, int64_t batch)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct model model;
    ckpt_program *p;
    adamw.ema_decay = 0.9f;
    create(&model, c);
    int rc = ckpt_compile(c, record, &model, ckpt_adamw(c, &adamw), batch, &p);
    if (!rc && ckpt_rank(c) == 0)
        ckpt_plan_print(p, stdout);
    if (!rc && given(files[0]))
        rc = ckpt_load_state(c, files[0]);
    float *x = malloc((size_t)(batch * WIDTH) * sizeof *x);
    if (!rc && !x)
        return say("no memory for a batch");
    if (!rc)
        rc = train(c, p, x, batch * WIDTH, steps);
    free(x);
    if (!rc && given(files[1]))
        rc = ckpt_save_state(c, files[1]);
    if (!rc)
        rc = ckpt_save_wait(c);
    if (!rc && given(files[2]))
        rc = ckpt_save_params(c, files[2], CKPT_VALUE);
    return rc;
}

int main(int argc, char **argv)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    ckpt *c = NULL;
    if (ckpt_options_parse(&opt, &argc, argv))
        return say(ckpt_error(NULL));
    if (argc != 6)
        return say("give STEPS BATCH STATE_IN STATE_OUT WEIGHTS");
    if (ckpt_open(&c, &opt))
        return say(ckpt_error(NULL));
    int rc = run(c, argv + 3, atol(argv[1]), atol(argv[2]));
    if (rc < 0)
        say(ckpt_error(c));
    ckpt_close(c);
    return rc ? 1 : 0;
}
