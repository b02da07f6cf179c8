/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt advise: three budgets for a step: the smallest feasible one, the knee of the curve, and the
 * smallest one without slowdown, or the capacity of the device.
 *
 * The knee is that of Satopaa, Albrecht, Irwin and Raghavan, "Finding a 'Kneedle' in a Haystack:
 * Detecting Knee Points in System Behavior", ICDCSW 2011, for a decreasing curve without noise:
 * with budgets and logarithms of seconds scaled to [0, 1], the point with the largest 1 - x - y,
 * which is farthest below the line from the first to the last point.  Seconds as they are would be
 * scaled by the smallest budget alone, whose step may take twice as long as the next one's.  The
 * curve is monotonic, so few plans are enough: only intervals are divided that may be deeper.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/advise.h"
#include "cli/hold_signals.h"
#include "memory/device/device.h"
#include "memory/tier/host_limits.h"
#include "memory/tier/tier.h"

#define POINTS 48   /* budgets planned at most */
#define CLOSE  .003 /* the deepest point lies at most this far below the knee */

struct advise_options {
    const char *graph, *machine, *nvme;
    int64_t host;                  /* bytes */
    int64_t command_host;          /* what the command line has of these; the lines printed */
    const char *command_nvme;      /* name only what differs */
    bool list_cards, help;
};

#define ROW(...) CKPT_OPTION(struct advise_options, __VA_ARGS__)

static const struct ckpt_option advise_table[] = {
    ROW("graph", STRING, graph, "FILE",
        "graph of the step, written by a program with --graph-out; or give a command line after "
        "--"),
    ROW("machine", STRING, machine, "FILE",
        "machine file, or the name of a shipped one such as h200-141 (default: this machine)"),
    ROW("host", SIZE, host, "SIZE", "host memory as a second tier (default: none)"),
    ROW("nvme", STRING, nvme, "DIR:SIZE", "NVMe as a third tier (default: none)"),
    ROW("list-cards", FLAG, list_cards, NULL, "list the machines that --machine knows by name"),
    ROW("help", FLAG, help, NULL, "print this text (-h)"),
    {0},
};

/* Options of a command line that count here too, unless they are given before it: a plan without
 * them is not one of that run. */
static const struct ckpt_option command_table[] = {
    ROW("machine", STRING, machine, "FILE", ""),
    ROW("host", SIZE, host, "SIZE", ""),
    ROW("nvme", STRING, nvme, "DIR:SIZE", ""),
    {0},
};

/* ---- this machine ---------------------------------------------------------------------------- */

/* Sets memory and context size from the local GPU; false if there is none. */
static bool use_gpu(struct plan_job *job)
{
    struct device *d;
    struct machine m = machine_cuda;
    if (device_open_cuda(&d, 0, false))
        return false;
    machine_for_device(d->name, &m);
    snprintf(job->machine.name, sizeof job->machine.name, "%s", d->name);
    int64_t have = d->ops->available(d);
    job->machine.process = m.process;
    job->capacity = have - machine_margin(&m, have);
    machine_free(&m);
    d->ops->close(d);
    return true;
}

static void use_host(struct plan_job *job)
{
    struct host_limit l = host_limits_check("", INT64_MAX / 2);
    snprintf(job->machine.name, sizeof job->machine.name, "this machine");
    job->capacity = l.left == INT64_MAX ? l.left : max_i64(1, l.left - job->budgets.host);
}

/* ---- what is typed --------------------------------------------------------------------------- */

