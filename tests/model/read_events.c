/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the event files of a directory as TensorBoard does, for test_tensorboard.sh: in the order
 * of their names, with every checksum verified; a resumed run replaces the steps from its first one
 * on.  Then every number of the steps in LOG must be present once, and no others.  Prints how many
 * numbers there are and each picture.  Usage: read_events DIRECTORY LOG
 */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, TAG = 64 };

static struct value {
    char tag[TAG];
    uint64_t step;
    float number;
    uint32_t width, height; /* of a picture; else 0 */
} all[MOST];
static int n_all;

static void refuse(const char *why, const char *of)
{
    printf("%s: %s\n", why, of);
    exit(1);
}

/* ---- records --------------------------------------------------------------------------------- */

static uint32_t table[256];

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        table[i] = c;
    }
}

static uint32_t masked_crc(const uint8_t *p, size_t n)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++)
        c = table[(c ^ p[i]) & 0xff] ^ c >> 8;
    c = ~c;
    return (c << 17 | c >> 15) + 0xa282ead8u;
}

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* ---- protocol buffers ------------------------------------------------------------------------ */

struct bytes {
    const uint8_t *at, *end;
};

struct field {
    int number, kind;
    uint64_t value;
    struct bytes inside;
};

static uint64_t varint(struct bytes *b)
{
    uint64_t v = 0;
    for (int shift = 0; b->at < b->end; shift += 7) {
        v |= (uint64_t)(*b->at & 0x7f) << shift;
        if (!(*b->at++ & 0x80))
            return v;
    }
    refuse("a number without an end", "");
    return 0;
}

static int next_field(struct bytes *b, struct field *f)
{
    static const int widths[] = {[1] = 8, [5] = 4};
    if (b->at == b->end)
        return 0;
    uint64_t key = varint(b), n = 0;
    *f = (struct field){.number = (int)(key >> 3), .kind = (int)(key & 7)};
    if (f->kind == 0)
        f->value = varint(b);
    else if (f->kind == 2)
        n = varint(b);
    else if (f->kind == 1 || f->kind == 5)
        n = (uint64_t)widths[f->kind];
    else
        refuse("an unknown kind of field", "");
    if (n > (uint64_t)(b->end - b->at))
        refuse("a field that is too long", "");
    f->inside = (struct bytes){b->at, b->at + n};
    b->at += n;
    if (f->kind == 1 || f->kind == 5)
        f->value = little(f->inside.at, (int)n);
    return 1;
}

static void read_image(struct bytes b, struct value *v)
{
    struct field f;
    struct bytes png = {0};
    while (next_field(&b, &f)) {
        if (f.number == 1)
            v->height = (uint32_t)f.value;
        if (f.number == 2)
            v->width = (uint32_t)f.value;
        if (f.number == 4)
            png = f.inside;
    }
    if (png.end - png.at < 24 || memcmp(png.at, "\x89PNG", 4) || !v->width || !v->height)
        refuse("no picture", v->tag);
}

static void read_value(struct bytes b, uint64_t step)
{
    struct field f;
    struct value *v = &all[n_all++];
    *v = (struct value){.step = step};
    if (n_all == MOST)
        refuse("too many values", "");
    while (next_field(&b, &f)) {
        uint32_t bits = (uint32_t)f.value;
        if (f.number == 1)
            snprintf(v->tag, TAG, "%.*s", (int)(f.inside.end - f.inside.at),
                     (const char *)f.inside.at);
        else if (f.number == 2 && f.kind == 5)
            memcpy(&v->number, &bits, 4);
        else if (f.number == 4)
            read_image(f.inside, v);
        else
            refuse("an unknown field of a value", v->tag);
    }
}

/* A session that starts at a step: earlier values from this step on are forgotten. */
static void start_session(uint64_t step)
{
    int kept = 0;
    for (int i = 0; i < n_all; i++)
        if (all[i].step < step)
            all[kept++] = all[i];
    n_all = kept;
}

