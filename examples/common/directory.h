/* SPDX-License-Identifier: Apache-2.0 */
/* Output directories of a run. */
#ifndef EXAMPLES_DIRECTORY_H
#define EXAMPLES_DIRECTORY_H

/* Makes a directory that ckpt_paths_check has accepted, just before the first file is written in
 * it, so that a refused run leaves no directory.  If it is still empty when a failed process exits,
 * it is removed.  Returns 0, also if it exists, or -1 after an error message. */
int directory_make(const char *path);

/* Removes a file that could not be written, if it is empty. */
void directory_remove_empty_file(const char *path);

#endif
