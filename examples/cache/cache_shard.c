/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums, names and headers of shards (cache.h).  A shard is a safetensors file: 8 bytes with
 * the length of the header, the header in JSON, then the values.  It is complete only if it ends
 * with its last value, and belongs to a cache only if it was made with the same settings.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../common/say.h"
#include "cache.h"

/* ---- checksums ----------------------------------------------------------------------------- */

/* One step of a checksum.  Part of the file format. */
static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 32);
}

/* Four independent chains, so that multiplications overlap. */
uint64_t cache_sum(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t h[4] = {1, 2, 3, 4}, word[4], sum = bytes;

    for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
        memcpy(word, at, sizeof word);
        for (int i = 0; i < 4; i++)
            h[i] = mix(h[i], word[i]);
    }
    memset(word, 0, sizeof word);
    if (bytes)
        memcpy(word, at, bytes);
    for (int i = 0; i < 4; i++)
        sum = mix(sum, mix(h[i], word[i]));
    return sum;
}

/* Maps a whole file; the caller unmaps it. */
static int map(const char *path, uint8_t **bytes, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st)) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return say_fail("%s: %s", path, strerror(error));
    }
    *size = S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
    void *at = *size ? mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    int error = errno;
    close(fd);
    if (at == MAP_FAILED)
        return say_fail("%s: %s", path,
                        *size ? strerror(error) : "is not a regular file, or empty");
    *bytes = at;
    return 0;
}

static int add_file(const char *path, uint64_t *sum)
{
    uint8_t *bytes;
    size_t size;

    if (map(path, &bytes, &size))
        return -1;
    *sum = mix(*sum, cache_sum(bytes, size));
    munmap(bytes, size);
    return 0;
}

static int is_shown(const struct dirent *e)
{
    return *e->d_name != '.';
}

int cache_sum_path(const char *path, uint64_t *sum)
{
    struct dirent **entry;
    char file[CACHE_PATH];
    struct stat st;
    int rc = 0;

    *sum = 0;
    if (stat(path, &st))
        return say_fail("%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return add_file(path, sum);
    int n = scandir(path, &entry, is_shown, alphasort);
    if (n < 0)
        return say_fail("%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name);
        if (!rc && !stat(file, &st) && S_ISREG(st.st_mode) && st.st_size)
            rc = add_file(file, sum);
        free(entry[i]);
    }
    free(entry);
    return rc;
}

uint64_t cache_setup_sum(const json_t *setup)
{
    char *text = json_dumps(setup, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t sum = text ? cache_sum(text, strlen(text)) : 0;

    free(text);
    return sum;
}

/* ---- shards -------------------------------------------------------------------------------- */

void cache_shard_path(char dst[CACHE_PATH], const char *dir, enum cache_part part, int64_t shard)
{
    snprintf(dst, CACHE_PATH, "%s/%s-%05lld.safetensors", dir,
             part == CACHE_TEXT ? "text" : "latents", (long long)shard);
}

/* Bytes of the header. */
static uint64_t front_of(const struct cache_shard *s)
{
    uint64_t n;

    memcpy(&n, s->bytes, sizeof n);
    return n;
}

uint64_t cache_shard_sum(const struct cache_shard *s)
{
    return cache_sum(s->bytes, sizeof(uint64_t) + front_of(s));
}

/* The end of the last tensor: a shard has no bytes after it. */
static size_t end_of(const json_t *header)
{
    const char *key;
    json_t *value;
    size_t end = 0;

    json_object_foreach((json_t *)(uintptr_t)header, key, value)
    {
        size_t to =
            (size_t)json_integer_value(json_array_get(json_object_get(value, "data_offsets"), 1));
        end = to > end ? to : end;
    }
    return end;
}

/* setup NULL: any settings. */
static int read_header(struct cache_shard *s, const char *setup, json_t **header)
{
    uint64_t n = s->size > sizeof n ? front_of(s) : 0;

    if (n < 2 || n > s->size - sizeof n)
        return say_fail("%s: is not a shard of a cache, or truncated", s->path);
    *header = json_loadb((const char *)s->bytes + sizeof n, n, 0, NULL);
    const json_t *about = json_object_get(*header, "__metadata__");
    const char *clips = json_string_value(json_object_get(about, "cache.clips"));
    const char *made = json_string_value(json_object_get(about, "cache.setup"));
    s->clips = clips ? json_loads(clips, 0, NULL) : NULL;
    if (!made || !json_is_array(s->clips))
        return say_fail("%s: is not a shard of a cache, or its header is damaged", s->path);
    if (setup && strcmp(made, setup))
        return say_fail("%s: was made with other settings, another encoder or other data; they are "
                        "in manifest.json",
                        s->path);
    if (s->size != sizeof n + n + end_of(*header))
        return say_fail("%s: has %zu bytes, and its header says %zu", s->path, s->size,
                        sizeof n + n + end_of(*header));
    return 0;
}

int cache_shard_open(struct cache_shard *s, const char *path, const char *setup, json_t **header)
{
    *s = (struct cache_shard){.bytes = NULL};
    *header = NULL;
    snprintf(s->path, sizeof s->path, "%s", path);
    return map(path, &s->bytes, &s->size) ? -1 : read_header(s, setup, header);
}

void cache_shard_close(struct cache_shard *s)
{
    if (s->bytes)
        munmap(s->bytes, s->size);
    json_decref(s->clips);
    *s = (struct cache_shard){.bytes = NULL};
}

int cache_shard_is_there(const char *path, uint64_t setup)
{
    struct cache_shard s;
    json_t *header;
    char text[17];

    if (access(path, F_OK))
        return 0;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)setup);
    int rc = cache_shard_open(&s, path, text, &header);
    json_decref(header);
    cache_shard_close(&s);
    return rc ? -1 : 1;
}
