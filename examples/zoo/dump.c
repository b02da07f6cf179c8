/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file that --dump writes, for tests/zoo/reference.py: see dump.h.  Axes are in the library's
 * order.
 *
 *     first.NAME, last.NAME    a parameter before the first step and after the last
 *     P.loss, P.norm [steps]   of program P (0, 1 in the order of compiling): loss, gradient norm
 *     P.in.NAME [steps, ...]   its inputs and its random draws
 *     P.grad.NAME              gradient of a parameter in the first step, before clipping
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "dump.h"

enum { PROGRAMS = 2, TENSORS = 1200, KEPT = 4 };

struct tensor {
    char name[200];
    enum ckpt_dtype dtype;
    int ndim;
    int64_t shape[CKPT_MAX_DIMS], bytes;
    char *data;
};

struct traced {
    ckpt_program *program;
    ckpt_recorder record;
    void *user;
    const char *trained; /* name prefix of the trained parameters */
    int kept;
    char name[KEPT][64]; /* outputs fetched after each step */
    int64_t steps;
};

/* A process has one context and one dump. */
static struct {
    const char *path; /* NULL: there is none */
    ckpt *context;
    struct traced *recording, traced[PROGRAMS];
    int programs, tensors, steps;
    struct tensor tensor[TENSORS];
} dump;

/* ---- a list of tensors ----------------------------------------------------------------------- */

static int fail(const char *what)
{
    fprintf(stderr, "--dump: %s: %s\n", what, ckpt_error(dump.context));
    return -1;
}

/* Adds a tensor to the file, or extends the one of this name by one step.  Returns where to
 * write. */
static void *add(const char *name, const struct ckpt_desc *desc, bool each_step)
{
    int64_t bytes = ckpt_dtype_size(desc->dtype);
    struct tensor *x = dump.tensor;

    for (int i = 0; i < desc->ndim; i++)
        bytes *= desc->shape[i];
    while (x < dump.tensor + dump.tensors && strcmp(x->name, name) != 0)
        x++;
    if (x == dump.tensor + TENSORS)
        return NULL;
    char *data = realloc(x->data, (size_t)(x->bytes + bytes));
    if (!data)
        return NULL;
    if (x == dump.tensor + dump.tensors) {
        dump.tensors++;
        snprintf(x->name, sizeof x->name, "%s", name);
        x->dtype = desc->dtype;
        x->ndim = desc->ndim + each_step;
        memcpy(x->shape + each_step, desc->shape, (size_t)desc->ndim * sizeof *x->shape);
    }
    x->shape[0] += each_step;
    x->data = data;
    x->bytes += bytes;
    return data + x->bytes - bytes;
}

static int add_number(const char *name, float value)
{
    struct ckpt_desc scalar = {CKPT_F32, 0, {0}, {0}, 0};
    float *to = add(name, &scalar, true);

    if (to)
        *to = value;
    return to ? 0 : fail(name);
}

