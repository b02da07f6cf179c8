/* SPDX-License-Identifier: Apache-2.0 */
/* Products with GELU or a gate as separate kernels: see parts.h. */
#include <string.h>
#include "attr.h"
#include "core/base.h"
#include "extra.h"
#include "kernels/parts.h"

/* ---- GELU ------------------------------------------------------------------------------------ */

int linear_gelu_by_parts(const struct ckpt_kernel_args *a, const struct linear_gelu_parts *parts)
{
    struct ckpt_kernel_args product = *a, gelu = *a;
    const struct ckpt_view *pre = &a->out[a->out[0].data ? 0 : 1];
    product.n_out = gelu.n_in = gelu.n_out = 1;
    product.out = gelu.in = pre;
    gelu.out = &a->out[1];
    const int rc = pre->data ? parts->product(&product) : CKPT_OK;
    return rc || !a->out[1].data ? rc : parts->gelu(&gelu);
}

/* The product's result is overwritten by the gradient of GELU.  That kernel writes the extra
 * outputs but GELU, which is the last one. */
int linear_dx_gelu_by_parts(const struct ckpt_kernel_args *a, const struct linear_gelu_parts *parts)
{
    const struct ckpt_view pre = a->in[parts->pre], of_dx[] = {a->out[0], pre};
    const int post = extra_index(a->extra, a->n_out, EXTRA_GELU);
    struct ckpt_view of_product[LINEAR_DX_OPERANDS + 1];
    struct ckpt_kernel_args product = *a, dx = *a, gelu = *a;
    memcpy(of_product, a->in, (size_t)parts->pre * sizeof *of_product);
    of_product[parts->pre] = (struct ckpt_view){.desc = {.ndim = -1}}; /* no addend */
    product.in = of_product;
    product.n_out = gelu.n_in = gelu.n_out = 1;
    dx.in = of_dx;
    dx.n_in = 2;
    product.extra = gelu.extra = 0;
    if (post >= 0) {
        dx.n_out--;
        dx.extra &= (1u << 4 * (extra_count(a->extra) - 1)) - 1;
    }
    gelu.in = &pre;
    gelu.out = &a->out[max_i64(0, post)];
    int rc = parts->product(&product);
    if (!rc)
        rc = parts->dx(&dx);
    return rc || post < 0 ? rc : parts->gelu(&gelu);
}

/* ---- gate ------------------------------------------------------------------------------------ */

int64_t linear_gated_scratch(const struct ckpt_desc *gate)
{
    return round_up(desc_bytes(gate), GATED_ALIGN);
}

/* Calls a kernel with one result and the workspace after the first `taken` bytes. */
static int call_part(const struct ckpt_kernel_args *a, ckpt_kernel kernel, int n_in,
                     const struct ckpt_view *in, const struct ckpt_view *out, int64_t taken)
{
    struct ckpt_kernel_args own = *a;
    struct ckpt_view result = *out;
    own.n_in = n_in;
    own.in = in;
    own.n_out = 1;
    own.out = &result;
    own.workspace = (char *)a->workspace + taken;
    own.workspace_bytes = a->workspace_bytes - taken;
    return kernel(&own);
}

/* Places an absent result into the workspace and sets *taken to its bytes.  Fails if the workspace
 * is too small. */
static int place_in_workspace(const struct ckpt_kernel_args *a, struct ckpt_view *result,
                              int64_t *taken)
{
    *taken = linear_gated_scratch(&result->desc);
    if (a->workspace_bytes < *taken)
        return CKPT_EDEVICE;
    result->data = a->workspace;
    return CKPT_OK;
}

/* If gate is absent, it is computed in h, where its SiLU is computed, too. */
int linear_gated_by_parts(const struct ckpt_kernel_args *a, const struct linear_gated_parts *parts)
{
    const struct ckpt_view none = {.desc = {.ndim = -1}}, h = a->out[2];
    const struct ckpt_view of_gate[] = {a->in[0], a->in[1], none};
    const struct ckpt_view of_up[] = {a->in[0], a->in[2], none};
    struct ckpt_view up = a->out[1];
    const struct ckpt_view gate = a->out[0].data ? a->out[0] : h;
    int64_t taken = 0;
    int rc = h.data && !up.data ? place_in_workspace(a, &up, &taken) : CKPT_OK;
    if (!rc && gate.data)
        rc = call_part(a, parts->product, 3, of_gate, &gate, taken);
    if (!rc && up.data)
        rc = call_part(a, parts->product, 3, of_up, &up, taken);
    if (!rc && h.data)
        rc = call_part(a, parts->silu, 1, &gate, &h, taken);
    if (!rc && h.data)
        rc = call_part(a, parts->mul, 2, (struct ckpt_view[]){h, up}, &h, taken);
    return rc;
}

/* The gradient of h is first stored in dup. */
int linear_dx_gated_by_parts(const struct ckpt_kernel_args *a,
                             const struct linear_gated_parts *parts)
{
    const struct ckpt_view none = {.desc = {.ndim = -1}}, gate = a->in[2], up = a->in[3];
    const struct ckpt_view of_product[] = {a->in[0], a->in[1], none};
    const struct ckpt_view *dgate = &a->out[0], *dup = &a->out[1];
    struct ckpt_view silu = a->n_out > 2 ? a->out[2] : (struct ckpt_view){.desc = gate.desc};
    int64_t taken = 0;
    int rc = silu.data ? CKPT_OK : place_in_workspace(a, &silu, &taken);
    if (!rc)
        rc = call_part(a, parts->product, 3, of_product, dup, taken);
    if (!rc)
        rc = call_part(a, parts->mul, 2, (struct ckpt_view[]){*dup, up}, dgate, taken);
    if (!rc)
        rc = call_part(a, parts->silu_dx, 2, (struct ckpt_view[]){*dgate, gate}, dgate, taken);
    if (!rc)
        rc = call_part(a, parts->silu, 1, &gate, &silu, taken);
    if (!rc)
        rc = call_part(a, parts->mul, 2, (struct ckpt_view[]){*dup, silu}, dup, taken);
    if (!rc && a->n_out > 2)
        rc = call_part(a, parts->mul, 2, (struct ckpt_view[]){silu, up}, &silu, taken);
    return rc;
}
