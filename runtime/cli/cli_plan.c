/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt plan: makes a plan for the step in a graph file, for any machine. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "cli/cli.h"
#include "cli/hold_signals.h"
#include "cli/import_graph.h"
#include "plan/graph/graph_file.h"
#include "memory/tier/tier.h"
#include "report/progress.h"
#include "report/timeline.h"

#define ROW(...)   CKPT_OPTION(struct plan_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct plan_options, __VA_ARGS__)

enum { NO_WORLD = INT32_MIN }; /* --world is not given */

static const struct ckpt_option plan_table[] = {
    ROW("graph", STRING, graph, "FILE",
        "graph of the step to plan, written by a program with --graph-out"),
    ROW("pt2", STRING, pt2, "FILE",
        "instead of --graph: a .pt2 archive of PyTorch, trained with AdamW; see ckpt import"),
    ROW("dim", STRING, dim, "NAME=N",
        "with --pt2: sizes of dynamic dimensions, joined by commas: s17=8, or ids.0=8 "
        "(default: those of the export)"),
    ROW("machine", STRING, machine, "FILE",
        "machine file with rates, or the name of a shipped one such as h200-141"),
    ROW("vram", BUDGET, vram, "SIZE",
        "device memory: bytes, 24G, 512M, a share such as 80%, none, or auto: the memory of the "
        "machine minus a margin; without --machine none (default auto)"),
    ROW("host", SIZE, host, "SIZE", "host memory as a second tier (default: none)"),
    ROW("nvme", STRING, nvme, "SIZE", "NVMe as a third tier (default: none)"),
    ROW("output", STRING, out, "FILE", "write the plan, or with --place the offsets"),
    ROW("plan-in", STRING, plan_in, "FILE", "show this plan instead of searching"),
    ROW("explain", STRING, explain, "NAME",
        "explain the fate of the storages with this name, or number such as #12 (default: none)"),
    ROW("timeline", STRING, timeline, "FILE",
        "write the memory over the step as an HTML page; FILE.json: the queues, as JSON for "
        "Perfetto; FILE.pickle: a snapshot for pytorch.org/memory_viz"),
    ROW("sweep", FLAG, sweep, NULL, "print step time against device budget"),
    RANGE("points", INT, points, "N", "budgets of a sweep, 2 to 1000 (default 24)", 2, 1000),
    RANGE("world", INT, world, "N",
          "print memory and step time of a rank for 1, 2, 4 to N ranks and each way to shard, of "
          "--pt2 or of a graph from --ranks 2 --plan-only --graph-out FILE (default: none)",
          1, 1 << 20),
    RANGE("hosts", INT, hosts, "H",
          "with --world: number of hosts for N ranks (default: from ranks_per_host of the machine "
          "file)",
          1, 1 << 20),
    ROW("link-file", STRING, link_file, "FILE",
        "with --world: links between ranks, instead of those in the machine file"),
    ROW("sequence", STRING, sequence, "auto",
        "with --world: compare all ways to split sequences and to shard, of the graphs FILE.1, "
        "FILE.2, ... that a program with --sequence auto --plan-only --graph-out FILE writes "
        "(default: none)"),
    ROW("tensor", STRING, tensor, "auto",
        "the same of ways to split layers, of FILE.1 and FILE.tensor.2, ... that --tensor auto "
        "writes; beside --sequence auto it compares both (default: none)"),
    ROW("stages", STRING, stages, "auto",
        "the same of numbers of stages, of FILE.1 and FILE.stages.2.1, FILE.stages.2.2, ... that "
        "--stages auto writes; beside the others it compares all (default: none)"),
    ROW("svg", STRING, svg, "FILE", "draw the sweep, or with --world the scaling curves"),
    ROW("place", STRING, place, "FILE",
        "only assign addresses to the buffers of a CSV file (id,lower,upper,size)"),
    ROW("capacity", SIZE, capacity, "SIZE",
        "with --place: stop when this many bytes are enough (default: minimize)"),
    RANGE("seconds", FLOAT, seconds, "S",
          "with --place: stop searching after this time (default: after a fixed amount of work)", 0,
          1e9),
    ROW("help", FLAG, help, NULL, "print this text (-h)"),
    CKPT_OPTION_ALIAS("out", "output"),
    {0},
};

