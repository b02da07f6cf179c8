/* SPDX-License-Identifier: Apache-2.0 */
/* Cleans and tokenizes prompts: see reader.h. */
#include <stdlib.h>
#include "../common/say.h"
#include "clean.h"
#include "reader.h"

int text_reader_open(struct text_reader *r, const char *tokenizer, struct text_reading reading)
{
    *r = (struct text_reader){.cleaner = NULL};
    return t5_tokenizer_open(&r->tokenizer, tokenizer) ||
                   (reading.cleaning && cleaner_open(&r->cleaner, reading.cleaning))
               ? -1
               : 0;
}

void text_reader_close(struct text_reader *r)
{
    t5_tokenizer_close(&r->tokenizer);
    cleaner_close(r->cleaner);
    r->cleaner = NULL;
}

static void note_line(struct names *l, int64_t line, const char *what)
{
    char text[64];

    snprintf(text, sizeof text, "line %lld%s%s", (long long)line, what ? ": " : "",
             what ? what : "");
    names_add(l, text);
}

int text_reader_read(struct text_reader *r, const char *text, int64_t line, int32_t *ids,
                     int64_t length, int32_t *count)
{
    const char *left = NULL;
    char *cleaned = r->cleaner ? cleaner_clean(r->cleaner, text, &left) : NULL;
    int64_t tokens;

    if (r->cleaner && !cleaned)
        return -1;
    int rc = t5_tokenizer_encode(&r->tokenizer, cleaned ? cleaned : text, ids, length, &tokens);
    free(cleaned);
    if (rc)
        return -1;
    if (left)
        note_line(&r->left, line, left);
    if (tokens > length)
        note_line(&r->cut, line, NULL);
    *count = (int32_t)(tokens < length ? tokens : length);
    return 0;
}

void text_reader_report(const struct text_reader *r, const char *path, int64_t length)
{
    char text[NAMES_TEXT];

    if (r->cut.n)
        say_note("%s: %lld prompt%s longer than %lld tokens and cut: %s", path, (long long)r->cut.n,
                 r->cut.n > 1 ? "s are" : " is", (long long)length, names_text(&r->cut, text));
    if (r->left.n)
        say_note("%s: %lld prompt%s parts that were not cleaned: %s", path, (long long)r->left.n,
                 r->left.n > 1 ? "s have" : " has", names_text(&r->left, text));
}