static int add_values(const char *prefix)
{
    for (int i = 0; i < ckpt_param_count(dump.context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_tensor w = ckpt_param_at(dump.context, i);
        char name[160];
        float *to;

        ckpt_param_info(dump.context, w, &info);
        info.desc.dtype = CKPT_F32;
        snprintf(name, sizeof name, "%s.%s", prefix, info.name);
        if (!(to = add(name, &info.desc, false)) ||
            ckpt_param_get(dump.context, w, CKPT_VALUE, to, info.numel))
            return fail(name);
    }
    return 0;
}

static int write_all(void)
{
    ckpt_file_writer *w;
    int rc = ckpt_file_create(&w, dump.path);

    if (rc)
        return fprintf(stderr, "--dump: %s\n", ckpt_error(NULL)), rc;
    for (const struct tensor *x = dump.tensor; x < dump.tensor + dump.tensors && !rc; x++)
        rc = ckpt_file_add(w, x->name, x->dtype, x->ndim, x->shape, x->data);
    if (rc)
        ckpt_file_abandon(w);
    rc = rc ? rc : ckpt_file_commit(w);
    if (rc)
        fprintf(stderr, "--dump: %s\n", ckpt_error(NULL));
    return rc;
}

/* ---- programs that train --------------------------------------------------------------------- */

static bool has_gradient(const struct traced *r, const struct ckpt_param_info *info)
{
    return info->trainable && strncmp(info->name, r->trained, strlen(r->trained)) == 0;
}

/* Records the model; the gradients of the trained parameters become outputs. */
static ckpt_tensor record_traced(ckpt_tape *t, int64_t batch, void *user)
{
    struct traced *r = dump.recording = user;
    ckpt_tensor loss = r->record(t, batch, r->user);

    for (int i = 0; i < ckpt_param_count(dump.context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_tensor w = ckpt_param_at(dump.context, i);
        char name[160];

        ckpt_param_info(dump.context, w, &info);
        snprintf(name, sizeof name, "grad.%s", info.name);
        if (has_gradient(r, &info))
            ckpt_output_gradient(t, name, w);
    }
    dump.recording = NULL;
    return loss;
}

static struct traced *traced(const ckpt_program *p)
{
    for (int i = 0; i < dump.programs; i++)
        if (dump.traced[i].program == p)
            return &dump.traced[i];
    return NULL;
}

int dump_compile(ckpt *c, ckpt_recorder record, void *user, const ckpt_optimizer *optimizer,
                 const char *trained, int64_t batch, ckpt_program **p)
{
    struct traced *r = &dump.traced[dump.programs];

    if (!dump.path || dump.programs == PROGRAMS)
        return ckpt_compile(c, record, user, optimizer, batch, p);
    r->record = record;
    r->user = user;
    r->trained = trained;
    int rc = ckpt_compile(c, record_traced, r, optimizer, batch, p);
    if (!rc) {
        r->program = *p;
        dump.programs++;
    }
    return rc;
}

void zoo_keep(ckpt_tape *t, const char *name, ckpt_tensor x)
{
    struct traced *r = dump.recording;
    int i = 0;

    if (!r)
        return;
    while (i < r->kept && strcmp(r->name[i], name) != 0) /* a name may be recorded twice */
        i++;
    if (i == KEPT)
        return ckpt_tape_fail(t, CKPT_EINVAL, "zoo_keep: more than %d names", KEPT);
    snprintf(r->name[i], sizeof r->name[i], "%s", name);
    r->kept += i == r->kept;
    ckpt_output(t, name, x);
}

int64_t dump_bytes(const ckpt_program *p, const char *name)
{
    struct ckpt_desc desc;

    if (ckpt_program_desc(p, name, &desc))
        return 0;
    int64_t bytes = ckpt_dtype_size(desc.dtype);
    for (int i = 0; i < desc.ndim; i++)
        bytes *= desc.shape[i];
    return bytes;
}

/* Where to write an input or output of a program. */
static void *add_of(const struct traced *r, const char *kind, const char *name, bool each_step)
{
    struct ckpt_desc desc;
    char full[200];

    snprintf(full, sizeof full, "%d.%s%s", (int)(r - dump.traced), kind, name);
    return ckpt_program_desc(r->program, name, &desc) ? NULL : add(full, &desc, each_step);
}

int dump_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes)
{
    const struct traced *r = traced(p);
    int rc = ckpt_feed(p, name, data, bytes);
    void *to;

    if (!r || rc)
        return rc;
    if (!(to = add_of(r, "in.", name, true)))
        return fail(name);
    memcpy(to, data, (size_t)bytes);
    return 0;
}

static int fetch(const struct traced *r, const char *kind, const char *name, bool each_step)
{
    void *to = add_of(r, kind, name, each_step);

    return to ? ckpt_fetch(r->program, name, to, dump_bytes(r->program, name)) : fail(name);
}

static int add_step(struct traced *r, float loss)
{
    struct ckpt_program_info program = CKPT_PROGRAM_INFO_INIT;
    char name[160];
    int rc;

    ckpt_program_info(r->program, &program);
    snprintf(name, sizeof name, "%d.loss", (int)(r - dump.traced));
    rc = add_number(name, loss);
    snprintf(name, sizeof name, "%d.norm", (int)(r - dump.traced));
    rc = rc ? rc : add_number(name, (float)program.grad_norm);
    for (int i = 0; i < r->kept && !rc; i++)
        rc = fetch(r, "in.", r->name[i], true);
    for (int i = 0; i < ckpt_param_count(dump.context) && !rc && r->steps == 0; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;

        ckpt_param_info(dump.context, ckpt_param_at(dump.context, i), &info);
        snprintf(name, sizeof name, "grad.%s", info.name);
        if (has_gradient(r, &info))
            rc = fetch(r, "", name, false);
    }
    r->steps++;
    return rc;
}

int dump_step(ckpt_program *p, float *loss)
{
    struct traced *r = traced(p);

    if (r && dump.steps++ == 0 && add_values("first"))
        return -1;
    int rc = ckpt_step(p, loss);
    return rc || !r ? rc : add_step(r, *loss);
}

/* ---- the run --------------------------------------------------------------------------------- */

void dump_open(ckpt *c, const char *path)
{
    dump.context = c;
    dump.path = path;
}

int dump_write(void)
{
    return add_values("last") || write_all();
}

void dump_close(void)
{
    for (int i = 0; i < dump.tensors; i++)
        free(dump.tensor[i].data);
}
