/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products by Einstein's convention: the equation gives each axis of each operand a letter.
 * Operands are multiplied from left to right, and a letter is summed as soon as no later operand
 * and not the result has it: in a product of matrices where both operands have it.
 *
 * The axes of "..." are called by digits, the last one by the highest.
 */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* Letters of axes, in their order. */
struct letters {
    char text[TENSOR_AXES + 1];
    int n;
};

/* A tensor whose axes have letters. */
struct factor {
    struct tensor a;
    struct letters axes;
};

struct equation {
    int n; /* operands */
    struct letters *in;
    struct letters out;
    int64_t size[128]; /* by letter; 0 is a size, too */
};

static bool is_letter(char letter)
{
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}

static bool has(const struct letters *l, char letter)
{
    return memchr(l->text, letter, (size_t)l->n) != NULL;
}

static void append(struct call *c, struct letters *l, char letter)
{
    if (l->n == TENSOR_AXES)
        recording_fail(c->r, CKPT_ESHAPE, "einsum with more than %d axes", TENSOR_AXES);
    else
        l->text[l->n++] = letter;
}

/* ---- equations ------------------------------------------------------------------------------- */

/* The axes that "..." stands for in a term of an operand with so many axes. */
static int axes_of_dots(const char *term, int ndim)
{
    for (; *term && *term != ',' && *term != '-'; term++)
        ndim -= is_letter(*term);
    return ndim > 0 ? ndim : 0;
}

/* The letters of a term; "..." are `dots` of `most` digits.  Returns what is behind the term. */
static const char *read_term(struct call *c, const char *s, int dots, int most, struct letters *to)
{
    for (; *s && *s != ',' && *s != '-' && !c->r->failed; s++) {
        if (is_letter(*s))
            append(c, to, *s);
        else if (!strncmp(s, "...", 3)) {
            for (int i = most - dots; i < most; i++)
                append(c, to, (char)('0' + i));
            s += 2;
        } else if (*s != ' ')
            recording_fail(c->r, CKPT_EFORMAT, "'%c' in the equation of einsum", *s);
    }
    return s;
}

/* Without "->" the result has the letters that stand once, in their order. */
static void make_out(struct call *c, struct equation *e)
{
    int count[128] = {0};

    for (int k = 0; k < e->n; k++)
        for (int i = 0; i < e->in[k].n; i++)
            count[(int)e->in[k].text[i]]++;
    for (int letter = '0'; letter < 128; letter++)
        if (count[letter] == 1 || (count[letter] && letter <= '9'))
            append(c, &e->out, (char)letter);
}

static bool is_in(const struct equation *e, char letter)
{
    for (int k = 0; k < e->n; k++)
        if (has(&e->in[k], letter))
            return true;
    return false;
}

static void check_out(struct call *c, const struct equation *e)
{
    for (int i = 0; i < e->out.n; i++)
        if (!is_in(e, e->out.text[i]) ||
            memchr(e->out.text, e->out.text[i], (size_t)i)) /* more than once */
            recording_fail(c->r, CKPT_EFORMAT, "the result of einsum cannot have axis '%c' so",
                           e->out.text[i]);
}

static void read_equation(struct call *c, const struct factor *f, struct equation *e)
{
    const char *s = call_text(c, "equation"), *term = s;
    int most = 0;

    for (int k = 0; k < e->n && term; k++) {
        const int dots = axes_of_dots(term, f[k].a.ndim);
        most = dots > most ? dots : most;
        term = strchr(term, ',');
        term = term ? term + 1 : NULL;
    }
    for (int k = 0; k < e->n && !c->r->failed; k++) {
        s = read_term(c, s, axes_of_dots(s, f[k].a.ndim), most, &e->in[k]);
        if (e->in[k].n != f[k].a.ndim || (*s == ',') != (k < e->n - 1))
            recording_fail(c->r, CKPT_ESHAPE, "einsum names other axes or tensors than there are");
        s += *s == ',';
    }
    if (*s == '-' && s[1] == '>')
        s = read_term(c, s + 2, most, most, &e->out);
    else
        make_out(c, e);
    if (*s)
        recording_fail(c->r, CKPT_EFORMAT, "the equation of einsum goes on at '%s'", s);
    check_out(c, e);
}

/* An axis of size 1 goes with a longer one of its letter. */
static void read_sizes(struct call *c, const struct factor *f, struct equation *e)
{
    for (int letter = 0; letter < 128; letter++)
        e->size[letter] = 1;
    for (int k = 0; k < e->n; k++)
        for (int i = 0; i < f[k].a.ndim; i++) {
            int64_t *to = &e->size[(int)e->in[k].text[i]];
            if (f[k].a.shape[i] != 1 && *to != 1 && f[k].a.shape[i] != *to)
                recording_fail(c->r, CKPT_ESHAPE, "axes '%c' of einsum have sizes %lld and %lld",
                               e->in[k].text[i], (long long)*to, (long long)f[k].a.shape[i]);
            *to = f[k].a.shape[i] == 1 ? *to : f[k].a.shape[i];
        }
}

/* ---- operands -------------------------------------------------------------------------------- */

