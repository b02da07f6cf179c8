/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a template: text to tokens (template_lex.c), tokens to a tree (template_parse.c),
 * the tree to text (template_run.c), with values (template_value.c) and the calls, filters and
 * tests that they have (template_calls.c, template_filters.c).
 *
 * Everything lies in an arena, which is freed as a whole: tokens and the tree in the template's,
 * values in one of each rendering.
 */
#ifndef LM_TEMPLATE_PARTS_H
#define LM_TEMPLATE_PARTS_H

#include "template.h"

/* ---- memory ---------------------------------------------------------------------------------- */

struct arena {
    struct arena_part *last;
    int64_t bytes, most; /* in use, and allowed */
};

/* Zeroed memory, or NULL. */
void *arena_take(struct arena *a, int64_t bytes);
void arena_free(struct arena *a);

/* ---- tokens ---------------------------------------------------------------------------------- */

enum token_type {
    T_END,
    T_TEXT,  /* outside of tags */
    T_BLOCK, /* {% */
    T_BLOCK_END,
    T_PRINT, /* {{ */
    T_PRINT_END,
    T_NAME,
    T_STRING, /* with its escapes resolved */
    T_WHOLE,
    T_REAL,
    T_MARK /* an operator or a bracket */
};

struct place {
    int32_t line, column; /* from 1; columns are bytes */
};

struct template_token {
    enum token_type type;
    const char *text;
    int64_t n;
    struct place at;
};

/* The tokens of a text, the last one is T_END; they point into the arena.  NULL after an error
 * message. */
struct template_token *template_lex(struct arena *a, const char *name, const char *text,
                                    int64_t bytes);

/* ---- values ---------------------------------------------------------------------------------- */

struct string {
    const char *bytes;
    const bool *given; /* of each byte; NULL: none is of the conversation */
    int64_t n;
};

enum value_kind { UNDEFINED, NONE, TRUTH, WHOLE, REAL, STRING, LIST, MAP, SPACE, MACRO };

struct value {
    enum value_kind kind;
    union {
        bool truth;
        int64_t whole;
        double real;
        struct string string;    /* UNDEFINED: the name of what is missing */
        const struct list *list; /* also tuples */
        struct map *map;         /* MAP, and SPACE, whose members can be set */
        const struct node *macro;
    } is;
};

struct list {
    int64_t n;
    struct value *item;
};

struct pair {
    struct string key;
    struct value value;
};

struct map {
    int64_t n, room;
    struct pair *pair;
};

/* ---- the tree -------------------------------------------------------------------------------- */

enum node_kind {
    /* statements; in a list by next */
    N_TEXT,
    N_PRINT,    /* a */
    N_IF,       /* a: condition, b: body, c: else */
    N_FOR,      /* a: list, b: body, c: else, d: filter, e: names of the variables */
    N_SET,      /* a: value, text: name; or c: N_MEMBER */
    N_SET_BODY, /* b: body, text: name */
    N_MACRO,    /* e: parameters, each N_NAME with default a; b: body, text: name */
    N_SPANS,    /* b: body */
    N_BREAK,
    N_CONTINUE,
    /* expressions */
    N_NAME,
    N_CONST,  /* value */
    N_LIST,   /* e: elements */
    N_MAP,    /* e: keys and values in turn */
    N_MEMBER, /* a.text */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* a[b:c:d] */
    N_CALL,   /* a(e) */
    N_NAMED,  /* an argument text=a */
    N_FILTER, /* a | text(e) */
    N_TEST,   /* a is text(e) */
    N_NOT,
    N_MINUS,
    N_AND,
    N_OR,
    N_CHOICE,  /* b if a else c */
    N_COMPARE, /* a, then e: each N_OPERAND text a */
    N_OPERAND,
    N_BINARY /* a text b */
};

struct node {
    enum node_kind kind;
    struct place at;
    struct string text;
    struct value value;
    struct node *a, *b, *c, *d, *e, *next;
};

struct template
{
    struct arena arena;
    char *name;
    struct node *body;
    bool has_spans;
};

/* Sets t->body. */
int template_parse(struct template *t, const struct template_token *token);

