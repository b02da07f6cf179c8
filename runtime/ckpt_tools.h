/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: tools for programs around a training step, which the library also uses: option tables,
 * the files of a run, bf16, a progress line.
 *
 * No call here uses a context.  All may be made from any thread; their sentences are in
 * ckpt_error(NULL) unless stated otherwise.
 */
#ifndef CKPT_TOOLS_H
#define CKPT_TOOLS_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables of options ----------------------------------------------------------------------- */

enum ckpt_option_type {
    CKPT_OPT_FLAG,   /* bool:        --name                          */
    CKPT_OPT_INT,    /* int64_t:     --name 12                       */
    CKPT_OPT_COUNT,  /* int64_t:     --name 12, or auto: CKPT_AUTO   */
    CKPT_OPT_FLOAT,  /* double:      --name 1e-4                     */
    CKPT_OPT_STRING, /* const char*: --name TEXT                     */
    CKPT_OPT_SIZE,   /* int64_t:     --name 24G, 512M, 80%, 4096     */
    CKPT_OPT_BUDGET, /* int64_t:     as SIZE, auto or none: CKPT_VRAM_AUTO, CKPT_VRAM_NONE */
    CKPT_OPT_ALIAS,  /* another name of the option that help names; not in the help text */
    CKPT_OPT_GROUP   /* no option: the title of the following rows in the help text */
};

/*
 * One row of an option table.  The command line ("--micro-batch 4" or "--micro-batch=4"), the help
 * text and the man page are generated from the table.  The last row's name is NULL.
 */
struct ckpt_option {
    const char *name; /* long name without the dashes */
    enum ckpt_option_type type;
    size_t offset;       /* offsetof the field in the destination struct */
    const char *metavar; /* name of the value in the help text, such as "SIZE" */
    const char *help;    /* one sentence, no full stop */
    double range[2];     /* smallest and largest INT, COUNT or FLOAT; {0, 0}: any */
};

/* A row for a member of struct owner; and one for a number with a range.  Values out of range are
 * refused, so a default outside of it can mean "not given". */
