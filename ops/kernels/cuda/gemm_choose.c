/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selects the algorithm of a product: the recorded one; or, while measuring, one that is faster
 * than the first proposal by more than AHEAD; or the first proposal.  So the algorithms of a run
 * that measures follow from the first proposals and the few choices that it records for the
 * machine.
 *
 * libckpt's kernel is a candidate like cuBLASLt's algorithms.  Where it is usually fast it is the
 * first proposal, elsewhere the last.
 */
#include <cuda_runtime.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_plain.h"

enum {
    PROPOSALS = 8, /* of cuBLASLt */
    CANDIDATES = PROPOSALS + 1,
    SCREENING = 7, /* rounds of all candidates */
    ROUNDS = 21,   /* rounds of the best against the first; most rounds of all */
    WORDS = sizeof(((cublasLtMatmulAlgo_t *)0)->data) / sizeof(uint64_t),
    CHOICE_TEXT = 32 + 17 * WORDS
};

/* Whole steps with the same algorithms differ by up to 1 % between two processes (GPT-2 124M on an
 * H100: 117 and 118 ms).  A product that gains less than this is not worth a change of bits. */
#define AHEAD 1.03

/* A candidate. */
struct choice {
    bool own;
    cublasLtMatmulAlgo_t algo; /* of cuBLASLt, unless own */
    size_t workspace;
};

static void use_choice(struct product *p, const struct choice *c)
{
    p->own = c->own;
    p->algo = c->algo;
    p->workspace = c->workspace;
}

/* ---- recorded choices ------------------------------------------------------------------------ */

/* A choice is OWN_PRODUCT, or "cublaslt VERSION" and the words of the algorithm, which only that
 * version understands. */

#define OWN_PRODUCT "libckpt 1"

static void write_algorithm(char *dst, size_t size, const struct product *p)
{
    if (p->own) {
        snprintf(dst, size, OWN_PRODUCT);
        return;
    }
    int n = snprintf(dst, size, "cublaslt %zu", cublasLtGetVersion());
    for (int i = 0; i < WORDS; i++)
        n += snprintf(dst + n, size - (size_t)n, " %" PRIx64, p->algo.data[i]);
}

static bool read_algorithm(const char *text, struct product *p)
{
    size_t version;
    int n = 0, used;
    p->own = !strcmp(text, OWN_PRODUCT);
    if (p->own)
        return true;
    if (sscanf(text, "cublaslt %zu%n", &version, &n) != 1 || version != cublasLtGetVersion())
        return false;
    for (int i = 0; i < WORDS; i++, n += used)
        if (sscanf(text + n, " %" SCNx64 "%n", &p->algo.data[i], &used) != 1)
            return false;
    return text[n] == '\0';
}

/* Can the algorithm in p run here?  Sets the size of its workspace. */
static bool fits(cublasLtHandle_t handle, struct product *p, const struct ckpt_kernel_args *a,
                 bool own_takes)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    if (p->own)
        return own_takes;
    if (cublasLtMatmulAlgoCheck(handle, &p->task, &p->a, &p->b, &p->c, &p->c, &p->algo, &result) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    p->workspace = result.workspaceSize;
    return result.state == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= (size_t)a->workspace_bytes;
}

static bool use_recorded(cublasLtHandle_t handle, struct product *p,
                         const struct ckpt_kernel_args *a, bool own_takes,
                         struct algorithms *algorithms)
{
    const char *choice = algorithms_get(algorithms, p->key);
    if (!choice)
        return false;
    if (read_algorithm(choice, p) && fits(handle, p, a, own_takes)) {
        algorithms_put(algorithms, p->key, choice, ALGORITHM_TAKEN);
        return true;
    }
    p->own = false;
    algorithms->ignored++;
    return false;
}

/* ---- proposals ------------------------------------------------------------------------------- */

static cublasStatus_t set_limit(cublasLtMatmulPreference_t limits,
                                cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value)
{
    return cublasLtMatmulPreferenceSetAttribute(limits, attribute, &value, sizeof value);
}

/* Partial sums must be fp32: no split that adds in a bf16 output or stores bf16 parts. */
static cublasStatus_t set_limits(cublasLtMatmulPreference_t limits, const struct gemm *g,
                                 const struct ckpt_kernel_args *a)
{
    const uint64_t bytes = (uint64_t)a->workspace_bytes;
    const uint32_t reductions = g->c_dtype == CKPT_F32 ? CUBLASLT_REDUCTION_SCHEME_MASK
                                                       : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t s = cublasLtMatmulPreferenceInit(limits);
    s = s ? s
          : cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &bytes, sizeof bytes);
    s = s ? s : set_limit(limits, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    s = s ? s
          : set_limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                      gemm_alignment(g->b.data));
    s = s ? s
          : set_limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                      gemm_alignment(g->a.data));
    s = s ? s
          : set_limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                      gemm_alignment(g->addend ? g->addend : g->c));
    return s ? s
             : set_limit(limits, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, gemm_alignment(g->c));
}

/* Fills `found` with cuBLASLt's proposals that can run, best first; returns their number. */
static int query_heuristics(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                            const struct ckpt_kernel_args *a, struct choice *found)
{
    cublasLtMatmulPreferenceOpaque_t limits;
    cublasLtMatmulHeuristicResult_t all[PROPOSALS];
    int n = 0, kept = 0;
    if (set_limits(&limits, g, a) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoGetHeuristic(handle, &p->task, &p->a, &p->b, &p->c, &p->c, &limits,
                                       PROPOSALS, all, &n) != CUBLAS_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < n; i++)
        if (all[i].state == CUBLAS_STATUS_SUCCESS &&
            all[i].workspaceSize <= (size_t)a->workspace_bytes)
            found[kept++] = (struct choice){.algo = all[i].algo, .workspace = all[i].workspaceSize};
    return kept;
}

