/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: members, methods of strings and mappings, functions, and operators. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../tokenizer/parts.h"
#include "template_parts.h"

/* ---- methods --------------------------------------------------------------------------------- */

struct calling {
    struct rendering *r;
    struct value v;
    const struct arguments *a;
};

static struct value refuse(const struct calling *c, const char *what)
{
    return run_refuse(c->r, c->a->at, "%s: %s", c->a->of, what);
}

static struct value method_strip(const struct calling *c)
{
    const struct value *set = argument(c->a, 0, "");
    const char side = c->a->of[0];

    if (set && set->kind != STRING && set->kind != NONE)
        return refuse(c, "its argument is no string");
    return value_string(string_strip(c->v.is.string,
                                     set && set->kind == STRING ? &set->is.string : NULL,
                                     side != 'r', side != 'l'));
}

/* The next place of a part in a string from `from` on, or -1. */
static int64_t find_part(struct string s, struct string part, int64_t from)
{
    for (int64_t i = from; i + part.n <= s.n; i++)
        if (!memcmp(s.bytes + i, part.bytes, (size_t)part.n))
            return i;
    return -1;
}

/* Adds to a list that has room for twice its length when that is a power of two. */
static void append(struct rendering *r, struct list *list, struct string s)
{
    const int64_t n = list->n;

    if (!(n & (n - 1))) {
        struct value *grown = run_take(r, (n ? 2 * n : 1) * (int64_t)sizeof *grown);
        if (!grown)
            return;
        if (n)
            memcpy(grown, list->item, (size_t)n * sizeof *grown);
        list->item = grown;
    }
    list->item[list->n++] = value_string(s);
}

static void split_spaces(const struct calling *c, struct list *list, int64_t most)
{
    struct string s = string_strip(c->v.is.string, NULL, true, false);

    while (s.n && !c->r->failed) {
        int64_t end = 0;
        while (end < s.n) {
            int n = utf8_length(s.bytes + end, s.n - end);
            if (!string_strip(string_part(s, end, end + n), NULL, true, true).n)
                break;
            end += n;
        }
        if (most >= 0 && list->n == most) {
            append(c->r, list, string_strip(s, NULL, false, true));
            return;
        }
        append(c->r, list, string_part(s, 0, end));
        s = string_strip(string_part(s, end, s.n), NULL, true, false);
    }
}

static struct value method_split(const struct calling *c)
{
    const struct value *by = argument(c->a, 0, "sep");
    const int64_t most = argument_whole(c->r, c->a, 1, "maxsplit", -1);
    const struct string s = c->v.is.string;
    struct list *list = run_take(c->r, sizeof *list);
    int64_t done = 0, at;

    if (!list)
        return value_undefined(s);
    if (!by || by->kind == NONE) {
        split_spaces(c, list, most);
        return (struct value){.kind = LIST, .is.list = list};
    }
    if (by->kind != STRING || !by->is.string.n)
        return refuse(c, "its argument is no string, or an empty one");
    while (!c->r->failed && (most < 0 || list->n < most) &&
           (at = find_part(s, by->is.string, done)) >= 0) {
        append(c->r, list, string_part(s, done, at));
        done = at + by->is.string.n;
    }
    append(c->r, list, string_part(s, done, s.n));
    return (struct value){.kind = LIST, .is.list = list};
}

static bool has_end(struct string s, struct string part, bool starts)
{
    return part.n <= s.n &&
           strings_equal(starts ? string_part(s, 0, part.n) : string_part(s, s.n - part.n, s.n),
                         part);
}

static struct value method_ends(const struct calling *c)
{
    const struct value *part = argument(c->a, 0, "");
    const bool starts = c->a->of[0] == 's';
    bool found = false;

    if (!part || (part->kind != STRING && part->kind != LIST))
        return refuse(c, "its argument is no string");
    if (part->kind == STRING)
        return value_truth(has_end(c->v.is.string, part->is.string, starts));
    for (int64_t i = 0; i < part->is.list->n && !found; i++) {
        const struct value *one = &part->is.list->item[i];
        if (one->kind != STRING)
            return refuse(c, "its argument is no string");
        found = has_end(c->v.is.string, one->is.string, starts);
    }
    return value_truth(found);
}

