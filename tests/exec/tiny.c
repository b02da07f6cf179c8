/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "tiny.h"

static ckpt_tensor param(struct tiny *m, ckpt *c, const char *what, int block, int64_t rows,
                         int64_t columns, struct ckpt_init init)
{
    char name[64];
    snprintf(name, sizeof name, "blocks.%d.%s", block, what);
    int64_t shape[2] = {rows, columns};
    int ndim = columns ? 2 : 1;
    return m->param[m->n++] = ckpt_param(c, name, m->dtype, ndim, shape, init, true);
}

void tiny_create(struct tiny *m, ckpt *c)
{
    int64_t w = m->width;
    m->n = 0;
    param(m, c, "embed.weight", -1, w, w, CKPT_XAVIER);
    param(m, c, "embed.bias", -1, w, 0, CKPT_NORMAL(0.1f));
    param(m, c, "out.weight", -1, w, w, CKPT_XAVIER);
    param(m, c, "cond.weight", -1, w, w, CKPT_XAVIER);
    for (int b = 0; b < TINY_BLOCKS; b++) {
        param(m, c, "table", b, 3, w, CKPT_NORMAL(0.2f));
        param(m, c, "qkv.weight", b, 3 * w, w, CKPT_XAVIER);
        param(m, c, "qkv.bias", b, 3 * w, 0, CKPT_ZEROS);
        param(m, c, "qnorm", b, w / m->heads, 0, CKPT_ONES);
        param(m, c, "proj.weight", b, w, w, CKPT_XAVIER);
        param(m, c, "fc1.weight", b, 4 * w, w, CKPT_XAVIER);
        param(m, c, "fc1.bias", b, 4 * w, 0, CKPT_NORMAL(0.1f));
        param(m, c, "fc2.weight", b, w, 4 * w, CKPT_XAVIER);
        param(m, c, "fc2.bias", b, w, 0, CKPT_ZEROS);
    }
}

static ckpt_tensor attend(ckpt_tape *t, const struct tiny *m, const ckpt_tensor *p, ckpt_tensor u,
                          int64_t batch)
{
    int64_t d = m->width / m->heads;
    struct ckpt_attention_spec scaled = CKPT_ATTENTION_INIT;
    ckpt_tensor q[3], qkv = ckpt_linear(t, u, p[1], p[2]);
    scaled.scale = 0.25f;
    int64_t apart[] = {batch, m->length, 3, m->heads, d}, one[] = {batch, m->length, m->heads, d};
    ckpt_split(t, ckpt_reshape(t, qkv, 5, apart), 2, 3, q);
    for (int i = 0; i < 3; i++)
        q[i] = ckpt_reshape(t, q[i], 4, one);
    q[0] = ckpt_rms_norm(t, q[0], p[3], 1e-6f);
    q[1] = ckpt_rms_norm(t, q[1], p[3], 1e-6f); /* a parameter used twice */
    ckpt_tensor o = ckpt_attention(t, q[0], q[1], q[2], CKPT_NONE, &scaled);
    return ckpt_linear(t, ckpt_reshape(t, o, 3, (int64_t[]){batch, m->length, m->width}), p[4],
                       CKPT_NONE);
}

static ckpt_tensor block(ckpt_tape *t, const struct tiny *m, int b, ckpt_tensor x, ckpt_tensor cond,
                         int64_t batch)
{
    const ckpt_tensor *p = &m->param[4 + b * TINY_PER_BLOCK];
    ckpt_tensor row[3];
    ckpt_label(t, "blocks.%d", b);
    ckpt_split(t, ckpt_add(t, cond, p[0]), 1, 3, row); /* cond is used by every block */
    ckpt_tensor u =
        ckpt_modulate(t, ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, 1e-6f), row[0], row[1]);
    x = ckpt_gated_residual(t, x, row[2], attend(t, m, p, u, batch));
    u = ckpt_gelu_tanh(
        t, ckpt_linear(t, ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, 1e-6f), p[5], p[6]));
    return ckpt_add(t, x, ckpt_linear(t, u, p[7], p[8]));
}

