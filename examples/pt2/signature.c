/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs and outputs of an archive: see signature.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "signature.h"

#define FIXED "-"

/* ---- reading --------------------------------------------------------------------------------- */

static void take(struct signature_value *to, const struct ckpt_import_value *from)
{
    *to = (struct signature_value){.desc = from->desc, .loss = from->loss, .axis = -1};
    snprintf(to->name, sizeof to->name, "%s", from->name);
    for (int i = 0; i < from->desc.ndim; i++)
        snprintf(to->dimension[i], SIGNATURE_DIMENSION, "%s",
                 from->dimension[i] ? from->dimension[i] : FIXED);
}

/* Describes inputs and outputs; they are -1 for no memory. */
static int describe(struct signature *s, ckpt *c, ckpt_import *m)
{
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
    int rc = 0;

    s->n_in = ckpt_import_input_count(m);
    s->n_out = ckpt_import_output_count(m);
    s->in = calloc((size_t)s->n_in + 1, sizeof *s->in);
    s->out = calloc((size_t)s->n_out + 1, sizeof *s->out);
    if (!s->in || !s->out)
        return say_fail("no memory for the inputs of a model");
    for (int i = 0; i < s->n_in && !rc; i++)
        if (!(rc = ckpt_import_input(m, i, &v)))
            take(&s->in[i], &v);
    for (int i = 0; i < s->n_out && !rc; i++)
        if (!(rc = ckpt_import_output(m, i, &v)))
            take(&s->out[i], &v);
    return rc ? say_fail("%s", ckpt_error(c)) : 0;
}

/* The dimension that "s17" or "ids.0" names. */
static const char *dimension_of(const struct signature *s, const char *name)
{
    char axis[SIGNATURE_NAME + 16]; /* "ids.0" */

    for (int i = 0; i < s->n_in; i++)
        for (int k = 0; k < s->in[i].desc.ndim; k++) {
            const struct signature_value *v = &s->in[i];
            snprintf(axis, sizeof axis, "%s.%d", v->name, k);
            if (!strcmp(v->dimension[k], name) || !strcmp(axis, name))
                return v->dimension[k];
        }
    return NULL;
}

static int add_batch(struct signature *s, const char *dimension)
{
    for (int i = 0; i < s->n_batch; i++)
        if (!strcmp(s->batch[i], dimension))
            return 0;
    if (s->n_batch == SIGNATURE_BATCHES)
        return say_fail("more than %d dimensions of the batch", SIGNATURE_BATCHES);
    strcpy(s->batch[s->n_batch++], dimension);
    return 0;
}

/* One NAME=N of --dim. */
static int set_dimension(struct signature *s, ckpt *c, ckpt_import *m, char *text)
{
    char *equals = strchr(text, '='), *end = NULL;
    const long long n = equals ? strtoll(equals + 1, &end, 10) : 0;

    if (equals && !strcmp(equals + 1, "batch")) {
        *equals = 0;
        const char *dimension = dimension_of(s, text);
        if (!dimension || !*dimension || !strcmp(dimension, FIXED))
            return say_fail("--dim %s=batch: the program has no such dynamic dimension", text);
        return add_batch(s, dimension);
    }
    if (!equals || end == equals + 1 || *end || n <= 0)
        return say_fail("--dim %s: is not NAME=N or NAME=batch, as in s17=8 or ids.0=batch", text);
    *equals = 0;
    if (s->n_sizes == SIGNATURE_SIZES || strlen(text) >= SIGNATURE_NAME)
        return say_fail("--dim: more than %d sizes, or a name that is too long", SIGNATURE_SIZES);
    strcpy(s->size[s->n_sizes].name, text);
    s->size[s->n_sizes++].n = n;
    return ckpt_import_set_size(m, text, n) ? say_fail("--dim %s=%lld: %s", text, n, ckpt_error(c))
                                            : 0;
}

