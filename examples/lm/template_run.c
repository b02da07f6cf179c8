/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: the tree to text. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "template_parts.h"

/* A step is a node; a level has frames of a few functions, about 2 KiB in all. */
enum { MOST_STEPS = 10000000, MOST_DEPTH = 500, TREE_BYTES = 1 << 26, RUN_BYTES = 1 << 27 };

struct value run_refuse(struct rendering *r, struct place at, const char *format, ...)
{
    char what[512];
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (!r->failed)
        say_fail("%s: %s:%d:%d: %s", r->where, r->t->name, at.line, at.column, what);
    r->failed = true;
    return value_undefined(string_of(""));
}

void *run_take(struct rendering *r, int64_t bytes)
{
    void *p = r->failed ? NULL : arena_take(&r->arena, bytes);

    if (!p && !r->failed) {
        say_fail("%s: %s: the text is too large: more than %d MiB are needed to make it", r->where,
                 r->t->name, RUN_BYTES >> 20);
        r->failed = true;
    }
    return p;
}

/* ---- variables ------------------------------------------------------------------------------- */

static struct value *find(struct scope *s, struct string name)
{
    for (; s; s = s->outer)
        for (int i = 0; i < s->n; i++)
            if (strings_equal(s->variable[i].name, name))
                return &s->variable[i].value;
    return NULL;
}

static void set(struct rendering *r, struct string name, struct value v)
{
    struct scope *s = r->scope;

    for (int i = 0; i < s->n; i++)
        if (strings_equal(s->variable[i].name, name)) {
            s->variable[i].value = v;
            return;
        }
    if (s->n == s->room) {
        const int room = 2 * s->room + 8;
        struct variable *grown = run_take(r, room * (int64_t)sizeof *grown);
        if (!grown)
            return;
        if (s->n)
            memcpy(grown, s->variable, (size_t)s->n * sizeof *grown);
        s->variable = grown;
        s->room = room;
    }
    s->variable[s->n++] = (struct variable){name, v};
}

/* ---- expressions ----------------------------------------------------------------------------- */

static struct value eval_name(struct rendering *r, const struct node *e)
{
    const struct value *found = find(r->scope, e->text);

    if (found)
        return *found;
    return is_global(e->text) ? (struct value){.kind = MACRO} : value_undefined(e->text);
}

static struct value eval_list(struct rendering *r, const struct node *e)
{
    struct value list, *item;
    int64_t n = 0;

    for (const struct node *one = e->e; one; one = one->next)
        n++;
    list = value_list(r, n, &item);
    n = 0;
    for (const struct node *one = e->e; one && !r->failed; one = one->next)
        item[n++] = run_eval(r, one);
    return list;
}

static struct value eval_map(struct rendering *r, const struct node *e)
{
    struct map *m = run_take(r, sizeof *m);

    for (const struct node *one = e->e; one && !r->failed; one = one->next->next) {
        struct value key = run_eval(r, one), v = run_eval(r, one->next);
        if (key.kind != STRING && !r->failed)
            return run_refuse(r, one->at, "a key that is %s is not supported", value_kind(key));
        if (!r->failed)
            map_set(r, m, key.is.string, v);
    }
    return (struct value){.kind = MAP, .is.map = m};
}

static struct value eval_item(struct rendering *r, const struct node *e)
{
    struct value v = run_eval(r, e->a), i = run_eval(r, e->b);

    if (r->failed)
        return v;
    if (v.kind == UNDEFINED)
        return run_refuse(r, e->at, "%.*s is not defined, and a part of it is asked for",
                          (int)v.is.string.n, v.is.string.n ? v.is.string.bytes : "");
    if (v.kind == MAP && i.kind == STRING) {
        const struct value *found = map_find(v.is.map, i.is.string);
        if (!found && is_method_of_map(i.is.string))
            return run_refuse(r, e->at,
                              "the mapping has no key %.*s, which is the name of a method",
                              (int)i.is.string.n, i.is.string.bytes);
        return found ? *found : value_undefined(i.is.string);
    }
    if (v.kind == SPACE && i.kind == STRING)
        return run_member(r, e->at, v, i.is.string);
    if (i.kind != WHOLE || (v.kind != LIST && v.kind != STRING))
        return value_undefined(string_of("a part"));
    struct value all = value_elements(r, e->at, v);
    int64_t n = r->failed ? 0 : all.is.list->n, at = i.is.whole < 0 ? i.is.whole + n : i.is.whole;
    return at < 0 || at >= n ? value_undefined(string_of("a part")) : all.is.list->item[at];
}

