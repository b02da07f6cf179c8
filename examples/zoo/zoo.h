/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every program of the zoo does around its model: options, a line of the loss, the end.
 *
 * zoo_compile, zoo_feed and zoo_step are ckpt_compile, ckpt_feed and ckpt_step of a program that
 * trains.  With --dump FILE they keep what another implementation needs to run the same three
 * steps, and what came out; zoo.c says how the file is made up.
 */
#ifndef ZOO_H
#define ZOO_H

#include "ckpt_tools.h"

/* Takes the options of the library, and --dump, and opens a context: NULL if it cannot. */
ckpt *zoo_open(struct ckpt_options *opt, int argc, char **argv);

int zoo_compile(ckpt *c, ckpt_recorder record, void *user, const ckpt_optimizer *optimizer,
                int64_t batch, ckpt_program **p);
/* The same where the optimizer trains only parameters whose names begin with `trained`. */
int zoo_compile_part(ckpt *c, ckpt_recorder record, void *user, const ckpt_optimizer *optimizer,
                     const char *trained, int64_t batch, ckpt_program **p);
int zoo_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes);
int zoo_step(ckpt_program *p, float *loss);

/* Says that a dump has to hold x, which a recorder has drawn. */
void zoo_keep(ckpt_tape *t, const char *name, ckpt_tensor x);

/* How many of the steps to run: all, three for a dump. */
int zoo_steps(int steps);

/* The loss after every fifth of the steps, all its digits: a budget must not change one. */
void zoo_print(int step, int steps, float loss);

/* Closes the context; returns what main() does: 0 if nothing failed and the model has learned. */
int zoo_close(ckpt *c, int failed, bool learned);

#endif
