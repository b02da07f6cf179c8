/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of volume-train: its own table next to the library's. */
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
    /* what follows from these */
    struct volume_intensity scaling;
    struct volume_draw draw;
};

/* The files that the options name. */
struct training_files volume_files(const struct volume_options *o);

/* Returns 0 to go on, 1 when all is done (--help) and -1 when a sentence was printed. */
int volume_options_parse(struct volume_options *o, int argc, char **argv);

/* Notes the options in the states of c.  Returns 0, or -1 after a sentence. */
int volume_options_note(const struct volume_options *o, ckpt *c);
/* All ranks must have been given the same.  Returns 0, or -1 after a sentence. */
int volume_options_agree(const struct volume_options *o, ckpt *c);

#endif
