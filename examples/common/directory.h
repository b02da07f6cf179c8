/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that a run writes in. */
#ifndef EXAMPLES_DIRECTORY_H
#define EXAMPLES_DIRECTORY_H

/* Makes a directory that ckpt_paths_check has passed, just before the first file is written in it,
 * so that a run that is refused leaves none behind.  Returns 0, also where it is there, or -1 after
 * a sentence. */
int directory_make(const char *path);

#endif
