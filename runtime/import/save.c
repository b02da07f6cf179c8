/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is copied, and then each storage with a parameter in it is read from the copy, changed
 * where the parameter lies, and written back with a new checksum: order and alignment of the
 * members, and all that is not read here, stay what they were.  A checksum is in the list of
 * members, and in the header before the data or, where the writer did not know it yet, behind them.
 */
#include "import/save.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "context/context.h"
#include "core/crc32.h"
#include "core/file.h"

enum {
    PART = 1 << 20,
    SUM_IN_ENTRY = 16,
    SUM_IN_HEADER = 14,
    FLAGS_IN_HEADER = 6,
    SUM_BEHIND = 8 /* the flag for a checksum behind the data */
};

struct saving {
    ckpt *c;
    const struct pt2_program *p;
    const struct model_input *in;
    struct archive *a;
    struct weights *w;
    const char *path;
    int fd;
};

/* ---- bytes of the copy ----------------------------------------------------------------------- */

static int write_at(const struct saving *s, const void *from, size_t n, uint64_t at)
{
    const char *p = from;

    while (n) {
        const ssize_t put = pwrite(s->fd, p, n, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return file_io_error(s->path, "cannot be written");
        p += put;
        n -= (size_t)put;
        at += (uint64_t)put;
    }
    return 0;
}

static int copy_archive(const struct saving *s)
{
    char *part = malloc(PART);
    int rc = part ? 0 : error_set(CKPT_ENOMEM, "%s: no memory to write it", s->path);

    for (uint64_t at = 0; !rc && at < archive_size(s->a); at += PART) {
        const size_t n = (size_t)min_i64(PART, (int64_t)(archive_size(s->a) - at));
        rc = archive_read_file(s->a, at, part, n);
        if (!rc)
            rc = write_at(s, part, n, at);
    }
    free(part);
    return rc;
}

/* Replaces the checksum of a member wherever it is. */
static int write_sum(const struct saving *s, const struct archive_member *m, uint32_t sum)
{
    const uint64_t end = m->offset + m->size;
    unsigned char header[SUM_IN_HEADER], behind[8];
    int rc = archive_read_file(s->a, m->local, header, sizeof header);

    if (!rc)
        rc = write_at(s, &sum, sizeof sum, m->entry + SUM_IN_ENTRY);
    if (!rc && !(header[FLAGS_IN_HEADER] & SUM_BEHIND))
        return write_at(s, &sum, sizeof sum, m->local + SUM_IN_HEADER);
    if (!rc)
        rc = archive_read_file(s->a, end, behind, sizeof behind);
    if (!rc && !memcmp(behind, "PK\7\10", 4))
        rc = write_at(s, &sum, sizeof sum, end + 4);
    else if (!rc && !memcmp(behind, &m->sum, sizeof m->sum))
        rc = write_at(s, &sum, sizeof sum, end);
    return rc;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void put_whole(char *to, int64_t size, float value)
{
    const int64_t whole = (int64_t)llrintf(value);

    memcpy(to, &whole, (size_t)size); /* little-endian: the low bytes come first */
}

/* Nearest half, of values that halves were read as. */
static uint16_t half_of(float value)
{
    int exponent;
    const float fraction = frexpf(fabsf(value), &exponent);
    const uint16_t sign = signbit(value) ? 0x8000 : 0;

    if (fraction == 0 || exponent < -24)
        return sign;
    if (exponent > 16)
        return sign | 0x7c00;
    if (exponent < -13)
        return sign | (uint16_t)lrintf(ldexpf(fraction, exponent + 24));
    return (uint16_t)(sign + ((exponent + 13) << 10) + lrintf(ldexpf(fraction, 11)));
}

static void put_value(char *to, const struct weight *x, float value)
{
    const double wide = value;
    uint16_t half;

    switch (x->code) {
    case PT2_F32:
        memcpy(to, &value, sizeof value);
        break;
    case PT2_F64:
        memcpy(to, &wide, sizeof wide);
        break;
    case PT2_BF16:
        ckpt_to_bf16(&value, &half, 1);
        memcpy(to, &half, sizeof half);
        break;
    case PT2_F16:
        half = half_of(value);
        memcpy(to, &half, sizeof half);
        break;
    default:
        put_whole(to, x->dtype->size, value);
    }
}

/* Values of a parameter in PyTorch's order of axes.  Collective. */
static int get_values(const struct saving *s, const struct model_input *in, float *values,
                      int64_t n)
{
    const struct param *p = params_at(&s->c->params, in->param);
    float *own = malloc((size_t)n * sizeof *own + 1);
    int rc = own ? ckpt_param_get(s->c, in->param, CKPT_VALUE, own, n)
                 : error_set(CKPT_ENOMEM, "no memory to write parameter '%s'", p->name);

    if (!rc && p->reordered)
        param_to_file(p, own, values);
    else if (!rc)
        memcpy(values, own, (size_t)n * sizeof *own);
    if (!rc && !floats_are_finite(values, n))
        rc = error_set(CKPT_ENAN, "parameter '%s' is not finite: nothing is written", p->name);
    free(own);
    return rc;
}

static int write_storage(const struct saving *s, const struct weight *x, const float *values)
{
    const struct archive_member *m = x->storage;
    char *bytes = malloc((size_t)m->size + 1);
    int rc = bytes ? file_read_at(s->path, s->fd, bytes, (int64_t)m->size, (int64_t)m->offset)
                   : error_set(CKPT_ENOMEM, "no memory to write parameter '%s'", x->name);

    for (int64_t k = 0; !rc && k < x->numel; k++)
        put_value(bytes + weight_position(x, k) * x->dtype->size, x, values[k]);
    if (!rc)
        rc = write_at(s, bytes, (size_t)m->size, m->offset);
    if (!rc)
        rc = write_sum(s, m, crc32_add(0, bytes, (size_t)m->size));
    free(bytes);
    return rc;
}

static int check_weight(const struct saving *s, const char *name, const struct weight *x,
                        const struct param *p)
{
    if (!x || !x->dtype || x->numel != desc_numel(&p->desc))
        return error_set(CKPT_EFORMAT, "%s: is another archive than the one that was read: '%s'",
                         s->p->path, name);
    return x->has_values ? 0
                         : error_set(CKPT_EINVAL,
                                     "%s: was exported without values, so none can be replaced: "
                                     "save the weights in a file of their own",
                                     s->p->path);
}

/* Writes one parameter; a rank that does not write joins the gathers of the one that does. */
static int save_input(const struct saving *s, int i)
{
    const struct param *p = params_at(&s->c->params, s->in[i].param);
    const int64_t n = desc_numel(&p->desc);
    const struct weight *x = s->w ? weights_find(s->w, s->p->in[i].name) : NULL;
    float *values = malloc((size_t)n * sizeof *values + 1);
    int rc = values ? 0 : error_set(CKPT_ENOMEM, "no memory to write parameter '%s'", p->name);

    if (!rc && s->w)
        rc = check_weight(s, s->p->in[i].name, x, p);
    if (!rc)
        rc = get_values(s, &s->in[i], values, n);
    if (!rc && s->w)
        rc = write_storage(s, x, values);
    free(values);
    return rc;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int save_inputs(const struct saving *s)
{
    int rc = 0;

    for (int i = 0; !rc && i < s->p->n_in; i++)
        if (s->in[i].param.id)
            rc = save_input(s, i);
    return rc;
}

static int fill(void *user, int fd)
{
    struct saving *s = user;

    s->fd = fd;
    int rc = copy_archive(s);
    return rc ? rc : save_inputs(s);
}

static int write_archive(struct saving *s)
{
    char model[200];
    int rc = archive_open(&s->a, s->p->path);

    if (!rc)
        rc = archive_program(s->a, model, sizeof model);
    if (!rc)
        rc = weights_open(&s->w, s->a, model);
    if (!rc)
        rc = file_replace(s->path, fill, s);
    weights_close(s->w);
    archive_close(s->a);
    return rc;
}

int import_save(ckpt *c, const struct pt2_program *p, const struct model_input *in,
                const char *path)
{
    struct saving s = {.c = c, .p = p, .in = in, .path = path};
    struct comm *hosts = c->ranks.comm ? ranks_hosts(&c->ranks) : NULL;
    int rc = c->ranks.rank ? save_inputs(&s) : write_archive(&s);

    if (!rc && hosts && comm_barrier(hosts, "the end of a save"))
        rc = error_set(CKPT_ECOMM, "%s", hosts->reason);
    return ranks_give_up(&c->ranks, rc);
}