static int set_dimensions(struct signature *s, ckpt *c, ckpt_import *m, const char *dim)
{
    char *copy = strdup(dim ? dim : ""), *rest = NULL;
    int rc = copy ? 0 : say_fail("no memory for --dim");

    for (char *part = rc ? NULL : strtok_r(copy, ",", &rest); part && !rc;
         part = strtok_r(NULL, ",", &rest))
        rc = set_dimension(s, c, m, part);
    free(copy);
    return rc;
}

/* Sets a dimension of --dim to another size near its own; false: it has none. */
static bool move(const struct signature_size *size, ckpt_import *m)
{
    for (int64_t d = 1; d <= 64; d++)
        if (!ckpt_import_set_size(m, size->name, size->n + d) ||
            (size->n > d && !ckpt_import_set_size(m, size->name, size->n - d)))
            return true;
    return false;
}

/* Marks the sizes that change with a dimension of --dim: its own, and those that follow from it. */
static void mark_bound(struct signature *s, ckpt_import *m, int at)
{
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;

    if (!move(&s->size[at], m))
        return;
    for (int i = 0; i < s->n_in; i++)
        for (int k = 0; k < s->in[i].desc.ndim && !ckpt_import_input(m, i, &v); k++)
            if (v.desc.shape[k] != s->in[i].desc.shape[k])
                s->in[i].bound[k] = at + 1;
    ckpt_import_set_size(m, s->size[at].name, s->size[at].n);
}

/* Some exports take no batch of one sample. */
static void find_smallest(struct signature *s, ckpt_import *m)
{
    for (int i = 0; i < s->n_in; i++)
        for (int k = 0; k < s->in[i].desc.ndim; k++) {
            struct signature_value *v = &s->in[i];
            v->smallest[k] = 1;
            while (*v->dimension[k] && signature_is_dynamic(v, k) && v->smallest[k] < 64 &&
                   ckpt_import_set_size(m, v->dimension[k], v->smallest[k]))
                v->smallest[k]++;
        }
}

/* Axis 0 of the first input that has a dynamic one there. */
static int find_batch(struct signature *s)
{
    for (int i = 0; i < s->n_in && !s->n_batch; i++)
        if (s->in[i].role != ROLE_SHARED && s->in[i].desc.ndim && *s->in[i].dimension[0] &&
            strcmp(s->in[i].dimension[0], FIXED) != 0)
            return add_batch(s, s->in[i].dimension[0]);
    return 0;
}

static int read(struct signature *s, ckpt *c, const struct pt2_options *o)
{
    ckpt_import *m = NULL;
    int rc = ckpt_import_open(c, o->model, &m) ? say_fail("%s", ckpt_error(c)) : 0;

    if (!rc)
        rc = describe(s, c, m);
    if (!rc && o->dim) {
        rc = set_dimensions(s, c, m, o->dim);
        free(s->in);
        free(s->out);
        s->in = s->out = NULL;
        if (!rc)
            rc = describe(s, c, m); /* with these sizes */
    }
    for (int i = 0; i < s->n_sizes && !rc; i++)
        mark_bound(s, m, i);
    if (!rc)
        find_smallest(s, m);
    ckpt_import_close(m);
    return rc;
}

int signature_read(struct signature *s, const struct pt2_options *o)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    ckpt *c;

    *s = (struct signature){.n_in = 0};
    options.device = "cpu";
    options.vram = CKPT_VRAM_NONE;
    options.plan_only = true; /* so no weight is read */
    if (ckpt_open(&c, &options))
        return say_fail("%s", ckpt_error(NULL));
    int rc = read(s, c, o);
    ckpt_close(c);
    return rc;
}

void signature_close(struct signature *s)
{
    free(s->in);
    free(s->out);
    *s = (struct signature){.n_in = 0};
}

const struct signature_value *signature_output(const struct signature *s, const char *name)
{
    char *end;
    const long i = strtol(name, &end, 10);

    for (int k = 0; k < s->n_out; k++)
        if (!strcmp(s->out[k].name, name))
            return &s->out[k];
    return *name && !*end && i >= 0 && i < s->n_out ? &s->out[i] : NULL;
}

/* ---- the axis of the samples ----------------------------------------------------------------- */

static bool is_batch(const struct signature *s, const char *dimension)
{
    for (int i = 0; i < s->n_batch; i++)
        if (!strcmp(s->batch[i], dimension))
            return true;
    return false;
}

