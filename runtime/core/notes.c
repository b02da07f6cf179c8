/* SPDX-License-Identifier: Apache-2.0 */
/* Named texts: see notes.h. */
#include "core/notes.h"
#include <stdlib.h>
#include <string.h>

/* Freed by the caller; NULL: out of memory. */
static char *copy_utf8(const char *text)
{
    char *copy = strdup(text);
    bool plain = text_is_utf8(text);

    for (char *s = copy; s && !plain && *s; s++)
        if ((unsigned char)*s >= 0x80)
            *s = '?';
    return copy;
}

static struct note *find(const struct note_list *l, const char *name)
{
    for (int32_t i = 0; i < l->n; i++)
        if (!strcmp(l->data[i].name, name))
            return &l->data[i];
    return NULL;
}

const char *note_find(const struct note_list *l, const char *name)
{
    const struct note *found = find(l, name);

    return found ? found->text : NULL;
}

int note_set(struct note_list *l, const char *name, const char *text)
{
    char *own = copy_utf8(name), *copy = copy_utf8(text);
    struct note *there = own ? find(l, own) : NULL;

    if (!own || !copy || (!there && ARRAY_RESERVE(l, l->n))) {
        free(own);
        free(copy);
        return CKPT_ENOMEM;
    }
    if (there) {
        free(there->name);
        free(there->text);
    } else {
        there = &l->data[l->n++];
    }
    *there = (struct note){own, copy};
    return 0;
}

void note_list_free(struct note_list *l)
{
    for (int32_t i = 0; i < l->n; i++) {
        free(l->data[i].name);
        free(l->data[i].text);
    }
    free(l->data);
    *l = (struct note_list){0};
}
