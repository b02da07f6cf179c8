/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel: expr.  The program's own kernels where NVRTC is there: compiled, or read from disk, and
 * loaded before the first step, those of a tape together or each when the op first runs; kept with
 * the other calls of the device.  Else the kernel that interprets programs.
 */
#include <cuda.h>
#include <stdlib.h>
#include "kernels/cuda/expr_args.cuh"
#include "kernels/cuda/kernel_cache.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/largest.cuh"
#include "kernels/cuda/libs.h"
#include "kernels/cuda/nvrtc.h"
#include "core/thread_team.h"

namespace
{

enum { THREADS = 256 }; /* as expr_source.c writes it */

/* Calls of the driver: the runtime has them only in its latest versions. */
struct driver {
    decltype(&cuModuleLoadData) load;
    decltype(&cuModuleUnload) unload;
    decltype(&cuModuleGetFunction) function;
    decltype(&cuLaunchKernel) launch;
};

/* The kernels of one program and its dtypes; no module: it is interpreted. */
struct kernels {
    struct driver driver;
    CUmodule module;
    CUfunction vector, single;
};

bool find_driver(struct driver *d)
{
    const struct {
        const char *name;
        void **call;
    } calls[] = {{"cuModuleLoadData", (void **)&d->load},
                 {"cuModuleUnload", (void **)&d->unload},
                 {"cuModuleGetFunction", (void **)&d->function},
                 {"cuLaunchKernel", (void **)&d->launch}};
    for (const auto &c : calls) {
        cudaDriverEntryPointQueryResult found;
        if (cudaGetDriverEntryPointByVersion(c.name, c.call, 12000, cudaEnableDefault, &found) !=
                cudaSuccess ||
            found != cudaDriverEntryPointSuccess)
            return false;
    }
    return true;
}

bool load_image(struct kernels *k, const char *image)
{
    if (k->driver.load(&k->module, image) != CUDA_SUCCESS) {
        k->module = NULL;
        return false;
    }
    if (k->driver.function(&k->vector, k->module, "expr_vector_kernel") == CUDA_SUCCESS &&
        k->driver.function(&k->single, k->module, "expr_single_kernel") == CUDA_SUCCESS)
        return true;
    k->driver.unload(k->module);
    k->module = NULL;
    return false;
}

int device_architecture(void)
{
    return 10 * device_attribute(cudaDevAttrComputeCapabilityMajor) +
           device_attribute(cudaDevAttrComputeCapabilityMinor);
}

/* A program to compile. */
struct unit {
    uint64_t key; /* of the call */
    char *source;
    struct kernel_key name; /* of the image on disk */
    char *image;            /* NULL: there is none */
    size_t bytes;
    bool compiled; /* not read from disk */
};

/* The image from disk, if it is there and wanted from there, else by NVRTC. */
void make_image(struct unit *u, int arch, bool from_disk)
{
    char reason[256];
    u->name = kernel_key_of(u->source, nvrtc_options(), arch, nvrtc_version());
    if (from_disk && kernel_cache_read(&u->name, &u->image, &u->bytes))
        return;
    u->compiled = !nvrtc_compile(u->source, arch, &u->image, &u->bytes, reason, sizeof reason);
    if (!u->compiled)
        u->image = NULL;
}

/* Loads the image and frees it; one that was compiled goes onto disk. */
bool take_image(struct kernels *k, struct unit *u)
{
    const bool loaded = u->image && load_image(k, u->image);
    if (loaded && u->compiled)
        kernel_cache_write(&u->name, u->image, u->bytes);
    free(u->image);
    u->image = NULL;
    return loaded;
}

/* What came from disk and does not load is compiled. */
void compile(struct kernels *k, char *source)
{
    struct unit u = {0, source, {}, NULL, 0, false};
    bool loaded = false;
    for (bool from_disk = true; !loaded && !u.compiled; from_disk = false) {
        make_image(&u, device_architecture(), from_disk);
        if (!u.image)
            return;
        loaded = take_image(k, &u);
    }
}

void release(void *call)
{
    struct kernels *k = static_cast<struct kernels *>(call);
    if (k->module)
        k->driver.unload(k->module);
    free(k);
}

/* NULL without memory. */
struct kernels *make_kernels(const struct expr *e, const enum ckpt_dtype *dtype)
{
    struct kernels *k = static_cast<struct kernels *>(calloc(1, sizeof *k));
    if (!k || !nvrtc_version() || !find_driver(&k->driver))
        return k;
    char *source = expr_source(e, dtype);
    if (source)
        compile(k, source);
    free(source);
    return k;
}

uint64_t key_of(const struct expr *e, const enum ckpt_dtype *dtype)
{
    uint64_t key = expr_hash(e);
    for (int k = 0; k <= e->n_in; k++)
        key = hash_mix(key, dtype[k]);
    return key;
}

struct kernels *find_kernels(const struct ckpt_kernel_args *a, const enum ckpt_dtype *dtype)
{
    const struct expr *e = static_cast<const struct expr *>(a->attr);
    struct cuda_libs *libs = static_cast<struct cuda_libs *>(a->device);
    uint64_t key = key_of(e, dtype);
    struct kernels *found = static_cast<struct kernels *>(cuda_libs_find(libs, key));
    if (found)
        return found;
    found = make_kernels(e, dtype);
    return found && !cuda_libs_keep(libs, key, found, release) ? found : NULL;
}

/* ---- many at once -------------------------------------------------------------------------- */

struct units {
    struct unit *data;
    int64_t n, next;
    int arch;
};

/* Takes one unit after the other: some take four times as long as others. */
void make_images(void *user, int64_t from, int64_t end)
{
    struct units *all = static_cast<struct units *>(user);
    (void)from, (void)end; /* a share is a thread */
    for (int64_t i; (i = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED)) < all->n;)
        make_image(&all->data[i], all->arch, true);
}

