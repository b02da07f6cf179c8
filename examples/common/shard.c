/* SPDX-License-Identifier: Apache-2.0 */
/* Members of tar files, by libarchive: see shard.h. */
#include "shard.h"
#include "say.h"

#ifdef HAVE_LIBARCHIVE

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "ckpt_tools.h"

struct shard {
    const char *path;
    const uint8_t *bytes; /* the mapped file */
    size_t size;
};

static int map(struct shard *s)
{
    struct stat st;
    FILE *f;

    if (ckpt_input_open(&f, s->path))
        return say_fail("%s", ckpt_error(NULL));
    s->size = fstat(fileno(f), &st) ? 0 : (size_t)st.st_size;
    void *bytes = s->size ? mmap(NULL, s->size, PROT_READ, MAP_PRIVATE, fileno(f), 0) : MAP_FAILED;
    int error = errno;
    fclose(f);
    if (bytes == MAP_FAILED)
        return say_fail("%s: %s", s->path, s->size ? strerror(error) : "is empty");
    s->bytes = bytes;
    return 0;
}

static bool is_wanted(struct archive_entry *e)
{
    const char *name = archive_entry_pathname(e), *slash = name ? strrchr(name, '/') : NULL;
    const char *base = slash ? slash + 1 : name;
    size_t n = base ? strlen(base) : 0;

    return archive_entry_filetype(e) == AE_IFREG && !archive_entry_hardlink(e) &&
           archive_entry_size(e) > 0 && n &&
           !(n > 4 && !strncmp(base, "__", 2) && !strcmp(base + n - 2, "__"));
}

enum {
    ELSEWHERE = -1, /* not stored contiguously: a member with holes */
    CUT = -2        /* beyond the end of the file */
};

/* The offset of a member's bytes.  libarchive returns pointers into the mapped file. */
static int64_t start_of(const struct shard *s, struct archive *a, struct archive_entry *e)
{
    const void *block;
    size_t n;
    la_int64_t offset;

    if (archive_read_data_block(a, &block, &n, &offset) != ARCHIVE_OK)
        return CUT;
    const uint8_t *at = block;
    if (offset || at < s->bytes || at >= s->bytes + s->size)
        return ELSEWHERE;
    return archive_entry_size(e) <= s->bytes + s->size - at ? at - s->bytes : CUT;
}

/* Returns the number of members, or -1. */
static int64_t read_members(const struct shard *s, struct archive *a,
                            int (*found)(void *, const char *, int64_t, int64_t), void *user)
{
    struct archive_entry *e;
    int64_t n = 0;
    int rc;

    while ((rc = archive_read_next_header(a, &e)) == ARCHIVE_OK || rc == ARCHIVE_WARN) {
        if (!is_wanted(e))
            continue;
        int64_t start = start_of(s, a, e);
        if (start == CUT)
            break;
        if (start < 0)
            return say_fail(
                "%s: %s is not stored in it unchanged; an uncompressed tar file is expected",
                s->path, archive_entry_pathname(e));
        if (found(user, archive_entry_pathname(e), start, archive_entry_size(e)))
            return -1;
        n++;
    }
    if (rc == ARCHIVE_FATAL && !n)
        return say_fail("%s: not a tar file: %s", s->path, archive_error_string(a));
    if (rc != ARCHIVE_EOF)
        say_note("%s: is truncated after %lld members", s->path, (long long)n);
    return n;
}

int shard_read(const char *path,
               int (*found)(void *user, const char *member, int64_t start, int64_t size),
               void *user)
{
    struct shard s = {.path = path};
    struct archive *a;

    if (map(&s))
        return -1;
    a = archive_read_new();
    int64_t n = -1;
    if (!a || archive_read_support_format_tar(a) != ARCHIVE_OK ||
        archive_read_open_memory(a, s.bytes, s.size) != ARCHIVE_OK)
        say_fail("%s: not a tar file: %s", path, a ? archive_error_string(a) : "no memory");
    else
        n = read_members(&s, a, found, user);
    archive_read_free(a);
    munmap((void *)(uintptr_t)s.bytes, s.size);
    return n < 0 ? -1 : 0;
}

#else

int shard_read(const char *path,
               int (*found)(void *user, const char *member, int64_t start, int64_t size),
               void *user)
{
    (void)found;
    (void)user;
    return say_fail("%s: built without libarchive, this program reads no tar files", path);
}

#endif
