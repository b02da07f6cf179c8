/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles a described graph to a plan that runs. cuDNN's heuristics offer engine configurations,
 * best first; the first that is within the limits and compiles is used.  A graph that must compute
 * like others (recipe->like) uses the configuration that the others share, which is selected once
 * for all such graphs: a family.
 */
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "kernels/cuda/cudnn_descriptor.h"

enum { CONFIGS = 32, NOTES = 16, KNOBS = CUDNN_KNOB_TYPE_COUNTS };

struct cudnn_plan {
    struct descriptors d; /* of the compiled plan; or the reason why the graph was refused */
    struct descriptors
        configs; /* the configurations of the last query, among them the compiled one */
    cudnnBackendDescriptor_t compiled;
    int64_t workspace;
};

struct cudnn_family {
    struct cudnn_graph g[CUDNN_LIKE]; /* the others */
    struct cudnn_plan trial; /* of the last of them that was tried; has the configurations */
    cudnnBackendDescriptor_t config; /* NULL: they share none, for the reason of the trial */
};

/* Copies the failure of d, a part from which the plan is made, to the plan. */
static void copy_failure(struct cudnn_plan *plan, const struct descriptors *d)
{
    plan->d.rc = d->rc;
    plan->d.broken = d->broken;
    memcpy(plan->d.reason, d->reason, sizeof plan->d.reason);
}

/* A graph to compile, and the device to compile it for. */
struct request {
    cudnnBackendDescriptor_t graph;
    cudnnBackendDescriptor_t device; /* a described device, */
    cudnnHandle_t handle;            /* or the current one */
    const struct cudnn_limits *limits;
};

/* Later versions of cuDNN deprecate the handle attribute but accept it; earlier ones require it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static const cudnnBackendAttributeName_t graph_handle = CUDNN_ATTR_OPERATIONGRAPH_HANDLE;
static const cudnnBackendAttributeName_t plan_handle = CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
#pragma GCC diagnostic pop

static void set_handle(const struct request *r, struct descriptors *d, cudnnBackendDescriptor_t x,
                       cudnnBackendAttributeName_t name)
{
    if (r->handle)
        descriptor_set(d, x, name, CUDNN_TYPE_HANDLE, 1, &r->handle);
}

static void set_device(const struct request *r, struct descriptors *d, cudnnBackendDescriptor_t x,
                       cudnnBackendAttributeName_t name)
{
    if (r->device)
        descriptor_set(d, x, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &r->device);
}

/* ---- selecting a configuration --------------------------------------------------------------- */

static bool read_attribute(cudnnBackendDescriptor_t x, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values)
{
    return cudnnBackendGetAttribute(x, name, type, room, n, values) == CUDNN_STATUS_SUCCESS;
}