/* The programs that no call was prepared for, each once. */
void list_units(const struct cuda_libs *libs, const struct expr_call *calls, int64_t n,
                struct units *all)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = key_of(calls[i].program, calls[i].dtype);
        bool known = cuda_libs_find(libs, key) != NULL;
        for (int64_t k = 0; k < all->n && !known; k++)
            known = all->data[k].key == key;
        char *source = known ? NULL : expr_source(calls[i].program, calls[i].dtype);
        if (source)
            all->data[all->n++] = {key, source, {}, NULL, 0, false};
    }
}

/* What does not load is left to the op's first run. */
void keep_unit(struct cuda_libs *libs, struct unit *u)
{
    struct kernels *k = static_cast<struct kernels *>(calloc(1, sizeof *k));
    if (k && find_driver(&k->driver) && take_image(k, u))
        cuda_libs_keep(libs, u->key, k, release);
    else
        free(k);
}

/* Whether positions may be vectors of `elements`; *spread: operands that stand still there. */
bool takes_vectors(const struct ckpt_kernel_args *a, const struct loops *l, int64_t elements,
                   unsigned *spread)
{
    const struct expr *e = static_cast<const struct expr *>(a->attr);
    *spread = 0;
    if (e->reduced && (expr_row_positions(e, 1) % elements || l->shape[l->ndim - 1] % elements))
        return false;
    for (int k = 0; k < expr_views(a); k++) {
        const struct ckpt_view *v = expr_view(a, k);
        int64_t size = ckpt_dtype_size(v->desc.dtype);
        if (!k && e->per_row)
            continue; /* no vectors of it are written */
        if (k && k <= a->n_in && l->stride[k][l->ndim - 1] == 0 &&
            l->shape[l->ndim - 1] % elements == 0)
            *spread |= 1u << k;
        else if (!walk_runs(l, k, v->data, size, elements))
            return false;
    }
    return true;
}

/* Whether every vector's random values begin with the first word of a draw. */
bool draws_whole(const struct ckpt_kernel_args *a, const struct loops *l)
{
    const struct ckpt_desc walk =
        expr_walk(static_cast<const struct expr *>(a->attr), &a->out[0].desc);
    if (a->run->micro * desc_numel(&walk) % 4)
        return false;
    for (int k = expr_views(a); k < l->n; k++) {
        if (l->stride[k][l->ndim - 1] != 1)
            return false;
        for (int i = 0; i + 1 < l->ndim; i++)
            if (l->stride[k][i] % 4)
                return false;
    }
    return true;
}

