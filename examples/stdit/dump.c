/* --dump: loss, prediction and gradients of a step, for comparison with another implementation. */
#include <stdlib.h>
#include "run.h"

/* Tensors are borrowed by the writer until the file is written. */
struct dump {
    ckpt_file_writer *writer;
    float **data;
    int n;
};

static int add(struct dump *d, const struct stdit_run *r, const char *name)
{
    struct ckpt_desc desc;
    int64_t n = 1;

    if (ckpt_program_desc(r->training, name, &desc))
        return say_fail("%s", ckpt_error(r->context));
    for (int i = 0; i < desc.ndim; i++)
        n *= desc.shape[i];
    float *x = malloc((size_t)n * sizeof *x);
    if (!x)
        return say_fail("--dump: no memory for %s", name);
    d->data[d->n++] = x;
    if (ckpt_fetch(r->training, name, x, n * 4))
        return say_fail("%s", ckpt_error(r->context));
    if (ckpt_file_add(d->writer, name, CKPT_F32, desc.ndim, desc.shape, x))
        return say_fail("--dump: %s", ckpt_error(NULL));
    return 0;
}

static int add_gradients(struct dump *d, const struct stdit_run *r)
{
    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        struct ckpt_param_info info;
        char name[160];
        if (ckpt_param_info(r->context, ckpt_param_at(r->context, i), &info) || !info.trainable)
            continue;
        snprintf(name, sizeof name, "grad.%s", info.name);
        if (add(d, r, name))
            return -1;
    }
    return 0;
}

static int write_all(struct dump *d, const struct stdit_run *r, const float *loss)
{
    if (ckpt_file_create(&d->writer, r->options.dump))
        return say_fail("--dump: %s", ckpt_error(NULL));
    if (ckpt_file_add(d->writer, "loss", CKPT_F32, 0, NULL, loss) || add(d, r, "pred") ||
        add_gradients(d, r)) {
        ckpt_file_abandon(d->writer);
        return -1;
    }
    if (ckpt_file_commit(d->writer))
        return say_fail("--dump: %s", ckpt_error(NULL));
    return 0;
}

int stdit_dump(const struct stdit_run *r, float loss)
{
    struct dump d = {.data = calloc((size_t)ckpt_param_count(r->context) + 1, sizeof(float *))};

    int rc = d.data ? write_all(&d, r, &loss) : say_fail("--dump: no memory");
    for (int i = 0; i < d.n; i++)
        free(d.data[i]);
    free(d.data);
    return rc;
}