static struct value method_filter(const struct calling *c)
{
    return filter_apply(c->r, string_of(c->a->of), c->v, c->a);
}

static struct value method_join(const struct calling *c)
{
    const struct value *list = argument(c->a, 0, "");
    struct arguments a = {.at = c->a->at, .of = "join", .n = 1, .value = {c->v}};

    if (!list || list->kind != LIST)
        return refuse(c, "its argument is no list");
    for (int64_t i = 0; i < list->is.list->n; i++)
        if (list->is.list->item[i].kind != STRING)
            return refuse(c, "an element of the list is no string");
    a.name[0] = string_of("");
    return filter_apply(c->r, string_of("join"), *list, &a);
}

static struct value method_find(const struct calling *c)
{
    const struct value *part = argument(c->a, 0, "");
    const struct string s = c->v.is.string;
    int64_t at, n = 0;

    if (!part || part->kind != STRING || !part->is.string.n)
        return refuse(c, "its argument is no string, or an empty one");
    if (c->a->of[0] == 'f') {
        at = find_part(s, part->is.string, 0);
        return value_whole(at < 0 ? -1 : string_length(string_part(s, 0, at)));
    }
    for (at = 0; (at = find_part(s, part->is.string, at)) >= 0; at += part->is.string.n)
        n++;
    return value_whole(n);
}

static struct value method_get(const struct calling *c)
{
    const struct value *key = argument(c->a, 0, ""), *other = argument(c->a, 1, "");
    const struct value *found =
        key && key->kind == STRING ? map_find(c->v.is.map, key->is.string) : NULL;

    if (!key)
        return refuse(c, "its argument is missing");
    return found ? *found : other ? *other : (struct value){.kind = NONE};
}

static struct value method_keys(const struct calling *c)
{
    struct value list, *item;

    if (c->a->of[0] == 'k')
        return value_elements(c->r, c->a->at, c->v);
    list = value_list(c->r, c->v.is.map->n, &item);
    for (int64_t i = 0; i < c->v.is.map->n && !c->r->failed; i++)
        item[i] = c->v.is.map->pair[i].value;
    return list;
}

static const struct method {
    const char *name;
    enum value_kind of;
    struct value (*call)(const struct calling *c); /* NULL: not supported */
    int most;
    const char *names;
} methods[] = {{"strip", STRING, method_strip, 1, ""},
               {"lstrip", STRING, method_strip, 1, ""},
               {"rstrip", STRING, method_strip, 1, ""},
               {"split", STRING, method_split, 2, "sep maxsplit"},
               {"startswith", STRING, method_ends, 1, ""},
               {"endswith", STRING, method_ends, 1, ""},
               {"replace", STRING, method_filter, 2, ""},
               {"upper", STRING, method_filter, 0, ""},
               {"lower", STRING, method_filter, 0, ""},
               {"capitalize", STRING, method_filter, 0, ""},
               {"join", STRING, method_join, 1, ""},
               {"find", STRING, method_find, 1, ""},
               {"count", STRING, method_find, 1, ""},
               {"get", MAP, method_get, 2, ""},
               {"items", MAP, method_filter, 0, ""},
               {"keys", MAP, method_keys, 0, ""},
               {"values", MAP, method_keys, 0, ""},
               {"pop", MAP, NULL, 0, ""},
               {"popitem", MAP, NULL, 0, ""},
               {"copy", MAP, NULL, 0, ""},
               {"clear", MAP, NULL, 0, ""},
               {"update", MAP, NULL, 0, ""},
               {"fromkeys", MAP, NULL, 0, ""},
               {"setdefault", MAP, NULL, 0, ""}};

static const struct method *find_method(enum value_kind of, struct string name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].of == of && string_is(name, methods[i].name))
            return &methods[i];
    return NULL;
}

static struct value call_method(struct rendering *r, const struct node *e)
{
    struct value v = run_eval(r, e->a->a);
    const struct string name = e->a->text;
    const struct method *m = find_method(v.kind, name);
    struct arguments a = {.at = e->at, .of = m ? m->name : ""};

