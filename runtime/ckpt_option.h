/*
 * libckpt: tables of options.  A part of ckpt.h, which includes it; programs describe their own
 * options as the library does.
 */
#ifndef CKPT_OPTION_H
#define CKPT_OPTION_H

enum ckpt_option_type {
    CKPT_OPT_FLAG,   /* bool:        --name                          */
    CKPT_OPT_INT,    /* int64_t:     --name 12                       */
    CKPT_OPT_COUNT,  /* int64_t:     --name 12, or auto: CKPT_AUTO   */
    CKPT_OPT_FLOAT,  /* double:      --name 1e-4                     */
    CKPT_OPT_STRING, /* const char*: --name TEXT                     */
    CKPT_OPT_SIZE    /* int64_t:     --name 24G, 512M, 80%, 4096     */
};
#define CKPT_AUTO (-1)

/*
 * One row of an option table.  The table feeds the command line ("--micro-batch 4" or
 * "--micro-batch=4"), the help text and the man page.  The last row's name is NULL.
 */
struct ckpt_option {
    const char *name; /* long name without the dashes */
    enum ckpt_option_type type;
    size_t offset;       /* offsetof the field in the destination struct */
    const char *metavar; /* what the help calls the value, e.g. "SIZE" */
    const char *help;    /* one sentence, no full stop */
    double range[2];     /* the least and the most of an INT, COUNT or FLOAT; {0, 0}: any */
};

/* A row that fills a member of struct owner.  Behind the help may stand the least and the most that
 * a number can be: a value out of range is refused, so a default may be one to say "not given". */
#define CKPT_OPTION(owner, name_, type_, member, metavar_, help_, ...)                             \
    {                                                                                              \
        .name = name_, .type = CKPT_OPT_##type_, .offset = offsetof(owner, member),                \
        .metavar = metavar_, .help = help_, .range = {                                             \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/*
 * Takes every option of the table out of argv (argc and argv shrink), storing values in dest.
 * What it does not know stays, for the next table; see ckpt_options_reject.  Everything after a
 * "--" is left alone.  Of an option that is given twice the last value counts; an empty one is
 * refused.  A CKPT_OPT_SIZE in per cent is stored as a negative number, -80 for 80%.  The
 * environment is not read.
 * Returns 0, or CKPT_EINVAL with the option and the value in ckpt_error(NULL).
 */
CKPT_API int ckpt_option_table_parse(const struct ckpt_option *table, void *dest, int *argc,
                                     char **argv);

/* Writes one aligned line per row. */
CKPT_API void ckpt_option_table_help(const struct ckpt_option *table, FILE *f);

/* Returns 0 if only argv[0] is left, else CKPT_EINVAL naming the first stray argument and, where
 * one is near, the option it may have meant (tables: up to n tables to look in). */
CKPT_API int ckpt_options_reject(int argc, char **argv, int n, const struct ckpt_option **tables);

/*
 * Parses a size: digits with an optional fraction and one of K M G T (powers of 1024), an optional
 * B or iB after it, or a percentage ("80%", stored as -80).  Returns 0 or CKPT_EINVAL.
 */
CKPT_API int ckpt_parse_size(const char *text, int64_t *bytes);

#endif