/* ---- a rendering ----------------------------------------------------------------------------- */

struct variable {
    struct string name;
    struct value value;
};

struct scope {
    struct scope *outer;
    struct variable *variable;
    int n, room;
};

struct buffer {
    char *bytes;
    bool *given;
    int64_t n, room;
};

enum jump { GO_ON, JUMP_BREAK, JUMP_CONTINUE };

struct rendering {
    const struct template *t;
    const char *where;
    struct arena arena;
    struct scope *scope, *global;
    struct buffer *out;
    enum jump jump;
    int depth, captures;
    int64_t steps;
    bool failed;
    struct rendered *to;
};

/* Reports the first error of a rendering, with the place in the template; the value is undefined.
 */
struct value run_refuse(struct rendering *r, struct place at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct value run_eval(struct rendering *r, const struct node *e);
void *run_take(struct rendering *r, int64_t bytes);
struct value run_macro(struct rendering *r, const struct node *call, const struct node *macro);

/* ---- values (template_value.c) --------------------------------------------------------------- */

struct string string_of(const char *text);
bool string_is(struct string s, const char *text);
bool strings_equal(struct string a, struct string b);
struct value value_undefined(struct string name);
struct value value_truth(bool is);
struct value value_whole(int64_t n);
struct value value_string(struct string s);
struct value value_list(struct rendering *r, int64_t n, struct value **item);
struct value value_json(struct rendering *r, const json_t *json, bool given);
bool value_is_true(struct value v);
bool value_equal(struct value a, struct value b);
/* "a mapping", for messages. */
const char *value_kind(struct value v);
struct value *map_find(const struct map *m, struct string key);
bool map_set(struct rendering *r, struct map *m, struct string key, struct value v);
struct string string_join(struct rendering *r, struct string a, struct string b);
struct string string_part(struct string s, int64_t begin, int64_t end);
int64_t string_length(struct string s); /* characters */
struct string string_strip(struct string s, const struct string *set, bool left, bool right);
/* The text that a value prints, as Python's str(). */
struct string value_text(struct rendering *r, struct place at, struct value v);
/* The elements of what can be iterated: characters, keys, elements. */
struct value value_elements(struct rendering *r, struct place at, struct value v);
void buffer_add(struct rendering *r, struct buffer *b, struct string s);
struct string buffer_string(struct rendering *r, struct buffer *b);
struct string value_json_text(struct rendering *r, struct place at, struct value v, int64_t indent);

/* ---- arguments, filters, tests, calls -------------------------------------------------------- */

enum { ARGUMENTS = 8 };
struct arguments {
    struct place at;
    const char *of; /* what is called */
    int n;
    struct value value[ARGUMENTS];
    struct string name[ARGUMENTS]; /* n 0: by position */
};

bool arguments_read(struct rendering *r, const struct node *list, struct arguments *to);
/* The argument at a position or with a name; NULL: missing.  position -1: only by name. */
const struct value *argument(const struct arguments *a, int position, const char *name);
/* Refuses arguments by position from `most` on, and names that are not in the list. */
bool arguments_check(struct rendering *r, const struct arguments *a, int most, const char *names);
int64_t argument_whole(struct rendering *r, const struct arguments *a, int position,
                       const char *name, int64_t fallback);

struct value run_filter(struct rendering *r, const struct node *e);
struct value filter_apply(struct rendering *r, struct string name, struct value v,
                          const struct arguments *a);
bool filter_exists(struct string name);
struct value run_test(struct rendering *r, const struct node *e);
bool test_apply(struct rendering *r, struct place at, struct string name, struct value v,
                const struct arguments *a);
bool test_exists(struct string name);
struct value run_call(struct rendering *r, const struct node *e);
bool is_global(struct string name);
bool is_method_of_map(struct string name);
struct value run_member(struct rendering *r, struct place at, struct value v, struct string name);
struct value run_binary(struct rendering *r, const struct node *e, struct string op, struct value a,
                        struct value b);
bool run_compare(struct rendering *r, struct place at, struct string op, struct value a,
                 struct value b);

#endif
