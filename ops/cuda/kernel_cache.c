/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled kernels on disk: see kernel_cache.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/checksum.h"
#include "cuda/kernel_cache.h"

enum { MOST = 64 << 20 }; /* bytes of an image */

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

/* Makes the directory and those above it. */
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

/* "<directory>/<key>.cubin"; false where there is no directory. */
static bool file_name(const struct kernel_key *key, char *path, size_t size)
{
    char directory[3072];
    kernel_cache_directory(directory, sizeof directory);
    if (!*directory)
        return false;
    return snprintf(path, size, "%s/%016llx.cubin", directory, (unsigned long long)key->name) <
           (int)size;
}

static bool read_all(int fd, void *dst, size_t bytes)
{
    char *p = dst;
    while (bytes) {
        ssize_t n = read(fd, p, bytes);
        if (n <= 0)
            return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *src, size_t bytes)
{
    const char *p = src;
    while (bytes) {
        ssize_t n = write(fd, p, bytes);
        if (n <= 0)
            return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool read_entry(int fd, const struct kernel_key *key, char **image, size_t *bytes)
{
    struct stat st;
    struct header h;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        !read_all(fd, &h, sizeof h) || memcmp(h.magic, magic, sizeof magic) ||
        h.check != key->check || h.bytes < 1 || h.bytes > MOST ||
        st.st_size != (off_t)(sizeof h + h.bytes))
        return false;
    char *data = malloc((size_t)h.bytes);
    if (data && read_all(fd, data, (size_t)h.bytes) && checksum(data, (int64_t)h.bytes) == h.sum) {
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
    int fd = file_name(key, path, sizeof path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    bool good = read_entry(fd, key, image, bytes);
    close(fd);
    return good;
}

void kernel_cache_write(const struct kernel_key *key, const char *image, size_t bytes)
{
    struct header h = {.check = key->check, .bytes = bytes, .sum = checksum(image, (int64_t)bytes)};
    char path[4096], own[4128];
    memcpy(h.magic, magic, sizeof magic);
    if (!file_name(key, path, sizeof path))
        return;
    char *end = strrchr(path, '/');
    *end = '\0';
    bool there = make_directory(path);
    *end = '/';
    snprintf(own, sizeof own, "%s.XXXXXX", path);
    int fd = there ? mkostemp(own, O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    bool written = write_all(fd, &h, sizeof h) && write_all(fd, image, bytes);
    if (close(fd) || !written || rename(own, path))
        unlink(own);
}
