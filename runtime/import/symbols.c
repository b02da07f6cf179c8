/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An expression is a call, NAME(ARGUMENT, ...), of SymPy: Symbol('s17', ...), Integer(2), Mul, Add,
 * Pow, Max, Min, FloorDiv, Mod.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "import/symbols.h"

enum { DEPTH = 40, NAME = 64 };

struct reader {
    const struct symbols *symbols;
    const char *at;
    int depth;
    bool bad;
};

/* ---- expressions ----------------------------------------------------------------------------- */

static void skip(struct reader *r, const char *what)
{
    r->at += strspn(r->at, " ");
    if (strncmp(r->at, what, strlen(what)) != 0)
        r->bad = true;
    else
        r->at += strlen(what);
}

static bool next_is(struct reader *r, char c)
{
    r->at += strspn(r->at, " ");
    return *r->at == c;
}

static struct symbol *find(const struct symbols *s, const char *name, size_t n)
{
    for (int i = 0; i < s->n; i++)
        if (strlen(s->at[i].name) == n && !strncmp(s->at[i].name, name, n))
            return &s->at[i];
    return NULL;
}

/* 's17', positive=True, integer=True */
static int64_t read_symbol(struct reader *r)
{
    skip(r, "'");
    const size_t n = strcspn(r->at, "'");
    const struct symbol *s = find(r->symbols, r->at, n);
    const char *end = strchr(r->at, ')');

    if (!s || !end) {
        r->bad = true;
        return 0;
    }
    r->at = end;
    return s->n;
}

static int64_t read_integer(struct reader *r)
{
    char *end;

    r->at += strspn(r->at, " ");
    const int64_t n = strtoll(r->at, &end, 10);
    if (end == r->at)
        r->bad = true;
    r->at = end;
    return n;
}

static int64_t divide_down(struct reader *r, int64_t x, int64_t y)
{
    if (y <= 0) {
        r->bad = true;
        return 0;
    }
    return x / y - (x % y < 0);
}

static int64_t power(struct reader *r, int64_t x, int64_t y)
{
    int64_t n = 1;

    if (y < 0 || y > 62)
        r->bad = true;
    for (; y > 0 && !r->bad; y--)
        if (__builtin_mul_overflow(n, x, &n))
            r->bad = true;
    return n;
}

static int64_t combine(struct reader *r, const char *f, int64_t x, int64_t y)
{
    int64_t n = 0;

    if (!strcmp(f, "Mul"))
        r->bad = __builtin_mul_overflow(x, y, &n) || r->bad;
    else if (!strcmp(f, "Add"))
        r->bad = __builtin_add_overflow(x, y, &n) || r->bad;
    else if (!strcmp(f, "Max") || !strcmp(f, "Min"))
        n = (x > y) == (f[1] == 'a') ? x : y;
    else if (!strcmp(f, "FloorDiv") || !strcmp(f, "CleanDiv"))
        n = divide_down(r, x, y);
    else if (!strcmp(f, "Mod") || !strcmp(f, "PythonMod"))
        n = x - divide_down(r, x, y) * y;
    else if (!strcmp(f, "Pow"))
        n = power(r, x, y);
    else
        r->bad = true;
    return n;
}

static int64_t read_call(struct reader *r)
{
    char name[NAME] = "";
    size_t n = 0;

    r->at += strspn(r->at, " ");
    while (isalpha((unsigned char)r->at[n]) && n < NAME - 1)
        n++;
    memcpy(name, r->at, n);
    r->at += n;
    skip(r, "(");
    if (r->bad || ++r->depth > DEPTH) {
        r->bad = true;
        return 0;
    }
    int64_t value = !strcmp(name, "Symbol")    ? read_symbol(r)
                    : !strcmp(name, "Integer") ? read_integer(r)
                                               : read_call(r);
    while (!r->bad && next_is(r, ',')) {
        r->at++;
        value = combine(r, name, value, read_call(r));
    }
    skip(r, ")");
    r->depth--;
    return value;
}

int symbols_value(const struct symbols *s, const struct pt2_size *size, int64_t *n)
{
    struct reader r = {.symbols = s, .at = size->expr};
    char shown[200];

    *n = size->n;
    if (!size->expr)
        return 0;
    *n = read_call(&r);
    if (r.bad || *r.at)
        return error_set(CKPT_EFORMAT, "the size '%s' has no value",
                         text_shown(size->expr, shown, sizeof shown));
    return 0;
}

/* ---- symbols --------------------------------------------------------------------------------- */

