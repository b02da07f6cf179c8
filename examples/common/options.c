/* What command lines of the programs share: see options.h. */
#include <stdlib.h>
#include <string.h>
#include "options.h"
#include "say.h"

int option_sizes(const char *option, const char *text, const char *example, int n, int64_t **value)
{
    const char *at = text;

    for (int i = 0; i < n; i++) {
        char *end;
        long v = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (v < 1 || v > 65536 || *end != (i + 1 < n ? 'x' : 0))
            return say_fail("--%s %s: give %s, as %s", option, text,
                            n == 2 ? "a width and a height" : "frames, height and width", example);
        *value[i] = v;
        at = end + 1;
    }
    return 0;
}

int option_dtype(const char *option, const char *name)
{
    if (strcmp(name, "fp32") && strcmp(name, "bf16"))
        return say_fail("--%s %s: give fp32 or bf16", option, name);
    return 0;
}

/* ---- what they are to the bits of a run ------------------------------------------------------ */

/* --batch: the samples of a step of all ranks together are what counts, and the library compares
 * them.  Paths to data do not say what is in there, so another one is no more than said. */
static const char *const tunes[] = {
    "lr",  "warmup", "clip-norm", "weight-decay", "ema-decay", "video", "video-dir",
    "vae", "text",   "features",  "tensors",      "lpips",     "size"};
static const char *const is_free[] = {
    "batch",        "dump", "frames-2d", "guidance",   "help",           "load",
    "log",          "out",  "partial",   "resume",     "resume-changed", "sample-seed",
    "sample-steps", "save", "save-ema",  "save-every", "save-state",     "steps"};

static bool is_in(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

enum option_role option_role(const char *name)
{
    if (is_in(is_free, sizeof is_free / sizeof *is_free, name))
        return OPTION_FREE;
    return is_in(tunes, sizeof tunes / sizeof *tunes, name) ? OPTION_TUNES : OPTION_SHAPES;
}

const char *option_text(const struct ckpt_option *row, const void *owner, char dst[32])
{
    const void *field = (const char *)owner + row->offset;
    const char *text;

    switch (row->type) {
    case CKPT_OPT_FLAG:
        return *(const bool *)field ? "yes" : "no";
    case CKPT_OPT_STRING:
        text = *(const char *const *)field;
        return text ? text : "none";
    case CKPT_OPT_FLOAT:
        snprintf(dst, 32, "%.15g", *(const double *)field);
        return dst;
    default:
        snprintf(dst, 32, "%lld", (long long)*(const int64_t *)field);
        return dst;
    }
}
