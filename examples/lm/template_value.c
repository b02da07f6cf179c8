/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: values, and the text that they print. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../tokenizer/parts.h"
#include "template_parts.h"

/* ---- strings --------------------------------------------------------------------------------- */

struct string string_of(const char *text)
{
    return (struct string){text, NULL, (int64_t)strlen(text)};
}

bool strings_equal(struct string a, struct string b)
{
    return a.n == b.n && (!a.n || !memcmp(a.bytes, b.bytes, (size_t)a.n));
}

bool string_is(struct string s, const char *text)
{
    return strings_equal(s, string_of(text));
}

struct string string_part(struct string s, int64_t begin, int64_t end)
{
    return (struct string){s.bytes + begin, s.given ? s.given + begin : NULL, end - begin};
}

int64_t string_length(struct string s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s.n; i++)
        n += (s.bytes[i] & 0xc0) != 0x80;
    return n;
}

/* Without a set: white space, as Python's str.strip. */
static bool is_in_set(const struct string *set, const char *at, int n)
{
    uint32_t code = utf8_code(at, n);

    if (!set)
        return utf8_is_space(code) || (code >= 0x1c && code <= 0x1f);
    for (int64_t i = 0, m; i < set->n; i += m) {
        m = utf8_length(set->bytes + i, set->n - i);
        if (m == n && !memcmp(set->bytes + i, at, (size_t)n))
            return true;
    }
    return false;
}

struct string string_strip(struct string s, const struct string *set, bool left, bool right)
{
    int64_t begin = 0, end = s.n;

    for (int n; left && begin < end; begin += n) {
        n = utf8_length(s.bytes + begin, end - begin);
        if (!is_in_set(set, s.bytes + begin, n))
            break;
    }
    for (int n; right && end > begin; end -= n) {
        utf8_before(s.bytes + begin, end - begin, &n);
        if (!is_in_set(set, s.bytes + end - n, n))
            break;
    }
    return string_part(s, begin, end);
}

/* ---- text that grows ------------------------------------------------------------------------- */

static bool make_room(struct rendering *r, struct buffer *b, int64_t n)
{
    if (b->n + n <= b->room)
        return true;
    const int64_t room = 2 * (b->n + n) + 64;
    char *bytes = run_take(r, room);
    bool *given = bytes ? run_take(r, room) : NULL;
    if (!given)
        return false;
    if (b->n) {
        memcpy(bytes, b->bytes, (size_t)b->n);
        memcpy(given, b->given, (size_t)b->n);
    }
    *b = (struct buffer){bytes, given, b->n, room};
    return true;
}

void buffer_add(struct rendering *r, struct buffer *b, struct string s)
{
    if (!s.n || !make_room(r, b, s.n))
        return;
    memcpy(b->bytes + b->n, s.bytes, (size_t)s.n);
    if (s.given)
        memcpy(b->given + b->n, s.given, (size_t)s.n);
    else
        memset(b->given + b->n, 0, (size_t)s.n);
    b->n += s.n;
}

struct string buffer_string(struct rendering *r, struct buffer *b)
{
    return r->failed || !b->n ? string_of("") : (struct string){b->bytes, b->given, b->n};
}

struct string string_join(struct rendering *r, struct string a, struct string b)
{
    struct buffer to = {NULL, NULL, 0, 0};

    if (!a.n || !b.n)
        return a.n ? a : b;
    if (!make_room(r, &to, a.n + b.n))
        return string_of("");
    buffer_add(r, &to, a);
    buffer_add(r, &to, b);
    return buffer_string(r, &to);
}

/* ---- values ---------------------------------------------------------------------------------- */

struct value value_undefined(struct string name)
{
    return (struct value){.kind = UNDEFINED, .is.string = name};
}

struct value value_truth(bool is)
{
    return (struct value){.kind = TRUTH, .is.truth = is};
}

struct value value_whole(int64_t n)
{
    return (struct value){.kind = WHOLE, .is.whole = n};
}

struct value value_string(struct string s)
{
    return (struct value){.kind = STRING, .is.string = s};
}

struct value value_list(struct rendering *r, int64_t n, struct value **item)
{
    struct list *list = run_take(r, sizeof *list);
    struct value *items = list ? run_take(r, (n ? n : 1) * (int64_t)sizeof *items) : NULL;

    if (!items)
        return value_undefined(string_of("a list"));
    *list = (struct list){n, items};
    if (item)
        *item = items;
    return (struct value){.kind = LIST, .is.list = list};
}

const char *value_kind(struct value v)
{
    static const char *const names[] = {[UNDEFINED] = "something undefined",
                                        [NONE] = "none",
                                        [TRUTH] = "a truth value",
                                        [WHOLE] = "a number",
                                        [REAL] = "a number",
                                        [STRING] = "a string",
                                        [LIST] = "a list",
                                        [MAP] = "a mapping",
                                        [SPACE] = "a namespace",
                                        [MACRO] = "a macro"};

    return names[v.kind];
}

