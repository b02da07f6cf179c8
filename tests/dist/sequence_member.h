/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of --sequence do with their struct member: included behind it, and behind the
 * table `shapes` of its PARAMS parameters. */
#ifndef TESTS_DIST_SEQUENCE_MEMBER_H
#define TESTS_DIST_SEQUENCE_MEMBER_H

#include <stdlib.h>

#define SPLIT sequence

static const char *param_name(int k)
{
    return shapes[k].name;
}

static int64_t numel(int k)
{
    return shapes[k].rows * shapes[k].columns;
}

#include "dist/split_member.h"

static int fetch(struct member *m, ckpt *c, ckpt_program *p)
{
    int rc = 0;
    for (int k = 0; k < PARAMS && !rc; k++) {
        m->gradient[k] = calloc((size_t)numel(k), sizeof(float));
        m->value[k] = calloc((size_t)numel(k), sizeof(float));
        rc = ckpt_fetch(p, shapes[k].name, m->gradient[k], numel(k) * 4);
        if (!rc)
            rc = ckpt_param_get(c, m->param[k], CKPT_VALUE, m->value[k], numel(k));
    }
    return rc;
}

static void release(struct member *m, int ranks)
{
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < PARAMS; k++) {
            free(m[r].gradient[k]);
            free(m[r].value[k]);
        }
}

/* The gradients of all ranks together, as those of one. */
static void sum_gradients(struct member *m, int ranks)
{
    for (int k = 0; k < PARAMS; k++)
        for (int r = 1; r < ranks; r++)
            for (int64_t i = 0; i < numel(k); i++)
                m[0].gradient[k][i] += m[r].gradient[k][i];
}

#endif
