/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a directory that are replaced together, such as the parts of a model.  Each is written
 * as NAME.new.  When all are whole, a journal (DIR/.saving) lists them, they get their names, and
 * the journal is removed.  A run that is killed before the journal leaves the old files as they
 * were; after it, the next run completes the replacement.  No program reads parts of two models as
 * one.
 */
#ifndef EXAMPLES_FILE_GROUP_H
#define EXAMPLES_FILE_GROUP_H

#include <stdbool.h>

/* The names that belong to the group: patterns of fnmatch, up to NULL. */
typedef const char *const *file_group;

/* Completes what a killed run has left in the directory, or removes it where it was not whole, and
 * says so.  The caller has the lock of the directory.  All return 0, or -1 after an error message.
 */
int file_group_recover(const char *directory, file_group names);
/* Whether there is something to recover. */
bool file_group_is_left(const char *directory, file_group names);
/* For readers: refuses a directory whose replacement was begun and not completed. */
int file_group_check(const char *option, const char *directory, file_group names);

/* Gives all NAME.new their names.  first: a name that readers need, which is removed before the
 * others change; obsolete: a name of the old group that the new one lacks, or NULL. */
int file_group_commit(const char *directory, file_group names, const char *first,
                      const char *obsolete);
/* Removes all NAME.new. */
void file_group_abandon(const char *directory, file_group names);

#endif
