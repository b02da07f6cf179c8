/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads OpenBLAS and limits it to one thread per call and no allocation during a step.
 *
 * It is loaded when the first CPU device opens, not linked.  A linked OpenBLAS starts a thread per
 * core before main(), and each maps a buffer; where mapping fails the thread retries forever, and
 * the process cannot even exit.  With OPENBLAS_NUM_THREADS=1 while loading, it starts no threads.
 *
 * A product works in a buffer from a pool that belongs to the process.  OpenBLAS maps a buffer when
 * none is free, and retries forever if it cannot.  Therefore this file takes and returns one buffer
 * per thread in advance, after a probe that mappings of this size are possible.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "core/base.h"
#include "blas.h"

/* Bytes of a buffer: 32 << 22 in OpenBLAS since 0.3.4 on x86-64, AArch64 and s390x.  Probe mappings
 * are SPARE larger, to leave address space for the rest of the process. */
#define BUFFER (INT64_C(128) << 20)
#define SPARE  (INT64_C(1) << 20)

/* The C interface of BLAS with integers of 32 bits, which needs no header: its package has 56 MB.
 */
enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };
typedef void sgemm_call(int order, int of_a, int of_b, int m, int n, int k, float alpha,
                        const float *a, int lda, const float *b, int ldb, float beta, float *c,
                        int ldc);

static struct {
    pthread_mutex_t lock;
    void *library;
    sgemm_call *sgemm;
    /* OpenBLAS's internal pool functions: in no header, but exported since GotoBLAS. */
    void *(*take)(int place);
    void (*give)(void *buffer);
    int64_t threads; /* maximum number of threads in products at once */
    int64_t pool;    /* buffers mapped so far: the most that were taken at once */
} blas = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int find_calls(void *library)
{
    void (*set_num_threads)(int);
    const char *(*get_config)(void);
    *(void **)&blas.sgemm = dlsym(library, "cblas_sgemm");
    *(void **)&blas.take = dlsym(library, "blas_memory_alloc");
    *(void **)&blas.give = dlsym(library, "blas_memory_free");
    *(void **)&set_num_threads = dlsym(library, "openblas_set_num_threads");
    *(void **)&get_config = dlsym(library, "openblas_get_config");
    if (!blas.sgemm || !blas.take || !blas.give || !set_num_threads)
        return error_set(CKPT_EDEVICE, "%s is not OpenBLAS: functions are missing", OPENBLAS_FILE);
    if (get_config && strstr(get_config(), "USE64BITINT"))
        return error_set(CKPT_EDEVICE, "%s has integers of 64 bits: install one with 32",
                         OPENBLAS_FILE);
    /* The library may have been loaded before, with a thread count of its own.  Our threads already
     * divide the work; further threads would compete for the same cores. */
    set_num_threads(1);
    return 0;
}

/* A variable of the environment that is set while the library is loaded. */
struct variable {
    const char *name; /* NULL: it could not be set, and is as before */
    char *before;     /* NULL: was not set */
};

static int variable_set(struct variable *v, const char *name, const char *value)
{
    const char *set = getenv(name);
    *v = (struct variable){name, set ? strdup(set) : NULL};
    if ((!set || v->before) && !setenv(name, value, 1))
        return 0;
    free(v->before);
    *v = (struct variable){NULL, NULL};
    return error_set(CKPT_ENOMEM, "no memory to load OpenBLAS");
}

static void variable_restore(struct variable *v)
{
    if (v->before)
        setenv(v->name, v->before, 1); /* cannot fail: the name exists */
    else if (v->name)
        unsetenv(v->name);
    free(v->before);
}

/* kernels: a name as OPENBLAS_CORETYPE takes it; NULL: those that OpenBLAS chooses. */
static int open_library(void **library, const char *kernels)
{
    struct variable threads, core;
    int rc = variable_set(&threads, "OPENBLAS_NUM_THREADS", "1");
    if (!rc && kernels) {
        rc = variable_set(&core, "OPENBLAS_CORETYPE", kernels);
        *library = rc ? NULL : dlopen(OPENBLAS_FILE, RTLD_NOW | RTLD_LOCAL);
        variable_restore(&core);
    } else if (!rc)
        *library = dlopen(OPENBLAS_FILE, RTLD_NOW | RTLD_LOCAL);
    variable_restore(&threads);
    return rc || *library ? rc : error_set(CKPT_EDEVICE, "cannot load OpenBLAS: %s", dlerror());
}

