/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a state, at once or in a thread: see saving.h. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "core/base.h"
#include "core/json.h"
#include "dist/peers.h"
#include "state/saving.h"

enum { NICENESS = 19 }; /* of the thread */

struct saving {
    char *path, *part;      /* of the state, and of what this rank writes; the same with one rank */
    struct note_list notes; /* of the state */
    struct file_note *note; /* the same, for writers */
    char *pieces;           /* NOTE_PIECES of the part, or NULL */
    struct file_note piece_note;
    ckpt_file_writer *writer; /* NULL once it was written */
    int rank, ranks;
    uint64_t id;     /* of this save, in the names of its parts */
    double patience; /* seconds that rank 0 waits for parts after the context was closed */
    pthread_t thread;
    bool threaded; /* thread is to be joined */
    atomic_bool written, published, closing, cancelled;
    int part_rc, rc;     /* of the thread: for its part, once written; of all, once joined */
    struct error error;  /* the sentence */
    struct error **late; /* where a step finds it */
};

/* ---- what is written ----------------------------------------------------------------------- */

static char *name_part(const struct saving *s, int rank)
{
    char *name;

    return asprintf(&name, "%s" PART_MARK "%016llx-%05d-of-%05d.safetensors", s->path,
                    (unsigned long long)s->id, rank + 1, s->ranks) < 0
               ? NULL
               : name;
}

static void put_sizes(FILE *f, const char *key, int n, const int64_t *sizes)
{
    fprintf(f, ",\"%s\":[", key);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)sizes[i]);
    fputc(']', f);
}

/* A piece lies in the order of the parameter, so the note says how files order it. */
static void put_piece(FILE *f, const struct save_item *s)
{
    const struct param *p = s->own.p;
    const struct ckpt_desc whole = values_file_desc(p, s->slot);
    const bool split = p->split.ranks > 1;
    const bool moved = (p->reordered || split) && !values_is_factor(s->slot);
    struct ckpt_desc view = p->file_view.ndim ? p->file_view : p->desc;
    int from[CKPT_MAX_DIMS];
    int64_t axes[CKPT_MAX_DIMS];

    memcpy(from, p->file_axes, sizeof from);
    if (split)
        param_split_view(p, &view, from); /* checked when it was split */

    fprintf(f, ":{\"first\":%lld", (long long)s->own.run.first);
    put_sizes(f, "shape", whole.ndim, whole.shape);
    for (int i = 0; i < view.ndim; i++)
        axes[i] = from[i];
    if (moved) {
        put_sizes(f, "view", view.ndim, view.shape);
        put_sizes(f, "axes", view.ndim, axes);
    }
    fputc('}', f);
}

/* The text of NOTE_PIECES; NULL: no memory. */
static char *describe_pieces(const struct save_item *items, int n)
{
    char *text = NULL;
    size_t size;
    bool any = false;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    for (int i = 0; i < n; i++) {
        if (!part_is_cut(&items[i].own))
            continue;
        char *name = save_name(&items[i]);
        fputs(any ? ",\n" : "{", f);
        json_write_string(f, name);
        put_piece(f, &items[i]);
        any = name != NULL;
        free(name);
        if (!any)
            break;
    }
    fputs(any ? "}" : "{}", f);
    text_close(f, &text);
    return text;
}

/* Keeps the items that this rank writes; returns their number, or CKPT_ENOMEM. */
static int take_own(ckpt *c, struct save_item *items, int n, struct values_cache *cache)
{
    struct part_item *own = calloc((size_t)n + 1, sizeof *own);
    int at = 0, kept = 0;

    if (!own)
        return CKPT_ENOMEM;
    for (int i = 0; i < n; i++)
        own[i] =
            (struct part_item){.p = params_at(&c->params, items[i].param), .slot = items[i].slot};
    n = part_divide(&c->ranks, own, n, NULL);
    for (; kept < n; at++) { /* both are in the same order */
        const struct part_item *x = &own[kept];
        if (params_at(&c->params, items[at].param) != x->p || items[at].slot != x->slot)
            continue;
        items[kept] = items[at];
        items[kept].own = *x;
        items[kept++].cache = cache;
    }
    free(own);
    return n;
}

/* ---- the index ----------------------------------------------------------------------------- */

static bool is_there(const struct saving *s, int rank)
{
    char *part = name_part(s, rank);
    bool there = part && !access(part, F_OK);

    free(part);
    return there;
}

/* A rank that failed says so to all at their next call, which cancels this. */
static int await_parts(struct saving *s)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    double closed = 0;

    for (int r = 1; r < s->ranks;) {
        const double now = clock_seconds();
        closed = closed || !s->closing ? closed : now;
        if (is_there(s, r))
            r++;
        else if (s->cancelled || (closed && now > closed + s->patience))
            return error_set(CKPT_ECOMM, "%s: the part of rank %d was not written", s->path, r);
        else
            nanosleep(&pause, NULL);
    }
    return 0;
}

