/*
 * libckpt: the files of a run.  Outputs are checked before the first step, so that no work is lost
 * to a wrong name; they are written whole or not at all; inputs are regular files.
 *
 * All calls return 0 or a code, the sentence in ckpt_error(NULL).  They may be made from any
 * thread.
 */
#ifndef CKPT_PATH_H
#define CKPT_PATH_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- before the run ------------------------------------------------------------------------ */

enum ckpt_path_kind {
    CKPT_PATH_INPUT,    /* is read */
    CKPT_PATH_FILE,     /* is replaced by a new file, whole or not at all */
    CKPT_PATH_LOG,      /* is appended to */
    CKPT_PATH_DIRECTORY /* is made if it is missing; files are written in it */
};

/* One name that a run reads or writes. */
struct ckpt_path {
    const char *option; /* as it is called in a sentence: "--save" */
    const char *path;   /* NULL: not asked for */
    enum ckpt_path_kind kind;
    /* Inputs and outputs of one family other than 0 may be one file: a state is read before the
     * next one takes its place.  Two outputs may never be one file. */
    int family;
};

/* Families of the options of the library; programs number theirs from CKPT_FAMILY_OWN on. */
enum { CKPT_FAMILY_PLAN = 1, CKPT_FAMILY_MACHINE, CKPT_FAMILY_OWN };

/*
 * Refuses outputs that could not be written at the end: a missing or read-only directory, a
 * directory in the place of a file, too long a name, a FIFO that nobody reads, or the same file as
 * another output or as an input (by device and inode, so links count).  The files of o (plan_out,
 * machine_out, ...; NULL: none) are checked with those of the table.  Makes directories.  A FIFO
 * stays open until the process ends: its reader would else see an end of file.
 * Returns 0, CKPT_ENOMEM, or CKPT_EINVAL with the option and the path in the sentence.
 */
CKPT_API int ckpt_paths_check(const struct ckpt_options *o, const struct ckpt_path *paths, int n);

/*
 * Whether a file that c's options ask for (plan_out, graph_out, machine_out) was not written, as
 * when a run had too few steps to time.  To be asked at the end of a run that went well.  Returns 0
 * or CKPT_EINVAL, the sentence in ckpt_error(c).
 */
CKPT_API int ckpt_unwritten(ckpt *c);

/* ---- outputs ------------------------------------------------------------------------------- */

/* A file that is written beside the one whose place it takes. */
struct ckpt_replacement;

/*
 * Begins a file that takes the place of path at ckpt_replace_commit: until then it is
 * PATH.tmp-PID-N beside it, locked (flock), and what stood at path stays as it was.  Temporary
 * files of path that nobody holds locked are what a killed process left: they are removed.  A
 * device, a FIFO or a name like /dev/stdout is written to directly; a symbolic link to a file is
 * replaced, and what it led to stays.  Returns 0, CKPT_EINVAL, CKPT_EIO or CKPT_ENOMEM.
 */
CKPT_API int ckpt_replace_open(struct ckpt_replacement **o, const char *path);

/* The stream to write to, owned by o; NULL without memory. */
CKPT_API FILE *ckpt_replace_stream(struct ckpt_replacement *o);

/* The name under which a library that opens files itself writes instead. */
CKPT_API const char *ckpt_replace_name(const struct ckpt_replacement *o);

/* Closes the file and gives it its name.  durable: its bytes are on the disk first, and survive a
 * power cut; else only a crash of the process.  After a failure path is what it was.  Frees o. */
CKPT_API int ckpt_replace_commit(struct ckpt_replacement *o, bool durable);

/* Closes and removes what was written, and frees o.  NULL is allowed. */
CKPT_API void ckpt_replace_abandon(struct ckpt_replacement *o);

/* Opens a file to append lines to; a FIFO that nobody reads is refused. */
CKPT_API int ckpt_log_open(FILE **f, const char *path);

/* ---- inputs -------------------------------------------------------------------------------- */

/* Opens a regular file for reading; a FIFO, a device, a directory or a socket is refused, without
 * waiting for it. */
CKPT_API int ckpt_input_open(FILE **f, const char *path);

/* ---- text ---------------------------------------------------------------------------------- */

/* Text as a terminal may be shown it: control characters as \x1b, but for line ends and tabs.  At
 * most size bytes with the end; returns dst. */
CKPT_API const char *ckpt_escape(char *dst, size_t size, const char *text);

#ifdef __cplusplus
}
#endif
#endif
