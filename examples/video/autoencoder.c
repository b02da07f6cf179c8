/* SPDX-License-Identifier: Apache-2.0 */
/* What follows alike for all autoencoders: see autoencoder.h. */
#include "autoencoder.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "../common/names.h"
#include "../common/say.h"
#include "ckpt_files.h"

bool autoencoder_owns(const struct autoencoder *a, const char *name)
{
    return a && !strncmp(name, a->prefix, strlen(a->prefix));
}

int64_t autoencoder_clip_out(const struct autoencoder *a, const void *own,
                             const struct autoencoder_clip *clip)
{
    struct autoencoder_passes p = a->passes(clip);

    return a->out(own, p.first, true, clip->decode) +
           (p.n - 1) * a->out(own, p.each, false, clip->decode);
}

const char *autoencoder_directory(char *dst, size_t size, const char *dir)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/vae/config.json", dir);
    snprintf(dst, size, access(path, R_OK) ? "%s" : "%s/vae", dir);
    return dst;
}

/* ---- values -------------------------------------------------------------------------------- */

struct load {
    const struct autoencoder *kind;
    bool decode;
    struct names missing, unexpected;
};

/* The name of a parameter in files. */
static bool other_name(void *user, const char *name, int i, char *other, size_t size)
{
    const struct autoencoder *a = ((struct load *)user)->kind;

    if (i || !autoencoder_owns(a, name))
        return false;
    snprintf(other, size, "%s", name + strlen(a->prefix));
    return true;
}

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

/* Ignores parameters of other models in the context, and the half of the file that was not
 * requested. */
static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;
    bool decoder = begins(name, "decoder.") || begins(name, "post_quant_conv.");
    bool encoder = begins(name, "encoder.") || begins(name, "quant_conv.");

    if (*what == 'm' && autoencoder_owns(l->kind, name))
        names_add(&l->missing, name + strlen(l->kind->prefix));
    else if (*what != 'm' && !(l->decode ? encoder : decoder))
        names_add(&l->unexpected, name);
}

int autoencoder_load(const struct autoencoder *a, ckpt *c, const char *dir, bool decode)
{
    struct load l = {.kind = a, .decode = decode};
    char path[4096], text[NAMES_TEXT];

    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", dir);
    if (ckpt_load_params_aliased(c, path, other_name, report, &l, NULL))
        return say_fail("%s", ckpt_error(c));
    if (l.missing.n)
        return say_fail("%s: there is no %s: not the weights of this autoencoder", path,
                        names_text(&l.missing, text));
    if (l.unexpected.n)
        return say_fail("%s: this autoencoder has no %s", path, names_text(&l.unexpected, text));
    return 0;
}