ckpt_tensor tiny_record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct tiny *m = user;
    int64_t w = m->width, shape[] = {batch, m->length, w};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, shape);
    ckpt_tensor c = ckpt_input(t, "c", CKPT_F32, 2, (int64_t[]){batch, w});
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 3, shape);
    ckpt_tensor h = ckpt_cast(t, ckpt_add(t, x, ckpt_affine(t, noise, 0.1f, 0.f)), m->dtype);
    ckpt_tensor cond =
        ckpt_linear(t, ckpt_silu(t, ckpt_cast(t, c, m->dtype)), m->param[3], CKPT_NONE);
    cond = ckpt_reshape(t, cond, 3, (int64_t[]){batch, 1, w});
    h = ckpt_linear(t, h, m->param[0], m->param[1]);
    for (int b = 0; b < TINY_BLOCKS; b++)
        h = block(t, m, b, h, cond, batch);
    h = ckpt_linear(t, ckpt_layer_norm(t, h, CKPT_NONE, CKPT_NONE, 1e-6f), m->param[2], CKPT_NONE);
    for (int i = 0; i < m->n && !m->no_gradients; i++) {
        char name[32];
        snprintf(name, sizeof name, "grad.%d", i);
        ckpt_output_gradient(t, name, m->param[i]);
    }
    ckpt_output(t, "h", h);
    return ckpt_mse(t, h, ckpt_affine(t, x, -1.f, 0.5f), CKPT_NONE);
}

struct ckpt_adamw tiny_adamw(void)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    a.lr = 1e-3f;
    a.clip_norm = 0.5f;
    a.ema_decay = 0.9f;
    a.weight_decay = 0.01f;
    return a;
}

static int feed(ckpt_program *p, const struct tiny *m, int step)
{
    int64_t nx = m->batch * m->length * m->width, nc = m->batch * m->width;
    float *x = malloc((size_t)(nx + nc) * sizeof *x);
    ckpt_fill_normal(7, (uint64_t)step, 1, x, nx + nc);
    int rc = ckpt_feed(p, "x", x, nx * 4);
    if (!rc)
        rc = ckpt_feed(p, "c", x + nx, nc * 4);
    free(x);
    return rc;
}

static void collect(ckpt *c, ckpt_program *p, const struct tiny *m, struct tiny_result *r)
{
    r->numel = 0;
    for (int i = 0; i < m->n; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, m->param[i], &info);
        r->numel += info.numel;
    }
    size_t bytes = (size_t)r->numel * sizeof(float);
    r->gradients = malloc(bytes);
    r->values = malloc(bytes);
    r->ema = calloc(1, bytes);
    int64_t at = 0;
    for (int i = 0; i < m->n; i++) {
        char name[32];
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, m->param[i], &info);
        snprintf(name, sizeof name, "grad.%d", i);
        ckpt_fetch(p, name, r->gradients + at, info.numel * 4);
        ckpt_param_get(c, m->param[i], CKPT_VALUE, r->values + at, info.numel);
        ckpt_param_get(c, m->param[i], CKPT_EMA, r->ema + at, info.numel);
        at += info.numel;
    }
    r->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, &r->info);
}

int tiny_train(struct tiny m, const struct ckpt_options *opt, const struct ckpt_adamw *adamw,
               int steps, struct tiny_result *r, char message[1024])
{
    ckpt *c;
    ckpt_program *p = NULL;
    memset(r, 0, sizeof *r);
    int rc = ckpt_open(&c, opt);
    if (rc) {
        snprintf(message, 1024, "%s", ckpt_error(NULL));
        return rc;
    }
    tiny_create(&m, c);
    rc = ckpt_compile(c, tiny_record, &m, adamw ? ckpt_adamw(c, adamw) : NULL, m.batch, &p);
    for (int s = 0; s < steps && !rc; s++) {
        rc = feed(p, &m, s);
        if (!rc)
            rc = ckpt_step(p, &r->loss[s]);
        if (!rc) {
            r->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
            ckpt_program_info(p, &r->info);
            r->norm[s] = r->info.grad_norm;
            r->steps = s + 1;
        }
    }
    if (!rc)
        collect(c, p, &m, r);
    snprintf(message, 1024, "%s", ckpt_error(c));
    ckpt_close(c);
    return rc;
}

void tiny_result_free(struct tiny_result *r)
{
    free(r->gradients);
    free(r->values);
    free(r->ema);
    memset(r, 0, sizeof *r);
}

bool tiny_same(const struct tiny_result *a, const struct tiny_result *b)
{
    size_t bytes = (size_t)a->numel * sizeof(float);
    return a->steps == b->steps && a->numel == b->numel &&
           !memcmp(a->loss, b->loss, sizeof *a->loss * (size_t)a->steps) &&
           !memcmp(a->norm, b->norm, sizeof *a->norm * (size_t)a->steps) &&
           !memcmp(a->gradients, b->gradients, bytes) && !memcmp(a->values, b->values, bytes) &&
           !memcmp(a->ema, b->ema, bytes);
}
