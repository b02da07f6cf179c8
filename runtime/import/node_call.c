/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "import/node_call.h"
#include "import/defaults.h"
#include "import/math.h"
#include "import/views.h"

/* ---- variables ------------------------------------------------------------------------------- */

struct variable *variable_new(struct recording *r, const struct pt2_tensor *facts,
                              struct tensor now)
{
    struct variable *v = heap_zeros(&r->heap, 1, sizeof *v);

    if (!v) {
        recording_fail(r, CKPT_ENOMEM, "%s", error_get());
        return NULL;
    }
    v->facts = facts;
    v->now = now;
    v->version = v->seen = 1;
    return v;
}

struct variable *variable_storage(struct variable *v)
{
    while (v->parent)
        v = v->parent;
    return v;
}

/* The op on one part of complex numbers, or on what is not complex. */
static struct tensor record_part(struct call *c, int part)
{
    int64_t shape[TENSOR_AXES];
    const int n = call_sizes(c, shape);

    for (int i = 0; i < n; i++)
        if (!shape[i]) /* nothing is computed, whatever is read */
            return tensor_zeros(c->r, c->dtype, n, shape);
    return c->op->record(c, part);
}

struct tensor call_record(struct call *c, int part)
{
    struct tensor *imaginary;

    if (!c->facts || !pt2_is_complex(c->facts->dtype))
        return record_part(c, part);
    c->dtype = PT2_F32;
    imaginary = heap_zeros(&c->r->heap, 1, sizeof *imaginary);
    if (!imaginary) {
        recording_fail(c->r, CKPT_ENOMEM, "%s", error_get());
        return tensor_number(c->r, PT2_F32, 0, 0);
    }
    struct tensor real = record_part(c, part);
    c->imaginary = true;
    *imaginary = record_part(c, part);
    c->imaginary = false;
    real.imaginary = imaginary;
    return real;
}

/* Whether shapes differ by axes of size 1 alone. */
static bool differ_by_ones(int n, const int64_t *a, int m, const int64_t *b)
{
    int i = 0, k = 0;

    while (i < n || k < m)
        if (i < n && a[i] == 1)
            i++;
        else if (k < m && b[k] == 1)
            k++;
        else if (i < n && k < m && a[i] == b[k])
            i++, k++;
        else
            return false;
    return true;
}

/* A result must be what the file says; otherwise an op here is wrong, or the file.  PyTorch notes
 * an axis that is not there for the states of an LSTM, and with what follows from them. */
static void check_result(struct call *c, const struct tensor *a)
{
    int64_t want[TENSOR_AXES];
    char have[100], said[100];
    const int n = call_sizes(c, want);

    if (c->r->failed || n < 0)
        return;
    if (n == a->ndim && !memcmp(want, a->shape, (size_t)n * sizeof *want))
        return;
    if (c->r->rnns && differ_by_ones(n, want, a->ndim, a->shape))
        return;
    shape_format(have, sizeof have, a->ndim, a->shape);
    shape_format(said, sizeof said, n, want);
    recording_fail(c->r, CKPT_EFORMAT, "the result is %s, and %s in the file", have, said);
}

/* Records the deferred change, if it is one of this storage; NULL: of any. */
static void change_deferred(struct recording *r, const struct variable *storage)
{
    struct call c = r->deferred ? *r->deferred : (struct call){.r = r};
    struct variable *self = r->deferred && !r->failed ? call_variable(&c, "self") : NULL;

    if (!self || (storage && variable_storage(self) != storage))
        return;
    r->deferred = NULL;
    variable_change(&c, self);
}

/* Views of one chain are computed from the storage on. */
struct tensor *variable_read(struct recording *r, struct variable *v)
{
    change_deferred(r, variable_storage(v));
    const int64_t version = variable_storage(v)->version;

    if (v->seen != version && !r->failed) {
        const struct pt2_node *node = r->node;
        struct call c = *v->call;
        c.facts = v->facts;
        c.dtype = v->facts->dtype;
        recording_enter(r, c.node);
        v->now = call_record(&c, v->part);
        check_result(&c, &v->now);
        if (!r->failed)
            recording_enter(r, node);
        v->seen = version;
    }
    return &v->now;
}

/* Whether a node reads the storage. */
static bool reads(const struct call *c, const struct pt2_arg *a, const struct variable *storage)
{
    for (int k = 0; a->kind == ARG_LIST && k < a->list.n; k++)
        if (reads(c, &a->list.item[k], storage))
            return true;
    const struct item *i = a->kind == ARG_VALUE ? &c->f->item[a->value] : NULL;
    return i && i->kind == ITEM_TENSOR && variable_storage(i->v) == storage;
}

