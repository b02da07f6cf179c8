/* SPDX-License-Identifier: Apache-2.0 */
/* Where failures are written, and the names of the error codes. */
#include <string.h>
#include "core/base.h"
#include "ckpt_tools.h"

static _Thread_local struct error own;    /* of calls without a context */
static _Thread_local struct error *where; /* NULL: own */

/* Which line ends and tabs stay. */
enum lines {
    ONE_LINE, /* none */
    SENTENCE, /* a line that begins with two blanks belongs to the sentence above it: refusals of
                 the planner have such lines */
    ALL_LINES
};

/* The number of bytes at s that form a control character, which a terminal would obey: of the first
 * set, or of the second (C1) in UTF-8. */
static size_t control_at(const unsigned char *s, enum lines lines)
{
    if (lines == SENTENCE && s[0] == '\n' && s[1] == ' ' && s[2] == ' ')
        return 0;
    if (s[0] == '\n' || s[0] == '\t')
        return lines != ALL_LINES;
    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0)
        return 2;
    return s[0] < 0x20 || s[0] == 0x7f;
}

static char *text_escape(char *dst, size_t size, const char *text, enum lines lines)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = 0;

    while (*s) {
        size_t bytes = control_at(s, lines);
        if (n + (bytes ? 4 * bytes : 1) >= size)
            break;
        if (!bytes)
            dst[n++] = (char)*s++;
        for (; bytes; bytes--)
            n += (size_t)snprintf(dst + n, size - n, "\\x%02x", *s++);
    }
    if (size)
        dst[n] = 0;
    return dst;
}

const char *text_shown(const char *text, char *dst, size_t size)
{
    return text_escape(dst, size, text, ONE_LINE);
}

const char *sentence_shown(const char *text, char *dst, size_t size)
{
    return text_escape(dst, size, text, SENTENCE);
}

const char *ckpt_escape(char *dst, size_t size, const char *text)
{
    if (!dst)
        return "";
    return text_escape(dst, size, text ? text : "", ALL_LINES);
}

/* The sentence is formatted in a buffer first, because an argument may be the text in dst.  Control
 * characters are escaped, line ends too: names come from files, a terminal must not obey them, and
 * a log shows where a sentence ends. */
int error_vset(char *dst, size_t size, int code, const char *fmt, va_list ap)
{
    char text[CKPT_MESSAGE];

    if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
        text[0] = 0;
    text_escape(dst, size, text, SENTENCE);
    return code;
}

static struct error *here(void)
{
    return where ? where : &own;
}

#undef error_set
int error_set(int code, const char *fmt, ...)
{
    va_list ap;
    struct error *e = here();

    va_start(ap, fmt);
    e->code = error_vset(e->text, sizeof(e->text), code, fmt, ap);
    va_end(ap);
    return code;
}

int error_null(const char *call, const char *argument)
{
    return error_set(CKPT_EINVAL, "%s: %s is NULL", call, argument);
}

const char *error_get(void)
{
    return here()->text;
}

struct error *error_begin(struct error *e)
{
    struct error *before = where;

    where = e;
    return before;
}

void error_end(struct error **before)
{
    where = *before;
}

const char *ckpt_error_name(int code)
{
    static const char *const names[] = {
        "CKPT_OK",    "CKPT_EINVAL",  "CKPT_ENOMEM", "CKPT_ESHAPE",    "CKPT_EBUDGET",
        "CKPT_EIO",   "CKPT_EFORMAT", "CKPT_ENAN",   "CKPT_EDEVICE",   "CKPT_EPLAN",
        "CKPT_ENAME", "CKPT_ECOMM",   "CKPT_EINDEX", "CKPT_EGRADIENT", "CKPT_ESTOP",
    };

    if (code > 0 || code < CKPT_ESTOP)
        return "unknown error code";
    return names[-code];
}
