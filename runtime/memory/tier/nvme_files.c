/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the NVMe tier: opening, striping, lengths. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "memory/tier/nvme.h"

#define HEADROOM (INT64_C(1) << 30) /* bytes left free on a disk; at most a 64th of it */

enum { TRIES = 8 };

static const char tier_name[] = "nvme tier";

/* ---- stripes ----------------------------------------------------------------------------------
 */

/*
 * Divides the arena into zones: all files take part until the smallest is full, then the others,
 * and so on.  Drives mostly differ in size, not in speed, and the first bytes are used the most.
 */
static void make_zones(struct nvme_files *f)
{
    int64_t start = 0, from = 0;
    for (;;) {
        int64_t next = INT64_MAX;
        struct nvme_zone z = {.from = from, .start = start};
        for (int32_t i = 0; i < f->n; i++) {
            if (f->at[i].capacity <= start)
                continue;
            z.file[z.n++] = i;
            next = min_i64(next, f->at[i].capacity);
        }
        if (!z.n)
            return;
        z.bytes = (next - start) * z.n;
        f->zones[f->n_zones++] = z;
        from += z.bytes;
        start = next;
    }
}

static const struct nvme_zone *zone_of(const struct nvme_files *f, int64_t offset)
{
    const struct nvme_zone *z = f->zones;
    while (offset >= z->from + z->bytes)
        z++;
    return z;
}

bool nvme_files_next(const struct nvme_files *f, struct nvme_call *call, struct nvme_piece *p)
{
    if (call->offset >= call->end)
        return false;
    const struct nvme_zone *z = zone_of(f, call->offset);
    int64_t inside = call->offset - z->from, stripe = inside / TIER_STRIPE;
    int64_t skip = inside % TIER_STRIPE;
    *p = (struct nvme_piece){.offset = call->offset,
                             .at = z->start + stripe / z->n * TIER_STRIPE + skip,
                             .bytes = min_i64(TIER_STRIPE - skip, call->end - call->offset),
                             .memory = call->memory,
                             .file = z->file[stripe % z->n]};
    call->offset += p->bytes;
    call->memory += p->bytes;
    return true;
}

/* The length of each file for an arena of `bytes` bytes. */
static void lengths(const struct nvme_files *f, int64_t bytes, int64_t *length)
{
    memset(length, 0, sizeof *length * TIER_DIRECTORIES);
    for (int32_t i = 0; i < f->n_zones && f->zones[i].from < bytes; i++) {
        const struct nvme_zone *z = &f->zones[i];
        int64_t inside = min_i64(bytes - z->from, z->bytes);
        int64_t whole = inside / TIER_STRIPE, part = inside % TIER_STRIPE;
        for (int32_t k = 0; k < z->n; k++) {
            int64_t share = (whole / z->n + (k < whole % z->n)) * TIER_STRIPE;
            if (k == whole % z->n)
                share += part;
            if (share)
                length[z->file[k]] = z->start + share;
        }
    }
}

/* ---- length -----------------------------------------------------------------------------------
 */

/* Each disk must hold the growth of all files on it, and some headroom for other users. */
static int check_space(const struct nvme_files *f, const int64_t *length)
{
    struct statvfs s[TIER_DIRECTORIES];
    for (int32_t i = 0; i < f->n; i++) {
        if (f->sys->statvfs(f->at[i].fd, &s[i]))
            return error_set(CKPT_EIO, "%s: %s: free space: %s", tier_name, f->at[i].directory,
                             strerror(errno));
    }
    for (int32_t i = 0; i < f->n; i++) {
        int64_t unit = (int64_t)s[i].f_frsize, need = 0;
        for (int32_t k = 0; k < f->n; k++) {
            if (k == i || (s[i].f_fsid && s[k].f_fsid == s[i].f_fsid))
                need += max_i64(0, length[k] - f->at[k].bytes);
        }
        int64_t left =
            (int64_t)s[i].f_bavail * unit - min_i64((int64_t)s[i].f_blocks * unit / 64, HEADROOM);
        if (need > max_i64(left, 0))
            return error_set(
                CKPT_ENOMEM,
                "%s: %s: %s (%lld bytes) are needed, the disk has %s free: %lld bytes short",
                tier_name, f->at[i].directory, human_bytes(need), (long long)need,
                human_bytes(max_i64(left, 0)), (long long)(need - max_i64(left, 0)));
    }
    return 0;
}

/* Allocates the blocks now, not when a step needs them.  If the file system cannot, the file is
 * sparse, and `how` says so. */
