/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers: a list of changes that a text passes in order. */
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_ICU
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/uset.h>
#include <unicode/ustring.h>
#endif
#include "../common/json_keys.h"
#include "../common/say.h"
#include "charsmap.h"
#include "parts.h"

struct change {
    int (*run)(const struct change *c, const char *path, const char *text, int64_t bytes,
               struct text *to);
    char *text; /* to be put in */
    struct pattern *pattern;
    struct charsmap *map;
    bool left, right;                                                   /* ends to strip */
    int (*each)(struct text *to, uint32_t code, const char *at, int n); /* of each character */
#ifdef HAVE_ICU
    USet *known;       /* characters that have normal forms */
    UNormalizer2 *how; /* the normal form */
#endif
};

struct normalizer {
    struct change *change;
    int n;
};

static int no_memory(const char *path)
{
    return say_fail("%s: no memory for a text", path);
}

/* ---- changes --------------------------------------------------------------------------------- */

static int run_prepend(const struct change *c, const char *path, const char *text, int64_t bytes,
                       struct text *to)
{
    bool failed =
        (bytes && text_add(to, c->text, (int64_t)strlen(c->text))) || text_add(to, text, bytes);

    return failed ? no_memory(path) : 0;
}

/* A text that is read piece by piece. */
struct replacing {
    const struct change *change;
    const char *path, *from;
    struct text *to;
};

static int take_part(void *user, int64_t begin, int64_t end, bool is_match)
{
    struct replacing *r = user;
    bool failed = is_match ? text_add(r->to, r->change->text, (int64_t)strlen(r->change->text))
                           : text_add(r->to, r->from + begin, end - begin);

    return failed ? no_memory(r->path) : 0;
}

static int run_replace(const struct change *c, const char *path, const char *text, int64_t bytes,
                       struct text *to)
{
    struct replacing r = {c, path, text, to};

    return pattern_each(c->pattern, path, text, bytes, take_part, &r);
}

static int run_strip(const struct change *c, const char *path, const char *text, int64_t bytes,
                     struct text *to)
{
    int64_t begin = 0, end = bytes;

    if (c->left)
        begin = utf8_skip_spaces(text, 0, bytes);
    if (c->right)
        end = utf8_drop_spaces(text, begin, bytes);
    return text_add(to, text + begin, end - begin) ? no_memory(path) : 0;
}

static int take_grapheme(void *user, int64_t begin, int64_t end, bool is_match)
{
    struct replacing *r = user;

    (void)is_match;
    return charsmap_apply(r->change->map, r->from + begin, end - begin, r->to) ? no_memory(r->path)
                                                                               : 0;
}

/* The map looks at each character that a reader sees, with its marks. */
static int run_map(const struct change *c, const char *path, const char *text, int64_t bytes,
                   struct text *to)
{
    struct replacing r = {c, path, text, to};

    return pattern_each(c->pattern, path, text, bytes, take_grapheme, &r);
}

#ifdef HAVE_ICU