static int open_part(const struct saving *s, ckpt_file *f, int rank)
{
    char *part = name_part(s, rank);
    int rc = part ? file_open_parts(f, part, true)
                  : error_set(CKPT_ENOMEM, "%s: no memory to write it", s->path);

    if (rc && part && access(part, F_OK))
        rc = error_set(CKPT_EIO,
                       "%s: rank 0 does not see the part of rank %d there: a state of "
                       "several ranks needs a folder that all of them share",
                       s->path, rank);
    free(part);
    return rc;
}

/* The headers of all parts are read, so what the index says is there and complete. */
static int write_index(const struct saving *s)
{
    ckpt_file *f = calloc(1, sizeof *f);
    int rc = f && (f->path = strdup(s->path))
                 ? 0
                 : error_set(CKPT_ENOMEM, "%s: no memory to write it", s->path);

    for (int r = 0; r < s->ranks && !rc; r++)
        rc = open_part(s, f, r);
    if (!rc)
        rc = file_join_parts(f);
    if (!rc)
        rc = file_write_index(f, s->path, s->note, (int)s->notes.n);
    ckpt_file_close(f);
    return rc;
}

/* Makes the path the new state; parts of what was there before go. */
static int publish(struct saving *s)
{
    json_t *old = file_read_parts(s->path);
    int rc = 0;

    if (s->ranks > 1)
        rc = write_index(s);
    else {
        rc = ckpt_file_commit(s->writer);
        s->writer = NULL;
    }
    if (!rc && (old || s->ranks > 1))
        file_sweep_parts(s->path);
    json_decref(old);
    return rc;
}

/* ---- the parts ----------------------------------------------------------------------------- */

static int write_part(struct saving *s)
{
    ckpt_file_writer *w = s->writer;

    if (s->ranks == 1)
        return 0;
    s->writer = NULL;
    return ckpt_file_commit(w);
}

/* Steps have precedence: where all cores are busy, the thread takes what they leave. */
static int write_staged(struct saving *s)
{
    for (int64_t i = 0; i < s->writer->count; i++)
        s->writer->tensors.data[i].finite = true;
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS);
    return write_part(s);
}

/* Closes everything.  Of a save that failed rank 0 removes the parts, unless the index is there and
 * only its folder could not be synced; a part that is written later goes with the next save. */
static void saving_free(struct saving *s, int rc)
{
    if (!s)
        return;
    ckpt_file_abandon(s->writer);
    if (rc && s->ranks > 1 && !s->rank && s->path)
        file_sweep_parts(s->path);
    if (s->part != s->path)
        free(s->part);
    free(s->path);
    free(s->pieces);
    free(s->note);
    note_list_free(&s->notes);
    free(s);
}

/* Ranks agree on the name of a save. */
static int draw_id(ckpt *c, struct saving *s)
{
    struct comm *hosts = ranks_all(&c->ranks);

    if (getrandom(&s->id, sizeof s->id, 0) != sizeof s->id)
        s->id = (uint64_t)time(NULL) << 32 ^ (uint64_t)getpid();
    if (hosts && comm_broadcast(hosts, &s->id, sizeof s->id, "the name of a save"))
        return error_set(CKPT_ECOMM, "%s", hosts->reason);
    return 0;
}

static int check_path(const struct saving *s)
{
    struct stat st;

    if (s->ranks == 1 || stat(s->path, &st) || S_ISREG(st.st_mode))
        return 0;
    return error_set(CKPT_EINVAL,
                     "%s: is %s; a state of several ranks is an index with parts beside "
                     "it: give the name of a file",
                     s->path, file_kind(st.st_mode));
}

static int fill(struct saving *s, const char *path, struct note_list *notes)
{
    s->path = strdup(path);
    s->notes = *notes;
    *notes = (struct note_list){.n = 0};
    s->note = calloc((size_t)s->notes.n + 1, sizeof *s->note);
    if (!s->path || !s->note)
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", path);
    for (int32_t i = 0; i < s->notes.n; i++)
        s->note[i] = (struct file_note){s->notes.data[i].name, s->notes.data[i].text};
    return check_path(s);
}

