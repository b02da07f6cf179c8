/* SPDX-License-Identifier: Apache-2.0 */
/* volume-infer: segments volumes with a trained 3-D U-Net, window by window, inside a memory
 * budget. */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../common/directory.h"
#include "../common/memory.h"
#include "../common/options.h"
#include "../common/outputs.h"
#include "../common/picture.h"
#include "../common/say.h"
#include "../zoo/unet.h"
#include "ckpt_files.h"
#include "dataset.h"
#include "windows.h"

const char say_program[] = "volume-infer";

struct infer {
    const char *load, *data, *out, *picture, *intensity, *window, *blend, *unpack, *dtype;
    int64_t levels, width, widest, classes, batch;
    double overlap;
    bool help, version;
    struct ckpt_options library;
    /* derived from the options */
    int64_t side[3]; /* of a window */
    struct volume_set data_set;
    struct unet model;
    ckpt *context;
    ckpt_program *program;
    float *images, *scores; /* [batch][window], without and with classes */
    uint8_t *labels;        /* for the largest volume */
};

#define ROW(...)   CKPT_OPTION(struct infer, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct infer, __VA_ARGS__)

static const char usage[] =
    "Usage: volume-infer --load FILE --data FILE [OPTION]...\n\n"
    "Segments volumes (CT, MR) with a 3-D U-Net of volume-train, window by "
    "window, inside\na memory budget.\n"
    "\nExamples:\n  volume-infer --load weights.safetensors --data list.csv --output labels\n"
    "  volume-infer --load weights.safetensors --data dataset.json --vram 4G --output labels\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Files"),
    ROW("load", STRING, load, "FILE", "weights from volume-train (safetensors)"),
    ROW("data", STRING, data, "FILE",
        "volumes: dataset.json of the Medical Segmentation Decathlon, or CSV with the column image "
        "and, to print Dice, label"),
    ROW("picture", STRING, picture, "FILE",
        "write the slice of the first volume with the most labelled voxels as PNG: image, "
        "predicted labels and, if listed, true labels"),
    ROW("output", STRING, out, "DIR", "directory for label maps, named after the images"),
    CKPT_OPTION_GROUP("Model"),
    VOLUME_UNET_ROWS,
    VOLUME_CLASSES_ROW,
    CKPT_OPTION_GROUP("Windows"),
    ROW("intensity", STRING, intensity, "KIND",
        "scaling of images, as in volume-train: ct:LOW,HIGH or mr (default mr)"),
    ROW("window", STRING, window, "DxHxW",
        "slices, rows and columns of a window (default 128x128x128)"),
    RANGE("overlap", FLOAT, overlap, "X",
          "fraction of a window that overlaps with the next one (default 0.5)", 0, 0.99),
    ROW("blend", STRING, blend, "KIND",
        "weights of the voxels of a window: gaussian or constant (default gaussian)"),
    RANGE("batch", INT, batch, "N", "windows per forward pass (default 1)", 1, 65536),
    VOLUME_UNPACK_ROW,
    CKPT_OPTION_ALIAS("out", "output"),
    HELP_ROWS,
    {0},
};

static int check(struct infer *o)
{
    int64_t *side[] = {&o->side[0], &o->side[1], &o->side[2]};
    int64_t cell = INT64_C(1) << (o->levels - 1);

    if (!o->library.plan_only && (!o->load || !o->data))
        return say_fail("give weights with --load FILE and volumes with --data FILE");
    if (o->library.ranks)
        return say_fail("--ranks: volume-infer is one process; give each process its own list");
    if (strcmp(o->blend, "gaussian") && strcmp(o->blend, "constant"))
        return say_fail("--blend %s: give gaussian or constant", o->blend);
    if (option_sizes("window", o->window, "128x128x128", 3, side) ||
        dtype_select_for(&o->dtype, o->load))
        return -1;
    for (int i = 0; i < 3; i++)
        if (o->side[i] % cell)
            return say_fail("--window %s: with --levels %lld, give multiples of %lld", o->window,
                            (long long)o->levels, (long long)cell);
    return volume_intensity_parse(&o->data_set.intensity, o->intensity) ||
                   outputs_untrained(&o->library)
               ? -1
               : 0;
}

