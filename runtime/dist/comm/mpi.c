/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI ranks.  Open MPI and MPICH have different binary interfaces, and a program on one machine
 * should need neither.  So a plugin (mpi_plugin.c) calls MPI; it is loaded when ranks are opened
 * and links to the MPI library it was built with.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include "dist/comm/linked.h"

#define PLUGIN "ckpt_mpi.so"

/* CKPT_PLUGIN_DIR in the environment overrides the installed location. */
static void *load(char *path, size_t size)
{
    const char *dir = getenv("CKPT_PLUGIN_DIR");
    snprintf(path, size, "%s/" PLUGIN, dir && *dir ? dir : CKPT_PLUGIN_DIR);
    /* MPI libraries load components that look up symbols of the library. */
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

int comm_open_mpi(struct comm **c, double deadline)
{
    char path[1024], reason[256] = "";
    void *plugin = load(path, sizeof path);
    if (!plugin)
        return error_set(CKPT_ECOMM,
                         "no ranks over MPI: %s (configure --with-mpi builds it; where libckpt "
                         "was moved CKPT_PLUGIN_DIR names LIBDIR/libckpt)",
                         dlerror());
    __typeof__(ckpt_link_mpi) *open;
    *(void **)&open = dlsym(plugin, LINK_MPI_SYMBOL);
    if (!open)
        return error_set(CKPT_ECOMM, "no ranks over MPI: %s is no plugin of libckpt", path);
    /* It stays loaded: MPI cannot start twice in a process. */
    struct link *link = open(LINK_ABI, reason, sizeof reason);
    if (!link)
        return error_set(CKPT_ECOMM, "no ranks over MPI: %s", reason);
    return comm_open_linked(c, "mpi", link, deadline);
}
