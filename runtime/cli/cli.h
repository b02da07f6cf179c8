/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ckpt command: what its files share.  One file holds one subcommand.
 *
 * The cli room decides how a person asks the planner without training: plan a graph for a machine
 * file, sweep budgets, explain a fate, place buffers, measure a machine, time and test ops.  Each
 * subcommand is a table of options (ckpt_tools.h), a function, and lines on stdout that scripts
 * may read; messages go to stderr, and the exit status is 0, 1 for a failure, 2 for a wrong
 * command line.
 *
 * It may know every room, and no room may know it.  What a subcommand computes belongs in the room
 * whose subject it is; here are words and tables.
 */
#ifndef CKPT_CLI_H
#define CKPT_CLI_H

#include "ckpt_tools.h"
#include "plan/plan.h"

enum { EXIT_USAGE = 2 }; /* a mistake on the command line; 1 is any other failure */

/* Prints "ckpt: ..." on standard error and returns 1, or 2 for a mistake on the command line. */
int cli_fail(const char *fmt, ...) CKPT_PRINTF(1, 2);
int cli_usage(const char *fmt, ...) CKPT_PRINTF(1, 2);

/*
 * Takes the options of a subcommand.  Returns 0; -1 when --help was asked for and printed; or an
 * exit status.  help points at the flag in dest.
 */
int cli_parse(const struct ckpt_option *table, void *dest, const bool *help, int argc, char **argv,
              const char *synopsis);

/* Whether what a subcommand is asked to write can be written.  Returns 0 or an exit status. */
int cli_check_paths(const struct ckpt_path *paths, int n);

/* The subcommands: argv[0] is the name of the subcommand.  They return an exit status. */
int cli_plan(int argc, char **argv);
int cli_machine(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_advise(int argc, char **argv);

/* ---- ckpt plan ------------------------------------------------------------------------------ */

struct plan_options {
    const char *graph, *machine, *plan_in, *out, *svg, *explain, *timeline, *nvme;
    int64_t vram, host;
    bool sweep;
    int64_t points;
    /* of --world */
    int64_t world, hosts; /* 0: not asked for; as many as the machine file says */
    const char *link_file;
    /* of --place */
    const char *place; /* a CSV file */
    int64_t capacity;  /* bytes to reach; 0: as low as can be */
    double seconds;    /* stop searching after this time; 0: by work done, the same everywhere */
    bool help;
};

/* ckpt plan --place FILE.csv: gives buffers addresses.  Offsets are written to o->out. */
int cli_place(const struct plan_options *o);

/* A graph, the machine and budgets to plan it for, and the plan. */
struct plan_job {
    const struct plan_options *o;
    struct graph *graph;
    struct frontier *search;
    struct machine machine;
    struct budgets budgets;
    int64_t asked;  /* device bytes asked for, where the machine has less */
    int64_t capacity; /* device bytes that the machine has for a budget; INT64_MAX: not known */
    int64_t margin; /* of --vram auto: what the machine has beside the budget */
    struct plan *plan;
};

/* Reads what the options of a job name, and searches, once for all budgets.  Return 0 or an exit
 * status, having said why; the job is to be freed in any case. */
int cli_read_job(struct plan_job *job);
int cli_search(struct plan_job *job);
void cli_free_job(struct plan_job *job);
void cli_print_plan(const struct plan_job *job, FILE *f);
/* The plans for n device budgets that also hold what a process takes beside its arena.  Returns 0
 * or CKPT_ENOMEM. */
int cli_plan_budgets(const struct plan_job *job, const int64_t *budgets, int32_t n,
                     struct plan **plans);
/* Points of the curve, in the order of their budgets, from the smallest that works to the smallest
 * that makes nothing slower, or to the capacity. */
struct budget_curve {
    int64_t *budgets;
    struct plan **plans;
    int32_t n;
    int64_t smallest, fastest; /* device bytes, whatever the capacity */
};
/* At most so many points, 2 or more.  Returns 0 or an exit status, having said why; to be freed in
 * any case. */
int budget_curve_fill(const struct plan_job *job, int32_t points, struct budget_curve *c);
void budget_curve_free(struct budget_curve *c);
/* The whole curve, budget against time; drawn too where o->svg is given. */
int cli_sweep(const struct plan_job *job);
/* Numbers of ranks up to o->world. */
int cli_world(struct plan_job *job);
int cli_explain(const struct plan_job *job, const char *name);

/* ---- ckpt machine --------------------------------------------------------------------------- */

/* Measures this computer.  Each returns 0 or a code, the sentence in error. */
struct device;
int measure_device(struct device *d, struct machine *m, struct error *error);
/* Reads and writes a temporary file in dir past the page cache; leaves 0 where that cannot be. */
int measure_disk(struct machine *m, const char *dir, struct error *error);

#endif
