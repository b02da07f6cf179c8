/* SPDX-License-Identifier: Apache-2.0 */
/* Clips out of the videos of a directory; see videos.h. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../common/clip.h"
#include "../common/frames.h"
#include "../common/say.h"
#include "videos.h"

struct stdit_video {
    char *path;
    int64_t first, clips; /* rows */
    double fps;
};

/* How many clips the file has room for; a file that does not say has one. */
static int64_t clips_of(const struct stdit_videos *v, const struct frames *f)
{
    if (!f->announced)
        return 1;
    return (f->announced + v->stride - 1) / (v->frames * v->stride);
}

static int add(struct stdit_videos *v, const char *path, int64_t most)
{
    struct frames f;

    if (frames_open(&f, path))
        return -1;
    int64_t clips = clips_of(v, &f), announced = f.announced;
    double fps = f.fps;
    frames_close(&f);
    if (clips < 1)
        return say_fail("%s: has %lld frames; --frames and --stride ask for %lld", path,
                        (long long)announced, (long long)((v->frames - 1) * v->stride + 1));
    clips = most > 0 && clips > most ? most : clips;
    char *copy = strdup(path);
    struct stdit_video *file = realloc(v->file, (size_t)(v->n_files + 1) * sizeof *file);
    if (file)
        v->file = file;
    if (!file || !copy) {
        free(copy);
        return say_fail("no memory for the names of videos");
    }
    file[v->n_files++] = (struct stdit_video){copy, v->rows, clips, fps > 0 ? fps : 24};
    v->rows += clips;
    return 0;
}

/* What begins with a dot is hidden, and text that stands beside videos has none of these endings.
 */
static int is_video(const struct dirent *e)
{
    static const char *const endings[] = {".avi", ".gif", ".m4v",  ".mkv",
                                          ".mov", ".mp4", ".webm", ".rgb"};
    const char *dot = strrchr(e->d_name, '.');

    for (size_t i = 0; dot && dot != e->d_name && i < sizeof endings / sizeof *endings; i++)
        if (!strcasecmp(dot, endings[i]))
            return 1;
    return 0;
}

static int add_directory(struct stdit_videos *v, const char *directory, int64_t most)
{
    struct dirent **entry;
    char path[4096];
    int n = scandir(directory, &entry, is_video, alphasort);

    if (n < 0)
        return say_fail("%s: %s", directory, strerror(errno));
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, entry[i]->d_name);
        if (add(v, path, most))
            say_note("%s is left out", path);
        free(entry[i]);
    }
    free(entry);
    return v->rows ? 0 : say_fail("%s: no video to train on", directory);
}

int stdit_videos_open(struct stdit_videos *v, const char *path, int64_t clips)
{
    struct stat st;

    if (stat(path, &st))
        return say_fail("%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? add_directory(v, path, clips) : add(v, path, clips);
}

void stdit_videos_close(struct stdit_videos *v)
{
    for (int64_t i = 0; i < v->n_files; i++)
        free(v->file[i].path);
    free(v->file);
    *v = (struct stdit_videos){0};
}

static const struct stdit_video *file_of(const struct stdit_videos *v, int64_t row)
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

double stdit_videos_fps(const struct stdit_videos *v, int64_t row)
{
    return v->frames == 1 ? 120 : floor(file_of(v, row)->fps / (double)v->stride + 1e-6);
}

int stdit_videos_read(const struct stdit_videos *v, int64_t row, uint8_t **rgb)
{
    const struct stdit_video *file = file_of(v, row);
    struct clip c = {.width = v->width,
                     .height = v->height,
                     .frames = v->frames,
                     .skip = (row - file->first) * v->frames * v->stride,
                     .stride = v->stride};

    if (clip_read(&c, file->path)) {
        free(c.rgb);
        return -1;
    }
    *rgb = c.rgb;
    return 0;
}
