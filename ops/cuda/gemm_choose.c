/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm a product uses: the pinned one; while measuring, one that is faster than the
 * first proposed by more than AHEAD; or the first proposed.  So what a run that measures has used
 * follows from the first proposals and the few pins that it leaves for the machine.
 *
 * Our own kernel is an algorithm like those of cuBLASLt.  Where it is fast as a rule it is the
 * first one proposed, elsewhere the last.
 */
#include <cuda_runtime.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "cuda/gemm.h"
#include "cuda/gemm_plain.h"

enum {
    PROPOSALS = 8, /* of cuBLASLt */
    CANDIDATES = PROPOSALS + 1,
    SCREENING = 7, /* rounds of all candidates */
    ROUNDS = 21,   /* and of the best beside the first, at most that many of anything */
    WORDS = sizeof(((cublasLtMatmulAlgo_t *)0)->data) / sizeof(uint64_t),
    PIN_TEXT = 32 + 17 * WORDS
};

/* Whole steps with the same algorithms differ by up to 1 % between two processes (GPT-2 124M on an
 * H100: 117 and 118 ms), so what gains a product less than this is not worth other sums. */
#define AHEAD 1.03

/* A candidate. */
struct choice {
    bool own;
    cublasLtMatmulAlgo_t algo; /* of cuBLASLt, unless it is our own kernel */
    size_t workspace;
};

static void take(struct product *p, const struct choice *c)
{
    p->own = c->own;
    p->algo = c->algo;
    p->workspace = c->workspace;
}

/* ---- pins: "cublaslt VERSION" and the algorithm's words, which only that version understands; or
 * OWN_PIN ---- */

#define OWN_PIN "libckpt 1"

static void write_choice(char *dst, size_t size, const struct product *p)
{
    if (p->own) {
        snprintf(dst, size, OWN_PIN);
        return;
    }
    int n = snprintf(dst, size, "cublaslt %zu", cublasLtGetVersion());
    for (int i = 0; i < WORDS; i++)
        n += snprintf(dst + n, size - (size_t)n, " %" PRIx64, p->algo.data[i]);
}

static bool read_choice(const char *text, struct product *p)
{
    size_t version;
    int n = 0, used;
    p->own = !strcmp(text, OWN_PIN);
    if (p->own)
        return true;
    if (sscanf(text, "cublaslt %zu%n", &version, &n) != 1 || version != cublasLtGetVersion())
        return false;
    for (int i = 0; i < WORDS; i++, n += used)
        if (sscanf(text + n, " %" SCNx64 "%n", &p->algo.data[i], &used) != 1)
            return false;
    return text[n] == '\0';
}

/* Whether what is in p runs here; sets the workspace that it uses. */
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

static bool take_pin(cublasLtHandle_t handle, struct product *p, const struct ckpt_kernel_args *a,
                     bool own_takes, struct pins *pins)
{
    const char *choice = pins_get(pins, p->key);
    if (!choice)
        return false;
    if (read_choice(choice, p) && fits(handle, p, a, own_takes)) {
        pins_put(pins, p->key, choice, PIN_TAKEN);
        return true;
    }
    p->own = false;
    pins->ignored++;
    return false;
}

/* ---- proposals ------------------------------------------------------------------------------- */

static cublasStatus_t set_limit(cublasLtMatmulPreference_t limits,
                                cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value)
{
    return cublasLtMatmulPreferenceSetAttribute(limits, attribute, &value, sizeof value);
}

/* Partial sums stay in fp32: no splits that meet in a bf16 output or are stored as bf16. */
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

/* Fills found with cuBLASLt's proposals that can run, best guess first; returns their number. */
static int ask(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
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
            found[kept++] = (struct choice){.algo = all[i].algo,
                                            .workspace = all[i].workspaceSize};
    return kept;
}

