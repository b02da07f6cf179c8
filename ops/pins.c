/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded algorithm choices: see pins.h. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "pins.h"

void pins_free(struct pins *p)
{
    for (int64_t i = 0; i < p->n; i++)
        free(p->data[i].choice);
    free(p->data);
    *p = (struct pins){0};
}

/* The index of the key, or the index where it would be inserted. */
static int64_t find(const struct pins *p, uint64_t key)
{
    int64_t low = 0, high = p->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (p->data[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const char *pins_get(const struct pins *p, uint64_t key)
{
    int64_t i = find(p, key);
    return i < p->n && p->data[i].key == key ? p->data[i].choice : NULL;
}

int pins_put(struct pins *p, uint64_t key, const char *choice, enum pin_origin origin)
{
    int64_t i = find(p, key);
    char *copy = strdup(choice);
    if (!copy)
        return CKPT_ENOMEM;
    if (i < p->n && p->data[i].key == key) {
        free(p->data[i].choice);
    } else {
        if (ARRAY_RESERVE(p, p->n)) {
            free(copy);
            return CKPT_ENOMEM;
        }
        memmove(p->data + i + 1, p->data + i, (size_t)(p->n - i) * sizeof *p->data);
        p->n++;
    }
    p->data[i] = (struct pin){key, copy, origin};
    return 0;
}

int pins_set(struct pins *p, uint64_t key, const char *choice)
{
    return pins_put(p, key, choice, PIN_GIVEN);
}

int64_t pins_count(const struct pins *p, enum pin_origin origin)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n; i++)
        n += p->data[i].origin == origin;
    return n;
}

int pins_add(struct pins *p, const struct pins *from)
{
    int rc = 0;
    for (int64_t i = 0; i < from->n && !rc; i++)
        rc = pins_set(p, from->data[i].key, from->data[i].choice);
    return rc;
}

int pins_write(const struct pins *p, FILE *f)
{
    for (int64_t i = 0; i < p->n; i++)
        if (fprintf(f, "pin %016" PRIx64 " %s\n", p->data[i].key, p->data[i].choice) < 0)
            return CKPT_EIO;
    return 0;
}

int pins_read(struct pins *p, const char *line, bool *is_pin)
{
    *is_pin = strncmp(line, "pin ", 4) == 0;
    if (!*is_pin)
        return 0;
    const char *at = line + 4;
    size_t digits = strspn(at, "0123456789abcdef");
    if (digits != 16 || at[digits] != ' ')
        return CKPT_EFORMAT;
    uint64_t key = strtoull(at, NULL, 16);
    at += digits + 1;
    size_t n = strlen(at);
    while (n && isspace((unsigned char)at[n - 1]))
        n--;
    char *choice = n ? strndup(at, n) : NULL;
    if (!choice)
        return n ? CKPT_ENOMEM : CKPT_EFORMAT;
    int rc = pins_set(p, key, choice);
    free(choice);
    return rc;
}