    if (r->failed)
        return v;
    if (!m || !m->call)
        return run_refuse(r, e->at, "the method %.*s of %s is not supported", (int)name.n,
                          name.bytes, value_kind(v));
    const struct calling c = {r, v, &a};
    return arguments_read(r, e->e, &a) && arguments_check(r, &a, m->most, m->names) ? m->call(&c)
                                                                                    : v;
}

/* ---- functions ------------------------------------------------------------------------------- */

static struct value call_namespace(const struct calling *c, enum value_kind kind)
{
    struct map *m = run_take(c->r, sizeof *m);

    for (int i = 0; m && i < c->a->n; i++) {
        if (!c->a->name[i].n)
            return refuse(c, "an argument without a name is not supported");
        map_set(c->r, m, c->a->name[i], c->a->value[i]);
    }
    return m ? (struct value){.kind = kind, .is.map = m} : value_undefined(string_of(c->a->of));
}

static struct value function_namespace(const struct calling *c)
{
    return call_namespace(c, SPACE);
}

static struct value function_dict(const struct calling *c)
{
    return call_namespace(c, MAP);
}

static struct value function_range(const struct calling *c)
{
    const bool has_begin = c->a->n > 1;
    int64_t begin = has_begin ? argument_whole(c->r, c->a, 0, "", 0) : 0;
    int64_t end = argument_whole(c->r, c->a, has_begin, "", 0);
    int64_t step = argument_whole(c->r, c->a, 2, "", 1);
    struct value list, *item;

    enum { MOST = 100000 };
    if (!c->a->n || !step || llabs(begin) > MOST || llabs(end) > MOST || llabs(step) > MOST)
        return refuse(c, "these arguments are not supported");
    int64_t n = step > 0 ? (end - begin + step - 1) / step : (begin - end - step - 1) / -step;
    n = n > 0 ? n : 0;
    list = value_list(c->r, n, &item);
    for (int64_t i = 0; i < n && !c->r->failed; i++)
        item[i] = value_whole(begin + i * step);
    return list;
}

/* The template refuses the conversation. */
static struct value function_raise(const struct calling *c)
{
    const struct value *why = argument(c->a, 0, "message");
    const bool says = why && why->kind == STRING;

    return run_refuse(c->r, c->a->at, "the template refuses this: %.*s",
                      says ? (int)(why->is.string.n < 300 ? why->is.string.n : 300) : 0,
                      says ? why->is.string.bytes : "");
}

/* The day, by SOURCE_DATE_EPOCH if it is set: a text that must be the same again. */
static struct value function_time(const struct calling *c)
{
    const struct value *form = argument(c->a, 0, "format");
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    time_t now = fixed ? (time_t)strtoll(fixed, NULL, 10) : time(NULL);
    char format[128], text[256];
    struct tm at;

    if (!form || form->kind != STRING || form->is.string.n >= (int64_t)sizeof format)
        return refuse(c, "its argument is no format");
    memcpy(format, form->is.string.bytes, (size_t)form->is.string.n);
    format[form->is.string.n] = 0;
    for (const char *p = strchr(format, '%'); p; p = strchr(p + 2, '%'))
        if (!p[1] || !strchr("dbBYmHMSyjaApI%e", p[1]))
            return refuse(c, "a part of the format is not supported");
    if (!(fixed ? gmtime_r(&now, &at) : localtime_r(&now, &at)))
        return refuse(c, "there is no such time");
    size_t n = strftime(text, sizeof text, format, &at);
    char *copy = run_take(c->r, (int64_t)n + 1);
    if (copy)
        memcpy(copy, text, n);
    return value_string((struct string){copy, NULL, copy ? (int64_t)n : 0});
}

static const struct function {
    const char *name;
    struct value (*call)(const struct calling *c);
    int most;
    const char *names; /* NULL: any */
} functions[] = {{"namespace", function_namespace, 0, NULL},
                 {"dict", function_dict, 0, NULL},
                 {"range", function_range, 3, ""},
                 {"raise_exception", function_raise, 1, "message"},
                 {"strftime_now", function_time, 1, "format"}};

