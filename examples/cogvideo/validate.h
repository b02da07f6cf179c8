/* SPDX-License-Identifier: Apache-2.0 */
/* The loss on clips of --val, by noise level: see common/validation.h. */
#ifndef COGVIDEO_VALIDATE_H
#define COGVIDEO_VALIDATE_H

#include "../common/validation.h"
#include "batch.h"
#include "images.h"

struct cogvideo_validation {
    struct cogvideo_run run; /* of its data and program; training NULL: there is none */
    struct cogvideo_images none;
    struct cogvideo_batch batch;
    struct validation common;
};

/* Behind the data of the run: reads the clips.  Behind its model: compiles their program.  Both
 * return 0, or -1 after a sentence, as the next. */
int cogvideo_validation_open(struct cogvideo_validation *v, const struct cogvideo_run *r);
int cogvideo_validation_compile(struct cogvideo_validation *v, struct cogvideo_run *r);
/* Measures behind so many steps. */
int cogvideo_validate(struct cogvideo_validation *v, int64_t step);
void cogvideo_validation_close(struct cogvideo_validation *v);

#endif
