/*
 * The op table: what every CPU kernel reaches, against what the machine can do.
 *
 * A case is recorded on a tape and differentiated; then every op it brought is timed alone, on the
 * library's own queue, threads and arena.  Its arithmetic is measured against OpenBLAS's own sgemm
 * on all cores and, where an op does little of it per byte, its traffic against memcpy on all
 * cores; both are taken in the same run.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cblas.h>
#include "bench.h"
#include "context.h"
#include "ops.h"

enum {
    OPERANDS = CKPT_MAX_PARTS + 16,
    GEMM_ROWS = 2048,
    GEMM_SIZE = 1152,
    COPY_BYTES = 64 << 20,
    BURST_MOST = 256,
    ROWS_MOST = 512,
    ROW_TEXT = 80,
    MEMORY_BOUND = 16, /* operations a byte below which memory is the limit */
};

struct bench {
    ckpt *c;
    struct device *device;
    double sgemm;   /* flops a second */
    double copy;    /* bytes a second, read and written */
    double seconds; /* to measure one op for */
    char shown[ROWS_MOST][ROW_TEXT];
    int n_shown;
};

struct bench_options {
    int64_t ms;
    const char *only;
};

static const struct ckpt_option table[] = {
    {"ms", CKPT_OPT_INT, offsetof(struct bench_options, ms), "N",
     "measure each op for about N milliseconds (default 200)"},
    {"only", CKPT_OPT_STRING, offsetof(struct bench_options, only), "TEXT",
     "only cases whose name contains this"},
    {NULL, CKPT_OPT_FLAG, 0, NULL, NULL},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Calls run(user, n), which does the work n times, until the time is up; the least seconds of one.
 * Short work is done several times between two looks at the clock.  Returns 0 on failure. */
static double best_time(int (*run)(void *user, int n), void *user, double seconds)
{
    double end = now() + seconds, best = 1e9;
    int burst = 1;
    for (int i = 0; i < 3 || now() < end; i++) {
        double start = now();
        if (run(user, burst))
            return 0;
        double one = (now() - start) / burst;
        if (one < best)
            best = one;
        burst = best * BURST_MOST < 2e-3 ? BURST_MOST : 1 + (int)(2e-3 / best);
    }
    return best;
}

/* ---- what the machine can do ---------------------------------------------------------------- */

/* On the arena, as the kernels: the same pages under both. */
struct ceiling {
    float *a, *b, *c;
    int threads;
};

static int run_sgemm(void *user, int n)
{
    const struct ceiling *m = user;
    for (int i = 0; i < n; i++)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, GEMM_ROWS, GEMM_SIZE, GEMM_SIZE, 1.f,
                    m->a, GEMM_SIZE, m->b, GEMM_SIZE, 0.f, m->c, GEMM_SIZE);
    return 0;
}

static int run_copy(void *user, int n)
{
    const struct ceiling *m = user;
    const int64_t part = COPY_BYTES / m->threads / 64 * 64;
    for (int i = 0; i < n; i++) {
#pragma omp parallel for schedule(static) num_threads(m->threads)
        for (int k = 0; k < m->threads; k++)
            memcpy((char *)m->b + k * part, (const char *)m->a + k * part, (size_t)part);
    }
    return 0;
}

/* Both rates with all cores.  OpenBLAS gets back the one thread that the library gave it. */
static int measure_machine(struct bench *b, int threads)
{
    const double flops = 2. * GEMM_ROWS * GEMM_SIZE * GEMM_SIZE;
    const int64_t copied = COPY_BYTES / threads / 64 * 64 * threads, n = COPY_BYTES / 4;
    int before = openblas_get_num_threads();
    int rc = b->device->ops->map(b->device, 2 * (int64_t)COPY_BYTES);
    if (rc)
        return rc;
    struct ceiling m = {.a = (float *)b->device->ops->base(b->device), .threads = threads};
    m.b = m.a + n;
    m.c = m.b + n / 2;
    for (int64_t i = 0; i < 2 * n; i++)
        m.a[i] = (float)(i % 1021) / 1021.f;
    openblas_set_num_threads(threads);
    b->sgemm = flops / best_time(run_sgemm, &m, 5 * b->seconds);
    openblas_set_num_threads(before);
    b->copy = 2. * (double)copied / best_time(run_copy, &m, 5 * b->seconds);
    return b->device->ops->map(b->device, 0);
}