/* Fills configs with those that one mode of the heuristics offers; returns their number. */
static int64_t query_heuristics(const struct request *r, struct descriptors *d,
                                cudnnBackendHeurMode_t mode,
                                cudnnBackendDescriptor_t config[CONFIGS])
{
    int64_t n = 0, got = 0;
    cudnnBackendDescriptor_t h = descriptor_make(d, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    descriptor_set(d, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                   &r->graph);
    descriptor_set(d, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_device(r, d, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    descriptor_finish(d, h, "heuristics");
    if (d->rc || !read_attribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                 &n, NULL))
        return 0;
    n = min_i64(n, CONFIGS);
    for (int64_t i = 0; i < n; i++)
        config[i] = descriptor_make(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (d->rc || !read_attribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                                 &got, config))
        return 0;
    return min_i64(n, got);
}

/* Does the note mean that fp32 operands are rounded, or that large intermediate values cancel? */
static bool reduces_precision(cudnnBackendNumericalNote_t note)
{
    static const cudnnBackendNumericalNote_t notes[] = {
        CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
        CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (note == notes[i])
            return true;
    return false;
}

/* Refuses a configuration whose engine does not meet the limits on determinism and precision. */
static void check_notes(const struct cudnn_limits *limits, struct descriptors *d,
                        cudnnBackendDescriptor_t config)
{
    cudnnBackendNumericalNote_t note[NOTES];
    int64_t n = 0;
    cudnnBackendDescriptor_t engine = descriptor_make(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (d->rc)
        return;
    if (!read_attribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                        &engine) ||
        !read_attribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES,
                        &n, note))
        descriptors_refuse(d, "an engine has no numerical notes");
    for (int64_t i = 0; i < min_i64(n, NOTES); i++)
        if ((limits->deterministic && note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ||
            (limits->exact && reduces_precision(note[i])))
            descriptors_refuse(d, "no engine meets the limits on determinism and precision");
}

static void limit_workspace(const struct request *r, struct cudnn_plan *plan,
                            cudnnBackendDescriptor_t x, cudnnBackendAttributeName_t name)
{
    int64_t n = 0;
    if (plan->d.rc)
        return;
    if (!read_attribute(x, name, CUDNN_TYPE_INT64, 1, &n, &plan->workspace) ||
        plan->workspace > r->limits->workspace) {
        descriptors_refuse(&plan->d, "no engine fits in the workspace");
        plan->workspace = 0;
    }
}

/* The engine of a configuration, found by its global index, for the graph of r. */
static cudnnBackendDescriptor_t engine_for_graph(const struct request *r, struct descriptors *d,
                                                 cudnnBackendDescriptor_t config)
{
    int64_t n = 0, index = 0;
    cudnnBackendDescriptor_t from = descriptor_make(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t to = descriptor_make(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (d->rc)
        return NULL;
    if (!read_attribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                        &from) ||
        !read_attribute(from, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &index))
        descriptors_refuse(d, "an engine has no index");
    descriptor_set(d, to, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                   &r->graph);
    descriptor_set(d, to, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
    set_device(r, d, to, CUDNN_ATTR_ENGINE_DEVICEPROP);
    descriptor_finish(d, to, "engine");
    return to;
}

/* A configuration of another graph, with all its settings, for the graph of r. */
static cudnnBackendDescriptor_t config_for_graph(const struct request *r, struct descriptors *d,
                                                 cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t knob[KNOBS];
    int64_t n = 0;
    cudnnBackendDescriptor_t engine = engine_for_graph(r, d, config);
    for (int i = 0; i < KNOBS; i++)
        knob[i] = descriptor_make(d, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    cudnnBackendDescriptor_t x = descriptor_make(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!d->rc && !read_attribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS, &n, knob))
        descriptors_refuse(d, "an engine has no settings");
    descriptor_set(d, x, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    if (n)
        descriptor_set(d, x, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       min_i64(n, KNOBS), knob);
    descriptor_finish(d, x, "configuration");
    return x;
}

/* Compiles a configuration if it is within the limits; else records the reason. other_graph: it was
 * offered for another graph. */
static void compile(const struct request *r, cudnnBackendDescriptor_t config, bool other_graph,
                    struct cudnn_plan *plan)
{
    struct descriptors *d = &plan->d;
    descriptors_free(d);
    if (other_graph)
        config = config_for_graph(r, d, config);
    check_notes(r->limits, d, config);
    limit_workspace(r, plan, config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
    cudnnBackendDescriptor_t x = descriptor_make(d, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_handle(r, d, x, plan_handle);
    descriptor_set(d, x, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                   &config);
    set_device(r, d, x, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    descriptor_finish(d, x, "plan");
    limit_workspace(r, plan, x, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    plan->compiled = d->rc ? NULL : x;
}

/* May the next configuration be tried? */
static bool may_try_next(const struct cudnn_plan *plan)
{
    return !plan->compiled && !plan->d.broken && plan->d.rc != CKPT_ENOMEM;
}

/* Compiles the first configuration of a heuristics mode that works for all of n graphs; it is
 * offered for the first of them.  Returns it, or NULL. */
static cudnnBackendDescriptor_t select_from(const struct request *r, int n,
                                            cudnnBackendHeurMode_t mode, struct cudnn_plan *plan)
{
    struct descriptors *d = &plan->configs;
    cudnnBackendDescriptor_t config[CONFIGS];
    descriptors_free(d);
    int64_t offered = query_heuristics(&r[0], d, mode, config), i = 0;
    for (; i < offered && may_try_next(plan); i++) {
        compile(&r[0], config[i], false, plan);
        for (int k = 1; k < n && plan->compiled; k++)
            compile(&r[k], config[i], true, plan);
    }
    if (d->rc && !plan->d.rc)
        copy_failure(plan, d);
    else if (offered == 0)
        descriptors_refuse(&plan->d, "no engine is offered");
    return i && !may_try_next(plan) ? config[i - 1] : NULL;
}

static cudnnBackendDescriptor_t select_config(const struct request *r, int n,
                                              struct cudnn_plan *plan)
{
    cudnnBackendDescriptor_t config = select_from(r, n, CUDNN_HEUR_MODE_A, plan);
    return may_try_next(plan) ? select_from(r, n, CUDNN_HEUR_MODE_FALLBACK, plan) : config;
}

static cudnnBackendDescriptor_t describe_device(struct descriptors *d, const char *json)
{
    if (!json)
        return NULL;
    cudnnBackendDescriptor_t x = descriptor_make(d, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    descriptor_set(d, x, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                   (int64_t)strlen(json) + 1, json);
    descriptor_finish(d, x, "device");
    return x;
}

/* Makes a request from a recipe; g receives the description of its graph. */
static struct request request_of(struct cudnn_graph *g, const struct cudnn_recipe *recipe,
                                 void *handle, const char *device)
{
    struct request r = {.handle = handle, .limits = &recipe->limits};
    recipe->describe(g, recipe->spec);
    r.device = describe_device(&g->d, device);
    r.graph = descriptor_make(&g->d, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    descriptor_set(&g->d, r.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   g->n_operations, g->operation);
    set_handle(&r, &g->d, r.graph, graph_handle);
    descriptor_finish(&g->d, r.graph, "graph");
    return r;
}

struct cudnn_family *cudnn_family_make(const struct cudnn_recipe *recipe, void *handle,
                                       const char *device)
{
    struct cudnn_family *f = calloc(1, sizeof *f);
    struct request r[CUDNN_LIKE];
    if (!f)
        return NULL;
    for (int i = 0; i < recipe->n_like; i++) {
        r[i] = request_of(&f->g[i], &recipe->like[i], handle, device);
        if (f->g[i].d.rc && !f->trial.d.rc)
            copy_failure(&f->trial, &f->g[i].d);
    }
    if (!f->trial.d.rc)
        f->config = select_config(r, recipe->n_like, &f->trial);
    if (f->trial.d.rc == CKPT_ENOMEM) {
        cudnn_family_free(f);
        return NULL;
    }
    if (f->config)
        descriptors_free(&f->trial.d);
    return f;
}

void cudnn_family_free(void *call)
{
    struct cudnn_family *f = call;
    if (!f)
        return;
    descriptors_free(&f->trial.d);
    descriptors_free(&f->trial.configs);
    for (int i = 0; i < CUDNN_LIKE; i++)
        descriptors_free(&f->g[i].d);
    free(f);
}

/* Whether the configuration of a family compiles for a graph does not count when it is selected,
 * since then the choice would depend on sizes. */
static void make(struct cudnn_graph *g, const struct cudnn_recipe *recipe, void *handle,
                 const char *device, const struct cudnn_family *family, struct cudnn_plan *plan)
{
    struct request r = request_of(g, recipe, handle, device);
    if (g->d.rc)
        copy_failure(plan, &g->d);
    else if (!family)
        select_config(&r, 1, plan);
    else if (family->config)
        compile(&r, family->config, true, plan);
    else
        copy_failure(plan, &family->trial.d);
}

struct cudnn_plan *cudnn_plan_make(const struct cudnn_recipe *recipe, void *handle,
                                   const char *device, const struct cudnn_family *family)
{
    struct cudnn_plan *plan = calloc(1, sizeof *plan);
    struct cudnn_graph *g = calloc(1, sizeof *g);
    if (plan && g) {
        make(g, recipe, handle, device, family, plan);
        descriptors_free(&g->d);
    }
    if (!plan || !g || plan->d.rc == CKPT_ENOMEM) {
        cudnn_plan_free(plan);
        plan = NULL;
    }
    free(g);
    return plan;
}

void cudnn_plan_free(void *call)
{
    struct cudnn_plan *plan = call;
    if (!plan)
        return;
    descriptors_free(&plan->d);
    descriptors_free(&plan->configs);
    free(plan);
}

bool cudnn_plan_accepted(const struct cudnn_plan *plan)
{
    return plan->compiled != NULL;
}

bool cudnn_plan_broken(const struct cudnn_plan *plan)
{
    return plan->d.broken;
}

int64_t cudnn_plan_workspace(const struct cudnn_plan *plan)
{
    return plan->workspace;
}

const char *cudnn_plan_reason(const struct cudnn_plan *plan)
{
    return plan->compiled ? "" : plan->d.reason;
}

/* ---- caching and running --------------------------------------------------------------------- */

static uint64_t key_of(const struct cudnn_recipe *recipe)
{
    const unsigned char *spec = recipe->spec;
    uint64_t h = hash_mix(HASH_START, (int64_t)(intptr_t)recipe->describe);
    h = hash_mix(h, recipe->limits.workspace);
    h = hash_mix(h, recipe->limits.deterministic);
    h = hash_mix(h, recipe->limits.exact);
    for (size_t i = 0; i < recipe->spec_size; i++)
        h = hash_mix(h, spec[i]);
    return h;
}

/* The family of a recipe, made for its first graph; NULL if it has none.  Returns 0 or
 * CKPT_ENOMEM. */
static int get_family(struct cuda_libs *libs, void *handle, const struct cudnn_recipe *recipe,
                      const struct cudnn_family **family)
{
    uint64_t key = HASH_START;
    *family = NULL;
    if (!recipe->n_like)
        return CKPT_OK;
    for (int i = 0; i < recipe->n_like; i++)
        key = hash_mix(key, (int64_t)key_of(&recipe->like[i]));
    struct cudnn_family *found = cuda_libs_find(libs, key);
    *family = found;
    if (found)
        return CKPT_OK;
    *family = found = cudnn_family_make(recipe, handle, NULL);
    return found ? cuda_libs_keep(libs, key, found, cudnn_family_free) : CKPT_ENOMEM;
}

int cudnn_plan_get(struct cuda_libs *libs, void *stream, const struct cudnn_recipe *recipe,
                   const struct cudnn_plan **plan)
{
    const struct cudnn_family *family;
    const uint64_t key = key_of(recipe);
    struct cudnn_plan *found = cuda_libs_find(libs, key);
    *plan = found;
    if (found)
        return CKPT_OK;
    void *handle = cuda_libs_cudnn(libs, stream);
    if (!handle)
        return CKPT_EDEVICE;
    int rc = get_family(libs, handle, recipe, &family);
    found = rc ? NULL : cudnn_plan_make(recipe, handle, NULL, family);
    cudaGetLastError(); /* engines that failed to compile may leave a CUDA error behind */
    if (!found)
        return CKPT_ENOMEM;
    if (cudnn_plan_broken(found)) {
        rc = cuda_libs_fail(libs, "%s", cudnn_plan_reason(found));
        cudnn_plan_free(found);
        return rc;
    }
    *plan = found;
    return cuda_libs_keep(libs, key, found, cudnn_plan_free);
}

int cudnn_plan_run(struct cuda_libs *libs, void *stream, const struct cudnn_plan *plan, int n,
                   const int64_t *uids, void *const *pointers, void *workspace)
{
    void *handle = cuda_libs_cudnn(libs, stream);
    struct descriptors d = {.n = 0};
    if (!handle)
        return CKPT_EDEVICE;
    if (!plan->compiled)
        return cuda_libs_fail(libs, "%s", plan->d.reason);
    cudnnBackendDescriptor_t pack = descriptor_make(&d, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    descriptor_set(&d, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids);
    descriptor_set(&d, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
                   pointers);
    descriptor_set(&d, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    descriptor_finish(&d, pack, "pack");
    if (!d.rc)
        descriptor_check(&d, cudnnBackendExecute(handle, plan->compiled, pack), "execution");
    int rc = d.rc;
    if (rc == CKPT_EDEVICE)
        cuda_libs_fail(libs, "%s", d.reason);
    descriptors_free(&d);
    return rc;
}
