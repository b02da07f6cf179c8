/* SPDX-License-Identifier: Apache-2.0 */
/* --loss: see loss.h. */
#include <string.h>
#include "../common/say.h"
#include "ckpt_ops.h"
#include "loss.h"

static const char *const kinds[] = {[LOSS_MSE] = "mse",
                                    [LOSS_L1] = "l1",
                                    [LOSS_HUBER] = "huber",
                                    [LOSS_BCE] = "bce",
                                    [LOSS_CE] = "ce"};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- the option ------------------------------------------------------------------------------ */

/* The model's own loss. */
static int find_own(struct loss *l, const struct signature *s)
{
    for (int i = 0; i < s->n_out; i++)
        if (s->out[i].loss) {
            *l = (struct loss){LOSS_OWN, i, ""};
            return 0;
        }
    return say_fail("the model returns no loss (a float without axes): give --loss KIND:TARGET, as "
                    "in --loss mse:target, where target is a tensor of the data");
}

static int take_output(struct loss *l, const struct signature *s, const char *name)
{
    const struct signature_value *v = signature_output(s, name);

    if (!v)
        return say_fail(
            "--loss: the model has no output '%s'; it has %d: give a number from 0 on or a "
            "name that ckpt import lists, as in --loss ce:0,label",
            name, s->n_out);
    l->output = (int)(v - s->out);
    if (v->desc.dtype == CKPT_I32)
        return say_fail("--loss: output '%s' has whole numbers, which have no gradient", v->name);
    return 0;
}

/* KIND:OUTPUT,TARGET or KIND:TARGET. */
static int read_kind(struct loss *l, const struct signature *s, const char *text, const char *colon)
{
    const char *comma = strchr(colon, ','), *target = comma ? comma + 1 : colon + 1;
    char output[SIGNATURE_NAME];
    int kind = LOSS_MSE;

    while (kind < KINDS && (strlen(kinds[kind]) != (size_t)(colon - text) ||
                            strncmp(text, kinds[kind], (size_t)(colon - text))))
        kind++;
    if (kind == KINDS)
        return say_fail("--loss %s: give mse, l1, huber, bce or ce before the colon", text);
    if (!*target || strlen(target) >= sizeof l->target)
        return say_fail("--loss %s: the tensor of the data is missing, as in %s:0,target", text,
                        kinds[kind]);
    *l = (struct loss){.kind = (enum loss_kind)kind};
    strcpy(l->target, target);
    snprintf(output, sizeof output, "%.*s", comma ? (int)(comma - colon - 1) : 1,
             comma ? colon + 1 : "0");
    return take_output(l, s, output);
}

int loss_read(struct loss *l, const struct signature *s, const char *text)
{
    const char *colon = text ? strchr(text, ':') : NULL;

    if (!text)
        return find_own(l, s);
    if (colon)
        return read_kind(l, s, text, colon);
    *l = (struct loss){.kind = LOSS_OWN};
    if (take_output(l, s, text))
        return -1;
    if (s->out[l->output].desc.ndim)
        return say_fail("--loss %s: the output has %d axes, and a loss has none: give "
                        "KIND:%s,TARGET",
                        text, s->out[l->output].desc.ndim, text);
    return 0;
}

bool loss_counts(const struct loss *l)
{
    return l->kind == LOSS_CE;
}

/* ---- recording ------------------------------------------------------------------------------- */

static bool has_shape(const struct ckpt_desc *d, int ndim, const int64_t *shape)
{
    return d->ndim == ndim && !memcmp(d->shape, shape, (size_t)ndim * sizeof *shape);
}

/* The sizes of d without an axis. */
static void leave_out(const struct ckpt_desc *d, int axis, int64_t *shape)
{
    for (int i = 0, n = 0; i < d->ndim; i++)
        if (i != axis)
            shape[n++] = d->shape[i];
}

/* x and y: the sizes of the output and of the target, in a call of the model. */
static ckpt_tensor misfit(ckpt_tape *t, const struct loss *l, const struct ckpt_desc *x,
                          const struct ckpt_desc *y, const char *what)
{
    char out[160], target[160];

    ckpt_tape_fail(t, CKPT_ESHAPE, "--loss: '%s' is [%s], and output %d of the model [%s]: %s",
                   l->target, say_shape(target, y->ndim, y->shape), l->output,
                   say_shape(out, x->ndim, x->shape), what);
    return CKPT_NONE;
}

