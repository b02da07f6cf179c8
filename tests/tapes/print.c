/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the C function that records a recording.  Not by the writer of imported models
 * (import/source.h): that one writes calls that a tape has taken, and a recording that fails may
 * have one that is refused, or whose result has another shape than it should.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "recording.h"

static const char *dtype_name(enum ckpt_dtype dtype)
{
    return dtype == CKPT_BF16 ? "CKPT_BF16" : "CKPT_F32";
}

static void print_shape(FILE *f, const struct value *v)
{
    fprintf(f, "%d, ", v->ndim);
    if (!v->ndim)
        fprintf(f, "NULL");
    for (int k = 0; k < v->ndim; k++)
        fprintf(f, "%s%" PRId64 "%s", k ? ", " : "(int64_t[]){", v->shape[k],
                k + 1 < v->ndim ? "" : "}");
}

/* ---- parts of a call -------------------------------------------------------------------------*/

static void print_operand(FILE *f, const struct call *c, int k)
{
    if (k >= c->n_in || c->in[k] < 0)
        fprintf(f, "CKPT_NONE");
    else
        fprintf(f, "v[%d]", c->in[k]);
}

static void print_operands(FILE *f, const struct call *c)
{
    fprintf(f, "%d, (ckpt_tensor[]){", c->n_in);
    for (int k = 0; k < c->n_in; k++) {
        fprintf(f, "%s", k ? ", " : "");
        print_operand(f, c, k);
    }
    fprintf(f, "}");
}

static void print_indices(FILE *f, const struct recording *r, const struct call *c, int which)
{
    struct value shape;
    int32_t index[MAX_NUMEL];
    if (c->kind == CALL_ATTENTION && !(c->mask >> which & 1)) {
        fprintf(f, "CKPT_NONE");
        return;
    }
    recording_indices(r, c, which, &shape, index);
    fprintf(f, "ckpt_constant(t, \"i%d.%d\", CKPT_I32, ", c->out, which);
    print_shape(f, &shape);
    for (int64_t i = 0; i < value_numel(&shape); i++)
        fprintf(f, "%s%d", i ? ", " : ", (int32_t[]){", (int)index[i]);
    fprintf(f, "})");
}

static void print_table(FILE *f, const struct recording *r, const struct call *c)
{
    struct value shape;
    float table[MAX_NUMEL];
    recording_table(r, c, &shape, table);
    fprintf(f, "ckpt_constant(t, \"t%d\", CKPT_F32, ", c->out);
    print_shape(f, &shape);
    for (int64_t i = 0; i < value_numel(&shape); i++)
        fprintf(f, "%s%gf", i ? ", " : ", (float[]){", (double)table[i]);
    fprintf(f, "})");
}

/* Up to three spatial axes have the same numbers. */
static void print_conv(FILE *f, const struct call *c, int ndim)
{
    const int stride = c->axes[0], dilation = c->axes[1], before = c->axes[3], n = ndim - 2;
    fprintf(f,
            "&(struct ckpt_conv_spec){sizeof(struct ckpt_conv_spec), {%d, %d, 1}, {%d, %d}, {%d, "
            "%d}, false, {%d, %d, 1}, %d, {0}}",
            stride, n > 1 ? stride : 1, before, n > 1 ? before : 0, before, n > 1 ? before : 0,
            dilation, n > 1 ? dilation : 1, c->axes[2]);
}

static void print_attention(FILE *f, const struct recording *r, const struct call *c)
{
    fprintf(f, "&(struct ckpt_attention_spec){sizeof(struct ckpt_attention_spec), %#gf, %s, %d, ",
            (double)c->a, c->flag[0] ? "true" : "false", (int)c->begin);
    print_indices(f, r, c, 1);
    fprintf(f, ", ");
    print_indices(f, r, c, 0);
    fprintf(f, ", CKPT_NONE}");
}

