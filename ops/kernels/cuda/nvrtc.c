/* SPDX-License-Identifier: Apache-2.0 */
/* NVRTC by dlopen: see nvrtc.h.  The few functions used are the same in every version since
 * 11.1. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include "kernels/cuda/nvrtc.h"

/* No product is fused with a sum: a chain has the same bits as its ops executed one by one. */
#define STANDARD "--std=c++17"
#define NO_FUSED "--fmad=false"

struct nvrtc_program;

static struct {
    int (*version)(int *major, int *minor);
    int (*create)(struct nvrtc_program **p, const char *source, const char *name, int n_headers,
                  const char *const *headers, const char *const *names);
    int (*destroy)(struct nvrtc_program **p);
    int (*compile)(struct nvrtc_program *p, int n, const char *const *options);
    int (*image_size)(struct nvrtc_program *p, size_t *bytes);
    int (*image)(struct nvrtc_program *p, char *image);
    int (*log_size)(struct nvrtc_program *p, size_t *bytes);
    int (*log)(struct nvrtc_program *p, char *log);
    int number; /* version of the library; 0: not found */
} api;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const places[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                         "/usr/local/cuda/lib64/libnvrtc.so.13",
                                         "/usr/local/cuda/lib64/libnvrtc.so.12"};
    const struct {
        const char *name;
        void *member;
    } calls[] = {{"nvrtcVersion", &api.version},
                 {"nvrtcCreateProgram", &api.create},
                 {"nvrtcDestroyProgram", &api.destroy},
                 {"nvrtcCompileProgram", &api.compile},
                 {"nvrtcGetCUBINSize", &api.image_size},
                 {"nvrtcGetCUBIN", &api.image},
                 {"nvrtcGetProgramLogSize", &api.log_size},
                 {"nvrtcGetProgramLog", &api.log}};
    void *library = NULL;
    bool all = true;
    int major, minor;
    for (size_t i = 0; i < sizeof places / sizeof *places && !library; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof calls / sizeof *calls && library; i++) {
        *(void **)calls[i].member = dlsym(library, calls[i].name);
        all &= *(void **)calls[i].member != NULL;
    }
    if (library && all && !api.version(&major, &minor))
        api.number = 1000 * major + 10 * minor;
}

int nvrtc_version(void)
{
    pthread_once(&once, load);
    return api.number;
}

const char *nvrtc_options(void)
{
    return STANDARD " " NO_FUSED;
}

/* Copies the compiler's log, truncated to `size`. */
static void read_log(struct nvrtc_program *p, char *reason, size_t size)
{
    size_t bytes = 0;
    char *log = !api.log_size(p, &bytes) ? calloc(bytes + 1, 1) : NULL;
    if (log && !api.log(p, log))
        snprintf(reason, size, "%s", log);
    free(log);
}

static int read_image(struct nvrtc_program *p, char **image, size_t *bytes)
{
    if (api.image_size(p, bytes) || !*bytes)
        return CKPT_EDEVICE;
    *image = malloc(*bytes);
    if (!*image)
        return CKPT_ENOMEM;
    if (!api.image(p, *image))
        return 0;
    free(*image);
    return CKPT_EDEVICE;
}

int nvrtc_compile(const char *source, int arch, char **image, size_t *bytes, char *reason,
                  size_t size)
{
    struct nvrtc_program *p = NULL;
    char architecture[40];
    const char *const options[] = {STANDARD, NO_FUSED, architecture};
    snprintf(reason, size, "NVRTC is not installed");
    if (!nvrtc_version())
        return CKPT_EDEVICE;
    snprintf(reason, size, "NVRTC failed without a message");
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d", arch);
    if (api.create(&p, source, "expression.cu", 0, NULL, NULL))
        return CKPT_EDEVICE;
    int rc = api.compile(p, 3, options) ? CKPT_EDEVICE : read_image(p, image, bytes);
    if (rc)
        read_log(p, reason, size);
    api.destroy(&p);
    return rc;
}
