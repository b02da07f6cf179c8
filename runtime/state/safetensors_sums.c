/* SPDX-License-Identifier: Apache-2.0 */
/* The checksums of a safetensors file: their place in the header, and their comparison. */
#include <string.h>
#include "core/checksum.h"
#include "state/safetensors.h"

#define SEAL "\"" NOTE_SUM_HEADER "\":\""

/* The digits of the header's own checksum, or NULL. */
static char *find_digits(char *text, int64_t n)
{
    char *at = memmem(text, (size_t)n, SEAL, strlen(SEAL));

    if (!at)
        return NULL;
    at += strlen(SEAL);
    return text + n - at < SUM_DIGITS ? NULL : at;
}

/* The checksum of the text with these digits set to zeros; restores them. */
static uint64_t sum_without(char *text, int64_t n, char *digits)
{
    char kept[SUM_DIGITS];

    memcpy(kept, digits, sizeof kept);
    memset(digits, '0', sizeof kept);
    uint64_t sum = checksum(text, n);
    memcpy(digits, kept, sizeof kept);
    return sum;
}

static void put_digits(char *dst, uint64_t sum)
{
    for (int i = 0; i < SUM_DIGITS; i++)
        dst[i] = "0123456789abcdef"[sum >> (60 - 4 * i) & 15];
}

static bool read_digits(const char *text, uint64_t *sum)
{
    *sum = 0;
    for (int i = 0; i < SUM_DIGITS; i++) {
        char ch = text[i];
        if (!(ch >= '0' && ch <= '9') && !(ch >= 'a' && ch <= 'f'))
            return false;
        *sum = *sum << 4 | (uint64_t)(ch <= '9' ? ch - '0' : ch - 'a' + 10);
    }
    return true;
}

void file_seal_header(char *text, int64_t n)
{
    char *digits = find_digits(text, n);

    if (digits)
        put_digits(digits, sum_without(text, n, digits));
}

static int bad_header(const char *path)
{
    return file_bad(path, "the header does not match its checksum: the file is damaged, or another "
                          "program changed it and kept the " NOTE_SUM " notes of its metadata");
}

int file_check_seal(const char *path, char *text, int64_t n)
{
    char *digits = find_digits(text, n);
    uint64_t sum;

    if (!digits)
        return 0;
    if (read_digits(digits, &sum) && sum == sum_without(text, n, digits))
        return 0;
    return bad_header(path);
}

int file_take_sums(struct file_part *p)
{
    const json_t *notes = json_object_get(p->header, "__metadata__");
    const char *name = json_string_value(json_object_get(notes, NOTE_SUM));
    const char *seal = json_string_value(json_object_get(notes, NOTE_SUM_HEADER));
    const char *at = json_string_value(json_object_get(notes, NOTE_SUM_DATA));

    if (!name && !seal && !at)
        return 0;
    if (!name || !seal || !at)
        return bad_header(p->path);
    if (strcmp(name, CHECKSUM_NAME))
        return file_bad(p->path,
                        "has checksums of the kind '%.40s'; this library knows "
                        "'" CHECKSUM_NAME "'",
                        name);
    for (int i = 0; i < p->count; i++) {
        struct file_tensor *e = &p->tensors[i];
        if (e->begin == e->end)
            continue;
        if (strnlen(at, SUM_DIGITS) < SUM_DIGITS || !read_digits(at, &e->sum))
            return bad_header(p->path);
        at += SUM_DIGITS;
    }
    p->summed = true;
    return *at ? bad_header(p->path) : 0;
}

int file_check_sum(const struct file_tensor *e, uint64_t sum)
{
    if (!e->part->summed || e->begin == e->end || sum == e->sum)
        return 0;
    return file_bad(e->part->path, "tensor '%s' does not match its checksum: the file is damaged",
                    e->name);
}