/* ---- memory of a case ------------------------------------------------------------------------ */

struct memory {
    int64_t *offset; /* per storage of the tape */
    int64_t workspace;
    char *base;
};

/* Repeats a few thousand values of [0, 1) over the bytes of an operand. */
static void fill_operand(char *dst, int64_t bytes, enum ckpt_dtype dtype, uint32_t stream)
{
    enum { N = 4096 };
    float value[N];
    uint16_t half[N];
    ckpt_fill_uniform(1, 0, stream, value, N);
    ckpt_to_bf16(value, half, N);
    const void *src = dtype == CKPT_BF16 ? (const void *)half : value;
    int64_t block = dtype == CKPT_BF16 ? (int64_t)sizeof half : (int64_t)sizeof value;
    for (int64_t at = 0; at < bytes; at += block)
        memcpy(dst + at, src, (size_t)min_i64(block, bytes - at));
}

static void fill_memory(const ckpt_tape *t, const struct memory *m)
{
    for (int32_t i = 0; i < t->n_storages; i++) {
        const struct storage *s = &t->storages.data[i];
        const struct tensor *v = &t->tensors.data[s->tensor];
        char *dst = m->base + m->offset[i];
        if (s->feed >= 0)
            memcpy(dst, t->feeds.data[s->feed].constant, (size_t)s->bytes);
        else if (v->op < 0)
            fill_operand(dst, s->bytes, v->desc.dtype, (uint32_t)i);
    }
}

/* Every storage gets a place of its own in the device's arena, the largest workspace one more. */
static int take_memory(struct bench *b, const ckpt_tape *t, struct memory *m)
{
    int64_t bytes = 0, workspace = 0;
    m->offset = calloc((size_t)t->n_storages + 1, sizeof *m->offset);
    if (!m->offset)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < t->n_storages; i++) {
        m->offset[i] = bytes;
        bytes += round_up(t->storages.data[i].bytes, CKPT_ALIGN);
    }
    for (int32_t i = 0; i < t->n_ops; i++)
        workspace = max_i64(workspace, t->ops.data[i].workspace);
    m->workspace = bytes;
    int rc = b->device->ops->map(b->device, bytes + workspace);
    m->base = b->device->ops->base(b->device);
    if (!rc)
        fill_memory(t, m);
    return rc;
}

/* ---- one op ---------------------------------------------------------------------------------- */

struct job {
    struct device *device;
    ckpt_kernel kernel;
    struct ckpt_kernel_args args;
    struct ckpt_view views[OPERANDS];
    struct ckpt_run run;
};

static int run_job(void *user, int n)
{
    struct job *j = user;
    for (int i = 0; i < n; i++)
        j->device->ops->compute(j->device, QUEUE_COMPUTE, j->kernel, &j->args, NULL);
    return j->device->ops->sync(j->device);
}

static void make_job(struct job *j, struct bench *b, const ckpt_tape *t, const struct memory *m,
                     const struct op *o)
{
    *j = (struct job){
        .device = b->device, .kernel = o->def->cpu, .run = {.seed = 1, .n_micro = 1, .lr = 1e-4f}};
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        int32_t x = t->operands.data[o->operands + i];
        const struct tensor *v = &t->tensors.data[max_i64(0, x)];
        j->views[i].desc = v->desc;
        if (x > 0)
            j->views[i].data =
                m->base + m->offset[v->storage] + v->desc.offset * ckpt_dtype_size(v->desc.dtype);
    }
    j->args = (struct ckpt_kernel_args){.n_in = o->n_in,
                                        .n_out = o->n_out,
                                        .in = j->views,
                                        .out = j->views + o->n_in,
                                        .attr = o->attr,
                                        .workspace = m->base + m->workspace,
                                        .workspace_bytes = o->workspace,
                                        .accumulate = o->accumulate == ACCUMULATE_ALWAYS,
                                        .run = &j->run};
}

static struct ckpt_cost cost_of(const struct op *o, const struct job *j)
{
    struct ckpt_desc desc[OPERANDS];
    struct ckpt_cost cost = {0};
    double bytes = 0;
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        desc[i] = j->views[i].desc;
        bytes += desc[i].ndim >= 0 ? (double)desc_bytes(&desc[i]) : 0;
    }
    struct ckpt_call call = {
        .n_in = o->n_in, .n_out = o->n_out, .in = desc, .out = desc + o->n_in, .attr = o->attr};
    if (o->def->cost)
        o->def->cost(&call, &cost);
    if (cost.bytes <= 0)
        cost.bytes = bytes;
    return cost;
}