/* The same for all candidates; without `all` only for those that can come first. */
static int propose(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                   const struct ckpt_kernel_args *a, bool own_takes, bool all, struct choice *found)
{
    const bool own_first = own_takes && cuda_gemm_plain_is_fast(g);
    int n = 0;
    if (own_first)
        found[n++] = (struct choice){.own = true};
    if (!own_first || all)
        n += query_heuristics(handle, p, g, a, found + n);
    if (own_takes && !own_first)
        found[n++] = (struct choice){.own = true};
    return n;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct timer {
    cudaEvent_t begin, end;
};

/* Evicts the operands from the caches, as the rest of a step would.  It also keeps the device busy
 * while the product is enqueued, so that the launch latency is not measured. */
static bool evict_operands(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                           const struct ckpt_kernel_args *a)
{
    size_t bytes;
    void *cold = cuda_libs_cold(a->device, &bytes);
    return cold ? cudaMemsetAsync(cold, 0, bytes, (cudaStream_t)a->stream) == cudaSuccess
                : gemm_launch(handle, p, g, a) == CUBLAS_STATUS_SUCCESS;
}

/* Milliseconds of a launch, or infinity if it was refused. */
static double time_run(struct timer *w, cublasLtHandle_t handle, struct product *p,
                       const struct gemm *g, const struct ckpt_kernel_args *a)
{
    float ms = INFINITY;
    bool ok = evict_operands(handle, p, g, a) &&
              cudaEventRecord(w->begin, (cudaStream_t)a->stream) == cudaSuccess &&
              gemm_launch(handle, p, g, a) == CUBLAS_STATUS_SUCCESS &&
              cudaEventRecord(w->end, (cudaStream_t)a->stream) == cudaSuccess &&
              cudaEventSynchronize(w->end) == cudaSuccess;
    if (!ok || cudaEventElapsedTime(&ms, w->begin, w->end) != cudaSuccess)
        return INFINITY;
    return (double)ms;
}

/* The median times over some rounds.  A round runs every candidate once, so that a change of clocks
 * affects all of them.  One more round before warms up. */
static void time_all(struct timer *w, cublasLtHandle_t handle, struct product *p,
                     const struct gemm *g, const struct ckpt_kernel_args *a,
                     const struct choice *found, int n, int rounds, double *median)
{
    double ms[CANDIDATES][ROUNDS];
    for (int round = -1; round < rounds; round++)
        for (int i = 0; i < n; i++) {
            use_choice(p, &found[i]);
            ms[i][max_i64(round, 0)] = time_run(w, handle, p, g, a);
        }
    for (int i = 0; i < n; i++)
        median[i] = median_of(ms[i], rounds);
}

/* The candidate with the smallest median, if it beats the first one by AHEAD again when only these
 * two run (the best of several noisy medians is biased); else the first. */
static int fastest(struct timer *w, cublasLtHandle_t handle, struct product *p,
                   const struct gemm *g, const struct ckpt_kernel_args *a,
                   const struct choice *found, int n)
{
    double median[CANDIDATES];
    int at = 0;
    time_all(w, handle, p, g, a, found, n, SCREENING, median);
    for (int i = 1; i < n; i++)
        if (median[i] < median[at])
            at = i;
    if (!(median[at] * AHEAD < median[0]))
        return 0;
    const struct choice pair[2] = {found[0], found[at]};
    time_all(w, handle, p, g, a, pair, 2, ROUNDS, median);
    return median[1] * AHEAD < median[0] ? at : 0;
}

static int measure(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                   const struct ckpt_kernel_args *a, const struct choice *found, int n)
{
    struct timer w = {NULL, NULL};
    int at = 0;
    if (cudaEventCreate(&w.begin) == cudaSuccess && cudaEventCreate(&w.end) == cudaSuccess)
        at = fastest(&w, handle, p, g, a, found, n);
    if (w.begin)
        cudaEventDestroy(w.begin);
    if (w.end)
        cudaEventDestroy(w.end);
    cudaGetLastError(); /* launches that were refused here are no error of the step */
    return at;
}

/* False while a stream is captured: a captured launch cannot be waited for. */
static bool may_measure(struct cuda_libs *libs, const struct ckpt_kernel_args *a)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cuda_libs_measuring(libs) &&
           cudaStreamIsCapturing((cudaStream_t)a->stream, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusNone;
}

bool gemm_choose(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                 const struct ckpt_kernel_args *a, bool own_takes)
{
    struct choice found[CANDIDATES];
    struct cuda_libs *libs = a->device;
    struct algorithms *algorithms = cuda_libs_algorithms(libs);
    char text[CHOICE_TEXT];
    if (use_recorded(handle, p, a, own_takes, algorithms))
        return true;
    const bool measures = may_measure(libs, a);
    const int n = propose(handle, p, g, a, own_takes, measures, found);
    if (!n)
        return false;
    const int at = measures ? measure(handle, p, g, a, found, n) : 0;
    use_choice(p, &found[at]);
    write_algorithm(text, sizeof text, p);
    /* if memory is exhausted, only the record is lost */
    algorithms_put(algorithms, p->key, text, at ? ALGORITHM_FASTER : ALGORITHM_PROPOSED);
    return true;
}