#define CKPT_OPTION(owner, name, type, member, metavar, help)                                      \
    {                                                                                              \
        name, CKPT_OPT_##type, offsetof(owner, member), metavar, help,                             \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }
#define CKPT_OPTION_RANGE(owner, name, type, member, metavar, help, smallest, largest)             \
    {                                                                                              \
        name, CKPT_OPT_##type, offsetof(owner, member), metavar, help,                             \
        {                                                                                          \
            smallest, largest                                                                      \
        }                                                                                          \
    }

/* A row that is another name of an option of the same table; and one that begins a group. */
#define CKPT_OPTION_ALIAS(name, option)                                                            \
    {                                                                                              \
        name, CKPT_OPT_ALIAS, 0, NULL, option,                                                     \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }
#define CKPT_OPTION_GROUP(title)                                                                   \
    {                                                                                              \
        title, CKPT_OPT_GROUP, 0, NULL, NULL,                                                      \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }

/* Whether a row is an option, and no title or second name of one. */
static inline bool ckpt_option_has_value(const struct ckpt_option *row)
{
    return row->type < CKPT_OPT_ALIAS;
}

/* The option table of struct ckpt_options, for help texts and man pages. */
CKPT_API const struct ckpt_option *ckpt_options_table(void);

/*
 * Removes every option of the table from argv (argc and argv shrink) and stores the values in dest.
 * Texts are not copied: they point into argv.  Unknown options stay, for the next table; see
 * ckpt_options_reject.  Everything after a "--" is left alone.  If an option is given twice the
 * last value counts; an empty value is refused.  A CKPT_OPT_SIZE in per cent is stored as a
 * negative number, -80 for 80%. -h and -V are short for --help and --version if the table has flags
 * with these names.  The environment is not read.  Returns 0, or CKPT_EINVAL with the option and
 * the value in ckpt_error(NULL).
 */
CKPT_API int ckpt_option_table_parse(const struct ckpt_option *table, void *dest, int *argc,
                                     char **argv);

/*
 * Looks for a variable CKPT_... in the environment that neither the library nor its options read,
 * such as CKPT_VRAN, so that a program can warn about it.  Returns 0, or CKPT_EINVAL with the
 * variable and, if there is a similar one, a suggestion in ckpt_error(NULL).
 */
CKPT_API int ckpt_environment_check(void);

/* Writes one aligned line per row, or several on a terminal that is narrower, and the titles of
 * groups. */
CKPT_API void ckpt_option_table_help(const struct ckpt_option *table, FILE *f);

/* Returns 0 if only argv[0] is left, else CKPT_EINVAL with the first remaining argument and, if
 * there is a similar option, a suggestion (tables: n tables to search).  If no table has "help",
 * -h, --help, -V and --version give the version and the names of all options instead. */
CKPT_API int ckpt_options_reject(int argc, char **argv, int n, const struct ckpt_option **tables);

/*
 * Parses a size: digits with an optional fraction and one of K M G T (powers of 1024), an optional
 * B or iB after it, or a percentage ("80%", stored as -80).  Returns 0 or CKPT_EINVAL.
 */
CKPT_API int ckpt_parse_size(const char *text, int64_t *bytes);

/* ---- the files of a run ---------------------------------------------------------------------- */
/*
 * Outputs are checked before the first step, so that a wrong name loses no work; they are replaced
 * atomically; inputs are regular files.
 */

enum ckpt_path_kind {
    CKPT_PATH_INPUT,    /* read */
    CKPT_PATH_FILE,     /* replaced atomically by a new file */
    CKPT_PATH_LOG,      /* appended to */
    CKPT_PATH_DIRECTORY /* may be missing: its writer creates it; files are written in it */
};

/* A path that a run reads or writes. */
struct ckpt_path {
    const char *option; /* its name in error messages: "--save" */
    const char *path;   /* NULL: not used */
    enum ckpt_path_kind kind;
    /* An input and an output with the same family other than 0 may be one file: a state is read
     * before the next one replaces it.  Two outputs may never be one file. */
    int family;
};

/* Families of the library's options; programs number theirs from CKPT_FAMILY_OWN. */
enum { CKPT_FAMILY_PLAN = 1, CKPT_FAMILY_MACHINE, CKPT_FAMILY_OWN };

/*
 * Refuses outputs that could not be written at the end: a missing or read-only directory, a
 * directory in place of a file, a name that is too long, a FIFO without a reader, a file that is
 * mounted by itself (as into a container), or the same file as another output or as an input (by
 * device and inode, so links count).  The files of o (plan_out, machine_out, ...; NULL: none) are
 * checked together with the table.  Leaves nothing behind: a missing directory is created, removed
 * again, and created by its first writer.  A FIFO stays open until the process ends, because its
 * reader would otherwise see an end of file. Returns 0, CKPT_ENOMEM, or CKPT_EINVAL with the option
 * and the path in the sentence.
 */
CKPT_API int ckpt_paths_check(const struct ckpt_options *o, const struct ckpt_path *paths, int n);

/*
 * Checks whether a file that c's options name (plan_out, graph_out, machine_out) was not written,
 * for example because a run had too few steps to time.  Call it at the end of a successful run.
 * Returns 0 or CKPT_EINVAL, with the sentence in ckpt_error(c).
 */
CKPT_API int ckpt_unwritten(ckpt *c);

/* ---- outputs ------------------------------------------------------------------------------- */

/* A file that is written beside the file it will replace. */
struct ckpt_replacement;

/*
 * Starts a file that replaces path at ckpt_replace_commit: until then it is PATH.tmp-PID-N, locked
 * (flock), and the old file at path does not change.  Temporary files of path without a lock were
 * left by a killed process and are removed.  A device, a FIFO or a name like /dev/stdout is written
 * directly; a symbolic link to a file is replaced, and its target stays.  Returns 0, CKPT_EINVAL,
 * CKPT_EIO or CKPT_ENOMEM.
 */
CKPT_API int ckpt_replace_open(struct ckpt_replacement **o, const char *path);

/* The stream to write to, owned by o; NULL if there is no memory. */
CKPT_API FILE *ckpt_replace_stream(struct ckpt_replacement *o);

/* The name to pass to a library that opens files itself. */
CKPT_API const char *ckpt_replace_name(const struct ckpt_replacement *o);

/* Closes the file and renames it. durable: its bytes are synced to the disk first and survive a
 * power failure; otherwise they survive only a crash of the process.  After a failure path is
 * unchanged.  Frees o. */
CKPT_API int ckpt_replace_commit(struct ckpt_replacement *o, bool durable);

/* Closes and removes the new file, and frees o.  NULL is allowed. */
CKPT_API void ckpt_replace_abandon(struct ckpt_replacement *o);

/* Opens a file for appending lines; a FIFO without a reader is refused. */
CKPT_API int ckpt_log_open(FILE **f, const char *path);

/* ---- inputs -------------------------------------------------------------------------------- */

/* Opens a regular file for reading; a FIFO, a device, a directory or a socket is refused, without
 * blocking. */
CKPT_API int ckpt_input_open(FILE **f, const char *path);

/* ---- text ---------------------------------------------------------------------------------- */

/* Makes text safe for a terminal: control characters become \x1b and the like, except line ends and
 * tabs.  Writes at most size bytes including the NUL; returns dst. */
CKPT_API const char *ckpt_escape(char *dst, size_t size, const char *text);

/* ---- bf16, progress -------------------------------------------------------------------------- */

/* fp32 <-> bf16, round to nearest even. */
CKPT_API void ckpt_to_bf16(const float *src, uint16_t *dst, int64_t n);
CKPT_API void ckpt_from_bf16(const uint16_t *src, float *dst, int64_t n);

/*
 * One progress line on a terminal (at most 10 updates a second), plain lines elsewhere: what, steps
 * done of total, time left, rate, loss (NaN: not shown) and bytes of memory (0: not shown). open
 * returns NULL if there is no memory; step and close allow NULL.
 */
typedef struct ckpt_progress ckpt_progress;
CKPT_API ckpt_progress *ckpt_progress_open(FILE *f, const char *what, int64_t total);
CKPT_API void ckpt_progress_step(ckpt_progress *pr, int64_t done, double loss, int64_t bytes);
CKPT_API void ckpt_progress_close(ckpt_progress *pr);

/* For ckpt_watch_plan with a FILE: writes a line at 2 and 5 s and then every 10 s. */
CKPT_API void ckpt_progress_plan(void *file, int seconds);

#ifdef __cplusplus
}
#endif
#endif