/* ---- rows of the table ----------------------------------------------------------------------- */

static int put_shape(char *dst, int size, const struct ckpt_desc *d)
{
    int n = 0;
    for (int i = 0; i < d->ndim && n < size; i++)
        n += snprintf(dst + n, (size_t)(size - n), "%s%lld", i ? "x" : "", (long long)d->shape[i]);
    return n;
}

/* The first operand that is more than a number, and the next where it is a matrix or more of
 * another shape; the result, where there is no such operand. */
static void shape_of(const struct job *j, char *dst, int size)
{
    const struct ckpt_view *v = j->views;
    int i = 0, n = j->args.n_in;
    while (i < n && (v[i].desc.ndim < 0 || desc_numel(&v[i].desc) == 1))
        i++;
    int at = put_shape(dst, size, &v[i].desc);
    if (i + 1 >= n || v[i + 1].desc.ndim < 2 || at + 2 >= size ||
        desc_same_shape(&v[i].desc, &v[i + 1].desc))
        return;
    dst[at++] = ' ';
    put_shape(dst + at, size - at, &v[i + 1].desc);
}

static void print_cell(int width, double value, const char *unit)
{
    if (value > 0)
        printf(" %*.*f%s", width, *unit ? 0 : value < 10 ? 2 : 1, value, unit);
    else
        printf(" %*s", width + (int)strlen(unit), "-");
}

static void print_row(const struct bench *b, const struct op *o, const struct job *j,
                      const char *text, double seconds)
{
    struct ckpt_cost cost = cost_of(o, j);
    double flops = cost.flops / seconds, bytes = cost.bytes / seconds;
    bool by_memory = cost.flops < MEMORY_BOUND * cost.bytes;
    printf("%s %8.3f", text, 1e3 * seconds);
    print_cell(8, flops * 1e-9, "");
    print_cell(7, 100 * flops / b->sgemm, " %");
    print_cell(7, by_memory ? bytes * 1e-9 : 0, "");
    print_cell(7, by_memory ? 100 * bytes / b->copy : 0, " %");
    printf("\n");
    fflush(stdout);
}

/* Whether an op is worth a row: it works on more than a few numbers, and some are of this dtype. */
static bool is_worth(const struct job *j, enum ckpt_dtype dtype)
{
    bool has_dtype = false;
    int64_t most = 0;
    for (int i = 0; i < j->args.n_in + j->args.n_out; i++) {
        const struct ckpt_desc *d = &j->views[i].desc;
        if (d->ndim < 0)
            continue;
        most = max_i64(most, desc_numel(d));
        has_dtype |= d->dtype == dtype;
    }
    return has_dtype && most > 2;
}

/* Writes the row's first columns; false if there was such a row already. */
static bool new_row(struct bench *b, const struct op *o, const struct job *j, enum ckpt_dtype dtype,
                    char text[ROW_TEXT])
{
    char shape[40] = "";
    shape_of(j, shape, sizeof shape);
    snprintf(text, ROW_TEXT, "%-19s %-5s %-29s", o->def->name, dtype == CKPT_F32 ? "fp32" : "bf16",
             shape);
    for (int i = 0; i < b->n_shown; i++)
        if (!strcmp(b->shown[i], text))
            return false;
    if (b->n_shown < ROWS_MOST)
        memcpy(b->shown[b->n_shown++], text, ROW_TEXT);
    return true;
}

/* Runs an op, which the ops after it need, and where it is worth a row, times it. */
static int time_op(struct bench *b, const ckpt_tape *t, const struct memory *m, const struct op *o,
                   enum ckpt_dtype dtype, bool show)
{
    struct job j;
    char text[ROW_TEXT];
    if ((o->def->flags & CKPT_OP_VIEW) || o->feed >= 0)
        return 0;
    make_job(&j, b, t, m, o);
    int rc = o->def->cpu ? run_job(&j, 1) : CKPT_EDEVICE;
    if (!rc && show && is_worth(&j, dtype) && new_row(b, o, &j, dtype, text)) {
        double seconds = best_time(run_job, &j, b->seconds);
        if (seconds > 0)
            print_row(b, o, &j, text, seconds);
        rc = seconds > 0 ? 0 : CKPT_EDEVICE;
    }
    if (rc)
        fprintf(stderr, "bench: %s: %s\n", o->def->name, ckpt_error_name(rc));
    return rc;
}

