/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers.  Each kind of the file becomes one or more of four steps, which a text passes in
 * order; a step hands on one or more pieces.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/json_keys.h"
#include "../common/say.h"
#include "parts.h"

enum kind {
    PREFIX,  /* puts a text before a piece that does not begin with it */
    REPLACE, /* puts a text in place of each blank */
    SPLIT,   /* splits at the matches of a pattern */
    BYTES,   /* writes each byte as a character */
};

/* What becomes of a match. */
enum behaviour {
    REMOVED,
    ISOLATED,
    MERGED_WITH_PREVIOUS,
    MERGED_WITH_NEXT,
    CONTIGUOUS,
    BEHAVIOURS
};
static const char *const behaviours[] = {"Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous"};

struct step {
    enum kind kind;
    char *text;
    bool only_first; /* PREFIX: only at the beginning of the whole text */
    bool inverted;   /* SPLIT: what matches is between, and the rest are the matches */
    enum behaviour behaviour;
    struct pattern *pattern;
};

struct splitter {
    struct step *step;
    int n;
};

/* ---- bytes as characters --------------------------------------------------------------------- */

/* Bytes that are printable in Latin-1 are themselves; the others, 0 to 32, 127 to 160 and 173, are
 * U+0100 and up, in order. */
static uint32_t code_of(uint32_t byte)
{
    return byte <= 32                   ? 256 + byte
           : byte >= 127 && byte <= 160 ? 256 + 33 + byte - 127
           : byte == 173                ? 256 + 67
                                        : byte;
}

