/* SPDX-License-Identifier: Apache-2.0 */
#include "import/source.h"
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "import/source_parts.h"

/* Constants with more elements are in the file. */
enum { MOST_WRITTEN = 64 };

/* ---- calls that nothing reads ---------------------------------------------------------------- */

/* Whether a call draws random numbers, by its place among all. */
static bool is_random(const struct traced *c)
{
    return !strcmp(c->name, "dropout") || !strcmp(c->name, "randn") ||
           !strcmp(c->name, "bernoulli");
}

/* Leaves out calls whose results nothing reads, in both traces alike: the passes do the same. */
static int leave_out(const struct source *s, struct trace *first, struct trace *second)
{
    const int n = first->n_calls;
    int32_t n_values = s->loss + 1, kept = 0;

    for (int i = 0; i < n; i++) {
        if (is_random(&first->calls.data[i]))
            return 0;
        for (int k = 0; k < first->calls.data[i].n_results; k++)
            if (first->calls.data[i].result[k] >= n_values)
                n_values = first->calls.data[i].result[k] + 1;
    }
    bool *read = calloc((size_t)n_values, sizeof *read),
         *keep = calloc((size_t)n + 1, sizeof *keep);
    for (int i = n - 1; read && keep && i >= 0; i--) {
        const struct traced *c = &first->calls.data[i];
        read[s->loss > 0 ? s->loss : 0] = true;
        keep[i] = !c->n_results || !strcmp(c->name, "input");
        for (int k = 0; k < c->n_results; k++)
            keep[i] |= read[c->result[k]];
        for (int k = 0; keep[i] && k < c->n_operands; k++)
            if (c->operand[k] > 0 && c->operand[k] < n_values)
                read[c->operand[k]] = true;
    }
    for (int i = 0; read && keep && i < n; i++)
        if (keep[i]) {
            first->calls.data[kept] = first->calls.data[i];
            if (second)
                second->calls.data[kept] = second->calls.data[i];
            kept++;
        }
    const int rc = read && keep ? 0 : CKPT_ENOMEM;
    free(read);
    free(keep);
    if (!rc)
        first->n_calls = kept;
    if (!rc && second)
        second->n_calls = kept;
    return rc;
}

/* ---- whether the batch may differ ------------------------------------------------------------ */

static bool same_but_batch(const struct source *s, const struct traced *a, const struct traced *b)
{
    bool same = !strcmp(a->name, b->name) && !strcmp(a->text, b->text) &&
                a->n_numbers == b->n_numbers && !a->constant == !b->constant;

    for (int i = 0; same && i < a->n_numbers; i++)
        same = a->number[i] == b->number[i] ||
               (a->number[i] % s->batch == 0 &&
                a->number[i] / s->batch * s->other_batch == b->number[i]);
    if (same && a->constant)
        same = desc_numel(&a->constant->desc) == desc_numel(&b->constant->desc) &&
               !memcmp(a->constant->data, b->constant->data,
                       (size_t)desc_numel(&a->constant->desc) *
                           (size_t)ckpt_dtype_size(a->constant->desc.dtype));
    return same;
}