static int parse(struct infer *o, int argc, char **argv)
{
    const struct option_reading reading = OPTION_READING(o, table, usage, false);
    const char *directory = getenv("TMPDIR");

    *o = (struct infer){.levels = 5,
                        .width = 32,
                        .widest = 320,
                        .window = "128x128x128",
                        .blend = "gaussian",
                        .overlap = 0.5,
                        .batch = 1,
                        .unpack = directory && directory[0] ? directory : "/tmp",
                        .library = CKPT_OPTIONS_INIT};
    int rc = options_read(&reading, argc, argv);
    if (rc)
        return rc;
    return check(o);
}

/* ---- the program --------------------------------------------------------------------------- */

/* Uses batch-invariant kernels: a window has the same bits alone and in any batch. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct infer *o = user;
    int64_t shape[] = {batch, o->side[0], o->side[1], o->side[2], 1};
    ckpt_tensor x = ckpt_input(t, "image", CKPT_F32, 5, shape);

    x = ckpt_cast(t, x, o->model.shape.dtype);
    x = ckpt_cast(t, unet_apply(&o->model, t, x, true), CKPT_F32);
    ckpt_output(t, "scores", x);
    return x;
}

static int make_program(struct infer *o)
{
    struct unet_shape shape = {.levels = o->levels,
                               .width = o->width,
                               .widest = o->widest,
                               .inputs = 1,
                               .classes = o->data_set.classes,
                               .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16};
    int unmatched = 0;

    unet_create(&o->model, o->context, &shape);
    if (o->load && ckpt_load_params(o->context, o->load, NULL, NULL, &unmatched))
        return say_fail("%s", ckpt_error(o->context));
    if (unmatched)
        return say_fail("%s: is not of this model (see --levels, --width, --max-width)", o->load);
    if (ckpt_compile(o->context, record, o, NULL, o->batch, &o->program))
        return say_fail("%s", ckpt_error(o->context));
    ckpt_plan_print(o->program, stdout);
    return 0;
}

/* Host memory beside the arena for the largest volume.  It counts against --host. */
static int reserve(struct infer *o)
{
    int64_t most = 0, voxels = 0, places = o->side[0] * o->side[1] * o->side[2];
    int64_t classes = o->data_set.classes;
    char bytes[32], given[32];

    for (int64_t i = 0; i < o->data_set.n; i++) {
        const struct volume *v = &o->data_set.cases[i].image;
        int64_t blended = windows_bytes(v->size, o->side, classes);
        most = blended > most ? blended : most;
        voxels = volume_voxels(v) > voxels ? volume_voxels(v) : voxels;
    }
    most += voxels + o->batch * places * (1 + classes) * (int64_t)sizeof(float);
    printf("host: %s for windows, blended scores and labels\n", say_bytes(bytes, most));
    if (o->library.host && o->library.host < most)
        return say_fail("--host %s: windows, blended scores and labels need %s",
                        say_bytes(given, o->library.host), bytes);
    o->library.host -= o->library.host ? most : 0;
    o->images = MEMORY_FOR(sizeof(float), o->batch, places);
    o->scores = MEMORY_FOR(sizeof(float), o->batch, places, classes);
    o->labels = MEMORY_FOR(1, voxels);
    return o->images && o->scores && o->labels ? 0 : say_fail("no memory for it");
}

/* ---- volumes ------------------------------------------------------------------------------- */

/* The current volume, and the overlap of its labels with the labels of the list. */
struct result {
    struct infer *run;
    const struct volume_case *item;
    int64_t both[VOLUME_CLASSES], all[VOLUME_CLASSES]; /* voxels of each class */
    float *truth;                                      /* one slice; NULL: no label map */
};

/* Writes the class with the largest score; the first one if equal. */
static int take_slice(void *user, int64_t z, const float *scores)
{
    struct result *r = user;
    const int64_t *size = r->item->image.size;
    int64_t classes = r->run->data_set.classes, area = size[1] * size[2];
    uint8_t *to = r->run->labels + z * area;

    if (r->truth && volume_read(&r->item->label, (int64_t[]){z, 0, 0},
                                (int64_t[]){1, size[1], size[2]}, r->truth))
        return -1;
    for (int64_t i = 0; i < area; i++, scores += classes) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            best = scores[c] > scores[best] ? c : best;
        to[i] = (uint8_t)best;
        if (r->truth) {
            int64_t is = (int64_t)r->truth[i];
            r->both[best] += best == is;
            r->all[best]++;
            r->all[is]++;
        }
    }
    return 0;
}

