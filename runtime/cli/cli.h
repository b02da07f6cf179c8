/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ckpt command: common declarations.  One file holds one subcommand.
 *
 * The cli room lets people use the planner without training: plan a graph for a machine file, sweep
 * budgets, explain a fate, place buffers, measure a machine.  Each subcommand is a table of options
 * (ckpt_tools.h), a function, and lines on stdout that scripts may parse.  Messages go to stderr.
 * The exit status is 0, 1 for a failure, 2 for a wrong command line.
 *
 * It may use every room, and no room may use it.  Computations belong in the room of their subject;
 * this room holds texts and tables.  It is part of the library, which calls it only for the ckpt
 * program (command.h).
 */
#ifndef CKPT_CLI_H
#define CKPT_CLI_H

#include "ckpt_tools.h"
#include "plan/plan.h"
#include "plan/watch.h"

enum { EXIT_USAGE = 2 }; /* wrong command line; 1 is any other failure */

/* Prints "ckpt: ..." on standard error and returns 1, or 2 for a mistake on the command line. */
int cli_fail(const char *fmt, ...) CKPT_PRINTF(1, 2);
int cli_usage(const char *fmt, ...) CKPT_PRINTF(1, 2);

/*
 * Parses the options of a subcommand.  Returns 0; -1 after printing the help for --help; or an exit
 * status. help points at the flag in dest.
 */
int cli_parse(const struct ckpt_option *table, void *dest, const bool *help, int argc, char **argv,
              const char *synopsis);

/* Checks that the output files of a subcommand can be written.  Returns 0 or an exit status. */
int cli_check_paths(const struct ckpt_path *paths, int n);

/* The subcommands: argv[0] is the name of the subcommand.  They return an exit status. */
int cli_plan(int argc, char **argv);
int cli_machine(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_advise(int argc, char **argv);
int cli_import(int argc, char **argv);
int cli_convert(int argc, char **argv);

/* Prints the machine files that --machine accepts by name, for ckpt info and ckpt advise. */
void cli_list_machines(void);

/* ---- ckpt plan ------------------------------------------------------------------------------ */

struct plan_options {
    const char *graph, *pt2, *dim, *machine, *plan_in, *out, *svg, *explain, *timeline, *nvme;
    int64_t vram, host;
    bool sweep;
    int64_t points;
    /* Options of --world. */
    int64_t world, hosts; /* 0: not given; then from the machine file */
    const char *link_file, *sequence, *tensor, *stages; /* the last three "auto", or NULL */
    /* Options of --place. */
    const char *place; /* a CSV file */
    int64_t capacity;  /* target bytes; 0: minimize */
    double seconds;    /* search limit; 0: limited by a fixed amount of work, which gives the same
                          result everywhere */
    bool help;
};

/* Whether it compares ways to split, each of which has graphs of its own. */
static inline bool plan_compares(const struct plan_options *o)
{
    return o->sequence || o->tensor || o->stages;
}

/* The file of the step, for messages. */
static inline const char *plan_source(const struct plan_options *o)
{
    return o->pt2 ? o->pt2 : o->graph;
}

/* ckpt plan --place FILE.csv: assigns addresses to buffers.  Writes the offsets to o->out. */
int cli_place(const struct plan_options *o);

/* A graph, the machine and budgets to plan it for, and the plan. */
struct plan_job {
    const struct plan_options *o;
    struct graph *graph;
    struct frontier *search;
    struct plan_watch watch; /* of the search */
    int32_t planned, most;   /* budgets of a curve: planned so far, and at most; 0: no curve */
    struct machine machine;
    struct budgets budgets;
    int64_t asked;    /* requested device bytes, if the machine has less */
    int64_t capacity; /* device bytes available for a budget; INT64_MAX: unknown */
    int64_t margin;   /* with --vram auto: bytes left free beside the budget */
    struct plan *plan;
};

/* Read the files that the options name, and run the search, once for all budgets.  Return 0, or an
 * exit status after printing a message; free the job in any case. */
int cli_read_job(struct plan_job *job);
int cli_search(struct plan_job *job);
void cli_free_job(struct plan_job *job);
void cli_print_plan(const struct plan_job *job, FILE *f);
/* Plans for a device budget, which includes the memory of the process outside its arena; *p is NULL
 * if none fits.  Returns 0 or CKPT_ENOMEM. */
int cli_plan_at(const struct plan_job *job, int64_t budget, struct plan **p);
/* Points of the curve in ascending order of budgets: from the smallest feasible budget to the
 * smallest without slowdown, or to the capacity. */
struct budget_curve {
    int64_t *budgets;
    struct plan **plans;
    int32_t n;
    int64_t smallest, fastest; /* device bytes, regardless of the capacity */
};
/* Computes at most `points` points, 2 or more: both ends, then one between points i and i + 1 for
 * each i that `next` returns, until it returns -1.  Returns 0, or an exit status after printing a
 * message; free the curve in any case. */
int budget_curve_fill(struct plan_job *job, int32_t points,
                      int32_t (*next)(const struct budget_curve *), struct budget_curve *c);
/* The interval with the largest rectangle, or -1 if no interval contains another budget. */
int32_t budget_curve_largest(const struct budget_curve *c);
void budget_curve_free(struct budget_curve *c);
/* Prints the curve of step time against budget, and draws it if o->svg is set. */
int cli_sweep(struct plan_job *job);
/* Prints the scaling study for numbers of ranks up to o->world. */
int cli_scaling(struct plan_job *job);
int cli_explain(const struct plan_job *job, const char *name);

#endif
