/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with ordinary names, which files of the library also use inside: it links with
 * libckpt.a, and the library calls none of its functions.
 */
#include <ckpt.h>
#include <stdlib.h>
#include <stdio.h>

#define OWN(name)                                                                                  \
    void name(void);                                                                               \
    void name(void)                                                                                \
    {                                                                                              \
        puts("the library called the program's " #name);                                           \
        exit(1);                                                                                   \
    }
OWN(plan_free)
OWN(plan_write)
OWN(trace_write)
OWN(graph_write)
OWN(checksum)
OWN(error_set)
OWN(tape_new)
OWN(memory_open)

static ckpt_tensor weight;

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const int64_t shape[] = {batch, 4};
    (void)user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, shape);
    ckpt_tensor y = ckpt_linear(t, x, weight, CKPT_NONE);
    return ckpt_mean(t, ckpt_mul(t, y, y), CKPT_ALL_AXES);
}

int main(void)
{
    const int64_t shape[] = {4, 4};
    const float x[8] = {1};
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c;
    ckpt_program *p;
    float loss;
    options.device = "cpu", options.threads = 1;
    options.plan_out = "own.plan", options.graph_out = "own.graph", options.trace_out = "own.json";
    if (ckpt_open(&c, &options)) {
        puts(ckpt_error(NULL));
        return 1;
    }
    weight = ckpt_param(c, "w", CKPT_F32, 2, shape, CKPT_ONES, true);
    int rc = ckpt_compile(c, record, NULL, ckpt_adamw(c, &adamw), 2, &p);
    if (!rc)
        rc = ckpt_feed(p, "x", x, sizeof x);
    for (int i = 0; i < 12 && !rc; i++)
        rc = ckpt_step(p, &loss);
    puts(rc ? ckpt_error(c) : "own names: done");
    ckpt_close(c);
    return rc != 0;
}
