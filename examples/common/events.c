/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event files: see events.h.  Messages and field numbers follow tensorboard/compat/proto: Event (1
 * wall_time, 2 step, 3 file_version, 5 summary, 7 session_log), Summary.Value (1 tag, 2
 * simple_value, 4 image), Summary.Image (1 height, 2 width, 3 colorspace, 4 encoded string).
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "directory.h"
#include "events.h"
#include "say.h"

#define PREFIX "events.out.tfevents."

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */

/* ---- records --------------------------------------------------------------------------------- */

/* CRC-32C (Castagnoli), bit by bit: events are small and few. */
static uint32_t crc32c(const char *p, size_t n)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < n; i++) {
        crc ^= (uint8_t)p[i];
        for (int k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void put_little(FILE *f, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> (8 * i) & 0xff), f);
}

/* Writes a CRC with TensorFlow's mask, which readers expect. */
static void put_checksum(FILE *f, const char *p, size_t n)
{
    uint32_t crc = crc32c(p, n);

    put_little(f, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

static void put_record(FILE *f, const char *p, size_t n)
{
    char length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (char)((uint64_t)n >> (8 * i) & 0xff);
    fwrite(length, 1, sizeof length, f);
    put_checksum(f, length, sizeof length);
    fwrite(p, 1, n, f);
    put_checksum(f, p, n);
}

/* ---- protocol buffers ------------------------------------------------------------------------ */

static void put_varint(FILE *f, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        fputc((int)(value & 0x7f) | 0x80, f);
    fputc((int)value, f);
}

static size_t varint_size(uint64_t value)
{
    size_t n = 1;

    for (; value >= 0x80; value >>= 7)
        n++;
    return n;
}

static void put_key(FILE *f, int field, int kind)
{
    put_varint(f, (uint64_t)field << 3 | (uint64_t)kind);
}

static void put_number(FILE *f, int field, uint64_t value)
{
    put_key(f, field, VARINT);
    put_varint(f, value);
}

static void put_bytes(FILE *f, int field, const char *p, size_t n)
{
    put_key(f, field, BYTES);
    put_varint(f, n);
    fwrite(p, 1, n, f);
}

static void put_real(FILE *f, int field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_key(f, field, FIXED64);
    put_little(f, bits, 8);
}

static void put_float(FILE *f, int field, double value)
{
    float narrow = (float)value;
    uint32_t bits;

    memcpy(&bits, &narrow, sizeof bits);
    put_key(f, field, FIXED32);
    put_little(f, bits, 4);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void lose(struct events *e)
{
    say_fail("--tensorboard %s: %s; the run continues without it", e->path, strerror(errno));
    directory_remove_empty_file(e->path);
    e->failed = -1;
    if (e->f)
        fclose(e->f);
    e->f = NULL;
}

/* A message in memory; bytes and n are valid after fclose. */
struct message {
    FILE *f;
    char *bytes;
    size_t n;
};

static int message_end(struct message *m)
{
    int rc = ferror(m->f);

    return fclose(m->f) || rc ? -1 : 0;
}

/* Writes an event with one more field: text, a summary, or a session log. */
static void write_event(struct events *e, double when, int64_t step, int field, const char *p,
                        size_t n)
{
    struct message m = {0};

    if (!e->f)
        return;
    m.f = open_memstream(&m.bytes, &m.n);
    if (m.f) {
        put_real(m.f, 1, when);
        put_number(m.f, 2, (uint64_t)step);
        put_bytes(m.f, field, p, n);
    }
    if (!m.f || message_end(&m)) {
        lose(e);
    } else {
        put_record(e->f, m.bytes, m.n);
        if (fflush(e->f) || ferror(e->f))
            lose(e);
    }
    free(m.bytes);
}

/* The stream that collects the values of the current event in memory. */
static FILE *values(struct events *e)
{
    if (e->f && !e->values)
        e->values = open_memstream(&e->bytes, &e->n);
    if (e->f && !e->values)
        lose(e);
    return e->f ? e->values : NULL;
}

static size_t tag_size(const char *tag)
{
    return 2 + strlen(tag); /* key and length, one byte each: the length is below 128 */
}

void events_number(struct events *e, const char *tag, double value)
{
    FILE *f = values(e);

    if (!f)
        return;
    put_key(f, 1, BYTES);
    put_varint(f, tag_size(tag) + 5);
    put_bytes(f, 1, tag, strlen(tag));
    put_float(f, 2, value);
}

static uint32_t big(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;

    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* A PNG file stores width and height after its signature and the header of the first chunk. */
static int put_image(FILE *f, const char *png, size_t n)
{
    enum { WIDTH = 16, HEIGHT = 20, LEAST = 24, RGB = 3 };

    if (n < LEAST)
        return -1;
    put_number(f, 1, big(png + HEIGHT));
    put_number(f, 2, big(png + WIDTH));
    put_number(f, 3, RGB);
    put_bytes(f, 4, png, n);
    return 0;
}

static int read_all(const char *path, struct message *m)
{
    char part[4096];
    size_t n;
    FILE *f;

    if (ckpt_input_open(&f, path))
        return -1;
    m->f = open_memstream(&m->bytes, &m->n);
    while (m->f && (n = fread(part, 1, sizeof part, f)) > 0)
        fwrite(part, 1, n, m->f);
    fclose(f);
    return m->f ? message_end(m) : -1;
}

void events_picture(struct events *e, const char *tag, const char *png)
{
    struct message file = {0}, image = {0};
    FILE *f = values(e);
    int rc = -1;

    if (!f)
        return;
    if (!read_all(png, &file) && (image.f = open_memstream(&image.bytes, &image.n))) {
        rc = put_image(image.f, file.bytes, file.n);
        rc = message_end(&image) ? -1 : rc;
    }
    if (!rc) {
        put_key(f, 1, BYTES);
        put_varint(f, tag_size(tag) + 1 + varint_size(image.n) + image.n);
        put_bytes(f, 1, tag, strlen(tag));
        put_bytes(f, 4, image.bytes, image.n);
    } else
        lose(e);
    free(file.bytes);
    free(image.bytes);
}

void events_write(struct events *e, int64_t step, double time)
{
    enum { SUMMARY = 5 };

    if (!e->values)
        return;
    if (ferror(e->values) | fclose(e->values))
        lose(e);
    else
        write_event(e, time, step, SUMMARY, e->bytes, e->n);
    free(e->bytes);
    e->values = NULL;
    e->bytes = NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The time stamp of a new file.  Readers order files by name, so it must exceed the stamps of all
 * files in the directory, whatever the clock says. */
static int64_t next_time(const char *dir, int64_t now)
{
    DIR *d = opendir(dir);
    struct dirent *file;

    while (d && (file = readdir(d))) {
        if (strncmp(file->d_name, PREFIX, strlen(PREFIX)))
            continue;
        int64_t then = strtoll(file->d_name + strlen(PREFIX), NULL, 10);
        now = then >= now && then < INT64_MAX ? then + 1 : now;
    }
    if (d)
        closedir(d);
    return now;
}

/* Writes the format version, and a session start: the file's events begin at step `first`. */
static void write_head(struct events *e, int64_t now, int64_t first)
{
    static const char version[] = "brain.Event:2", start[] = {1 << 3, 1};
    enum { FILE_VERSION = 3, SESSION_LOG = 7 };

    write_event(e, (double)now, 0, FILE_VERSION, version, strlen(version));
    write_event(e, (double)now, first, SESSION_LOG, start, sizeof start);
}

int events_open(struct events *e, const char *dir, int64_t first)
{
    char host[256] = "host";
    int64_t now = (int64_t)time(NULL);

    *e = (struct events){.f = NULL};
    if (!dir)
        return 0;
    gethostname(host, sizeof host - 1);
    int n = snprintf(e->path, sizeof e->path, "%s/" PREFIX "%010" PRId64 ".%s.%ld", dir,
                     next_time(dir, now), host, (long)getpid());
    if (n >= (int)sizeof e->path)
        return say_fail("--tensorboard %s: %s", dir, strerror(ENAMETOOLONG));
    if (directory_make(dir))
        return -1;
    if (ckpt_log_open(&e->f, e->path))
        return say_fail("--tensorboard %s", ckpt_error(NULL));
    write_head(e, now, first);
    return 0;
}

int events_close(struct events *e)
{
    if (e->values)
        fclose(e->values);
    free(e->bytes);
    if (e->f && fclose(e->f)) {
        e->f = NULL;
        lose(e);
    }
    *e = (struct events){.failed = e->failed};
    return e->failed;
}
