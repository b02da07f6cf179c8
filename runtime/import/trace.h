/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a recorder, noted to be written as C (source.h).  A file that includes calls.h makes
 * its calls by the functions here, which do what those of ckpt.h do; between trace_begin and
 * trace_end they also note what was called.
 */
#ifndef CKPT_IMPORT_TRACE_H
#define CKPT_IMPORT_TRACE_H

#include "ckpt.h"
#include "ckpt_conv.h"
#include "ckpt_ops.h"
#include "import/heap.h"

/* The bytes of ckpt_constant. */
struct traced_constant {
    struct ckpt_desc desc;
    const void *data;
};

/*
 * A call as text with places for what differs between recordings and layers: '%' is the next of
 * the operands, '#' and '@' are the next of the numbers, a size of a shape and another one.
 */
struct traced {
    const char *name; /* without "ckpt_" */
    const char *text; /* its arguments behind the tape */
    const char *label;
    int n_operands, n_numbers, n_results;
    int32_t *operand; /* a tensor of the tape; 0: none; below 0: -1 - a parameter */
    int64_t *number;
    int32_t *result;
    const struct traced_constant *constant; /* NULL: it is another call */
};

struct trace {
    struct {
        struct traced *data;
        int64_t capacity;
    } calls;
    int32_t n_calls;
    int32_t label; /* of the last call; its copy: */
    const char *label_text;
    struct heap heap;
    int failed; /* the code of the first failure to note a call */
};

/* Calls of this thread on the tape are noted until trace_end. */
void trace_begin(struct trace *tr, const ckpt_tape *t);
void trace_end(void);
void trace_free(struct trace *tr);
/* A text as a literal of C, without '%', '#', '@' and '$'. */
const char *source_quoted(const char *text, char *to, size_t size);
/* A constant of type float, which is read back as the same value. */
const char *source_float(double f, char *to, size_t size);

#define TRACED_CALLS(X)                                                                            \
    X(adaptive_max_pool)                                                                           \
    X(masked_mean) X(one_hot) X(abs) X(adaptive_avg_pool) X(add) X(affine) X(amax) X(amin) X(and)  \
        X(argmax) X(argsort) X(attention) X(avg_pool) X(batch_norm) X(batch_norm_apply) X(         \
            bce_with_logits) X(bernoulli) X(cast) X(clamp) X(concat) X(constant) X(conv)           \
            X(conv_transpose) X(cos) X(cross_entropy) X(cumsum) X(div) X(dropout) X(elu) X(        \
                embedding) X(eq) X(erf) X(exp) X(expand) X(expm1) X(flip) X(floor) X(full)         \
                X(gated_residual) X(gather) X(ge) X(gelu_erf) X(gelu_tanh) X(group_norm_silu) X(   \
                    grouped_matmul) X(gt) X(huber) X(index_add) X(index_select) X(input)           \
                    X(instance_norm) X(iota) X(kl_div) X(layer_norm) X(layer_norm_modulate) X(le)  \
                        X(leaky_relu) X(linear) X(linear_add) X(linear_cross_entropy) X(log)       \
                            X(log1p) X(log_softmax) X(logsumexp) X(lt) X(matmul) X(max_pool)       \
                                X(maximum) X(mean) X(minimum) X(mish) X(mul) X(ne) X(neg) X(norm)  \
                                    X(not ) X(or) X(pad) X(permute) X(pixel_shuffle) X(pow)        \
                                        X(pow_scalar) X(prod) X(randn) X(relu) X(reshape)          \
                                            X(resize_linear) X(resize_nearest) X(rms_norm) X(roll) \
                                                X(rope) X(rope_halves)                             \
                                                    X(round) X(rsqrt) X(scatter_add) X(sigmoid) X( \
                                                        sign) X(silu) X(sin) X(slice) X(smooth_l1) \
                                                        X(softmax) X(softplus) X(sort) X(sqrt)     \
                                                            X(squeeze) X(stop_gradient) X(sub)     \
                                                                X(sum) X(tanh) X(topk)             \
                                                                    X(transpose) X(unsqueeze)      \
                                                                        X(update_buffer)           \
                                                                            X(upsample_nearest)    \
                                                                                X(var) X(where)

#define X(name) __typeof__(ckpt_##name) traced_##name;
TRACED_CALLS(X)
#undef X

#endif