int launch(const struct ckpt_kernel_args *args, const struct kernels *k,
           const enum ckpt_dtype *dtype)
{
    const struct expr *e = static_cast<const struct expr *>(args->attr);
    struct loops l;
    unsigned spread = 0;
    int elements = expr_vector_elements(e, dtype), rc = 0;
    unsigned *largest = e->largest ? largest_begin(args) : NULL;
    expr_loops(args, &l);
    bool vectors = takes_vectors(args, &l, elements, &spread);
    expr_each_part(args, vectors ? elements : 1, [&](const struct expr_args &part) {
        struct expr_args a = part;
        void *arguments[] = {&a};
        int leaf = 0;
        a.largest = largest;
        a.spread = vectors ? spread : 0;
        a.aligned = vectors && draws_whole(args, &l);
        for (int i = 0; i < e->n_nodes; i++)
            if (e->node[i].code == EXPR_INDEX || e->node[i].code == EXPR_UNIFORM)
                a.stream[leaf++] = e->node[i].stream;
        unsigned blocks =
            a.length ? a.count / a.length : blocks_of(a.count, expr_unroll(e) * THREADS);
        unsigned threads = a.length ? expr_row_threads(a.length) : THREADS;
        if (blocks && k->driver.launch(vectors ? k->vector : k->single, blocks, 1, 1, threads, 1, 1,
                                       0, (CUstream)args->stream, arguments, NULL) != CUDA_SUCCESS)
            rc = CKPT_EDEVICE;
    });
    return rc;
}

} // namespace

void expr_loops(const struct ckpt_kernel_args *a, struct loops *l)
{
    const struct expr *e = static_cast<const struct expr *>(a->attr);
    struct ckpt_desc leaf[LOOPS_OPERANDS];
    const struct ckpt_desc walk = expr_walk(e, &a->out[0].desc);
    const struct ckpt_desc *desc[LOOPS_OPERANDS] = {&walk};
    int n = expr_views(a);
    for (int k = 1; k < n; k++)
        desc[k] = &expr_view(a, k)->desc;
    for (int i = 0; i < e->n_nodes && n < LOOPS_OPERANDS; i++) {
        const struct expr_node *node = &e->node[i];
        if (node->code != EXPR_INDEX && node->code != EXPR_UNIFORM)
            continue;
        leaf[n] = walk;
        desc_dense(&leaf[n]);
        for (int axis = 0; axis < leaf[n].ndim && node->code == EXPR_INDEX; axis++)
            leaf[n].stride[axis] = axis == node->arg[0];
        desc[n] = &leaf[n];
        n++;
    }
    loops_init(l, n, desc);
}

void cuda_expr_compile(struct cuda_libs *libs, const struct expr_call *calls, int64_t n)
{
    struct units all = {NULL, 0, 0, device_architecture()};
    if (!n || !nvrtc_version())
        return;
    all.data = static_cast<struct unit *>(calloc((size_t)n, sizeof *all.data));
    if (!all.data) /* each op does without */
        return;
    list_units(libs, calls, n, &all);
    int threads = thread_team_size(0, all.n, 1);
    thread_team_run(threads, threads, 1, make_images, &all);
    for (int64_t i = 0; i < all.n; i++) {
        keep_unit(libs, &all.data[i]);
        free(all.data[i].source);
        free(all.data[i].image);
    }
    free(all.data);
}

int cuda_expr(const struct ckpt_kernel_args *a)
{
    enum ckpt_dtype dtype[EXPR_INPUTS + 1];
    dtype[0] = a->out[0].desc.dtype;
    for (int k = 0; k < a->n_in; k++)
        dtype[k + 1] = a->in[k].desc.dtype;
    const struct kernels *k = find_kernels(a, dtype);
    if (!k)
        return CKPT_ENOMEM;
    return k->module ? launch(a, k, dtype) : expr_interpret(a);
}
