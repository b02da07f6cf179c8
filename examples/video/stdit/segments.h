/* SPDX-License-Identifier: Apache-2.0 */
/* Samples the clips of a script. */
#ifndef STDIT_SEGMENTS_H
#define STDIT_SEGMENTS_H

#include "script.h"

/* Samples all clips, in the context of the run with its compiled programs; writes videos, pictures
 * and --latents.  Returns 0, or -1 after a sentence. */
int stdit_draw(struct video_run *r, struct stdit_script *script);

#endif