static void put_word(const char *word)
{
    bool plain = *word && !word[strcspn(word, " \t\n\"'\\$`*?[]{}()<>|&;#~!")];
    if (plain) {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    putchar('\'');
}

/* Prints a command line for a budget.  If an option is given twice the last one counts. */
static void put_command(const struct advise_options *o, char **command, int64_t budget)
{
    const int64_t kib = 1 << 10, mib = 1 << 20;
    int64_t unit = budget >= 1024 * mib ? mib : kib;
    fputs("   ", stdout);
    for (char **word = command; word && *word; word++) {
        putchar(' ');
        put_word(*word);
    }
    if (!command) {
        fputs(" ckpt plan --graph ", stdout);
        put_word(o->graph);
    }
    if (!command && o->machine) {
        fputs(" --machine ", stdout);
        put_word(o->machine);
    }
    printf(" --vram %lld%c", (long long)(round_up(budget, unit) / unit), unit == mib ? 'M' : 'K');
    if (o->host != o->command_host)
        printf(" --host %lldM", (long long)(o->host / mib));
    if (o->nvme != o->command_nvme) {
        fputs(" --nvme ", stdout);
        put_word(o->nvme);
    }
    putchar('\n');
}

/* ---- the three ------------------------------------------------------------------------------- */

/* A budget and a time of the curve in the scale of its ends, and 1 - x - y of them. */
static double depth(const struct budget_curve *c, int64_t budget, double seconds)
{
    double x0 = (double)c->budgets[0], x1 = (double)c->budgets[c->n - 1];
    double y0 = log(c->plans[c->n - 1]->seconds), y1 = log(c->plans[0]->seconds);
    return 1 - ((double)budget - x0) / (x1 - x0) - (log(seconds) - y0) / (y1 - y0);
}

static double depth_at(const struct budget_curve *c, int32_t i)
{
    return depth(c, c->budgets[i], c->plans[i]->seconds);
}

static int32_t find_knee(const struct budget_curve *c)
{
    double most = 0;
    int32_t knee = 0;
    for (int32_t i = 1; i + 1 < c->n; i++)
        if (depth_at(c, i) > most) {
            most = depth_at(c, i);
            knee = i;
        }
    return knee;
}

/* The interval that may hold the deepest point: each point in it has a larger budget than its begin
 * and takes no less time than its end.  -1 if none is deeper than the knee by more than CLOSE. */
static int32_t deepest_interval(const struct budget_curve *c)
{
    double deepest = 0;
    int32_t knee = find_knee(c), best = -1;
    for (int32_t i = 0; i + 1 < c->n; i++) {
        double most = depth(c, c->budgets[i], c->plans[i + 1]->seconds);
        if (c->budgets[i + 1] - c->budgets[i] > 1 && most > deepest) {
            deepest = most;
            best = i;
        }
    }
    return deepest > (knee ? depth_at(c, knee) : 0) + CLOSE ? best : -1;
}

static void put_point(const struct advise_options *o, char **command, const char *name,
                      const struct budget_curve *c, int32_t i)
{
    const struct plan *p = c->plans[i];
    double best = plan_compute_seconds(p), more = p->seconds / best - 1;
    printf("%-9s device %s, host %s, NVMe %s: a step of %s", name, human_bytes(c->budgets[i]),
           human_bytes(p->host_bytes + p->staging_bytes), human_bytes(p->nvme_bytes),
           human_seconds(p->seconds));
    if (more >= 5e-4)
        printf(", %.1f%% over its compute", 100 * more);
    putchar('\n');
    put_command(o, command, c->budgets[i]);
}

static void print_advice(const struct advise_options *o, char **command, const struct plan_job *job,
                         const struct budget_curve *c)
{
    bool whole = c->fastest <= job->capacity;
    printf("%s", job->machine.name);
    if (job->capacity < INT64_MAX)
        printf(": %s for a budget", human_bytes(job->capacity));
    puts(job->machine.estimate ? " (an estimate, not measured)" : "");
    put_point(o, command, c->n == 1 ? "only one" : "smallest", c, 0);
    int32_t knee = find_knee(c);
    if (knee)
        put_point(o, command, "knee", c, knee);
    if (c->n > 1)
        put_point(o, command, whole ? "fastest" : "all of it", c, c->n - 1);
    if (!whole)
        printf("%-9s device %s to keep everything: more than the device has\n", "too large",
               human_bytes(c->fastest));
}

/* Reads the graph of the job. */
static int read_job(const struct advise_options *o, struct plan_job *job)
{
    int rc = cli_read_job(job);
    if (!rc && !o->machine && !use_gpu(job))
        use_host(job);
    return rc;
}

/* The graph of a command line, by way of a temporary directory. */
static int read_command(const struct advise_options *o, char **command, struct plan_job *job,
                        struct plan_options *p)
{
    const char *parent = getenv("TMPDIR");
    char directory[ADVISE_PATH / 2], graph[ADVISE_PATH];
    int n = snprintf(directory, sizeof directory, "%s/ckpt-advise-XXXXXX",
                     parent && *parent ? parent : "/tmp");
    if (n >= (int)sizeof directory || !mkdtemp(directory))
        return cli_fail("no directory for a graph can be made in %s; set TMPDIR",
                        parent && *parent ? parent : "/tmp");
    snprintf(graph, sizeof graph, "%s/graph", directory);
    p->graph = graph;
    int rc = advise_run(command, o->machine, directory, graph);
    if (!rc)
        rc = read_job(o, job);
    p->graph = NULL;
    unlink(graph);
    rmdir(directory);
    return rc;
}

static int advise(const struct advise_options *o, char **command)
{
    struct plan_options p = {.graph = o->graph,
                             .machine = o->machine,
                             .nvme = o->nvme,
                             .host = o->host,
                             .vram = CKPT_VRAM_AUTO};
    struct plan_job job = {.o = &p};
    struct budget_curve c = {0};
    int rc;
    if (command) {
        hold_signals();
        rc = read_command(o, command, &job, &p);
        release_signals();
    } else {
        rc = read_job(o, &job);
    }
    if (!rc)
        rc = cli_search(&job);
    if (!rc)
        rc = budget_curve_fill(&job, POINTS, deepest_interval, &c);
    if (!rc)
        print_advice(o, command, &job, &c);
    budget_curve_free(&c);
    cli_free_job(&job);
    return rc;
}

static int list_cards(void)
{
    cli_list_machines();
    puts("Other NVIDIA cards from compute capability 8.0 on (Ampere, 2020) work too: measure one "
         "with \"ckpt machine\".\nOlder ones, such as RTX 20, T4 and V100, have no bf16, and cards "
         "of other makers no CUDA:\nthere libckpt runs on the CPU alone.");
    return 0;
}

static int check_options(const struct advise_options *o, char **command)
{
    if (command && o->graph)
        return cli_usage("--graph %s and a command line: give one of them", o->graph);
    if (!command && !o->graph)
        return cli_usage("nothing to plan: give --graph FILE, or -- and the command line of a "
                         "trainer");
    if (command && !**command)
        return cli_usage("the name of the trainer behind -- is empty");
    if (o->host < 0)
        return cli_usage("--host %lld%%: give it in bytes, as 64G", (long long)-o->host);
    return 0;
}

/* Reads the options of the command line that count here. */
static int read_command_options(struct advise_options *o, char **command)
{
    int n = 0;
    while (command[n])
        n++;
    char **words = calloc((size_t)n + 1, sizeof *words); /* parsing takes words out */
    if (!words)
        return cli_fail("no memory for a command line");
    memcpy(words, command, (size_t)n * sizeof *words);
    int rc = ckpt_option_table_parse(command_table, o, &n, words);
    free(words);
    o->command_host = o->host;
    o->command_nvme = o->nvme;
    return rc ? cli_usage("%s: %s", command[0], ckpt_error(NULL)) : 0;
}

int cli_advise(int argc, char **argv)
{
    struct advise_options o = {0};
    char **command = NULL;
    int own = 1;
    for (; own < argc && strcmp(argv[own], "--"); own++)
        if (argv[own][0] != '-' && (argv[own - 1][0] != '-' || strchr(argv[own - 1], '=')))
            return cli_usage("unexpected argument '%s': a trainer with its options comes after --, "
                             "as in ckpt advise -- stdit-train --model XL/2",
                             argv[own]);
    if (own < argc) {
        argv[own] = NULL;
        command = own + 1 < argc ? argv + own + 1 : NULL;
        argc = own;
    }
    int rc = command ? read_command_options(&o, command) : 0;
    if (rc)
        return rc;
    rc = cli_parse(advise_table, &o, &o.help, argc, argv,
                       "advise --graph FILE [option]...\n       ckpt advise [option]... -- TRAINER "
                       "[option]...");
    if (rc)
        return rc < 0 ? 0 : rc;
    if (o.list_cards)
        return list_cards();
    rc = check_options(&o, command);
    if (rc)
        return rc;
    return advise(&o, command);
}
