/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: filters and tests. */
#include <string.h>
#include "template_parts.h"

/* ---- arguments ------------------------------------------------------------------------------- */

bool arguments_read(struct rendering *r, const struct node *list, struct arguments *to)
{
    for (const struct node *e = list; e && !r->failed; e = e->next) {
        const bool named = e->kind == N_NAMED;
        if (to->n == ARGUMENTS) {
            run_refuse(r, e->at, "%s has more than %d arguments", to->of, ARGUMENTS);
            break;
        }
        to->name[to->n] = named ? e->text : string_of("");
        to->value[to->n++] = run_eval(r, named ? e->a : e);
    }
    return !r->failed;
}

const struct value *argument(const struct arguments *a, int position, const char *name)
{
    for (int i = 0, at = 0; i < a->n; i++) {
        if (a->name[i].n ? string_is(a->name[i], name) : at == position)
            return &a->value[i];
        at += !a->name[i].n;
    }
    return NULL;
}

bool arguments_check(struct rendering *r, const struct arguments *a, int most, const char *names)
{
    int plain = 0;

    for (int i = 0; i < a->n && !r->failed; i++) {
        const struct string *name = &a->name[i];
        bool known = !name->n;
        for (const char *at = names; *at && !known; at += strcspn(at, " "), at += *at == ' ')
            known =
                name->n == (int64_t)strcspn(at, " ") && !memcmp(at, name->bytes, (size_t)name->n);
        plain += !name->n;
        if (!known)
            run_refuse(r, a->at, "the argument %.*s of %s is not supported", (int)name->n,
                       name->bytes, a->of);
    }
    if (plain > most)
        run_refuse(r, a->at, "%s has %d arguments; at most %d are supported", a->of, plain, most);
    return !r->failed;
}

int64_t argument_whole(struct rendering *r, const struct arguments *a, int position,
                       const char *name, int64_t fallback)
{
    const struct value *v = argument(a, position, name);

    if (!v || v->kind == NONE)
        return fallback;
    if (v->kind != WHOLE)
        run_refuse(r, a->at, "the argument %s of %s is %s, and not a whole number", name, a->of,
                   value_kind(*v));
    return v->kind == WHOLE ? v->is.whole : fallback;
}

/* ---- filters --------------------------------------------------------------------------------- */

struct filtering {
    struct rendering *r;
    struct value v;
    const struct arguments *a;
};

static struct value refuse(const struct filtering *f)
{
    return run_refuse(f->r, f->a->at, "%s of %s", f->a->of, value_kind(f->v));
}

static struct string text(const struct filtering *f)
{
    return value_text(f->r, f->a->at, f->v);
}

static struct value filter_trim(const struct filtering *f)
{
    const struct value *set = argument(f->a, 0, "chars");
    const bool has = set && set->kind == STRING;

    return value_string(string_strip(text(f), has ? &set->is.string : NULL, true, true));
}

/* Python's json.dumps as transformers calls it: other characters than ASCII stay. */
static struct value filter_json(const struct filtering *f)
{
    int64_t indent = argument_whole(f->r, f->a, 0, "indent", -1);
    const struct value *ascii = argument(f->a, -1, "ensure_ascii");

    if (ascii && value_is_true(*ascii))
        return run_refuse(f->r, f->a->at, "tojson with ensure_ascii is not supported");
    if (indent > 16)
        return run_refuse(f->r, f->a->at, "tojson with an indent of %lld is not supported",
                          (long long)indent);
    return value_string(value_json_text(f->r, f->a->at, f->v, indent));
}

static struct value filter_length(const struct filtering *f)
{
    switch (f->v.kind) {
    case UNDEFINED:
        return value_whole(0);
    case STRING:
        return value_whole(string_length(f->v.is.string));
    case LIST:
        return value_whole(f->v.is.list->n);
    case MAP:
        return value_whole(f->v.is.map->n);
    default:
        return refuse(f);
    }
}

static struct value filter_list(const struct filtering *f)
{
    return value_elements(f->r, f->a->at, f->v);
}

/* What a name or an element is inside of a value: "a.b" goes through two. */
static struct value attribute(const struct filtering *f, struct value v, struct string path)
{
    for (int64_t begin = 0; begin <= path.n && !f->r->failed;) {
        const char *dot =
            begin < path.n ? memchr(path.bytes + begin, '.', (size_t)(path.n - begin)) : NULL;
        int64_t end = dot ? dot - path.bytes : path.n;
        struct string name = string_part(path, begin, end);
        const struct value *found = v.kind == MAP ? map_find(v.is.map, name) : NULL;
        if (v.kind == UNDEFINED && begin)
            return run_refuse(f->r, f->a->at, "%s has no member %.*s", value_kind(v), (int)name.n,
                              name.bytes);
        v = found ? *found : value_undefined(name);
        begin = end + 1;
    }
    return v;
}

