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
#include <sys/stat.h>
#include <unistd.h>
#include "../../common/json_keys.h"
#include "../../common/say.h"
#include "cache.h"

enum { CHUNK = 1 << 20 /* bytes of a file that are summed at a time; a multiple of WORDS */ };

/* ---- checksums ----------------------------------------------------------------------------- */

/* One step of a checksum.  Part of the file format. */
static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 32);
}

/* Four independent chains, so that multiplications overlap. */
struct sum {
    uint64_t h[4];
};

enum { WORDS = 32 /* bytes of a word of each chain */ };

/* Adds whole words; returns the bytes that are left. */
static size_t sum_add(struct sum *s, const uint8_t *at, size_t bytes)
{
    uint64_t word[4];

    for (; bytes >= WORDS; bytes -= WORDS, at += WORDS) {
        memcpy(word, at, sizeof word);
        for (int i = 0; i < 4; i++)
            s->h[i] = mix(s->h[i], word[i]);
    }
    return bytes;
}

/* The checksum after the last bytes, fewer than WORDS; total: of all. */
static uint64_t sum_end(struct sum *s, const uint8_t *rest, size_t bytes, uint64_t total)
{
    uint64_t word[4] = {0}, sum = total;

    if (bytes)
        memcpy(word, rest, bytes);
    for (int i = 0; i < 4; i++)
        sum = mix(sum, mix(s->h[i], word[i]));
    return sum;
}

#define SUM_BEGIN                                                                                  \
    {                                                                                              \
        {                                                                                          \
            1, 2, 3, 4                                                                             \
        }                                                                                          \
    }

uint64_t cache_sum(const void *data, size_t bytes)
{
    struct sum s = SUM_BEGIN;
    size_t rest = sum_add(&s, data, bytes);

    return sum_end(&s, rest ? (const uint8_t *)data + (bytes - rest) : NULL, rest, bytes);
}

const char *cache_sum_text(char dst[CACHE_SUM], uint64_t sum)
{
    snprintf(dst, CACHE_SUM, "%016llx", (unsigned long long)sum);
    return dst;
}

/* ---- files --------------------------------------------------------------------------------- */

/* Files are read, not mapped: one that another process shortens under way must end in a sentence,
 * and touching a page of a mapping that is gone ends the process by a signal. */
int cache_file_open(const char *path, int *fd, int64_t *size)
{
    struct stat st;

    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return say_fail("%s: %s", path, strerror(errno));
    bool regular = !fstat(*fd, &st) && S_ISREG(st.st_mode);
    if (regular && st.st_size) {
        *size = st.st_size;
        return 0;
    }
    close(*fd);
    *fd = -1;
    return say_fail("%s: is not a regular file, or empty", path);
}