static bool is_ascii(const char *text, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

/* Normalizes n units of UTF-16; the result is malloc'ed. */
static UChar *to_form(const UNormalizer2 *how, const UChar *from, int32_t n, int32_t *length)
{
    UErrorCode e = U_ZERO_ERROR;
    UChar *to = NULL;

    *length = unorm2_normalize(how, from, n, NULL, 0, &e);
    if (e == U_BUFFER_OVERFLOW_ERROR || U_SUCCESS(e)) {
        e = U_ZERO_ERROR;
        to = malloc(((size_t)*length + 1) * sizeof *to);
        if (to)
            unorm2_normalize(how, from, n, to, *length + 1, &e);
    }
    if (U_SUCCESS(e))
        return to;
    free(to);
    return NULL;
}

static int run_form(const struct change *c, const char *path, const char *text, int64_t bytes,
                    struct text *to)
{
    UErrorCode e = U_ZERO_ERROR;
    int32_t n = 0, wide = 0, length = 0;

    if (is_ascii(text, bytes))
        return text_add(to, text, bytes) ? no_memory(path) : 0;
    if (bytes > INT32_MAX / 4)
        return say_fail("%s: a text of %lld bytes is too long for a normal form", path,
                        (long long)bytes);
    UChar *from = malloc((size_t)bytes * sizeof *from), *made = NULL;
    if (from)
        u_strFromUTF8(from, (int32_t)bytes, &n, text, (int32_t)bytes, &e);
    if (from && U_SUCCESS(e))
        made = to_form(c->how, from, n, &wide);
    free(from);
    char *narrow = made ? malloc(3 * (size_t)wide + 1) : NULL;
    if (narrow)
        u_strToUTF8(narrow, 3 * wide + 1, &length, made, wide, &e);
    int rc = narrow && U_SUCCESS(e) && !text_add(to, narrow, length) ? 0 : no_memory(path);
    free(narrow);
    free(made);
    return rc;
}

/* Each character by itself: no rules of languages or of word ends. */
static int run_each(const struct change *c, const char *path, const char *text, int64_t bytes,
                    struct text *to)
{
    int rc = 0;

    for (int64_t at = 0, n; at < bytes && !rc; at += n) {
        n = utf8_length(text + at, bytes - at);
        rc = c->each(to, utf8_code(text + at, (int)n), text + at, (int)n);
    }
    return rc ? no_memory(path) : 0;
}

static int put_lowercase(struct text *to, uint32_t code, const char *at, int n)
{
    char low[4];

    (void)at, (void)n;
    if (code == 0x130) /* the only one that becomes two characters */
        return text_add(to, "i\xcc\x87", 3);
    return text_add(to, low, utf8_put(low, (uint32_t)u_tolower((UChar32)code)));
}

/* ---- BertNormalizer ------------------------------------------------------------------------- */

/* The reference has the categories of Unicode 8: to it later characters are of none. */
static bool is_in(uint32_t code, uint32_t mask)
{
    UVersionInfo age;

    u_charAge((UChar32)code, age);
    return age[0] && age[0] <= 8 && (U_GET_GC_MASK((UChar32)code) & mask);
}

/* Control, format and private characters go; other white space becomes a blank. */
static int put_clean(struct text *to, uint32_t code, const char *at, int n)
{
    bool stays = code == '\t' || code == '\n' || code == '\r';

    if (!stays && (code == 0xfffd || is_in(code, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)))
        return 0;
    return utf8_is_space(code) ? text_add(to, " ", 1) : text_add(to, at, n);
}

/* Blanks around the characters of Chinese, so that each is a word. */
static int put_apart(struct text *to, uint32_t code, const char *at, int n)
{
    static const uint32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    bool is = false;

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && !is; i++)
        is = code >= ranges[i][0] && code <= ranges[i][1];
    return (is && text_add(to, " ", 1)) || text_add(to, at, n) || (is && text_add(to, " ", 1));
}

/* Without marks; some characters have become one since Unicode 8, and one is none any more. */
static int put_unaccented(struct text *to, uint32_t code, const char *at, int n)
{
    bool since = code == 0x1885 || code == 0x1886 || code == 0xa9bd || code == 0x111c9;
    bool mark = code == 0x1734 || (is_in(code, U_GC_MN_MASK) && !since);

    return mark ? 0 : text_add(to, at, n);
}

#endif

/* ---- reading --------------------------------------------------------------------------------- */

static struct change *add(struct normalizer *n)
{
    struct change *grown = realloc(n->change, (size_t)(n->n + 1) * sizeof *grown);

    if (!grown) {
        say_fail("no memory for a tokenizer");
        return NULL;
    }
    n->change = grown;
    grown[n->n] = (struct change){.run = NULL};
    return &grown[n->n++];
}

static int read_text(struct change *c, const char *path, const json_t *part, const char *key)
{
    const char *text = json_string_value(json_object_get(part, key));

    c->text = text ? strdup(text) : NULL;
    return c->text ? 0 : say_fail("%s: a normalizer has no text \"%s\"", path, key);
}

