/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What --dump FILE saves: the inputs and results of the first steps of the training programs, so
 * that another implementation can repeat them.  Without a path the calls do what ckpt_compile,
 * ckpt_feed and ckpt_step do, no more.
 */
#ifndef ZOO_DUMP_H
#define ZOO_DUMP_H

#include "zoo.h"

enum { DUMP_STEPS = 3 }; /* that a program runs */

/* The dump of a process; path NULL: none. */
void dump_open(ckpt *c, const char *path);

/* trained: what the names of the parameters that the optimizer trains begin with. */
int dump_compile(ckpt *c, ckpt_recorder record, void *user, const ckpt_optimizer *optimizer,
                 const char *trained, int64_t batch, ckpt_program **p);
int dump_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes);
int dump_step(ckpt_program *p, float *loss);

/* The size of an input or output; 0: there is no such. */
int64_t dump_bytes(const ckpt_program *p, const char *name);

/* Adds the last values and writes the file.  Returns 0, or -1 after an error message. */
int dump_write(void);
void dump_close(void);

#endif