int splitter_byte(uint32_t code)
{
    uint32_t byte = code < 256        ? code
                    : code < 256 + 33 ? code - 256
                    : code < 256 + 67 ? code - 256 - 33 + 127
                                      : 173;

    return code_of(byte) == code ? (int)byte : -1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static struct step *add(struct splitter *s, enum kind kind, const char *text)
{
    struct step *grown = realloc(s->step, (size_t)(s->n + 1) * sizeof *grown);
    char *copy = strdup(text);

    s->step = grown ? grown : s->step;
    if (!grown || !copy) {
        free(copy);
        say_fail("no memory for a tokenizer");
        return NULL;
    }
    grown[s->n] = (struct step){.kind = kind, .text = copy};
    return &grown[s->n++];
}

static int add_split(struct splitter *s, const char *path, const char *expression, bool is_text,
                     enum behaviour behaviour, bool inverted)
{
    struct step *step = add(s, SPLIT, "");

    if (!step)
        return -1;
    step->behaviour = behaviour;
    step->inverted = inverted;
    return pattern_open(&step->pattern, path, expression, is_text);
}

static int read_behaviour(const char *path, const json_t *part, enum behaviour *b)
{
    const char *name = json_string_value(json_object_get(part, "behavior"));

    for (*b = 0; *b < BEHAVIOURS && name; (*b)++)
        if (!strcmp(name, behaviours[*b]))
            return 0;
    return say_fail("%s: \"behavior\" of a pre_tokenizer is %s; known are Removed, Isolated, "
                    "MergedWithPrevious, MergedWithNext and Contiguous",
                    path, name ? name : "missing");
}

static int read_split(struct splitter *s, const char *path, const json_t *part)
{
    enum behaviour behaviour;

    if (read_behaviour(path, part, &behaviour))
        return -1;
    struct step *step = add(s, SPLIT, "");
    if (!step)
        return -1;
    step->behaviour = behaviour;
    step->inverted = json_is_true(json_object_get(part, "invert"));
    return pattern_read(&step->pattern, path, json_object_get(part, "pattern"));
}

static int read_bytes(struct splitter *s, const char *path, const json_t *part)
{
    const json_t *uses = json_object_get(part, "use_regex");

    if (json_is_true(json_object_get(part, "add_prefix_space")) && !add(s, PREFIX, " "))
        return -1;
    if (!json_is_false(uses) && add_split(s, path, gpt2, false, ISOLATED, false))
        return -1;
    return add(s, BYTES, "") ? 0 : -1;
}

static int add_metaspace(struct splitter *s, const char *mark, bool prefix, bool only_first)
{
    struct step *step;

    if (!add(s, REPLACE, mark))
        return -1;
    if (!prefix)
        return 0;
    if (!(step = add(s, PREFIX, mark)))
        return -1;
    step->only_first = only_first;
    return 0;
}

/* Old files say "add_prefix_space" in place of "prepend_scheme". */
static int read_metaspace(struct splitter *s, const char *path, const json_t *part)
{
    const char *mark = json_string_value(json_object_get(part, "replacement"));
    const char *scheme = json_string_value(json_object_get(part, "prepend_scheme"));

    if (!scheme)
        scheme = json_is_false(json_object_get(part, "add_prefix_space")) ? "never" : "always";
    if (!mark || !*mark)
        return say_fail("%s: a Metaspace has no \"replacement\"", path);
    if (add_metaspace(s, mark, strcmp(scheme, "never") != 0, !strcmp(scheme, "first")))
        return -1;
    return json_is_false(json_object_get(part, "split"))
               ? 0
               : add_split(s, path, mark, true, MERGED_WITH_NEXT, false);
}

static int read_digits(struct splitter *s, const char *path, const json_t *part)
{
    bool each = json_is_true(json_object_get(part, "individual_digits"));

    return add_split(s, path, "\\p{N}", false, each ? ISOLATED : CONTIGUOUS, false);
}

/* That of Unicode 8, as the reference has it: without what is newer, and with two that are none any
 * more. */
#define NEWER                                                                                      \
    "\\x{61d}\\x{9fd}\\x{a76}\\x{c77}\\x{c84}\\x{1b7d}-\\x{1b7e}\\x{2e43}-\\x{2e4f}"               \
    "\\x{2e52}-\\x{2e5d}\\x{10ead}\\x{10f55}-\\x{10f59}\\x{10f86}-\\x{10f89}"                      \
    "\\x{1144b}-\\x{1144f}\\x{1145a}-\\x{1145b}\\x{1145d}\\x{11660}-\\x{1166c}"                    \
    "\\x{116b9}\\x{1183b}\\x{11944}-\\x{11946}\\x{119e2}\\x{11a3f}-\\x{11a46}"                     \
    "\\x{11a9a}-\\x{11a9c}\\x{11a9e}-\\x{11aa2}\\x{11b00}-\\x{11b09}"                              \
    "\\x{11c41}-\\x{11c45}\\x{11c70}-\\x{11c71}\\x{11ef7}-\\x{11ef8}"                              \
    "\\x{11f43}-\\x{11f4f}\\x{11fff}\\x{12ff1}-\\x{12ff2}\\x{16e97}-\\x{16e9a}"                    \
    "\\x{16fe2}\\x{1e95e}-\\x{1e95f}"
#define PUNCTUATION "(?![" NEWER "])[\\p{P}$+<=>^`|~\\x{166d}\\x{111c9}]"

static int read_punctuation(struct splitter *s, const char *path, const json_t *part)
{
    enum behaviour behaviour = ISOLATED;

    return json_object_get(part, "behavior") && read_behaviour(path, part, &behaviour)
               ? -1
               : add_split(s, path, PUNCTUATION, false, behaviour, false);
}

static int read_spaces(struct splitter *s, const char *path, const json_t *part)
{
    (void)part;
    return add_split(s, path, "\\s", false, REMOVED, false);
}

static int read_bert(struct splitter *s, const char *path, const json_t *part)
{
    return read_spaces(s, path, part) || add_split(s, path, PUNCTUATION, false, ISOLATED, false)
               ? -1
               : 0;
}

/* Words as Rust's expressions have them, not Oniguruma's. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}"

static int read_words(struct splitter *s, const char *path, const json_t *part)
{
    (void)part;
    return add_split(s, path, "[" WORD "]+|[^" WORD "\\s]+", false, REMOVED, true);
}

static int read_delimiter(struct splitter *s, const char *path, const json_t *part)
{
    const char *mark = json_string_value(json_object_get(part, "delimiter"));

    return mark ? add_split(s, path, mark, true, REMOVED, false)
                : say_fail("%s: a CharDelimiterSplit has no \"delimiter\"", path);
}

static int read_part(struct splitter *s, const char *path, const json_t *part);

static int read_sequence(struct splitter *s, const char *path, const json_t *part)
{
    json_t *one;
    size_t i;
    int rc = 0;

    json_array_foreach(json_object_get(part, "pretokenizers"), i, one)
    {
        rc = rc ? rc : read_part(s, path, one);
    }
    return rc;
}

static const struct json_keys sequence_keys[] = {JSON_READ("type pretokenizers"), JSON_END};
static const struct json_keys bytes_keys[] = {JSON_READ("type add_prefix_space use_regex"),
                                              JSON_UNUSED("trim_offsets"), JSON_END};
static const struct json_keys split_keys[] = {JSON_READ("type pattern behavior invert"), JSON_END};
static const struct json_keys metaspace_keys[] = {
    JSON_READ("type replacement split add_prefix_space"), JSON_UNUSED("str_rep"),
    JSON_ONLY("prepend_scheme", "always|first|never"), JSON_END};
static const struct json_keys digits_keys[] = {JSON_READ("type individual_digits"), JSON_END};
static const struct json_keys punctuation_keys[] = {JSON_READ("type behavior"), JSON_END};
static const struct json_keys delimiter_keys[] = {JSON_READ("type delimiter"), JSON_END};
static const struct json_keys plain_keys[] = {JSON_READ("type"), JSON_END};

static const struct reader {
    const char *type;
    int (*read)(struct splitter *s, const char *path, const json_t *part);
    const struct json_keys *keys;
} readers[] = {
    {"Sequence", read_sequence, sequence_keys},
    {"ByteLevel", read_bytes, bytes_keys},
    {"Split", read_split, split_keys},
    {"Metaspace", read_metaspace, metaspace_keys},
    {"Digits", read_digits, digits_keys},
    {"Punctuation", read_punctuation, punctuation_keys},
    {"WhitespaceSplit", read_spaces, plain_keys},
    {"BertPreTokenizer", read_bert, plain_keys},
    {"Whitespace", read_words, plain_keys},
    {"CharDelimiterSplit", read_delimiter, delimiter_keys},
};

static int read_part(struct splitter *s, const char *path, const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));

    for (size_t i = 0; type && i < sizeof readers / sizeof *readers; i++)
        if (!strcmp(type, readers[i].type))
            return json_keys_check(path, "pre_tokenizer", part, readers[i].keys)
                       ? -1
                       : readers[i].read(s, path, part);
    return say_fail("%s: a pre_tokenizer of type %s is not supported", path,
                    type ? type : "that is missing");
}

int splitter_read(struct splitter **s, const char *path, const json_t *part)
{
    *s = calloc(1, sizeof **s);
    if (!*s)
        return say_fail("%s: no memory", path);
    return !part || json_is_null(part) ? 0 : read_part(*s, path, part);
}

int splitter_gpt2(struct splitter **s, const char *path)
{
    *s = calloc(1, sizeof **s);
    return *s ? read_bytes(*s, path, NULL) : say_fail("%s: no memory", path);
}

int splitter_metaspace(struct splitter **s, const char *path, bool prefix, bool only_first)
{
    *s = calloc(1, sizeof **s);
    return *s ? add_metaspace(*s, "\xe2\x96\x81", prefix, only_first)
              : say_fail("%s: no memory", path);
}

void splitter_close(struct splitter *s)
{
    for (int i = 0; s && i < s->n; i++) {
        free(s->step[i].text);
        pattern_close(s->step[i].pattern);
    }
    if (s)
        free(s->step);
    free(s);
}

static bool has(const struct splitter *s, enum kind kind)
{
    for (int i = 0; s && i < s->n; i++)
        if (s->step[i].kind == kind)
            return true;
    return false;
}

bool splitter_has_prefix(const struct splitter *s)
{
    return has(s, PREFIX);
}

bool splitter_has_bytes(const struct splitter *s)
{
    return has(s, BYTES);
}

/* ---- running --------------------------------------------------------------------------------- */

struct run {
    const struct splitter *s;
    const char *path;
    int (*take)(void *user, const char *piece, int64_t bytes);
    void *user;
};

static int run_step(const struct run *r, int step, const char *text, int64_t bytes, bool first);

/* A text that is being split: the piece [begin, end) waits for what comes behind it. */
struct split {
    const struct run *run;
    const struct step *step;
    int next;
    const char *text;
    bool first;
    int64_t begin, end;
    bool is_match, waits;
};

static int flush(struct split *p)
{
    bool waited = p->waits && p->end > p->begin;

    p->waits = false;
    return waited ? run_step(p->run, p->next, p->text + p->begin, p->end - p->begin,
                             p->first && p->begin == 0)
                  : 0;
}

/* Whether the piece that waits and the next one are one. */
static bool joins(const struct split *p, bool is_match)
{
    switch (p->step->behaviour) {
    case CONTIGUOUS:
        return p->is_match == is_match;
    case MERGED_WITH_PREVIOUS:
        return is_match && !p->is_match;
    case MERGED_WITH_NEXT:
        return p->is_match && !is_match;
    default:
        return false;
    }
}

static int take_match(void *user, int64_t begin, int64_t end, bool matches)
{
    struct split *p = user;
    bool is_match = matches != p->step->inverted;
    int rc = 0;

    if (p->waits && joins(p, is_match)) {
        p->end = end;
        p->is_match = is_match;
        return 0;
    }
    rc = flush(p);
    p->begin = begin;
    p->end = end;
    p->is_match = is_match;
    p->waits = !(is_match && p->step->behaviour == REMOVED);
    return rc;
}

static int run_split(const struct run *r, int step, const char *text, int64_t bytes, bool first)
{
    struct split p = {
        .run = r, .step = &r->s->step[step], .next = step + 1, .text = text, .first = first};
    int rc = pattern_each(p.step->pattern, r->path, text, bytes, take_match, &p);

    return rc ? rc : flush(&p);
}

static int write_step(const struct step *s, const char *text, int64_t bytes, bool first,
                      struct text *to)
{
    int64_t n = (int64_t)strlen(s->text);
    char code[4];
    int rc = 0;

    if (s->kind == PREFIX) {
        bool has_it = bytes >= n && !memcmp(text, s->text, (size_t)n);
        if (!has_it && (first || !s->only_first))
            rc = text_add(to, s->text, n);
        return rc ? rc : text_add(to, text, bytes);
    }
    for (int64_t i = 0; i < bytes && !rc; i++) {
        if (s->kind == BYTES)
            rc = text_add(to, code, utf8_put(code, code_of((unsigned char)text[i])));
        else
            rc = text[i] == ' ' ? text_add(to, s->text, n) : text_add(to, text + i, 1);
    }
    return rc;
}

static int run_step(const struct run *r, int step, const char *text, int64_t bytes, bool first)
{
    struct text changed = {NULL, 0, 0};

    if (step == r->s->n)
        return r->take(r->user, text, bytes);
    if (r->s->step[step].kind == SPLIT)
        return run_split(r, step, text, bytes, first);
    int rc = write_step(&r->s->step[step], text, bytes, first, &changed)
                 ? say_fail("%s: no memory for a text", r->path)
                 : run_step(r, step + 1, changed.bytes, changed.n, first);
    free(changed.bytes);
    return rc;
}

int splitter_run(const struct splitter *s, const char *path, const char *text, int64_t bytes,
                 bool first, int (*take)(void *user, const char *piece, int64_t bytes), void *user)
{
    const struct run r = {s, path, take, user};

    return bytes ? run_step(&r, 0, text, bytes, first) : 0;
}
