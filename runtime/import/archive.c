/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The central directory of a zip, at the end of the file, is the only list of members that counts:
 * the header before a member's data has no size where the writer did not know it yet.  That header
 * is read once for each member, because its name and its padding (data begin on 64 bytes) decide
 * where the data begin.
 *
 * Always holds after archive_open: a member lies before the central directory, names are distinct,
 * relative UTF-8 without "..", and all sizes together are no more than the file.
 */
#include "import/archive.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/crc32.h"
#include "state/safetensors.h"

#define DIRECTORY_MAX ((uint64_t)256 << 20) /* bytes: two million members */
#define JSON_MAX      ((uint64_t)1 << 30)   /* bytes: fifty times the graph of 40 large layers */

enum {
    END_SIZE = 22,       /* of the record at the end of the file, before its comment */
    COMMENT_MAX = 65535, /* of that comment */
    LOCATOR_SIZE = 20,   /* of the pointer to the ZIP64 record, directly before the end record */
    END64_SIZE = 56,
    ENTRY_SIZE = 46, /* of an entry of the directory, before its name */
    LOCAL_SIZE = 30, /* of the header before a member's data, before its name */
    IS_ENCRYPTED = 1 | 1 << 6 | 1 << 13,
};

struct archive {
    char *path;
    int fd;
    uint64_t size;     /* of the file, when it was opened */
    uint64_t begin;    /* of the central directory: all data lie before it */
    char *names, *end; /* of all members, each with its 0; the end of those that are in use */
    struct archive_member *members; /* sorted by name */
    int64_t count;
};

/* An entry of the central directory. */
struct entry {
    const uint8_t *name, *extra;
    uint32_t name_size, extra_size, comment_size;
    uint32_t flags, method, disk, sum;
    uint64_t at;                  /* of the entry in the file */
    uint64_t packed, size, local; /* bytes stored, bytes of the member, position of its header */
};

static uint32_t u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const uint8_t *p)
{
    return u16(p) | u16(p + 2) << 16;
}

static uint64_t u64(const uint8_t *p)
{
    return u32(p) | (uint64_t)u32(p + 4) << 32;
}

/* Whether [begin, begin + size) lies in [0, limit). */
static bool inside(uint64_t begin, uint64_t size, uint64_t limit)
{
    return size <= limit && begin <= limit - size;
}

static int read_file(const struct archive *a, uint64_t at, void *to, uint64_t n)
{
    return file_read_at(a->path, a->fd, to, (int64_t)n, (int64_t)at);
}

/* ---- the end of the file --------------------------------------------------------------------- */

/* Where the directory is, and its number of entries. */
struct directory {
    uint64_t begin, size, count;
    uint64_t end; /* of what may hold it: the position of the first record behind it */
};

/* The last record whose comment reaches exactly to the end of the file, or NULL. */
static const uint8_t *find_end(const uint8_t *tail, size_t n)
{
    for (size_t at = n >= END_SIZE ? n - END_SIZE + 1 : 0; at-- > 0;)
        if (!memcmp(tail + at, "PK\5\6", 4) && u16(tail + at + 20) == n - at - END_SIZE)
            return tail + at;
    return NULL;
}

/* The record with 64-bit numbers; at: position of its locator. */
static int read_end64(const struct archive *a, uint64_t at, struct directory *d)
{
    uint8_t locator[LOCATOR_SIZE], end[END64_SIZE];
    int rc = read_file(a, at, locator, sizeof locator);

    if (rc)
        return rc;
    uint64_t record = u64(locator + 8);
    if (!inside(record, END64_SIZE, at))
        return file_bad(a->path, "is damaged: its ZIP64 record would lie outside the file");
    rc = read_file(a, record, end, sizeof end);
    if (rc)
        return rc;
    if (memcmp(end, "PK\6\6", 4))
        return file_bad(a->path, "is damaged: there is no ZIP64 record where it should be");
    if (u32(end + 16) || u32(end + 20) || u64(end + 24) != u64(end + 32))
        return file_bad(a->path, "is a part of a zip of several files, which is not supported");
    *d = (struct directory){u64(end + 48), u64(end + 40), u64(end + 32), record};
    return 0;
}

