/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of models trained with --qat: what is written of a weight that layers round, in the names
 * and shapes of compressed-tensors' "int-quantized" models.  Codes and scales follow from the
 * values as the model reads them, by the formulas of ops/fake_quantize.c, so the product of the two
 * is what the layers multiplied.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "core/json.h"
#include "dist/values.h"
#include "state/save.h"

enum { LOW = -128, HIGH = 127 };

/* The weight's name in the file without ".weight", as far as it has that. */
static int base_length(const char *name)
{
    const size_t n = strlen(name), end = strlen(".weight");
    return (int)(n > end && !strcmp(name + n - end, ".weight") ? n - end : n);
}

static const char *name_of(const struct save_item *s)
{
    return s->alias ? s->alias : params_at(&s->c->params, s->param)->name;
}

/* Makes item `to` from that of the codes. */
static int add(struct save_item *to, const struct save_item *codes, enum save_form form,
               ckpt_tensor param, ckpt_tensor more)
{
    static const char *const names[] = {
        [SAVE_INPUT_SCALE] = "input_scale", [SAVE_INPUT_ZERO] = "input_zero_point"};
    const char *weight = name_of(codes);
    *to = *codes;
    to->form = form;
    to->param = param;
    to->more = more;
    const int n = form == SAVE_SCALES
                      ? asprintf(&to->alias, "%s_scale", weight)
                      : asprintf(&to->alias, "%.*s.%s", base_length(weight), weight, names[form]);
    if (n >= 0)
        return 0;
    to->alias = NULL;
    return CKPT_ENOMEM;
}

int save_int8_items(struct save_item *items, const struct param *p)
{
    const struct params *ps = &items->c->params;
    const ckpt_tensor range = params_handle(ps, p->training.qat.range);
    int n = 1;
    items->form = SAVE_CODES;
    if (add(&items[n++], items, SAVE_SCALES, items->param, CKPT_NONE))
        return CKPT_ENOMEM;
    if (p->training.qat.ranges == QAT_LEARNED && add(&items[n++], items, SAVE_INPUT_SCALE, range,
                                                     params_handle(ps, p->training.qat.learned)))
        return CKPT_ENOMEM;
    for (enum save_form f = SAVE_INPUT_SCALE;
         p->training.qat.ranges == QAT_AVERAGE && f <= SAVE_INPUT_ZERO; f++)
        if (add(&items[n++], items, f, range, CKPT_NONE))
            return CKPT_ENOMEM;
    for (int i = 1; i < n; i++)
        items[i].slot = items[i].form == SAVE_SCALES ? items->slot : CKPT_VALUE;
    return n;
}

/* The axis of a file's tensor that is the first one of the parameter. */
static int row_axis(const struct param *p)
{
    int axis = 0;
    while (p->reordered && !p->file_view.ndim && p->file_axes[axis])
        axis++;
    return axis;
}

struct ckpt_desc save_int8_desc(const struct save_item *s)
{
    const struct param *p = params_at(&s->c->params, s->param);
    struct ckpt_desc d = {.dtype = CKPT_F32, .ndim = 1, .shape = {1}};
    if (s->form == SAVE_CODES || (s->form == SAVE_SCALES && !p->training.qat.whole))
        d = values_file_desc(p, s->slot);
    d.dtype = s->form == SAVE_CODES || s->form == SAVE_INPUT_ZERO ? CKPT_F8E4M3 : CKPT_F32;
    for (int i = 0; s->form == SAVE_SCALES && i < d.ndim; i++)
        d.shape[i] = i == row_axis(p) ? d.shape[i] : 1;
    desc_dense(&d);
    return d;
}

/* ---- values ---------------------------------------------------------------------------------- */