static const struct function *find_function(struct string name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (string_is(name, functions[i].name))
            return &functions[i];
    return NULL;
}

bool is_global(struct string name)
{
    return find_function(name) != NULL;
}

static struct value call_function(struct rendering *r, const struct node *e)
{
    const struct function *f = find_function(e->a->text);
    struct arguments a = {.at = e->at, .of = f->name};
    const struct calling c = {r, {.kind = NONE}, &a};
    bool valid =
        arguments_read(r, e->e, &a) && (!f->names || arguments_check(r, &a, f->most, f->names));

    return valid ? f->call(&c) : c.v;
}

struct value run_call(struct rendering *r, const struct node *e)
{
    struct value v;

    if (e->a->kind == N_MEMBER)
        return call_method(r, e);
    v = run_eval(r, e->a);
    if (r->failed)
        return v;
    if (v.kind == MACRO && v.is.macro)
        return run_macro(r, e, v.is.macro);
    if (v.kind == MACRO && e->a->kind == N_NAME)
        return call_function(r, e);
    return run_refuse(r, e->at, "%s (%.*s) is called", value_kind(v), (int)e->a->text.n,
                      e->a->text.n ? e->a->text.bytes : "");
}

/* ---- members --------------------------------------------------------------------------------- */

/* In Jinja names of methods win over keys, and without a call they would be methods. */
struct value run_member(struct rendering *r, struct place at, struct value v, struct string name)
{
    const struct value *found = v.kind == MAP || v.kind == SPACE ? map_find(v.is.map, name) : NULL;

    if (v.kind == UNDEFINED)
        return run_refuse(r, at, "%.*s is not defined, and %.*s of it is asked for",
                          (int)v.is.string.n, v.is.string.n ? v.is.string.bytes : "", (int)name.n,
                          name.bytes);
    if (find_method(v.kind, name))
        return run_refuse(r, at, "the method %.*s is not called", (int)name.n, name.bytes);
    return found ? *found : value_undefined(name);
}

bool is_method_of_map(struct string name)
{
    return find_method(MAP, name) != NULL;
}

/* ---- operators ------------------------------------------------------------------------------- */

static struct value as_number(struct value v)
{
    return v.kind == TRUTH ? value_whole(v.is.truth) : v;
}

static struct value join_lists(struct rendering *r, struct value a, struct value b)
{
    struct value *item, list = value_list(r, a.is.list->n + b.is.list->n, &item);

    for (int64_t i = 0; i < a.is.list->n && !r->failed; i++)
        item[i] = a.is.list->item[i];
    for (int64_t i = 0; i < b.is.list->n && !r->failed; i++)
        item[a.is.list->n + i] = b.is.list->item[i];
    return list;
}

static struct value repeat(struct rendering *r, struct string s, int64_t n)
{
    struct buffer to = {NULL, NULL, 0, 0};

    for (int64_t i = 0; i < n && s.n && !r->failed; i++)
        buffer_add(r, &to, s);
    return value_string(buffer_string(r, &to));
}

static double real_of(struct value v)
{
    return v.kind == REAL ? v.is.real : (double)v.is.whole;
}

static struct value real_result(char op, bool floors, double x, double y)
{
    double z = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;

    if (op == '%')
        z = x - floor(x / y) * y;
    return (struct value){.kind = REAL, .is.real = floors ? floor(z) : z};
}

/* Sets *z.  Returns false after an overflow. */
static bool whole_result(char op, int64_t x, int64_t y, int64_t *z)
{
    if (op == '+')
        return !__builtin_add_overflow(x, y, z);
    if (op == '-')
        return !__builtin_sub_overflow(x, y, z);
    if (op == '*')
        return !__builtin_mul_overflow(x, y, z);
    if (x == INT64_MIN)
        return false;
    int64_t rest = x % y;
    rest += rest && (rest < 0) != (y < 0) ? y : 0;
    *z = op == '%' ? rest : (x - rest) / y;
    return true;
}