static bool has_locator(const struct archive *a, uint64_t at)
{
    uint8_t mark[4];

    return at >= LOCATOR_SIZE && !read_file(a, at - LOCATOR_SIZE, mark, 4) &&
           !memcmp(mark, "PK\6\7", 4);
}

/* end: the end record, which lies at `at` in the file. */
static int read_end(const struct archive *a, const uint8_t *end, uint64_t at, struct directory *d)
{
    *d = (struct directory){u32(end + 16), u32(end + 12), u16(end + 10), at};
    if (has_locator(a, at))
        return read_end64(a, at - LOCATOR_SIZE, d);
    if (u16(end + 4) || u16(end + 6) || u16(end + 8) != u16(end + 10))
        return file_bad(a->path, "is a part of a zip of several files, which is not supported");
    return 0;
}

static int check_directory(const struct archive *a, const struct directory *d)
{
    if (!inside(d->begin, d->size, d->end))
        return file_bad(a->path,
                        "is damaged: the list of its members would be %llu bytes at %llu, outside "
                        "the file",
                        (unsigned long long)d->size, (unsigned long long)d->begin);
    if (d->size > DIRECTORY_MAX)
        return file_bad(a->path, "has a list of members of %llu bytes, the limit is %llu",
                        (unsigned long long)d->size, (unsigned long long)DIRECTORY_MAX);
    if (d->count > d->size / ENTRY_SIZE)
        return file_bad(a->path, "is damaged: %llu members do not fit in a list of %llu bytes",
                        (unsigned long long)d->count, (unsigned long long)d->size);
    return 0;
}

static int find_directory(const struct archive *a, struct directory *d)
{
    uint64_t n = a->size < END_SIZE + COMMENT_MAX ? a->size : END_SIZE + COMMENT_MAX;
    uint8_t *tail = malloc((size_t)n + 1);

    if (!tail)
        return error_set(CKPT_ENOMEM, "%s: no memory to open it", a->path);
    char head[2] = "";
    int rc = read_file(a, a->size - n, tail, n);
    const uint8_t *end = rc ? NULL : find_end(tail, (size_t)n);
    if (!rc && !end && n >= 2)
        rc = read_file(a, 0, head, 2);
    if (!rc && !end)
        rc = file_bad(a->path, head[0] == 'P' && head[1] == 'K'
                                   ? "is a zip archive that was cut off: its end is missing"
                                   : "is not a zip archive, which a .pt2 file is");
    if (!rc)
        rc = read_end(a, end, a->size - n + (uint64_t)(end - tail), d);
    free(tail);
    return rc ? rc : check_directory(a, d);
}

/* ---- the directory --------------------------------------------------------------------------- */

/* The sentence about an entry, by its name. */
static int bad_entry(const struct archive *a, const struct entry *e, const char *what)
{
    char name[256], shown[512];

    snprintf(name, sizeof name, "%.*s", (int)e->name_size, (const char *)e->name);
    return file_bad(a->path, "%s: %s", text_shown(name, shown, sizeof shown), what);
}

/* Replaces the numbers that say "see the ZIP64 field" by those of that field. */
static bool read_extra(struct entry *e)
{
    bool wanted = e->size == UINT32_MAX || e->packed == UINT32_MAX || e->local == UINT32_MAX;
    const uint8_t *p = e->extra, *end = p + e->extra_size;

    while (wanted && end - p >= 4) {
        const uint8_t *field = p + 4;
        uint32_t n = u16(p + 2);
        if (n > end - field)
            return false;
        uint64_t *numbers[] = {&e->size, &e->packed, &e->local};
        for (int i = 0; u16(p) == 1 && i < 3; i++) {
            if (*numbers[i] != UINT32_MAX)
                continue;
            if (n < 8)
                return false;
            *numbers[i] = u64(field);
            field += 8;
            n -= 8;
        }
        if (u16(p) == 1)
            return true;
        p = field + n;
    }
    return !wanted;
}

