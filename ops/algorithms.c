/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded algorithm choices: see algorithms.h. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "algorithms.h"

void algorithms_free(struct algorithms *p)
{
    for (int64_t i = 0; i < p->n; i++)
        free(p->data[i].choice);
    free(p->data);
    *p = (struct algorithms){0};
}

/* The index of the key, or the index where it would be inserted. */
static int64_t find(const struct algorithms *p, uint64_t key)
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

const char *algorithms_get(const struct algorithms *p, uint64_t key)
{
    int64_t i = find(p, key);
    return i < p->n && p->data[i].key == key ? p->data[i].choice : NULL;
}

int algorithms_put(struct algorithms *p, uint64_t key, const char *choice,
                   enum algorithm_origin origin)
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
    p->data[i] = (struct algorithm){key, copy, origin};
    return 0;
}

int algorithms_set(struct algorithms *p, uint64_t key, const char *choice)
{
    return algorithms_put(p, key, choice, ALGORITHM_GIVEN);
}

int64_t algorithms_count(const struct algorithms *p, enum algorithm_origin origin)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n; i++)
        n += p->data[i].origin == origin;
    return n;
}

int algorithms_add(struct algorithms *p, const struct algorithms *from)
{
    int rc = 0;
    for (int64_t i = 0; i < from->n && !rc; i++)
        rc = algorithms_set(p, from->data[i].key, from->data[i].choice);
    return rc;
}

int algorithms_write(const struct algorithms *p, FILE *f)
{
    for (int64_t i = 0; i < p->n; i++)
        if (fprintf(f, "pin %016" PRIx64 " %s\n", p->data[i].key, p->data[i].choice) < 0)
            return CKPT_EIO;
    return 0;
}

int algorithms_read(struct algorithms *p, const char *line, bool *is_algorithm)
{
    *is_algorithm = strncmp(line, "pin ", 4) == 0;
    if (!*is_algorithm)
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
    int rc = algorithms_set(p, key, choice);
    free(choice);
    return rc;
}
