/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data and the result picture of `make demo-text`.
 *
 * text_clips make DIR WxH FRAMES: makes four clips from the bundled one, as pixels in place of the
 * latents that cogvideo-train reads: DIR/NAME.safetensors with encoded_video [3, FRAMES, H, W] in
 * [-1, 1].  Writes their names to DIR/videos.txt and their captions to DIR/prompts.txt.  The clips
 * are the rabbit unchanged, at night (dark and blue), in autumn (mirrored, its green turned to red)
 * and upside down.
 *
 * text_clips show PNG FILE...: draws clips in columns.  The first half of the files is the data;
 * the second half, below it, is the sampled clips.  Prints the distances between them; the status
 * is 1 unless each sampled clip is nearest to its own data.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/clip.h"
#include "../../common/memory.h"
#include "../../common/picture.h"
#include "../../common/say.h"
#include "../../common/tensors.h"

const char say_program[] = "text_clips";

enum {
    PATH = 4096,
    ZOOM = 4,
    GAP = 6,
    WHITE = 255,
    SHOWN = 3 /* frames of a clip, from top to bottom */
};

static const struct kind {
    const char *name, *prompt;
    float tint[3][3]; /* of red, green and blue: weights of the clip's channels */
    bool mirrored, turned;
} kinds[] = {
    {"meadow", "a rabbit in a green meadow.", {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, false, false},
    {"night", "a rabbit at night.", {{.25f, 0, 0}, {0, .35f, 0}, {.2f, .2f, .6f}}, false, false},
    {"autumn", "a rabbit in autumn.", {{0, 1.2f, 0}, {.5f, .3f, 0}, {0, 0, .5f}}, true, false},
    {"turned", "a rabbit, upside down.", {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, false, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- making -------------------------------------------------------------------------------- */

/* The value of a channel of a variant at a pixel of a frame. */
static float value_at(const struct kind *k, const uint8_t *frame, int64_t width, int64_t height,
                      int64_t x, int64_t y, int channel)
{
    const uint8_t *p =
        frame + ((k->turned ? height - 1 - y : y) * width + (k->mirrored ? width - 1 - x : x)) * 3;
    float v = 0;

    for (int c = 0; c < 3; c++)
        v += k->tint[channel][c] * (float)p[c];
    return fminf(v, 255.f) / 127.5f - 1.f;
}

static void fill(const struct kind *k, const uint8_t *rgb, const int64_t shape[4], float *z)
{
    int64_t height = shape[2], width = shape[3], i = 0;

    for (int channel = 0; channel < 3; channel++)
        for (int64_t f = 0; f < shape[1]; f++)
            for (int64_t y = 0; y < height; y++)
                for (int64_t x = 0; x < width; x++)
                    z[i++] =
                        value_at(k, rgb + f * height * width * 3, width, height, x, y, channel);
}

static int write_clip(const char *dir, const struct kind *k, const int64_t shape[4], const float *z)
{
    const struct tensor video = {"encoded_video", CKPT_F32, 4, shape, z};
    char path[PATH];

    snprintf(path, sizeof path, "%s/%s.safetensors", dir, k->name);
    return tensors_write(path, 1, &video);
}

/* Writes one line per variant. */
static int write_list(const char *dir, const char *file, bool prompts)
{
    char path[PATH];

    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "w");
    if (!f)
        return say_fail("%s: cannot be written", path);
    for (int i = 0; i < KINDS; i++)
        fprintf(f, "%s\n", prompts ? kinds[i].prompt : kinds[i].name);
    return fclose(f) ? say_fail("%s: cannot be written", path) : 0;
}

static int make(const char *dir, int64_t width, int64_t height, int64_t frames)
{
    struct clip c = {.size = {width, height, true}, .frames = frames, .stride = 16 / frames};
    const struct video_file file = {.path = clip_shipped()};
    int64_t shape[] = {3, frames, height, width};
    double fps;
    uint8_t *rgb = file.path ? clip_read(&c, &file, &fps) : NULL;
    float *z = MEMORY_FOR(sizeof *z, 3, frames, height, width);
    int rc = rgb && z ? 0 : -1;

    for (int i = 0; i < KINDS && !rc; i++) {
        fill(&kinds[i], rgb, shape, z);
        rc = write_clip(dir, &kinds[i], shape, z);
    }
    free(rgb);
    free(z);
    return rc || write_list(dir, "videos.txt", false) || write_list(dir, "prompts.txt", true) ? -1
                                                                                              : 0;
}

/* ---- showing ------------------------------------------------------------------------------- */

struct pixels_of {
    int64_t frames, height, width;
    float *z; /* [3, frames, height, width] */
};

static int read_clip(struct pixels_of *p, const char *path)
{
    int64_t shape[] = {3, -1, -1, -1};
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    float *z = tensor_read(f, path, "encoded_video", 4, shape);
    *p = (struct pixels_of){shape[1], shape[2], shape[3], z};
    ckpt_file_close(f);
    return z ? 0 : -1;
}

/* Mean squared difference. */
static double distance(const struct pixels_of *a, const struct pixels_of *b)
{
    int64_t n = 3 * a->frames * a->height * a->width;
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (a->z[i] - b->z[i]) * (a->z[i] - b->z[i]);
    return sum / (double)n;
}

static void draw(uint8_t *canvas, int64_t stride, const struct pixels_of *p, int64_t frame)
{
    int64_t plane = p->height * p->width;

    for (int64_t y = 0; y < p->height * ZOOM; y++)
        for (int64_t x = 0; x < p->width * ZOOM; x++)
            for (int64_t c = 0; c < 3; c++) {
                float v = p->z[(c * p->frames + frame) * plane + y / ZOOM * p->width + x / ZOOM];
                canvas[y * stride + x * 3 + c] =
                    (uint8_t)lrintf(fminf(fmaxf(v * .5f + .5f, 0), 1) * 255);
            }
}

static int write_picture(const char *path, const struct pixels_of *p, int columns)
{
    int64_t width = p->width * ZOOM + GAP, height = p->height * ZOOM + GAP;
    int64_t all = width * columns + GAP, rows = height * 2 * SHOWN + 3 * GAP;
    uint8_t *canvas = MEMORY_FOR(3, all, rows);

    if (!canvas)
        return say_fail("no memory for a picture");
    memset(canvas, WHITE, (size_t)(all * rows * 3));
    for (int i = 0; i < 2 * columns; i++)
        for (int k = 0; k < SHOWN; k++) {
            int64_t at = ((i / columns * SHOWN + k) * height + GAP + i / columns * 2 * GAP) * all +
                         i % columns * width + GAP;
            draw(canvas + at * 3, all * 3, &p[i], k * (p[i].frames - 1) / (SHOWN - 1));
        }
    int rc = picture_write(path, 1, rows, all, canvas, 1);
    free(canvas);
    return rc;
}

/* Prints the distance of each sampled clip from each data clip; returns how many are nearest to
 * another one. */
static int compare(const struct pixels_of *p, int columns)
{
    int wrong = 0;

    printf("distance of sampled clips (rows) from the data (columns):\n");
    for (int i = 0; i < columns; i++) {
        double own = distance(&p[columns + i], &p[i]);
        bool nearest = true;
        for (int k = 0; k < columns; k++) {
            double d = distance(&p[columns + i], &p[k]);
            nearest = nearest && (k == i || d > own);
            printf("  %7.4f", d);
        }
        printf("%s\n", nearest ? "" : "  (another is nearer)");
        wrong += !nearest;
    }
    return wrong;
}

static int show(const char *path, int n, char **file)
{
    struct pixels_of p[2 * KINDS] = {{0}};
    int rc = n > 0 && n <= 2 * KINDS && n % 2 == 0 ? 0 : say_fail("give clips, and as many drawn");

    for (int i = 0; i < n && !rc; i++) {
        rc = read_clip(&p[i], file[i]);
        if (!rc && (p[i].frames != p->frames || p[i].height != p->height || p[i].width != p->width))
            rc = say_fail("%s: has another size than %s", file[i], file[0]);
    }
    if (!rc)
        rc = write_picture(path, p, n / 2);
    if (!rc && compare(p, n / 2))
        rc = say_fail("a prompt did not draw its own clip");
    for (int i = 0; i < 2 * KINDS; i++)
        free(p[i].z);
    return rc;
}

int main(int argc, char **argv)
{
    int width, height, frames, rc = -1;

    if (argc == 5 && !strcmp(argv[1], "make") && sscanf(argv[3], "%dx%d", &width, &height) == 2 &&
        width > 0 && height > 0 && (frames = atoi(argv[4])) > 1 && frames <= 16)
        rc = make(argv[2], width, height, frames);
    else if (argc > 3 && !strcmp(argv[1], "show"))
        rc = show(argv[2], argc - 3, argv + 3);
    else
        say_fail("text_clips make DIR WxH FRAMES, or text_clips show PNG FILE...");
    return rc ? 1 : 0;
}