/* Takes the next entry of a directory of which n bytes are left.  Returns its bytes, or 0. */
static uint64_t take_entry(const uint8_t *p, uint64_t n, struct entry *e)
{
    if (n < ENTRY_SIZE || memcmp(p, "PK\1\2", 4))
        return 0;
    *e = (struct entry){.flags = u16(p + 8),
                        .method = u16(p + 10),
                        .sum = u32(p + 16),
                        .packed = u32(p + 20),
                        .size = u32(p + 24),
                        .name_size = u16(p + 28),
                        .extra_size = u16(p + 30),
                        .comment_size = u16(p + 32),
                        .disk = u16(p + 34),
                        .local = u32(p + 42)};
    uint64_t all = (uint64_t)ENTRY_SIZE + e->name_size + e->extra_size + e->comment_size;
    if (all > n)
        return 0;
    e->name = p + ENTRY_SIZE;
    e->extra = e->name + e->name_size;
    return all;
}

static int check_entry(const struct archive *a, struct entry *e)
{
    if (e->flags & IS_ENCRYPTED)
        return bad_entry(a, e, "is encrypted, which is not supported");
    if (e->method)
        return bad_entry(a, e,
                         "is compressed; PyTorch stores members as they are, so another program "
                         "has packed this archive");
    if (!read_extra(e))
        return bad_entry(a, e, "has a damaged ZIP64 field");
    if (e->packed != e->size)
        return bad_entry(a, e, "has two sizes though it is not compressed");
    if (e->disk)
        return bad_entry(a, e, "lies in another file, which is not supported");
    return 0;
}

/* Whether a relative name stays in its folder: no empty part, "." or "..", no backslash. */
static bool name_is_tame(const char *name)
{
    for (;;) {
        size_t n = strcspn(name, "/");
        if (!n || (n == 1 && *name == '.') || (n == 2 && !memcmp(name, "..", 2)))
            return false;
        if (!name[n])
            return true;
        name += n + 1;
    }
}

/* Checks the name, which is a copy with its 0, and sets *rest to what follows the top folder. */
static int check_name(const struct archive *a, const struct entry *e, const char *name,
                      const char **rest)
{
    const char *slash = strchr(name, '/');

    if (strlen(name) != e->name_size || !text_is_utf8(name) || strpbrk(name, "\\\n\r"))
        return bad_entry(a, e, "has a name of characters that no name should have");
    if (!name_is_tame(name))
        return bad_entry(a, e, "has a name that leaves the folder of the archive");
    *rest = slash ? slash + 1 : name;
    return 0;
}

/* Reads the header before the data and sets m->offset. */
static int find_data(const struct archive *a, const struct entry *e, struct archive_member *m)
{
    uint8_t local[LOCAL_SIZE];

    if (!inside(e->local, LOCAL_SIZE, a->begin))
        return bad_entry(a, e, "would begin outside the file");
    int rc = read_file(a, e->local, local, sizeof local);
    if (rc)
        return rc;
    if (memcmp(local, "PK\3\4", 4) || u16(local + 26) != e->name_size)
        return bad_entry(a, e, "has no header where the list of members says");
    m->offset = e->local + LOCAL_SIZE + u16(local + 26) + u16(local + 28);
    m->size = e->size;
    m->local = e->local;
    m->entry = e->at;
    m->sum = e->sum;
    if (!inside(m->offset, m->size, a->begin))
        return bad_entry(a, e, "would reach beyond the end of the file");
    return 0;
}

/* Adds a member; a folder's own entry is none. */
static int add_member(struct archive *a, struct entry *e)
{
    struct archive_member *m = &a->members[a->count];
    int rc = check_entry(a, e);

    if (rc)
        return rc;
    if (e->name_size && e->name[e->name_size - 1] == '/' && !e->size)
        return 0;
    char *name = a->end;
    memcpy(name, e->name, e->name_size);
    name[e->name_size] = '\0';
    rc = check_name(a, e, name, &m->name);
    if (!rc)
        rc = find_data(a, e, m);
    if (!rc) {
        a->end += e->name_size + 1;
        a->count++;
    }
    return rc;
}