/* ---- one case -------------------------------------------------------------------------------- */

/* Ops [own, seeded) only lead to a loss and from it; they belong to no case. */
struct scaffold {
    int32_t own, seeded;
};

static struct scaffold record_case(ckpt_tape *t, const struct bench_case *k, enum ckpt_dtype dtype)
{
    ckpt_tensor y = k->record(t, dtype);
    struct scaffold s = {t->n_ops, t->n_ops};
    if (!y.id)
        return s;
    struct ckpt_desc d = ckpt_desc_of(t, y);
    bool is_loss = d.dtype == CKPT_F32 && desc_numel(&d) == 1;
    tape_differentiate(t, is_loss ? y : ckpt_sum(t, y, ~(~0u << d.ndim)));
    s.seeded += is_loss ? 1 : 3; /* fill; or sum, fill, broadcast */
    return s;
}

static int run_case(struct bench *b, const struct bench_case *k, enum ckpt_dtype dtype)
{
    ckpt_tape *t;
    struct memory m = {0};
    if (tape_new(&t, b->c, 2, 1))
        return CKPT_ENOMEM;
    struct scaffold s = record_case(t, k, dtype);
    int rc = t->error;
    if (rc)
        fprintf(stderr, "bench: %s: %s\n", k->family, t->message);
    else
        rc = take_memory(b, t, &m);
    for (int32_t i = 0; i < t->n_ops && !rc; i++)
        rc = time_op(b, t, &m, &t->ops.data[i], dtype, i < s.own || i >= s.seeded);
    b->device->ops->map(b->device, 0);
    free(m.offset);
    tape_free(t);
    return rc;
}

static void print_ceilings(const struct bench *b, const char *when)
{
    printf("%s sgemm %dx%dx%d %.1f GFLOP/s, memcpy of %d MiB %.1f GB/s, read and written\n", when,
           GEMM_ROWS, GEMM_SIZE, GEMM_SIZE, b->sgemm * 1e-9, COPY_BYTES >> 20, b->copy * 1e-9);
}

static int run_all(struct bench *b, const char *only, int threads)
{
    int rc = measure_machine(b, threads);
    if (rc) {
        fprintf(stderr, "bench: the arena cannot be mapped: %s\n", ckpt_error_name(rc));
        return rc;
    }
    printf("CPU kernels alone, the best of several runs; %d thread%s.\n"
           "Small operands stay in the cache and may beat memcpy.\n",
           threads, threads == 1 ? "" : "s");
    print_ceilings(b, "The machine:");
    printf("\n%-19s %-5s %-29s %8s %8s %9s %7s %9s\n", "op", "dtype", "shape", "ms", "GFLOP/s",
           "of sgemm", "GB/s", "of memcpy");
    for (const struct bench_case *k = bench_cases; k->family && !rc; k++) {
        if (only && !strstr(k->family, only))
            continue;
        for (int dtype = CKPT_F32; dtype <= CKPT_BF16 && !rc; dtype++)
            rc = run_case(b, k, (enum ckpt_dtype)dtype);
    }
    if (!rc)
        rc = measure_machine(b, threads);
    printf("\n");
    print_ceilings(b, "The machine afterwards:");
    return rc;
}

int main(int argc, char **argv)
{
    struct bench_options o = {.ms = 200};
    struct ckpt_options library = CKPT_OPTIONS_INIT;
    const struct ckpt_option *tables[] = {table, ckpt_options_table()};
    static struct bench b;
    if (ckpt_options_parse(&library, &argc, argv) ||
        ckpt_option_table_parse(table, &o, &argc, argv) ||
        ckpt_options_reject(argc, argv, 2, tables) || ckpt_open(&b.c, &library)) {
        fprintf(stderr, "bench: %s\n", ckpt_error(NULL));
        return 2;
    }
    b.device = b.c->device;
    b.seconds = (double)o.ms * 1e-3;
    int threads = library.threads > 0 ? (int)library.threads : openblas_get_num_procs();
    int rc = run_all(&b, o.only, threads);
    ckpt_close(b.c);
    return rc ? 1 : 0;
}