static void read_event(struct bytes b, int first, const char *path)
{
    struct field f;
    uint64_t step = 0;
    double time = 0;
    while (next_field(&b, &f)) {
        if (f.number == 1)
            memcpy(&time, &f.value, 8);
        else if (f.number == 2)
            step = f.value;
        else if (f.number == 3 && (!first || memcmp(f.inside.at, "brain.Event:2", 13)))
            refuse("not the version", path);
        else if (f.number == 7)
            start_session(step);
        else if (f.number == 5)
            for (struct field v; next_field(&f.inside, &v);)
                read_value(v.inside, step);
    }
    if (time < 1.7e9)
        refuse("no time", path);
}

static void read_file(const char *path)
{
    static uint8_t data[1 << 24];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(data, 1, sizeof data, f) : 0, at = 0;
    if (f)
        fclose(f);
    for (int k = 0; at < n; k++) {
        uint64_t length = n - at < 16 ? UINT64_MAX : little(data + at, 8);
        if (length > n - at - 16)
            refuse("a record that is torn", path);
        if (little(data + at + 8, 4) != masked_crc(data + at, 8) ||
            little(data + at + 12 + length, 4) != masked_crc(data + at + 12, length))
            refuse("a checksum", path);
        read_event((struct bytes){data + at + 12, data + at + 12 + length}, k == 0, path);
        at += length + 16;
    }
}

/* ---- the log --------------------------------------------------------------------------------- */

static struct value *find(const char *tag, uint64_t step)
{
    struct value *found = NULL;
    for (int i = 0; i < n_all; i++)
        if (!strcmp(all[i].tag, tag) && all[i].step == step && !all[i].width) {
            if (found)
                refuse("twice", tag);
            found = &all[i];
        }
    return found;
}

/* The numbers of a line; none if it is the line of the configuration.  Returns how many. */
static int compare_line(json_t *line)
{
    json_t *at = json_object_get(line, "step"), *value;
    const char *key;
    int n = 0;
    at = at ? at : json_object_get(line, "validation_step");
    if (at && !json_number_value(json_object_get(line, "time")))
        refuse("a line without a time", "");
    json_object_foreach(line, key, value)
    {
        if (!at || value == at || !strcmp(key, "time") || json_is_string(value))
            continue;
        const struct value *v = find(key, (uint64_t)json_integer_value(at));
        float number = (float)json_number_value(value);
        if (!v || (json_is_null(value) ? !isnan(v->number)
                                       : fabsf(v->number - number) > 1e-6f * fabsf(number)))
            refuse("missing, or another number", key);
        n++;
    }
    return n;
}

static void compare(const char *path)
{
    FILE *f = fopen(path, "r");
    char line[8192];
    int logged = 0, numbers = 0;
    while (f && fgets(line, sizeof line, f)) {
        json_t *object = json_loads(line, 0, NULL);
        if (!object)
            refuse("no JSON", line);
        logged += compare_line(object);
        json_decref(object);
    }
    if (f)
        fclose(f);
    for (int i = 0; i < n_all; i++)
        if (all[i].width)
            printf("picture %s %llu %ux%u\n", all[i].tag, (unsigned long long)all[i].step,
                   all[i].width, all[i].height);
        else
            numbers++;
    if (numbers != logged)
        refuse("the log has fewer numbers than the events", path);
    printf("numbers %d\n", numbers);
}

static int is_event_file(const struct dirent *d)
{
    return strstr(d->d_name, "tfevents") != NULL;
}

int main(int argc, char **argv)
{
    struct dirent **files;
    char path[4096];
    make_table();
    if (masked_crc((const uint8_t *)"123456789", 9) != 0xc78ab0e5u)
        refuse("crc32c", "this program's own");
    int n = argc == 3 ? scandir(argv[1], &files, is_event_file, alphasort) : -1;
    if (n < 0)
        refuse("usage", "read_events DIRECTORY LOG");
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%.2000s/%.1000s", argv[1], files[i]->d_name);
        read_file(path);
        free(files[i]);
    }
    free(files);
    compare(argv[2]);
    printf("files %d\n", n);
    return 0;
}
