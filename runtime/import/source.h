/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder of a traced model as C: a struct of its parameters, a call that makes them, a
 * function for each kind of repeated module, and the recorder, which records the same tape.
 */
#ifndef CKPT_IMPORT_SOURCE_H
#define CKPT_IMPORT_SOURCE_H

#include "import/source_model.h"

/* Writes the source, and the file of constants if there are large ones.  Returns 0 or an error. */
int source_write(const struct source *s, const char *path);

#endif