static void drop_letter(struct letters *l, int i)
{
    memmove(l->text + i, l->text + i + 1, (size_t)(--l->n - i));
}

/* Axes in the order of letters, which are all of the factor. */
static struct tensor ordered(struct call *c, const struct factor *f, const struct letters *to)
{
    int axes[TENSOR_AXES];

    for (int i = 0; i < to->n; i++)
        axes[i] = (int)((const char *)memchr(f->axes.text, to->text[i], (size_t)f->axes.n) -
                        f->axes.text);
    return c->r->failed ? f->a : view_permute(c->r, f->a, axes);
}

/* Two axes i < k of n become their diagonal: each (n + 1)-th element of both. */
static void take_diagonal(struct call *c, struct factor *f, int i, int k)
{
    const int64_t n = f->a.shape[i];
    const int last = f->a.ndim - 2;
    int axes[TENSOR_AXES], count = 0;
    int64_t shape[TENSOR_AXES];
    const char letter = f->axes.text[i];

    for (int at = 0; at < f->a.ndim; at++)
        if (at != i && at != k)
            axes[count++] = at;
    axes[last] = i;
    axes[last + 1] = k;
    f->a = view_permute(c->r, f->a, axes);
    memcpy(shape, f->a.shape, sizeof shape);
    shape[last] = n * n;
    f->a = view_reshape(c->r, f->a, last + 1, shape);
    if (!c->r->failed)
        f->a = view_slice(c->r, f->a, last, 0, n * n, n + 1);
    drop_letter(&f->axes, k);
    drop_letter(&f->axes, i);
    f->axes.text[f->axes.n++] = letter;
}

/* Each letter once; axes of size 1 that others have longer go. */
static void simplify(struct call *c, const struct equation *e, struct factor *f)
{
    for (int k = f->a.ndim - 1; k > 0 && !c->r->failed; k--) {
        const char *first = memchr(f->axes.text, f->axes.text[k], (size_t)k);
        if (!first)
            continue;
        take_diagonal(c, f, (int)(first - f->axes.text), k);
        k = f->a.ndim;
    }
    for (int i = f->a.ndim - 1; i >= 0 && !c->r->failed; i--)
        if (f->a.shape[i] != e->size[(int)f->axes.text[i]]) {
            f->a = view_squeeze(c->r, f->a, i);
            drop_letter(&f->axes, i);
        }
}

/* ---- sums and products ----------------------------------------------------------------------- */

/* Whether the result or an operand from the k-th on has a letter. */
static bool is_needed(const struct equation *e, int k, char letter)
{
    bool needed = has(&e->out, letter);

    for (; k < e->n && !needed; k++)
        needed = has(&e->in[k], letter);
    return needed;
}

/* Sums axes whose letter neither `beside` nor what follows the k-th operand has. */
static void sum_axes(struct call *c, const struct equation *e, int k, const struct letters *beside,
                     struct factor *f)
{
    unsigned mask = 0;

    for (int i = 0; i < f->axes.n; i++)
        if (!has(beside, f->axes.text[i]) && !is_needed(e, k + 1, f->axes.text[i]))
            mask |= 1u << i;
    if (mask)
        f->a = reduce_sum(c, f->a, mask);
    for (int i = f->axes.n - 1; i >= 0; i--)
        if (mask >> i & 1)
            drop_letter(&f->axes, i);
}

/* Letters of both operands and what follows; of one of them; and of both alone, which are summed.
 */
struct groups {
    struct letters batch, left, right, sum;
};

static struct groups group_letters(struct call *c, const struct equation *e, int k,
                                   const struct letters *a, const struct letters *b)
{
    struct groups g = {.batch = {.n = 0}};

    for (int i = 0; i < a->n; i++) {
        const char letter = a->text[i];
        append(c,
               !has(b, letter)               ? &g.left
               : is_needed(e, k + 1, letter) ? &g.batch
                                             : &g.sum,
               letter);
    }
    for (int i = 0; i < b->n; i++)
        if (!has(a, b->text[i]))
            append(c, &g.right, b->text[i]);
    return g;
}

static void append_all(struct call *c, struct letters *to, const struct letters *l)
{
    for (int i = 0; i < l->n; i++)
        append(c, to, l->text[i]);
}

static struct letters join_letters(struct call *c, const struct letters *x, const struct letters *y,
                                   const struct letters *z)
{
    struct letters all = *x;

    append_all(c, &all, y);
    append_all(c, &all, z);
    return all;
}

/* [batch..., rows, columns] of axes that are ordered so. */
static struct tensor as_matrices(struct call *c, struct tensor a, int batch, int rows)
{
    int64_t shape[TENSOR_AXES + 2];

    memcpy(shape, a.shape, (size_t)batch * sizeof *shape);
    shape[batch] = shape[batch + 1] = 1;
    for (int i = batch; i < a.ndim; i++)
        shape[i < batch + rows ? batch : batch + 1] *= a.shape[i];
    return view_reshape(c->r, a, batch + 2, shape);
}

/* The factor with an axis for each letter of `all`, of size 1 where it has none. */
static struct tensor spread(struct call *c, const struct factor *f, const struct letters *all)
{
    struct letters own = {.n = 0};

