/* SPDX-License-Identifier: Apache-2.0 */
/* Text files: see text_file.h. */
#include "text_file.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "say.h"

/* ---- opening ------------------------------------------------------------------------------- */

/* The next byte as it is in the file. */
static int raw(struct text_file *t)
{
    int byte = t->back;

    t->back = TEXT_END;
    if (byte != TEXT_END)
        return byte;
    if (t->left <= 0)
        return TEXT_END;
    t->left--;
    byte = getc(t->file);
    if (byte != EOF)
        return byte;
    return ferror(t->file) ? say_fail("%s: %s", t->name, strerror(errno)) - 1 : TEXT_END;
}

/* Skips the mark of UTF-8. */
static int skip_mark(struct text_file *t)
{
    unsigned char start[3];
    off_t at = ftello(t->file);
    size_t n = fread(start, 1, sizeof start, t->file);

    n = t->left < (int64_t)n ? (size_t)t->left : n;
    if (n >= 2 && (!memcmp(start, "\xff\xfe", 2) || !memcmp(start, "\xfe\xff", 2)))
        return say_fail(
            "%s: is UTF-16, and UTF-8 is expected: iconv -f UTF-16 -t UTF-8 converts it", t->name);
    bool marked = n == 3 && !memcmp(start, "\xef\xbb\xbf", 3);
    t->left -= marked ? 3 : 0;
    return fseeko(t->file, at + (marked ? 3 : 0), SEEK_SET)
               ? say_fail("%s: %s", t->name, strerror(errno))
               : 0;
}

int text_file_open_part(struct text_file *t, const char *path, const char *name, int64_t start,
                        int64_t size)
{
    *t = (struct text_file){.name = name, .line = 1, .left = size, .back = TEXT_END};
    if (ckpt_input_open(&t->file, path))
        return say_fail("%s", ckpt_error(NULL));
    if (fseeko(t->file, (off_t)start, SEEK_SET))
        return say_fail("%s: %s", path, strerror(errno));
    return skip_mark(t);
}

int text_file_open(struct text_file *t, const char *path)
{
    return text_file_open_part(t, path, path, 0, INT64_MAX);
}

void text_file_close(struct text_file *t)
{
    if (t->file)
        fclose(t->file);
    free(t->text);
    *t = (struct text_file){.file = NULL};
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* Begins a character.  Returns whether a byte can be the first one (Unicode, table 3-7). */
static bool begin(struct text_file *t, int byte)
{
    t->low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    t->high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    t->more = byte < 0x80 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    return byte < 0x80 || (byte >= 0xc2 && byte <= 0xf4);
}

static bool go_on(struct text_file *t, int byte)
{
    bool fits = byte >= t->low && byte <= t->high;

    t->low = 0x80;
    t->high = 0xbf;
    t->more--;
    return fits;
}

static int refuse(const struct text_file *t, const char *what)
{
    return say_fail("%s, line %lld: %s", t->name, (long long)t->line, what) - 1;
}

int text_file_get(struct text_file *t)
{
    int byte = raw(t);

    if (byte == TEXT_BAD)
        return byte;
    if (byte == TEXT_END)
        return t->more ? refuse(t, "ends within a character of UTF-8") : byte;
    if (!(t->more ? go_on(t, byte) : begin(t, byte)))
        return refuse(t, "is not UTF-8, which is expected: iconv converts it");
    if (!byte)
        return refuse(t, "has a zero byte: not a text file, or UTF-16, and UTF-8 is expected");
    if (byte == '\r') {
        int next = raw(t);
        if (next == TEXT_BAD)
            return next;
        t->back = next;
    }
    t->line += byte == '\n' || (byte == '\r' && t->back != '\n');
    return byte;
}

int text_file_ends_line(struct text_file *t, int byte)
{
    if (byte == '\r' && t->back == '\n')
        text_file_get(t);
    return byte == '\r' || byte == '\n';
}

/* ---- lines --------------------------------------------------------------------------------- */

static int put(struct text_file *t, size_t n, int byte)
{
    if (n == t->size) {
        size_t size = t->size ? 2 * t->size : 256;
        char *text = realloc(t->text, size);
        if (!text)
            return say_fail("%s, line %lld: no memory for it", t->name, (long long)t->line);
        t->text = text;
        t->size = size;
    }
    t->text[n] = (char)byte;
    return 0;
}

int text_file_line(struct text_file *t, char **line)
{
    size_t n = 0;
    int byte;

    while ((byte = text_file_get(t)) >= 0 && !text_file_ends_line(t, byte))
        if (put(t, n++, byte))
            return -1;
    if (byte == TEXT_BAD || put(t, n, 0))
        return -1;
    *line = t->text;
    return byte >= 0 || n;
}

char *text_file_all(struct text_file *t, size_t most)
{
    size_t n = 0;
    int byte;

    while ((byte = text_file_get(t)) >= 0 && n <= most)
        if (put(t, n++, byte))
            return NULL;
    if (n > most)
        say_fail("%s: has more than %zu bytes", t->name, most);
    if (byte == TEXT_BAD || n > most || put(t, n, 0))
        return NULL;
    char *text = t->text;
    t->text = NULL;
    t->size = 0;
    return text;
}

/* ---- white space --------------------------------------------------------------------------- */

/* The bytes of the white space at s, as far as it does not go beyond `end`; 0: there is none. */
static size_t blank_at(const char *s, const char *end)
{
    /* U+0085, 00a0, 1680, 2000 to 200a, 2028, 2029, 202f, 205f, 3000 */
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    size_t n = (size_t)(end - s);

    if (n && ((*s >= '\t' && *s <= '\r') || (*s >= 0x1c && *s <= ' ')))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (n >= strlen(wide[i]) && !memcmp(s, wide[i], strlen(wide[i])))
            return strlen(wide[i]);
    return 0;
}

char *text_strip(char *text)
{
    char *from = text, *end = text + strlen(text);

    for (size_t n = 1; n;)
        from += n = blank_at(from, end);
    for (int n = 1; n <= 3 && end - from >= n;) {
        bool blank = blank_at(end - n, end) == (size_t)n;
        end -= blank ? n : 0;
        n = blank ? 1 : n + 1;
    }
    memmove(text, from, (size_t)(end - from));
    text[end - from] = 0;
    return text;
}
