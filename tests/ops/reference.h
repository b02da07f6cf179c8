/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every differentiable op as plain fp64 loops, written from the definitions in ckpt.h.  Nothing is
 * shared with the library, and nothing is optimized.
 */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include "ckpt.h"

/* A dense row-major tensor; integers are stored as doubles too.  ndim -1: absent. */
struct array {
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t n;
    double *x;
};

/* Everything an op may need to know besides its operands. */
struct op_attr {
    int axis;
    int64_t begin, end;
    int axes[CKPT_MAX_DIMS];
    unsigned mask;
    double a, b, eps, scale;
    int64_t size[CKPT_MAX_DIMS]; /* a shape or patch sizes */
    int n_size;
    int64_t conv[3][3]; /* strides, padding before, padding after, of three axes */
};

/* Sets the shape and allocates zeros; ends the test program if there is no memory. */
void array_init(struct array *a, int ndim, const int64_t *shape);
void array_free(struct array *a);
/* The index in b of element `index` of `like` under NumPy broadcasting. */
int64_t array_broadcast(const struct array *like, const struct array *b, int64_t index);

/* Inputs in the order of the public call; *out is made here. */
typedef void (*reference_op)(const struct array *in, struct array *out, const struct op_attr *a);

void ref_linear(const struct array *in, struct array *out, const struct op_attr *a);
void ref_add(const struct array *in, struct array *out, const struct op_attr *a);
void ref_sub(const struct array *in, struct array *out, const struct op_attr *a);
void ref_mul(const struct array *in, struct array *out, const struct op_attr *a);
void ref_affine(const struct array *in, struct array *out, const struct op_attr *a);
void ref_where(const struct array *in, struct array *out, const struct op_attr *a);
void ref_gelu(const struct array *in, struct array *out, const struct op_attr *a);
void ref_silu(const struct array *in, struct array *out, const struct op_attr *a);
void ref_identity(const struct array *in, struct array *out, const struct op_attr *a);
void ref_reshape(const struct array *in, struct array *out, const struct op_attr *a);
void ref_permute(const struct array *in, struct array *out, const struct op_attr *a);
void ref_slice(const struct array *in, struct array *out, const struct op_attr *a);
void ref_concat(const struct array *in, struct array *out, const struct op_attr *a); /* of 3 */
void ref_sum(const struct array *in, struct array *out, const struct op_attr *a);
void ref_mean(const struct array *in, struct array *out, const struct op_attr *a);

void ref_layer_norm(const struct array *in, struct array *out, const struct op_attr *a);
void ref_rms_norm(const struct array *in, struct array *out, const struct op_attr *a);
void ref_modulate(const struct array *in, struct array *out, const struct op_attr *a);
void ref_layer_norm_modulate(const struct array *in, struct array *out, const struct op_attr *a);
void ref_gated_residual(const struct array *in, struct array *out, const struct op_attr *a);
void ref_rope(const struct array *in, struct array *out, const struct op_attr *a);
void ref_rms_norm_rope(const struct array *in, struct array *out, const struct op_attr *a);
void ref_attention(const struct array *in, struct array *out, const struct op_attr *a);
void ref_cross_attention(const struct array *in, struct array *out, const struct op_attr *a);
void ref_pack(const struct array *in, struct array *out, const struct op_attr *a);
void ref_timestep_embedding(const struct array *in, struct array *out, const struct op_attr *a);
void ref_patchify(const struct array *in, struct array *out, const struct op_attr *a);
void ref_unpatchify(const struct array *in, struct array *out, const struct op_attr *a);
void ref_mse(const struct array *in, struct array *out, const struct op_attr *a);
void ref_cross_entropy(const struct array *in, struct array *out, const struct op_attr *a);

void ref_conv(const struct array *in, struct array *out, const struct op_attr *a);
void ref_group_norm_silu(const struct array *in, struct array *out, const struct op_attr *a);
void ref_upsample_nearest(const struct array *in, struct array *out, const struct op_attr *a);
void ref_l1(const struct array *in, struct array *out, const struct op_attr *a);
void ref_kl_normal(const struct array *in, struct array *out, const struct op_attr *a);
void ref_sample_normal(const struct array *in, struct array *out, const struct op_attr *a);
void ref_relu(const struct array *in, struct array *out, const struct op_attr *a);
void ref_max_pool(const struct array *in, struct array *out, const struct op_attr *a);
void ref_feature_distance(const struct array *in, struct array *out, const struct op_attr *a);
void ref_commitment(const struct array *in, struct array *out, const struct op_attr *a);

/* The first of the nearest entries of a codebook to a row, and its squared distance. */
int64_t ref_nearest(const struct array *book, const double *z, double *least);

#endif
