/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of volume-train. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "options.h"

const char say_program[] = "volume-train";

#define ROW(...)   CKPT_OPTION(struct volume_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct volume_options, __VA_ARGS__)

static const char usage[] =
    "Usage: volume-train --data FILE [OPTION]...\n\n"
    "Trains a 3-D U-Net to segment volumes (CT, MR) inside a memory budget, "
    "on random\npatches.\n"
    "\nExamples:\n  volume-train --data dataset.json --patch 96x96x96 --vram "
    "8G --save weights.safetensors\n"
    "  volume-train --data list.csv --intensity ct:-160,240 --dtype bf16 "
    "--vram 8G --host 16G\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model"),
    VOLUME_UNET_ROWS,
    GRAD_DTYPE_ROW,
    CKPT_OPTION_GROUP("Data"),
    ROW("data", STRING, data, "FILE",
        "volumes: dataset.json of the Medical Segmentation Decathlon, or CSV with the columns "
        "image and label"),
    VOLUME_CLASSES_ROW,
    ROW("intensity", STRING, intensity, "KIND",
        "scaling of images: ct:LOW,HIGH clips to this range and maps it to 0..1; mr: z-score of "
        "the voxels that are not 0 (default mr)"),
    ROW("patch", STRING, patch, "DxHxW",
        "slices, rows and columns of a patch (default 128x128x128)"),
    RANGE("foreground", FLOAT, foreground, "X",
          "fraction of patches that are centred on a labelled voxel (default 0.3333)", 0, 1),
    ROW("no-flips", FLAG, no_flips, NULL, "do not flip patches at random"),
    VOLUME_UNPACK_ROW,
    WEIGHTS_ROWS,
    BATCH_ROW("patches", " 2"),
    STEPS_ROWS(" 1000", " 3e-4", " 20", "1e-5", "0: none"),
    BETA2_ROW("0.95"),
    LOG_ROWS("scores"),
    HELP_ROWS,
    {0},
};

struct training_files volume_files(const struct volume_options *o)
{
    return (struct training_files){.library = &o->library, .train = &o->train};
}

/* Each level but the first halves the patch, and the way back doubles it to the same size. */
static int check_patch(struct volume_options *o)
{
    int64_t *size[] = {&o->draw.size[0], &o->draw.size[1], &o->draw.size[2]};
    int64_t cell = INT64_C(1) << (o->levels - 1);

    if (option_sizes("patch", o->patch, "128x128x128", 3, size))
        return -1;
    for (int i = 0; i < 3; i++)
        if (o->draw.size[i] % cell)
            return say_fail("--patch %s: with --levels %lld, give multiples of %lld", o->patch,
                            (long long)o->levels, (long long)cell);
    return 0;
}

static int check(struct volume_options *o)
{
    struct training_files files = volume_files(o);

    if (!o->data && !o->library.plan_only)
        return say_fail("give the volumes with --data FILE");
    o->draw.foreground = o->foreground;
    o->draw.flips = !o->no_flips;
    o->draw.seed = (uint64_t)o->library.seed;
    return volume_intensity_parse(&o->scaling, o->intensity) || check_patch(o) ||
                   training_check(&o->train, &o->library, o->dtype, o->train.batch) ||
                   outputs_asked(&files)
               ? -1
               : 0;
}

/* Where compressed volumes are unpacked: boxes of them are read, and a stream has no offsets. */
static const char *directory(void)
{
    const char *name = getenv("TMPDIR");

    return name && name[0] ? name : "/tmp";
}

struct option_reading volume_options_reading(struct volume_options *o)
{
    *o = (struct volume_options){.levels = 5,
                                 .width = 32,
                                 .widest = 320,
                                 .patch = "128x128x128",
                                 .unpack = directory(),
                                 .foreground = 0.3333,
                                 .train = {TRAINING_DEFAULTS, .weight_decay = 1e-5, .beta2 = 0.95},
                                 .library = CKPT_OPTIONS_INIT};
    return (struct option_reading)OPTION_READING(o, table, usage, true);
}

int volume_options_check(void *options)
{
    struct volume_options *o = options;

    training_preset(&o->train, 2, 1000, 20, 3e-4);
    return dtype_select(&o->dtype, &o->train.state, o->train.load, o->train.dtype_note) || check(o)
               ? -1
               : 0;
}
