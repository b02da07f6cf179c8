/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Background threads that read clips: see loader.h.
 *
 * Clips are stored in a ring buffer, contiguous and in order, and are released in the same order.
 * So clips of any size share the ring, and only its end can have an unused gap.
 */
#include "loader.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include "run_clock.h"
#include "say.h"
#include "shortage.h"

enum {
    QUEUE = 1024,     /* maximum number of clips in the ring */
    BAD = 8,          /* bad rows recorded per clip, at most */
    SENTENCES = 2048, /* bytes for their error messages, a line each */
    LAST = 64         /* bytes for the final message, if no row could be read */
};

/* A clip that is being read. */
struct job {
    struct loader_clip clip;
    int64_t at, bytes; /* ring offset and size */
    bool done, failed;
    int64_t bad[BAD];
    int n_bad;
    char said[SENTENCES + LAST];
};

struct worker {
    struct loader *loader;
    struct loader_file file;
    pthread_t thread;
};

struct loader {
    const struct loader_source *source;
    int64_t rows, max_bad;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job is done, space was freed, or loading ended */
    atomic_bool stop;
    uint8_t *ring;
    int64_t size;      /* bytes of the ring */
    int64_t head;      /* offset of the next clip, if it fits there */
    struct job *job;   /* circular queue of QUEUE jobs */
    int64_t first, n;  /* index of the oldest job; number of jobs */
    struct job coming; /* requested clip that has no space yet */
    bool waits, ended; /* `coming` is set; the source has no more clips */
    struct worker *worker;
    int64_t workers;
    double waited;
    int64_t *bad; /* bad rows, in order of discovery */
    int64_t n_bad;
    char *bad_text;
};

/* ---- memory --------------------------------------------------------------------------------- */

/* A decoder keeps up to 17 pictures of 1.5 bytes per pixel with metadata, and converts one to RGB.
 * Measured: 45 bytes per pixel in total, for H.264 with 16 references. */
enum { DECODER_PIXEL = 48, DECODER_LEAST = 4 << 20 };

int loader_divide(const struct loader_options *o, const struct loader_need *n,
                  struct loader_room *room)
{
    char given[32], needed[32];

    room->decoder = n->pixels * DECODER_PIXEL + DECODER_LEAST;
    int64_t decoders = o->workers * room->decoder;
    room->clips = o->memory ? o->memory - decoders : 2 * n->step;
    if (room->clips >= n->clip)
        return 0;
    return say_fail("--loader-memory %s: %lld decoders (--workers) and the largest clip take %s",
                    say_bytes(given, o->memory), (long long)o->workers,
                    say_bytes(needed, decoders + n->clip));
}

static struct job *job_at(const struct loader *l, int64_t i)
{
    return &l->job[(l->first + i) % QUEUE];
}

int loader_check(const struct loader_options *o)
{
    if (o->memory < 0)
        return say_fail("--loader-memory: a size is expected, as 2G, not a share");
    return o->hwaccel ? video_hw_check(o->hwaccel) : 0;
}

int loader_plan(const struct loader_options *o, const struct loader_need *n, bool says)
{
    struct loader_room room;
    char all[32], clips[32], decoder[32];

    if (loader_divide(o, n, &room))
        return -1;
    if (says)
        printf("loader: at most %s of each rank: %s of clips (%.1f steps of the largest), "
               "%lld decoders of %s\n",
               say_bytes(all, room.clips + o->workers * room.decoder), say_bytes(clips, room.clips),
               (double)room.clips / (double)n->step, (long long)o->workers,
               say_bytes(decoder, room.decoder));
    return 0;
}

/* The ring offset where a clip fits; -1: no space yet. */
static int64_t place_for(const struct loader *l, int64_t bytes)
{
    if (!l->n)
        return bytes <= l->size ? 0 : -1;
    int64_t tail = job_at(l, 0)->at;
    if (l->n == QUEUE || l->head == tail)
        return -1;
    if (l->head < tail)
        return tail - l->head >= bytes ? l->head : -1;
    if (l->size - l->head >= bytes)
        return l->head;
    return tail >= bytes ? 0 : -1;
}