bool value_is_true(struct value v)
{
    switch (v.kind) {
    case TRUTH:
        return v.is.truth;
    case WHOLE:
        return v.is.whole != 0;
    case REAL:
        return v.is.real != 0;
    case STRING:
        return v.is.string.n > 0;
    case LIST:
        return v.is.list->n > 0;
    case MAP:
        return v.is.map->n > 0;
    default:
        return v.kind == SPACE || v.kind == MACRO;
    }
}

static bool is_number(struct value v)
{
    return v.kind == TRUTH || v.kind == WHOLE || v.kind == REAL;
}

static double number_of(struct value v)
{
    return v.kind == REAL ? v.is.real : v.kind == TRUTH ? v.is.truth : (double)v.is.whole;
}

static bool lists_equal(const struct list *a, const struct list *b)
{
    bool same = a->n == b->n;

    for (int64_t i = 0; i < a->n && same; i++)
        same = value_equal(a->item[i], b->item[i]);
    return same;
}

static bool maps_equal(const struct map *a, const struct map *b)
{
    bool same = a->n == b->n;

    for (int64_t i = 0; i < a->n && same; i++) {
        const struct value *other = map_find(b, a->pair[i].key);
        same = other && value_equal(a->pair[i].value, *other);
    }
    return same;
}

bool value_equal(struct value a, struct value b)
{
    if (is_number(a) && is_number(b))
        return a.kind == REAL || b.kind == REAL ? number_of(a) == number_of(b)
                                                : (a.kind == TRUTH ? a.is.truth : a.is.whole) ==
                                                      (b.kind == TRUTH ? b.is.truth : b.is.whole);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case STRING:
        return strings_equal(a.is.string, b.is.string);
    case LIST:
        return lists_equal(a.is.list, b.is.list);
    case MAP:
        return maps_equal(a.is.map, b.is.map);
    case SPACE:
        return a.is.map == b.is.map;
    case MACRO:
        return a.is.macro == b.is.macro;
    default:
        return true;
    }
}

/* ---- mappings -------------------------------------------------------------------------------- */

struct value *map_find(const struct map *m, struct string key)
{
    for (int64_t i = 0; i < m->n; i++)
        if (strings_equal(m->pair[i].key, key))
            return &m->pair[i].value;
    return NULL;
}

bool map_set(struct rendering *r, struct map *m, struct string key, struct value v)
{
    struct value *old = map_find(m, key);

    if (!old && m->n == m->room) {
        const int64_t room = 2 * m->room + 4;
        struct pair *grown = run_take(r, room * (int64_t)sizeof *grown);
        if (!grown)
            return false;
        if (m->n)
            memcpy(grown, m->pair, (size_t)m->n * sizeof *grown);
        m->pair = grown;
        m->room = room;
    }
    if (old)
        *old = v;
    else
        m->pair[m->n++] = (struct pair){key, v};
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The text stays jansson's. */
static struct string json_text(struct rendering *r, const char *text, size_t n, bool given)
{
    bool *all = given && n ? run_take(r, (int64_t)n) : NULL;

    if (all)
        memset(all, true, n);
    return (struct string){text, all, (int64_t)n};
}

static struct value json_map(struct rendering *r, const json_t *json, bool given)
{
    struct map *m = run_take(r, sizeof *m);
    const char *key;
    json_t *value;

    if (!m)
        return value_undefined(string_of("a mapping"));
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        struct string name = json_text(r, key, strlen(key), given);
        if (r->failed || !map_set(r, m, name, value_json(r, value, given)))
            break;
    }
    return (struct value){.kind = MAP, .is.map = m};
}

struct value value_json(struct rendering *r, const json_t *json, bool given)
{
    struct value list, *item;
    const json_t *one;
    size_t i;

    switch (json_typeof(json)) {
    case JSON_STRING:
        return value_string(json_text(r, json_string_value(json), json_string_length(json), given));
    case JSON_INTEGER:
        return value_whole(json_integer_value(json));
    case JSON_REAL:
        return (struct value){.kind = REAL, .is.real = json_real_value(json)};
    case JSON_OBJECT:
        return json_map(r, json, given);
    case JSON_ARRAY:
        list = value_list(r, (int64_t)json_array_size(json), &item);
        json_array_foreach(json, i, one) if (!r->failed) item[i] = value_json(r, one, given);
        return list;
    case JSON_NULL:
        return (struct value){.kind = NONE};
    default:
        return value_truth(json_is_true(json));
    }
}

/* ---- text of values -------------------------------------------------------------------------- */

/* Copies what lies on the stack. */
static struct string keep(struct rendering *r, const char *text)
{
    int64_t n = (int64_t)strlen(text);
    char *copy = run_take(r, n + 1);

    if (!copy)
        return string_of("");
    memcpy(copy, text, (size_t)n);
    return (struct string){copy, NULL, n};
}

/* The shortest digits that give the number again, in Python's form. */
static struct string real_text(struct rendering *r, double x)
{
    char digits[64], text[96];
    int precision = 1;

