/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a copy of an archive whose weights are those of a context. */
#ifndef CKPT_IMPORT_SAVE_H
#define CKPT_IMPORT_SAVE_H

#include "import/inputs.h"

/* p was read from the archive at p->path, and its inputs are in the context.  Returns 0 or a code
 * with the sentence of the thread. */
int import_save(ckpt *c, const struct pt2_program *p, const struct model_input *in,
                const char *path);

#endif
