/* SPDX-License-Identifier: Apache-2.0 */
/* The loss on clips of --val, by noise level: see common/validation.h. */
#ifndef COGVIDEO_VALIDATE_H
#define COGVIDEO_VALIDATE_H

#include "../../common/validation.h"
#include "batch.h"
#include "images.h"

struct cogvideo_validation {
    struct cogvideo_run run; /* its own data and program; training NULL: no validation */
    struct cogvideo_images none;
    struct cogvideo_batch batch;
    struct validation common;
};

/* The first reads the clips; call it after opening the data of the run.  The second compiles their
 * program; call it after making the model.  Both return 0, or -1 after an error message, as does
 * the next. */
int cogvideo_validation_open(struct cogvideo_validation *v, const struct cogvideo_run *r);
int cogvideo_validation_compile(struct cogvideo_validation *v, struct cogvideo_run *r);
/* Measures the loss after that many steps. */
int cogvideo_validate(struct cogvideo_validation *v, int64_t step);
void cogvideo_validation_close(struct cogvideo_validation *v);

#endif