static void print_pool(FILE *f, const struct call *c, int ndim)
{
    const int stride = (int)c->end, before = c->axes[0], second = ndim > 3 ? before : 0;
    fprintf(f,
            "&(struct ckpt_pool_spec){sizeof(struct ckpt_pool_spec), {%d, %d}, {%d, %d}, "
            "{%d, %d}, %d}",
            stride, stride, before, second, before, second, c->flag[0]);
}

static void print_entropy(FILE *f, const struct call *c)
{
    fprintf(f,
            "&(struct ckpt_cross_entropy_spec){sizeof(struct ckpt_cross_entropy_spec), %d, %#gf, "
            "%#gf, 0, {0, 0}, 0}",
            c->flag[0] ? 0 : -100, (double)c->a, (double)c->b);
}

static void print_axes(FILE *f, const struct call *c, int n, const char *type)
{
    fprintf(f, "(%s[]){", type);
    for (int k = 0; k < n; k++)
        fprintf(f, "%s%d", k ? ", " : "", c->axes[k]);
    fprintf(f, "}");
}

static const char *unary_name(const struct call *c)
{
    static const char *const names[] = {
#define X(name, f, d, distance) #name,
        UNARY(X)
#undef X
    };
    return names[c->unary];
}

/* ---- a call ----------------------------------------------------------------------------------*/

/* What stands in a call of kinds.def, beside A to D. */
static const struct {
    const char *word;
    char letter;
} words[] = {
    {"OPERANDS", 'l'},     {"RESULTS", 'o'},        {"AXIS", 'a'},
    {"MASK", 'm'},         {"PADDING", 'M'},        {"BEGIN", 'b'},
    {"END", 'e'},          {"NUMBER", 'x'},         {"NUMBER2", 'y'},
    {"FLAG", 'f'},         {"FLAG2", 'g'},          {"AXES", 'p'},
    {"TIMES", 'P'},        {"SIZES", 'z'},          {"SHAPE", 's'},
    {"DTYPE", 'd'},        {"NAME", 'k'},           {"INDICES", '0'},
    {"TABLE", 't'},        {"CONV_SPEC", 'S'},      {"POOL_SPEC", 'w'},
    {"ENTROPY_SPEC", 'E'}, {"ATTENTION_SPEC", 'T'}, {"FUNCTION", 'u'},
};

static void print_letter(FILE *f, char letter, const struct recording *r, const struct call *c)
{
    const struct value *v = &r->value[c->out];
    switch (letter) {
    case 'l':
        return print_operands(f, c);
    case '0':
        return print_indices(f, r, c, 0);
    case 't':
        return print_table(f, r, c);
    case 's':
        return print_shape(f, v);
    case 'p':
    case 'P':
        return print_axes(f, c, v->ndim, letter == 'p' ? "int" : "int64_t");
    case 'S':
        return print_conv(f, c, v->ndim);
    case 'T':
        return print_attention(f, r, c);
    case 'w':
        return print_pool(f, c, v->ndim);
    case 'E':
        return print_entropy(f, c);
    case 'd':
        fprintf(f, "%s", dtype_name(v->dtype));
        return;
    case 'u':
        fprintf(f, "%s", unary_name(c));
        return;
    case 'x':
    case 'y':
        fprintf(f, "%#gf", (double)(letter == 'x' ? c->a : c->b));
        return;
    case 'f':
    case 'g':
        fprintf(f, "%s", c->flag[letter - 'f'] ? "true" : "false");
        return;
    case 'a':
    case 'b':
    case 'e':
        fprintf(f, "%d", letter == 'a' ? c->axis : letter == 'b' ? (int)c->begin : (int)c->end);
        return;
    case 'm':
    case 'M':
        fprintf(f, letter == 'm' ? "%uu" : "(enum ckpt_padding)%u", c->mask);
        return;
    case 'o':
        fprintf(f, "%d, &v[%d]", c->n_out, c->out);
        return;
    case 'k':
        fprintf(f, "\"x%d\"", c->out);
        return;
    case 'z':
        fprintf(f, "(int64_t[]){%d, %d}", (int)c->begin, (int)c->begin);
        return;
    default:
        return print_operand(f, c, letter - 'A');
    }
}