static int read_prepend(struct change *c, const char *path, const json_t *part)
{
    c->run = run_prepend;
    return read_text(c, path, part, "prepend");
}

static int read_replace(struct change *c, const char *path, const json_t *part)
{
    c->run = run_replace;
    return read_text(c, path, part, "content") ||
                   pattern_read(&c->pattern, path, json_object_get(part, "pattern"))
               ? -1
               : 0;
}

static int read_strip(struct change *c, const char *path, const json_t *part)
{
    (void)path;
    c->run = run_strip;
    c->left = json_is_true(json_object_get(part, "strip_left"));
    c->right = json_is_true(json_object_get(part, "strip_right"));
    return 0;
}

static int read_map(struct change *c, const char *path, const json_t *part)
{
    c->run = run_map;
    return charsmap_open(&c->map, path,
                         json_string_value(json_object_get(part, "precompiled_charsmap"))) ||
                   pattern_open(&c->pattern, path, "\\X", false)
               ? -1
               : 0;
}

#ifdef HAVE_ICU
static const UNormalizer2 *find_form(const char *form, UErrorCode *e)
{
    return !form                   ? unorm2_getNFDInstance(e)
           : !strcmp(form, "NFC")  ? unorm2_getNFCInstance(e)
           : !strcmp(form, "NFD")  ? unorm2_getNFDInstance(e)
           : !strcmp(form, "NFKC") ? unorm2_getNFKCInstance(e)
                                   : unorm2_getNFKDInstance(e);
}

/* The reference has the tables of Unicode 9: to them later characters are unknown.  part NULL: NFD.
 */
static int read_form(struct change *c, const char *path, const json_t *part)
{
    const char *form = json_string_value(json_object_get(part, "type"));
    UErrorCode e = U_ZERO_ERROR;

    c->run = run_form;
    c->known = uset_openPattern(u"[:age=9.0:]", -1, &e);
    const UNormalizer2 *whole = find_form(form, &e);
    c->how = U_SUCCESS(e) ? unorm2_openFiltered(whole, c->known, &e) : NULL;
    return U_SUCCESS(e) ? 0 : say_fail("%s: ICU has no %s: %s", path, form, u_errorName(e));
}

static int read_lowercase(struct change *c, const char *path, const json_t *part)
{
    (void)path, (void)part;
    c->run = run_each;
    c->each = put_lowercase;
    return 0;
}

static int add_each(struct normalizer *n, int (*each)(struct text *, uint32_t, const char *, int))
{
    struct change *c = add(n);

    if (c)
        *c = (struct change){.run = run_each, .each = each};
    return c ? 0 : -1;
}

/* Accents go where letters become small ones, unless the file says otherwise. */
static int read_bert(struct normalizer *n, const char *path, const json_t *part)
{
    const json_t *accents = json_object_get(part, "strip_accents");
    bool lower = !json_is_false(json_object_get(part, "lowercase"));
    bool strips = json_is_boolean(accents) ? json_is_true(accents) : lower;
    struct change *c;
    int rc = 0;

    if (!json_is_false(json_object_get(part, "clean_text")))
        rc = add_each(n, put_clean);
    if (!rc && !json_is_false(json_object_get(part, "handle_chinese_chars")))
        rc = add_each(n, put_apart);
    if (!rc && strips)
        rc = (c = add(n)) ? read_form(c, path, NULL) : -1;
    if (!rc && strips)
        rc = add_each(n, put_unaccented);
    return !rc && lower ? add_each(n, put_lowercase) : rc;
}
#else
static int read_form(struct change *c, const char *path, const json_t *part)
{
    (void)c;
    return say_fail("%s: its normalizer %s needs ICU, and this program was built without; on "
                    "Debian or Ubuntu: apt install libicu-dev, and configure again",
                    path, json_string_value(json_object_get(part, "type")));
}
#define read_lowercase read_form

static int read_bert(struct normalizer *n, const char *path, const json_t *part)
{
    (void)n;
    return read_form(NULL, path, part);
}
#endif

