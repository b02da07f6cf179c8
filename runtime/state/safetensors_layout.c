/* SPDX-License-Identifier: Apache-2.0 */
/* The header that a writer puts before its tensors. */
#include <stdlib.h>
#include <string.h>
#include "core/checksum.h"
#include "core/json.h"
#include "ckpt_files.h"
#include "state/safetensors.h"

#define PAGE 4096 /* the data starts on a page, for direct I/O and mmap */

static const char *format_name(enum ckpt_dtype dtype)
{
    static const char *const names[] = {[CKPT_F32] = "F32",
                                        [CKPT_BF16] = "BF16",
                                        [CKPT_I32] = "I32",
                                        [CKPT_F8E4M3] = "F8_E4M3",
                                        [CKPT_F8E5M2] = "F8_E5M2"};

    return names[dtype];
}

static void put_entry(FILE *f, const struct pending *e, int64_t begin)
{
    fputc(',', f);
    json_write_string(f, e->name);
    fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[",
            e->stored ? e->stored->name : format_name(e->dtype));
    for (int i = 0; i < e->ndim; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)e->shape[i]);
    fprintf(f, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)(begin + e->bytes));
}

static void put_note(FILE *f, const char *key, const char *text)
{
    fputc(',', f);
    json_write_string(f, key);
    fputc(':', f);
    json_write_string(f, text);
}

/* The header's own checksum is filled in when the text is complete. */
static void put_sums(FILE *f, const ckpt_file_writer *w)
{
    put_note(f, NOTE_SUM, CHECKSUM_NAME);
    put_note(f, NOTE_SUM_HEADER, "0000000000000000");
    fputs(",\"" NOTE_SUM_DATA "\":\"", f);
    for (int64_t i = 0; i < w->count; i++)
        if (w->tensors.data[i].bytes)
            fprintf(f, "%016llx", (unsigned long long)w->tensors.data[i].sum);
    fputc('"', f);
}

/* Other safetensors readers expect the "format" entry in the metadata. */
static void put_json(FILE *f, const ckpt_file_writer *w, bool sums)
{
    int64_t begin = 0;

    fputs("{\"__metadata__\":{\"format\":\"pt\"", f);
    for (int i = 0; i < w->n_notes; i++)
        put_note(f, w->notes[i].key, w->notes[i].text);
    if (sums)
        put_sums(f, w);
    fputc('}', f);
    for (int64_t i = 0; i < w->count; i++) {
        put_entry(f, &w->tensors.data[i], begin);
        begin += w->tensors.data[i].bytes;
    }
    fputc('}', f);
}

static char *make_json(const ckpt_file_writer *w, bool sums)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    put_json(f, w, sums);
    text_close(f, &text);
    return text;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_unique(const ckpt_file_writer *w)
{
    const char **names = calloc((size_t)w->count + 1, sizeof(names[0]));
    int rc = 0;

    if (!names)
        return error_set(CKPT_ENOMEM, "%s: no memory for the header", w->path);
    for (int64_t i = 0; i < w->count; i++)
        names[i] = w->tensors.data[i].name;
    qsort(names, (size_t)w->count, sizeof(names[0]), compare_names);
    for (int64_t i = 1; i < w->count && !rc; i++) {
        if (!strcmp(names[i - 1], names[i]))
            rc = error_set(CKPT_EINVAL, "%s: tensor '%s' was added twice", w->path, names[i]);
    }
    free(names);
    return rc;
}

/* Joins length, JSON and padding to a page, and fills in the header's checksum if there is one. */
static int pad_header(const ckpt_file_writer *w, const char *json, char **text, int64_t *size)
{
    int64_t n = (int64_t)strlen(json);
    uint64_t length = (uint64_t)(round_up(8 + n, PAGE) - 8);

    if ((int64_t)length > HEADER_MAX)
        return error_set(CKPT_EINVAL, "%s: the header of %lld tensors is too long for the format",
                         w->path, (long long)w->count);
    *size = 8 + (int64_t)length;
    *text = malloc((size_t)*size);
    if (!*text)
        return error_set(CKPT_ENOMEM, "%s: no memory for the header", w->path);
    memset(*text, ' ', (size_t)*size);
    memcpy(*text, &length, sizeof(length));
    memcpy(*text + 8, json, (size_t)n);
    file_seal_header(*text, *size);
    return 0;
}

int file_make_header(const ckpt_file_writer *w, bool sums, char **text, int64_t *size)
{
    int rc = check_unique(w);

    if (rc)
        return rc;
    char *json = make_json(w, sums);
    if (!json)
        return error_set(CKPT_ENOMEM, "%s: no memory for the header", w->path);
    rc = pad_header(w, json, text, size);
    free(json);
    return rc;
}
