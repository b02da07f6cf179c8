/* SPDX-License-Identifier: Apache-2.0 */
/* Output directories of a run. */
#ifndef EXAMPLES_DIRECTORY_H
#define EXAMPLES_DIRECTORY_H

/* Makes a directory that ckpt_paths_check has accepted, just before the first file is written in
 * it, so that a refused run leaves no directory.  Returns 0, also if it exists, or -1 after an
 * error message. */
int directory_make(const char *path);

#endif
