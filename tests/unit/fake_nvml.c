/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML of a host with four GPUs, to test its callers without a GPU.  The first two, 18 and 2A, are
 * on a switch with 18 links each, two of them down; the other two, 3B and 5E, are joined by two
 * links, and 3B has two more to another GPU.
 */
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { OK = 0, NOT_FOUND = 6, NO_SUCH_LINK = 2, P2P_NVLINK = 2, DISABLED = 1 };

/* nvmlPciInfo_t. */
struct pci_info {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
    char bus_id[32];
};

static const struct gpu {
    const char *bus_id;
    int on_switch;
} gpus[] = {{"0000:18:00.0", 1}, {"0000:2A:00.0", 1}, {"0000:3B:00.0", 0}, {"0000:5E:00.0", 0}};

int nvmlInit_v2(void)
{
    return OK;
}

int nvmlShutdown(void)
{
    return OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, const struct gpu **device)
{
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (!strcasecmp(bus_id, gpus[i].bus_id)) {
            *device = &gpus[i];
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const struct gpu *d, unsigned int *count, void *list)
{
    (void)d;
    (void)list;
    *count = 0;
    return OK;
}

int nvmlDeviceGetNvLinkState(const struct gpu *d, unsigned int link, unsigned int *active)
{
    if (link >= (d->on_switch ? 18U : 4U))
        return NO_SUCH_LINK;
    *active = !d->on_switch || (link != 3 && link != 7);
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const struct gpu *d, unsigned int link,
                                        struct pci_info *end)
{
    const char *id = d->on_switch    ? "00000000:05:00.0"
                     : link >= 2     ? "00000000:86:00.0"
                     : d == &gpus[2] ? "00000000:5E:00.0"
                                     : "00000000:3B:00.0";
    memcpy(end->bus_id, id, strlen(id) + 1);
    return OK;
}

int nvmlDeviceGetP2PStatus(const struct gpu *a, const struct gpu *b, int index, int *status)
{
    *status = index == P2P_NVLINK && a->on_switch == b->on_switch ? OK : DISABLED;
    return OK;
}

/* One GPU of each pair is near one GPU of the other pair; the others are on other sockets. */
int nvmlDeviceGetTopologyCommonAncestor(const struct gpu *a, const struct gpu *b, int *level)
{
    int near = (a == &gpus[0] && b == &gpus[2]) || (a == &gpus[2] && b == &gpus[0]);
    *level = near ? 20 : 50;
    return OK;
}