/* Records results that read a storage before it is written. */
static void read_pending(struct recording *r, const struct variable *storage)
{
    struct variable **at = &r->pending;

    while (*at && !r->failed) {
        struct variable *v = *at;
        bool now = v->seen == v->version;
        for (int k = 0; !now && k < v->call->node->n_in; k++)
            now = reads(v->call, &v->call->node->in[k].arg, storage);
        if (!now) {
            at = &v->next;
            continue;
        }
        *at = v->next;
        variable_read(r, v);
        at = &r->pending; /* what was read may have read others */
    }
}

bool variable_detached(const struct variable *v)
{
    while (v->parent && strcmp(v->call->op->name, "aten.detach.default") != 0)
        v = v->parent;
    return v->parent != NULL;
}

static bool is_differentiable(const struct call *c, const struct pt2_arg *a)
{
    for (int k = 0; a->kind == ARG_LIST && k < a->list.n; k++)
        if (is_differentiable(c, &a->list.item[k]))
            return true;
    const struct item *i = a->kind == ARG_VALUE ? &c->f->item[a->value] : NULL;
    return i && i->kind == ITEM_TENSOR && variable_storage(i->v)->differentiable &&
           !variable_detached(i->v);
}

bool call_differentiable(const struct call *c)
{
    for (int k = 0; k < c->node->n_in && !c->r->stops; k++)
        if (is_differentiable(c, &c->node->in[k].arg))
            return true;
    return false;
}

/* Where no gradients are recorded, what is written has none. */
static struct tensor without_gradient(struct recording *r, struct variable *self, struct tensor now)
{
    if (r->failed || !r->stops || now.constant || !pt2_is_float(now.dtype))
        return now;
    if (variable_storage(self)->differentiable)
        recording_fail(r, CKPT_EFORMAT, "what has a gradient is written where none is recorded");
    return r->failed ? now : tensor_of(r, now.dtype, ckpt_stop_gradient(r->t, now.x));
}

/* What is written of a part of a number: with the type and shape that the variable has. */
static struct tensor written_part(struct recording *r, struct variable *self, struct tensor now,
                                  const struct tensor *old)
{
    if (r->failed)
        return now;
    now = view_expand(r, math_cast(r, now, old->dtype), old->ndim, old->shape);
    return without_gradient(r, self, now);
}

void variable_change(struct call *c, struct variable *self)
{
    c->facts = self->facts;
    c->dtype = self->facts->dtype;
    struct tensor old = *variable_read(c->r, self);
    struct tensor now = c->r->failed ? old : call_record(c, 0);
    struct tensor *imaginary =
        now.imaginary ? heap_zeros(&c->r->heap, 1, sizeof *imaginary) : NULL;
    if (now.imaginary && !imaginary)
        recording_fail(c->r, CKPT_ENOMEM, "%s", error_get());
    if (imaginary)
        *imaginary = written_part(c->r, self, *now.imaginary, &old);
    now = written_part(c->r, self, now, &old);
    now.imaginary = imaginary;
    if (!c->r->failed)
        variable_write(c->r, self, now);
}

void variable_defer(struct call *c)
{
    struct call *kept = heap_zeros(&c->r->heap, 1, sizeof *kept);

    read_pending(c->r, variable_storage(call_variable(c, "self")));
    if (kept && !c->r->failed) {
        *kept = *c;
        c->r->deferred = kept;
    }
}

void variable_flush(const struct call *c)
{
    struct call d = c->r->deferred ? *c->r->deferred : *c;
    struct variable *self = c->r->deferred ? call_variable(&d, "self") : NULL;

    for (int k = 0; self && k < c->node->n_in; k++)
        if (reads(c, &c->node->in[k].arg, variable_storage(self)))
            change_deferred(c->r, NULL);
}

struct tensor put_nothing(struct call *c, int part, struct tensor whole, struct tensor view)
{
    (void)part;
    (void)view;
    recording_fail(c->r, CKPT_EFORMAT, "nothing can be written through %s", c->op->name);
    return whole;
}

struct tensor put_same(struct call *c, int part, struct tensor whole, struct tensor view)
{
    (void)c;
    (void)part;
    (void)whole;
    return view;
}