static struct value calculate(struct rendering *r, struct place at, struct string op,
                              struct value a, struct value b)
{
    const char c = op.bytes[0];
    const bool divides = c == '/' || c == '%', floors = op.n == 2;
    int64_t z = 0;

    if (divides && real_of(b) == 0)
        return run_refuse(r, at, "a division by 0");
    if (a.kind == REAL || b.kind == REAL || (c == '/' && !floors))
        return real_result(c, floors, real_of(a), real_of(b));
    if (!whole_result(c, a.is.whole, b.is.whole, &z))
        return run_refuse(r, at, "a number is too large");
    return value_whole(z);
}

struct value run_binary(struct rendering *r, const struct node *e, struct string op, struct value a,
                        struct value b)
{
    const struct value x = as_number(a), y = as_number(b);

    if (r->failed)
        return a;
    if (string_is(op, "~")) {
        struct string left = value_text(r, e->at, a), right = value_text(r, e->at, b);
        return value_string(string_join(r, left, right));
    }
    if (string_is(op, "+") && a.kind == STRING && b.kind == STRING)
        return value_string(string_join(r, a.is.string, b.is.string));
    if (string_is(op, "+") && a.kind == LIST && b.kind == LIST)
        return join_lists(r, a, b);
    if (string_is(op, "*") && a.kind == STRING && y.kind == WHOLE)
        return repeat(r, a.is.string, y.is.whole);
    if ((x.kind != WHOLE && x.kind != REAL) || (y.kind != WHOLE && y.kind != REAL))
        return run_refuse(r, e->at, "%.*s of %s and %s", (int)op.n, op.bytes, value_kind(a),
                          value_kind(b));
    return calculate(r, e->at, op, x, y);
}

static bool contains(struct rendering *r, struct place at, struct value v, struct value in)
{
    bool found = false;

    if (in.kind == STRING && v.kind == STRING)
        return find_part(in.is.string, v.is.string, 0) >= 0;
    if (in.kind == MAP)
        return v.kind == STRING && map_find(in.is.map, v.is.string);
    if (in.kind != LIST && in.kind != UNDEFINED) {
        run_refuse(r, at, "%s in %s", value_kind(v), value_kind(in));
        return false;
    }
    for (int64_t i = 0; in.kind == LIST && i < in.is.list->n && !found; i++)
        found = value_equal(in.is.list->item[i], v);
    return found;
}

/* Below 0, 0 or above: the order of two values. */
static int order(struct rendering *r, struct place at, struct value a, struct value b)
{
    const struct value x = as_number(a), y = as_number(b);
    const bool numbers = (x.kind == WHOLE || x.kind == REAL) && (y.kind == WHOLE || y.kind == REAL);

    if (a.kind == STRING && b.kind == STRING) {
        const struct string s = a.is.string, t = b.is.string;
        const int64_t n = s.n < t.n ? s.n : t.n;
        const int first = n ? memcmp(s.bytes, t.bytes, (size_t)n) : 0;
        return first ? first : s.n < t.n ? -1 : s.n > t.n;
    }
    if (!numbers)
        run_refuse(r, at, "%s and %s have no order", value_kind(a), value_kind(b));
    else if (x.kind == WHOLE && y.kind == WHOLE)
        return x.is.whole < y.is.whole ? -1 : x.is.whole > y.is.whole;
    return !numbers ? 0 : real_of(x) < real_of(y) ? -1 : real_of(x) > real_of(y);
}

bool run_compare(struct rendering *r, struct place at, struct string op, struct value a,
                 struct value b)
{
    if (r->failed)
        return false;
    if (string_is(op, "==") || string_is(op, "!="))
        return value_equal(a, b) == (op.bytes[0] == '=');
    if (string_is(op, "in"))
        return contains(r, at, a, b);
    if (string_is(op, "not in"))
        return !contains(r, at, a, b);
    const int is = order(r, at, a, b);
    return op.bytes[0] == '<' ? is < 0 || (op.n == 2 && !is) : is > 0 || (op.n == 2 && !is);
}