/* A bound of a slice in [low, high], as Python clamps it. */
static int64_t bound(struct rendering *r, const struct node *e, int64_t n, int64_t low,
                     int64_t high, int64_t fallback)
{
    struct value v = e ? run_eval(r, e) : (struct value){.kind = NONE};

    if (v.kind == NONE)
        return fallback;
    if (v.kind != WHOLE && !r->failed)
        run_refuse(r, e->at, "%s as a bound of a slice", value_kind(v));
    int64_t at = r->failed ? 0 : v.is.whole;
    at = at < 0 ? at + n : at;
    return at < low ? low : at > high ? high : at;
}

static struct value eval_slice(struct rendering *r, const struct node *e)
{
    struct value v = run_eval(r, e->a), all, out, *item;
    struct value s = e->d ? run_eval(r, e->d) : value_whole(1);
    struct buffer text = {NULL, NULL, 0, 0};

    if (r->failed)
        return v;
    if (v.kind != LIST && v.kind != STRING)
        return run_refuse(r, e->at, "a slice of %s", value_kind(v));
    if (s.kind != WHOLE || !s.is.whole || s.is.whole < -1000000 || s.is.whole > 1000000)
        return run_refuse(r, e->at, "this step of a slice is not supported");
    all = value_elements(r, e->at, v);
    const int64_t n = r->failed ? 0 : all.is.list->n, step = s.is.whole;
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    const int64_t begin = bound(r, e->b, n, low, high, step > 0 ? 0 : n - 1);
    const int64_t end = bound(r, e->c, n, low, high, step > 0 ? n : -1);
    const int64_t span = step > 0 ? end - begin : begin - end, by = llabs(step);
    const int64_t count = span > 0 ? (span + by - 1) / by : 0;

    out = value_list(r, count, &item);
    for (int64_t i = 0; i < count && !r->failed; i++)
        item[i] = all.is.list->item[begin + i * step];
    if (v.kind == LIST || r->failed)
        return out;
    for (int64_t i = 0; i < count; i++)
        buffer_add(r, &text, item[i].is.string);
    return value_string(buffer_string(r, &text));
}

static struct value eval_minus(struct rendering *r, const struct node *e)
{
    struct value v = run_eval(r, e->a);

    if (v.kind == WHOLE && v.is.whole > INT64_MIN)
        return value_whole(-v.is.whole);
    if (v.kind == REAL)
        return (struct value){.kind = REAL, .is.real = -v.is.real};
    return r->failed ? v : run_refuse(r, e->at, "- of %s", value_kind(v));
}

static struct value eval_logic(struct rendering *r, const struct node *e)
{
    struct value v = run_eval(r, e->a);

    return value_is_true(v) == (e->kind == N_AND) ? run_eval(r, e->b) : v;
}

static struct value eval_choice(struct rendering *r, const struct node *e)
{
    if (value_is_true(run_eval(r, e->a)))
        return run_eval(r, e->b);
    return e->c ? run_eval(r, e->c) : value_undefined(string_of("what has no else"));
}

static struct value eval_compare(struct rendering *r, const struct node *e)
{
    struct value left = run_eval(r, e->a);
    bool is = true;

    for (const struct node *o = e->e; o && is && !r->failed; o = o->next) {
        struct value right = run_eval(r, o->a);
        is = run_compare(r, o->at, o->text, left, right);
        left = right;
    }
    return value_truth(is);
}

static struct value eval_binary(struct rendering *r, const struct node *e)
{
    struct value a = run_eval(r, e->a), b = run_eval(r, e->b);

