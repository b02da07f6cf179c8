/* SPDX-License-Identifier: Apache-2.0 */
/* What every program of the zoo does around its model: options, a line of the loss, the end. */
#ifndef ZOO_H
#define ZOO_H

#include "ckpt_tools.h"

/* Takes the options of the library, and nothing else, and opens a context: NULL if it cannot. */
static inline ckpt *zoo_open(struct ckpt_options *opt, int argc, char **argv)
{
    const struct ckpt_option *table = ckpt_options_table();
    ckpt *c = NULL;

    *opt = (struct ckpt_options)CKPT_OPTIONS_INIT;
    if (ckpt_options_parse(opt, &argc, argv) || ckpt_options_reject(argc, argv, 1, &table) ||
        ckpt_open(&c, opt))
        fprintf(stderr, "%s: %s\n", argv[0], ckpt_error(NULL));
    return c;
}

/* The loss after every fifth of the steps, all its digits: a budget must not change one. */
static inline void zoo_print(int step, int steps, float loss)
{
    if (step % (steps / 5) == 0 || step == steps - 1)
        printf("step %4d  loss %.9g\n", step + 1, (double)loss);
}

/* Closes the context; returns what main() does: 0 if nothing failed and the model has learned. */
static inline int zoo_close(ckpt *c, int failed, bool learned)
{
    if (failed)
        fprintf(stderr, "%s\n", ckpt_error(c));
    else if (!learned)
        fprintf(stderr, "not learned\n");
    ckpt_close(c);
    return failed || !learned;
}

#endif