static bool batch_is_free(const struct source *s)
{
    bool same = s->other && s->other->n_calls == s->trace->n_calls;

    for (int i = 0; same && i < s->trace->n_calls; i++)
        same = same_but_batch(s, &s->trace->calls.data[i], &s->other->calls.data[i]);
    return same;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void put_members(const struct parts *p, int list, int child, FILE *f)
{
    for (int32_t i = 0; i < p->s->params->n; i++)
        if (p->param[i].list == list && (list < 0 || p->param[i].child == child))
            fprintf(f, "    ckpt_tensor %s;\n", p->param[i].member);
}

static bool has_params(const struct parts *p, int list, int child)
{
    for (int32_t i = 0; i < p->s->params->n; i++)
        if (p->param[i].list == list && p->param[i].child == child)
            return true;
    return false;
}

static void put_struct_name(const struct parts *p, int list, int child, FILE *f)
{
    fprintf(f, "struct %s", p->list[list].ident);
    if (!p->list[list].uniform)
        fprintf(f, "_%d", child);
}

static void put_sizes(const struct parts *p, FILE *f)
{
    fputs(p->n_sizes
              ? "/* Sizes, after the first input or parameter and its axis that has them. */\n"
                "enum {\n"
              : "",
          f);
    for (int i = 0; i < p->n_sizes; i++)
        fprintf(f, "    %s = %lld,\n", p->size[i].name, (long long)p->size[i].n);
    fputs(p->n_sizes ? "};\n\n" : "", f);
}

static void put_structs(const struct parts *p, FILE *f)
{
    for (int l = 0; l < p->n_lists; l++)
        for (int i = 0; i < (p->list[l].uniform ? 1 : p->list[l].n); i++) {
            if (!has_params(p, l, i))
                continue;
            put_struct_name(p, l, i, f);
            fputs(" {\n", f);
            put_members(p, l, i, f);
            fputs("};\n\n", f);
        }
    fputs("struct model {\n", f);
    put_members(p, -1, -1, f);
    for (int l = 0; l < p->n_lists; l++)
        for (int i = 0; i < (p->list[l].uniform ? 1 : p->list[l].n); i++)
            if (has_params(p, l, i)) {
                fputs("    ", f);
                put_struct_name(p, l, i, f);
                if (p->list[l].uniform)
                    fprintf(f, " %s[%d];\n", p->list[l].ident, p->list[l].n);
                else
                    fprintf(f, " %s_%d;\n", p->list[l].ident, i);
            }
    fputs("    const char *constants; /* the file of large constants */\n};\n\n", f);
}

static void put_ints(FILE *f, const char *type, int n, const int64_t *v)
{
    fprintf(f, n ? "(%s[]){" : "NULL", type);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%lld", i ? ", " : "", (long long)v[i]);
    fputs(n ? "}" : "", f);
}

/* Statements that make a parameter, the first of a list's with "child" in place of its number. */
static void put_param(struct parts *p, int32_t i, bool looped, FILE *to)
{
    const struct param *a = &p->s->params->data[i];
    const struct source_place *at = &p->param[i];
    char quoted[1000], name[1000], *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return;
    snprintf(name, sizeof name, "m->%s[child].%s", at->list < 0 ? "" : p->list[at->list].ident,
             at->member);
    const char *place = looped ? name : parts_param(p, i, NULL);
    fprintf(f, "%s = make(c, %s, %d, ", place,
            a->desc.dtype == CKPT_BF16 ? "CKPT_BF16" : "CKPT_F32", a->desc.ndim);
    fputs(a->desc.ndim ? "(int64_t[]){" : "NULL", f);
    for (int k = 0; k < a->desc.ndim; k++) {
        fputs(k ? ", " : "", f);
        parts_put_size(p, a->desc.shape[k], f);
    }
    fprintf(f, "%s, %s, ", a->desc.ndim ? "}" : "", a->trainable ? "true" : "false");
    if (looped)
        fprintf(f, "%s, child, ", source_quoted(p->list[at->list].path, quoted, sizeof quoted));
    else
        fputs("NULL, 0, ", f);
    fprintf(f, "%s);", source_quoted(looped ? at->rest : a->name, quoted, sizeof quoted));
    fclose(f);
    source_statement(to, looped ? 8 : 4, text ? text : "");
    free(text);
    if (!a->reordered)
        return;
    int64_t axes[CKPT_MAX_DIMS];
    for (int k = 0; k < CKPT_MAX_DIMS; k++)
        axes[k] = a->file_axes[k];
    fprintf(to, "%*sckpt_param_file_axes(c, %s, %d, ", looped ? 8 : 4, "", place,
            a->file_view.ndim ? a->file_view.ndim : a->desc.ndim);
    put_ints(to, "int64_t", a->file_view.ndim, a->file_view.shape);
    fputs(", ", to);
    put_ints(to, "int", a->file_view.ndim ? a->file_view.ndim : a->desc.ndim, axes);
    fputs(");\n", to);
}

/* Whether parameter i is that of another child of a list, but for the child. */
static bool is_alike(const struct parts *p, int32_t i, int32_t k)
{
    const struct param *a = &p->s->params->data[i], *b = &p->s->params->data[k];

    return p->param[i].list == p->param[k].list && !strcmp(p->param[i].rest, p->param[k].rest) &&
           a->desc.dtype == b->desc.dtype && a->desc.ndim == b->desc.ndim &&
           !memcmp(a->desc.shape, b->desc.shape, sizeof a->desc.shape) &&
           a->trainable == b->trainable && a->reordered == b->reordered &&
           (!a->reordered || !memcmp(a->file_axes, b->file_axes, sizeof a->file_axes));
}

/* The parameters from i on that belong to one child. */
static int32_t run_of(const struct parts *p, int32_t i)
{
    int32_t n = 1;

    while (i + n < p->s->params->n && p->param[i + n].list == p->param[i].list &&
           p->param[i + n].child == p->param[i].child)
        n++;
    return n;
}

/* How many children from that of i on have the same parameters in a row. */
static int children_of(const struct parts *p, int32_t i, int32_t n)
{
    int children = 1;

    for (;; children++)
        for (int32_t k = 0; k < n; k++) {
            const int32_t other = i + children * n + k;
            if (other >= p->s->params->n || !is_alike(p, i + k, other) ||
                p->param[other].child != p->param[i].child + children)
                return children;
        }
}

static void put_params(struct parts *p, FILE *f)
{
    fputs("int model_create(ckpt *c, const char *constants, struct model *m)\n{\n"
          "    m->constants = constants;\n",
          f);
    for (int32_t i = 0; i < p->s->params->n;) {
        const int list = p->param[i].list;
        const int32_t n = list >= 0 && p->list[list].uniform ? run_of(p, i) : 1;
        const int children = list >= 0 && p->list[list].uniform ? children_of(p, i, n) : 1;
        const int first = p->param[i].child;
        if (children > 1)
            fprintf(f, "    for (int child = %d; child < %d; child++) {\n", first,
                    first + children);
        for (int32_t k = 0; k < n; k++)
            put_param(p, i + k, children > 1, f);
        fputs(children > 1 ? "    }\n" : "", f);
        i += n * children;
    }
    fputs("    return 0;\n}\n\n", f);
}

/* ---- constants ------------------------------------------------------------------------------- */

static bool is_written(const struct traced_constant *c)
{
    return desc_numel(&c->desc) <= MOST_WRITTEN;
}

static void put_element(FILE *f, const struct traced_constant *c, int64_t i)
{
    char text[40];

    if (c->desc.dtype == CKPT_I32)
        fprintf(f, "%d", (int)((const int32_t *)c->data)[i]);
    else
        fputs(source_float((double)((const float *)c->data)[i], text, sizeof text), f);
}

static void put_constant(struct body *b, int call, int *n)
{
    const struct traced *made = &b->p->s->trace->calls.data[call];
    const struct traced_constant *c = made->constant;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return;
    const char *name = body_name(b, "constant"),
               *type = c->desc.dtype == CKPT_I32 ? "int32_t" : "float";
    b->p->name[made->result[0]] = name;
    if (is_written(c)) {
        fprintf(f, "ckpt_tensor %s = ckpt_constant(t, NULL, ", name);
    } else {
        fprintf(f, "ckpt_tensor %s = read_constant(t, m, \"constant_%d\", ", name, *n);
    }
    ++*n;
    fprintf(f, "%s, %d, ", c->desc.dtype == CKPT_I32 ? "CKPT_I32" : "CKPT_F32", c->desc.ndim);
    put_ints(f, "int64_t", c->desc.ndim, c->desc.shape);
    if (is_written(c)) {
        fprintf(f, ", (%s[]){", type);
        for (int64_t i = 0; i < desc_numel(&c->desc); i++) {
            fputs(i ? ", " : "", f);
            put_element(f, c, i);
        }
        fputc('}', f);
    }
    fputs(");", f);
    fclose(f);
    source_statement(b->f, 4, text ? text : "");
    free(text);
}

static int write_constants(const struct source *s)
{
    ckpt_file_writer *w = NULL;
    int rc = 0, n = 0;

    for (int i = 0; i < s->trace->n_calls && !rc; i++) {
        const struct traced_constant *c = s->trace->calls.data[i].constant;
        char name[40];
        snprintf(name, sizeof name, "constant_%d", n);
        n += c != NULL;
        if (!c || is_written(c))
            continue;
        if (!w)
            rc = ckpt_file_create(&w, s->constants);
        if (!rc)
            rc = ckpt_file_add(w, name, c->desc.dtype, c->desc.ndim, c->desc.shape, c->data);
    }
    if (rc) {
        ckpt_file_abandon(w);
        return rc;
    }
    return w ? ckpt_file_commit(w) : 0;
}

/* ---- functions ------------------------------------------------------------------------------- */

static int32_t result_of(const struct parts *p, const struct segment *g, int i)
{
    const int at = p->function[g->function].result[i];

    return p->s->trace->calls.data[parts_call(p, g, at / 4)].result[at % 4];
}

static void put_function(struct parts *p, struct function *f, FILE *out)
{
    struct segment *g = &p->segment[f->segment];
    const char *body = parts_body(p, g);
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (!to)
        return;
    fprintf(out, "/* %s.%d */\n", p->list[g->list].path, g->child);
    fprintf(to, "static %s %s(ckpt_tape *t", f->n_results == 1 ? "ckpt_tensor" : "void", f->name);
    if (strstr(g->body, "p->")) {
        fputs(", const ", to);
        put_struct_name(p, g->list, g->child, to);
        fputs(" *p", to);
    }
    fputs(strstr(g->body, " batch") ? ", int64_t batch" : "", to);
    fputs(strstr(g->body, ", child)") ? ", int child" : "", to);
    for (int i = 0; i < g->n_outer; i++)
        fprintf(to, ", ckpt_tensor x%d", i + 1);
    fprintf(to, "%s)", f->n_results > 1 ? ", ckpt_tensor *y" : "");
    fclose(to);
    source_statement(out, 0, text ? text : "");
    free(text);
    fprintf(out, "{\n%s", body ? body : "");
    for (int i = 0; i < f->n_results; i++)
        if (f->n_results == 1)
            fprintf(out, "    return %s;\n", p->name[result_of(p, g, i)]);
        else
            fprintf(out, "    y[%d] = %s;\n", i, p->name[result_of(p, g, i)]);
    fputs("}\n\n", out);
    parts_forget(p);
}

/* ---- the top --------------------------------------------------------------------------------- */

/* Whether value is read by calls of segment k or of the next alone. */
static bool is_local(const struct parts *p, int32_t value, int k)
{
    const struct trace *tr = p->s->trace;

    if (value == p->s->loss)
        return false;
    for (int i = 0; i < tr->n_calls; i++)
        for (int j = 0; j < tr->calls.data[i].n_operands; j++)
            if (tr->calls.data[i].operand[j] == value && p->owner[i] != k && p->owner[i] != k + 1)
                return false;
    return true;
}

/* The result of the segment before that argument i of segment k is, -1: none. */
static int carried(const struct parts *p, int k, int i)
{
    const struct segment *g = &p->segment[k], *before = &p->segment[k - 1];

    for (int r = 0; r < p->function[g->function].n_results; r++)
        if (result_of(p, before, r) == g->outer[i])
            return r;
    return -1;
}

/* Whether segment k, behind segment k - 1 of a loop from `first` on, is its next turn. */
static bool continues(const struct parts *p, int first, int k)
{
    const struct segment *g = &p->segment[k], *before = &p->segment[k - 1];
    const int n = p->function[g->function].n_results;

    if (g->function != before->function || g->child != before->child + 1 ||
        !p->list[g->list].uniform)
        return false;
    for (int i = before->last + 1; i < g->first; i++)
        if (!p->s->trace->calls.data[i].constant)
            return false;
    for (int r = 0; r < n; r++)
        if (!is_local(p, result_of(p, before, r), k - 1))
            return false;
    for (int i = 0; i < g->n_outer; i++) {
        const int r = carried(p, k, i);
        if (r < 0 ? g->outer[i] != p->segment[first].outer[i]
                  : k > first + 1 && carried(p, k - 1, i) != r)
            return false;
    }
    return true;
}

/* What result r is before the first turn: the argument that it becomes. */
static const char *first_value(struct body *b, int first, int r)
{
    const struct segment *g = &b->p->segment[first];

    for (int i = 0; i < g->n_outer; i++)
        if (carried(b->p, first + 1, i) == r)
            return body_value(b, g->outer[i]);
    return "CKPT_NONE";
}

/* The call of a segment, in a loop over `turns`. */
static void put_call(struct body *b, int first, int turns)
{
    struct parts *p = b->p;
    const struct segment *g = &p->segment[first], *last = &p->segment[first + turns - 1];
    const struct function *f = &p->function[g->function];
    const char *name = f->n_results ? body_name(b, p->list[g->list].ident) : NULL;
    const char *value[8] = {0};
    char child[40], *text = NULL;
    size_t size = 0;

    for (int r = 0; r < f->n_results && r < 8; r++) {
        char one[200];
        snprintf(one, sizeof one, f->n_results > 1 ? "%.150s[%d]" : "%.150s", name, r);
        value[r] = heap_text(&p->heap, one, strlen(one));
    }
    snprintf(child, sizeof child, turns > 1 ? "child" : "%d", g->child);
    if (turns > 1 && f->n_results) {
        fprintf(b->f, "    ckpt_tensor %s%s", name, f->n_results > 1 ? "[] = {" : " = ");
        for (int r = 0; r < f->n_results; r++)
            fprintf(b->f, "%s%s", r ? ", " : "", first_value(b, first, r));
        fputs(f->n_results > 1 ? "};\n" : ";\n", b->f);
    } else if (f->n_results > 1) {
        fprintf(b->f, "    ckpt_tensor %s[%d];\n", name, f->n_results);
    }
    if (turns > 1)
        fprintf(b->f, "    for (int child = %d; child <= %d; child++)\n", g->child, last->child);
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return;
    if (f->n_results == 1)
        fprintf(to, "%s%s = ", turns > 1 ? "" : "ckpt_tensor ", name);
    fprintf(to, "%s(t", f->name);
    if (strstr(g->body, "p->"))
        fprintf(to, p->list[g->list].uniform ? ", &m->%s[%s]" : ", &m->%s_%s",
                p->list[g->list].ident, child);
    fputs(strstr(g->body, " batch") ? ", batch" : "", to);
    if (strstr(g->body, ", child)"))
        fprintf(to, ", %s", child);
    for (int i = 0; i < g->n_outer; i++) {
        const int r = turns > 1 ? carried(p, first + 1, i) : -1;
        fprintf(to, ", %s", r < 0 ? body_value(b, g->outer[i]) : value[r]);
    }
    fprintf(to, "%s%s);", f->n_results > 1 ? ", " : "", f->n_results > 1 ? name : "");
    fclose(to);
    source_statement(b->f, turns > 1 ? 8 : 4, text ? text : "");
    free(text);
    for (int r = 0; r < f->n_results && r < 8; r++)
        p->name[result_of(p, last, r)] = value[r];
    b->label = NULL;
}

static void put_calls(struct body *b)
{
    struct parts *p = b->p;
    const struct trace *tr = p->s->trace;
    int n = 0;

    for (int i = 0; i < tr->n_calls; i++)
        if (tr->calls.data[i].constant)
            put_constant(b, i, &n);
    for (int i = 0; i < tr->n_calls; i++) {
        if (tr->calls.data[i].constant)
            continue;
        if (p->owner[i] < 0) {
            body_call(b, i);
            continue;
        }
        const int first = p->owner[i];
        int turns = 1;
        while (first + turns < p->n_segments && continues(p, first, first + turns))
            turns++;
        put_call(b, first, turns);
        i = p->segment[first + turns - 1].last;
    }
}

static int put_record(struct parts *p, FILE *f)
{
    struct body *b = calloc(1, sizeof *b);
    const struct source *s = p->s;

    if (!b)
        return CKPT_ENOMEM;
    *b = (struct body){.p = p, .f = f, .label = ""};
    fputs("ckpt_tensor model_record(ckpt_tape *t, int64_t batch, void *user)\n{\n"
          "    const struct model *m = user;\n\n",
          f);
    if (!s->other)
        fprintf(f,
                "    if (batch != %lld) {\n"
                "        ckpt_tape_fail(t, CKPT_ESHAPE, \"the model has one batch: %lld\");\n"
                "        return CKPT_NONE;\n    }\n",
                (long long)s->batch, (long long)s->batch);
    put_calls(b);
    fprintf(f, "    return %s;\n}\n", body_value(b, s->loss));
    free(b);
    return 0;
}

static void put_head(const struct source *s, FILE *f)
{
    char quoted[1000];

    fprintf(
        f,
        "/*\n * The model of an archive of PyTorch, written by ckpt import --c-out from\n * %s\n "
        "*\n"
        " * model_create() makes its parameters; their values are read by ckpt_load_params().\n"
        " * model_record() is a recorder for ckpt_compile(), with the model as its user pointer.\n"
        " */\n"
        "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        "#include <ckpt.h>\n#include <ckpt_files.h>\n\n"
        "#define MODEL_CONSTANTS %s\n\n",
        text_shown(s->archive, quoted, 400),
        source_quoted(s->constants, quoted + 500, sizeof quoted - 500));
}

static const char helpers[] =
    "int model_create(ckpt *c, const char *constants, struct model *m);\n"
    "ckpt_tensor model_record(ckpt_tape *t, int64_t batch, void *user);\n\n"
    "/* A parameter LIST.CHILD.NAME, or without a list NAME. */\n"
    "static ckpt_tensor make(ckpt *c, enum ckpt_dtype dtype, int ndim, const int64_t *shape,\n"
    "                        bool trained, const char *list, int child, const char *name)\n"
    "{\n"
    "    char whole[1000];\n\n"
    "    if (list)\n"
    "        snprintf(whole, sizeof whole, \"%s.%d.%s\", list, child, name);\n"
    "    return ckpt_param(c, list ? whole : name, dtype, ndim, shape, CKPT_ZEROS, trained);\n"
    "}\n\n";

static const char reader[] =
    "/* A constant of the file. */\n"
    "static ckpt_tensor read_constant(ckpt_tape *t, const struct model *m, const char *name,\n"
    "                                 enum ckpt_dtype dtype, int ndim, const int64_t *shape)\n"
    "{\n"
    "    ckpt_file *f = NULL;\n"
    "    ckpt_tensor x = CKPT_NONE;\n"
    "    int64_t n = 1;\n\n"
    "    for (int i = 0; i < ndim; i++)\n"
    "        n *= shape[i];\n"
    "    void *data = malloc((size_t)n * 4);\n"
    "    int rc = data ? ckpt_file_open(&f, m->constants) : CKPT_ENOMEM;\n"
    "    if (!rc)\n"
    "        rc = dtype == CKPT_I32 ? ckpt_file_read_i32(f, ckpt_file_find(f, name), data, n)\n"
    "                               : ckpt_file_read_f32(f, ckpt_file_find(f, name), data, n);\n"
    "    if (rc)\n"
    "        ckpt_tape_fail(t, rc, \"%s: %s\", m->constants, ckpt_error(NULL));\n"
    "    else\n"
    "        x = ckpt_constant(t, NULL, dtype, ndim, shape, data);\n"
    "    ckpt_file_close(f);\n"
    "    free(data);\n"
    "    return x;\n"
    "}\n\n";

static bool has_large(const struct source *s)
{
    for (int i = 0; i < s->trace->n_calls; i++)
        if (s->trace->calls.data[i].constant && !is_written(s->trace->calls.data[i].constant))
            return true;
    return false;
}

static int write_file(struct parts *p, FILE *f)
{
    put_head(p->s, f);
    put_sizes(p, f);
    put_structs(p, f);
    fputs(helpers, f);
    put_params(p, f);
    fputs(has_large(p->s) ? reader : "", f);
    for (int i = 0; i < p->n_functions; i++)
        put_function(p, &p->function[i], f);
    return put_record(p, f);
}

int source_write(const struct source *given, const char *path)
{
    struct source s = *given;
    struct parts p = {0};

    if (!batch_is_free(&s))
        s.other = NULL;
    int rc = s.trace->failed;
    if (!rc)
        rc = leave_out(&s, s.trace, s.other);
    if (!rc)
        rc = parts_find(&p, &s);
    FILE *f = rc ? NULL : fopen(path, "w");
    if (!rc && !f)
        rc = error_set(CKPT_EIO, "%s cannot be written", path);
    if (!rc)
        rc = write_file(&p, f);
    if (f && (ferror(f) | fclose(f)) && !rc)
        rc = error_set(CKPT_EIO, "%s cannot be written", path);
    heap_free(&p.heap);
    return rc ? rc : write_constants(&s);
}
