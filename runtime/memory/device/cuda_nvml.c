/* SPDX-License-Identifier: Apache-2.0 */
/* NVML without its header: see cuda_nvml.h. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "memory/device/cuda_nvml.h"

/* The layout of NVML's nvmlProcessInfo_v2_t. */
struct process_info {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

/* The layout of nvmlPciInfo_t. */
struct pci_info {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
    char bus_id[32];
};

enum { PROCESSES = 512, MAX_LINKS = 18, P2P_NVLINK = 2, P2P_OK = 0 };

struct cuda_nvml {
    void *library;
    void *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_bus_id)(const char *, void **);
    int (*processes)(void *, unsigned int *, struct process_info *);
    /* NULL if the driver is too old for them. */
    int (*link_state)(void *, unsigned int, unsigned int *);
    int (*link_end)(void *, unsigned int, struct pci_info *);
    int (*p2p)(void *, void *, int, int *);
    int (*ancestor)(void *, void *, int *);
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
    *(void **)&n->link_state = dlsym(n->library, "nvmlDeviceGetNvLinkState");
    *(void **)&n->link_end = dlsym(n->library, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    *(void **)&n->p2p = dlsym(n->library, "nvmlDeviceGetP2PStatus");
    *(void **)&n->ancestor = dlsym(n->library, "nvmlDeviceGetTopologyCommonAncestor");
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

/* Active links: those to this device, or all if none ends there, as with a switch between. */
static int count_links(struct cuda_nvml *n, const char *bus_id)
{
    int up = 0, direct = 0;
    for (unsigned int i = 0; i < MAX_LINKS; i++) {
        unsigned int active = 0;
        struct pci_info end = {.bus_id = ""};
        if (n->link_state(n->device, i, &active) != 0 || !active)
            continue;
        up++;
        /* NVML writes "00000000:18:00.0", bus_id is "0000:18:00.0". */
        const char *id = end.bus_id;
        if (n->link_end && n->link_end(n->device, i, &end) == 0 && strlen(id) > strlen(bus_id))
            direct += !strcasecmp(id + strlen(id) - strlen(bus_id), bus_id);
    }
    return direct ? direct : up;
}

void cuda_nvml_route(struct cuda_nvml *n, const char *bus_id, char text[DEVICE_ROUTE])
{
    static const struct {
        int level; /* the largest nvmlGpuTopologyLevel_t with this name */
        const char *name;
    } levels[] = {{20, "PCIe switch"}, {30, "PCIe"}, {40, "PCIe in a node"}, {50, "across nodes"}};
    void *other;
    int status = -1, level = 0;
    *text = '\0';
    if (!n || n->by_bus_id(bus_id, &other) != 0)
        return;
    if (n->p2p && n->link_state && n->p2p(n->device, other, P2P_NVLINK, &status) == 0 &&
        status == P2P_OK) {
        snprintf(text, DEVICE_ROUTE, "NVLink x%d", count_links(n, bus_id));
        return;
    }
    if (!n->ancestor || n->ancestor(n->device, other, &level) != 0)
        return;
    for (size_t i = 0; i < sizeof levels / sizeof *levels && !*text; i++)
        if (level <= levels[i].level)
            snprintf(text, DEVICE_ROUTE, "%s", levels[i].name);
}