    for (int i = 0; i < all->n; i++)
        if (has(&f->axes, all->text[i]))
            append(c, &own, all->text[i]);
    struct tensor a = ordered(c, f, &own);
    for (int i = 0; i < all->n && !c->r->failed; i++)
        if (!has(&own, all->text[i]))
            a = view_unsqueeze(c->r, a, i);
    return a;
}

/* One product of matrices, or of elements where nothing is summed. */
static struct factor multiply(struct call *c, const struct equation *e, int k, struct factor x,
                              struct factor y)
{
    int64_t shape[TENSOR_AXES] = {0};
    sum_axes(c, e, k, &y.axes, &x);
    sum_axes(c, e, k, &x.axes, &y);
    const struct groups g = group_letters(c, e, k, &x.axes, &y.axes);
    struct factor to = {.axes = join_letters(c, &g.batch, &g.left, &g.right)};
    const struct letters rows = join_letters(c, &g.batch, &g.left, &g.sum);
    const struct letters columns = join_letters(c, &g.batch, &g.sum, &g.right);

    if (c->r->failed)
        return x;
    if (!g.sum.n) {
        to.a = math_binary(c->r, BINARY_MUL, spread(c, &x, &to.axes), spread(c, &y, &to.axes),
                           c->dtype);
        return to;
    }
    x.a = as_matrices(c, ordered(c, &x, &rows), g.batch.n, g.left.n);
    y.a = as_matrices(c, ordered(c, &y, &columns), g.batch.n, g.sum.n);
    to.a = record_product(c, x.a, y.a);
    for (int i = 0; i < to.axes.n; i++)
        shape[i] = e->size[(int)to.axes.text[i]];
    to.a = c->r->failed ? to.a : view_reshape(c->r, to.a, to.axes.n, shape);
    return to;
}

static struct factor *read_factors(struct call *c, struct equation *e)
{
    struct variable **v;

    e->n = call_variables(c, "tensors", &v);
    struct factor *f = heap_zeros(&c->r->heap, e->n + 1, sizeof *f);
    e->in = heap_zeros(&c->r->heap, e->n + 1, sizeof *e->in);
    for (int k = 0; k < e->n && f && e->in && !c->r->failed; k++) {
        if (v[k])
            f[k].a = math_cast(c->r, *variable_read(c->r, v[k]), c->dtype);
        else
            recording_fail(c->r, CKPT_EFORMAT, "einsum has no tensor at %d", k);
    }
    if (!e->n || !f || !e->in)
        recording_fail(c->r, CKPT_EFORMAT, "einsum has no tensors");
    return f;
}

static struct tensor op_einsum(struct call *c, int part)
{
    struct equation e = {.n = 0};
    struct factor *f = read_factors(c, &e);
    int64_t shape[TENSOR_AXES] = {0};
    bool empty = false;

    (void)part;
    if (!c->r->failed)
        read_equation(c, f, &e);
    if (!c->r->failed)
        read_sizes(c, f, &e);
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    for (int i = 0; i < e.out.n; i++)
        shape[i] = e.size[(int)e.out.text[i]];
    for (int k = 0; k < e.n; k++)
        empty = empty || !tensor_numel(&f[k].a);
    if (empty) /* sums of nothing */
        return view_expand(c->r, tensor_number(c->r, c->dtype, 0, 0), e.out.n, shape);
    for (int k = 0; k < e.n; k++) {
        f[k].axes = e.in[k];
        simplify(c, &e, &f[k]);
        f[k] = k ? multiply(c, &e, k, f[k - 1], f[k]) : f[k];
    }
    sum_axes(c, &e, e.n, &(struct letters){.n = 0}, &f[e.n - 1]);
    return ordered(c, &f[e.n - 1], &e.out);
}

/* Of one operand whose letters all stay the result is a view: a permutation, or a diagonal. */
static bool einsum_copies(const struct pt2_node *n, const struct pt2_tensor *self,
                          const struct pt2_tensor *result)
{
    const struct pt2_arg *a = pt2_arg_find(n, "equation");
    const char *s = a && a->kind == ARG_STRING ? a->text : ",", *out = strstr(s, "->");

    (void)self;
    (void)result;
    if (strchr(s, ','))
        return true;
    for (const char *at = s; *at && at != out; at++)
        if (out ? *at != ' ' && !strchr(out + 2, *at) : is_letter(*at) && strchr(at + 1, *at))
            return true; /* it is summed */
    return false;
}

static struct tensor put_einsum(struct call *c, int part, struct tensor whole, struct tensor view)
{
    struct equation e = {.n = 0};
    struct factor *f = read_factors(c, &e);

    if (!c->r->failed)
        read_equation(c, f, &e);
    if (!c->r->failed && e.in->n != e.out.n)
        return put_nothing(c, part, whole, view);
    return c->r->failed ? whole : ordered(c, &(struct factor){view, e.out}, e.in);
}

const struct op ops_einsum[] = {
    {"aten.einsum.default", op_einsum, put_einsum, einsum_copies, false},
    {NULL, NULL, NULL, NULL, false},
};
