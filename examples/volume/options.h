/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of volume-train: its own table beside the library's. */
#ifndef VOLUME_OPTIONS_H
#define VOLUME_OPTIONS_H

#include "../common/outputs.h"
#include "../zoo/unet.h"
#include "dataset.h"

struct volume_options {
    /* the model */
    const char *dtype;
    int64_t levels, width, widest;
    /* the data */
    const char *data, *intensity, *patch, *unpack;
    int64_t classes;
    double foreground;
    bool no_flips;
    /* training */
    struct training_options train;
    bool help, version;
    struct ckpt_options library;
    /* derived from the options */
    struct volume_intensity scaling;
    struct volume_draw draw;
};

/* The files that the options name. */
struct training_files volume_files(const struct volume_options *o);

/* Returns 0 to go on, 1 to exit (--help) and -1 after an error message. */
int volume_options_parse(struct volume_options *o, int argc, char **argv);

/* The program's own options. */
struct option_table volume_options_table(const struct volume_options *o);

#endif
