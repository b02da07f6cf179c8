/* SPDX-License-Identifier: Apache-2.0 */
/* Clips of the videos in a directory; see videos.h. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "list.h"
#include "../common/csv.h"
#include "../common/say.h"
#include "../common/shortage.h"
#include "../common/text_file.h"
#include "videos.h"

static int append(struct videos *v, struct videos_file video)
{
    struct videos_file *file = realloc(v->file, (size_t)(v->n_files + 1) * sizeof *file);

    if (file)
        v->file = file;
    if (!file || !video.file.path) {
        video_file_free(&video.file);
        free(video.caption);
        v->lacked = true;
        return say_fail("no memory for the names of videos");
    }
    video.first = v->rows;
    file[v->n_files++] = video;
    v->rows += video.clips;
    return 0;
}

/* Takes ownership of the name, NULL without memory. */
static void leave_out(struct videos *v, char *name)
{
    char **left = name ? realloc(v->left, (size_t)(v->n_left + 1) * sizeof *left) : NULL;

    say_note("%s is left out", name ? name : "a video");
    v->left = left ? left : v->left;
    v->lacked |= !left;
    if (left)
        left[v->n_left++] = name;
    else
        free(name);
}

/* Sets the number of clips in a video, at most `most` if that is not 0. */
static int count_clips(const struct videos *v, struct videos_file *video, const char *path,
                       int64_t most)
{
    int64_t clips = v->whole ? 1 : (video->frames + v->stride - 1) / (v->frames * v->stride);

    video->clips = most > 0 && clips > most ? most : clips;
    return clips ? 0
                 : say_fail("%s: has %lld frames; --frames and --stride ask for %lld", path,
                            (long long)video->frames, (long long)((v->frames - 1) * v->stride + 1));
}

/* The frame count in the file's header is trusted: decoding all frames would be slow. */
static int look(struct videos *v, struct video *f, struct videos_file *video, int64_t most)
{
    video->width = f->width;
    video->height = f->height;
    video->fps = f->fps;
    video->frames = f->announced ? f->announced : video_frames(f);
    if (video->frames <= 0)
        return video->frames < 0 ? -1 : say_fail("%s: has no frame", f->path);
    return v->frames || v->whole ? count_clips(v, video, f->path, most) : 0;
}

/* Takes ownership of caption, which may be NULL. */
static int add(struct videos *v, const struct video_file *file, int64_t most, char *caption)
{
    struct videos_file video = {.file = *file, .caption = caption};
    struct video f;

    shortage_take();
    int rc = video_open_file(&f, file) ? -1 : look(v, &f, &video, most);
    v->lacked |= shortage_take();
    video_close(&f);
    if (rc) {
        free(caption);
        return -1;
    }
    if (video_file_copy(&video.file, file))
        video_file_free(&video.file); /* append reports the error */
    return append(v, video);
}

static const char *const videos[] = {".3gp", ".avi", ".flv", ".gif",  ".m2ts", ".m4v",
                                     ".mkv", ".mov", ".mp4", ".mpeg", ".mpg",  ".mts",
                                     ".ogv", ".rgb", ".ts",  ".webm", ".wmv",  NULL},
                         *const shards[] = {".tar", NULL}, *const images[] = {".bmp",  ".jpeg",
                                                                              ".jpg",  ".png",
                                                                              ".webp", NULL};

static int ends_in(const char *name, const char *const *endings)
{
    const char *dot = strrchr(name, '.');

    for (int i = 0; dot && !strchr(dot, '/') && endings[i]; i++)
        if (!strcasecmp(dot, endings[i]))
            return 1;
    return 0;
}

/* What a directory or a tar file hides: names with a leading dot, as ._a.mp4 of macOS. */
static bool is_hidden(const char *name)
{
    const char *slash = strrchr(name, '/');

    return (slash ? slash[1] : name[0]) == '.';
}

static int is_entry(const struct dirent *e)
{
    return !is_hidden(e->d_name) && (ends_in(e->d_name, videos) || ends_in(e->d_name, shards));
}

static int is_sample_entry(const struct dirent *e)
{
    return is_entry(e) || (!is_hidden(e->d_name) && ends_in(e->d_name, images));
}

static int add_shard(struct videos *v, const char *path, int64_t most)
{
    struct captions_in captions = {.n = 0};
    struct shard s;
    int rc = shard_open(&s, path) || captions_in_open(&captions, path, &s) ? -1 : 0;

    for (int64_t i = 0; i < s.n && !rc; i++) {
        const struct shard_member *m = &s.member[i];
        const struct video_file file = {path, m->name, m->start, m->size, m->run, m->runs};
        bool video = ends_in(m->name, videos) || (v->whole && ends_in(m->name, images));
        if (is_hidden(m->name) || !video)
            continue;
        char *name = NULL;
        if (add(v, &file, most, captions_in_find(&captions, m->name)))
            leave_out(v, asprintf(&name, "%s/%s", path, m->name) < 0 ? NULL : name);
    }
    captions_in_close(&captions);
    shard_close(&s);
    return rc;
}

