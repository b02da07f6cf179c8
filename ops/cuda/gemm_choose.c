/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm a product uses: the pinned one, the fastest measured one, or the first proposed.
 */
#include <cuda_runtime.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "cuda/gemm.h"

enum {
    CANDIDATES = 8,
    ROUNDS = 5, /* each times every candidate once, so that a change of clocks meets them all */
    RUNS = 4,   /* of one timing */
    WORDS = sizeof(((cublasLtMatmulAlgo_t *)0)->data) / sizeof(uint64_t),
    PIN_TEXT = 32 + 17 * WORDS
};

/* ---- pins: "cublaslt VERSION" and the algorithm's words, which only that version understands ---
 */

static void write_choice(char *dst, size_t size, const cublasLtMatmulAlgo_t *algo)
{
    int n = snprintf(dst, size, "cublaslt %zu", cublasLtGetVersion());
    for (int i = 0; i < WORDS; i++)
        n += snprintf(dst + n, size - (size_t)n, " %" PRIx64, algo->data[i]);
}

static bool read_choice(const char *text, cublasLtMatmulAlgo_t *algo)
{
    size_t version;
    int n = 0, used;
    if (sscanf(text, "cublaslt %zu%n", &version, &n) != 1 || version != cublasLtGetVersion())
        return false;
    for (int i = 0; i < WORDS; i++, n += used)
        if (sscanf(text + n, " %" SCNx64 "%n", &algo->data[i], &used) != 1)
            return false;
    return text[n] == '\0';
}

/* Whether the algorithm in p runs here; sets the workspace that it uses. */
static bool fits(cublasLtHandle_t handle, struct product *p, const struct ckpt_kernel_args *a)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    if (cublasLtMatmulAlgoCheck(handle, &p->task, &p->a, &p->b, &p->c, &p->c, &p->algo, &result) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    p->workspace = result.workspaceSize;
    return result.state == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= (size_t)a->workspace_bytes;
}

static bool take_pin(cublasLtHandle_t handle, struct product *p, const struct ckpt_kernel_args *a,
                     struct pins *pins)
{
    const char *choice = pins_get(pins, p->key);
    if (!choice)
        return false;
    if (read_choice(choice, &p->algo) && fits(handle, p, a))
        return true;
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

/* Fills found with the proposals that can run, best guess first; returns their number. */
static int propose(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                   const struct ckpt_kernel_args *a, cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreferenceOpaque_t limits;
    int n = 0, kept = 0;
    if (set_limits(&limits, g, a) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoGetHeuristic(handle, &p->task, &p->a, &p->b, &p->c, &p->c, &limits,
                                       CANDIDATES, found, &n) != CUBLAS_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS &&
            found[i].workspaceSize <= (size_t)a->workspace_bytes)
            found[kept++] = found[i];
    return kept;
}

static void take(struct product *p, const cublasLtMatmulHeuristicResult_t *proposal)
{
    p->algo = proposal->algo;
    p->workspace = proposal->workspaceSize;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct watch {
    cudaEvent_t begin, end;
};

/* Milliseconds of RUNS launches, or infinity if one was refused. */
static float time_runs(struct watch *w, cublasLtHandle_t handle, struct product *p,
                       const struct gemm *g, const struct ckpt_kernel_args *a)
{
    float ms = INFINITY;
    bool ok = cudaEventRecord(w->begin, (cudaStream_t)a->stream) == cudaSuccess;
    for (int i = 0; i < RUNS && ok; i++)
        ok = gemm_launch(handle, p, g, a) == CUBLAS_STATUS_SUCCESS;
    ok = ok && cudaEventRecord(w->end, (cudaStream_t)a->stream) == cudaSuccess &&
         cudaEventSynchronize(w->end) == cudaSuccess;
    if (!ok || cudaEventElapsedTime(&ms, w->begin, w->end) != cudaSuccess)
        return INFINITY;
    return ms;
}

/* The proposal with the smallest of its times; the first one if none could be timed.  The first
 * round only warms up. */
static int fastest(struct watch *w, cublasLtHandle_t handle, struct product *p,
                   const struct gemm *g, const struct ckpt_kernel_args *a,
                   const cublasLtMatmulHeuristicResult_t *found, int n)
{
    float best[CANDIDATES];
    int at = 0;
    for (int round = 0; round <= ROUNDS; round++) {
        for (int i = 0; i < n; i++) {
            take(p, &found[i]);
            float ms = time_runs(w, handle, p, g, a);
            best[i] = round <= 1 || ms < best[i] ? ms : best[i];
        }
    }
    for (int i = 1; i < n; i++)
        if (best[i] < best[at])
            at = i;
    return at;
}

static int measure(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                   const struct ckpt_kernel_args *a, const cublasLtMatmulHeuristicResult_t *found,
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
                 const struct ckpt_kernel_args *a)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    struct cuda_libs *libs = a->device;
    struct pins *pins = cuda_libs_pins(libs);
    char choice[PIN_TEXT];
    if (take_pin(handle, p, a, pins))
        return true;
    int n = propose(handle, p, g, a, found);
    if (!n)
        return false;
    take(p, &found[may_measure(libs, a) ? measure(handle, p, g, a, found, n) : 0]);
    write_choice(choice, sizeof choice, &p->algo);
    pins_set(pins, p->key, choice); /* without memory for it the choice is only not written down */
    return true;
}
