/* SPDX-License-Identifier: Apache-2.0 */
/* The options of the library itself. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "core/options.h"
#include "core/sized.h"

#define ROW(...)   CKPT_OPTION(struct ckpt_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct ckpt_options, __VA_ARGS__)

static const struct ckpt_option library_table[] = {
    CKPT_OPTION_GROUP("Memory"),
    ROW("vram", BUDGET, vram, "SIZE",
        "device memory to use: bytes, 24G, 512M, a share such as 80%, none, or auto: the free "
        "memory minus a margin (default: auto on a GPU, none on the CPU)"),
    ROW("host", SIZE, host, "SIZE",
        "host memory as a second tier, for tensors that do not fit on the device (default 0: "
        "none)"),
    ROW("nvme", STRING, nvme, "DIR:SIZE",
        "directory and size of a third tier, kept in files; several disks are used in turn: "
        "DIR:SIZE,DIR:SIZE; copies pass through a quarter of --host, at most 64M (default: none)"),
    ROW("save-async", FLAG, save_async, NULL,
        "write states in a thread: a step waits for their copy to host memory only, which takes a "
        "part of --host"),
    RANGE("micro-batch", COUNT, micro_batch, "N",
          "samples per micro-step (default 0: the whole batch); auto: the number with the fastest "
          "step that fits (the last bits of results then depend on the budget; where samples are "
          "coupled the whole batch, and the plan table says why)",
          0, 1 << 20),
    CKPT_OPTION_GROUP("The machine"),
    ROW("device", STRING, device, "NAME",
        "device to compute on: auto (a GPU if there is one), cpu or cuda (default auto)"),
    RANGE("threads", INT, threads, "N",
          "kernel threads of the CPU device (default 0: one per core)", 0, 4096),
    ROW("machine", STRING, machine, "FILE",
        "machine file, or the name of a shipped one such as h200-141: plan with its rates and use "
        "its algorithms for matrix products"),
    ROW("tune", FLAG, tune, NULL,
        "time the algorithms that GPU libraries propose for matrix products, and use the fastest "
        "if it is more than 3 % faster than the first; --machine-out and --plan-out record it"),
    RANGE("io-deadline", FLOAT, io_deadline, "SECONDS",
          "stop with an error when a disk of --nvme does not respond for this time (default 30)", 0,
          1e9),
    CKPT_OPTION_GROUP("Plans"),
    ROW("plan-only", FLAG, plan_only, NULL, "stop after the plan"),
    ROW("plan-in", STRING, plan_in, "FILE", "use this plan instead of searching for one"),
    ROW("plan-out", STRING, plan_out, "FILE", "write the plan to this file"),
    ROW("verify", FLAG, verify, NULL,
        "check the tape after each pass and plans, poison freed bytes with NaN, put red zones "
        "around outputs"),
    ROW("dump-tape", STRING, dump_tape, "PASS",
        "print the tape after this pass, one op a line; list names the passes (default: none)"),
    ROW("graph-out", STRING, graph_out, "FILE", "write the graph of the step, for ckpt plan"),
    ROW("machine-out", STRING, machine_out, "FILE",
        "write a machine file with the measured times of the ops in the first steps and the "
        "algorithms that --tune selected"),
    CKPT_OPTION_GROUP("Numbers"),
    ROW("seed", INT, seed, "N", "seed of initial values and random ops (default 42)"),
    ROW("state", STRING, state, "DTYPE",
        "optimizer state of bf16 parameters: fp32, with fp32 master weights; bf16 or 8bit, without "
        "master weights and with stochastic rounding (8bit: AdamW, SGD and Lion) (default fp32)"),
    ROW("matmul", STRING, matmul, "DTYPE",
        "operands of large linear layers in bf16 models: bf16; fp8: 8 bits with a scale per "
        "tensor, on GPUs from compute capability 8.9 and, slowly, on the CPU (default bf16)"),
    ROW("activations", STRING, activations, "DTYPE",
        "activations of bf16 models kept for the backward pass: bf16; 8bit: 8-bit codes with a "
        "scale per 128 values, where gradients tolerate it (default bf16)"),
    ROW("qat", STRING, qat, "DTYPE",
        "quantization-aware training: linear layers and convolutions read weights and operands "
        "rounded to this dtype, and gradients pass the rounding: int8 (default: no)"),
    ROW("qat-ranges", STRING, qat_ranges, "HOW",
        "ranges of the operands of --qat: average: moving averages of the least and the largest "
        "element; learned: a scale that is trained; dynamic: of each row, or sample of a "
        "convolution (default average)"),
    ROW("qat-skip", STRING, qat_skip, "PATTERN",
        "names of weights that --qat does not round, such as 'head.*'; several patterns are "
        "separated by commas (default: none)"),
    ROW("unordered", FLAG, unordered, NULL,
        "allow GPU kernels that add in no fixed order where they are faster (gradients of long "
        "attention): the last bits of results then differ from run to run and between budgets"),
    ROW("deterministic", FLAG, deterministic, NULL,
        "no effect: every kernel gives the same bits in every run unless --unordered is given; "
        "this option will be removed"),
    CKPT_OPTION_GROUP("Ranks"),
    ROW("ranks", STRING, ranks, "WHERE",
        "train with other processes: mpi (started by mpirun or srun), or a rendezvous, "
        "tcp:HOST:PORT or file:PATH, or env: where torchrun or Slurm says; with --plan-only also a "
        "number of ranks, which need not run; "
        "none: alone, though a launcher started several processes (default: one process alone)"),
    RANGE("zero", COUNT, zero, "N",
          "what is sharded over ranks: 0: nothing; 1: optimizer state; 2: also parameters, "
          "gathered once per step; 3: gathered in forward and again in backward; auto: gathered "
          "again only where the plan freed the copy (default auto)",
          0, 3),
    RANGE("sequence", COUNT, sequence, "N",
          "ranks that split the tokens of their samples: groups of N ranks have the same samples, "
          "and the batch is that of a group; auto: the number that fits and takes the least time "
          "for each sample (default 1: each rank has its own samples)",
          1, 1 << 20),
    RANGE("tensor", COUNT, tensor, "N",
          "ranks that split the wide layers of a model: groups of N ranks have the same samples, "
          "and each rank a part of the heads and of the MLPs; auto: the number that fits and takes "
          "the least time for each sample (default 1: none)",
          1, 1 << 20),
    RANGE("stages", COUNT, stages, "N",
          "ranks that each have a part of the layers, with its parameters and their state, and "
          "work at once on different micro-steps of the same samples; more ranks, a multiple of N, "
          "are more such pipelines with samples of their own; one with --device cpu may be beside "
          "others on GPUs; auto: the number that fits and takes the least time for each sample "
          "(default 1: each has all)",
          1, 1 << 20),
    ROW("shard-over", STRING, shard_over, "WHICH",
        "with ranks on several hosts: host: one copy of the model per host; all: one copy over all "
        "hosts; auto: the faster one that fits (default auto)"),
    RANGE("comm-deadline", FLOAT, comm_deadline, "SECONDS",
          "stop with an error when another rank does not respond for this time (default 30)", 0,
          1e9),
    RANGE("check-ranks", INT, check_ranks, "N",
          "compare the values that all ranks hold every N updates (default 1000; 0: never)", 0,
          INT64_C(1) << 52),
    CKPT_OPTION_GROUP("Times"),
    ROW("profile", FLAG, profile, NULL, "time every op and print the parts of a step's time"),
    ROW("trace-out", STRING, trace_out, "FILE",
        "write the planned and the measured times of a step's queues as JSON for Perfetto"),
    {0},
};

#define LIBRARY_ROWS (sizeof(library_table) / sizeof(library_table[0]))

const struct ckpt_option *ckpt_options_table(void)
{
    return library_table;
}

static size_t field_end(const struct ckpt_option *row)
{
    static const size_t sizes[] = {
        [CKPT_OPT_FLAG] = sizeof(bool),
        [CKPT_OPT_INT] = sizeof(int64_t),
        [CKPT_OPT_COUNT] = sizeof(int64_t),
        [CKPT_OPT_FLOAT] = sizeof(double),
        [CKPT_OPT_STRING] = sizeof(const char *),
        [CKPT_OPT_SIZE] = sizeof(int64_t),
        [CKPT_OPT_BUDGET] = sizeof(int64_t),
        [CKPT_OPT_ALIAS] = 0,
        [CKPT_OPT_GROUP] = 0,
    };

    return row->offset + sizes[row->type];
}

/* A program built against an older header has a shorter struct: options without a field in it are
 * not parsed, and stay in argv to be refused. */