static struct value filter_join(const struct filtering *f)
{
    const struct value *between = argument(f->a, 0, "d"), *of = argument(f->a, 1, "attribute");
    struct value list = value_elements(f->r, f->a->at, f->v);
    struct buffer to = {NULL, NULL, 0, 0};

    for (int64_t i = 0; !f->r->failed && i < list.is.list->n; i++) {
        struct value one = list.is.list->item[i];
        if (of && of->kind == STRING)
            one = attribute(f, one, of->is.string);
        if (i && between)
            buffer_add(f->r, &to, value_text(f->r, f->a->at, *between));
        buffer_add(f->r, &to, value_text(f->r, f->a->at, one));
    }
    return value_string(buffer_string(f->r, &to));
}

static struct value filter_default(const struct filtering *f)
{
    const struct value *other = argument(f->a, 0, "default_value"),
                       *falsy = argument(f->a, 1, "boolean");
    const bool missing =
        f->v.kind == UNDEFINED || (falsy && value_is_true(*falsy) && !value_is_true(f->v));

    return !missing ? f->v : other ? *other : value_string(string_of(""));
}

static struct value filter_end(const struct filtering *f)
{
    struct value list = value_elements(f->r, f->a->at, f->v);
    const struct list *l = list.is.list;

    if (f->r->failed || !l->n)
        return value_undefined(string_of("an element of an empty list"));
    return l->item[strcmp(f->a->of, "first") ? l->n - 1 : 0];
}

/* Letters outside of ASCII have rules of their own. */
static struct value filter_case(const struct filtering *f)
{
    const struct string s = text(f);
    const bool upper = !strcmp(f->a->of, "upper"), first = !strcmp(f->a->of, "capitalize");
    char *to = run_take(f->r, s.n + 1);

    for (int64_t i = 0; to && i < s.n; i++) {
        const char c = s.bytes[i];
        const bool up = upper || (first && !i);
        if (c & 0x80)
            return run_refuse(f->r, f->a->at, "%s of characters beyond ASCII is not supported",
                              f->a->of);
        to[i] = up && c >= 'a' && c <= 'z'    ? (char)(c - 32)
                : !up && c >= 'A' && c <= 'Z' ? (char)(c + 32)
                                              : c;
    }
    return value_string(to ? (struct string){to, s.given, s.n} : string_of(""));
}

static struct value filter_replace(const struct filtering *f)
{
    const struct value *from = argument(f->a, 0, "old"), *to = argument(f->a, 1, "new");
    struct string s = text(f);
    struct buffer out = {NULL, NULL, 0, 0};

    if (!from || !to || from->kind != STRING || to->kind != STRING || !from->is.string.n)
        return run_refuse(f->r, f->a->at, "replace needs two strings, and the first one not empty");
    int64_t done = 0, n = from->is.string.n;
    for (int64_t i = 0; i + n <= s.n;) {
        if (memcmp(s.bytes + i, from->is.string.bytes, (size_t)n)) {
            i++;
            continue;
        }
        buffer_add(f->r, &out, string_part(s, done, i));
        buffer_add(f->r, &out, to->is.string);
        done = i += n;
    }
    buffer_add(f->r, &out, string_part(s, done, s.n));
    return value_string(buffer_string(f->r, &out));
}

static struct value filter_items(const struct filtering *f)
{
    struct value list, pair, *item, *of;

    if (f->v.kind == UNDEFINED)
        return value_list(f->r, 0, NULL);
    if (f->v.kind != MAP)
        return refuse(f);
    list = value_list(f->r, f->v.is.map->n, &item);
    for (int64_t i = 0; i < f->v.is.map->n && !f->r->failed; i++) {
        pair = value_list(f->r, 2, &of);
        if (f->r->failed)
            break;
        of[0] = value_string(f->v.is.map->pair[i].key);
        of[1] = f->v.is.map->pair[i].value;
        item[i] = pair;
    }
    return list;
}

static struct value filter_reverse(const struct filtering *f)
{
    struct value list = value_elements(f->r, f->a->at, f->v), out, *item;
    struct buffer to = {NULL, NULL, 0, 0};

    if (f->r->failed)
        return list;
    const struct list *l = list.is.list;
    out = value_list(f->r, l->n, &item);
    for (int64_t i = 0; i < l->n && !f->r->failed; i++)
        item[i] = l->item[l->n - 1 - i];
    if (f->v.kind != STRING || f->r->failed)
        return out;
    for (int64_t i = 0; i < l->n; i++)
        buffer_add(f->r, &to, item[i].is.string);
    return value_string(buffer_string(f->r, &to));
}

static struct value filter_string(const struct filtering *f)
{
    return value_string(text(f));
}

static struct value filter_int(const struct filtering *f)
{
    int64_t n = 0, i = 0;

