/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of pt2-train: its own table beside the library's. */
#ifndef PT2_OPTIONS_H
#define PT2_OPTIONS_H

#include "../common/adapters.h"
#include "../common/outputs.h"

struct pt2_options {
    /* the model */
    const char *model, *loss, *dim;
    /* the data */
    const char *data, *shared, *validation;
    bool keep_order;
    int64_t validation_every;
    /* what is trained */
    const char *freeze, *lr_factors, *decay_factors;
    struct adapter_options adapters;
    /* training */
    struct training_options train;
    const char *save_pt2;
    bool help, version;
    struct ckpt_options library;
};

/* The files that the options name. */
struct training_files pt2_files(const struct pt2_options *o);

/* Sets the defaults, and names what replaces them; then checks it. */
struct option_reading pt2_options_reading(struct pt2_options *o);
int pt2_options_check(void *options);

/* Checks the batch, once the archive has said what it can be. */
int pt2_options_check_batch(const struct pt2_options *o);

#endif