/* Classes lie along the last axis, or as in PyTorch along axis 1: the labels show which. */
static ckpt_tensor record_classes(const struct loss *l, ckpt_tape *t, ckpt_tensor x,
                                  ckpt_tensor labels)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x), y = ckpt_desc_of(t, labels);
    int64_t last[CKPT_MAX_DIMS], second[CKPT_MAX_DIMS];
    int axes[CKPT_MAX_DIMS];

    if (d.ndim < 1 || y.ndim < 0)
        return CKPT_NONE;
    leave_out(&d, d.ndim - 1, last);
    leave_out(&d, 1, second);
    const bool at_end = has_shape(&y, d.ndim - 1, last);
    const bool after_first = d.ndim > 2 && has_shape(&y, d.ndim - 1, second);
    if (at_end && after_first)
        return misfit(t, l, &d, &y, "its classes may be the last axis or axis 1: permute it");
    if (!at_end && !after_first)
        return misfit(t, l, &d, &y,
                      "its sizes without the classes, the last axis or axis 1, must be the same");
    for (int i = 0; i < d.ndim; i++)
        axes[i] = i == d.ndim - 1 ? 1 : i < 1 ? i : i + 1;
    return ckpt_cross_entropy(t, after_first ? ckpt_permute(t, x, axes) : x, labels, NULL);
}

static ckpt_tensor record_elements(const struct loss *l, ckpt_tape *t, ckpt_tensor x, ckpt_tensor y)
{
    ckpt_tensor d;

    switch (l->kind) {
    case LOSS_HUBER:
        return ckpt_huber(t, x, y, 1.f, CKPT_REDUCE_MEAN);
    case LOSS_BCE:
        return ckpt_bce_with_logits(t, x, y, CKPT_NONE, CKPT_REDUCE_MEAN);
    case LOSS_L1:
        d = ckpt_abs(t, ckpt_sub(t, x, y));
        break;
    default:
        d = ckpt_sub(t, x, y);
        d = ckpt_mul(t, d, d);
    }
    return ckpt_reshape(t, ckpt_mean(t, d, CKPT_ALL_AXES), 0, NULL);
}

/* The samples of a target are moved to where the output has them. */
static ckpt_tensor turn(ckpt_tape *t, const struct signature_value *out, ckpt_tensor y)
{
    const struct ckpt_desc d = ckpt_desc_of(t, y);
    int axes[CKPT_MAX_DIMS];

    if (out->axis <= 0 || d.ndim <= out->axis)
        return y;
    for (int i = 0; i < d.ndim; i++)
        axes[i] = i < out->axis ? i + 1 : i == out->axis ? 0 : i;
    return ckpt_permute(t, y, axes);
}

ckpt_tensor loss_record(const struct loss *l, const struct signature *s, ckpt_tape *t,
                        const ckpt_tensor *out, ckpt_tensor target)
{
    ckpt_tensor x = ckpt_cast(t, out[l->output], CKPT_F32);
    const struct ckpt_desc d = ckpt_desc_of(t, x);

    if (l->kind == LOSS_OWN)
        return x;
    const int axes = d.ndim - (l->kind == LOSS_CE ? 1 : 0);
    const struct ckpt_desc y = ckpt_desc_of(t, target);
    if (axes >= 0 && y.ndim == axes + 1 && y.shape[0] == 1) /* a sample is a call of the model */
        target = ckpt_reshape(t, target, axes, y.shape + 1);
    target = turn(t, &s->out[l->output], target);
    if (l->kind == LOSS_CE)
        return record_classes(l, t, x, target);
    const struct ckpt_desc moved = ckpt_desc_of(t, target);
    if (moved.ndim >= 0 && d.ndim >= 0 && !has_shape(&moved, d.ndim, d.shape))
        return misfit(t, l, &d, &moved, "both must have the same sizes");
    return record_elements(l, t, x, target);
}