/* ---- workers -------------------------------------------------------------------------------- */

static bool is_same(const struct video_file *a, const struct video_file *b)
{
    return a->path && !strcmp(a->path, b->path) && !a->member == !b->member && a->start == b->start;
}

struct video *loader_file_open(struct loader_file *f, const struct video_file *file)
{
    struct video *v = &f->video;

    if (is_same(&v->file, file))
        return v;
    video_close(v);
    if (video_open_file(v, file)) {
        video_close(v);
        return NULL;
    }
    v->hw = f->hw;
    v->most_pixels = f->most_pixels;
    v->stop = f->stop;
    return v;
}

/* ---- hardware decoders ---------------------------------------------------------------------- */

/* Opens a decoder and decodes a frame, so that it allocates all its device memory. */
static int hold(struct video *v, const struct video_hw *hw, const struct video_file *file)
{
    const struct picture_size size = {16, 16, true};
    uint8_t rgb[16 * 16 * 3];

    if (video_open_file(v, file))
        return -1;
    v->hw = hw;
    int rc = video_read(v, 0, &size, rgb);
    return rc > 0 ? 0 : rc < 0 ? -1 : say_fail("%s: has no frame", v->path);
}

int loader_hold_open(struct loader_hold *h, struct loader_options *o,
                     const struct video_file *largest)
{
    *h = (struct loader_hold){.video = NULL};
    if (!o->hwaccel)
        return 0;
    if (video_hw_open(&o->hw, o->hwaccel))
        return -1;
    h->video = calloc((size_t)o->workers, sizeof *h->video);
    if (!h->video)
        return say_fail("no memory for %lld decoders", (long long)o->workers);
    for (; h->n < o->workers; h->n++)
        if (hold(&h->video[h->n], o->hw, largest)) {
            h->n++;
            return -1;
        }
    return 0;
}

void loader_hold_close(struct loader_hold *h)
{
    for (int64_t i = 0; i < h->n; i++)
        video_close(&h->video[i]);
    free(h->video);
    *h = (struct loader_hold){.video = NULL};
}

void loader_hw_close(struct loader_options *o)
{
    video_hw_close(o->hw);
    o->hw = NULL;
}

/* Requests the next clip unless one is waiting for space.  Returns whether one is waiting. */
static bool ask(struct loader *l)
{
    struct job *j = &l->coming;

    if (l->waits || l->ended)
        return l->waits;
    *j = (struct job){.at = 0};
    say_keep(j->said, sizeof j->said);
    int rc = l->source->next(l->source->user, &j->clip);
    if (rc > 0)
        j->bytes = j->clip.frames * j->clip.height * j->clip.width * 3;
    if (j->bytes > l->size) /* larger than announced */
        rc = say_fail("a clip of %lld bytes does not fit in the loader", (long long)j->bytes);
    j->done = j->failed = rc < 0;
    j->bytes = rc < 0 ? 0 : j->bytes;
    say_keep(NULL, 0);
    l->ended = rc <= 0;
    l->waits = rc != 0;
    if (l->ended) /* the trainer may be waiting for a clip that will not come */
        pthread_cond_broadcast(&l->changed);
    return l->waits;
}

/* Waits for the next job and assigns its space in the ring.  NULL: there are no more jobs. */
static struct job *begin_job(struct loader *l)
{
    while (!atomic_load(&l->stop) && ask(l)) {
        int64_t at = place_for(l, l->coming.bytes);
        if (at < 0) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        struct job *j = job_at(l, l->n++);
        *j = l->coming;
        j->at = at;
        j->clip.rgb = l->ring + at;
        l->head = at + j->bytes;
        l->waits = false;
        pthread_cond_broadcast(&l->changed);
        return j;
    }
    return NULL;
}

/* Records a row that cannot be read, and its error message. */
static void add_bad(struct job *j, int64_t row, const char *text)
{
    if (j->n_bad == BAD)
        return;
    j->bad[j->n_bad++] = row;
    strcat(j->said, text);
}

/* Waits before the next try of a file that could not be read for want of memory or descriptors: 50
 * ms, 100 ms, ... 6 s in all.  Returns false after the last try, or if loading ended. */
