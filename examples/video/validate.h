/* SPDX-License-Identifier: Apache-2.0 */
/* The loss on clips of --val, by noise level: see common/validation.h. */
#ifndef VIDEO_VALIDATE_H
#define VIDEO_VALIDATE_H

#include "../common/validation.h"
#include "batch.h"
#include "images.h"

struct video_validation {
    struct video_run run; /* its own data and program; training NULL: no validation */
    struct video_images none;
    struct video_batch batch;
    struct validation common;
};

/* The first reads the clips; call it after opening the data of the run.  The second compiles their
 * program; call it after making the model.  Both return 0, or -1 after an error message, as does
 * the next. */
int video_validation_open(struct video_validation *v, const struct video_run *r);
int video_validation_compile(struct video_validation *v, struct video_run *r);
/* Measures the loss of a run after that many steps. */
int video_validate(void *run, int64_t step);
void video_validation_report(const void *run);
void video_validation_close(struct video_validation *v);

#endif
