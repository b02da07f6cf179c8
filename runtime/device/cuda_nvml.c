/* NVML by hand: see cuda_nvml.h. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#include "device/cuda_nvml.h"

/* As NVML's interface lays it out (nvmlProcessInfo_v2_t). */
struct process_info {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

enum { PROCESSES = 512 };

struct cuda_nvml {
    void *library;
    void *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_bus_id)(const char *, void **);
    int (*processes)(void *, unsigned int *, struct process_info *);
    struct process_info list[PROCESSES];
};

static bool load(struct cuda_nvml *n)
{
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return false;
    *(void **)&n->init = dlsym(n->library, "nvmlInit_v2");
    *(void **)&n->shutdown = dlsym(n->library, "nvmlShutdown");
    *(void **)&n->by_bus_id = dlsym(n->library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&n->processes = dlsym(n->library, "nvmlDeviceGetComputeRunningProcesses_v3");
    return n->init && n->shutdown && n->by_bus_id && n->processes && n->init() == 0;
}

struct cuda_nvml *cuda_nvml_open(const char *bus_id)
{
    struct cuda_nvml *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    if (load(n)) {
        if (n->by_bus_id(bus_id, &n->device) == 0)
            return n;
        n->shutdown();
    }
    if (n->library)
        dlclose(n->library);
    free(n);
    return NULL;
}

void cuda_nvml_close(struct cuda_nvml *n)
{
    if (!n)
        return;
    n->shutdown();
    dlclose(n->library);
    free(n);
}

int64_t cuda_nvml_process_bytes(struct cuda_nvml *n)
{
    unsigned int count = PROCESSES;
    if (!n || n->processes(n->device, &count, n->list) != 0)
        return -1;
    for (unsigned int i = 0; i < count; i++)
        if (n->list[i].pid == (unsigned int)getpid() && n->list[i].used < INT64_MAX)
            return (int64_t)n->list[i].used;
    return -1;
}