int cache_file_read(const char *path, int fd, void *dst, int64_t bytes, int64_t at)
{
    char *to = dst;

    while (bytes > 0) {
        ssize_t n = pread(fd, to, (size_t)(bytes < 1 << 30 ? bytes : 1 << 30), at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return say_fail("%s: cannot be read: %s", path,
                            n ? strerror(errno) : "it became shorter since it was opened");
        to += n;
        at += n;
        bytes -= n;
    }
    return 0;
}

static int sum_file(const char *path, int fd, int64_t size, uint8_t *chunk, uint64_t *sum)
{
    struct sum s = SUM_BEGIN;
    size_t rest = 0;
    int rc = 0;

    for (int64_t at = 0, n; at < size && !rc; at += n) {
        n = size - at < CHUNK ? size - at : CHUNK;
        rc = cache_file_read(path, fd, chunk, n, at);
        rest = rc ? 0 : sum_add(&s, chunk, (size_t)n);
        if (rest)
            memmove(chunk, chunk + ((size_t)n - rest), rest);
    }
    *sum = mix(*sum, sum_end(&s, chunk, rest, (uint64_t)size));
    return rc;
}

static int add_file(const char *path, uint64_t *sum)
{
    uint8_t *chunk;
    int64_t size;
    int fd;

    if (cache_file_open(path, &fd, &size))
        return -1;
    chunk = malloc(CHUNK);
    int rc =
        chunk ? sum_file(path, fd, size, chunk, sum) : say_fail("%s: no memory to read it", path);
    free(chunk);
    close(fd);
    return rc;
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
    static const char *const names[] = {
        [CACHE_LATENTS] = "latents", [CACHE_TEXT] = "text", [CACHE_SIGHT] = "sight"};

    snprintf(dst, CACHE_PATH, "%s/%s-%05lld.safetensors", dir, names[part], (long long)shard);
}

/* The end of the last tensor: a shard has no bytes after it. */
static int64_t end_of(const json_t *header)
{
    const char *key;
    json_t *value;
    int64_t end = 0;

    json_object_foreach((json_t *)(uintptr_t)header, key, value)
    {
        int64_t to =
            (int64_t)json_integer_value(json_array_get(json_object_get(value, "data_offsets"), 1));
        end = to > end ? to : end;
    }
    return end;
}

/* The header with its length before it, malloc'ed; NULL after an error message. */
static char *read_front(struct cache_shard *s, int fd)
{
    uint64_t n = 0;

    if (s->size <= (int64_t)sizeof n || cache_file_read(s->path, fd, &n, sizeof n, 0) || n < 2 ||
        n > (uint64_t)s->size - sizeof n) {
        say_fail("%s: is not a shard of a cache, or truncated", s->path);
        return NULL;
    }
    s->front = (int64_t)(sizeof n + n);
    char *front = malloc((size_t)s->front);
    if (!front)
        say_fail("%s: no memory for its header of %lld bytes", s->path, (long long)s->front);
    if (front && !cache_file_read(s->path, fd, front, s->front, 0))
        return front;
    free(front);
    return NULL;
}

#define METADATA "__metadata__"

static const struct json_keys metadata_keys[] = {JSON_ONLY("format", "pt"),
                                                 JSON_READ("cache.setup cache.clips"), JSON_END};
static const struct json_keys tensor_keys[] = {JSON_READ("dtype shape data_offsets"), JSON_END};
static const struct json_keys clip_keys[] = {JSON_READ("row name source sum from clip fps bad"),
                                             JSON_END};

/* The key of a tensor is the number of its row. */
static int check_keys(const struct cache_shard *s, const json_t *header)
{
    const char *key;
    json_t *value;
    size_t i;
    int rc = 0;

    json_object_foreach((json_t *)(uintptr_t)header, key, value)
    {
        if (!rc)
            rc = json_keys_check(s->path, key, value,
                                 strcmp(key, METADATA) ? tensor_keys : metadata_keys);
    }
    json_array_foreach(s->clips, i, value) if (!rc) rc =
        json_keys_check(s->path, "cache.clips", value, clip_keys);
    return rc;
}

/* setup NULL: any settings. */
static int read_header(struct cache_shard *s, const char *setup, const json_t *header)
{
    const json_t *about = json_object_get(header, METADATA);
    const char *clips = json_string_value(json_object_get(about, "cache.clips"));
    const char *made = json_string_value(json_object_get(about, "cache.setup"));

    s->clips = clips ? json_keys_parse(s->path, clips, strlen(clips)) : NULL;
    if (!made || !json_is_array(s->clips))
        return say_fail("%s: is not a shard of a cache, or its header is damaged", s->path);
    if (setup && strcmp(made, setup))
        return say_fail("%s: was made with other settings, another encoder, or other "
                        "videos or captions; give another directory, or remove this one and encode "
                        "again",
                        s->path);
    if (check_keys(s, header))
        return -1;
    if (s->size - s->front != end_of(header))
        return say_fail("%s: has %lld bytes of values, and its header says %lld", s->path,
                        (long long)(s->size - s->front), (long long)end_of(header));
    return 0;
}

int cache_shard_open(struct cache_shard *s, const char *path, const char *setup, json_t **header)
{
    int fd;

    *s = (struct cache_shard){.clips = NULL};
    *header = NULL;
    snprintf(s->path, sizeof s->path, "%s", path);
    if (cache_file_open(path, &fd, &s->size))
        return -1;
    char *front = read_front(s, fd);
    close(fd);
    if (!front)
        return -1;
    s->sum = cache_sum(front, (size_t)s->front);
    *header = json_keys_parse(path, front + sizeof(uint64_t), (size_t)s->front - sizeof(uint64_t));
    free(front);
    return *header ? read_header(s, setup, *header) : -1;
}

void cache_shard_close(struct cache_shard *s)
{
    json_decref(s->clips);
    s->clips = NULL;
}

int cache_shard_is_there(const char *path, uint64_t setup, int64_t first, int64_t n)
{
    struct cache_shard s;
    json_t *header;
    char text[CACHE_SUM];

    if (access(path, F_OK))
        return 0;
    int rc = cache_shard_open(&s, path, cache_sum_text(text, setup), &header);
    rc = rc ? rc : cache_shard_check_rows(&s, first, n);
    json_decref(header);
    cache_shard_close(&s);
    return rc ? -1 : 1;
}

int cache_shard_check_rows(const struct cache_shard *s, int64_t first, int64_t n)
{
    const json_t *clip;
    size_t i;

    if ((int64_t)json_array_size(s->clips) != n)
        return say_fail("%s: lists %zu clips, and %lld belong into it", s->path,
                        json_array_size(s->clips), (long long)n);
    json_array_foreach(s->clips, i, clip)
    {
        int64_t row = (int64_t)json_integer_value(json_object_get(clip, "row"));
        if (row != first + (int64_t)i)
            return say_fail("%s: lists clip %lld where clip %lld belongs", s->path, (long long)row,
                            (long long)(first + (int64_t)i));
    }
    return 0;
}
