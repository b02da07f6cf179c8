/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPT_IMPORT_PROGRAM_READ_H
#define CKPT_IMPORT_PROGRAM_READ_H

#include "import/program.h"

/*
 * Reads a program from the JSON of models/NAME.json, which it takes over, also on failure.  path is
 * copied.  Returns 0, CKPT_EFORMAT or CKPT_ENOMEM with the sentence of the thread.
 */
int pt2_program_read(struct pt2_program *p, const char *path, json_t *json);

#endif
