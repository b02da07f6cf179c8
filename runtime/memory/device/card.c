/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the machine has an NVIDIA card, with or without a driver.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "memory/device/device.h"

/* Does the file next to `path` with that name begin with this text? */
static bool next_begins(const char *path, const char *name, const char *text)
{
    char file[512], read[16] = "";
    snprintf(file, sizeof file, "%.*s/%s", (int)(strrchr(path, '/') - path), path, name);
    FILE *f = fopen(file, "r");
    if (!f)
        return false;
    bool same = fgets(read, sizeof read, f) && !strncmp(read, text, strlen(text));
    fclose(f);
    return same;
}

/* A display or compute controller (class 3) of NVIDIA (0x10de) on the bus; a container shows it
 * even if it has no device files. */
static bool on_bus(void)
{
    glob_t found;
    bool any = false;
    if (glob("/sys/bus/pci/devices/*/vendor", 0, NULL, &found))
        return false;
    for (size_t i = 0; i < found.gl_pathc && !any; i++)
        any = next_begins(found.gl_pathv[i], "vendor", "0x10de") &&
              next_begins(found.gl_pathv[i], "class", "0x03");
    globfree(&found);
    return any;
}

bool device_expected(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && !*visible)
        return false;
    return !access("/dev/nvidiactl", F_OK) || !access("/dev/dxg", F_OK) /* WSL2 */ || on_bus();
}