static int read_entries(struct archive *a, const struct directory *d, const uint8_t *p)
{
    uint64_t left = d->size, all = 0;
    struct entry e;

    for (uint64_t i = 0; i < d->count; i++) {
        uint64_t n = take_entry(p, left, &e);
        if (!n)
            return file_bad(a->path, "is damaged: entry %llu of its list of members is none",
                            (unsigned long long)i);
        e.at = d->begin + d->size - left;
        int rc = add_member(a, &e);
        if (rc)
            return rc;
        p += n;
        left -= n;
        all += e.size;
        if (all > a->size)
            return bad_entry(a, &e,
                             "lies where another member lies: all of them together are "
                             "larger than the file");
    }
    return left
               ? file_bad(a->path, "is damaged: its list of members has more than its %llu entries",
                          (unsigned long long)d->count)
               : 0;
}

static int by_name(const void *a, const void *b)
{
    const struct archive_member *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int sort_members(struct archive *a)
{
    qsort(a->members, (size_t)a->count, sizeof *a->members, by_name);
    for (int64_t i = 1; i < a->count; i++)
        if (!strcmp(a->members[i - 1].name, a->members[i].name))
            return file_bad(a->path, "has two members with the name %s", a->members[i].name);
    return 0;
}

static int read_directory(struct archive *a)
{
    struct directory d = {0};
    int rc = find_directory(a, &d);

    if (rc)
        return rc;
    uint8_t *text = malloc((size_t)d.size + 1);
    a->begin = d.begin;
    a->names = a->end = malloc((size_t)d.size + 1); /* a name is shorter than its entry */
    a->members = calloc((size_t)d.count + 1, sizeof *a->members);
    if (!text || !a->names || !a->members)
        rc = error_set(CKPT_ENOMEM, "%s: no memory for a list of %llu members", a->path,
                       (unsigned long long)d.count);
    if (!rc)
        rc = read_file(a, d.begin, text, d.size);
    if (!rc)
        rc = read_entries(a, &d, text);
    free(text);
    return rc ? rc : sort_members(a);
}

/* ---- the layout ------------------------------------------------------------------------------ */

#define EXPORT_AGAIN "export the model again with PyTorch 2.9 or newer"

/* What a member says about an archive of another kind. */
static const struct {
    const char *name, *what;
} other_kinds[] = {
    {"serialized_exported_program.json", "was written by an older PyTorch; " EXPORT_AGAIN},
    {"data/weights/model.pt",
     "has its weights in a pickle, as an older PyTorch wrote; " EXPORT_AGAIN},
    {"data/constants/model.pt",
     "has its constants in a pickle, as an older PyTorch wrote; " EXPORT_AGAIN},
    {"constants.pkl", "is a TorchScript model, not an exported program; use torch.export.save"},
    {"data.pkl", "is a file of torch.save, a pickle, which is never read; use torch.export.save"},
};

/* Compares a small member with the text that it should have. */
static int check_text(const struct archive *a, const char *name, const char *want)
{
    const struct archive_member *m = archive_find(a, name);
    char text[16] = {0};

    if (!m || m->size >= sizeof text)
        return file_bad(a->path, "is not a .pt2 file: it has no %s that says \"%s\"", name, want);
    int rc = archive_read(a, m, 0, text, (size_t)m->size);
    if (rc)
        return rc;
    text[strcspn(text, "\n")] = '\0';
    if (strcmp(text, want))
        return file_bad(a->path, "its %s is not \"%s\", which is the only one supported", name,
                        want);
    return 0;
}

static int check_layout(const struct archive *a)
{
    for (size_t i = 0; i < sizeof other_kinds / sizeof *other_kinds; i++)
        if (archive_find(a, other_kinds[i].name))
            return file_bad(a->path, "%s", other_kinds[i].what);
    int rc = check_text(a, "archive_format", "pt2");
    if (!rc)
        rc = check_text(a, "archive_version", "0");
    return rc ? rc : check_text(a, "byteorder", "little");
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int open_file(struct archive *a)
{
    const char *why;
    int64_t size;

    if (file_open_regular(a->path, &a->fd, &size, &why))
        return error_set(CKPT_EIO, "%s: cannot open: %s", a->path, why);
    a->size = (uint64_t)size;
    return 0;
}

int archive_open(struct archive **out, const char *path)
{
    struct archive *a = calloc(1, sizeof *a);

    *out = NULL;
    if (a)
        *a = (struct archive){.path = strdup(path), .fd = -1};
    int rc = a && a->path ? 0 : error_set(CKPT_ENOMEM, "%s: no memory to open it", path);
    if (!rc)
        rc = open_file(a);
    if (!rc)
        rc = read_directory(a);
    if (!rc)
        rc = check_layout(a);
    if (rc)
        archive_close(a);
    else
        *out = a;
    return rc;
}

void archive_close(struct archive *a)
{
    if (!a)
        return;
    if (a->fd >= 0)
        close(a->fd);
    free(a->members);
    free(a->names);
    free(a->path);
    free(a);
}

const char *archive_path(const struct archive *a)
{
    return a->path;
}

const struct archive_member *archive_find(const struct archive *a, const char *name)
{
    struct archive_member key = {.name = name};

    return bsearch(&key, a->members, (size_t)a->count, sizeof key, by_name);
}

const struct archive_member *archive_at(const struct archive *a, int64_t i)
{
    return i < a->count ? &a->members[i] : NULL;
}

int archive_program(const struct archive *a, char *name, size_t size)
{
    static const char folder[] = "models/", end[] = ".json";

    for (int64_t i = 0; archive_at(a, i); i++) {
        const char *member = archive_at(a, i)->name;
        const size_t n = strlen(member);
        if (strncmp(member, folder, strlen(folder)) != 0 || n < strlen(folder) + strlen(end) ||
            strcmp(member + n - strlen(end), end) != 0)
            continue;
        snprintf(name, size, "%.*s", (int)(n - strlen(folder) - strlen(end)),
                 member + strlen(folder));
        return 0;
    }
    return error_set(CKPT_EFORMAT, "%s: there is no program in it", a->path);
}

int archive_read(const struct archive *a, const struct archive_member *m, uint64_t at, void *to,
                 size_t n)
{
    if (!inside(at, n, m->size))
        return file_bad(a->path, "%s: has %llu bytes, %llu at %llu were asked for", m->name,
                        (unsigned long long)m->size, (unsigned long long)n, (unsigned long long)at);
    return read_file(a, m->offset + at, to, n);
}

uint64_t archive_size(const struct archive *a)
{
    return a->size;
}

int archive_read_file(const struct archive *a, uint64_t at, void *to, size_t n)
{
    return read_file(a, at, to, n);
}

int archive_check(const struct archive *a, const struct archive_member *m, uint32_t sum)
{
    if (!m->sum || m->sum == sum)
        return 0;
    return file_bad(a->path,
                    "%s: is damaged: its bytes have the sum %08x, and %08x when they were written",
                    m->name, (unsigned)sum, (unsigned)m->sum);
}

/* Parses n bytes; the sentence names the member. */
static int parse(const struct archive *a, const char *name, const char *text, size_t n,
                 json_t **json)
{
    json_error_t e;

    *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!*json && json_error_code(&e) == json_error_out_of_memory)
        return error_set(CKPT_ENOMEM, "%s: %s: no memory to parse it", a->path, name);
    if (!*json)
        return file_bad(a->path, "%s: is not valid JSON: %s, byte %d", name, e.text, e.position);
    if (json_is_object(*json))
        return 0;
    json_decref(*json);
    *json = NULL;
    return file_bad(a->path, "%s: is not an object", name);
}

int archive_json(const struct archive *a, const char *name, json_t **json)
{
    const struct archive_member *m = archive_find(a, name);

    *json = NULL;
    if (!m)
        return file_bad(a->path, "is not complete: %s is missing", name);
    if (m->size > JSON_MAX)
        return file_bad(a->path, "%s: has %llu bytes, the limit is %llu", name,
                        (unsigned long long)m->size, (unsigned long long)JSON_MAX);
    char *text = malloc((size_t)m->size + 1);
    if (!text)
        return error_set(CKPT_ENOMEM, "%s: %s: no memory for %llu bytes", a->path, name,
                         (unsigned long long)m->size);
    int rc = archive_read(a, m, 0, text, (size_t)m->size);
    if (!rc)
        rc = archive_check(a, m, crc32_add(0, text, (size_t)m->size));
    if (!rc)
        rc = parse(a, name, text, (size_t)m->size, json);
    free(text);
    return rc;
}
