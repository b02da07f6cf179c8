/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a recorder, noted to be written as C: see trace.h. */
#include "import/trace.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tape/tape.h"

/* Of this thread; the tape knows nothing of it. */
static _Thread_local struct {
    const ckpt_tape *tape;
    struct trace *trace;
} tracing;

void trace_begin(struct trace *tr, const ckpt_tape *t)
{
    tracing.tape = t;
    tracing.trace = tr;
}

void trace_end(void)
{
    trace_begin(NULL, NULL);
}

static struct trace *trace_of(const ckpt_tape *t)
{
    return t && tracing.tape == t ? tracing.trace : NULL;
}

void trace_free(struct trace *tr)
{
    free(tr->calls.data);
    heap_free(&tr->heap);
    *tr = (struct trace){0};
}

const char *source_quoted(const char *text, char *to, size_t size)
{
    size_t n = 0;

    to[n++] = '"';
    for (; *text && n + 6 < size; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == '"' || c == '\\' || c == '?' || c == '%' || c == '#' || c == '@' ||
            c == '$')
            n += (size_t)snprintf(to + n, size - n, "\\%03o", c);
        else
            to[n++] = *text;
    }
    to[n++] = '"';
    to[n] = '\0';
    return to;
}

const char *source_float(double f, char *to, size_t size)
{
    snprintf(to, size, "%.9g", f);
    if (isinf(f) || isnan(f))
        return isnan(f) ? "NAN" : f > 0 ? "INFINITY" : "-INFINITY";
    const size_t n = strlen(to);
    snprintf(to + n, size - n, "%s", strpbrk(to, ".e") ? "f" : ".f");
    return to;
}

/* ---- a note ---------------------------------------------------------------------------------- */

enum { MOST = CKPT_MAX_PARTS + 8 };

/* A call that is being noted. */
struct note {
    const ckpt_tape *t;
    char text[2000];
    size_t used;
    int n_operands, n_numbers, n_results;
    int32_t operand[MOST], result[MOST];
    int64_t number[MOST];
};

static void put(struct note *n, const char *fmt, ...) CKPT_PRINTF(2, 3);
static void put(struct note *n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    const int size = vsnprintf(n->text + n->used, sizeof n->text - n->used, fmt, ap);
    va_end(ap);
    n->used += size < 0 ? 0 : (size_t)size;
    n->used = n->used < sizeof n->text ? n->used : sizeof n->text - 1;
}

/* The tensor of a handle, or of a parameter -1 - its index. */
static int32_t value_of(const ckpt_tape *t, ckpt_tensor x)
{
    const int32_t id = x.id ? tape_resolve((ckpt_tape *)(uintptr_t)t, x).id : 0;
    const int32_t param = id ? tape_param_of(t, id) : -1;

    return param < 0 ? id : -1 - param;
}

static void put_operand(struct note *n, ckpt_tensor x)
{
    const int32_t id = value_of(n->t, x);

    if (id && n->n_operands < MOST)
        n->operand[n->n_operands++] = id;
    put(n, "%s", id ? "%" : "CKPT_NONE");
}

static void put_number(struct note *n, int64_t i, const char *place)
{
    if (n->n_numbers < MOST)
        n->number[n->n_numbers++] = i;
    put(n, "%s", place);
}

static void put_numbers(struct note *n, int count, const int64_t *v)
{
    put(n, count ? "(int64_t[]){" : "NULL");
    for (int i = 0; i < count; i++) {
        put(n, i ? ", " : "");
        put_number(n, v[i], "#");
    }
    put(n, count ? "}" : "");
}

static void put_float(struct note *n, double f)
{
    char text[40];

    put(n, "%s", source_float(f, text, sizeof text));
}

static void put_text(struct note *n, const char *text)
{
    char quoted[1000];

    put(n, "%s", source_quoted(text, quoted, sizeof quoted));
}

static void put_mask(struct note *n, unsigned mask)
{
    put(n, mask == CKPT_ALL_AXES ? "CKPT_ALL_AXES" : "%#xu", mask);
}

static const char *dtype_text(enum ckpt_dtype d)
{
    return d == CKPT_F32 ? "CKPT_F32" : d == CKPT_BF16 ? "CKPT_BF16" : "CKPT_I32";
}

