/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file could not be read because this process was short of memory, descriptors or
 * threads at that moment: then the file is not bad, and reading it later may succeed.
 */
#ifndef EXAMPLES_SHORTAGE_H
#define EXAMPLES_SHORTAGE_H

#include <stdbool.h>

/* Notes the error number of a call that failed, in this thread; others than of a shortage have no
 * effect. */
void shortage_note(int error);
/* Whether there was a shortage in this thread since the last call. */
bool shortage_take(void);

#endif
