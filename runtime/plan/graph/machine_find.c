/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the machine file of a name or a device, in the user's directory or among those that come
 * with the library.  The latter are embedded in the library as one JSON object with a member for
 * each file, so they need no install path.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>
#include "plan/graph/machine.h"
#include "plan/graph/shipped_machines.h"

/* ---- embedded machine files ------------------------------------------------------------------ */

/* {"a100-40": {...}, ...}, in the order of the names; NULL: out of host memory. */
static json_t *load_shipped(void)
{
    size_t size = 1;
    for (const char *const *line = shipped_machines; *line; line++)
        size += strlen(*line);
    char *text = malloc(size), *end = text;
    if (!text)
        return NULL;
    for (const char *const *line = shipped_machines; *line; line++)
        end = stpcpy(end, *line);
    json_t *machines = json_loads(text, 0, NULL);
    free(text);
    return machines;
}

static int take_shipped(const char *name, json_t *root, struct machine *m)
{
    char file[64];
    snprintf(file, sizeof file, "%.50s.json", name);
    return machine_take(file, root, m);
}

static int refuse_name(const char *name, json_t *machines)
{
    char names[256] = "", text[64];
    const char *known;
    json_t *root;
    json_object_foreach(machines, known, root)
    {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", known);
    }
    return error_set(CKPT_EIO,
                     "machine file %s: there is none of this name; %s come with the library; a "
                     "file needs a path with '/' or '.'",
                     text_shown(name, text, sizeof text), names);
}

static int read_shipped(const char *name, struct machine *m)
{
    json_t *machines = load_shipped(), *root = json_object_get(machines, name);
    int rc;
    if (!machines)
        rc = error_set(CKPT_ENOMEM, "machine file %s: out of host memory", name);
    else if (root)
        rc = take_shipped(name, root, m);
    else
        rc = refuse_name(name, machines);
    json_decref(machines);
    return rc;
}

int machine_shipped(char names[][64], int most)
{
    json_t *machines = load_shipped(), *root;
    const char *name;
    int n = 0;
    json_object_foreach(machines, name, root) if (n < most)
        snprintf(names[n++], sizeof names[0], "%s", name);
    json_decref(machines);
    return n;
}

/* ---- by name --------------------------------------------------------------------------------- */

static const char *own_directory(void)
{
    const char *dir = getenv("CKPT_MACHINE_DIR");
    return dir && *dir ? dir : NULL;
}

int machine_read(const char *path, struct machine *m)
{
    const char *dir = own_directory();
    char own[4096];
    *m = (struct machine){.n_costs = 0};
    if (strpbrk(path, "/."))
        return machine_read_file(path, m);
    snprintf(own, sizeof own, "%s/%s.json", dir ? dir : "", path);
    if (dir && !access(own, F_OK))
        return machine_read_file(own, m);
    return read_shipped(path, m);
}

/* ---- by device ------------------------------------------------------------------------------- */

/* Moves a machine to *m if it is for the device, else frees it. */
static bool keep_if(struct machine *one, const char *device, struct machine *m)
{
    for (int32_t i = 0; i < one->n_devices; i++)
        if (!strcmp(one->devices[i], device)) {
            *m = *one;
            return true;
        }
    machine_free(one);
    return false;
}

static int is_machine_file(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 5 && !strcmp(entry->d_name + n - 5, ".json");
}

static bool find_own(const char *device, struct machine *m)
{
    const char *dir = own_directory();
    struct dirent **names;
    int n = dir ? scandir(dir, &names, is_machine_file, alphasort) : -1;
    bool found = false;
    for (int i = 0; i < n; i++) {
        struct error unused;
        ERRORS_TO(&unused);
        struct machine one;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]->d_name);
        free(names[i]);
        found = found || (!machine_read_file(path, &one) && keep_if(&one, device, m));
    }
    if (n >= 0)
        free(names);
    return found;
}

static bool find_shipped(const char *device, struct machine *m)
{
    json_t *machines = load_shipped(), *root;
    const char *name;
    bool found = false;
    json_object_foreach(machines, name, root)
    {
        struct error unused;
        ERRORS_TO(&unused);
        struct machine one;
        found = found || (!take_shipped(name, root, &one) && keep_if(&one, device, m));
    }
    json_decref(machines);
    return found;
}

bool machine_for_device(const char *device, struct machine *m)
{
    return find_own(device, m) || find_shipped(device, m);
}