    return run_binary(r, e, e->text, a, b);
}

static struct value eval_const(struct rendering *r, const struct node *e)
{
    (void)r;
    return e->value;
}

static struct value eval_member(struct rendering *r, const struct node *e)
{
    struct value v = run_eval(r, e->a);

    return r->failed ? v : run_member(r, e->at, v, e->text);
}

static struct value eval_not(struct rendering *r, const struct node *e)
{
    return value_truth(!value_is_true(run_eval(r, e->a)));
}

static bool is_too_much(struct rendering *r, const struct node *n)
{
    if (!r->failed && ++r->steps > MOST_STEPS)
        run_refuse(r, n->at, "the template takes more than %d steps", MOST_STEPS);
    if (!r->failed && r->depth >= MOST_DEPTH)
        run_refuse(r, n->at, "the template is more than %d levels deep", MOST_DEPTH);
    return r->failed;
}

struct value run_eval(struct rendering *r, const struct node *e)
{
    static struct value (*const evals[])(struct rendering * r, const struct node *e) = {
        [N_NAME] = eval_name,       [N_CONST] = eval_const,   [N_LIST] = eval_list,
        [N_MAP] = eval_map,         [N_MEMBER] = eval_member, [N_ITEM] = eval_item,
        [N_SLICE] = eval_slice,     [N_CALL] = run_call,      [N_FILTER] = run_filter,
        [N_TEST] = run_test,        [N_NOT] = eval_not,       [N_MINUS] = eval_minus,
        [N_AND] = eval_logic,       [N_OR] = eval_logic,      [N_CHOICE] = eval_choice,
        [N_COMPARE] = eval_compare, [N_BINARY] = eval_binary};

    if (is_too_much(r, e))
        return value_undefined(string_of(""));
    r->depth++;
    struct value v = evals[e->kind](r, e);
    r->depth--;
    return r->failed ? value_undefined(string_of("")) : v;
}

/* ---- statements ------------------------------------------------------------------------------ */

static void run_body(struct rendering *r, const struct node *n);

static void run_if(struct rendering *r, const struct node *n)
{
    bool is = value_is_true(run_eval(r, n->a));

    run_body(r, r->failed ? NULL : is ? n->b : n->c);
}

/* The names of a loop get an element, or its parts. */
static void set_names(struct rendering *r, const struct node *names, struct value v)
{
    const struct node *e = names;
    struct value parts;

    if (!names->next)
        return set(r, names->text, v);
    parts = value_elements(r, names->at, v);
    for (int64_t i = 0; !r->failed && (e || i < parts.is.list->n); i++, e = e->next) {
        if (!e || i >= parts.is.list->n) {
            run_refuse(r, names->at,
                       "the names of a loop are not as many as the parts of its "
                       "element");
            return;
        }
        set(r, e->text, parts.is.list->item[i]);
    }
}

static void set_loop(struct rendering *r, const struct list *l, int64_t i)
{
    const struct {
        const char *name;
        struct value value;
    } members[] = {{"index0", value_whole(i)},
                   {"index", value_whole(i + 1)},
                   {"first", value_truth(!i)},
                   {"last", value_truth(i + 1 == l->n)},
                   {"length", value_whole(l->n)},
                   {"revindex0", value_whole(l->n - 1 - i)},
                   {"revindex", value_whole(l->n - i)},
                   {"depth0", value_whole(0)},
                   {"depth", value_whole(1)}};
    struct map *m = run_take(r, sizeof *m);

    for (size_t k = 0; m && k < sizeof members / sizeof *members; k++)
        map_set(r, m, string_of(members[k].name), members[k].value);
    if (m && i)
        map_set(r, m, string_of("previtem"), l->item[i - 1]);
    if (m && i + 1 < l->n)
        map_set(r, m, string_of("nextitem"), l->item[i + 1]);
    set(r, string_of("loop"), (struct value){.kind = SPACE, .is.map = m});
}