static bool wait_for_more(const struct loader *l, int tries)
{
    enum { TRIES = 7, FIRST = 50000000 /* ns */, SLICES = 10 };
    const struct timespec slice = {.tv_nsec = FIRST / SLICES};

    for (int i = 0; i < SLICES << tries && tries < TRIES && !atomic_load(&l->stop); i++)
        nanosleep(&slice, NULL);
    return tries < TRIES && !atomic_load(&l->stop);
}

/* The source's read, again while this process is short of memory or descriptors.  A file that was
 * read meanwhile may seem to end early, so it is opened again.  Sets *lack if it stays so. */
static int read_row(const struct loader *l, struct loader_file *f, struct job *j, int64_t row,
                    char text[SENTENCES / BAD], bool *lack)
{
    for (int tries = 0;; tries++) {
        say_keep(text, SENTENCES / BAD);
        shortage_take();
        int rc = l->source->read(l->source->user, f, &j->clip, row, &j->clip.fps);
        *lack = shortage_take();
        if (!*lack)
            return rc;
        video_close(&f->video);
        if (!wait_for_more(l, tries))
            return -1;
    }
}

/* Reads the requested row, or if it is bad one of the following rows. */
static void read_clip(const struct loader *l, struct loader_file *f, struct job *j)
{
    int64_t asked = j->clip.row;
    char text[SENTENCES / BAD];
    bool lack = false;

    int64_t tries = l->source->alone ? 1 : l->rows;
    for (int64_t i = 0; i < tries && !atomic_load(&l->stop); i++) {
        int64_t row = (asked + i) % l->rows;
        int rc = read_row(l, f, j, row, text, &lack);
        say_keep(NULL, 0);
        if (rc > 0)
            j->clip.row = row;
        if (rc > 0)
            return;
        if (lack) {
            snprintf(j->said, sizeof j->said, "%s", text);
            j->n_bad = 0;
            j->failed = true;
            return;
        }
        if (rc < 0)
            add_bad(j, row, text);
    }
    if (l->source->alone) {
        j->said[strcspn(j->said, "\n")] = 0;
        j->clip.bad = *j->said ? j->said : "has no such clip";
        return;
    }
    strcat(j->said, "no clip can be read");
    j->failed = true;
}