int ckpt_options_parse(struct ckpt_options *opt, int *argc, char **argv)
{
    NOT_NULL(opt);
    NOT_NULL(argc);
    NOT_NULL(argv);
    struct ckpt_options known = CKPT_OPTIONS_INIT;
    struct ckpt_option rows[LIBRARY_ROWS];
    size_t n = 0;

    int rc = sized_read("struct ckpt_options", &known, sizeof known, opt);
    if (rc)
        return rc;
    for (const struct ckpt_option *row = library_table; row->name; row++) {
        if (field_end(row) <= opt->size)
            rows[n++] = *row;
    }
    rows[n] = (struct ckpt_option){0};
    rc = option_environment(rows, opt);
    return rc ? rc : ckpt_option_table_parse(rows, opt, argc, argv);
}

static const char **text_of(struct ckpt_options *o, const struct ckpt_option *row)
{
    return row->type == CKPT_OPT_STRING ? (const char **)((char *)o + row->offset) : NULL;
}

int options_own_texts(struct ckpt_options *o, char **block)
{
    size_t bytes = 0;
    for (const struct ckpt_option *row = library_table; row->name; row++) {
        const char **text = text_of(o, row);
        bytes += text && *text ? strlen(*text) + 1 : 0;
    }
    char *to = *block = bytes ? malloc(bytes) : NULL;
    if (bytes && !to)
        return error_set(CKPT_ENOMEM, "no memory for the texts of the options");
    for (const struct ckpt_option *row = library_table; row->name; row++) {
        const char **text = text_of(o, row);
        if (!text || !*text)
            continue;
        size_t size = strlen(*text) + 1;
        *text = memcpy(to, *text, size);
        to += size;
    }
    return 0;
}