    if (f->v.kind == WHOLE)
        return f->v;
    if (f->v.kind == TRUTH)
        return value_whole(f->v.is.truth);
    if (f->v.kind == REAL && f->v.is.real > -1e15 && f->v.is.real < 1e15)
        return value_whole((int64_t)f->v.is.real);
    if (f->v.kind != STRING)
        return refuse(f);
    const struct string s = f->v.is.string;
    for (i = s.n && s.bytes[0] == '-'; i < s.n && s.bytes[i] >= '0' && s.bytes[i] <= '9'; i++)
        n = n < 100000000000000000 ? 10 * n + (s.bytes[i] - '0') : n;
    if (!s.n || i < s.n || (i == 1 && s.bytes[0] == '-') || s.n > 17)
        return run_refuse(f->r, f->a->at, "int of a string that is no number is not supported");
    return value_whole(s.bytes[0] == '-' ? -n : n);
}

/* ---- filters on each element ----------------------------------------------------------------- */

/* The arguments behind the first `skipped` ones. */
static struct arguments rest_of(const struct arguments *a, int skipped)
{
    struct arguments rest = {.at = a->at, .of = a->of};

    for (int i = skipped; i < a->n; i++) {
        rest.name[rest.n] = a->name[i];
        rest.value[rest.n++] = a->value[i];
    }
    return rest;
}

static const char *filter_name(struct string name);
static const char *test_name(struct string name);

/* map("filter", ...) and map(attribute="name"). */
static struct value filter_map(const struct filtering *f)
{
    const struct value *of = argument(f->a, -1, "attribute"), *name = argument(f->a, 0, "");
    struct value list = value_elements(f->r, f->a->at, f->v), out, *item;
    struct arguments rest = rest_of(f->a, 1);

    if (f->r->failed)
        return list;
    out = value_list(f->r, list.is.list->n, &item);
    if (!of && (!name || name->kind != STRING || !filter_exists(name->is.string)))
        return run_refuse(f->r, f->a->at,
                          "map has neither an attribute nor a filter that is "
                          "supported");
    if (of && (of->kind != STRING || f->a->n > 1))
        return run_refuse(f->r, f->a->at, "map with these arguments is not supported");
    if (!of)
        rest.of = filter_name(name->is.string);
    for (int64_t i = 0; i < list.is.list->n && !f->r->failed; i++)
        item[i] = of ? attribute(f, list.is.list->item[i], of->is.string)
                     : filter_apply(f->r, name->is.string, list.is.list->item[i], &rest);
    return out;
}

/* select, reject, selectattr, rejectattr: by a test, of elements or of their members. */
static struct value filter_select(const struct filtering *f)
{
    const bool selects = f->a->of[0] == 's', members = strstr(f->a->of, "attr") != NULL;
    const struct value *of = argument(f->a, 0, ""), *test = argument(f->a, members, "");
    struct value list = value_elements(f->r, f->a->at, f->v), out, *item;
    struct arguments rest = rest_of(f->a, members + 1);
    int64_t n = 0;

    if (f->r->failed)
        return list;
    if ((members && (!of || of->kind != STRING)) ||
        (test && (test->kind != STRING || !test_exists(test->is.string))))
        return run_refuse(f->r, f->a->at, "%s with these arguments is not supported", f->a->of);
    rest.of = test ? test_name(test->is.string) : f->a->of;
    out = value_list(f->r, list.is.list->n, &item);
    for (int64_t i = 0; i < list.is.list->n && !f->r->failed; i++) {
        struct value one = list.is.list->item[i];
        struct value v = members ? attribute(f, one, of->is.string) : one;
        bool is = test ? test_apply(f->r, f->a->at, test->is.string, v, &rest) : value_is_true(v);
        if (is == selects)
            item[n++] = one;
    }
    if (!f->r->failed)
        ((struct list *)(uintptr_t)out.is.list)->n = n;
    return out;
}

static const struct filter {
    const char *name;
    struct value (*apply)(const struct filtering *f);
    int most; /* arguments by position */
    const char *names;
} filters[] = {{"trim", filter_trim, 1, "chars"},
               {"tojson", filter_json, 1, "indent ensure_ascii"},
               {"length", filter_length, 0, ""},
               {"count", filter_length, 0, ""},
               {"list", filter_list, 0, ""},
               {"join", filter_join, 2, "d attribute"},
               {"default", filter_default, 2, "default_value boolean"},
               {"d", filter_default, 2, "default_value boolean"},
               {"first", filter_end, 0, ""},
               {"last", filter_end, 0, ""},
               {"upper", filter_case, 0, ""},
               {"lower", filter_case, 0, ""},
               {"capitalize", filter_case, 0, ""},
               {"replace", filter_replace, 2, "old new"},
               {"items", filter_items, 0, ""},
               {"reverse", filter_reverse, 0, ""},
               {"string", filter_string, 0, ""},
               {"int", filter_int, 0, ""},
               {"map", filter_map, ARGUMENTS, "attribute"},
               {"select", filter_select, ARGUMENTS, ""},
               {"reject", filter_select, ARGUMENTS, ""},
               {"selectattr", filter_select, ARGUMENTS, ""},
               {"rejectattr", filter_select, ARGUMENTS, ""}};