static int add_path(struct videos *v, const char *path, int64_t most)
{
    const struct video_file file = {.path = path};

    return ends_in(path, shards) ? add_shard(v, path, most)
                                 : add(v, &file, most, caption_beside(path));
}

static void drop(struct videos_file *video)
{
    video_file_free(&video->file);
    free(video->caption);
}

/* Clips without a given length have the usual one, or all frames of the longest video if no video
 * has so many: of clips that were cut for another model, as 16 frames, none would be left. */
static void choose_frames(struct videos *v, const char *path)
{
    int64_t longest = 1;

    for (int64_t i = 0; i < v->n_files; i++) {
        int64_t n = (v->file[i].frames - 1) / v->stride + 1;
        longest = n > longest ? n : longest;
    }
    v->frames = longest < v->usual ? longest : v->usual;
    if (v->frames < v->usual)
        say_note("%s: no video has %lld frames; clips have %lld, as the longest (--frames sets it)",
                 path, (long long)v->usual, (long long)v->frames);
}

static void take_frames(struct videos *v, const char *path, int64_t most)
{
    int64_t n = 0;

    choose_frames(v, path);
    v->rows = 0;
    for (int64_t i = 0; i < v->n_files; i++) {
        struct videos_file *video = &v->file[i];
        const char *name = video->file.member ? video->file.member : video->file.path;
        if (count_clips(v, video, name, most)) {
            leave_out(v, strdup(name));
            drop(video);
            continue;
        }
        video->first = v->rows;
        v->rows += video->clips;
        v->file[n++] = *video;
    }
    v->n_files = n;
}

static int finish_list(struct videos *v, const char *path, int64_t most)
{
    if (v->lacked)
        return say_fail("%s: for want of memory or descriptors it could not be read whole; a run "
                        "without these videos would be another one",
                        path);
    if (!v->n_files)
        return say_fail("%s: there is no video in it", path);
    if (!v->frames && !v->whole)
        take_frames(v, path, most);
    return 0;
}

static int add_directory(struct videos *v, const char *directory, int64_t most)
{
    struct dirent **entry;
    char path[4096];
    int n = scandir(directory, &entry, v->whole ? is_sample_entry : is_entry, alphasort);

    if (n < 0)
        return say_fail("%s: %s", directory, strerror(errno));
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, entry[i]->d_name);
        if (add_path(v, path, most))
            leave_out(v, strdup(path));
        free(entry[i]);
    }
    free(entry);
    return finish_list(v, directory, most);
}

