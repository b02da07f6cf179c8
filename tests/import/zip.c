/* SPDX-License-Identifier: Apache-2.0 */
/* Makes zips of stored members in memory: a little-endian machine, as in safetensors.h. */
#include "import/zip.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(uint8_t *to, size_t *n, size_t room, const void *from, size_t size)
{
    if (size > room - *n)
        abort();
    memcpy(to + *n, from, size);
    *n += size;
}

static void put_data(struct zip *z, const void *from, size_t size)
{
    put(z->data, &z->n, ZIP_ROOM, from, size);
}

static void put_list(struct zip *z, const void *from, size_t size)
{
    put(z->list, &z->n_list, ZIP_LIST_ROOM, from, size);
}

void zip_begin(struct zip *z)
{
    z->n = z->n_list = z->count = 0;
}

void zip_member(struct zip *z, const char *name, const void *data, size_t size)
{
    struct __attribute__((packed)) {
        uint16_t version, flags, method;
        uint32_t time, sum, packed, size;
        uint16_t name, extra;
    } common = {.packed = (uint32_t)size, .size = (uint32_t)size, .name = (uint16_t)strlen(name)};
    struct __attribute__((packed)) {
        uint16_t comment, disk, inner;
        uint32_t outer, begin;
    } more = {.begin = (uint32_t)z->n};

    put_data(z, "PK\3\4", 4);
    put_data(z, &common, sizeof common);
    put_data(z, name, strlen(name));
    put_data(z, data, size);
    put_list(z, "PK\1\2\0\0", 6);
    put_list(z, &common, sizeof common);
    put_list(z, &more, sizeof more);
    put_list(z, name, strlen(name));
    z->count++;
}

void zip_text(struct zip *z, const char *name, const char *text)
{
    zip_member(z, name, text, strlen(text));
}

void zip_end(struct zip *z)
{
    struct __attribute__((packed)) {
        uint16_t disk, list_disk, here, all;
        uint32_t size, begin;
        uint16_t comment;
    } end = {.here = (uint16_t)z->count,
             .all = (uint16_t)z->count,
             .size = (uint32_t)z->n_list,
             .begin = (uint32_t)z->n};

    z->begin = z->n;
    put_data(z, z->list, z->n_list);
    put_data(z, "PK\5\6", 4);
    put_data(z, &end, sizeof end);
}

void zip_archive(struct zip *z, const char *program, const char *weights)
{
    float values[16];

    for (int i = 0; i < 16; i++)
        values[i] = (float)(i + 1);
    zip_begin(z);
    zip_text(z, "m/archive_format", "pt2");
    zip_text(z, "m/archive_version", "0");
    zip_text(z, "m/byteorder", "little");
    zip_text(z, "m/models/model.json", program ? program : "{}");
    zip_text(z, "m/data/weights/model_weights_config.json", weights ? weights : "{\"config\": {}}");
    zip_text(z, "m/data/constants/model_constants_config.json", "{\"config\": {}}");
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "m/data/weights/weight_%d", i);
        zip_member(z, name, values, sizeof values);
    }
    zip_end(z);
}