static float scale_of(const float *x, int64_t n)
{
    float largest = 0.f;
    for (int64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    return fmaxf(largest / ((HIGH - LOW) / 2.f), FLT_EPSILON);
}

static void encode(float *x, int64_t n, float scale)
{
    const float inverse = 1.f / scale;
    for (int64_t i = 0; i < n; i++)
        x[i] = fminf(fmaxf(rintf(x[i] * inverse), LOW), HIGH);
}

/* Replaces a weight's values by the codes of its rows, or by their scales. */
static void round_rows(const struct save_item *s, const struct param *p, float *values, int64_t n)
{
    const int64_t row = p->training.qat.whole ? n : n / p->desc.shape[0];
    if (p->desc.dtype == CKPT_BF16)
        param_narrow(values, n);
    for (float *x = values; x < values + n; x += row) {
        const float scale = scale_of(x, row);
        if (s->form == SAVE_CODES)
            encode(x, row, scale);
        for (int64_t i = 0; s->form == SAVE_SCALES && i < row; i++)
            x[i] = scale;
    }
}

/* Codes of a weight, or one scale of each of its rows, in the order of files. */
static int read_weight(const struct save_item *s, float *values, int64_t n, void *dst)
{
    const struct param *p = params_at(&s->c->params, s->param);
    struct ckpt_desc d = values_file_desc(p, s->slot), scales = save_int8_desc(s);
    float *in_file = malloc((size_t)n * sizeof *in_file);
    if (!in_file)
        return error_set(CKPT_ENOMEM, "no memory to write '%s'", name_of(s));
    round_rows(s, p, values, n);
    if (p->reordered)
        param_to_file(p, values, in_file);
    else
        memcpy(in_file, values, (size_t)n * sizeof *in_file);
    desc_dense(&d);
    for (int64_t i = 0; s->form == SAVE_CODES && i < n; i++)
        ((int8_t *)dst)[i] = (int8_t)in_file[i];
    for (int64_t i = 0; s->form == SAVE_SCALES && i < desc_numel(&scales); i++)
        ((float *)dst)[i] = in_file[i * d.stride[row_axis(p)]];
    free(in_file);
    return 0;
}

/* A range is {least, largest}, or the scale alone. */
static void read_range(const struct save_item *s, const float *range, int64_t n, void *dst)
{
    const float least = fminf(range[0], 0.f), largest = n > 1 ? fmaxf(range[1], 0.f) : 0.f;
    const float scale = fmaxf(n > 1 ? (largest - least) / (HIGH - LOW) : range[0], FLT_EPSILON);
    if (s->form == SAVE_INPUT_SCALE)
        *(float *)dst = scale;
    else
        *(int8_t *)dst = (int8_t)fminf(fmaxf(LOW - rintf(least / scale), LOW), HIGH);
}

int save_int8_read(const struct save_item *s, float *values, int64_t n, void *dst)
{
    const bool unset = n > 1 ? values[0] > values[1] : values[0] == 0.f;
    if (s->form == SAVE_CODES || s->form == SAVE_SCALES)
        return read_weight(s, values, n, dst);
    if (unset)
        return error_set(CKPT_EINVAL, "'%s' has no value before the first step", name_of(s));
    read_range(s, values, n, dst);
    return 0;
}

/* ---- settings -------------------------------------------------------------------------------- */

static void put_args(FILE *f, const char *key, const char *strategy, bool symmetric, bool dynamic)
{
    fprintf(f,
            ",\"%s\":{\"num_bits\":8,\"type\":\"int\",\"symmetric\":%s,\"strategy\":\"%s\","
            "\"dynamic\":%s}",
            key, symmetric ? "true" : "false", strategy, dynamic ? "true" : "false");
}

char *save_int8_config(const struct save_item *items, int n)
{
    enum qat_ranges ranges = QAT_NONE;
    char *text = NULL;
    size_t size;
    int named = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fputs("{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\","
          "\"quantization_status\":\"compressed\",\"config_groups\":{\"group_0\":{\"targets\":[",
          f);
    for (int i = 0; i < n; i++) {
        char *name = NULL;
        if (items[i].form != SAVE_CODES)
            continue;
        ranges = params_at(&items[i].c->params, items[i].param)->training.qat.ranges;
        if (asprintf(&name, "%.*s", base_length(name_of(&items[i])), name_of(&items[i])) < 0)
            continue;
        fputs(named++ ? "," : "", f);
        json_write_string(f, name);
        free(name);
    }
    fputs("]", f);
    put_args(f, "weights", "channel", true, false);
    put_args(f, "input_activations", ranges == QAT_DYNAMIC ? "token" : "tensor",
             ranges != QAT_AVERAGE, ranges == QAT_DYNAMIC);
    fputs("}}}", f);
    text_close(f, &text);
    return text;
}
