/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantization-aware training (--qat): which parameters are weights that layers round, and what is
 * remembered of the ranges of their operands.  A range is a parameter like any other, made right
 * after its weight, so planning, ranks, states and files need nothing new.  ops/fake_quantize.c
 * does the rounding.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include "context/context.h"

enum { PATTERNS = 1024 /* bytes of --qat-skip, at most */ };

static enum qat_ranges ranges_of(const char *name)
{
    static const char *const names[] = {
        [QAT_AVERAGE] = "average", [QAT_LEARNED] = "learned", [QAT_DYNAMIC] = "dynamic"};
    for (int i = QAT_AVERAGE; i <= QAT_DYNAMIC; i++)
        if (!strcmp(name ? name : "average", names[i]))
            return (enum qat_ranges)i;
    return QAT_NONE;
}

int qat_check(const struct ckpt_options *o)
{
    if (!o->qat && (o->qat_ranges || o->qat_skip))
        return error_set(CKPT_EINVAL, "--qat-%s %s changes nothing without --qat int8",
                         o->qat_ranges ? "ranges" : "skip",
                         o->qat_ranges ? o->qat_ranges : o->qat_skip);
    if (o->qat && strcmp(o->qat, "int8"))
        return error_set(CKPT_EINVAL, "--qat %s: there is 'int8'", o->qat);
    if (o->qat_skip && strlen(o->qat_skip) >= PATTERNS)
        return error_set(CKPT_EINVAL, "--qat-skip: its patterns are longer than %d bytes",
                         PATTERNS - 1);
    if (!ranges_of(o->qat_ranges))
        return error_set(CKPT_EINVAL,
                         "--qat-ranges %s: there are 'average', 'learned' and 'dynamic'",
                         o->qat_ranges);
    if (o->qat && o->matmul && !strcmp(o->matmul, "fp8"))
        return error_set(CKPT_EINVAL, "--qat int8 and --matmul fp8 both round the operands of "
                                      "linear layers: leave one out");
    return 0;
}

/* Takes the next of the patterns between commas; false: there is none. */
static bool next_pattern(const char **patterns, char one[PATTERNS])
{
    if (!*patterns || !**patterns)
        return false;
    const size_t n = strcspn(*patterns, ",");
    snprintf(one, PATTERNS, "%.*s", (int)n, *patterns);
    *patterns += n + ((*patterns)[n] == ',');
    return true;
}

static bool is_skipped(const char *patterns, const char *name)
{
    char one[PATTERNS];
    while (next_pattern(&patterns, one))
        if (!fnmatch(one, name, 0))
            return true;
    return false;
}

int qat_check_skip(const ckpt *c)
{
    const char *patterns = c->options.qat_skip;
    char one[PATTERNS];
    while (next_pattern(&patterns, one)) {
        bool found = false;
        for (int32_t i = 0; i < ckpt_param_count(c); i++)
            found |= !fnmatch(one, c->params.data[i].name, 0);
        if (!found)
            return error_set(CKPT_EINVAL, "--qat-skip %s: no parameter has such a name", one);
    }
    bool rounds = !c->options.qat_skip;
    for (int32_t i = 0; i < ckpt_param_count(c); i++)
        rounds |= c->params.data[i].training.qat.ranges != QAT_NONE;
    return rounds ? 0
                  : error_set(CKPT_EINVAL,
                              "--qat-skip %s: no weight is left to round: name fewer, or leave out "
                              "--qat",
                              c->options.qat_skip);
}

/* Makes NAME.WHAT for the weight NAME.weight; returns its index, or a negative code that sticks. */
static int32_t add_range(ckpt *c, const char *weight, const char *what, int64_t n,
                         const float *values, bool trained)
{
    const size_t length = strlen(weight), end = strlen(".weight");
    const bool ends = length > end && !strcmp(weight + length - end, ".weight");
    char *name;
    if (asprintf(&name, "%.*s.%s", (int)(length - (ends ? end : 0)), weight, what) < 0)
        return params_fail(&c->params, error_set(CKPT_ENOMEM, "no memory for a name"));
    ckpt_tensor x = ckpt_param_from(c, name, CKPT_F32, 1, &n, values, trained);
    free(name);
    if (!x.id)
        return c->params.failed.code;
    params_at(&c->params, x)->training.qat.is_range = true;
    return c->params.n - 1;
}

/* Making a parameter may move the array of them. */
int qat_mark(ckpt *c, int32_t i)
{
    const enum qat_ranges ranges = c->options.qat ? ranges_of(c->options.qat_ranges) : QAT_NONE;
    const struct param *p = &c->params.data[i];
    const char *name = p->name;
    int32_t range = 0, learned = 0;
    if (!ranges || !p->trainable || p->desc.ndim < 2 || is_skipped(c->options.qat_skip, name))
        return 0;
    if (ranges == QAT_AVERAGE)
        range = add_range(c, name, "input_range", 2, (float[]){1.f, -1.f}, false);
    if (ranges == QAT_LEARNED)
        range = add_range(c, name, "input_scale_start", 1, (float[]){0.f}, false);
    if (ranges == QAT_LEARNED && range > 0)
        learned = add_range(c, name, "input_scale_change", 1, (float[]){0.f}, true);
    if (range < 0 || learned < 0)
        return CKPT_EINVAL;
    c->params.data[i].training.qat.ranges = ranges;
    c->params.data[i].training.qat.range = range;
    c->params.data[i].training.qat.learned = learned;
    return 0;
}
