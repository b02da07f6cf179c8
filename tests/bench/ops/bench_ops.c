/* SPDX-License-Identifier: Apache-2.0 */
/* Single ops on the device that a program would use, timed or compared with the CPU's. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "bench/ops/bench.h"
#include "context/context.h"

/* A wrong command line, and the exit status of skipped tests; 1 is any other failure. */
enum { EXIT_USAGE = 2, EXIT_SKIP = 77 };

#define ROW(...)   CKPT_OPTION(struct bench_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct bench_options, __VA_ARGS__)

static const struct ckpt_option bench_table[] = {
    ROW("mode", STRING, mode, "MODE",
        "test: compare results with the CPU's; grad: the same for gradient ops; perf: measure "
        "times; support: list supported cases (default perf)"),
    ROW("only", STRING, only, "NAME",
        "only families whose name contains this, ignoring case (default: all)"),
    ROW("device", STRING, device, "NAME",
        "device to run ops on: auto (a GPU if there is one), cpu or cuda (default auto)"),
    ROW("dtype", STRING, dtype, "DTYPE", "only fp32 or only bf16 (default: both)"),
    ROW("size", STRING, size, "SIZE",
        "size of the cases: full or small (default: full for perf, else small)"),
    RANGE("ms", INT, ms, "N", "perf: time each op for about N ms (default 200)", 1, 60000),
    ROW("machine", STRING, machine, "FILE",
        "perf: machine file with the rates of the roofline (default: measured now)"),
    RANGE("threads", INT, threads, "N", "kernel threads of the CPU (default: one per core)", 0,
          4096),
    ROW("help", FLAG, help, NULL, "print this text (-h)"),
    {0},
};

static void complain(const char *fmt, va_list ap)
{
    char text[2 * CKPT_MESSAGE], shown[2 * CKPT_MESSAGE];
    vsnprintf(text, sizeof text, fmt, ap);
    fflush(stdout);
    fprintf(stderr, "bench_ops: %s\n", ckpt_escape(shown, sizeof shown, text));
}

int bench_fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    return EXIT_FAILURE;
}

int bench_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    return EXIT_USAGE;
}

/* Returns 0; -1 after printing the help; or an exit status. */
static int read_options(struct bench_options *o, int argc, char **argv)
{
    const struct ckpt_option *table = bench_table;
    if (ckpt_option_table_parse(table, o, &argc, argv) ||
        (!o->help && ckpt_options_reject(argc, argv, 1, &table)))
        return bench_usage("%s", ckpt_error(NULL));
    if (!o->help)
        return 0;
    printf("usage: bench_ops [option]...\n\n");
    ckpt_option_table_help(table, stdout);
    return -1;
}

static bool is_one_of(const char *text, const char *const *names)
{
    while (*names && strcmp(*names, text))
        names++;
    return *names != NULL;
}

static bool has_family(const struct bench_options *o)
{
    struct bench b = {.options = o};
    for (const struct bench_case *k = bench_cases; k->family; k++)
        if (bench_wants(&b, k, CKPT_F32) || bench_wants(&b, k, CKPT_BF16))
            return true;
    return false;
}

static int check_options(const struct bench_options *o)
{
    if (!is_one_of(o->mode, (const char *const[]){"test", "grad", "perf", "support", NULL}))
        return bench_usage("--mode %s: there are 'test', 'grad', 'perf' and 'support'", o->mode);
    if (!is_one_of(o->device, (const char *const[]){"auto", "cpu", "cuda", NULL}))
        return bench_usage("--device %s: there are 'auto', 'cpu' and 'cuda'", o->device);
    if (o->dtype && !is_one_of(o->dtype, (const char *const[]){"fp32", "bf16", NULL}))
        return bench_usage("--dtype %s: there are 'fp32' and 'bf16'", o->dtype);
    if (o->size && !is_one_of(o->size, (const char *const[]){"full", "small", NULL}))
        return bench_usage("--size %s: there are 'full' and 'small'", o->size);
    if (o->only && !has_family(o))
        return bench_usage("--only %s: no family has this name", o->only);
    return 0;
}

/* Opens the device.  To compare results of a GPU it also opens the CPU. */
static int open_bench(struct bench *b, bool compare)
{
    struct ckpt_options library = CKPT_OPTIONS_INIT;
    library.device = b->options->device;
    library.threads = b->options->threads;
    if (ckpt_open(&b->c, &library))
        return bench_fail("%s", ckpt_error(NULL));
    struct device *d = b->device = b->c->memory.device;
    if (compare && d->ops->backend == CKPT_ON_CPU) {
        printf("there is only a CPU: nothing to compare with\n");
        return EXIT_SKIP;
    }
    if (compare && device_open_cpu(&b->reference, INT64_MAX, b->options->threads))
        return bench_fail("%s", error_get());
    b->host = d->ops->host_alloc(d, BENCH_PATTERN * 6);
    b->run = d->ops->host_alloc(d, sizeof *b->run);
    if (!b->host || !b->run)
        return bench_fail("no memory for operands");
    *b->run = (struct ckpt_run){.seed = 1, .n_micro = 1, .lr = 1e-4f};
    if (d->run)
        d->ops->copy(d, QUEUE_COMPUTE, d->run, b->run, sizeof *b->run);
    int rc = d->ops->sync(d);
    return rc ? bench_fail("--device %s: %s", d->ops->name, ckpt_error_name(rc)) : 0;
}

static void close_bench(struct bench *b)
{
    if (b->reference)
        b->reference->ops->close(b->reference);
    if (b->host)
        b->device->ops->host_free(b->device, b->host);
    if (b->run)
        b->device->ops->host_free(b->device, b->run);
    ckpt_close(b->c);
}

int main(int argc, char **argv)
{
    struct bench_options o = {.mode = "perf", .device = "auto", .ms = 200};
    struct bench b = {.options = &o};
    int rc = read_options(&o, argc, argv);
    if (!rc)
        rc = check_options(&o);
    if (rc)
        return rc < 0 ? 0 : rc;
    bool perf = !strcmp(o.mode, "perf"), support = !strcmp(o.mode, "support");
    bool full = o.size ? !strcmp(o.size, "full") : perf;
    b.sizes = full ? &bench_full : &bench_small;
    if (support)
        o.device = "cpu";
    rc = open_bench(&b, !perf && !support);
    if (!rc)
        rc = support ? bench_support(&b)
             : perf  ? bench_perf(&b)
                     : bench_compare(&b, !strcmp(o.mode, "grad"));
    close_bench(&b);
    return rc;
}