const struct pt2_arg *viewed_argument(const struct pt2_node *n, int part)
{
    static const char *const names[] = {"self", "input", "tensors"};
    const struct pt2_arg *a = NULL;

    for (size_t i = 0; i < sizeof names / sizeof names[0] && !a; i++)
        a = pt2_arg_find(n, names[i]);
    if (a && a->kind == ARG_LIST)
        a = part < a->list.n ? &a->list.item[part] : NULL;
    return a && a->kind == ARG_VALUE ? a : NULL;
}

void variable_write(struct recording *r, struct variable *v, struct tensor now)
{
    change_deferred(r, NULL);
    read_pending(r, variable_storage(v));
    for (; v->parent && !r->failed; v = v->parent) {
        struct call c = *v->call;
        c.facts = v->facts;
        c.dtype = v->facts->dtype;
        struct tensor whole = *variable_read(r, v->parent);
        if (now.imaginary)
            put_nothing(&c, v->part, whole, now);
        else if (!r->failed)
            now = c.op->put(&c, v->part, whole, now);
    }
    v->now = now;
    v->seen = ++v->version;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* The arguments by which modules in the mode of training differ from those that are evaluated. */
static bool is_of_training(const char *name)
{
    return !strcmp(name, "train") || !strcmp(name, "training") || !strcmp(name, "dropout_p");
}

static struct pt2_arg find(struct call *c, const char *name)
{
    const struct pt2_arg *a = pt2_arg_find(c->node, name);
    struct pt2_arg none = {.kind = ARG_NONE};

    if (c->r->evaluates && is_of_training(name))
        return (struct pt2_arg){.kind = ARG_INT, .i = 0};
    if (a)
        return *a;
    if (default_of(c->op->name, name, &none))
        return none;
    recording_fail(c->r, CKPT_EFORMAT, "there is no argument '%s'", name);
    return none;
}

struct item call_item(struct call *c, const struct pt2_arg *a)
{
    switch (a->kind) {
    case ARG_VALUE:
        return c->f->item[a->value];
    case ARG_INT:
    case ARG_DTYPE:
        return (struct item){.kind = ITEM_INT, .i = a->i};
    case ARG_FLOAT:
        return (struct item){.kind = ITEM_FLOAT, .f = a->f};
    case ARG_BOOL:
        return (struct item){.kind = ITEM_BOOL, .b = a->b};
    default:
        return (struct item){.kind = ITEM_NONE};
    }
}

static struct item item_of(struct call *c, const char *name)
{
    struct pt2_arg a = find(c, name);

    return call_item(c, &a);
}

static void refuse(struct call *c, const char *name, const char *what)
{
    recording_fail(c->r, CKPT_EFORMAT, "argument '%s' is no %s", name, what);
}

bool call_has(struct call *c, const char *name)
{
    return find(c, name).kind != ARG_NONE;
}

/* A constant tensor is a number, too. */
static double number_of(struct call *c, const struct item *i, const char *name)
{
    if (i->kind == ITEM_INT)
        return (double)i->i;
    if (i->kind == ITEM_FLOAT)
        return i->f;
    if (i->kind == ITEM_BOOL)
        return i->b;
    struct tensor *a = i->kind == ITEM_TENSOR ? variable_read(c->r, i->v) : NULL;
    if (a && a->constant && tensor_numel(a) == 1)
        return tensor_f(a, 0);
    refuse(c, name, "number known before the step");
    return 0;
}

static int64_t whole_of(struct call *c, const struct item *i, const char *name)
{
    if (i->kind == ITEM_INT)
        return i->i;
    const double f = number_of(c, i, name);
    if (f > -0x1p62 && f < 0x1p62)
        return (int64_t)f;
    refuse(c, name, "whole number");
    return 0;
}

int64_t call_int(struct call *c, const char *name)
{
    struct item i = item_of(c, name);

    return whole_of(c, &i, name);
}

double call_double(struct call *c, const char *name)
{
    struct item i = item_of(c, name);

    return number_of(c, &i, name);
}

bool call_bool(struct call *c, const char *name)
{
    return call_double(c, name) != 0;
}

const char *call_text(struct call *c, const char *name)
{
    struct pt2_arg a = find(c, name);

    if (a.kind == ARG_STRING)
        return a.text;
    refuse(c, name, "text");
    return "";
}

int call_ints(struct call *c, const char *name, int64_t *to, int most)
{
    struct pt2_arg a = find(c, name);
    const struct pt2_arg *item = a.kind == ARG_LIST ? a.list.item : &a;
    const int n = a.kind == ARG_LIST ? a.list.n : a.kind == ARG_NONE ? 0 : 1;

    if (n > most) {
        recording_fail(c->r, CKPT_EFORMAT, "argument '%s' has %d numbers, more than %d", name, n,
                       most);
        return 0;
    }
    for (int k = 0; k < n; k++) {
        struct item i = call_item(c, &item[k]);
        to[k] = whole_of(c, &i, name);
    }
    return n;
}

void call_ints_of(struct call *c, const char *name, int64_t *to, int n)
{
    const int have = call_ints(c, name, to, n);

    if (have != n && have != 1)
        recording_fail(c->r, CKPT_EFORMAT, "argument '%s' has %d numbers, not %d", name, have, n);
    for (int k = have == 1 ? 1 : n; k < n; k++)
        to[k] = to[0];
}

void call_sizes_of(struct call *c, const char *name, int64_t least, int64_t *to, int n)
{
    call_ints_of(c, name, to, n);
    for (int k = 0; k < n; k++) {
        if (!c->r->failed && (to[k] < least || to[k] > CALL_LARGEST))
            recording_fail(c->r, CKPT_ESHAPE,
                           "argument '%s' has %lld, not a size from %lld to %lld", name,
                           (long long)to[k], (long long)least, (long long)CALL_LARGEST);
        to[k] = c->r->failed ? least : to[k];
    }
}

struct variable *call_variable(struct call *c, const char *name)
{
    struct item i = item_of(c, name);

    return i.kind == ITEM_TENSOR ? i.v : NULL;
}

/* The part that is recorded; the imaginary part of a real number is 0. */
static struct tensor part_of(struct call *c, struct tensor a)
{
    if (c->imaginary && !a.imaginary)
        return view_expand(c->r, tensor_number(c->r, a.dtype, 0, 0), a.ndim, a.shape);
    a = c->imaginary ? *a.imaginary : a;
    a.imaginary = NULL;
    return a;
}

struct tensor call_tensor(struct call *c, const char *name)
{
    const struct pt2_arg a = find(c, name);
    struct item i = call_item(c, &a);

    if (a.kind == ARG_COMPLEX)
        return tensor_number(c->r, PT2_F64, a.parts[c->imaginary], 0);
    switch (i.kind) {
    case ITEM_TENSOR:
        return part_of(c, *variable_read(c->r, i.v));
    case ITEM_INT:
        return part_of(c, tensor_number(c->r, PT2_I64, (double)i.i, i.i));
    case ITEM_BOOL:
        return part_of(c, tensor_number(c->r, PT2_BOOL, i.b, i.b));
    case ITEM_FLOAT:
        return part_of(c, tensor_number(c->r, PT2_F64, i.f, 0));
    case ITEM_NONE:
        break;
    }
    refuse(c, name, "tensor");
    return tensor_number(c->r, PT2_I64, 0, 0);
}

ckpt_tensor call_operand(struct call *c, const char *name, int dtype)
{
    if (!call_has(c, name))
        return CKPT_NONE;
    struct tensor a = math_cast(c->r, call_tensor(c, name), dtype);
    return tensor_record(c->r, &a);
}

struct tensor call_part(struct call *c, const char *name, bool imaginary)
{
    struct call of = *c;

    of.imaginary = imaginary;
    return call_tensor(&of, name);
}

int call_variables(struct call *c, const char *name, struct variable ***list)
{
    struct pt2_arg a = find(c, name);
    const int n = a.kind == ARG_LIST ? a.list.n : 0;
    struct variable **v = heap_zeros(&c->r->heap, n, sizeof(struct variable *));

    *list = v;
    if (a.kind != ARG_LIST || !v) {
        refuse(c, name, "list of tensors");
        return 0;
    }
    for (int k = 0; k < n; k++) {
        struct item i = call_item(c, &a.list.item[k]);
        v[k] = i.kind == ITEM_TENSOR ? i.v : NULL;
    }
    return n;
}

int call_axis(struct call *c, const char *name, const struct tensor *of)
{
    return tensor_axis(c->r, of, call_int(c, name));
}

int call_sizes(struct call *c, int64_t *to)
{
    if (!c->facts || c->facts->ndim > TENSOR_AXES)
        return -1;
    for (int i = 0; i < c->facts->ndim; i++) {
        if (c->facts->size[i].expr)
            return -1;
        to[i] = c->facts->size[i].n;
    }
    return c->facts->ndim;
}