/* OpenBLAS uses its kernels for SSE3 on a processor that is newer than itself.  Returns those for
 * the newest instructions that this one has; NULL where OpenBLAS's own choice is as good, or the
 * user's. */
static const char *better_kernels(void *library)
{
#ifdef __x86_64__
    char *(*chosen)(void);
    *(void **)&chosen = dlsym(library, "openblas_get_corename");
    if (getenv("OPENBLAS_CORETYPE") || !chosen || strcmp(chosen(), "Prescott") != 0)
        return NULL;
    if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    (void)library;
    return NULL;
}

static int load(void)
{
    void *library = NULL;
    int rc = open_library(&library, NULL);
    const char *better = rc ? NULL : better_kernels(library);
    if (better) {
        dlclose(library);
        library = NULL;
        rc = open_library(&library, better);
    }
    if (!rc)
        rc = find_calls(library);
    if (!rc)
        blas.library = library;
    else if (library)
        dlclose(library);
    return rc;
}

/* Checks that n buffers can be mapped, and unmaps them. */
static int probe(void **buffers, int64_t n)
{
    int64_t had = 0;
    while (had < n) {
        void *p =
            mmap(NULL, BUFFER + SPARE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            break;
        buffers[had++] = p;
    }
    int why = errno;
    for (int64_t i = 0; i < had; i++)
        munmap(buffers[i], BUFFER + SPARE);
    if (had == n)
        return 0;
    return error_set(CKPT_ENOMEM,
                     "matrix products need %s of address space for each thread, and %lld of %lld "
                     "threads cannot get it: %s; lower --threads or raise ulimit -v",
                     human_bytes(BUFFER + SPARE), (long long)(n - had), (long long)n,
                     strerror(why));
}

/* Takes n buffers at once, because OpenBLAS would hand out a returned buffer again. */
static int fill_pool(int64_t n)
{
    void **buffers = calloc((size_t)n, sizeof *buffers);
    if (!buffers)
        return error_set(CKPT_ENOMEM, "no memory for the buffers of %lld threads", (long long)n);
    /* All buffers of the current threads may be in use. */
    int rc = probe(buffers, n - (blas.pool - blas.threads));
    int64_t had = 0;
    while (!rc && had < n && (buffers[had] = blas.take(0)))
        had++;
    for (int64_t i = 0; i < had; i++)
        blas.give(buffers[i]);
    free(buffers);
    blas.pool = max_i64(blas.pool, had);
    if (!rc && had < n)
        rc = error_set(CKPT_ENOMEM, "OpenBLAS supports only %lld threads: lower --threads",
                       (long long)had);
    return rc;
}

int blas_open(int threads)
{
    pthread_mutex_lock(&blas.lock);
    int64_t want = blas.threads + threads;
    int rc = blas.library ? 0 : load();
    if (!rc && want > blas.pool)
        rc = fill_pool(want);
    if (!rc)
        blas.threads = want;
    pthread_mutex_unlock(&blas.lock);
    return rc;
}

void blas_close(int threads)
{
    pthread_mutex_lock(&blas.lock);
    blas.threads -= threads;
    pthread_mutex_unlock(&blas.lock);
}

void blas_sgemm(int64_t m, int64_t n, int64_t k, float alpha, struct blas_matrix a,
                struct blas_matrix b, float beta, float *c, int64_t ldc)
{
    blas.sgemm(ROW_MAJOR, a.transposed ? TRANSPOSED : AS_IT_IS,
               b.transposed ? TRANSPOSED : AS_IT_IS, (int)m, (int)n, (int)k, alpha, a.data,
               (int)a.ld, b.data, (int)b.ld, beta, c, (int)ldc);
}