/* The same of all candidates; only the first where the others are not asked for. */
static int propose(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                   const struct ckpt_kernel_args *a, bool own_takes, bool all,
                   struct choice *found)
{
    const bool own_first = own_takes && cuda_gemm_plain_is_fast(g);
    int n = 0;
    if (own_first)
        found[n++] = (struct choice){.own = true};
    if (!own_first || all)
        n += ask(handle, p, g, a, found + n);
    if (own_takes && !own_first)
        found[n++] = (struct choice){.own = true};
    return n;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct watch {
    cudaEvent_t begin, end;
};

/* Takes the operands out of the caches, in which a step has much else; and the device is at work
 * when the product is handed over, which thus is no part of its time. */
static bool make_cold(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                      const struct ckpt_kernel_args *a)
{
    size_t bytes;
    void *cold = cuda_libs_cold(a->device, &bytes);
    return cold ? cudaMemsetAsync(cold, 0, bytes, (cudaStream_t)a->stream) == cudaSuccess
                : gemm_launch(handle, p, g, a) == CUBLAS_STATUS_SUCCESS;
}

/* Milliseconds of a launch, or infinity if it was refused. */
static double time_run(struct watch *w, cublasLtHandle_t handle, struct product *p,
                       const struct gemm *g, const struct ckpt_kernel_args *a)
{
    float ms = INFINITY;
    bool ok = make_cold(handle, p, g, a) &&
              cudaEventRecord(w->begin, (cudaStream_t)a->stream) == cudaSuccess &&
              gemm_launch(handle, p, g, a) == CUBLAS_STATUS_SUCCESS &&
              cudaEventRecord(w->end, (cudaStream_t)a->stream) == cudaSuccess &&
              cudaEventSynchronize(w->end) == cudaSuccess;
    if (!ok || cudaEventElapsedTime(&ms, w->begin, w->end) != cudaSuccess)
        return INFINITY;
    return (double)ms;
}

/* The medians of so many rounds, each of which runs every proposal once, so that a change of clocks
 * meets them all.  The round before them only warms up. */
static void time_all(struct watch *w, cublasLtHandle_t handle, struct product *p,
                     const struct gemm *g, const struct ckpt_kernel_args *a,
                     const struct choice *found, int n, int rounds,
                     double *median)
{
    double ms[CANDIDATES][ROUNDS];
    for (int round = -1; round < rounds; round++)
        for (int i = 0; i < n; i++) {
            take(p, &found[i]);
            ms[i][max_i64(round, 0)] = time_run(w, handle, p, g, a);
        }
    for (int i = 0; i < n; i++)
        median[i] = median_of(ms[i], rounds);
}

/* The proposal with the smallest median where it still beats the first one by AHEAD when only these
 * two run: the best of eight looks better than it is.  Else the first. */
static int fastest(struct watch *w, cublasLtHandle_t handle, struct product *p,
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
                   const struct ckpt_kernel_args *a, const struct choice *found,
                   int n)
{
    struct watch w = {NULL, NULL};
    int at = 0;
    if (cudaEventCreate(&w.begin) == cudaSuccess && cudaEventCreate(&w.end) == cudaSuccess)
        at = fastest(&w, handle, p, g, a, found, n);
    if (w.begin)
        cudaEventDestroy(w.begin);
    if (w.end)
        cudaEventDestroy(w.end);
    cudaGetLastError(); /* what was refused here is no error of the step */
    return at;
}

/* A step that is being recorded cannot be waited for. */
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
    struct pins *pins = cuda_libs_pins(libs);
    char text[PIN_TEXT];
    if (take_pin(handle, p, a, own_takes, pins))
        return true;
    const bool measures = may_measure(libs, a);
    const int n = propose(handle, p, g, a, own_takes, measures, found);
    if (!n)
        return false;
    const int at = measures ? measure(handle, p, g, a, found, n) : 0;
    take(p, &found[at]);
    write_choice(text, sizeof text, p);
    /* without memory for it the choice is only not written down */
    pins_put(pins, p->key, text, at ? PIN_FASTER : PIN_PROPOSED);
    return true;
}