/* Copies the bytes of all items to the place that is planned for them. */
static int stage(ckpt *c, struct save_item *items, int n)
{
    struct tier *host = c->memory.tiers[TIER_HOST];
    char *at = host ? host->ops->base(host) + c->memory.saves_at : NULL;
    int64_t left = host ? c->memory.saves : 0;
    int rc = 0;

    for (int i = 0; i < n && !rc; i++) {
        const int64_t bytes = items[i].own.bytes;
        const struct ckpt_desc d = part_desc(&items[i].own);
        items[i].unchecked = d.dtype != CKPT_I32; /* codes are checked as they are read */
        if (bytes > left)
            return error_set(CKPT_EBUDGET,
                             "--save-async: the state grew beyond the %s of --host "
                             "that were planned for its copy",
                             human_bytes(c->memory.saves));
        rc = save_item_read(&items[i], at, bytes);
        items[i].staged = at;
        at += round_up(bytes, CKPT_ALIGN);
        left -= round_up(bytes, CKPT_ALIGN);
    }
    return rc;
}

/* Makes the writer of this rank's items. */
static int open_writer(ckpt *c, struct saving *s, struct save_item *items, int n)
{
    if (s->ranks == 1) {
        s->part = s->path;
        return save_open(&s->writer, s->part, items, n, s->note, (int)s->notes.n);
    }
    s->part = name_part(s, c->ranks.rank);
    s->pieces = describe_pieces(items, n);
    s->piece_note = (struct file_note){NOTE_PIECES, s->pieces};
    if (!s->part || !s->pieces)
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", s->path);
    return save_open(&s->writer, s->part, items, n, &s->piece_note, 1);
}

/* ---- in memory ----------------------------------------------------------------------------- */

/* Bytes of the file that w will be; or a code. */
static int64_t size_of(const ckpt_file_writer *w)
{
    char *text = NULL;
    int64_t size = 0;
    int rc = file_make_header(w, true, &text, &size);

    free(text);
    for (int64_t i = 0; i < w->count && !rc; i++)
        size += w->tensors.data[i].bytes;
    return rc ? rc : size;
}

/* Each part has the notes of the state, which files have in the index. */
static int open_kept(ckpt_file_writer **w, struct save_item *items, int n,
                     const struct note_list *notes, struct file_note *note)
{
    for (int32_t i = 0; i < notes->n; i++)
        note[i + 1] = (struct file_note){notes->data[i].name, notes->data[i].text};
    return save_open(w, CKPT_PEERS, items, n, note, (int)notes->n + 1);
}

/* Writes the part of this rank to its place in memory. */
static int write_kept(ckpt *c, ckpt_file_writer *w, int64_t bytes)
{
    int64_t offset = 0;
    int fd = -1, rc = peers_begin(c->ranks.peers, ranks_all(&c->ranks), bytes, &fd, &offset);

    if (!rc && lseek(fd, offset, SEEK_SET) != offset)
        rc = file_io_error(CKPT_PEERS, "cannot be written");
    if (!rc)
        rc = file_write_to(w, fd);
    return rc ? rc : peers_end(c->ranks.peers, ranks_all(&c->ranks), bytes, c->params.updates);
}

int saving_keep(ckpt *c, struct save_item *items, int n, const struct note_list *notes)
{
    struct values_cache cache = {.next = 0};
    struct file_note *note = calloc((size_t)notes->n + 1, sizeof *note);
    ckpt_file_writer *w = NULL;
    int rc = note ? 0 : error_set(CKPT_ENOMEM, CKPT_PEERS ": none for a state");

    if (!c->ranks.peers)
        rc = error_set(CKPT_EINVAL, CKPT_PEERS ": the job is not elastic: see options.ranks");
    if (c->saving && c->saving->published)
        peers_note_saved(c->ranks.peers);
    n = rc ? 0 : take_own(c, items, n, &cache);
    char *pieces = n < 0 ? NULL : describe_pieces(items, n);
    if (!rc && !pieces)
        rc = error_set(CKPT_ENOMEM, CKPT_PEERS ": none for a state");
    if (!rc)
        note[0] = (struct file_note){NOTE_PIECES, pieces};
    if (!rc)
        rc = open_kept(&w, items, n, notes, note);
    const int64_t bytes = rc ? 0 : size_of(w);
    if (!rc)
        rc = bytes < 0 ? (int)bytes : write_kept(c, w, bytes);
    ckpt_file_abandon(w);
    values_cache_free(&cache);
    free(pieces);
    free(note);
    return rc;
}

static int fetch(const struct file_part *p, void *dst, int64_t n, int64_t offset)
{
    const struct kept_state *k = p->source;

    return peers_read(k->c->ranks.peers, ranks_all(&k->c->ranks), &k->peers, p->number, dst, n,
                      offset);
}