static int check_options(const struct plan_options *o)
{
    if (o->place &&
        (o->graph || o->pt2 || o->sweep || o->explain || o->timeline || o->svg || o->plan_in))
        return cli_usage("--place excludes --graph, --pt2 and their options");
    if (o->place)
        return o->capacity < 0 ? cli_usage("--capacity: give it in bytes, as 512M") : 0;
    if (o->capacity || o->seconds > 0)
        return cli_usage("--capacity and --seconds are for --place");
    if (!o->graph && !o->pt2)
        return cli_usage("--graph FILE is missing; a program writes one with --graph-out FILE, and "
                         "--pt2 FILE takes its place");
    if (o->graph && o->pt2)
        return cli_usage("--graph and --pt2 each give a step: leave out one of them");
    if (o->dim && !o->pt2)
        return cli_usage("--dim is for --pt2");
    if (o->host < 0)
        return cli_usage("--host %lld%%: give it in bytes, as 64G", (long long)-o->host);
    if (o->vram < 0 && o->vram != CKPT_VRAM_AUTO && !o->machine)
        return cli_usage("--vram %lld%%: a share needs --machine", (long long)-o->vram);
    if (o->svg && !o->sweep && o->world == NO_WORLD)
        return cli_usage("--svg draws a sweep or a curve: add --sweep or --world");
    if (o->plan_in && (o->sweep || o->out))
        return cli_usage("--plan-in shows an existing plan: leave out --sweep and --out");
    if (o->sweep && (o->out || o->timeline || o->explain))
        return cli_usage("--sweep shows many plans and keeps none: leave out --out, --timeline and "
                         "--explain");
    return 0;
}

static int check_world(const struct plan_options *o)
{
    const bool splits = plan_compares(o);
    if (o->world == NO_WORLD && (o->hosts || o->link_file || splits))
        return cli_usage(
            "--hosts, --link-file, --sequence, --tensor and --stages are for --world N");
    if (o->world == NO_WORLD)
        return 0;
    if (o->sequence && strcmp(o->sequence, "auto"))
        return cli_usage("--sequence %s: give auto; a graph is of one number", o->sequence);
    if (o->tensor && strcmp(o->tensor, "auto"))
        return cli_usage("--tensor %s: give auto; a graph is of one number", o->tensor);
    if (o->stages && strcmp(o->stages, "auto"))
        return cli_usage("--stages %s: give auto; graphs are of one number", o->stages);
    if (splits && (o->pt2 || o->svg))
        return cli_usage("--sequence auto, --tensor auto and --stages auto read graphs FILE.1, "
                         "FILE.2, ...: leave out --pt2 and --svg");
    if (o->hosts > o->world)
        return cli_usage("--hosts %lld: %lld ranks fill 1 to %lld", (long long)o->hosts,
                         (long long)o->world, (long long)o->world);
    if (!o->machine)
        return cli_usage("--world needs --machine");
    if (o->host || o->nvme)
        return cli_usage("--world plans without lower tiers: leave out --host and --nvme");
    if (o->sweep || o->plan_in || o->out || o->explain || o->timeline)
        return cli_usage("--world makes no plan file: leave out --sweep, --plan-in, --out, "
                         "--explain and --timeline");
    return 0;
}

static int check_paths(const struct plan_options *o)
{
    const struct ckpt_path all[] = {
        {"--graph", o->graph, CKPT_PATH_INPUT, 0},
        {"--pt2", o->pt2, CKPT_PATH_INPUT, 0},
        {"--machine", o->machine, CKPT_PATH_INPUT, 0},
        {"--plan-in", o->plan_in, CKPT_PATH_INPUT, 0},
        {"--place", o->place, CKPT_PATH_INPUT, 0},
        {"--link-file", o->link_file, CKPT_PATH_INPUT, 0},
        {"--output", o->out, CKPT_PATH_FILE, 0},
        {"--svg", o->svg, CKPT_PATH_FILE, 0},
        {"--timeline", o->timeline, CKPT_PATH_FILE, 0},
    };
    return cli_check_paths(all, sizeof all / sizeof *all);
}

static int read_budgets(struct plan_job *job)
{
    const struct plan_options *o = job->o;
    struct tier_directories nvme = {0};
    bool is_auto = o->vram == CKPT_VRAM_AUTO;
    job->budgets = (struct budgets){.device = is_auto ? INT64_MAX : o->vram, .host = o->host};
    if (o->nvme && *o->nvme && tier_read_directories(&nvme, o->nvme))
        return cli_usage("%s", ckpt_error(NULL));
    job->budgets.nvme = nvme.bytes;
    job->capacity = INT64_MAX;
    if (!o->machine || o->vram == CKPT_VRAM_NONE)
        return 0;
    int64_t memory = job->machine.memory;
    job->capacity = memory - machine_margin(&job->machine, memory);
    if (is_auto) {
        job->margin = memory - job->capacity;
        job->budgets.device = job->capacity;
    } else if (o->vram < 0) {
        job->budgets.device = (int64_t)((double)memory * (double)-o->vram / 100.);
    } else if (o->vram > memory) {
        job->asked = o->vram;
        job->budgets.device = memory;
    }
    return 0;
}

