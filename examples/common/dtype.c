/* SPDX-License-Identifier: Apache-2.0 */
/* The dtype of weights and activations: see dtype.h. */
#include "dtype.h"
#include <string.h>
#include "ckpt_files.h"
#include "options.h"
#include "saves.h"
#include "say.h"

/* ---- of a state ------------------------------------------------------------------------------ */

static const char *of_note(const char *path)
{
    const char *dtype = NULL;
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return NULL;
    const char *note = ckpt_file_note(f, CKPT_STATE_NOTE "dtype");
    if (note)
        dtype = !strcmp(note, "bf16") ? "bf16" : "fp32";
    ckpt_file_close(f);
    return dtype;
}

static const char *of_state(const struct resume_options *o)
{
    char path[SAVES_PATH];

    if (!o || !o->from)
        return NULL;
    if (strcmp(o->from, RESUME_AUTO))
        return of_note(o->from);
    return o->save && !saves_newest(o->save, false, path) && *path ? of_note(path) : NULL;
}

/* ---- of weights ------------------------------------------------------------------------------ */

/* Values of a file by the dtype of its tensors; integers, as indices and codes, are not counted. */
struct values {
    int64_t fp32, bf16, fp16, fp8;
};

static void count(struct values *n, const struct ckpt_file_entry *e)
{
    if (!strcmp(e->dtype, "F32") || !strcmp(e->dtype, "F64"))
        n->fp32 += e->numel;
    else if (!strcmp(e->dtype, "BF16"))
        n->bf16 += e->numel;
    else if (!strcmp(e->dtype, "F16"))
        n->fp16 += e->numel;
    else if (!strncmp(e->dtype, "F8", 2))
        n->fp8 += e->numel;
}

static void count_file(struct values *n, const char *path)
{
    ckpt_file *f;

    *n = (struct values){0};
    if (!path || ckpt_file_open(&f, path))
        return;
    for (int i = 0; i < ckpt_file_count(f); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        if (!ckpt_file_entry(f, i, &e))
            count(n, &e);
    }
    ckpt_file_close(f);
}

/* NULL: the file has no values. */
static const char *of_values(const struct values *n)
{
    int64_t half = n->bf16 + n->fp16 + n->fp8;

    if (!half && !n->fp32)
        return NULL;
    return half > n->fp32 ? "bf16" : "fp32";
}

static bool is_fp16(const struct values *n)
{
    return n->fp16 > n->bf16 + n->fp8 + n->fp32;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static bool is_bf16(const char *dtype)
{
    return dtype && !strcmp(dtype, "bf16");
}

int dtype_select(const char **dtype, const struct resume_options *state, const char *weights,
                 char note[DTYPE_NOTE])
{
    const char *given = *dtype;
    struct values n;

    *note = 0;
    if (given && option_dtype("dtype", given))
        return -1;
    if (!given && (*dtype = of_state(state))) {
        if (is_bf16(*dtype))
            snprintf(note, DTYPE_NOTE, "dtype: bf16, as in the resumed run");
        return 0;
    }
    count_file(&n, weights);
    *dtype = given ? given : of_values(&n);
    if (is_bf16(*dtype) && is_fp16(&n))
        snprintf(note, DTYPE_NOTE, "dtype: bf16, to which the fp16 weights of %s are rounded",
                 weights);
    else if (is_bf16(*dtype) && !given)
        snprintf(note, DTYPE_NOTE, "dtype: bf16, as in %s; --dtype fp32 is the other", weights);
    *dtype = *dtype ? *dtype : "fp32";
    return 0;
}

int dtype_select_for(const char **dtype, const char *weights)
{
    char note[DTYPE_NOTE];
    int rc = dtype_select(dtype, NULL, weights, note);

    if (!rc && *note)
        say_note("%s", note);
    return rc;
}
