/* SPDX-License-Identifier: Apache-2.0 */
/* NULL for each pointer of ckpt_import.h in turn: a code and a sentence, or nothing at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_import.h"

static int failed;

/* The call must return `code`. */
#define GIVES(code, call)                                                                          \
    do {                                                                                           \
        if ((call) != (code)) {                                                                    \
            printf("FAIL: %s\n", #call);                                                           \
            failed++;                                                                              \
        }                                                                                          \
    } while (0)

static ckpt_import *model;

/* A tape keeps the failure of a call without inputs. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor out[16];

    (void)batch;
    ckpt_import_record(t, user ? model : NULL, NULL, user ? out : NULL);
    return CKPT_NONE;
}

int main(void)
{
    const char *srcdir = getenv("srcdir");
    char path[4096];
    ckpt *c;
    ckpt_program *p;
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
    struct ckpt_options o = CKPT_OPTIONS_INIT;

    o.device = "cpu";
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/archive/small.pt2", srcdir ? srcdir : ".");
    if (ckpt_open(&c, &o) || ckpt_import_open(c, path, &model))
        return 99;
    GIVES(CKPT_EINVAL, ckpt_import_open(NULL, path, &model));
    GIVES(CKPT_EINVAL, ckpt_import_open(c, NULL, &model));
    GIVES(CKPT_EINVAL, ckpt_import_open(c, path, NULL));
    GIVES(-1, ckpt_import_input_count(NULL));
    GIVES(-1, ckpt_import_output_count(NULL));
    GIVES(CKPT_EINVAL, ckpt_import_input(NULL, 0, &v));
    GIVES(CKPT_EINVAL, ckpt_import_input(model, 0, NULL));
    GIVES(CKPT_EINVAL, ckpt_import_output(NULL, 0, &v));
    GIVES(CKPT_EINVAL, ckpt_import_output(model, 0, NULL));
    GIVES(CKPT_EINVAL, ckpt_import_set_size(NULL, "s0", 2));
    GIVES(CKPT_EINVAL, ckpt_import_set_size(model, NULL, 2));
    GIVES(CKPT_EINVAL, ckpt_import_set_training(NULL, true));
    GIVES(-1, ckpt_import_missing(NULL));
    GIVES(CKPT_EINVAL, ckpt_import_save(NULL, path));
    GIVES(CKPT_EINVAL, ckpt_import_save(model, NULL));
    GIVES(CKPT_EINVAL, ckpt_compile(c, record, NULL, NULL, 1, &p));
    GIVES(CKPT_EINVAL, ckpt_compile(c, record, model, NULL, 1, &p));
    ckpt_import_record(NULL, model, NULL, NULL);
    ckpt_import_close(NULL);
    ckpt_import_close(model);
    ckpt_close(c);
    return failed;
}