/* The graph of an archive, by way of a file. */
static int read_import(struct plan_job *job)
{
    const char *folder = getenv("TMPDIR");
    struct import_report r = {0};
    char path[4096];

    snprintf(path, sizeof path, "%s/ckpt-graph-XXXXXX", folder && *folder ? folder : "/tmp");
    hold_signals();
    int fd = mkstemp(path), rc = fd < 0 ? cli_fail("%s: cannot be made", path) : 0;
    if (!rc && import_report_make(&r, job->o->pt2))
        rc = cli_fail("%s", ckpt_error(NULL));
    if (!rc && job->o->dim && import_report_set_sizes(&r, job->o->dim))
        rc = cli_fail("--dim %s: %s", job->o->dim, ckpt_error(NULL));
    if (!rc)
        rc = import_graph_write(&r, job->o->machine, job->o->world != NO_WORLD ? "2" : NULL, path);
    if (!rc && graph_read(path, &job->graph))
        rc = cli_fail("%s", error_get());
    import_report_free(&r);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    release_signals();
    return rc;
}

int cli_read_job(struct plan_job *job)
{
    job->machine = machine_cpu;
    if (job->o->machine && machine_read(job->o->machine, &job->machine))
        return cli_fail("%s", error_get());
    int rc = read_budgets(job);
    if (rc)
        return rc;
    rc = job->o->pt2 ? read_import(job) : 0;
    if (rc || plan_compares(job->o)) /* it reads graphs with other names */
        return rc;
    if (!job->graph && graph_read(job->o->graph, &job->graph))
        return cli_fail("%s", error_get());
    if (job->o->machine)
        graph_price(job->graph, &job->machine);
    return graph_check_seconds(job->graph) ? cli_fail("%s", error_get()) : 0;
}

void cli_free_job(struct plan_job *job)
{
    plan_free(job->plan);
    frontier_free(job->search);
    graph_free(job->graph);
    machine_free(&job->machine);
}

static void report(void *user, int seconds)
{
    const struct plan_job *job = user;
    char what[64] = "planning";
    if (job->most)
        snprintf(what, sizeof what, "planning, %d of at most %d budgets done", (int)job->planned,
                 (int)job->most);
    progress_seconds(stderr, what, seconds);
}

int cli_search(struct plan_job *job)
{
    if (job->search)
        return 0;
    job->watch = (struct plan_watch){.report = report, .user = job};
    plan_watch_start(&job->watch);
    job->graph->watch = &job->watch;
    return frontier_build(job->graph, &job->search) ? cli_fail("out of host memory") : 0;
}

static int sweep(struct plan_job *job)
{
    int rc = cli_search(job);
    return rc ? rc : cli_sweep(job);
}

static int make_plan(struct plan_job *job)
{
    const char *from = job->o->plan_in;
    int rc = from ? 0 : cli_search(job);
    if (rc)
        return rc;
    int (*ask)(struct frontier *, const struct machine *, const struct budgets *, int64_t,
               struct plan **) =
        job->o->vram == CKPT_VRAM_AUTO ? frontier_plan_free : frontier_plan;
    rc = from ? plan_read(job->graph, from, &job->plan)
              : ask(job->search, &job->machine, &job->budgets, job->machine.process, &job->plan);
    if (!rc)
        rc = plan_check(job->graph, job->plan);
    if (!rc && from && job->o->machine && plan_reprice(job->graph, &job->machine, job->plan))
        return cli_fail("out of host memory");
    if (!rc && job->o->out)
        rc = plan_write(job->graph, job->plan, job->o->out);
    if (!rc && from)
        job->budgets = job->plan->budgets;
    return rc ? cli_fail("%s", error_get()) : 0;
}

static int show_plan(struct plan_job *job)
{
    int rc = make_plan(job);
    if (rc)
        return rc;
    if (job->o->timeline && timeline_write(job->graph, job->plan, &job->machine, job->o->timeline))
        return cli_fail("%s", error_get());
    if (job->o->explain)
        return cli_explain(job, job->o->explain);
    rc = cli_search(job);
    if (!rc)
        cli_print_plan(job, stdout);
    return rc;
}

int cli_plan(int argc, char **argv)
{
    struct plan_options o = {.vram = CKPT_VRAM_AUTO, .points = 24, .world = NO_WORLD};
    struct plan_job job = {.o = &o};
    int rc = cli_parse(plan_table, &o, &o.help, argc, argv,
                       "plan --graph FILE [option]...\n       ckpt plan --pt2 FILE.pt2 "
                       "[option]...\n       ckpt plan --place FILE [option]...");
    if (rc)
        return rc < 0 ? 0 : rc;
    rc = check_options(&o);
    if (!rc)
        rc = check_world(&o);
    if (!rc)
        rc = check_paths(&o);
    if (!rc && o.place)
        return cli_place(&o);
    if (!rc)
        rc = cli_read_job(&job);
    if (!rc)
        rc = o.world != NO_WORLD ? cli_scaling(&job) : o.sweep ? sweep(&job) : show_plan(&job);
    cli_free_job(&job);
    return rc;
}
