/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters as a table: from handle to parameter, the shape and bytes of each slot (value, master,
 * moments ...), their axes in files, and whether the values are complete.
 *
 * - A handle is -1 - index.  Handles of another context, and of hidden parameters (buckets), find
 *   nothing.
 * - Only this file decides the dtype of a slot (values_desc, param_slot_desc): a value has the
 *   parameter's dtype; state is fp32, bf16 or 8-bit codes; factors of second moments are fp32
 *   vectors.  Codes are counted in words of 32 bits.
 * - Values set before the first program is compiled wait on the host: in bf16 if that loses no bit,
 *   and as codes if the parameter is kept in codes.
 * - Weights that a failed step or a broken load left incomplete are marked (lost, torn), and every
 *   later call that would use them fails with a sentence.
 */
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include "ckpt_tools.h"
#include "core/frozen.h"
#include "core/mean8.h"
#include "core/params.h"
#include "core/thread_team.h"

void params_free(struct params *ps)
{
    for (int32_t i = 0; i < ps->n; i++) {
        free(ps->data[i].name);
        for (int k = 0; k < ps->data[i].n_file_parts; k++)
            free(ps->data[i].file_parts[k]);
        free(ps->data[i].file_parts);
        free(ps->data[i].place.initial);
    }
    free(ps->data);
    free(ps->base);
}

bool param_is_apart(const struct params *ps, const struct param *p)
{
    const bool loaded = ps->base && (p->place.base || ps->base_planned);
    return loaded && !p->trainable && !p->updated && !p->cache && !p->training.qat.is_range;
}

int params_fail(struct params *ps, int code)
{
    if (!ps->failed.code) {
        ps->failed.code = code;
        snprintf(ps->failed.text, sizeof ps->failed.text, "%s", error_get());
    }
    return code;
}

int params_take_failure(struct params *ps)
{
    const int code = ps->failed.code;
    ps->failed.code = 0;
    return code ? error_set(code, "%s", ps->failed.text) : 0;
}

const char *params_small_state(const struct params *ps)
{
    for (int32_t i = 0; i < ps->n; i++)
        if (ps->data[i].training.half_state)
            return ps->data[i].training.byte_state ? "8bit" : "bf16";
    return NULL;
}

const char *params_frozen(const struct params *ps)
{
    bool has[FROZEN_NF4 + 1] = {false};

    for (int32_t i = 0; i < ps->n; i++)
        has[ps->data[i].training.codes] = true;
    if (has[FROZEN_INT8] && has[FROZEN_NF4])
        return "int8 and nf4";
    return has[FROZEN_INT8]  ? frozen_name(FROZEN_INT8)
           : has[FROZEN_NF4] ? frozen_name(FROZEN_NF4)
                             : NULL;
}

struct param *params_at(const struct params *ps, ckpt_tensor x)
{
    int64_t i = -(int64_t)x.id - 1;
    if (x.owner && x.owner != ps->owner)
        return NULL;
    return x.id < 0 && i < ps->n - ps->n_hidden ? &ps->data[i] : NULL;
}

ckpt_tensor params_handle(const struct params *ps, int32_t i)
{
    return (ckpt_tensor){.id = -i - 1, .owner = ps->owner};
}

static bool is_mean(int slot)
{
    return slot == SLOT_EXP_AVG || slot == SLOT_EXP_AVG_SQ;
}

bool param_slot_is_coded(const struct param *p, int slot)
{
    return slot == SLOT_VALUE ? p->training.codes != FROZEN_PLAIN
                              : p->training.byte_state && is_mean(slot);
}

void param_slot_encode(const struct param *p, int slot, const float *src, int64_t n, void *words)
{
    if (slot == SLOT_VALUE)
        frozen_encode(src, n, p->training.codes, words);
    else
        mean8_to(src, n, slot == SLOT_EXP_AVG_SQ, words);
}

void param_slot_decode(const struct param *p, int slot, const void *words, int64_t n, float *dst)
{
    if (slot == SLOT_VALUE)
        frozen_decode_as(words, n, p->training.codes, p->desc.dtype, dst);
    else
        mean8_from((void *)(uintptr_t)words, n, slot == SLOT_EXP_AVG_SQ, dst);
}

/* ---- initial values, kept on the host -------------------------------------------------------- */

enum {
    CHUNK = 4096,   /* elements that fit in the first-level cache */
    LINE = 16,      /* floats of a cache line */
    SHARE = 1 << 20 /* elements that are worth a thread */
};

void param_narrow(float *x, int64_t n)
{
    uint16_t half[CHUNK];

    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t count = min_i64(CHUNK, n - at);
        ckpt_to_bf16(x + at, half, count);
        ckpt_from_bf16(half, x + at, count);
    }
}

