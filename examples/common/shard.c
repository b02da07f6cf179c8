/* SPDX-License-Identifier: Apache-2.0 */
/* Members of tar files, by libarchive: see shard.h. */
#include "shard.h"
#include <stdlib.h>
#include "say.h"

/* The runs of a member; links share them. */
struct shard_holes {
    struct shard_holes *next;
    struct shard_run run[];
};

void shard_close(struct shard *s)
{
    for (int64_t i = 0; i < s->n; i++)
        free(s->member[i].name);
    free(s->member);
    for (struct shard_holes *h = s->holes, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    *s = (struct shard){.n = 0};
}

#ifdef HAVE_LIBARCHIVE

#include <archive.h>
#include <archive_entry.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "names.h"

enum { BLOCK = 512 /* the unit of tar */ };

/* A tar file while it is read. */
struct reading {
    struct shard *shard;
    const char *path;
    struct archive *archive;
    int fd;
    int64_t size; /* of the file */
    char **link;  /* [members]: the name that a link has for its content; NULL: no link */
    struct names holes, lost, replaced;
};

static bool is_wanted(struct archive_entry *e, const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    size_t n = strlen(base);
    bool named = n && !(n > 4 && !strncmp(base, "__", 2) && !strcmp(base + n - 2, "__"));

    return named && (archive_entry_filetype(e) == AE_IFREG || archive_entry_hardlink(e) ||
                     archive_entry_filetype(e) == AE_IFLNK);
}

/* Where a symbolic link of that name leads to: relative to its directory. */
static char *symlink_target(const char *name, const char *target)
{
    const char *slash = strrchr(name, '/');
    int length = slash && *target != '/' ? (int)(slash + 1 - name) : 0;
    char *path;

    while (!strncmp(target, "./", 2))
        target += 2;
    return asprintf(&path, "%.*s%s", length, name, target) < 0 ? NULL : path;
}

static char *link_of(struct archive_entry *e, const char *name)
{
    const char *hard = archive_entry_hardlink(e), *soft = archive_entry_symlink(e);

    return hard ? strdup(hard) : soft ? symlink_target(name, soft) : NULL;
}

static int grow(struct reading *r)
{
    struct shard *s = r->shard;
    int64_t room = s->room ? 2 * s->room : 64;
    struct shard_member *member = realloc(s->member, (size_t)room * sizeof *member);

    if (member)
        s->member = member;
    char **link = member ? realloc(r->link, (size_t)room * sizeof *link) : NULL;
    if (link)
        r->link = link;
    if (!link)
        return say_fail("%s: no memory for the names of %lld members", r->path, (long long)room);
    s->room = room;
    return 0;
}

/* The offset of a member's bytes, which fill whole blocks before what libarchive reads next; -1:
 * the file does not have all of them. */
static int64_t place_of(const struct reading *r, int64_t size)
{
    if (archive_read_data_skip(r->archive) != ARCHIVE_OK)
        return -1;
    /* Some versions of libarchive skip what is not there without a word. */
    int64_t end = archive_filter_bytes(r->archive, 0);
    return end <= r->size ? end - (size + BLOCK - 1) / BLOCK * BLOCK : -1;
}

/* ---- holes --------------------------------------------------------------------------------- */

/* The bytes that the file has of a member with holes; -1: the runs do not ascend. */
static int64_t stored_of(struct archive_entry *e)
{
    int64_t at, bytes, end = 0, stored = 0;

    archive_entry_sparse_reset(e);
    while (archive_entry_sparse_next(e, &at, &bytes) == ARCHIVE_OK) {
        if (at < end || bytes < 0 || bytes > archive_entry_size(e) - at)
            return -1;
        stored += bytes;
        end = at + bytes;
    }
    return stored;
}

/* Sets the runs of a member, which follow each other in the file. */
static int take_holes(struct reading *r, struct archive_entry *e, struct shard_member *m)
{
    int n = archive_entry_sparse_reset(e);
    struct shard_holes *h = malloc(sizeof *h + (size_t)n * sizeof *h->run);
    int64_t at, bytes, start = m->start;

    if (!h)
        return say_fail("%s: no memory for the holes of a member", r->path);
    h->next = r->shard->holes;
    r->shard->holes = h;
    m->run = h->run;
    while (m->runs < n && archive_entry_sparse_next(e, &at, &bytes) == ARCHIVE_OK) {
        h->run[m->runs++] = (struct shard_run){at, bytes, start};
        start += bytes;
    }
    return 0;
}

/* ---- members ------------------------------------------------------------------------------- */

/* Sets where the bytes of a member are.  Returns 1; 0 if the file ends within them; 2 if its holes
 * are stored in a way that is not known here; or -1 after an error message. */
static int take_place(struct reading *r, struct archive_entry *e, struct shard_member *m)
{
    bool holes = archive_entry_sparse_count(e) > 0;
    int64_t begin = archive_filter_bytes(r->archive, 0);
    int64_t stored = holes ? stored_of(e) : archive_entry_size(e);

    if (stored < 0)
        return 2;
    m->size = archive_entry_size(e);
    m->start = place_of(r, stored);
    if (m->start < 0)
        return 0;
    if (!holes)
        return 1;
    if (m->start != begin)
        return 2;
    return take_holes(r, e, m) ? -1 : 1;
}

/* Adds a member.  Returns 1, 0 if the file ends within it, or -1 after an error message. */
static int add(struct reading *r, struct archive_entry *e, const char *name)
{
    struct shard *s = r->shard;
    struct shard_member m = {.start = -1};
    bool links = archive_entry_hardlink(e) || archive_entry_filetype(e) == AE_IFLNK;
    int rc = links ? 1 : take_place(r, e, &m);

    if (rc == 2)
        names_add(&r->holes, name);
    if (rc != 1)
        return rc == 2 ? 1 : rc;
    if (s->n == s->room && grow(r))
        return -1;
    m.name = strdup(name);
    char *link = links ? link_of(e, name) : NULL;
    if (!m.name || (links && !link)) {
        free(m.name);
        free(link);
        return say_fail("%s: no memory for the name of a member", r->path);
    }
    r->link[s->n] = link;
    s->member[s->n++] = m;
    return 1;
}

/* Whether anything but zeros follows the end of the archive. */
static bool has_more(const struct reading *r)
{
    char block[1 << 14];
    ssize_t n;

    for (off_t at = archive_filter_bytes(r->archive, 0);
         (n = pread(r->fd, block, sizeof block, at)) > 0; at += n)
        for (ssize_t i = 0; i < n; i++)
            if (block[i])
                return true;
    return false;
}

static int read_members(struct reading *r)
{
    struct archive_entry *e;
    int rc, whole = 1;

    while (whole > 0 &&
           ((rc = archive_read_next_header(r->archive, &e)) == ARCHIVE_OK || rc == ARCHIVE_WARN)) {
        const char *name = archive_entry_pathname(e);
        if (name && is_wanted(e, name))
            whole = add(r, e, name);
    }
    if (whole < 0)
        return -1;
    if (rc == ARCHIVE_FATAL && !r->shard->n)
        return say_fail("%s: not a tar file: %s", r->path, archive_error_string(r->archive));
    if (rc != ARCHIVE_EOF)
        say_note("%s: is truncated after %lld members", r->path, (long long)r->shard->n);
    else if (has_more(r))
        say_note("%s: has more behind its end, as tar files that were joined by cat, which is left "
                 "out: tar --concatenate joins them",
                 r->path);
    return 0;
}

/* ---- links --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct shard_member *x = *(struct shard_member *const *)a,
                              *y = *(struct shard_member *const *)b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x > y) - (x < y);
}

static int find(const void *name, const void *member)
{
    return strcmp(name, (*(struct shard_member *const *)member)->name);
}

/* Sorts the members by name.  A member replaces those of its name before it, as tar -r adds it and
 * tar -x extracts them.  Returns the number that is left. */
static int64_t sort(struct reading *r, struct shard_member **sorted)
{
    struct shard *s = r->shard;
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        sorted[i] = &s->member[i];
    qsort(sorted, (size_t)s->n, sizeof *sorted, by_name);
    for (int64_t i = 0; i < s->n; i++) {
        struct shard_member *m = sorted[i];
        if (i + 1 < s->n && !strcmp(m->name, sorted[i + 1]->name)) {
            m->start = -1;
            free(r->link[m - s->member]);
            r->link[m - s->member] = NULL;
        } else {
            sorted[n++] = m;
        }
    }
    return n;
}

/* Removes links to nothing, which still have their target, and members that were replaced. */
static void remove_lost(struct reading *r)
{
    struct shard *s = r->shard;
    int64_t kept = 0;

    for (int64_t i = 0; i < s->n; i++) {
        if (s->member[i].start >= 0) {
            s->member[kept++] = s->member[i];
            continue;
        }
        names_add(r->link[i] ? &r->lost : &r->replaced, s->member[i].name);
        free(s->member[i].name);
    }
    s->n = kept;
}

/* Gives links the bytes of the members that they name.  A link may name a link before it. */
static int follow_links(struct reading *r)
{
    struct shard *s = r->shard;
    struct shard_member **sorted = malloc(((size_t)s->n + 1) * sizeof *sorted);

    if (!sorted)
        return say_fail("%s: no memory to find links", r->path);
    int64_t n = sort(r, sorted);
    for (int64_t i = 0; i < s->n; i++) {
        struct shard_member **to =
            r->link[i] ? bsearch(r->link[i], sorted, (size_t)n, sizeof *sorted, find) : NULL;
        if (!to)
            continue;
        char *name = s->member[i].name;
        s->member[i] = **to;
        s->member[i].name = name;
    }
    free(sorted);
    remove_lost(r);
    return 0;
}

static int read_shard(struct reading *r)
{
    int rc = read_members(r);
    int64_t all = r->shard->n;

    rc = rc ? rc : follow_links(r);
    for (int64_t i = 0; i < all; i++)
        free(r->link[i]);
    names_report(&r->holes, r->path,
                 "left out, because their holes are stored in a way that is not known here (make "
                 "it without --sparse)");
    names_report(&r->replaced, r->path, "replaced by later members of the same name");
    names_report(&r->lost, r->path, "left out, because they are links to nothing in it");
    return rc;
}

int shard_open(struct shard *s, const char *path)
{
    struct reading r = {.shard = s, .path = path};
    struct stat st;
    FILE *f;

    *s = (struct shard){.n = 0};
    if (ckpt_input_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    r.fd = fileno(f);
    r.size = fstat(r.fd, &st) ? 0 : st.st_size;
    r.archive = archive_read_new();
    int rc;
    if (!r.size)
        rc = say_fail("%s: is empty", path);
    else if (!r.archive || archive_read_support_format_tar(r.archive) != ARCHIVE_OK ||
             archive_read_open_FILE(r.archive, f) != ARCHIVE_OK)
        rc = say_fail("%s: not a tar file: %s", path,
                      r.archive ? archive_error_string(r.archive) : "no memory");
    else
        rc = read_shard(&r);
    archive_read_free(r.archive);
    fclose(f);
    free(r.link);
    return rc;
}

#else

int shard_open(struct shard *s, const char *path)
{
    *s = (struct shard){.n = 0};
    return say_fail("%s: built without libarchive, this program reads no tar files", path);
}

#endif