/* ---- structs --------------------------------------------------------------------------------- */

static void put_three(struct note *n, const char *field, const int64_t *v, int64_t usual)
{
    if (v[0] != usual || v[1] != usual || v[2] != usual)
        put(n, ", .%s = {%lld, %lld, %lld}", field, (long long)v[0], (long long)v[1],
            (long long)v[2]);
}

static void put_conv(struct note *n, const struct ckpt_conv_spec *s)
{
    put(n, "&(struct ckpt_conv_spec){.size = sizeof(struct ckpt_conv_spec)");
    put_three(n, "stride", s->stride, 0);
    put_three(n, "before", s->before, 0);
    put_three(n, "after", s->after, 0);
    put_three(n, "dilation", s->dilation, 0);
    put_three(n, "output_padding", s->output_padding, 0);
    put(n, ", .groups = %lld}", (long long)s->groups);
}

static void put_pool(struct note *n, const struct ckpt_pool_spec *s)
{
    put(n, "&(struct ckpt_pool_spec){.size = sizeof(struct ckpt_pool_spec)");
    put_three(n, "stride", s->stride, 0);
    put_three(n, "before", s->before, 0);
    put_three(n, "after", s->after, 0);
    put(n, "%s}", s->count_include_pad ? ", .count_include_pad = true" : "");
}

static void put_attention(struct note *n, const struct ckpt_attention_spec *s)
{
    put(n, "&(struct ckpt_attention_spec){.size = sizeof(struct ckpt_attention_spec)");
    if (s->scale != 0) {
        put(n, ", .scale = ");
        put_float(n, (double)s->scale);
    }
    put(n, "%s", s->causal ? ", .causal = true" : "");
    if (s->window)
        put(n, ", .window = %lld", (long long)s->window);
    put(n, "}");
}

static void put_cross_entropy(struct note *n, const struct ckpt_cross_entropy_spec *s)
{
    put(n,
        "&(struct ckpt_cross_entropy_spec){.size = sizeof(struct ckpt_cross_entropy_spec), "
        ".ignore_index = %d, .label_smoothing = ",
        (int)s->ignore_index);
    put_float(n, (double)s->label_smoothing);
    put(n, ", .reduction = %d, .weight = ", s->reduction);
    put_operand(n, s->weight);
    put(n, ", .chunk = %lld}", (long long)s->chunk);
}

/* ---- formats --------------------------------------------------------------------------------- */

/*
 * An argument by its letter: x tensor, i int, l a size, f float, b bool, d dtype, m mask of axes, s
 * text, S rank and shape, A axes (as many as tensor `rank` has), n an array of sizes with their
 * number before, X number and tensors; C P T L: a struct of convolutions, pools, attention, losses;
 * o: where a second result goes.
 */
static void put_argument(struct note *n, char kind, va_list *ap)
{
    int count = kind == 'S' || kind == 'n' || kind == 'X' || kind == 'A' ? va_arg(*ap, int) : 0;

    if (kind == 'x')
        put_operand(n, va_arg(*ap, ckpt_tensor));
    else if (kind == 'i')
        put(n, "%d", va_arg(*ap, int));
    else if (kind == 'l')
        put_number(n, va_arg(*ap, int64_t), "@");
    else if (kind == 'f')
        put_float(n, va_arg(*ap, double));
    else if (kind == 'b')
        put(n, va_arg(*ap, int) ? "true" : "false");
    else if (kind == 'd')
        put(n, "%s", dtype_text((enum ckpt_dtype)va_arg(*ap, int)));
    else if (kind == 'm')
        put_mask(n, va_arg(*ap, unsigned));
    else if (kind == 's')
        put_text(n, va_arg(*ap, const char *));
    else if (kind == 'C')
        put_conv(n, va_arg(*ap, const struct ckpt_conv_spec *));
    else if (kind == 'P')
        put_pool(n, va_arg(*ap, const struct ckpt_pool_spec *));
    else if (kind == 'T')
        put_attention(n, va_arg(*ap, const struct ckpt_attention_spec *));
    else if (kind == 'L')
        put_cross_entropy(n, va_arg(*ap, const struct ckpt_cross_entropy_spec *));
    else if (kind == 'S' || kind == 'n') {
        if (kind == 'S')
            put(n, "%d, ", count);
        put_numbers(n, count, va_arg(*ap, const int64_t *));
    } else if (kind == 'A') {
        const int *axes = va_arg(*ap, const int *);
        put(n, "(int[]){");
        for (int i = 0; i < count; i++)
            put(n, "%s%d", i ? ", " : "", axes[i]);
        put(n, "}");
    } else if (kind == 'X') {
        const ckpt_tensor *x = va_arg(*ap, const ckpt_tensor *);
        put(n, "%d, (ckpt_tensor[]){", count);
        for (int i = 0; i < count; i++) {
            put(n, i ? ", " : "");
            put_operand(n, x[i]);
        }
        put(n, "}");
    } else if (kind == 'o') {
        const ckpt_tensor *x = va_arg(*ap, const ckpt_tensor *);
        put(n, x ? "&$" : "NULL"); /* the name of the results is known when it is written */
        if (x)
            n->result[n->n_results++] = value_of(n->t, *x);
    }
}