/* Whether all values are exact in bf16. */
static bool fits_bf16(const float *x, int64_t n)
{
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t end = min_i64(n, at + CHUNK);
        uint32_t low = 0, bits;
        for (int64_t i = at; i < end; i++) {
            memcpy(&bits, &x[i], sizeof bits);
            low |= bits;
        }
        if (low & 0xffff)
            return false;
    }
    return true;
}

/* Values to keep, by several threads: memory that is touched first takes most of the time. */
struct keeping {
    const float *src;
    void *dst;
    bool narrow, unfit;
};

static void keep_share(void *user, int64_t from, int64_t end)
{
    struct keeping *k = user;
    if (!k->narrow)
        memcpy((float *)k->dst + from, k->src + from, (size_t)(end - from) * sizeof *k->src);
    else if (fits_bf16(k->src + from, end - from))
        ckpt_to_bf16(k->src + from, (uint16_t *)k->dst + from, end - from);
    else
        __atomic_store_n(&k->unfit, true, __ATOMIC_RELAXED);
}

static void keep_values(struct keeping *k, int64_t n)
{
    thread_team_run(thread_team_size(0, n, SHARE), n, CHUNK, keep_share, k);
}

void param_drop_initial(struct param *p)
{
    free(p->place.initial);
    p->place.initial = NULL;
    p->place.initial_narrow = false;
}