static const struct filter *find_filter(struct string name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (string_is(name, filters[i].name))
            return &filters[i];
    return NULL;
}

static const char *filter_name(struct string name)
{
    return find_filter(name)->name;
}

bool filter_exists(struct string name)
{
    return find_filter(name) != NULL;
}

struct value filter_apply(struct rendering *r, struct string name, struct value v,
                          const struct arguments *a)
{
    const struct filter *filter = find_filter(name);
    const struct filtering f = {r, v, a};

    return arguments_check(r, a, filter->most, filter->names) ? filter->apply(&f) : v;
}

struct value run_filter(struct rendering *r, const struct node *e)
{
    struct arguments a = {.at = e->at, .of = find_filter(e->text)->name};
    struct value v = run_eval(r, e->a);

    return arguments_read(r, e->e, &a) ? filter_apply(r, e->text, v, &a) : v;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static bool is_true(struct value v, const struct value *other)
{
    (void)other;
    return v.is.truth;
}

static bool is_false(struct value v, const struct value *other)
{
    return !is_true(v, other);
}

static bool is_odd(struct value v, const struct value *other)
{
    (void)other;
    return v.is.whole % 2 != 0;
}

static bool is_even(struct value v, const struct value *other)
{
    return !is_odd(v, other);
}

static bool is_equal(struct value v, const struct value *other)
{
    return value_equal(v, *other);
}

static bool is_other(struct value v, const struct value *other)
{
    return !value_equal(v, *other);
}

static bool is_divisible(struct value v, const struct value *other)
{
    return other->kind == WHOLE && other->is.whole > 0 && v.is.whole % other->is.whole == 0;
}

#define BIT(kind) (1u << (kind))
#define ITERABLE  (BIT(STRING) | BIT(LIST) | BIT(MAP) | BIT(UNDEFINED))

/* A value passes that is of one of the kinds and for which `is` holds. */
static const struct test {
    const char *name;
    unsigned kinds;
    bool (*is)(struct value v, const struct value *other); /* NULL: any of the kinds */
    int arguments;
} tests[] = {{"defined", ~BIT(UNDEFINED), NULL, 0},
             {"undefined", BIT(UNDEFINED), NULL, 0},
             {"none", BIT(NONE), NULL, 0},
             {"string", BIT(STRING), NULL, 0},
             {"mapping", BIT(MAP), NULL, 0},
             {"iterable", ITERABLE, NULL, 0},
             {"sequence", ITERABLE, NULL, 0},
             {"number", BIT(WHOLE) | BIT(REAL) | BIT(TRUTH), NULL, 0},
             {"integer", BIT(WHOLE), NULL, 0},
             {"float", BIT(REAL), NULL, 0},
             {"boolean", BIT(TRUTH), NULL, 0},
             {"true", BIT(TRUTH), is_true, 0},
             {"false", BIT(TRUTH), is_false, 0},
             {"odd", BIT(WHOLE), is_odd, 0},
             {"even", BIT(WHOLE), is_even, 0},
             {"equalto", ~0u, is_equal, 1},
             {"eq", ~0u, is_equal, 1},
             {"==", ~0u, is_equal, 1},
             {"ne", ~0u, is_other, 1},
             {"!=", ~0u, is_other, 1},
             {"divisibleby", BIT(WHOLE), is_divisible, 1},
             {"in", 0, NULL, 1}}; /* by the operator */

static const struct test *find_test(struct string name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (string_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}

static const char *test_name(struct string name)
{
    return find_test(name)->name;
}

bool test_exists(struct string name)
{
    return find_test(name) != NULL;
}

bool test_apply(struct rendering *r, struct place at, struct string name, struct value v,
                const struct arguments *a)
{
    const struct test *test = find_test(name);

    if (a->n != test->arguments) {
        run_refuse(r, at, "the test %s has %d arguments, and needs %d", test->name, a->n,
                   test->arguments);
        return false;
    }
    if (!test->kinds)
        return run_compare(r, at, string_of("in"), v, a->value[0]);
    return test->kinds & BIT(v.kind) && (!test->is || test->is(v, &a->value[0]));
}

struct value run_test(struct rendering *r, const struct node *e)
{
    struct arguments a = {.at = e->at, .of = find_test(e->text)->name};
    struct value v = run_eval(r, e->a);

    return value_truth(arguments_read(r, e->e, &a) && test_apply(r, e->at, e->text, v, &a));
}
