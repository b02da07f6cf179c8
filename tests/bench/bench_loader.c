/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of reading videos.
 *
 *   bench_loader FOLDER          frames per second of processor time of one thread, from H.264 of
 *                                1920 x 1080 with a key frame every 50 frames, which is written to
 *                                FOLDER
 *   bench_loader FOLDER CLIPS [WORKERS [SHRINK]]
 *                                reads CLIPS clips of many small videos, some of them damaged, with
 *                                the loader: the resident set must stay below its limit, and within
 *                                1 % of its size after the first quarter.  Sides of all frames are
 *                                divided by SHRINK, so that many clips take less time.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../../examples/common/clip.h"
#include "../../examples/common/loader.h"
#include "../../examples/common/say.h"
#include "../unit/movie.h"

const char say_program[] = "bench_loader";

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *path_in(const char *folder, const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* ---- speed ---------------------------------------------------------------------------------- */

static const struct movie large = {"large.mp4", "libx264", 1920,  1080,  150,
                                   50,          2,         false, false, "preset=veryfast:crf=23",
                                   1,           0,         false, 0};

/* All frames in order. */
static int read_all(const char *path, int64_t width, int64_t height)
{
    const struct picture_size size = {width, height, true};
    uint8_t *rgb = malloc((size_t)(width * height * 3));
    struct video v;
    int64_t n = 0;
    int rc = video_open(&v, path) ? -1 : 1;
    double begin = seconds();

    while (rc > 0 && (rc = video_read(&v, n, &size, rgb)) > 0)
        n++;
    if (!rc)
        printf("  %5lld x %-5lld %8.1f frames/s\n", (long long)width, (long long)height,
               (double)n / (seconds() - begin));
    video_close(&v);
    free(rgb);
    return rc;
}

/* Clips of 17 frames from random positions, each from a newly opened file. */
static int read_windows(const char *path, int64_t frames, int clips)
{
    const struct video_file file = {.path = path};
    struct clip c = {.size = {256, 144, true}, .frames = 17, .stride = 1};
    double begin = seconds(), fps;

    for (int i = 0; i < clips; i++) {
        c.skip = (int64_t)i * 7919 % (frames - c.frames);
        uint8_t *rgb = clip_read(&c, &file, &fps);
        if (!rgb)
            return -1;
        free(rgb);
    }
    printf("  clips of 17 frames, 256 x 144, from anywhere: %.1f clips/s\n",
           clips / (seconds() - begin));
    return 0;
}

static int bench(const char *folder)
{
    static const int64_t sizes[][2] = {{16, 9},    {256, 144},  {426, 240},  {640, 360},
                                       {854, 480}, {1280, 720}, {1920, 1080}};
    char path[4096];

    snprintf(path, sizeof path, "%s", path_in(folder, large.name));
    if (!movie_can(&large)) {
        printf("FFmpeg has no %s here\n", large.codec);
        return 0;
    }
    if (access(path, R_OK) && movie_write(&large, folder))
        return say_fail("%s cannot be written", path);
    printf("decoded from 1920 x 1080 and resized, by one thread:\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (read_all(path, sizes[i][0], sizes[i][1]))
            return -1;
    return read_windows(path, large.frames, 12);
}

/* ---- memory --------------------------------------------------------------------------------- */

enum { FILES = 48, LONGEST = 60, WORKERS = 3, MOST_SHRINK = 4 };

static const struct movie small[] = {
    {NULL, "libx264", 640, 360, LONGEST, 12, 2, false, false, "preset=ultrafast", 0, 0, false, 0},
    {NULL, "mpeg4", 352, 288, 40, 9, 2, true, false, NULL, 0, 0, false, 0},
    {NULL, "libx264", 320, 576, 50, 20, 3, true, false, "x264-params=open-gop=1", 0, 90, false, 0},
    {NULL, "mpeg2video", 160, 120, 30, 15, 0, true, false, NULL, 0, 0, false, 0},
};

struct data {
    char path[FILES][256];
    int64_t next, most;
    int shrink;
};

/* Every sixth file is damaged, every twelfth is truncated. */
static int spoil(const char *path, int i)
{
    FILE *f = i % 6 == 5 ? fopen(path, "r+b") : NULL;

    if (!f)
        return i % 6 == 5 ? say_fail("%s cannot be written", path) : 0;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    fseek(f, size / 3, SEEK_SET);
    for (long k = 0; k < size / 20; k++)
        putc((int)(k * 37 & 255), f);
    int rc = fclose(f);
    return rc || (i % 12 == 11 && truncate(path, size / 2)) ? -1 : 0;
}

static int write_files(struct data *d, const char *folder)
{
    int n = 0;

    for (int i = 0; i < FILES; i++) {
        struct movie m = small[i % 4];
        char name[32];
        snprintf(name, sizeof name, "%d.%s", i, i % 8 == 3 ? "mkv" : "mp4");
        m.name = name;
        m.width /= d->shrink;
        m.height /= d->shrink;
        m.seed = i;
        snprintf(d->path[i], sizeof d->path[i], "%s/%s", folder, name);
        if (!movie_can(&m))
            continue;
        if (movie_write(&m, folder) || spoil(d->path[i], i))
            return say_fail("%s cannot be written", d->path[i]);
        n++;
    }
    return n ? 0 : say_fail("FFmpeg has no encoder here");
}

static int next_clip(void *user, struct loader_clip *c)
{
    struct data *d = user;
    int64_t n = d->next;

    if (n == d->most)
        return 0;
    d->next++;
    *c = (struct loader_clip){.sample = n,
                              .row = n * 29 % FILES,
                              .frames = 1 + n % 3 * 8,
                              .height = (n % 5 ? 144 : 240) / d->shrink,
                              .width = (n % 7 ? 256 : 320) / d->shrink};
    return 1;
}

static int read_clip(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                     double *fps)
{
    const struct data *d = user;
    struct clip clip = {.size = {c->width, c->height, true}, .frames = c->frames, .stride = 1};
    struct video *v = loader_file_open(f, &(struct video_file){.path = d->path[row]});
    int64_t all = v ? video_frames(v) : -1;

    clip.skip = all > c->frames ? c->sample * 13 % (all - c->frames) : 0;
    if (all < 0 || clip_take(&clip, v, c->rgb))
        return -1;
    *fps = v->fps;
    return 1;
}

/* The largest resident set since a given clip. */
struct watch {
    int64_t before, early, most;
};

static int take_all(struct loader *l, struct data *d, struct watch *w)
{
    struct loader_clip c;

    for (int64_t n = 0; n < d->most; n++) {
        if (loader_take(l, &c))
            return -1;
        loader_release(l);
        int64_t rss = say_rss();
        w->most = rss > w->most ? rss : w->most;
        if (n == d->most / 4)
            w->early = w->most;
        if (n % (d->most / 8 + 1) == 0)
            printf("  %8lld clips, resident set %.1f MiB\n", (long long)n, (double)rss / (1 << 20));
    }
    return 0;
}

static int judge(const struct watch *w, int64_t wall)
{
    int64_t taken = w->most - w->before, grown = w->most - w->early;

    printf("  the loader took %.1f MiB of %.1f; behind the first quarter the resident set of %.1f "
           "MiB grew by %.2f\n",
           (double)taken / (1 << 20), (double)wall / (1 << 20), (double)w->most / (1 << 20),
           (double)grown / (1 << 20));
    if (taken > wall)
        return say_fail("the loader took more than its wall");
    return grown > w->early / 100 ? say_fail("the resident set grows") : 0;
}

static int soak(const char *folder, int64_t clips, int64_t workers, int shrink)
{
    static struct data d;
    const int64_t clip = 17 * (240 / shrink) * (320 / shrink) * 3;
    const struct loader_need need = {clip, 4 * clip, (640 / shrink) * (360 / shrink)};
    const struct loader_options o = {.workers = workers, .max_bad = FILES};
    const struct loader_source source = {
        .next = next_clip, .read = read_clip, .rows = FILES, .user = &d};
    struct loader_room room;
    struct loader *l = NULL;

    d.shrink = shrink;
    if (write_files(&d, folder) || loader_divide(&o, &need, &room))
        return -1;
    d.most = clips;
    malloc_trim(0); /* memory left from writing the files */
    struct watch w = {.before = say_rss()};
    int rc = loader_open(&l, &o, &need, &source) || take_all(l, &d, &w);
    loader_close(l);
    return rc ? -1 : judge(&w, room.clips + workers * room.decoder);
}

static int64_t number(int argc, char **argv, int i, int64_t otherwise)
{
    return argc > i ? atoll(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    int64_t clips = number(argc, argv, 2, 1), workers = number(argc, argv, 3, WORKERS);
    int64_t shrink = number(argc, argv, 4, 1);

    if (argc < 2 || argc > 5 || clips < 1 || workers < 1 || shrink < 1 || shrink > MOST_SHRINK) {
        fprintf(stderr, "usage: bench_loader FOLDER [CLIPS [WORKERS [SHRINK, 1 to %d]]]\n",
                MOST_SHRINK);
        return 2;
    }
    return (argc > 2 ? soak(argv[1], clips, workers, (int)shrink) : bench(argv[1])) ? 1 : 0;
}