/* Computes n windows from `first` on; the remaining places of the batch keep their old values. */
static int compute(struct infer *o, const struct volume_case *c, struct windows *w, int64_t first,
                   int64_t n, struct result *r)
{
    int64_t places = o->side[0] * o->side[1] * o->side[2], at[3], classes = w->classes;

    for (int64_t i = 0; i < n; i++) {
        windows_at(w, first + i, at);
        if (volume_take_image(&o->data_set, c, at, o->side, o->images + i * places))
            return -1;
    }
    if (ckpt_feed(o->program, "image", o->images, o->batch * places * (int64_t)sizeof(float)) ||
        ckpt_step(o->program, NULL) ||
        ckpt_fetch(o->program, "scores", o->scores,
                   o->batch * places * classes * (int64_t)sizeof(float)))
        return say_fail("%s", ckpt_error(o->context));
    for (int64_t i = 0; i < n; i++)
        if (windows_add(w, first + i, o->scores + i * places * classes, take_slice, r))
            return -1;
    return 0;
}

static int segment(struct infer *o, struct result *r)
{
    const struct volume_case *c = r->item;
    struct windows w;

    if (windows_open(&w, c->image.size, o->side, o->overlap, !strcmp(o->blend, "gaussian"),
                     o->data_set.classes))
        return -1;
    int64_t count = windows_count(&w);
    int rc = 0;
    say_print("%s: %lld windows%s\n", c->image.path, (long long)count,
              memcmp(w.size, w.padded, sizeof w.size) ? ", smaller than one: padded with 0" : "");
    fflush(stdout);
    for (int64_t i = 0; i < count && !rc; i += o->batch)
        rc = compute(o, c, &w, i, count - i < o->batch ? count - i : o->batch, r);
    windows_close(&w);
    return rc;
}

static void print_dice(const struct result *r)
{
    printf("  Dice");
    for (int64_t c = 1; c < r->run->data_set.classes; c++)
        if (r->all[c])
            printf("  %lld: %.4f", (long long)c, 2.0 * (double)r->both[c] / (double)r->all[c]);
        else
            printf("  %lld: none", (long long)c);
    printf("\n");
}

static int put(const struct infer *o, const struct volume *v)
{
    char name[4096], copy[4096];

    if (!o->out)
        return 0;
    snprintf(copy, sizeof copy, "%s", v->path);
    snprintf(name, sizeof name, "%.2000s/%.2000s", o->out, basename(copy));
    if (directory_make(o->out) || volume_write_labels(name, v, o->labels))
        return -1;
    say_print("  labels: %s\n", name);
    return 0;
}

