/* SPDX-License-Identifier: Apache-2.0 */
/* Loads weights from Open-Sora's files and from files of its 2-D part. */
#include <string.h>
#include "../../common/names.h"
#include "../../common/say.h"
#include "ckpt_files.h"
#include "model_options.h"

#define SPATIAL  "spatial_vae.module."
#define TEMPORAL "temporal_vae."
#define CODEBOOK "quantizer."

struct load {
    int missing[3]; /* tensors missing of the spatial part, temporal part, codebook */
    struct names missing_names, unexpected;
};

static int part_of(const char *name)
{
    if (!strncmp(name, CODEBOOK, strlen(CODEBOOK)))
        return 2;
    return !strncmp(name, TEMPORAL, strlen(TEMPORAL));
}

static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;
    bool missing = *what == 'm';

    if (missing && (!strcmp(name, "scale") || !strcmp(name, "shift")))
        return; /* the v1.2 buffers are set */
    names_add(missing ? &l->missing_names : &l->unexpected, name);
    if (missing)
        l->missing[part_of(name)]++;
}

/* Names of attention layers in older files. */
static const struct {
    const char *now, *before;
} layers[] = {
    {".to_q.", ".query."},
    {".to_k.", ".key."},
    {".to_v.", ".value."},
    {".to_out.0.", ".proj_attn."},
};

static bool older_layer(const char *name, char *other, size_t size)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const char *at = strstr(name, layers[i].now);
        if (at) {
            snprintf(other, size, "%.*s%s%s", (int)(at - name), name, layers[i].before,
                     at + strlen(layers[i].now));
            return true;
        }
    }
    return false;
}

/* The 2-D part under its own names; then both with the older layer names. */
static bool other_name(void *user, const char *name, int i, char *other, size_t size)
{
    bool spatial = !strncmp(name, SPATIAL, strlen(SPATIAL));

    (void)user;
    if (!spatial || i > 2)
        return false;
    if (i == 0) {
        snprintf(other, size, "%s", name + strlen(SPATIAL));
        return true;
    }
    return older_layer(i == 1 ? name : name + strlen(SPATIAL), other, size);
}

int vae_load(ckpt *c, const char *path, bool partial)
{
    struct load l = {0};
    int rc = ckpt_load_params_aliased(c, path, other_name, report, &l, NULL);

    names_report(&l.missing_names, path, "missing");
    names_report(&l.unexpected, path, "unexpected");
    if (rc)
        return say_fail("%s", ckpt_error(c));
    int missing = l.missing[0] + l.missing[1] + l.missing[2];
    if (missing && !partial)
        return say_fail("%s: %d parameters are missing (%d of the 2-D part, %d of the temporal "
                        "part, %d of a codebook); --partial initializes them",
                        path, missing, l.missing[0], l.missing[1], l.missing[2]);
    return 0;
}