static int lengthen(struct nvme_files *f, struct nvme_file *file, int64_t bytes)
{
    int rc;
    do
        rc = f->sys->fallocate(file->fd, 0, file->bytes, bytes - file->bytes);
    while (rc && errno == EINTR);
    file->reserved = !rc;
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = f->sys->ftruncate(file->fd, bytes);
    if (!rc)
        return 0;
    return error_set(errno == ENOSPC ? CKPT_ENOMEM : CKPT_EIO,
                     "%s: %s: cannot make the file %s (%lld bytes) long: %s", tier_name,
                     file->directory, human_bytes(bytes), (long long)bytes, strerror(errno));
}

int nvme_files_reserve(struct nvme_files *f, int64_t bytes)
{
    int64_t length[TIER_DIRECTORIES];
    lengths(f, bytes, length);
    int rc = check_space(f, length);
    int32_t i = 0;
    for (; i < f->n && !rc; i++) {
        if (length[i] > f->at[i].bytes)
            rc = lengthen(f, &f->at[i], length[i]);
    }
    for (int32_t k = 0; k < f->n; k++) {
        if (!rc)
            f->at[k].bytes = max_i64(f->at[k].bytes, length[k]);
        else if (k < i && length[k] > f->at[k].bytes &&
                 f->sys->ftruncate(f->at[k].fd, f->at[k].bytes))
            f->at[k].reserved = false; /* longer than needed until the process ends */
    }
    return rc;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

static bool name_needed(int error)
{
    return error == EOPNOTSUPP || error == EISDIR || error == ENOENT || error == ENOSYS;
}

static int close_with(const struct tier_sys *sys, int fd, int error)
{
    sys->close(fd);
    errno = error;
    return -1;
}

/*
 * Opens a file and unlinks it at once.  An existing file of that name was left by a killed process,
 * or another process is about to remove it; either way it is removed.
 */
static int open_and_unlink(const struct tier_sys *sys, const char *directory, int flags)
{
    char path[TIER_PATH + 16];
    int fd = -1;
    snprintf(path, sizeof path, "%s/.ckpt-park", directory);
    for (int i = 0; i < TRIES && fd < 0; i++) {
        fd = sys->open(path, O_CREAT | O_EXCL | flags, 0600);
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (sys->unlink(path) && errno != ENOENT)
            return fd < 0 ? -1 : close_with(sys, fd, errno);
    }
    return fd;
}

static int open_nameless(const struct tier_sys *sys, const char *directory, int flags)
{
    int fd = sys->open(directory, O_TMPFILE | flags, 0600);
    return fd >= 0 || !name_needed(errno) ? fd : open_and_unlink(sys, directory, flags);
}

static int open_file(struct nvme_files *f, struct nvme_file *file, bool direct)
{
    int flags = O_RDWR | O_CLOEXEC;
    if (direct)
        file->fd = open_nameless(f->sys, file->directory, flags | O_DIRECT);
    file->direct = file->fd >= 0;
    if (!direct || (file->fd < 0 && errno == EINVAL))
        file->fd = open_nameless(f->sys, file->directory, flags);
    if (file->fd >= 0)
        return 0;
    return error_set(errno == ENOMEM ? CKPT_ENOMEM : CKPT_EIO,
                     "%s: %s: cannot make a file there: %s", tier_name, file->directory,
                     strerror(errno));
}

static int take_directories(struct nvme_files *f, const struct tier_directories *d)
{
    for (int32_t i = 0; i < d->n; i++) {
        f->at[i] = (struct nvme_file){
            .fd = -1, .directory = strdup(d->at[i].path), .capacity = d->at[i].bytes};
        f->n = i + 1;
        if (!f->at[i].directory)
            return error_set(CKPT_ENOMEM, "%s: out of memory", tier_name);
    }
    return 0;
}

int nvme_files_open(struct nvme_files *f, const struct tier_directories *d,
                    const struct tier_sys *sys, bool direct)
{
    *f = (struct nvme_files){.sys = sys};
    int rc = take_directories(f, d);
    if (!rc)
        make_zones(f);
    for (int32_t i = 0; i < f->n && !rc; i++)
        rc = open_file(f, &f->at[i], direct);
    if (rc)
        nvme_files_close(f);
    return rc;
}

void nvme_files_close(struct nvme_files *f)
{
    for (int32_t i = 0; i < f->n; i++) {
        if (f->at[i].fd >= 0)
            f->sys->close(f->at[i].fd);
        free(f->at[i].directory);
    }
    f->n = 0;
}