void params_trim_heap(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

int param_keep_initial(struct param *p, const float *src)
{
    const int64_t n = desc_numel(&p->desc);
    const bool codes = p->training.codes != FROZEN_PLAIN;
    const bool bf16 = !codes && p->desc.dtype == CKPT_BF16 && fits_bf16(src, min_i64(n, CHUNK));
    const int64_t bytes = codes ? param_slot_bytes(p, SLOT_VALUE) : n * (bf16 ? 2 : 4);

    param_drop_initial(p);
    p->place.initial = malloc((size_t)bytes);
    if (!p->place.initial)
        return CKPT_ENOMEM;
    struct keeping k = {.src = src, .dst = p->place.initial, .narrow = bf16};
    if (codes)
        param_slot_encode(p, SLOT_VALUE, src, n, p->place.initial);
    else
        keep_values(&k, n);
    if (k.unfit) { /* a later value has more bits */
        free(p->place.initial);
        p->place.initial = malloc((size_t)n * sizeof *src);
        if (!p->place.initial)
            return CKPT_ENOMEM;
        k = (struct keeping){.src = src, .dst = p->place.initial};
        keep_values(&k, n);
    }
    p->place.initial_narrow = k.narrow;
    return 0;
}

struct kept {
    const struct param *p;
    float *dst;
    int64_t first;
};

static void read_kept(void *user, int64_t from, int64_t end)
{
    const struct kept *k = user;
    const int64_t first = k->first + from, n = end - from;
    if (k->p->place.initial_narrow)
        ckpt_from_bf16((const uint16_t *)k->p->place.initial + first, k->dst + from, n);
    else
        memcpy(k->dst + from, (const float *)k->p->place.initial + first,
               (size_t)n * sizeof *k->dst);
}

void param_read_initial(const struct param *p, int64_t first, int64_t n, float *dst)
{
    if (p->training.codes)
        param_slot_decode(p, SLOT_VALUE, p->place.initial, n, dst);
    else
        thread_team_run(thread_team_size(0, n, SHARE), n, CHUNK, read_kept,
                        &(struct kept){.p = p, .dst = dst, .first = first});
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* A parameter of two or more axes is a matrix [shape[0], rest].  Means in codes count as fp32. */
static struct ckpt_desc values_desc(const struct param *p, int slot)
{
    struct ckpt_desc d = p->desc;
    bool row = slot == SLOT_EXP_AVG_SQ_ROW, col = slot == SLOT_EXP_AVG_SQ_COL;

    if (slot != SLOT_VALUE && (!p->training.half_state || p->training.byte_state || !is_mean(slot)))
        d.dtype = CKPT_F32;
    if (slot != SLOT_VALUE && p->place.part)
        d.shape[0] = p->place.part;
    if ((row || col) && d.ndim > 0)
        d = (struct ckpt_desc){.dtype = CKPT_F32,
                               .ndim = 1,
                               .shape = {row ? d.shape[0] : desc_numel(&d) / d.shape[0]},
                               .stride = {1}};
    return d;
}

struct ckpt_desc param_slot_desc(const struct param *p, int slot)
{
    const struct ckpt_desc d = values_desc(p, slot);
    const int64_t n = desc_numel(&d);

    if (!param_slot_is_coded(p, slot))
        return d;
    return (struct ckpt_desc){
        .dtype = CKPT_I32,
        .ndim = 1,
        .shape = {slot == SLOT_VALUE ? frozen_words(p->training.codes, n) : mean8_words(n)},
        .stride = {1}};
}

int64_t param_slot_numel(const struct param *p, int slot)
{
    struct ckpt_desc d = values_desc(p, slot);

    return desc_numel(&d);
}

int64_t param_slot_bytes(const struct param *p, int slot)
{
    struct ckpt_desc d = param_slot_desc(p, slot);

    return desc_bytes(&d);
}

/* Shape in files, with the strides of the parameter's memory. */
static struct ckpt_desc file_order(const struct param *p)
{
    const struct ckpt_desc *own = p->file_view.ndim ? &p->file_view : &p->desc;
    struct ckpt_desc d = *own;

    for (int i = 0; i < d.ndim && p->reordered; i++) {
        d.shape[i] = own->shape[p->file_axes[i]];
        d.stride[i] = own->stride[p->file_axes[i]];
    }
    return d;
}

struct ckpt_desc param_file_desc(const struct param *p)
{
    return p->file_view.ndim ? p->desc : file_order(p);
}

struct ckpt_desc param_part_desc(const struct param *p)
{
    struct ckpt_desc d = {.dtype = CKPT_F32, .ndim = 2};

    d.shape[1] = p->desc.shape[p->desc.ndim - 1];
    d.shape[0] = desc_numel(&p->desc) / d.shape[1] / p->n_file_parts;
    desc_dense(&d);
    return d;
}

/* Values between the order of a file, and that of a parameter, which has these strides. */
struct reordering {
    struct ckpt_desc d;
    const float *src;
    float *dst;
    bool to_file;
};

/* Copies rows of the last axis, up to a cache line of them together: often they are adjacent in
 * memory, and elements of one row far apart. */
static void reorder_rows(void *user, int64_t from, int64_t end)
{
    const struct reordering *r = user;
    const struct ckpt_desc *d = &r->d;
    const int last = d->ndim - 1;
    const int64_t n = d->shape[last], step = d->stride[last];
    const int64_t rows = last ? d->shape[last - 1] : 1, next = last ? d->stride[last - 1] : 0;

    for (int64_t row = from, k; row < end; row += k) {
        int64_t place = 0, rest = row, at = row * n;
        k = min_i64(min_i64(LINE, end - row), rows - row % rows);
        for (int i = last - 1; i >= 0; rest /= d->shape[i--])
            place += rest % d->shape[i] * d->stride[i];
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < k; j++) {
                if (r->to_file)
                    r->dst[at + j * n + i] = r->src[place + i * step + j * next];
                else
                    r->dst[place + i * step + j * next] = r->src[at + j * n + i];
            }
    }
}

/* Copies all values, by several threads.  The last axes are one where the strides are those of one,
 * as the taps of a kernel are: rows of 3 would take twice as long as rows of 27. */
static void copy_reordered(const struct param *p, const float *src, float *dst, bool to_file)
{
    struct reordering r = {.d = file_order(p), .src = src, .dst = dst, .to_file = to_file};
    struct ckpt_desc *d = &r.d;
    const int64_t n = desc_numel(d);

    for (int k; (k = d->ndim - 1) > 0; d->ndim--) {
        if (d->shape[k] == 1)
            continue;
        if (d->stride[k - 1] != d->shape[k] * d->stride[k])
            break;
        d->shape[k - 1] *= d->shape[k];
        d->stride[k - 1] = d->stride[k];
    }
    if (n)
        thread_team_run(thread_team_size(0, n, SHARE), n / d->shape[d->ndim - 1], 1, reorder_rows,
                        &r);
}

void param_to_file(const struct param *p, const float *src, float *dst)
{
    copy_reordered(p, src, dst, true);
}

void param_from_file(const struct param *p, const float *src, float *dst)
{
    copy_reordered(p, src, dst, false);
}

int params_check_lost(const struct params *ps)
{
    if (!ps->lost)
        return 0;
    if (ps->differ)
        return error_set(CKPT_ECOMM,
                         "the ranks have differed since step %lld or earlier: restart from the "
                         "last saved state",
                         (long long)ps->lost);
    return error_set(CKPT_EDEVICE,
                     "step %lld failed midway and left the weights incomplete: open a new context "
                     "and load those saved last",
                     (long long)ps->lost);
}

int params_check_late(const struct params *ps)
{
    const struct error *late = __atomic_load_n(&ps->late, __ATOMIC_ACQUIRE);

    return late ? error_set(late->code, "%s", late->text) : 0;
}

int params_check_whole(const struct params *ps)
{
    int rc = params_check_lost(ps);

    if (rc || !ps->torn)
        return rc;
    return error_set(CKPT_EIO,
                     "a load ended midway and left a mixture of old values and values of the "
                     "file: load a whole file first");
}
