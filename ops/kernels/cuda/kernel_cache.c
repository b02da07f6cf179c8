/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled kernels on disk: see kernel_cache.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/checksum.h"
#include "core/file.h"
#include "kernels/cuda/kernel_cache.h"

enum { MOST = 64 << 20 }; /* largest image that is accepted, in bytes */

struct header {
    char magic[8];
    uint64_t check, bytes, sum;
};

static const char magic[8] = "ckptkrn1";

struct kernel_key kernel_key_of(const char *source, const char *options, int arch, int version)
{
    char rest[160];
    snprintf(rest, sizeof rest, "%s sm_%d nvrtc %d", options, arch, version);
    int64_t n = (int64_t)strlen(source);
    return (struct kernel_key){.name = hash_mix(hash_text(source), (int64_t)hash_text(rest)),
                               .check = checksum(source, n) ^
                                        checksum(rest, (int64_t)strlen(rest)) ^ (uint64_t)n};
}

void kernel_cache_directory(char *dst, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (cache && *cache == '/')
        n = snprintf(dst, size, "%s/libckpt/kernels", cache);
    else if (home && *home == '/')
        n = snprintf(dst, size, "%s/.cache/libckpt/kernels", home);
    if (n <= 0 || n >= (int)size)
        *dst = '\0';
}

/* Creates the directory and its parents. */
static bool make_directory(char *path)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        int rc = mkdir(path, 0700);
        *p = '/';
        if (rc && errno != EEXIST)
            return false;
    }
    return !mkdir(path, 0700) || errno == EEXIST;
}

/* "<directory>/<key>.cubin"; returns false if there is no directory. */
static bool file_name(const struct kernel_key *key, char *path, size_t size)
{
    char directory[3072];
    kernel_cache_directory(directory, sizeof directory);
    if (!*directory)
        return false;
    return snprintf(path, size, "%s/%016llx.cubin", directory, (unsigned long long)key->name) <
           (int)size;
}

static bool read_entry(FILE *f, const struct kernel_key *key, char **image, size_t *bytes)
{
    struct stat st;
    struct header h;
    if (fstat(fileno(f), &st) || st.st_uid != geteuid() || fread(&h, sizeof h, 1, f) != 1 ||
        memcmp(h.magic, magic, sizeof magic) || h.check != key->check || h.bytes < 1 ||
        h.bytes > MOST || st.st_size != (off_t)(sizeof h + h.bytes))
        return false;
    char *data = malloc((size_t)h.bytes);
    if (data && fread(data, (size_t)h.bytes, 1, f) == 1 &&
        checksum(data, (int64_t)h.bytes) == h.sum) {
        *image = data;
        *bytes = (size_t)h.bytes;
        return true;
    }
    free(data);
    return false;
}

bool kernel_cache_read(const struct kernel_key *key, char **image, size_t *bytes)
{
    char path[4096];
    const char *why;
    FILE *f = file_name(key, path, sizeof path) ? file_open_input(path, &why) : NULL;
    bool good = f && read_entry(f, key, image, bytes);
    if (f)
        fclose(f);
    return good;
}

void kernel_cache_write(const struct kernel_key *key, const char *image, size_t bytes)
{
    struct header h = {.check = key->check, .bytes = bytes, .sum = checksum(image, (int64_t)bytes)};
    struct ckpt_replacement o;
    char path[4096];
    memcpy(h.magic, magic, sizeof magic);
    if (!file_name(key, path, sizeof path))
        return;
    char *end = strrchr(path, '/');
    *end = '\0';
    bool there = make_directory(path);
    *end = '/';
    if (!there || file_replacement_open(&o, path))
        return;
    if (file_write_all(path, o.fd, &h, sizeof h) ||
        file_write_all(path, o.fd, image, (int64_t)bytes))
        file_replacement_abandon(&o);
    else
        file_replacement_commit(&o, false); /* no sync: the checksum detects a crash */
}