/* The elements that pass the filter of the loop. */
static const struct list *filtered(struct rendering *r, const struct node *n, struct value all)
{
    struct value out, *item;
    int64_t kept = 0;

    if (r->failed || !n->d)
        return r->failed ? NULL : all.is.list;
    out = value_list(r, all.is.list->n, &item);
    for (int64_t i = 0; i < all.is.list->n && !r->failed; i++) {
        set_names(r, n->e, all.is.list->item[i]);
        if (value_is_true(run_eval(r, n->d)))
            item[kept++] = all.is.list->item[i];
    }
    if (!r->failed)
        ((struct list *)(uintptr_t)out.is.list)->n = kept;
    return r->failed ? NULL : out.is.list;
}

static void run_for(struct rendering *r, const struct node *n)
{
    struct value all = run_eval(r, n->a);
    struct scope scope = {.outer = r->scope};

    if (!r->failed)
        all = value_elements(r, n->at, all);
    r->scope = &scope;
    const struct list *l = filtered(r, n, all);
    for (int64_t i = 0; l && i < l->n && !r->failed && r->jump != JUMP_BREAK; i++) {
        scope.n = 0;
        r->jump = GO_ON;
        set_loop(r, l, i);
        set_names(r, n->e, l->item[i]);
        run_body(r, n->b);
    }
    r->jump = GO_ON;
    r->scope = scope.outer;
    if (l && !l->n)
        run_body(r, n->c);
}

static void run_set(struct rendering *r, const struct node *n)
{
    struct value v = run_eval(r, n->a), *space;

    if (r->failed)
        return;
    if (!n->c)
        return set(r, n->text, v);
    space = find(r->scope, n->text);
    if (!space || space->kind != SPACE)
        run_refuse(r, n->at, "%.*s is no namespace, so its members cannot be set", (int)n->text.n,
                   n->text.bytes);
    else
        map_set(r, space->is.map, n->c->text, v);
}

/* The text of a body as a value. */
static struct value capture(struct rendering *r, const struct node *body)
{
    struct buffer text = {NULL, NULL, 0, 0}, *out = r->out;

    r->out = &text;
    r->captures++;
    run_body(r, body);
    r->captures--;
    r->out = out;
    return value_string(buffer_string(r, &text));
}

static void run_set_body(struct rendering *r, const struct node *n)
{
    struct scope scope = {.outer = r->scope};

    r->scope = &scope;
    struct value v = capture(r, n->b);
    r->scope = scope.outer;
    set(r, n->text, v);
}

/* Named arguments and positions fill in the parameters; the rest have their defaults. */
static void set_parameters(struct rendering *r, const struct node *call, const struct node *macro,
                           const struct arguments *a)
{
    int position = 0, used = 0;
    char name[64];

    for (const struct node *p = macro->e; p && !r->failed; p = p->next, position++) {
        snprintf(name, sizeof name, "%.*s", (int)(p->text.n < 63 ? p->text.n : 63), p->text.bytes);
        const struct value *given = argument(a, position, name);
        used += given != NULL;
        set(r, p->text, given ? *given : p->a ? run_eval(r, p->a) : value_undefined(p->text));
    }
    if (!r->failed && used < a->n)
        run_refuse(r, call->at, "the macro %.*s has no such parameters", (int)macro->text.n,
                   macro->text.bytes);
}

struct value run_macro(struct rendering *r, const struct node *call, const struct node *macro)
{
    struct arguments a = {.at = call->at, .of = "the macro"};
    struct scope scope = {.outer = r->global}, *caller = r->scope;
    const enum jump jump = r->jump;

    if (!arguments_read(r, call->e, &a))
        return value_undefined(string_of(""));
    r->scope = &scope;
    r->jump = GO_ON;
    set_parameters(r, call, macro, &a);
    struct value v = capture(r, macro->b);
    r->scope = caller;
    r->jump = jump;
    return v;
}

