/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing what a script says. */
#ifndef STDIT_SEGMENTS_H
#define STDIT_SEGMENTS_H

#include "script.h"

/* Draws all clips, in the context of the run, whose programs are compiled; writes videos, pictures
 * and --latents.  Returns 0, or -1 after a sentence. */
int stdit_draw(struct stdit_run *r, struct stdit_script *script);

#endif
