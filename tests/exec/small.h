/* SPDX-License-Identifier: Apache-2.0 */
/* A small network that is trained with offloads, for tests of whole steps; uses the library's
 * internals. */
#ifndef CKPT_TESTS_SMALL_H
#define CKPT_TESTS_SMALL_H

#include "context/context.h"
#include "exec/program.h"
#include "force.h"

enum {
    SMALL_STEPS = 8,
    SMALL_SAVED = 3, /* of them before the save of small_open_resumed */
    SMALL_LAYERS = 3,
    SMALL_PARAMS = 2 * SMALL_LAYERS + 3,
    SMALL_SLOTS = 6,
    SMALL_BATCH = 24
};

struct small {
    enum ckpt_dtype dtype;
    int64_t width;
    int64_t rows; /* of a sample; 0: one */
    ckpt_tensor param[SMALL_PARAMS];
    struct ckpt_options options;
    struct ckpt_adamw adamw;
    ckpt_optimizer *(*optimizer)(ckpt *c, const struct small *r); /* NULL: adamw */
    float loss[SMALL_STEPS];
    double norm;
    float *state; /* of all slots of all parameters, after small_collect; the caller's */
    int64_t numel;
};

/* Whether "make check-gpu" runs the test. */
bool small_on_gpu(void);

/* With moving averages, weight decay and freed bytes poisoned, on one thread. */
struct small small_make(enum ckpt_dtype dtype, int64_t width, int64_t n_micro, bool clip);

/* Records the network and its loss; the output "h" is what stands before the last layer. */
ckpt_tensor small_record(ckpt_tape *t, int64_t batch, void *user);

/* Opens a context and compiles; returns what the compile does. */
int small_compile(struct small *r, ckpt **c, ckpt_program **p);

/* These fail the test where the library refuses. */
void small_open(struct small *r, ckpt **c, ckpt_program **p);
/* The same, for what a context that took the first SMALL_SAVED steps has saved. */
void small_open_resumed(struct small *r, ckpt **c, ckpt_program **p);
/* Steps [from, to), two under way. */
void small_train(struct small *r, ckpt *c, ckpt_program *p, int from, int to);
void small_collect(struct small *r, ckpt *c);
/* The first steps in a context of their own, and what they leave. */
void small_run(struct small *r, int steps);

void small_feed(ckpt_program *p, const struct small *r, int step);

/* The name of a file of this process. */
void small_path(char *path, size_t size, const char *what);

/* Offloads what can be offloaded of the plan that r would have; the new one goes to path. */
void small_force(const struct small *r, const struct force *f, const char *path,
                 struct budgets *tiers, struct force_count *count);

/* Options to run such a plan: nvme is room for their text. */
void small_use_tiers(struct small *r, const char *path, const struct budgets *tiers, char nvme[64]);

/* Fail the test if losses or state differ in a bit; they free b's state. */
void small_expect_same(const char *what, const struct small *a, struct small *b);
/* Compare with a run with forced offloads, and with a save and a resume after the third step. */
void small_expect_forced(const struct small *resident, const struct force *f, const char *what);
void small_expect_resumed(const struct small *whole);

#endif
