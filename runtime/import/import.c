/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls: an archive becomes parameters, and its program is recorded. */
#include <stdlib.h>
#include <string.h>
#include "call.h"
#include "ckpt_import.h"
#include "context/context.h"
#include "core/sized.h"
#include "import/inputs.h"
#include "import/math.h"
#include "import/program_read.h"
#include "import/run.h"
#include "import/save.h"
#include "import/symbols.h"
#include "import/views.h"

struct ckpt_import {
    ckpt *c;
    struct pt2_program program;
    struct symbols symbols;
    struct model_input *in; /* per input of the program */
    int missing;            /* parameters without values in the archive */
    bool evaluates;         /* recorded as where modules are evaluated */
};

/* ---- what is not supported ------------------------------------------------------------------- */

/* The sentence about ops that are not in the tables; each once. */
struct refusals {
    char text[CKPT_MESSAGE];
    size_t used;
    int ops, more; /* named; calls of them or of others, beside those named */
};

static void refuse_node(struct refusals *s, const struct pt2_node *n)
{
    char line[400], place[300];

    if (strstr(s->text, n->target)) {
        s->more++;
        return;
    }
    pt2_node_place(n, place, sizeof place);
    const int size = snprintf(line, sizeof line, "%s%s (%s)", s->ops ? "; " : "", n->target, place);
    if (size < 0 || s->used + (size_t)size + 60 > sizeof s->text) {
        s->more++;
        return;
    }
    memcpy(s->text + s->used, line, (size_t)size + 1);
    s->used += (size_t)size;
    s->ops++;
}

static void find_refusals(struct refusals *s, const struct pt2_graph *g)
{
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const struct pt2_node *n = &g->node[i];
        if (!run_knows(n->target))
            refuse_node(s, n);
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k].arg.kind == ARG_GRAPH)
                find_refusals(s, n->in[k].arg.graph);
    }
}

static int check_ops(const struct pt2_program *p)
{
    struct refusals s = {.used = 0};

    find_refusals(&s, p->graph);
    if (!s.ops)
        return 0;
    return error_set(CKPT_EFORMAT, "%s: not supported: %s%s", p->path, s.text,
                     s.more ? "; and more calls" : "");
}

/* ---- open ------------------------------------------------------------------------------------ */

/* Parameters and buffers that have no values in the archive. */
static int count_missing(const ckpt_import *m, const struct weights *w)
{
    int n = 0;

    for (int i = 0; i < m->program.n_in; i++)
        n += m->in[i].param.id && !weights_find(w, m->program.in[i].name)->has_values;
    return n;
}

static int read_archive(ckpt_import *m, const struct archive *a)
{
    char model[200], member[220];
    struct weights *w = NULL;
    json_t *json = NULL;
    int rc = archive_program(a, model, sizeof model);

    snprintf(member, sizeof member, "models/%s.json", model);
    if (!rc)
        rc = archive_json(a, member, &json);
    if (!rc)
        rc = pt2_program_read(&m->program, archive_path(a), json);
    if (!rc)
        rc = check_ops(&m->program);
    if (!rc)
        rc = symbols_read(&m->symbols, &m->program);
    if (!rc)
        rc = weights_open(&w, a, model);
    m->in = rc ? NULL : heap_zeros(&m->program.heap, m->program.n_in, sizeof *m->in);
    if (!rc)
        rc = m->in ? model_inputs_make(m->c, &m->program, w, m->in) : CKPT_ENOMEM;
    if (!rc)
        m->missing = count_missing(m, w);
    weights_close(w);
    return rc;
}

static struct error *import_error(const ckpt_import *m)
{
    return m ? context_error(m->c) : NULL;
}

