/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by all programs of the zoo: options, the loss line, the exit status.
 *
 * zoo_compile, zoo_feed and zoo_step are ckpt_compile, ckpt_feed and ckpt_step of a training
 * program.  With --dump FILE they also save the inputs and results of three steps, so that another
 * implementation can repeat them; zoo.c documents the file.
 */
#ifndef ZOO_H
#define ZOO_H

#include "ckpt_tools.h"

/* Parses the options of the library and --dump, and opens a context; NULL on failure. */
ckpt *zoo_open(struct ckpt_options *opt, int argc, char **argv);

int zoo_compile(ckpt *c, ckpt_recorder record, void *user, const ckpt_optimizer *optimizer,
                int64_t batch, ckpt_program **p);
/* The same with an optimizer that trains only parameters whose names start with `trained`. */
int zoo_compile_part(ckpt *c, ckpt_recorder record, void *user, const ckpt_optimizer *optimizer,
                     const char *trained, int64_t batch, ckpt_program **p);
int zoo_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes);
int zoo_step(ckpt_program *p, float *loss);

/* Adds x, a random draw of the recorder, to the dump. */
void zoo_keep(ckpt_tape *t, const char *name, ckpt_tensor x);

/* The number of steps to run: `steps`, or three for a dump. */
int zoo_steps(int steps);

/* Prints the loss after every fifth of the steps, with all digits: a budget must not change it. */
void zoo_print(int step, int steps, float loss);

/* Closes the context; returns main()'s exit status: 0 if nothing failed and the model has
 * learned. */
int zoo_close(ckpt *c, int failed, bool learned);

#endif