    if (!isfinite(x))
        return string_of(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
    do
        snprintf(digits, sizeof digits, "%.*e", precision - 1, x);
    while (strtod(digits, NULL) != x && precision++ < 17);
    const char *e = strchr(digits, 'e');
    int power = atoi(e + 1), after = precision - 1 - power;
    if (power < -4 || power >= 16)
        snprintf(text, sizeof text, "%.*s%s%02d", (int)(e - digits), digits,
                 power < 0 ? "e-" : "e+", abs(power));
    else
        snprintf(text, sizeof text, "%.*f", after > 1 ? after : 1, x);
    return keep(r, text);
}

struct string value_text(struct rendering *r, struct place at, struct value v)
{
    char text[32];

    switch (v.kind) {
    case UNDEFINED:
        return string_of("");
    case NONE:
        return string_of("None");
    case TRUTH:
        return string_of(v.is.truth ? "True" : "False");
    case WHOLE:
        snprintf(text, sizeof text, "%lld", (long long)v.is.whole);
        return keep(r, text);
    case REAL:
        return real_text(r, v.is.real);
    case STRING:
        return v.is.string;
    default:
        run_refuse(r, at, "%s is printed, which is not supported; tojson prints it", value_kind(v));
        return string_of("");
    }
}

struct value value_elements(struct rendering *r, struct place at, struct value v)
{
    struct value list, *item;

    if (v.kind == LIST)
        return v;
    if (v.kind == UNDEFINED)
        return value_list(r, 0, NULL);
    if (v.kind == MAP) {
        list = value_list(r, v.is.map->n, &item);
        for (int64_t i = 0; i < v.is.map->n && !r->failed; i++)
            item[i] = value_string(v.is.map->pair[i].key);
        return list;
    }
    if (v.kind != STRING)
        return run_refuse(r, at, "%s has no elements", value_kind(v));
    list = value_list(r, string_length(v.is.string), &item);
    for (int64_t i = 0, k = 0, n; i < v.is.string.n && !r->failed; i += n, k++) {
        n = utf8_length(v.is.string.bytes + i, v.is.string.n - i);
        item[k] = value_string(string_part(v.is.string, i, i + n));
    }
    return list;
}

/* ---- tojson ---------------------------------------------------------------------------------- */

struct json_writer {
    struct rendering *r;
    struct place at;
    struct buffer to;
    int64_t indent; /* below 0: all in one line */
    int depth;
};

static void add(struct json_writer *w, const char *text)
{
    buffer_add(w->r, &w->to, string_of(text));
}

static void write_string(struct json_writer *w, struct string s)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    int64_t done = 0;

    add(w, "\"");
    for (int64_t i = 0; i < s.n; i++) {
        const char c = s.bytes[i], *known = c ? strchr(from, c) : NULL;
        char text[8];
        if (!known && (unsigned char)c >= 0x20)
            continue;
        if (known)
            snprintf(text, sizeof text, "\\%c", to[known - from]);
        else
            snprintf(text, sizeof text, "\\u%04x", (unsigned char)c);
        buffer_add(w->r, &w->to, string_part(s, done, i));
        buffer_add(w->r, &w->to, keep(w->r, text));
        done = i + 1;
    }
    buffer_add(w->r, &w->to, string_part(s, done, s.n));
    add(w, "\"");
}

static void new_line(struct json_writer *w, bool first)
{
    if (!first)
        add(w, w->indent < 0 ? ", " : ",");
    if (w->indent < 0)
        return;
    add(w, "\n");
    for (int64_t i = 0; i < w->indent * w->depth && !w->r->failed; i++)
        add(w, " ");
}

static void write_value(struct json_writer *w, struct value v);

static void write_list(struct json_writer *w, const struct list *list)
{
    if (!list->n)
        return add(w, "[]");
    add(w, "[");
    w->depth++;
    for (int64_t i = 0; i < list->n && !w->r->failed; i++) {
        new_line(w, !i);
        write_value(w, list->item[i]);
    }
    w->depth--;
    new_line(w, true);
    add(w, "]");
}

static void write_map(struct json_writer *w, const struct map *m)
{
    if (!m->n)
        return add(w, "{}");
    add(w, "{");
    w->depth++;
    for (int64_t i = 0; i < m->n && !w->r->failed; i++) {
        new_line(w, !i);
        write_string(w, m->pair[i].key);
        add(w, ": ");
        write_value(w, m->pair[i].value);
    }
    w->depth--;
    new_line(w, true);
    add(w, "}");
}

static void write_value(struct json_writer *w, struct value v)
{
    if (w->r->failed)
        return;
    switch (v.kind) {
    case STRING:
        return write_string(w, v.is.string);
    case LIST:
        return write_list(w, v.is.list);
    case MAP:
        return write_map(w, v.is.map);
    case NONE:
        return add(w, "null");
    case TRUTH:
        return add(w, v.is.truth ? "true" : "false");
    case WHOLE:
    case REAL:
        return buffer_add(w->r, &w->to, value_text(w->r, w->at, v));
    default:
        run_refuse(w->r, w->at, "tojson of %s", value_kind(v));
    }
}

struct string value_json_text(struct rendering *r, struct place at, struct value v, int64_t indent)
{
    struct json_writer w = {.r = r, .at = at, .indent = indent};

    write_value(&w, v);
    return buffer_string(r, &w.to);
}