static void *copy(struct trace *tr, const void *from, int n, size_t element)
{
    void *to = heap_zeros(&tr->heap, n + 1, element);

    if (to)
        memcpy(to, from, (size_t)n * element);
    return to;
}

/* The label of the ops that are recorded now. */
static const char *label_of(struct trace *tr, const ckpt_tape *t)
{
    if (!tr->label_text || tr->label != t->label) {
        const char *text = t->labels.data[t->label];
        tr->label_text = heap_text(&tr->heap, text, strlen(text));
        tr->label = t->label;
    }
    return tr->label_text;
}

static struct traced *keep(struct trace *tr, const struct note *n, const char *name)
{
    const struct traced c = {.name = name,
                             .text = heap_text(&tr->heap, n->text, n->used),
                             .label = label_of(tr, n->t),
                             .n_operands = n->n_operands,
                             .n_numbers = n->n_numbers,
                             .n_results = n->n_results,
                             .operand = copy(tr, n->operand, n->n_operands, sizeof *c.operand),
                             .number = copy(tr, n->number, n->n_numbers, sizeof *c.number),
                             .result = copy(tr, n->result, n->n_results, sizeof *c.result)};

    if (!c.text || !c.label || !c.operand || !c.number || !c.result ||
        n->used + 1 >= sizeof n->text || ARRAY_RESERVE(&tr->calls, tr->n_calls)) {
        tr->failed = CKPT_ENOMEM;
        return NULL;
    }
    tr->calls.data[tr->n_calls] = c;
    return &tr->calls.data[tr->n_calls++];
}

/* A call that gives back an operand recorded nothing. */
static bool gives_operand(const struct note *n)
{
    for (int i = 0; i < n->n_operands; i++)
        if (n->result[0] == n->operand[i])
            return true;
    return false;
}

/* Notes a call that gave n_y results at y, with arguments by their letters. */
static struct traced *note_all(ckpt_tape *t, int n_y, const ckpt_tensor *y, const char *name,
                               const char *kinds, va_list ap)
{
    struct trace *tr = trace_of(t);
    struct note n = {.t = t};
    va_list rest;

    if (!tr || tr->failed || t->error.code)
        return NULL;
    for (int i = 0; i < n_y && i < MOST - 2; i++)
        n.result[n.n_results++] = value_of(t, y[i]);
    va_copy(rest, ap);
    for (const char *k = kinds; *k; k++) {
        put(&n, k == kinds ? "" : ", ");
        put_argument(&n, *k, &rest);
    }
    va_end(rest);
    return n_y && gives_operand(&n) ? NULL : keep(tr, &n, name);
}

static ckpt_tensor note(ckpt_tape *t, ckpt_tensor y, const char *name, const char *kinds, ...)
{
    va_list ap;

    va_start(ap, kinds);
    note_all(t, 1, &y, name, kinds, ap);
    va_end(ap);
    return y;
}

