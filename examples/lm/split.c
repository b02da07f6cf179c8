/* SPDX-License-Identifier: Apache-2.0 */
/* Splits text into pieces before BPE, with PCRE2. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "tokenizer.h"

#ifdef HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct splitter {
    pcre2_code *code;
};

int splitter_open(struct splitter **s, const char *path, const char *pattern)
{
    int error;
    PCRE2_SIZE at;
    PCRE2_UCHAR text[160];

    *s = calloc(1, sizeof **s);
    if (!*s)
        return say_fail("%s: no memory", path);
    (*s)->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                               &error, &at, NULL);
    if (!(*s)->code) {
        pcre2_get_error_message(error, text, sizeof text);
        return say_fail("%s: its pattern cannot be used: %s at %zu of %s", path, (char *)text, at,
                        pattern);
    }
    pcre2_jit_compile((*s)->code, PCRE2_JIT_COMPLETE); /* else the pattern is interpreted */
    return 0;
}

void splitter_close(struct splitter *s)
{
    if (s)
        pcre2_code_free(s->code);
    free(s);
}

/* Text between two matches is a piece, too. */
static int take_all(const struct splitter *s, pcre2_match_data *match, const char *path,
                    const char *text, size_t bytes,
                    int (*take)(void *user, const char *piece, int64_t bytes), void *user)
{
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(match);
    size_t at = 0;
    uint32_t flags = 0;
    int rc = 0;

    while (at < bytes && !rc) {
        int found =
            pcre2_match(s->code, (PCRE2_SPTR)text, bytes, at, flags | PCRE2_NOTEMPTY, match, NULL);
        flags = PCRE2_NO_UTF_CHECK; /* the first match has validated the whole text */
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            return found >= PCRE2_ERROR_UTF8_ERR21 && found <= PCRE2_ERROR_UTF8_ERR1
                       ? say_fail("%s: not UTF-8 at byte %zu", path, pcre2_get_startchar(match))
                       : say_fail("%s: the text cannot be split at byte %zu", path, at);
        size_t begin = found < 0 ? bytes : place[0], end = found < 0 ? bytes : place[1];
        if (begin > at)
            rc = take(user, text + at, (int64_t)(begin - at));
        if (end > begin && !rc)
            rc = take(user, text + begin, (int64_t)(end - begin));
        at = end;
    }
    return rc;
}

int splitter_run(const struct splitter *s, const char *path, const char *text, int64_t bytes,
                 int (*take)(void *user, const char *piece, int64_t bytes), void *user)
{
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(s->code, NULL);

    if (!match)
        return say_fail("%s: no memory", path);
    int rc = take_all(s, match, path, text, (size_t)bytes, take, user);
    pcre2_match_data_free(match);
    return rc;
}

#else

int splitter_open(struct splitter **s, const char *path, const char *pattern)
{
    (void)pattern;
    *s = NULL;
    return say_fail("%s: this program was built without PCRE2, which cuts text before BPE; give "
                    "files of tokens, or --tokenizer bytes",
                    path);
}

void splitter_close(struct splitter *s)
{
    (void)s;
}

int splitter_run(const struct splitter *s, const char *path, const char *text, int64_t bytes,
                 int (*take)(void *user, const char *piece, int64_t bytes), void *user)
{
    (void)s, (void)text, (void)bytes, (void)take, (void)user;
    return say_fail("%s: built without PCRE2", path);
}

#endif
