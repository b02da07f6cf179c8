/* SPDX-License-Identifier: Apache-2.0 */
/* The options of the library itself. */
#include "ckpt_tools.h"
#include "core/options.h"
#include "core/sized.h"

#define ROW(...)   CKPT_OPTION(struct ckpt_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct ckpt_options, __VA_ARGS__)

static const struct ckpt_option library_table[] = {
    ROW("vram", BUDGET, vram, "SIZE",
        "device memory to use: bytes, 24G, 512M, a share as 80%, none, or auto: what is free, less "
        "a margin (default: auto on a GPU, none on the CPU)"),
    ROW("host", SIZE, host, "SIZE",
        "host memory as a second tier, for what does not fit on the device (default 0: none)"),
    ROW("nvme", STRING, nvme, "DIR:SIZE",
        "directory and size of a third tier, in files; several take turns: DIR:SIZE,DIR:SIZE "
        "(default none)"),
    ROW("device", STRING, device, "NAME",
        "where to compute: auto (a GPU if there is one), cpu or cuda (default auto)"),
    RANGE("micro-batch", COUNT, micro_batch, "N",
          "samples per micro-step (default 0: the whole batch); auto: what makes the fastest step "
          "that "
          "fits (the last bits of the numbers then depend on the budget)",
          0, 1 << 20),
    ROW("seed", INT, seed, "N", "seed of initial values and of random ops (default 42)"),
    RANGE("threads", INT, threads, "N",
          "kernel threads of the CPU device (default 0: one per core)", 0, 4096),
    ROW("plan-in", STRING, plan_in, "FILE", "run this plan instead of searching one"),
    ROW("plan-out", STRING, plan_out, "FILE", "write the plan to this file"),
    ROW("plan-only", FLAG, plan_only, NULL, "stop after the plan"),
    ROW("verify", FLAG, verify, NULL,
        "check plans, poison freed bytes with NaN, put red zones around outputs"),
    ROW("machine", STRING, machine, "FILE",
        "plan with the rates in this machine file, or of a shipped one as h200-141, and use the "
        "algorithms of products that it names"),
    ROW("graph-out", STRING, graph_out, "FILE", "write the graph of the step, for ckpt plan"),
    ROW("machine-out", STRING, machine_out, "FILE",
        "write the machine with the times that the ops of the first steps took, and the algorithms "
        "that --tune found"),
    ROW("profile", FLAG, profile, NULL, "time every op and print where the time of a step goes"),
    ROW("trace-out", STRING, trace_out, "FILE",
        "write what the queues were planned to do in a step, and did, as JSON for Perfetto"),
    ROW("deterministic", FLAG, deterministic, NULL,
        "GPU kernels that give the same bits every time, where a faster one would not"),
    RANGE("io-deadline", FLOAT, io_deadline, "SECONDS",
          "give up when the disk of --nvme does not answer for so long (default 30)", 0, 1e9),
    ROW("tune", FLAG, tune, NULL,
        "time what GPU libraries propose for matrix products and take what is more than 3 % faster "
        "than the first proposal; --machine-out and --plan-out keep it"),
    ROW("ranks", STRING, ranks, "WHERE",
        "train with other processes: mpi (started by mpirun or srun), or where they meet, "
        "tcp:HOST:PORT or file:PATH; with --plan-only also a number of ranks that need not be "
        "there (default: one process alone)"),
    RANGE(
        "zero", COUNT, zero, "N",
        "what ranks share: 0 nothing; 1 optimizer state; 2 also parameters, gathered once a step; "
        "3 "
        "in forward and again in backward; auto: again only where the plan freed the copy (default "
        "auto)",
        0, 3),
    RANGE("comm-deadline", FLOAT, comm_deadline, "SECONDS",
          "give up when another rank does not answer for so long (default 30)", 0, 1e9),
    ROW("shard-over", STRING, shard_over, "WHICH",
        "with ranks on several hosts: one copy of the model per host (host) or one in all (all); "
        "auto: what makes the faster step that fits (default auto)"),
    RANGE("check-ranks", INT, check_ranks, "N",
          "compare what ranks have in common every N updates (default 1000, 0: never)", 0,
          INT64_C(1) << 52),
    ROW("state", STRING, state, "DTYPE",
        "of what optimizers keep for bf16 parameters: fp32 (default), with a master of each, or "
        "without, rounded stochastically: bf16, or 8bit, for AdamW, SGD and Lion"),
    ROW("matmul", STRING, matmul, "DTYPE",
        "of the operands of large linear layers in bf16 models: bf16 (default), or rounded to 8 "
        "bits: fp8, with a scale for each tensor, which needs a GPU of compute capability 8.9 or "
        "more, or fp8-block, with one for 128 values, and of weights for 128 x 128, which needs "
        "9.0; both run on the CPU, slowly"),
    ROW("activations", STRING, activations, "DTYPE",
        "of what the backward pass reads of the forward pass of bf16 models: bf16 (default), or "
        "8bit: 8-bit codes with a scale for 128 values, where gradients bear that"),
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
        [CKPT_OPT_FLAG] = sizeof(bool),           [CKPT_OPT_INT] = sizeof(int64_t),
        [CKPT_OPT_COUNT] = sizeof(int64_t),       [CKPT_OPT_FLOAT] = sizeof(double),
        [CKPT_OPT_STRING] = sizeof(const char *), [CKPT_OPT_SIZE] = sizeof(int64_t),
        [CKPT_OPT_BUDGET] = sizeof(int64_t),
    };

    return row->offset + sizes[row->type];
}

/* A program built against an older header has a shorter struct: options without a field in it are
 * not parsed, and stay in argv to be refused. */
int ckpt_options_parse(struct ckpt_options *opt, int *argc, char **argv)
{
    NOT_NULL(NULL, opt);
    NOT_NULL(NULL, argc);
    NOT_NULL(NULL, argv);
    struct ckpt_options known = CKPT_OPTIONS_INIT;
    struct ckpt_option rows[LIBRARY_ROWS];
    size_t n = 0;

    int rc = sized_read(NULL, "struct ckpt_options", &known, sizeof known, opt);
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