static void note_none(ckpt_tape *t, const char *name, const char *kinds, ...)
{
    va_list ap;

    va_start(ap, kinds);
    note_all(t, 0, NULL, name, kinds, ap);
    va_end(ap);
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* traced_NAME with these parameters, which are passed on and noted by their letters. */
#define CALL(name, params, args, kinds, ...)                                                       \
    ckpt_tensor traced_##name params                                                               \
    {                                                                                              \
        return note(t, ckpt_##name args, #name, kinds, __VA_ARGS__);                               \
    }

#define UNARY(name) CALL(name, (ckpt_tape * t, ckpt_tensor x), (t, x), "x", x)
UNARY(abs)
UNARY(cos)
UNARY(erf)
UNARY(exp)
UNARY(expm1)
UNARY(floor)
UNARY(gelu_erf)
UNARY(gelu_tanh)
UNARY(log)
UNARY(log1p)
UNARY(mish)
UNARY(neg)
UNARY(not )
UNARY(relu)
UNARY(round)
UNARY(rsqrt)
UNARY(sigmoid)
UNARY(sign)
UNARY(silu)
UNARY(sin)
UNARY(softplus)
UNARY(sqrt)
UNARY(stop_gradient)
UNARY(tanh)

#define BINARY(name)                                                                               \
    CALL(name, (ckpt_tape * t, ckpt_tensor a, ckpt_tensor b), (t, a, b), "xx", a, b)
BINARY(add)
BINARY(and)
BINARY(div)
BINARY(eq)
BINARY(ge)
BINARY(gt)
BINARY(le)
BINARY(lt)
BINARY(masked_mean)
BINARY(maximum)
BINARY(minimum)
BINARY(mul)
BINARY(ne)
BINARY(or)
BINARY(pow)
BINARY(sub)

#define OVER(name) CALL(name, (ckpt_tape * t, ckpt_tensor x, unsigned m), (t, x, m), "xm", x, m)
OVER(amax)
OVER(amin)
OVER(logsumexp)
OVER(mean)
OVER(norm)
OVER(prod)
OVER(sum)

#define ALONG(name) CALL(name, (ckpt_tape * t, ckpt_tensor x, int i), (t, x, i), "xi", x, i)
ALONG(argmax)
ALONG(cumsum)
ALONG(flip)
ALONG(log_softmax)
ALONG(softmax)
ALONG(squeeze)
ALONG(unsqueeze)

#define WITH_NUMBER(name)                                                                          \
    CALL(name, (ckpt_tape * t, ckpt_tensor x, float a), (t, x, a), "xf", x, (double)a)
WITH_NUMBER(dropout)
WITH_NUMBER(elu)
WITH_NUMBER(leaky_relu)
WITH_NUMBER(pow_scalar)

#define WITH_TWO(name)                                                                             \
    CALL(name, (ckpt_tape * t, ckpt_tensor x, float a, float b), (t, x, a, b), "xff", x,           \
         (double)a, (double)b)
WITH_TWO(affine)
WITH_TWO(clamp)

/* Sizes, one for each axis of x between the first and the last. */
#define SIZED(name)                                                                                \
    CALL(name, (ckpt_tape * t, ckpt_tensor x, const int64_t *n), (t, x, n), "xn", x,               \
         ckpt_desc_of(t, x).ndim - 2, n)
SIZED(adaptive_avg_pool)
SIZED(adaptive_max_pool)
SIZED(pixel_shuffle)
SIZED(resize_linear)
SIZED(resize_nearest)
SIZED(upsample_nearest)

#define POOL(name)                                                                                 \
    CALL(name, (ckpt_tape * t, ckpt_tensor x, const int64_t *w, const struct ckpt_pool_spec *s),   \
         (t, x, w, s), "xnP", x, ckpt_desc_of(t, x).ndim - 2, w, s)
POOL(avg_pool)
POOL(max_pool)

#define CONV(name)                                                                                 \
    CALL(name,                                                                                     \
         (ckpt_tape * t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,                              \
          const struct ckpt_conv_spec *s),                                                         \
         (t, x, w, b, s), "xxxC", x, w, b, s)
CONV(conv)
CONV(conv_transpose)

CALL(input, (ckpt_tape * t, const char *name, enum ckpt_dtype d, int n, const int64_t *s),
     (t, name, d, n, s), "sdS", name, (int)d, n, s)
CALL(full, (ckpt_tape * t, float v, enum ckpt_dtype d, int n, const int64_t *s), (t, v, d, n, s),
     "fdS", (double)v, (int)d, n, s)
CALL(bernoulli, (ckpt_tape * t, float p, enum ckpt_dtype d, int n, const int64_t *s),
     (t, p, d, n, s), "fdS", (double)p, (int)d, n, s)
CALL(randn, (ckpt_tape * t, enum ckpt_dtype d, int n, const int64_t *s), (t, d, n, s), "dS", (int)d,
     n, s)

#define RESHAPE(name)                                                                              \
    CALL(name, (ckpt_tape * t, ckpt_tensor x, int n, const int64_t *s), (t, x, n, s), "xS", x, n, s)
RESHAPE(expand)
RESHAPE(reshape)

#define TENSORS_3 ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b
CALL(attention, (TENSORS_3, ckpt_tensor bias, const struct ckpt_attention_spec *s),
     (t, x, w, b, bias, s), "xxxxT", x, w, b, bias, s)
CALL(batch_norm, (TENSORS_3, ckpt_tensor mean, ckpt_tensor var, float momentum, float eps),
     (t, x, w, b, mean, var, momentum, eps), "xxxxxff", x, w, b, mean, var, (double)momentum,
     (double)eps)
CALL(batch_norm_apply, (TENSORS_3, ckpt_tensor mean, ckpt_tensor var, float eps),
     (t, x, w, b, mean, var, eps), "xxxxxf", x, w, b, mean, var, (double)eps)
CALL(bce_with_logits, (TENSORS_3, int r), (t, x, w, b, r), "xxxi", x, w, b, r)
CALL(group_norm_silu, (TENSORS_3, int groups, float eps, bool silu),
     (t, x, w, b, groups, eps, silu), "xxxifb", x, w, b, groups, (double)eps, (int)silu)
CALL(instance_norm, (TENSORS_3, float eps), (t, x, w, b, eps), "xxxf", x, w, b, (double)eps)
CALL(layer_norm, (TENSORS_3, float eps), (t, x, w, b, eps), "xxxf", x, w, b, (double)eps)
CALL(layer_norm_modulate, (TENSORS_3, float eps), (t, x, w, b, eps), "xxxf", x, w, b, (double)eps)
CALL(linear, (TENSORS_3), (t, x, w, b), "xxx", x, w, b)
CALL(linear_add, (TENSORS_3, ckpt_tensor a), (t, x, w, b, a), "xxxx", x, w, b, a)
CALL(linear_cross_entropy, (TENSORS_3, ckpt_tensor label, const struct ckpt_cross_entropy_spec *s),
     (t, x, w, b, label, s), "xxxxL", x, w, b, label, s)
CALL(where, (TENSORS_3), (t, x, w, b), "xxx", x, w, b)

#define TENSORS_2 ckpt_tape *t, ckpt_tensor x, ckpt_tensor y
CALL(cross_entropy, (TENSORS_2, const struct ckpt_cross_entropy_spec *s), (t, x, y, s), "xxL", x, y,
     s)
CALL(embedding, (TENSORS_2, int64_t padding), (t, x, y, padding), "xxl", x, y, padding)
CALL(huber, (TENSORS_2, float a, int r), (t, x, y, a, r), "xxfi", x, y, (double)a, r)
CALL(kl_div, (TENSORS_2, bool b, int r), (t, x, y, b, r), "xxbi", x, y, (int)b, r)
CALL(matmul, (TENSORS_2, bool a, bool b), (t, x, y, a, b), "xxbb", x, y, (int)a, (int)b)
CALL(rms_norm, (TENSORS_2, float eps), (t, x, y, eps), "xxf", x, y, (double)eps)
CALL(gated_residual, (TENSORS_3), (t, x, w, b), "xxx", x, w, b)
CALL(grouped_matmul, (TENSORS_3, bool a), (t, x, w, b, a), "xxxb", x, w, b, (int)a)
CALL(iota, (ckpt_tape * t, enum ckpt_dtype d, int n, const int64_t *s, int axis),
     (t, d, n, s, axis), "dSi", (int)d, n, s, axis)
CALL(rope, (TENSORS_2, int axis), (t, x, y, axis), "xxi", x, y, axis)
CALL(rope_halves, (TENSORS_2, int axis), (t, x, y, axis), "xxi", x, y, axis)
CALL(smooth_l1, (TENSORS_2, float a, int r), (t, x, y, a, r), "xxfi", x, y, (double)a, r)

#define TENSOR_AXIS ckpt_tape *t, ckpt_tensor x, int axis
CALL(index_add, (TENSOR_AXIS, ckpt_tensor i, ckpt_tensor s), (t, x, axis, i, s), "xixx", x, axis, i,
     s)
CALL(gather, (TENSOR_AXIS, ckpt_tensor i), (t, x, axis, i), "xix", x, axis, i)
CALL(index_select, (TENSOR_AXIS, ckpt_tensor i), (t, x, axis, i), "xix", x, axis, i)
CALL(pad, (TENSOR_AXIS, int64_t before, int64_t after, enum ckpt_padding mode, float value),
     (t, x, axis, before, after, mode, value), "xillif", x, axis, before, after, (int)mode,
     (double)value)
CALL(roll, (TENSOR_AXIS, int64_t shift), (t, x, axis, shift), "xil", x, axis, shift)
CALL(scatter_add, (TENSOR_AXIS, ckpt_tensor i, ckpt_tensor s), (t, x, axis, i, s), "xixx", x, axis,
     i, s)
CALL(slice, (TENSOR_AXIS, int64_t begin, int64_t end), (t, x, axis, begin, end), "xill", x, axis,
     begin, end)
CALL(transpose, (TENSOR_AXIS, int other), (t, x, axis, other), "xii", x, axis, other)

CALL(argsort, (ckpt_tape * t, ckpt_tensor x, bool b), (t, x, b), "xb", x, (int)b)
CALL(cast, (ckpt_tape * t, ckpt_tensor x, enum ckpt_dtype d), (t, x, d), "xd", x, (int)d)
CALL(concat, (ckpt_tape * t, int axis, int n, const ckpt_tensor *x), (t, axis, n, x), "iX", axis, n,
     x)
CALL(one_hot, (ckpt_tape * t, ckpt_tensor x, int64_t n, enum ckpt_dtype d), (t, x, n, d), "xld", x,
     n, (int)d)
CALL(permute, (ckpt_tape * t, ckpt_tensor x, const int *axes), (t, x, axes), "xA", x,
     ckpt_desc_of(t, x).ndim, axes)
CALL(sort, (ckpt_tape * t, ckpt_tensor x, bool b, ckpt_tensor *i), (t, x, b, i), "xbo", x, (int)b,
     i)
CALL(topk, (ckpt_tape * t, ckpt_tensor x, int64_t k, ckpt_tensor *i), (t, x, k, i), "xlo", x, k, i)
CALL(var, (ckpt_tape * t, ckpt_tensor x, unsigned mask, int64_t n), (t, x, mask, n), "xml", x, mask,
     n)

void traced_update_buffer(ckpt_tape *t, ckpt_tensor buffer, ckpt_tensor value, float momentum)
{
    ckpt_update_buffer(t, buffer, value, momentum);
    note_none(t, "update_buffer", "xxf", buffer, value, (double)momentum);
}

ckpt_tensor traced_constant(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                            const int64_t *shape, const void *data)
{
    const ckpt_tensor y = ckpt_constant(t, name, dtype, ndim, shape, data);
    struct trace *tr = trace_of(t);
    const int32_t before = tr ? tr->n_calls : 0;

    note(t, y, "constant", "");
    if (!tr || tr->n_calls == before)
        return y;
    struct traced_constant *c = heap_zeros(&tr->heap, 1, sizeof *c);
    if (c) {
        c->desc = ckpt_desc_of(t, y);
        c->data = copy(tr, data, (int)desc_numel(&c->desc), (size_t)ckpt_dtype_size(dtype));
    }
    if (!c || !c->data)
        tr->failed = CKPT_ENOMEM;
    tr->calls.data[before].constant = c;
    return y;
}
