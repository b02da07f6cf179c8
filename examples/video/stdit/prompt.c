/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts of Open-Sora 1.2: see prompt.h. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/json_keys.h"
#include "../../common/say.h"
#include "prompt.h"

/* ---- the JSON object after the text -------------------------------------------------------- */

static const struct json_keys suffix_keys[] = {JSON_READ("reference_path mask_strategy"), JSON_END};

static int take_text(char **to, const char *name, const json_t *suffix, const char *key)
{
    const json_t *value = json_object_get(suffix, key);

    if (json_is_null(value) || !value)
        return 0;
    if (!json_is_string(value))
        return say_fail("%s: \"%s\" is not a string", name, key);
    *to = strdup(json_string_value(value));
    return *to ? 0 : say_fail("no memory for a prompt");
}

static int take_suffix(struct stdit_prompt *p, const char *suffix, int64_t i)
{
    char name[64];

    snprintf(name, sizeof name, "prompt %lld, from { on", (long long)i);
    json_t *j = json_keys_parse(name, suffix, strlen(suffix));
    int rc = !j || json_keys_check(name, "", j, suffix_keys) ||
                     take_text(&p->reference, name, j, "reference_path") ||
                     take_text(&p->strategy, name, j, "mask_strategy")
                 ? -1
                 : 0;
    json_decref(j);
    return rc;
}

/* ---- segments ------------------------------------------------------------------------------ */

/* Adds a text of n characters, trimmed. */
static int add(struct stdit_prompt *p, const char *text, size_t n, int64_t loop)
{
    static const char blanks[] = " \t\r\n\v\f";
    char **texts = realloc(p->text, (size_t)(p->n + 1) * sizeof *texts);
    int64_t *loops = texts ? realloc(p->loop, (size_t)(p->n + 1) * sizeof *loops) : NULL;

    p->text = texts ? texts : p->text;
    p->loop = loops ? loops : p->loop;
    for (; n && strchr(blanks, *text); text++)
        n--;
    while (n && strchr(blanks, text[n - 1]))
        n--;
    char *copy = loops ? strndup(text, n) : NULL;
    if (!copy)
        return say_fail("no memory for a prompt");
    p->text[p->n] = copy;
    p->loop[p->n++] = loop;
    return 0;
}

/* |0| text |2| text: a segment number between bars, then the segment's text. */
static int take_segments(struct stdit_prompt *p, const char *at, size_t n, int64_t i)
{
    const char *end = at + n;

    while (at < end) {
        char *digits_end;
        long loop = strtol(at + 1, &digits_end, 10);
        const char *bar = digits_end + strspn(digits_end, " ");
        bool number = digits_end > at + 1 && bar < end && *bar == '|';
        if (!number || loop < 0 || loop > 1 << 20)
            return say_fail("prompt %lld: segments are given as |0| text |2| text", (long long)i);
        if (p->n && loop <= p->loop[p->n - 1])
            return say_fail("prompt %lld: segment %ld comes after segment %lld", (long long)i, loop,
                            (long long)p->loop[p->n - 1]);
        const char *next = memchr(bar + 1, '|', (size_t)(end - bar - 1));
        next = next ? next : end;
        if (add(p, bar + 1, (size_t)(next - bar - 1), loop))
            return -1;
        at = next;
    }
    return 0;
}

/* ---- the whole prompt ---------------------------------------------------------------------- */

int stdit_prompt_read(struct stdit_prompt *p, const char *prompt, int64_t i)
{
    size_t n = strcspn(prompt, "{");

    *p = (struct stdit_prompt){.n = 0};
    if (prompt[n] && take_suffix(p, prompt + n, i))
        return -1;
    return strncmp(prompt, "|0|", 3) ? add(p, prompt, n, 0) : take_segments(p, prompt, n, i);
}

void stdit_prompt_free(struct stdit_prompt *p)
{
    for (int64_t i = 0; i < p->n; i++)
        free(p->text[i]);
    free(p->text);
    free(p->loop);
    free(p->reference);
    free(p->strategy);
    *p = (struct stdit_prompt){.n = 0};
}

int64_t stdit_prompt_text_of(const struct stdit_prompt *p, int64_t loop)
{
    int64_t i = p->n - 1;

    while (i > 0 && p->loop[i] > loop)
        i--;
    return i;
}