/* Maps the values of the slice to grey levels, from its minimum to its maximum. */
static void draw_image(const float *x, int64_t n, uint8_t *rgb)
{
    float low = x[0], high = x[0];

    for (int64_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    for (int64_t i = 0; i < n; i++)
        memset(rgb + 3 * i, (int)(high > low ? 255 * (x[i] - low) / (high - low) : 0), 3);
}

/* One colour per class; the background is black. */
static void draw_label(int class, uint8_t *rgb)
{
    static const uint8_t colour[][3] = {{230, 80, 60},  {70, 160, 230},  {90, 200, 90},
                                        {240, 200, 60}, {170, 110, 220}, {240, 150, 200}};

    if (class > 0)
        memcpy(rgb, colour[(class - 1) % 6], 3);
    else
        memset(rgb, 0, 3);
}

/* The slice with most voxels of classes other than 0; the middle slice if there are none. */
static int64_t fullest(const struct infer *o, const struct volume *v)
{
    int64_t area = v->size[1] * v->size[2], best = v->size[0] / 2, most = 0;

    for (int64_t z = 0; z < v->size[0]; z++) {
        int64_t n = 0;
        for (int64_t i = 0; i < area; i++)
            n += o->labels[z * area + i] > 0;
        best = n > most ? z : best;
        most = n > most ? n : most;
    }
    return best;
}

static int draw(const struct infer *o, const struct volume_case *c, float *slice, uint8_t *rgb)
{
    const int64_t *size = c->image.size, n = size[1] * size[2], z = fullest(o, &c->image);
    const int64_t at[] = {z, 0, 0}, one[] = {1, size[1], size[2]};

    if (volume_take_image(&o->data_set, c, at, one, slice))
        return -1;
    draw_image(slice, n, rgb);
    for (int64_t i = 0; i < n; i++)
        draw_label(o->labels[z * n + i], rgb + 3 * (n + i));
    if (c->places && volume_read(&c->label, at, one, slice))
        return -1;
    for (int64_t i = 0; c->places && i < n; i++)
        draw_label((int)slice[i], rgb + 3 * (2 * n + i));
    int64_t longest = size[1] > size[2] ? size[1] : size[2];
    return picture_write(o->picture, c->places ? 3 : 2, size[1], size[2], rgb,
                         longest < 128 ? 128 / longest : 1);
}

static int put_picture(const struct infer *o, const struct volume_case *c)
{
    int64_t rows = c->image.size[1], columns = c->image.size[2];
    float *slice = MEMORY_FOR(sizeof *slice, rows, columns);
    uint8_t *rgb = MEMORY_FOR(9, rows, columns);
    int rc = slice && rgb ? draw(o, c, slice, rgb) : say_fail("no memory for a picture");

    free(slice);
    free(rgb);
    if (!rc)
        say_print("  picture: %s\n", o->picture);
    return rc;
}

static int do_case(struct infer *o, const struct volume_case *c)
{
    struct result *r = calloc(1, sizeof *r);
    int rc = r ? 0 : say_fail("no memory for a volume");

    if (r)
        *r = (struct result){.run = o, .item = c};
    if (r && c->places &&
        !(r->truth = MEMORY_FOR(sizeof(float), c->label.size[1], c->label.size[2])))
        rc = say_fail("no memory for a slice");
    rc = rc ? rc : segment(o, r);
    if (!rc && r->truth)
        print_dice(r);
    if (r)
        free(r->truth);
    free(r);
    if (!rc && o->picture && c == o->data_set.cases)
        rc = put_picture(o, c);
    return rc ? rc : put(o, &c->image);
}

static int check_outputs(const struct infer *o)
{
    const struct ckpt_path paths[] = {{"--load", o->load, CKPT_PATH_INPUT, 0},
                                      {"--data", o->data, CKPT_PATH_INPUT, 0},
                                      {"--picture", o->picture, CKPT_PATH_FILE, 0},
                                      {"--output", o->out, CKPT_PATH_DIRECTORY, 0}};

    return outputs_take(&o->library, paths, sizeof paths / sizeof *paths);
}

/* Labels have the names of the images, so they must not overwrite them. */
static int check_folder(const struct infer *o, const struct volume *v)
{
    struct stat out, folder;
    char copy[4096];

    snprintf(copy, sizeof copy, "%s", v->path);
    if (stat(o->out, &out) || stat(dirname(copy), &folder) || out.st_ino != folder.st_ino ||
        out.st_dev != folder.st_dev)
        return volume_writable(v->path);
    return say_fail("--output %s: is the folder of the image %s", o->out, v->path);
}

/* Output files have the names of the images, so two images must not have the same name. */
static int check_names(const struct infer *o)
{
    char a[4096], b[4096];

    for (int64_t i = 0; o->out && i < o->data_set.n; i++) {
        if (check_folder(o, &o->data_set.cases[i].image))
            return -1;
        for (int64_t k = 0; k < i; k++) {
            snprintf(a, sizeof a, "%s", o->data_set.cases[i].image.path);
            snprintf(b, sizeof b, "%s", o->data_set.cases[k].image.path);
            if (!strcmp(basename(a), basename(b)))
                return say_fail("--output %s: two images are called %s", o->out, basename(a));
        }
    }
    return 0;
}

static int go(struct infer *o)
{
    int rc = 0;

    o->data_set.classes = !o->data && !o->classes ? 2 : o->classes;
    o->data_set.unlabelled = true;
    if (check_outputs(o) || (o->data && volume_set_open(&o->data_set, o->data, o->unpack)) ||
        check_names(o) || reserve(o))
        return -1;
    if (say_open(&o->context, &o->library))
        return -1;
    rc = make_program(o);
    for (int64_t i = 0; i < o->data_set.n && !rc && !o->library.plan_only; i++)
        rc = do_case(o, &o->data_set.cases[i]);
    return rc;
}

int main(int argc, char **argv)
{
    static struct infer o;

    say_begin();
    int rc = parse(&o, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&o);
    ckpt_close(o.context);
    volume_set_close(&o.data_set);
    free(o.images);
    free(o.scores);
    free(o.labels);
    return say_finish(rc ? 1 : 0);
}
