/* SPDX-License-Identifier: Apache-2.0 */
/* --dump: loss, prediction and gradients of a step, for comparison with another implementation. */
#include <stdlib.h>
#include "ckpt_files.h"
#include "dump.h"
#include "say.h"

void dump_record(ckpt *c, ckpt_tape *t, ckpt_tensor pred)
{
    ckpt_output(t, "pred", pred);
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_tensor w = ckpt_param_at(c, i);
        char name[160];
        if (ckpt_param_info(c, w, &info) || !info.trainable)
            continue;
        snprintf(name, sizeof name, "grad.%s", info.name);
        ckpt_output_gradient(t, name, w);
    }
}

/* The writer borrows these tensors until the file is written. */
struct dump {
    ckpt *context;
    ckpt_program *program;
    ckpt_file_writer *writer;
    float **data;
    int n;
};

static int add(struct dump *d, const char *name)
{
    struct ckpt_desc desc;
    int64_t n = 1;

    if (ckpt_program_desc(d->program, name, &desc))
        return say_fail("%s", ckpt_error(d->context));
    for (int i = 0; i < desc.ndim; i++)
        n *= desc.shape[i];
    float *x = malloc((size_t)n * sizeof *x);
    if (!x)
        return say_fail("--dump: no memory for %s", name);
    d->data[d->n++] = x;
    if (ckpt_fetch(d->program, name, x, n * 4))
        return say_fail("%s", ckpt_error(d->context));
    if (ckpt_file_add(d->writer, name, CKPT_F32, desc.ndim, desc.shape, x))
        return say_fail("--dump: %s", ckpt_error(NULL));
    return 0;
}

static int add_gradients(struct dump *d)
{
    for (int i = 0; i < ckpt_param_count(d->context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        char name[160];
        if (ckpt_param_info(d->context, ckpt_param_at(d->context, i), &info) || !info.trainable)
            continue;
        snprintf(name, sizeof name, "grad.%s", info.name);
        if (add(d, name))
            return -1;
    }
    return 0;
}

static int write_all(struct dump *d, const char *path, const float *loss)
{
    if (ckpt_file_create(&d->writer, path))
        return say_fail("--dump: %s", ckpt_error(NULL));
    if (ckpt_file_add(d->writer, "loss", CKPT_F32, 0, NULL, loss) || add(d, "pred") ||
        add_gradients(d)) {
        ckpt_file_abandon(d->writer);
        return -1;
    }
    if (ckpt_file_commit(d->writer))
        return say_fail("--dump: %s", ckpt_error(NULL));
    return 0;
}

int dump_step(ckpt *c, ckpt_program *p, const char *path, float loss)
{
    struct dump d = {c, p, NULL, NULL, 0};

    d.data = calloc((size_t)ckpt_param_count(c) + 1, sizeof(float *));
    int rc = d.data ? write_all(&d, path, &loss) : say_fail("--dump: no memory");
    for (int i = 0; i < d.n; i++)
        free(d.data[i]);
    free(d.data);
    return rc;
}

int dump_check(const char *path, int64_t steps)
{
    return path && !steps ? say_fail("--dump %s: nothing was written: there was no step", path) : 0;
}
