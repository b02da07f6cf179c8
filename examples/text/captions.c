/* SPDX-License-Identifier: Apache-2.0 */
/* The prompts of a sampler: see captions.h. */
#include <stdio.h>
#include <string.h>
#include "captions.h"
#include "ckpt_tools.h"
#include "reader.h"

enum { PASS = 16 }; /* prompts per pass over the weights, as in text-encode */

int text_captions_read(const struct text_captions *c, const struct prompts *p,
                       struct text_features *f)
{
    struct text_reader r;
    char path[4096];

    if (text_features_open(f, p->n))
        return -1;
    int rc = text_reader_open(&r,
                              c->tokenizer ? c->tokenizer : text_tokenizer_path(c->encoder, path),
                              text_reading(f->family));
    for (int64_t i = 0; i < p->n && !rc; i++)
        rc = text_reader_read(&r, p->text[i], p->line[i], f->ids + i * f->length, f->length,
                              &f->lengths[i]);
    if (!rc) {
        text_reader_report(&r, c->from, f->length);
        f->pieces = r.tokenizer.count;
    }
    text_reader_close(&r);
    return rc;
}

int text_captions_encode(const struct text_captions *c, struct text_features *f, bool show)
{
    struct text_reading reading = text_reading(f->family);
    struct text_encoder e;

    reading.length = f->length;
    int rc = text_encoder_open(&e, c->library, c->encoder, f->dtype, reading,
                               f->n < PASS ? f->n : PASS);
    f->width = e.width;
    if (!rc)
        rc = text_encoder_check(&e, f->pieces);
    if (!rc && show) {
        ckpt_plan_print(e.program, stdout);
        fflush(stdout);
    }
    if (!rc && !c->library->plan_only)
        rc = text_features_encode(f, &e, NULL, NULL);
    text_encoder_close(&e);
    return rc;
}

void text_captions_rows(const struct text_features *f, float *y)
{
    int64_t numel = f->n * f->length * f->width;

    if (!f->rows)
        memset(y, 0, (size_t)numel * sizeof *y);
    else if (f->dtype == CKPT_BF16)
        ckpt_from_bf16((const uint16_t *)(const void *)f->rows, y, numel);
    else
        memcpy(y, f->rows, (size_t)numel * sizeof *y);
}
