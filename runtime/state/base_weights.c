/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen weights that states leave out: see base_weights.h. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "context/context.h"
#include "core/bits.h"
#include "core/checksum.h"
#include "core/clones.h"
#include "core/json.h"
#include "core/thread_team.h"
#include "state/base_weights.h"

int ckpt_state_base(ckpt *c, const char *from)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    if (from && !*from)
        return error_set(CKPT_EINVAL, "ckpt_state_base: say where the weights come from");
    char *text = from ? strdup(from) : NULL;
    if (from && !text)
        return error_set(CKPT_ENOMEM, "no memory for the name of frozen weights");
    free(c->params.base);
    c->params.base = text;
    c->params.base_planned = c->options.plan_only;
    return 0;
}

/* ---- the digest ------------------------------------------------------------------------------ */

/* Elements with a checksum of their own, which the digest is one of: they fit in the cache of a
 * core.  Part of the file format. */
enum { RUN = 1 << 14, SHARE = 1 << 20 };

struct digest {
    const float *x;
    uint64_t *sum;
    bool odd;
};

/* The upper halves of n values; whether bf16 holds them all. */
CKPT_CLONES static bool halve(const float *x, int64_t n, uint16_t *half)
{
    uint32_t lower = 0;

    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits(x[i]);
        lower |= bits & 0xffff;
        half[i] = (uint16_t)(bits >> 16);
    }
    return !lower;
}

/* Most bases are bf16: half of the bytes say all. */
static void digest_runs(void *user, int64_t from, int64_t end)
{
    struct digest *d = user;
    uint16_t half[RUN];

    for (int64_t at = from; at < end; at += RUN) {
        const int64_t n = min_i64(RUN, end - at);
        d->sum[at / RUN] = halve(d->x + at, n, half)
                               ? checksum(half, n * (int64_t)sizeof *half)
                               : checksum(d->x + at, n * (int64_t)sizeof *d->x);
        if (!floats_are_finite(d->x + at, n))
            __atomic_store_n(&d->odd, true, __ATOMIC_RELAXED);
    }
}

int base_digest(const struct params *ps, const float *x, int64_t n, uint64_t *digest, bool *finite)
{
    const int64_t bytes = (n + RUN - 1) / RUN * (int64_t)sizeof *digest;
    struct digest d = {.x = x, .sum = ps->base ? malloc((size_t)bytes + 1) : NULL};

    *digest = 0;
    if (!ps->base) {
        if (finite)
            *finite = floats_are_finite(x, n);
        return 0;
    }
    if (!d.sum)
        return error_set(CKPT_ENOMEM, "no memory for the digest of a weight");
    thread_team_run(thread_team_size(0, n, SHARE), n, RUN, digest_runs, &d);
    if (finite)
        *finite = !d.odd;
    *digest = checksum(d.sum, bytes);
    *digest += !*digest;
    free(d.sum);
    return 0;
}

/* ---- saving ---------------------------------------------------------------------------------- */

char *base_describe(const struct params *ps, bool *any)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    *any = false;
    if (!f)
        return NULL;
    for (int32_t i = 0; i < ps->n - ps->n_hidden; i++) {
        const struct param *p = &ps->data[i];
        const struct ckpt_desc d = param_file_desc(p);
        if (!param_is_apart(ps, p))
            continue;
        fputs(*any ? ",\n" : "{", f);
        json_write_string(f, p->name);
        fputs(":{\"shape\":[", f);
        for (int k = 0; k < d.ndim; k++)
            fprintf(f, "%s%lld", k ? "," : "", (long long)d.shape[k]);
        fprintf(f, "],\"digest\":\"%016llx\"}", (unsigned long long)p->place.base);
        *any = true;
    }
    fputs(*any ? "}" : "{}", f);
    text_close(f, &text);
    return text;
}

/* ---- loading --------------------------------------------------------------------------------- */

int base_open(struct base *b, const ckpt_file *f)
{
    const char *text = file_find_note(f, NOTE_BASE);

    *b = (struct base){.f = f, .all = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL};
    return !text || json_is_object(b->all)
               ? 0
               : file_bad(f->path, "the note '" NOTE_BASE "' is not a JSON object");
}

void base_close(struct base *b)
{
    json_decref(b->all);
}

static const char *origin(const struct base *b)
{
    const char *from = file_find_note(b->f, NOTE_BASE_FROM);
    return from ? from : "a file";
}

static int refuse_missing(const struct base *b, const struct param *p)
{
    const size_t all = json_object_size(b->all);

    return error_set(CKPT_EINVAL,
                     "%s: leaves out the values of %zu frozen weight%s, as of '%s', which came "
                     "from %.300s: load the same before the state",
                     b->f->path, all, all > 1 ? "s" : "", p->name, origin(b));
}

static bool has_shape(const json_t *shape, const struct param *p)
{
    const struct ckpt_desc d = param_file_desc(p);
    bool same = json_is_array(shape) && json_array_size(shape) == (size_t)d.ndim;

    for (int i = 0; i < d.ndim && same; i++)
        same = json_integer_value(json_array_get(shape, (size_t)i)) == d.shape[i];
    return same;
}

int base_match(const struct base *b, const struct param *p)
{
    const json_t *entry = json_object_get(b->all, p->name);
    const char *text = json_string_value(json_object_get(entry, "digest"));
    char digest[24];

    if (!entry)
        return 0;
    if (!text || strlen(text) != 16)
        return file_bad(b->f->path, "the note about the frozen weight '%s' is not understood",
                        p->name);
    if (p->trainable || p->updated)
        return error_set(CKPT_EINVAL,
                         "%s: leaves out '%s', which its run did not change, and this "
                         "run does",
                         b->f->path, p->name);
    if (!has_shape(json_object_get(entry, "shape"), p))
        return error_set(CKPT_ESHAPE, "%s: leaves out '%s', which has another shape in this run",
                         b->f->path, p->name);
    if (!p->place.base)
        return refuse_missing(b, p);
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)p->place.base);
    if (!strcmp(digest, text))
        return 1;
    return error_set(CKPT_EINVAL,
                     "%s: was trained on other weights: '%s' is not the one that its run read from "
                     "%.300s: load those",
                     b->f->path, p->name, origin(b));
}

static bool is_among(const struct params *ps, const char *name)
{
    for (int32_t i = 0; i < ps->n - ps->n_hidden; i++)
        if (!strcmp(ps->data[i].name, name))
            return true;
    return false;
}

int base_check_names(const struct base *b, const struct params *ps)
{
    const char *name;
    json_t *entry;

    json_object_foreach(b->all, name, entry)
    {
        if (!is_among(ps, name))
            return error_set(CKPT_ENAME, "%s: leaves out '%s', which this run does not keep",
                             b->f->path, name);
    }
    return 0;
}