/* The symbol of "Symbol('s17', ...)", or NULL. */
static struct symbol *lone_symbol(const struct symbols *s, const char *expr)
{
    static const char head[] = "Symbol('";
    const char *name = expr + strlen(head);

    if (strncmp(expr, head, strlen(head)) != 0 || strchr(expr, ')') != expr + strlen(expr) - 1)
        return NULL;
    return find(s, name, strcspn(name, "'"));
}

int symbols_read(struct symbols *s, struct pt2_program *p)
{
    s->at = heap_zeros(&p->heap, p->n_ranges, sizeof *s->at);
    s->n = 0;
    if (!s->at)
        return CKPT_ENOMEM;
    for (int i = 0; i < p->n_ranges; i++)
        if (p->range[i].symbol[strspn(p->range[i].symbol, "suzf0123456789")] == 0)
            s->at[s->n++] = (struct symbol){.name = p->range[i].symbol,
                                            .n = p->range[i].min,
                                            .min = p->range[i].min,
                                            .max = p->range[i].max};
    for (int32_t v = 0; v < p->graph->n_values; v++)
        for (int i = 0; i < p->graph->value[v].tensor.ndim; i++) {
            const struct pt2_size *size = &p->graph->value[v].tensor.size[i];
            struct symbol *of = size->expr ? lone_symbol(s, size->expr) : NULL;
            if (of)
                of->n = size->n;
        }
    return 0;
}

static int set(struct symbol *of, int64_t n)
{
    if (n < of->min || n > of->max)
        return error_set(CKPT_ESHAPE, "dimension %s is from %lld to %lld, not %lld", of->name,
                         (long long)of->min, (long long)of->max, (long long)n);
    of->n = n;
    return 0;
}

/* Mul(Integer(k), Symbol(...)) */
static struct symbol *multiple(const struct symbols *s, const char *expr, int64_t *k)
{
    static const char head[] = "Mul(Integer(";
    char inner[200], *end;

    if (strncmp(expr, head, strlen(head)) != 0)
        return NULL;
    *k = strtoll(expr + strlen(head), &end, 10);
    if (*k < 1 || strncmp(end, "), ", 3) != 0)
        return NULL;
    snprintf(inner, sizeof inner, "%.*s", (int)strlen(end + 3) - 1, end + 3);
    return lone_symbol(s, inner);
}

int symbols_bind(struct symbols *s, const struct pt2_size *size, int64_t n)
{
    int64_t k = 1, have;
    struct symbol *of = size->expr ? lone_symbol(s, size->expr) : NULL;

    if (size->expr && !of)
        of = multiple(s, size->expr, &k);
    int rc = of && n % k == 0 ? set(of, n / k) : 0;
    if (!rc)
        rc = symbols_value(s, size, &have);
    if (rc || have == n)
        return rc;
    if (of)
        return error_set(CKPT_ESHAPE, "a size that is %lld times dimension %s cannot be %lld",
                         (long long)k, of->name, (long long)n);
    return error_set(CKPT_ESHAPE, "a size that %s is %lld and not %lld",
                     size->expr ? "follows from others" : "was fixed by the export",
                     (long long)have, (long long)n);
}

/* The size of INPUT.AXIS, or NULL. */
static const struct pt2_size *find_size(const struct pt2_program *p, const char *name)
{
    const char *dot = strrchr(name, '.');
    char *end = NULL;
    long axis = dot && dot[1] >= '0' && dot[1] <= '9' ? strtol(dot + 1, &end, 10) : -1;

    for (int i = 0; i < p->n_in && axis >= 0 && !*end; i++) {
        if (p->in[i].kind != PT2_USER_INPUT || p->in[i].value < 0)
            continue;
        const struct pt2_value *v = &p->graph->value[p->in[i].value];
        if (!strncmp(v->name, name, (size_t)(dot - name)) && !v->name[dot - name] &&
            v->kind == PT2_TENSOR_VALUE && axis < v->tensor.ndim)
            return &v->tensor.size[axis];
    }
    return NULL;
}

int symbols_set(struct symbols *s, const struct pt2_program *p, const char *name, int64_t n)
{
    const struct pt2_size *size = find_size(p, name);
    struct symbol *of = find(s, name, strlen(name));
    char shown[100];

    if (size)
        return symbols_bind(s, size, n);
    if (!of)
        return error_set(CKPT_ENAME, "the program has no dynamic dimension '%s'",
                         text_shown(name, shown, sizeof shown));
    return set(of, n);
}

const char *symbols_name(const struct symbols *s, const struct pt2_size *size)
{
    const struct symbol *of = size->expr ? lone_symbol(s, size->expr) : NULL;

    return of ? of->name : size->expr ? "" : NULL;
}