static void run_spans(struct rendering *r, const struct node *n)
{
    struct rendered *to = r->to;
    const int64_t begin = r->out->n;
    struct scope scope = {.outer = r->scope};

    if (r->captures) {
        run_refuse(r, n->at, "generation inside of set is not supported");
        return;
    }
    r->scope = &scope;
    run_body(r, n->b);
    r->scope = scope.outer;
    if (r->failed)
        return;
    struct rendered_span *grown = realloc(to->span, (size_t)(to->spans + 1) * sizeof *grown);
    if (!grown) {
        run_refuse(r, n->at, "no memory");
        return;
    }
    grown[to->spans++] = (struct rendered_span){begin, r->out->n};
    to->span = grown;
}

static void run_print(struct rendering *r, const struct node *n)
{
    struct value v = run_eval(r, n->a);

    if (!r->failed)
        buffer_add(r, r->out, value_text(r, n->at, v));
}

static void run_text(struct rendering *r, const struct node *n)
{
    buffer_add(r, r->out, n->text);
}

static void run_define(struct rendering *r, const struct node *n)
{
    set(r, n->text, (struct value){.kind = MACRO, .is.macro = n});
}

static void run_jump(struct rendering *r, const struct node *n)
{
    r->jump = n->kind == N_BREAK ? JUMP_BREAK : JUMP_CONTINUE;
}

static void run_body(struct rendering *r, const struct node *n)
{
    static void (*const runs[])(struct rendering * r, const struct node *n) = {
        [N_TEXT] = run_text,    [N_PRINT] = run_print, [N_IF] = run_if,
        [N_FOR] = run_for,      [N_SET] = run_set,     [N_SET_BODY] = run_set_body,
        [N_MACRO] = run_define, [N_SPANS] = run_spans, [N_BREAK] = run_jump,
        [N_CONTINUE] = run_jump};

    for (; n && r->jump == GO_ON && !is_too_much(r, n); n = n->next) {
        r->depth++;
        runs[n->kind](r, n);
        r->depth--;
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct template *template_open(const char *name, const char *text, int64_t bytes)
{
    struct template *t = calloc(1, sizeof *t);
    struct template_token *token;

    if (!t || !(t->name = strdup(name))) {
        free(t);
        say_fail("no memory for a template");
        return NULL;
    }
    t->arena.most = TREE_BYTES;
    token = template_lex(&t->arena, name, text, bytes);
    if (token && !template_parse(t, token))
        return t;
    template_close(t);
    return NULL;
}

void template_close(struct template *t)
{
    if (!t)
        return;
    arena_free(&t->arena);
    free(t->name);
    free(t);
}

bool template_has_spans(const struct template *t)
{
    return t->has_spans;
}

static void set_all(struct rendering *r, const json_t *object, bool given)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (!r->failed)
            set(r, string_of(key), value_json(r, value, given));
    }
}

/* Copies the text out of the arena. */
static int hand_over(struct rendering *r, const struct buffer *text)
{
    struct rendered *to = r->to;
    const size_t n = (size_t)text->n;

    to->text = malloc(n + 1);
    to->given = malloc(n + 1);
    if (!to->text || !to->given)
        return say_fail("%s: no memory for its text", r->where);
    if (n) {
        memcpy(to->text, text->bytes, n);
        memcpy(to->given, text->given, n);
    }
    to->text[n] = 0;
    to->n = text->n;
    return 0;
}

int template_render(const struct template *t, const char *where, const json_t *own,
                    const json_t *given, struct rendered *to)
{
    struct buffer text = {NULL, NULL, 0, 0};
    struct scope global = {.outer = NULL};
    struct rendering r = {.t = t,
                          .where = where,
                          .arena = {.most = RUN_BYTES},
                          .scope = &global,
                          .global = &global,
                          .out = &text,
                          .to = to};

    *to = (struct rendered){.text = NULL};
    set_all(&r, own, false);
    set_all(&r, given, true);
    if (!r.failed)
        run_body(&r, t->body);
    int rc = r.failed ? -1 : hand_over(&r, &text);
    arena_free(&r.arena);
    if (rc)
        rendered_close(to);
    return rc;
}

void rendered_close(struct rendered *r)
{
    free(r->text);
    free(r->given);
    free(r->span);
    *r = (struct rendered){.text = NULL};
}