int ckpt_import_open(ckpt *c, const char *path, ckpt_import **m)
{
    struct archive *a = NULL;

    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    NOT_NULL(m);
    *m = NULL;
    ckpt_import *made = calloc(1, sizeof *made);
    if (!made)
        return error_set(CKPT_ENOMEM, "there is no memory for %s", path);
    made->c = c;
    int rc = archive_open(&a, path);
    if (!rc)
        rc = read_archive(made, a);
    archive_close(a);
    if (rc) {
        ckpt_import_close(made);
        return rc;
    }
    *m = made;
    return 0;
}

void ckpt_import_close(ckpt_import *m)
{
    if (!m)
        return;
    pt2_program_free(&m->program);
    free(m);
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

static bool is_tensor(const struct pt2_program *p, int32_t value)
{
    return value >= 0 && p->graph->value[value].kind == PT2_TENSOR_VALUE;
}

/* The i-th tensor that the user gives, or with i < 0 minus one minus their number. */
static int find_input(const struct pt2_program *p, int i)
{
    int n = 0;

    for (int k = 0; k < p->n_in; k++)
        if (p->in[k].kind == PT2_USER_INPUT && is_tensor(p, p->in[k].value) && n++ == i)
            return k;
    return -1 - n;
}

static int find_output(const struct pt2_program *p, int i)
{
    int n = 0;

    for (int k = 0; k < p->n_out; k++)
        if (p->out[k].kind <= PT2_LOSS_OUTPUT && p->out[k].arg.kind == ARG_VALUE &&
            is_tensor(p, p->out[k].arg.value) && n++ == i)
            return k;
    return -1 - n;
}

int ckpt_import_missing(const ckpt_import *m)
{
    return m ? m->missing : -1;
}

int ckpt_import_input_count(const ckpt_import *m)
{
    return m ? -1 - find_input(&m->program, -1) : -1;
}

int ckpt_import_output_count(const ckpt_import *m)
{
    return m ? -1 - find_output(&m->program, -1) : -1;
}

static bool is_loss(const struct pt2_program *p, int output)
{
    for (int k = 0; k < p->n_out; k++) {
        const struct pt2_arg *a = &p->out[k].arg;
        if (a->kind != ARG_VALUE || p->out[k].kind > PT2_LOSS_OUTPUT)
            continue;
        const struct pt2_tensor *t = &p->graph->value[a->value].tensor;
        if (t->ndim == 0 && pt2_is_float(t->dtype))
            return k == output;
    }
    return false;
}

static int describe(const ckpt_import *m, int32_t value, bool loss, struct ckpt_import_value *to)
{
    const struct pt2_value *v = &m->program.graph->value[value];
    struct ckpt_import_value known = CKPT_IMPORT_VALUE_INIT;

    known.name = v->name;
    known.loss = loss;
    known.desc.dtype = loss ? CKPT_F32 : tape_dtype(v->tensor.dtype);
    known.desc.ndim = v->tensor.ndim;
    if (v->tensor.ndim > CKPT_MAX_DIMS)
        return error_set(CKPT_EINVAL, "'%s' has %d axes", v->name, v->tensor.ndim);
    for (int i = 0; i < v->tensor.ndim; i++)
        if (symbols_value(&m->symbols, &v->tensor.size[i], &known.desc.shape[i]))
            return CKPT_EINVAL;
    for (int i = 0; i < v->tensor.ndim; i++)
        known.dimension[i] = symbols_name(&m->symbols, &v->tensor.size[i]);
    desc_dense(&known.desc);
    return sized_write("struct ckpt_import_value", to, &known, sizeof known);
}

static int no_value(const ckpt_import *m, const char *what, int i)
{
    return error_set(CKPT_ENAME, "%s has no %s of number %d", m->program.path, what, i);
}

int ckpt_import_input(const ckpt_import *m, int i, struct ckpt_import_value *value)
{
    ERRORS_TO(import_error(m));
    NOT_NULL(m);
    NOT_NULL(value);
    const int k = i < 0 ? -1 : find_input(&m->program, i);
    return k < 0 ? no_value(m, "input", i) : describe(m, m->program.in[k].value, false, value);
}

int ckpt_import_output(const ckpt_import *m, int i, struct ckpt_import_value *value)
{
    ERRORS_TO(import_error(m));
    NOT_NULL(m);
    NOT_NULL(value);
    const int k = i < 0 ? -1 : find_output(&m->program, i);
    return k < 0 ? no_value(m, "output", i)
                 : describe(m, m->program.out[k].arg.value, is_loss(&m->program, k), value);
}

int ckpt_import_set_size(ckpt_import *m, const char *dimension, int64_t n)
{
    ERRORS_TO(import_error(m));
    NOT_NULL(m);
    NOT_NULL(dimension);
    const int rc = symbols_set(&m->symbols, &m->program, dimension, n);
    return rc ? error_set(rc, "%s: %s", m->program.path, error_get()) : 0;
}

int ckpt_import_set_training(ckpt_import *m, bool trains)
{
    ERRORS_TO(import_error(m));
    NOT_NULL(m);
    m->evaluates = !trains;
    return 0;
}

/* ---- recording ------------------------------------------------------------------------------- */

static void set_item(struct recording *r, struct frame *f, int32_t value, struct tensor a)
{
    struct variable *v = variable_new(r, &f->graph->value[value].tensor, a);

    if (v)
        v->differentiable = v->facts->requires_grad;
    if (v)
        f->item[value] = (struct item){.kind = ITEM_TENSOR, .v = v};
}

/* The user's tensor, whose sizes set the dynamic dimensions. */
static void set_user_input(struct recording *r, ckpt_import *m, struct frame *f, int k,
                           ckpt_tensor x)
{
    const int32_t value = m->program.in[k].value;
    const struct pt2_value *v = &f->graph->value[value];
    struct tensor a = tensor_of(r, v->tensor.dtype, x);
    const struct ckpt_desc d = ckpt_desc_of(r->t, x);

    if (r->failed)
        return;
    if (a.ndim != v->tensor.ndim || (d.dtype == CKPT_I32) == pt2_is_float(v->tensor.dtype))
        recording_fail(r, CKPT_ESHAPE, "input '%s' is %s with %d axes", v->name,
                       pt2_dtype_name(v->tensor.dtype), v->tensor.ndim);
    for (int i = 0; i < a.ndim && !r->failed; i++)
        if (symbols_bind(&m->symbols, &v->tensor.size[i], a.shape[i]))
            recording_fail(r, CKPT_ESHAPE, "axis %d of input '%s': %s", i, v->name, error_get());
    if (r->failed)
        return;
    set_item(r, f, value,
             tensor_of(r, v->tensor.dtype, ckpt_cast(r->t, x, tape_dtype(v->tensor.dtype))));
}

/* Axes are seen in PyTorch's order. */
static void set_param(struct recording *r, const struct pt2_input *from,
                      const struct model_input *in, struct frame *f)
{
    const int given = f->graph->value[from->value].tensor.dtype;
    const int dtype = in->changes && given == PT2_BF16 ? PT2_F32 : given; /* a running average */
    struct tensor a = tensor_of(r, dtype, in->param);
    int inverse[TENSOR_AXES];

    if (!r->failed && tape_dtype(dtype) == CKPT_I32)
        a = tensor_of(r, dtype, ckpt_cast(r->t, in->param, CKPT_I32));
    inverse_axes(a.ndim, in->axis, inverse);
    if (!r->failed && in->reordered)
        a = view_permute(r, a, inverse);
    set_item(r, f, from->value, a);
}

static void set_inputs(struct recording *r, ckpt_import *m, struct frame *f,
                       const ckpt_tensor *inputs)
{
    const struct pt2_program *p = &m->program;

    for (int k = 0, n = 0; k < p->n_in && !r->failed; k++) {
        const struct model_input *in = &m->in[k];
        if (p->in[k].kind == PT2_USER_INPUT && is_tensor(p, p->in[k].value))
            set_user_input(r, m, f, k, inputs[n++]);
        else if (p->in[k].kind >= PT2_CONSTANT_INPUT)
            continue; /* what it is stands where it is used */
        else if (in->tied && in->changes)
            f->item[p->in[k].value] = f->item[p->in[in->tied - m->in].value];
        else if (in->param.id)
            set_param(r, &p->in[k], in, f);
        else
            set_item(r, f, p->in[k].value, in->constant);
    }
}

/* Buffers with another value at the end get it with the step. */
static void update_buffers(struct recording *r, const ckpt_import *m, const struct frame *f)
{
    const struct pt2_program *p = &m->program;

    for (int k = 0; k < p->n_in && !r->failed; k++) {
        const struct item *i = m->in[k].changes ? &f->item[p->in[k].value] : NULL;
        if (!i || i->kind != ITEM_TENSOR || m->in[k].tied)
            continue;
        const struct tensor now = *variable_read(r, i->v); /* with a change that was deferred */
        if (i->v->version == 1)
            continue;
        struct tensor a = math_cast(r, now, PT2_F32);
        ckpt_update_buffer(r->t, m->in[k].param, tensor_record(r, &a), 1.f);
    }
}

/* A functional program gives the new values of buffers as outputs. */
static void assign_buffers(struct recording *r, const ckpt_import *m, struct frame *f)
{
    const struct pt2_program *p = &m->program;

    for (int o = 0; o < p->n_out && !r->failed; o++) {
        struct call c = {.r = r, .f = f};
        struct item from = call_item(&c, &p->out[o].arg);
        if (p->out[o].kind != PT2_MUTATION || from.kind != ITEM_TENSOR)
            continue;
        for (int k = 0; k < p->n_in; k++) {
            struct item *to = m->in[k].changes ? &f->item[p->in[k].value] : NULL;
            if (to && to->kind == ITEM_TENSOR && !strcmp(p->in[k].name, p->out[o].name))
                variable_write(r, to->v, *variable_read(r, from.v));
        }
    }
}

static void get_outputs(struct recording *r, const ckpt_import *m, struct frame *f,
                        ckpt_tensor *outputs)
{
    struct call c = {.r = r, .f = f};
    const int n = ckpt_import_output_count(m);

    for (int i = 0; i < n && !r->failed; i++) {
        const int at = find_output(&m->program, i);
        struct item o = call_item(&c, &m->program.out[at].arg);
        if (o.kind != ITEM_TENSOR)
            continue;
        struct tensor a = *variable_read(r, o.v);
        if (is_loss(&m->program, at))
            a = math_cast(r, a, PT2_F32); /* what a program trains */
        outputs[i] = tensor_record(r, &a);
    }
    for (int i = 0; i < n && r->failed; i++)
        outputs[i] = CKPT_NONE;
}

void ckpt_import_record(ckpt_tape *t, ckpt_import *m, const ckpt_tensor *inputs,
                        ckpt_tensor *outputs)
{
    struct recording r = {.t = t, .failed = !t};
    struct frame f;

    OPS_CALL(t);
    if (!m || !inputs || !outputs) {
        recording_fail(&r, CKPT_EINVAL, "ckpt_import_record: an argument is NULL");
        return;
    }
    r.path = m->program.path;
    r.evaluates = m->evaluates;
    if (!r.failed && frame_make(&r, m->program.graph, &f)) {
        set_inputs(&r, m, &f, inputs);
        run_graph(&r, &f);
        assign_buffers(&r, m, &f);
        update_buffers(&r, m, &f);
    }
    get_outputs(&r, m, &f, outputs);
    heap_free(&r.heap);
}

int ckpt_import_save(ckpt_import *m, const char *path)
{
    ERRORS_TO(import_error(m));
    NOT_NULL(m);
    NOT_NULL(path);
    return import_save(m->c, &m->program, m->in, path);
}