static const struct json_keys sequence_keys[] = {JSON_READ("type normalizers"), JSON_END};
static const struct json_keys plain_keys[] = {JSON_READ("type"), JSON_END};
static const struct json_keys prepend_keys[] = {JSON_READ("type prepend"), JSON_END};
static const struct json_keys replace_keys[] = {JSON_READ("type pattern content"), JSON_END};
static const struct json_keys strip_keys[] = {JSON_READ("type strip_left strip_right"), JSON_END};
static const struct json_keys bert_keys[] = {
    JSON_READ("type clean_text handle_chinese_chars strip_accents lowercase"), JSON_END};
static const struct json_keys map_keys[] = {JSON_READ("type precompiled_charsmap"), JSON_END};

static const struct reader {
    const char *type;
    int (*read)(struct change *c, const char *path, const json_t *part);
    const struct json_keys *keys;
} readers[] = {
    {"NFC", read_form, plain_keys},
    {"NFD", read_form, plain_keys},
    {"NFKC", read_form, plain_keys},
    {"NFKD", read_form, plain_keys},
    {"Lowercase", read_lowercase, plain_keys},
    {"Prepend", read_prepend, prepend_keys},
    {"Replace", read_replace, replace_keys},
    {"Strip", read_strip, strip_keys},
    {"Precompiled", read_map, map_keys},
};

static int read_part(struct normalizer *n, const char *path, const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    json_t *one;
    size_t i;
    int rc = 0;

    if (type && !strcmp(type, "Sequence")) {
        rc = json_keys_check(path, "normalizer", part, sequence_keys);
        json_array_foreach(json_object_get(part, "normalizers"), i, one)
        {
            rc = rc ? rc : read_part(n, path, one);
        }
        return rc;
    }
    if (type && !strcmp(type, "BertNormalizer"))
        return json_keys_check(path, "normalizer", part, bert_keys) || read_bert(n, path, part) ? -1
                                                                                                : 0;
    for (i = 0; type && i < sizeof readers / sizeof *readers; i++) {
        if (strcmp(type, readers[i].type))
            continue;
        struct change *c =
            json_keys_check(path, "normalizer", part, readers[i].keys) ? NULL : add(n);
        return c ? readers[i].read(c, path, part) : -1;
    }
    return say_fail("%s: a normalizer of type %s is not supported", path,
                    type ? type : "that is missing");
}

int normalizer_read(struct normalizer **n, const char *path, const json_t *part)
{
    *n = NULL;
    if (!part || json_is_null(part))
        return 0;
    *n = calloc(1, sizeof **n);
    return *n ? read_part(*n, path, part) : say_fail("%s: no memory", path);
}

void normalizer_close(struct normalizer *n)
{
    for (int i = 0; n && i < n->n; i++) {
        free(n->change[i].text);
#ifdef HAVE_ICU
        unorm2_close(n->change[i].how);
        uset_close(n->change[i].known);
#endif
        pattern_close(n->change[i].pattern);
        charsmap_close(n->change[i].map);
    }
    if (n)
        free(n->change);
    free(n);
}

bool normalizer_has_prefix(const struct normalizer *n)
{
    for (int i = 0; n && i < n->n; i++)
        if (n->change[i].run == run_prepend)
            return true;
    return false;
}

int normalizer_run(const struct normalizer *n, const char *path, const char *text, int64_t bytes,
                   struct text *to)
{
    struct text from = {NULL, 0, 0};
    int rc = 0;

    if (!n || !n->n)
        return text_add(to, text, bytes) ? no_memory(path) : 0;
    for (int i = 0; i < n->n && !rc; i++) {
        struct text next = {NULL, 0, 0};
        const struct change *c = &n->change[i];
        rc = c->run(c, path, i ? from.bytes : text, i ? from.n : bytes, &next);
        free(from.bytes);
        from = next;
    }
    if (!rc && text_add(to, from.bytes, from.n))
        rc = no_memory(path);
    free(from.bytes);
    return rc;
}
