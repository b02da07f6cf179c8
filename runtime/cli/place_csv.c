/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of buffers as text: one "id,lower,upper,size" a line. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cli/place_csv.h"
#include "core/file.h"
#include "plan/graph/lines.h"

struct reader {
    struct {
        struct place_item *data;
        int64_t capacity;
    } items;
    struct {
        char **data;
        int64_t capacity;
    } ids;
    struct {
        int64_t *data;
        int64_t capacity;
    } lower, upper;
    int64_t n, total; /* total: the sum of the sizes, which must not overflow */
    const char *path;
    int64_t line;
};

enum { ID, LOWER, UPPER, SIZE, N_FIELDS };
static const char *const field_names[] = {"id", "lower", "upper", "size"};

static int refuse(const struct reader *r, const char *fmt, ...) CKPT_PRINTF(2, 3);
static int refuse(const struct reader *r, const char *fmt, ...)
{
    va_list ap;
    char text[512];
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(CKPT_EFORMAT, "%.400s, line %lld: %s", r->path, (long long)r->line, text);
}

static char *strip(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]);)
        text[--n] = '\0';
    return text;
}

/* Splits a line into its fields. */
static int split(const struct reader *r, char *line, char *fields[N_FIELDS])
{
    int n = 0;
    for (char *next = line; next; n++) {
        char *comma = strchr(next, ',');
        if (comma)
            *comma++ = '\0';
        if (n < N_FIELDS)
            fields[n] = strip(next);
        next = comma;
    }
    if (n != N_FIELDS)
        return refuse(r, "%d field%s, where id,lower,upper,size is expected", n, n == 1 ? "" : "s");
    return 0;
}

static int parse_number(const struct reader *r, int field, const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end)
        return refuse(r, "the %s is \"%.40s\", which is not a whole number of digits 0 to 9",
                      field_names[field], text);
    if (errno)
        return refuse(r, "the %s %.40s is larger than 2^63 - 1", field_names[field], text);
    return 0;
}

static int reserve(struct reader *r)
{
    if (r->n == INT32_MAX || ARRAY_RESERVE(&r->items, r->n) || ARRAY_RESERVE(&r->ids, r->n) ||
        ARRAY_RESERVE(&r->lower, r->n) || ARRAY_RESERVE(&r->upper, r->n))
        return CKPT_ENOMEM;
    return 0;
}

static int take_line(struct reader *r, char *line)
{
    char *fields[N_FIELDS];
    int64_t lower = 0, upper = 0, size = 0;
    int rc = split(r, line, fields);
    if (!rc && !*fields[ID])
        rc = refuse(r, "the id is empty");
    if (!rc)
        rc = parse_number(r, LOWER, fields[LOWER], &lower);
    if (!rc)
        rc = parse_number(r, UPPER, fields[UPPER], &upper);
    if (!rc)
        rc = parse_number(r, SIZE, fields[SIZE], &size);
    if (!rc && upper <= lower)
        rc = refuse(r, "upper %s is not above lower %s", fields[UPPER], fields[LOWER]);
    if (!rc && size == 0)
        rc = refuse(r, "the size is 0");
    if (!rc && size > INT64_MAX / 2 - r->total)
        rc = refuse(r, "the sizes up to here add up to more than 2^62");
    if (!rc)
        rc = reserve(r);
    if (rc)
        return rc;
    r->total += size;
    r->items.data[r->n] = (struct place_item){.bytes = size};
    r->lower.data[r->n] = lower;
    r->upper.data[r->n] = upper;
    r->ids.data[r->n] = strdup(fields[ID]);
    return r->ids.data[r->n++] ? 0 : CKPT_ENOMEM;
}

static bool is_header(const char *line)
{
    char squeezed[32];
    size_t n = 0;
    for (; *line && n + 1 < sizeof(squeezed); line++)
        if (!isspace((unsigned char)*line))
            squeezed[n++] = *line;
    squeezed[n] = '\0';
    return !strcmp(squeezed, "id,lower,upper,size");
}

static int take_lines(struct reader *r, FILE *f)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int rc = 0;
    while (!rc && (length = getline(&line, &room, f)) >= 0) {
        r->line++;
        if (strlen(line) != (size_t)length)
            rc = refuse(r, "a zero byte, so this is not a text file");
        else if (*strip(line) && !(r->line == 1 && is_header(line)))
            rc = take_line(r, line);
    }
    free(line);
    if (!rc && ferror(f)) {
        rc = error_set(CKPT_EIO, "%.400s cannot be read: %s", r->path, strerror(errno));
    }
    return rc;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int32_t rank(const int64_t *times, int64_t n, int64_t time)
{
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (times[mid] < time)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (int32_t)lo;
}

/* Steps are ranks of the starts: an item lasts up to the last start before its end. */
static int rank_times(struct place_file *file)
{
    int64_t *times = malloc(((size_t)file->n + 1) * sizeof(*times));
    if (!times)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < file->n; i++)
        times[i] = file->lower[i];
    qsort(times, (size_t)file->n, sizeof(*times), compare_times);
    for (int32_t i = 0; i < file->n; i++) {
        file->items[i].first = rank(times, file->n, file->lower[i]);
        file->items[i].last = rank(times, file->n, file->upper[i]) - 1;
    }
    free(times);
    return 0;
}

void place_file_free(struct place_file *file)
{
    for (int32_t i = 0; i < file->n; i++)
        free(file->ids[i]);
    free(file->ids);
    free(file->items);
    free(file->lower);
    free(file->upper);
    *file = (struct place_file){0};
}

int place_file_read(const char *path, struct place_file *file)
{
    struct reader r = {.path = path};
    const char *why;
    FILE *f = file_open_input(path, &why);
    *file = (struct place_file){0};
    if (!f) {
        return error_set(CKPT_EIO, "%.400s cannot be opened: %s", path, why);
    }
    int rc = take_lines(&r, f);
    fclose(f);
    *file = (struct place_file){r.items.data, r.ids.data, r.lower.data, r.upper.data, (int32_t)r.n};
    if (!rc)
        rc = rank_times(file);
    if (rc)
        place_file_free(file);
    if (rc == CKPT_ENOMEM)
        error_set(rc, "%.400s does not fit in host memory", path);
    return rc;
}

static void put_offsets(FILE *f, const void *user)
{
    const struct place_file *file = user;
    fputs("id,lower,upper,size,offset\n", f);
    for (int32_t i = 0; i < file->n; i++)
        fprintf(f, "%s,%lld,%lld,%lld,%lld\n", file->ids[i], (long long)file->lower[i],
                (long long)file->upper[i], (long long)file->items[i].bytes,
                (long long)file->items[i].offset);
}

int place_file_write(const struct place_file *file, const char *path)
{
    return lines_write("offsets", path, put_offsets, file);
}