int saving_open_kept(ckpt *c, struct kept_state *k, ckpt_file **out)
{
    int rc = 0;

    k->c = c;
    ckpt_file *f = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(CKPT_PEERS)))
        rc = error_set(CKPT_ENOMEM, CKPT_PEERS ": none to open a state");
    if (!rc)
        rc = peers_find(c->ranks.peers, ranks_all(&c->ranks), &k->peers);
    if (!rc && !k->peers.parts)
        rc = error_set(CKPT_EINVAL, CKPT_PEERS ": has no complete state");
    for (int i = 0; i < k->peers.parts && !rc; i++) {
        char name[64];
        snprintf(name, sizeof name, CKPT_PEERS ", part %d of %d", i + 1, k->peers.parts);
        const struct file_part part = {
            .path = name, .fd = -1, .fetch = fetch, .source = k, .number = i};
        rc = file_add_fetched(f, &part, k->peers.bytes[i]);
    }
    if (!rc)
        rc = file_join_parts(f);
    if (rc)
        ckpt_file_close(f);
    else
        *out = f;
    return rc;
}

/* ---- all ranks ----------------------------------------------------------------------------- */

/* Waits for all ranks, unless this one failed, which the others then learn. */
static int meet(ckpt *c, int rc, const char *where)
{
    struct comm *hosts = ranks_all(&c->ranks);

    if (!rc && hosts && comm_barrier(hosts, where))
        rc = error_set(CKPT_ECOMM, "%s", hosts->reason);
    return ranks_give_up(&c->ranks, rc);
}

static int write_now(ckpt *c, struct saving *s)
{
    int rc = meet(c, write_part(s), "the parts of a save");

    if (!rc && !s->rank)
        rc = publish(s);
    return meet(c, rc, "the end of a save");
}

static void *run(void *user)
{
    struct saving *s = user;
    ERRORS_TO(&s->error);
    int rc = s->part_rc = write_staged(s);

    s->written = true;
    if (!rc && !s->rank)
        rc = await_parts(s);
    if (!rc && !s->rank)
        rc = publish(s);
    s->published = !rc && !s->rank;
    s->rc = rc;
    if (rc && !s->cancelled)
        __atomic_store_n(s->late, &s->error, __ATOMIC_RELEASE);
    return NULL;
}

/* Signals are for the threads of the program. */
static int start(struct saving *s)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->threaded = !failed;
    return failed
               ? error_set(CKPT_ENOMEM, "%s: no thread to write it: %s", s->path, strerror(failed))
               : 0;
}

static void join(struct saving *s)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
}

/* The context is closed, and nobody waited before. */
static void close_saving(struct saving *s)
{
    s->closing = true;
    join(s);
    saving_free(s, s->rc);
}

/* Waits for the part of this rank: for the whole thread, if that waits for no other. */
static int end_part(struct saving *s)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    if (s->rank || s->ranks == 1)
        join(s);
    while (!s->written)
        nanosleep(&pause, NULL);
    const int rc = s->threaded ? s->part_rc : s->rc;
    return rc ? error_set(rc, "%s", s->error.text) : 0;
}

int saving_wait(ckpt *c)
{
    struct saving *s = c->saving;

    if (!s)
        return 0;
    c->saving = NULL;
    int rc = meet(c, end_part(s), "the parts of a save");
    s->cancelled = rc != 0;
    join(s);
    if (!rc && s->rc)
        rc = error_set(s->rc, "%s", s->error.text);
    rc = meet(c, rc, "the end of a save");
    if (!rc)
        peers_note_saved(c->ranks.peers);
    c->params.late = NULL;
    saving_free(s, rc);
    return rc;
}

int saving_begin(ckpt *c, const char *path, struct save_item *items, int n, struct note_list *notes)
{
    struct values_cache cache = {.next = 0};
    struct saving *s = calloc(1, sizeof *s);
    int rc = s ? 0 : error_set(CKPT_ENOMEM, "%s: no memory to write it", path);

    if (rc)
        return ranks_give_up(&c->ranks, rc);
    s->rank = c->ranks.comm ? c->ranks.rank : 0;
    s->ranks = c->ranks.comm ? c->ranks.sharing.ranks : 1;
    s->late = &c->params.late;
    s->patience = c->ranks.comm ? c->ranks.comm->deadline : 0;
    rc = fill(s, path, notes);
    if (!rc)
        rc = draw_id(c, s);
    n = rc ? 0 : take_own(c, items, n, &cache);
    if (n < 0)
        rc = error_set(CKPT_ENOMEM, "%s: no memory to list its contents", path);
    if (!rc && c->options.save_async)
        rc = stage(c, items, n);
    if (!rc)
        rc = open_writer(c, s, items, n);
    if (!rc && c->options.save_async)
        rc = start(s);
    else if (!rc)
        rc = write_now(c, s);
    values_cache_free(&cache);
    if (!rc && c->options.save_async) {
        c->saving = s;
        c->close_saving = close_saving;
        return 0;
    }
    if (!rc)
        peers_note_saved(c->ranks.peers);
    saving_free(s, rc);
    return ranks_give_up(&c->ranks, rc);
}