static int find_axis(const struct signature *s, const struct signature_value *v)
{
    for (int k = 0; k < v->desc.ndim; k++)
        if (is_batch(s, v->dimension[k]))
            return k;
    return -1;
}

static int place_dynamic(struct signature *s, struct signature_value *v, bool has_data)
{
    v->axis = find_axis(s, v);
    if (v->role == ROLE_SHARED)
        return v->axis < 0
                   ? 0
                   : say_fail("--shared: axis %d of input '%s' is the batch, so each sample "
                              "has values of its own: give it in --data",
                              v->axis, v->name);
    if (v->axis >= 0) {
        s->smallest = v->smallest[v->axis] > s->smallest ? v->smallest[v->axis] : s->smallest;
        return 0;
    }
    if (!has_data) {
        v->role = ROLE_SHARED;
        return 0;
    }
    if (v->desc.ndim && *v->dimension[0] && strcmp(v->dimension[0], FIXED) != 0)
        return say_fail("axis 0 of input '%s' is %s, and the batch is %s: if both are, give --dim "
                        "%s=batch,%s=batch; if all samples have this input in common, give it in "
                        "--shared FILE",
                        v->name, v->dimension[0], s->batch[0], s->batch[0], v->dimension[0]);
    return say_fail("input '%s' has no axis of the batch, which is %s: give it in --shared FILE, "
                    "once for all samples",
                    v->name, s->batch[0]);
}

/* rank: axes of its tensor in the data; 0 without data. */
static int place_fixed(struct signature *s, struct signature_value *v, int rank)
{
    if (!rank && s->fixed && (!v->desc.ndim || s->fixed != v->desc.shape[0])) {
        v->role = ROLE_SHARED;
        return 0;
    }
    if (rank == v->desc.ndim + 1 || !v->desc.ndim) {
        v->role = ROLE_WHOLE;
        return 0;
    }
    v->axis = 0;
    if (s->fixed && s->fixed != v->desc.shape[0])
        return say_fail("input '%s' has %lld along axis 0, and other inputs %lld samples: give "
                        "those that all samples have in common in --shared FILE",
                        v->name, (long long)v->desc.shape[0], (long long)s->fixed);
    s->fixed = v->desc.shape[0];
    return 0;
}

static int check_whole(struct signature *s)
{
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i].role == ROLE_WHOLE && s->fixed > 1)
            return say_fail("input '%s' has no axis of samples, and a call of the model has %lld: "
                            "give it in --shared FILE, or export the model with one sample",
                            s->in[i].name, (long long)s->fixed);
    s->fixed = s->fixed ? s->fixed : 1;
    return 0;
}

int signature_place(struct signature *s, const int *rank)
{
    int rc = find_batch(s);

    s->smallest = 1;
    for (int i = 0; i < s->n_in && !rc; i++)
        if (s->n_batch)
            rc = place_dynamic(s, &s->in[i], rank != NULL);
        else if (s->in[i].role != ROLE_SHARED)
            rc = place_fixed(s, &s->in[i], rank ? rank[i] : 0);
    for (int i = 0; i < s->n_out; i++)
        s->out[i].axis = s->n_batch ? find_axis(s, &s->out[i]) : s->out[i].desc.ndim ? 0 : -1;
    return rc || s->n_batch ? rc : check_whole(s);
}

bool signature_is_dynamic(const struct signature_value *v, int axis)
{
    return strcmp(v->dimension[axis], FIXED) != 0;
}

int signature_apply(const struct signature *s, ckpt *c, ckpt_import *m)
{
    for (int i = 0; i < s->n_in; i++)
        for (int k = 0; k < s->in[i].desc.ndim; k++) {
            const struct signature_value *v = &s->in[i];
            const char *d = v->dimension[k];
            if (*d && signature_is_dynamic(v, k) && !is_batch(s, d) &&
                ckpt_import_set_size(m, d, v->desc.shape[k]))
                return say_fail("input '%s', axis %d: %s", v->name, k, ckpt_error(c));
        }
    return 0;
}
