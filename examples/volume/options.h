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

/* Sets the defaults, and names what replaces them; then checks it. */
struct option_reading volume_options_reading(struct volume_options *o);
int volume_options_check(void *options);

#endif
