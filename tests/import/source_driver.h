/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Behind a recorder that ckpt import --c-out wrote: a program that prints the tape, then the loss
 * of a step and of the next one.  Its arguments are "recorder", or "archive" for the tape of the
 * importer, the archive, and the file of constants.
 */
#include <ckpt_import.h>
#include <string.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) < 0) {                                                                          \
            fprintf(stderr, "%s: %s\n", #call, ckpt_error(c));                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static ckpt *c;

/* The first axis of all inputs; 0: they differ, and a call is one sample. */
static int64_t samples_of(ckpt_import *m)
{
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
    int64_t samples = 0;

    for (int i = 0; i < ckpt_import_input_count(m); i++) {
        ckpt_import_input(m, i, &v);
        const int64_t n = v.desc.ndim ? v.desc.shape[0] : 1;
        if (i && n != samples)
            return 0;
        samples = n;
    }
    return samples;
}

static ckpt_tensor input_of(ckpt_tape *t, ckpt_import *m, const char *name, enum ckpt_dtype dtype,
                            const struct ckpt_desc *d)
{
    int64_t whole[CKPT_MAX_DIMS + 1] = {1};

    if (d->ndim && samples_of(m))
        return ckpt_input(t, name, dtype, d->ndim, d->shape);
    memcpy(whole + 1, d->shape, sizeof d->shape);
    return ckpt_reshape(t, ckpt_input(t, name, dtype, d->ndim + 1, whole), d->ndim, d->shape);
}

static ckpt_tensor input(ckpt_tape *t, ckpt_import *m, int i)
{
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;

    ckpt_import_input(m, i, &v);
    return input_of(t, m, v.name, v.desc.dtype, &v.desc);
}

/* The loss of ckpt import: the model's own, or the distances of all outputs from targets. */
static ckpt_tensor loss_of(ckpt_tape *t, ckpt_import *m, const ckpt_tensor *out)
{
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
    ckpt_tensor loss = CKPT_NONE;
    char name[300];

    for (int i = 0; i < ckpt_import_output_count(m); i++)
        if (!ckpt_import_output(m, i, &v) && v.loss)
            return out[i];
    for (int i = 0; i < ckpt_import_output_count(m); i++) {
        ckpt_import_output(m, i, &v);
        if (v.desc.dtype == CKPT_I32)
            continue;
        snprintf(name, sizeof name, "target.%s", v.name);
        struct ckpt_desc d = ckpt_desc_of(t, out[i]);
        ckpt_tensor y = d.ndim > 0 ? input_of(t, m, name, CKPT_F32, &d) : CKPT_NONE;
        ckpt_tensor x = ckpt_cast(t, out[i], CKPT_F32);
        x = y.id ? ckpt_sub(t, x, y) : x;
        x = ckpt_reshape(t, ckpt_mean(t, ckpt_mul(t, x, x), CKPT_ALL_AXES), 0, NULL);
        loss = loss.id ? ckpt_add(t, loss, x) : x;
    }
    return loss;
}

static ckpt_tensor record_archive(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor in[64], out[64];

    (void)batch;
    for (int i = 0; i < ckpt_import_input_count(user); i++)
        in[i] = input(t, user, i);
    ckpt_import_record(t, user, in, out);
    return loss_of(t, user, out);
}

/* Every input of the program that it reads, and the targets. */
static void feed(ckpt_program *p, const char *name, int64_t salt)
{
    struct ckpt_desc d;
    int64_t n = 1;

    if (ckpt_program_desc(p, name, &d))
        return;
    for (int i = 0; i < d.ndim; i++)
        n *= d.shape[i];
    float *x = malloc((size_t)n * 4);
    int32_t *whole = (int32_t *)(void *)x;
    for (int64_t i = 0; i < n; i++)
        if (d.dtype == CKPT_I32)
            whole[i] = (int32_t)((i * 7 + salt) % 5 % 2);
        else
            x[i] = (float)((i * 37 + salt) % 101) / 50.f - 1.f;
    if (d.dtype == CKPT_BF16)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)x)[i] = (uint16_t)(0x3f00 + i % 100);
    CHECK(ckpt_feed(p, name, x, n * (d.dtype == CKPT_BF16 ? 2 : 4)));
    free(x);
}

int main(int argc, char **argv)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
    static struct model model;
    ckpt_import *m = NULL;
    ckpt_program *p;
    char name[300];

    if (argc < 4)
        return 1;
    const int mine = !strcmp(argv[1], "recorder");
    o.device = "cpu";
    o.threads = 1;
    o.dump_tape = "unused";
    o.vram = CKPT_VRAM_NONE;
    CHECK(ckpt_open(&c, &o));
    ckpt *values = c;
    if (mine)
        CHECK(ckpt_open(&values, &o)); /* the archive's names and values */
    CHECK(ckpt_import_open(values, argv[2], &m));
    snprintf(name, sizeof name, "%s.values", argv[2]);
    CHECK(ckpt_save_params(values, name, CKPT_VALUE));
    if (mine) {
        CHECK(model_create(c, argv[3], &model));
        CHECK(ckpt_load_params(c, name, NULL, NULL, NULL));
    }
    const int64_t samples = samples_of(m);
    CHECK(ckpt_compile(c, mine ? model_record : record_archive, mine ? (void *)&model : (void *)m,
                       ckpt_adamw(c, &adamw), samples ? samples : 1, &p));
    for (int step = 0; step < 2; step++) {
        float loss;
        for (int i = 0; i < ckpt_import_input_count(m); i++) {
            CHECK(ckpt_import_input(m, i, &v));
            feed(p, v.name, i);
        }
        for (int i = 0; i < ckpt_import_output_count(m); i++) {
            CHECK(ckpt_import_output(m, i, &v));
            snprintf(name, sizeof name, "target.%s", v.name);
            feed(p, name, 3 * i);
        }
        CHECK(ckpt_step(p, &loss));
        printf("loss %a\n", (double)loss);
    }
    ckpt_import_close(m);
    if (mine)
        ckpt_close(values);
    ckpt_close(c);
    return 0;
}