static int open_path(struct videos *v, const char *path, int64_t clips)
{
    struct stat st;

    if (stat(path, &st))
        return say_fail("%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return add_directory(v, path, clips);
    return add_path(v, path, clips) ? -1 : finish_list(v, path, clips);
}

void videos_close(struct videos *v)
{
    for (int64_t i = 0; i < v->n_files; i++)
        drop(&v->file[i]);
    for (int64_t i = 0; i < v->n_left; i++)
        free(v->left[i]);
    free(v->left);
    free(v->file);
    *v = (struct videos){0};
}

static const struct videos_file *file_of(const struct videos *v, int64_t row)
{
    int64_t low = 0, high = v->n_files - 1;

    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (v->file[middle].first <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return &v->file[low];
}

double videos_rate(const struct videos *v, int64_t frames, double fps)
{
    return frames == 1 ? 120 : floor((fps > 0 ? fps : 24) / (double)v->stride + 1e-6);
}

double videos_fps(const struct videos *v, int64_t row)
{
    return videos_rate(v, v->frames, file_of(v, row)->fps);
}

const struct video_file *videos_find(const struct videos *v, int64_t row, double place,
                                     struct clip *c)
{
    const struct videos_file *file = file_of(v, row);
    int64_t window = c->frames * v->stride, more = file->frames - window;

    c->stride = v->stride;
    if (v->whole)
        c->skip = more > 0 ? (int64_t)(place * (double)more) : 0;
    else
        c->skip = (row - file->first) * window;
    return &file->file;
}

int64_t videos_frames(const struct videos *v, int64_t row)
{
    return file_of(v, row)->frames;
}

/* The signature is the loader's. */
const char *videos_name(const void *of, int64_t row)
{
    const struct video_file *f = &file_of(of, row)->file;
    const char *name = f->member ? f->member : f->path, *slash = strrchr(name, '/');

    return slash ? slash + 1 : name;
}

const char *videos_caption(const struct videos *v, int64_t row)
{
    return file_of(v, row)->caption;
}

static int64_t pixels_of(const struct videos_file *v)
{
    return v->height * v->width;
}

const struct video_file *videos_largest(const struct videos *v)
{
    const struct videos_file *most = v->file;

    for (int64_t i = 1; i < v->n_files; i++)
        if (pixels_of(&v->file[i]) > pixels_of(most))
            most = &v->file[i];
    return &most->file;
}

int64_t videos_pixels(const struct videos *v)
{
    int64_t most = 0;

    for (int64_t i = 0; i < v->n_files; i++) {
        int64_t pixels = pixels_of(&v->file[i]);
        most = pixels > most ? pixels : most;
    }
    return most;
}

/* A name in a list, relative to the directory of the list. */
static char *beside(const char *list, const char *name)
{
    const char *slash = strrchr(list, '/');
    char *path = NULL;

    if (*name == '/' || !slash)
        return strdup(name);
    return asprintf(&path, "%.*s/%s", (int)(slash - list), list, name) < 0 ? NULL : path;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static bool is_listed(const char *path)
{
    char list[4096];

    return snprintf(list, sizeof list, "%s/videos.txt", path) < (int)sizeof list &&
           !access(list, F_OK);
}

static int open_lines(struct videos *v, const char *directory)
{
    char paths[4096], prompts[4096];
    struct video_list l;

    if (snprintf(prompts, sizeof prompts, "%s/prompts.txt", directory) >= (int)sizeof prompts)
        return say_fail("%s: the name is too long", directory);
    snprintf(paths, sizeof paths, "%s/videos.txt", directory);
    if (video_list_lines(&l, paths, prompts))
        return -1;
    for (int64_t i = 0; i < l.n; i++) {
        char *path = beside(paths, l.video[i]);
        const struct video_file file = {.path = path};
        v->lacked |= !path;
        if (!path || add(v, &file, 0, strdup(l.prompt[i])))
            leave_out(v, strdup(l.video[i]));
        free(path);
    }
    video_list_free(&l);
    return finish_list(v, paths, 0);
}

/* ---- whole files ---------------------------------------------------------------------------- */

enum { PATH, FRAMES, HEIGHT, WIDTH, COLUMNS, TEXT = COLUMNS, ALL };

static int find_columns(const struct csv *c, int at[ALL], bool paths)
{
    static const char *const name[] = {"path", "num_frames", "height", "width"};

    for (int i = paths ? PATH : FRAMES; i < COLUMNS; i++) {
        at[i] = csv_find(c, name[i]);
        if (at[i] < 0)
            return say_fail("%s: has no column \"%s\"", c->path, name[i]);
    }
    at[TEXT] = csv_find(c, "text");
    return 0;
}

static int64_t number_of(const struct csv *c, int column)
{
    char *end;
    const char *text = column < c->n ? c->field[column] : "";
    double n = strtod(text, &end); /* tables out of pandas write 51.0 */

    return end != text && !*end && n >= 1 && n <= 1e9 && n == floor(n) ? (int64_t)n : 0;
}

static int add_row(struct videos *v, const struct csv *c, const int at[ALL], bool paths)
{
    struct videos_file video = {.clips = 1,
                                .fps = 24,
                                .frames = number_of(c, at[FRAMES]),
                                .height = number_of(c, at[HEIGHT]),
                                .width = number_of(c, at[WIDTH])};

    if (!video.frames || !video.height || !video.width || (paths && at[PATH] >= c->n))
        return say_fail(
            "%s: line %lld: num_frames, height and width must be whole numbers, 1 or more", c->path,
            (long long)c->line);
    video.file.path = paths ? beside(c->path, c->field[at[PATH]]) : strdup("");
    if (at[TEXT] >= 0 && at[TEXT] < c->n)
        video.caption = strdup(text_strip(c->field[at[TEXT]]));
    return append(v, video);
}

int videos_list(struct videos *v, const char *path, bool paths)
{
    struct csv c;
    int at[ALL], rc = csv_open(&c, path);

    if (rc)
        return -1;
    rc = csv_next(&c);
    if (rc == 0)
        rc = say_fail("%s: is empty", path);
    rc = rc < 0 ? -1 : find_columns(&c, at, paths);
    for (int more = 1; !rc && more > 0;) {
        more = csv_next(&c);
        rc = more < 0 ? -1 : more ? add_row(v, &c, at, paths) : 0;
    }
    csv_close(&c);
    return rc ? -1 : v->rows ? 0 : say_fail("%s: lists no clip", path);
}

/* ---- any kind of path ----------------------------------------------------------------------- */

static bool is_table(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && !strcasecmp(dot, ".csv");
}

int videos_any(struct videos *v, const char *path, int64_t clips)
{
    bool lines = is_listed(path);

    v->whole |= lines || is_table(path);
    if (lines)
        return open_lines(v, path);
    return is_table(path) ? videos_list(v, path, true) : open_path(v, path, clips);
}

int videos_sizes(const struct videos *v, struct bucket_sample **size)
{
    struct bucket_sample *all = calloc((size_t)v->rows + 1, sizeof *all);

    if (!all)
        return say_fail("no memory for the sizes of %lld clips", (long long)v->rows);
    for (int64_t i = 0; i < v->rows; i++)
        all[i] = (struct bucket_sample){v->file[i].frames, v->file[i].height, v->file[i].width};
    *size = all;
    return 0;
}
