/* SPDX-License-Identifier: Apache-2.0 */
/* Text files, one fact a line: see lines.h. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/file.h"
#include "core/number.h"
#include "plan/graph/lines.h"

void lines_put_name(FILE *f, const char *name)
{
    fputs("  # ", f);
    for (const char *c = name && *name ? name : "unnamed"; *c; c++)
        fputc((unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c, f);
    fputc('\n', f);
}

int lines_write(const char *what, const char *path, void (*put)(FILE *f, const void *user),
                const void *user)
{
    struct ckpt_replacement o;
    int rc = file_replacement_open(&o, path);
    FILE *f = rc ? NULL : file_replacement_stream(&o);
    if (f) {
        put(f, user);
        rc = file_replacement_commit(&o, true);
    } else if (!rc) {
        file_replacement_abandon(&o);
        rc = error_set(CKPT_ENOMEM, "%s: no memory to write it", path);
    }
    if (rc)
        error_set(rc, "%s %.900s", what, error_get());
    return rc;
}

void lines_fail(struct lines *l, int code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (l->rc)
        return;
    l->rc = code;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    error_set(code, "%s %.300s, line %" PRId64 ": %s", l->what, l->path, l->n, text);
}

/* Runs get, and closes the file. */
static int read_all(struct lines *l, void (*get)(struct lines *l, void *user), void *user)
{
    get(l, user);
    fclose(l->f);
    free(l->line);
    return l->rc;
}

int lines_read(struct lines *l, const char *what, const char *path,
               void (*get)(struct lines *l, void *user), void *user)
{
    *l = (struct lines){.what = what, .path = path};
    const char *why;
    l->f = file_open_input(path, &why);
    if (!l->f) {
        return l->rc = error_set(CKPT_EIO, "%s %.300s cannot be opened: %s", what, path, why);
    }
    return read_all(l, get, user);
}

int lines_parse(struct lines *l, const char *what, char *text, size_t size,
                void (*get)(struct lines *l, void *user), void *user)
{
    *l = (struct lines){.what = what, .path = "in memory"};
    l->f = fmemopen(text, size, "r");
    if (!l->f)
        return l->rc = error_set(CKPT_ENOMEM, "out of host memory");
    return read_all(l, get, user);
}

int lines_print(void (*put)(FILE *f, const void *user), const void *user, char **text, size_t *size)
{
    *text = NULL;
    FILE *f = open_memstream(text, size);
    if (f)
        put(f, user);
    return f ? text_close(f, text) : CKPT_ENOMEM;
}

bool lines_next(struct lines *l)
{
    if (l->rc)
        return false;
    l->n++;
    ssize_t length = getline(&l->line, &l->line_size, l->f);
    if (length <= 0) {
        lines_fail(l, ferror(l->f) ? CKPT_EIO : CKPT_EFORMAT, "the file ends too early");
        return false;
    }
    if (l->line[length - 1] != '\n' || strlen(l->line) != (size_t)length) {
        lines_fail(l, CKPT_EFORMAT, "expected a line of text");
        return false;
    }
    l->line[length - 1] = '\0';
    l->at = l->line;
    return true;
}

bool lines_take(struct lines *l, const char *word)
{
    size_t n = strlen(word);
    if (l->rc)
        return false;
    const char *c = l->at + (*l->at == ' ');
    if (strncmp(c, word, n) || (c[n] != ' ' && c[n] != '\0'))
        return false;
    l->at += (c - l->at) + (ptrdiff_t)n;
    return true;
}

int64_t lines_number(struct lines *l, const char *what, int64_t least, int64_t most)
{
    if (l->rc)
        return least;
    const char *c = l->at + (*l->at == ' ');
    bool negative = *c == '-';
    const char *digits = c += negative;
    int64_t value = 0;
    for (; *c >= '0' && *c <= '9' && value <= (INT64_MAX - 9) / 10; c++)
        value = value * 10 + (*c - '0');
    bool canonical = c > digits && (digits[0] != '0' || (c == digits + 1 && !negative));
    value = negative ? -value : value;
    if (!canonical || (*c != ' ' && *c != '\0') || value < least || value > most) {
        lines_fail(l, CKPT_EFORMAT, "expected %s, a number from %" PRId64 " to %" PRId64, what,
                   least, most);
        return least;
    }
    l->at += c - l->at;
    return value;
}

double lines_real(struct lines *l, const char *what, double most)
{
    if (l->rc)
        return 0;
    char *end = l->at;
    const char *c = l->at + (*l->at == ' ');
    double value = (*c >= '0' && *c <= '9') || *c == '-' ? number_parse(c, &end) : NAN;
    if ((*end != ' ' && *end != '\0') || !(value >= 0 && value <= most)) {
        lines_fail(l, CKPT_EFORMAT, "expected %s, a number from 0 to %g", what, most);
        return 0;
    }
    l->at = end;
    return value;
}

uint64_t lines_hex(struct lines *l, const char *what)
{
    if (l->rc)
        return 0;
    const char *c = l->at + (*l->at == ' ');
    if (strspn(c, "0123456789abcdef") != 16 || (c[16] != ' ' && c[16] != '\0')) {
        lines_fail(l, CKPT_EFORMAT, "expected %s, 16 hex digits", what);
        return 0;
    }
    l->at += (c - l->at) + 16;
    return strtoull(c, NULL, 16);
}

void lines_end(struct lines *l)
{
    if (!l->rc && *l->at != '\0')
        lines_fail(l, CKPT_EFORMAT, "expected the end of the line at \"%.40s\"", l->at);
}

char *lines_name(struct lines *l)
{
    if (!l->rc && (strncmp(l->at, "  # ", 4) != 0 || !l->at[4]))
        lines_fail(l, CKPT_EFORMAT, "expected \"  # \" and a name");
    for (const char *c = l->rc ? "" : l->at; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            lines_fail(l, CKPT_EFORMAT, "a name with a control character");
    return l->rc ? NULL : l->at + 4;
}

int64_t lines_total(struct lines *l, const char *key, int64_t least, int64_t most)
{
    if (!lines_next(l))
        return least;
    if (!lines_take(l, key))
        lines_fail(l, CKPT_EFORMAT, "expected \"%s\" and a number", key);
    int64_t value = lines_number(l, key, least, most);
    lines_end(l);
    return value;
}

void lines_last(struct lines *l)
{
    if (!l->rc && strcmp(l->line, "end") != 0)
        lines_fail(l, CKPT_EFORMAT, "expected \"end\"");
    l->n++;
    if (!l->rc && fgetc(l->f) != EOF)
        lines_fail(l, CKPT_EFORMAT, "something follows the end");
}