/* Prints what the word of n letters stands for, or the word. */
static void print_word(FILE *f, const char *word, int n, const struct recording *r,
                       const struct call *c)
{
    if (n == 1 && *word >= 'A' && *word <= 'D')
        return print_letter(f, *word, r, c);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strncmp(words[i].word, word, (size_t)n) && !words[i].word[n])
            return print_letter(f, words[i].letter, r, c);
    fprintf(f, "%.*s", n, word);
}

static void print_call(FILE *f, const struct recording *r, const struct call *c)
{
    static const char *const calls[] = {
#define X(name, call, shape, fp64) #call,
#include "kinds.def"
#undef X
    };
    if (c->kind == CALL_PARAM) {
        fprintf(f, "    v[%d] = param[%d];\n", c->out, c->out);
        return;
    }
    fprintf(f, "    ");
    if (c->kind != CALL_SPLIT)
        fprintf(f, "v[%d] = ", c->out);
    fprintf(f, "ckpt_");
    for (const char *s = calls[c->kind]; *s;) {
        const int n = (int)strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_2");
        if (n)
            print_word(f, s, n, r, c);
        else
            fputc(*s, f);
        s += n ? n : 1;
    }
    fprintf(f, ";\n");
}

static void print_leaves(FILE *f, const struct recording *r)
{
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->call[i];
        const struct value *v = &r->value[c->out];
        const int64_t n = value_numel(v) * (c->kind == CALL_INPUT ? r->n_micro : 1);
        if (c->kind == CALL_PARAM) {
            fprintf(f, "    param[%d] = ckpt_param(c, \"w%d\", %s, ", c->out, c->out,
                    dtype_name(v->dtype));
            print_shape(f, v);
            fprintf(f, ", CKPT_ZEROS, true);\n    ckpt_param_set(c, param[%d], CKPT_VALUE, ",
                    c->out);
            fprintf(f, "values(%d, %#gf, %" PRId64 "), %" PRId64 ");\n", (int)c->seed, (double)c->a,
                    n, n);
        } else if (c->kind == CALL_INPUT) {
            fprintf(f, "    /* feed x%d, %s, all micro-steps: values(%d, %#gf, %" PRId64 ") */\n",
                    c->out, dtype_name(v->dtype), (int)c->seed, (double)c->a, n);
        }
    }
}

void recording_print(const struct recording *r, FILE *f)
{
    fprintf(f,
            "static ckpt_tensor param[%d];\n\n"
            "/* n values of a leaf. */\n"
            "static const float *values(int64_t seed, float scale, int64_t n)\n{\n"
            "    static float x[%d];\n    for (int64_t i = 0; i < n; i++) {\n"
            "        uint64_t u = (uint64_t)(seed * 1000003 + i) + 0x9e3779b97f4a7c15u;\n"
            "        u = (u ^ u >> 30) * 0xbf58476d1ce4e5b9u;\n"
            "        u = (u ^ u >> 27) * 0x94d049bb133111ebu;\n"
            "        x[i] = scale * (float)((int64_t)((u ^ u >> 31) %% 255) - 127) / 64;\n"
            "    }\n    return x;\n}\n\n"
            "static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)\n{\n"
            "    ckpt_tensor v[%d];\n    (void)batch, (void)user;\n",
            r->n_values, 2 * MAX_NUMEL, r->n_values);
    for (int i = 0; i < r->n_calls; i++)
        print_call(f, r, &r->call[i]);
    fprintf(f, "    return v[%d];\n}\n\n", r->loss);
    fprintf(f, "/* %s%s, %" PRId64 " micro-step%s%s */\nstatic void make_params(ckpt *c)\n{\n",
            r->adamw ? "AdamW" : "SGD", r->bf16_gradient ? " with bf16 gradients" : "", r->n_micro,
            r->n_micro > 1 ? "s" : "", r->verify ? ", --verify" : "");
    print_leaves(f, r);
    fprintf(f, "}\n");
}