static void *work(void *user)
{
    struct worker *w = user;
    struct loader *l = w->loader;
    struct job *j;

    pthread_mutex_lock(&l->lock);
    while ((j = begin_job(l))) {
        if (!j->done) {
            pthread_mutex_unlock(&l->lock);
            read_clip(l, &w->file, j);
            pthread_mutex_lock(&l->lock);
        }
        j->done = true;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Starts the threads with signals blocked: the training thread handles signals. */
static int start_workers(struct loader *l, int64_t n, const struct loader_file *file)
{
    sigset_t all, before;
    int rc = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int64_t i = 0; i < n && !rc; i++) {
        struct worker *w = &l->worker[i];
        *w = (struct worker){.loader = l, .file = *file};
        rc = pthread_create(&w->thread, NULL, work, w);
        l->workers += !rc;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? say_fail("--workers %lld: %s", (long long)n, strerror(rc)) : 0;
}

/* ---- bad rows -------------------------------------------------------------------------------- */

/* Records a bad row.  Returns whether it is new. */
static bool note_bad(struct loader *l, int64_t row)
{
    for (int64_t i = 0; i < l->n_bad; i++)
        if (l->bad[i] == row)
            return false;
    int64_t *bad = realloc(l->bad, (size_t)(l->n_bad + 1) * sizeof *bad);
    if (!bad)
        return true; /* it is counted again next time */
    l->bad = bad;
    bad[l->n_bad++] = row;
    return true;
}

static const char *behind(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

static const char *name_of(const struct loader *l, int64_t row)
{
    const struct loader_source *s = l->source;
    const char *name = s->name ? s->name(s->names, row) : NULL;

    return name ? name : "";
}

/* text has lines "ROW NAME". */
void loader_take_bad(struct loader *l, const char *line)
{
    for (; line && *line; line = behind(line)) {
        char *end;
        long long row = strtoll(line, &end, 10);
        if (end == line || *end != ' ' || row < 0 || row >= l->rows)
            continue;
        const char *name = name_of(l, row);
        size_t n = strcspn(++end, "\n");
        if (strlen(name) == n && !memcmp(name, end, n))
            note_bad(l, row);
    }
}

const char *loader_bad(struct loader *l)
{
    size_t size;
    char *text = NULL;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    for (int64_t i = 0; i < l->n_bad; i++)
        fprintf(f, "%lld %s\n", (long long)l->bad[i], name_of(l, l->bad[i]));
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    free(l->bad_text);
    l->bad_text = text;
    return text;
}

/* ---- the trainer ----------------------------------------------------------------------------- */

int loader_open(struct loader **out, const struct loader_options *o, const struct loader_need *n,
                const struct loader_source *source)
{
    struct loader *l = *out = calloc(1, sizeof *l);
    struct loader_room room;

    if (!l || loader_divide(o, n, &room))
        return l ? -1 : say_fail("no memory for a loader");
    l->source = source;
    l->rows = source->rows;
    l->max_bad = o->max_bad;
    l->size = room.clips;
    loader_take_bad(l, source->known);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->ring =
        mmap(NULL, (size_t)l->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    l->ring = l->ring == MAP_FAILED ? NULL : l->ring;
    l->job = calloc(QUEUE, sizeof *l->job);
    l->worker = calloc((size_t)o->workers, sizeof *l->worker);
    if (!l->ring || !l->job || !l->worker)
        return say_fail("no memory for %lld bytes of clips", (long long)l->size);
    return start_workers(
        l, o->workers,
        &(struct loader_file){.hw = o->hw, .most_pixels = n->pixels, .stop = &l->stop});
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    if (l->source) {
        pthread_mutex_lock(&l->lock);
        atomic_store(&l->stop, true);
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
    for (int64_t i = 0; i < l->workers; i++) {
        pthread_join(l->worker[i].thread, NULL);
        video_close(&l->worker[i].file.video);
    }
    if (l->ring)
        munmap(l->ring, (size_t)l->size);
    if (l->source) {
        pthread_cond_destroy(&l->changed);
        pthread_mutex_destroy(&l->lock);
    }
    free(l->job);
    free(l->worker);
    free(l->bad);
    free(l->bad_text);
    free(l);
}

/* Prints a line and returns the start of the next one. */
static const char *repeat(const char *line)
{
    if (*line)
        say_note("%.*s", (int)strcspn(line, "\n"), line);
    return behind(line);
}

/* Reports each bad row found while reading a clip, the first time only, and fails if there are too
 * many. */
static int judge(struct loader *l, const struct job *j)
{
    const char *line = j->said;
    bool more = false;

    for (int i = 0; i < j->n_bad; i++) {
        bool is_new = note_bad(l, j->bad[i]);
        line = is_new ? repeat(line) : behind(line);
        more |= is_new;
    }
    if (j->failed) {
        repeat(line);
        return -1;
    }
    if (l->n_bad > l->max_bad)
        return say_fail("%lld clips cannot be read, more than --max-bad %lld", (long long)l->n_bad,
                        (long long)l->max_bad);
    if (more && !l->source->alone)
        say_note("the next clip takes its place");
    return 0;
}

int loader_take(struct loader *l, struct loader_clip *c)
{
    double begin = run_clock_now();

    pthread_mutex_lock(&l->lock);
    while ((!l->n && (l->waits || !l->ended)) || (l->n && !job_at(l, 0)->done))
        pthread_cond_wait(&l->changed, &l->lock);
    struct job *j = l->n ? job_at(l, 0) : NULL;
    pthread_mutex_unlock(&l->lock);
    l->waited += run_clock_now() - begin;
    if (!j)
        return say_fail("there are no more clips to read");
    *c = j->clip;
    return judge(l, j);
}

void loader_release(struct loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->first = (l->first + 1) % QUEUE;
    l->n--;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

double loader_waited(struct loader *l)
{
    double waited = l->waited;

    l->waited = 0;
    return waited;
}
