/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters: what each is, and which of its slots (its value and the state of the optimizer) has
 * a place and a value.  Knows nothing of devices, tiers or ranks: code that moves bytes reads the
 * place here, and marks a slot as filled.
 */
#ifndef CKPT_PARAMS_H
#define CKPT_PARAMS_H

#include "core/base.h"
#include "core/backing.h"

enum {
    SLOT_VALUE,
    SLOT_MASTER,
    SLOT_EXP_AVG,
    SLOT_EXP_AVG_SQ,
    SLOT_EMA,
    SLOT_EXP_AVG_SQ_ROW,
    SLOT_EXP_AVG_SQ_COL,
    SLOT_COUNT
};

/* How the range of a layer's operand is found (--qat-ranges); QAT_NONE: its weight is not rounded.
 */
enum qat_ranges { QAT_NONE, QAT_AVERAGE, QAT_LEARNED, QAT_DYNAMIC };

/* A learned scale is at least this part of that of the first step. */
#define QAT_LEAST 0.0625f

/* How its values are kept and trained: decided by options and by the calls of the train room,
 * before the first program is compiled. */
struct param_training {
    bool half_state; /* state in bf16: it has no master, and its element-wise means are bf16 */
    bool byte_state; /* with half_state: those means are in 8 bits (mean8.h) */
    int codes;       /* enum frozen_format: its value is kept in codes (frozen.h), never trained */
    int32_t lora;    /* of a weight: A of its first adapter; 0: none */
    struct {
        int32_t b, magnitude; /* of A [rank, in]: B [out, rank], and DoRA's [out] or 0 */
        int32_t next;         /* A of the weight's next adapter; 0: none */
        float alpha, scale, dropout;
    } factor;
    bool adapter; /* it is a LoRA parameter itself */
    bool whole;   /* trained beside adapters */
    struct {
        enum qat_ranges ranges; /* layers round it, and what it multiplies (ops/fake_quantize.c) */
        int32_t range, learned; /* parameters: a buffer, and the trained part of a scale; or 0 */
        bool used, whole;       /* a program rounds it; with one scale, not one for each row */
        bool is_range;          /* it is such a parameter itself */
    } qat;
};

/* Where its values lie: decided by the memory and the ranks of a context. */
struct param_place {
    bool bucket;         /* several ranks: holds several parameters, which are trained as one */
    void *initial;       /* the value set on the host, until a slot holds it: fp32, bf16 or codes */
    bool initial_narrow; /* initial is bf16, because that loses no bit */
    bool set_narrow;     /* initial was bf16 and is dropped: VALUE has every bit */
    enum backing backing[SLOT_COUNT]; /* memory of a slot between steps */
    int64_t offset[SLOT_COUNT];       /* in the arena or the tier; -1: it has no place yet */
    bool crosses[SLOT_COUNT];         /* its copy out of the arena runs into the next step, at */
    int64_t crossing[SLOT_COUNT];     /* this address above the persistent bytes */
    bool filled[SLOT_COUNT];          /* its bytes hold a value */
    uint64_t set[CKPT_EXP_AVG_SQ_COL + 1]; /* several ranks: a digest of the value that was set;
                                              0: none */
    uint64_t base;  /* digest of the value in the file of weights that it was loaded from; 0: it
                       has another value, or nobody asked (params.base) */
    int32_t stage;  /* of a pipeline: the one that trains it, from 1 on; 0: each rank has it */
    bool elsewhere; /* this rank is no stage that has it */
    unsigned kept;  /* the slots that its stage keeps, as bits 1 << enum ckpt_slot */
    int64_t part, part_first; /* part > 0: slots but VALUE hold these elements only */
};

/*
 * A parameter of which each rank of a tensor group has a part (ckpt_param_split): equal parts of an
 * axis, or of each of several equal blocks of it.  Its values lie in the order of parts: all of the
 * first rank's, then those of the next.  desc is that of the whole.
 */
struct param_split {
    int ranks; /* below 2: it is not split */
    int axis;
    int64_t blocks;
};

/* What the program said of it, and what was decided since. */
struct param {
    char *name;
    struct ckpt_desc desc;
    struct ckpt_init init;
    bool trainable;
    bool cache;                   /* written by programs while they run (ckpt_cache): in no file */
    bool updated;                 /* a buffer that programs write (ckpt_update_buffer) */
    bool reordered;               /* files have its axes in another order: */
    int file_axes[CKPT_MAX_DIMS]; /* axis i of a file is this axis of file_view */
    struct ckpt_desc file_view;   /* view of the parameter; ndim 0: its own desc */
    char **file_parts; /* names of the tensors that files store it as, n_file_parts; or NULL */
    int n_file_parts;
    struct param_split split;
    struct param_training training;
    struct param_place place;
};

/* A load stopped midway: some values, or parts of a state, are from the file and some are old. */
enum torn { TORN_NOT, TORN_VALUES, TORN_STATE };

struct params {
    uint32_t owner; /* owner of their handles: see handle_owner */
    struct param *data;
    int64_t capacity;
    int32_t n;           /* hidden ones, if any, are the last */
    int32_t n_hidden;    /* buckets of the layout, each a parameter of its own */
    bool half_state;     /* default for new bf16 parameters: --state bf16 or 8bit */
    bool byte_state;     /* the same: --state 8bit */
    struct error failed; /* of ckpt_param, ckpt_adamw or the like, until ckpt_compile returns it */
    int64_t updates;     /* optimizer steps so far */
    int64_t lost;        /* the step that failed and left the weights incomplete, or 0 */
    bool differ;         /* lost because the ranks have come to differ */
    enum torn torn;
    struct error *late; /* of a save in a thread, which sets it; read it atomically */
    char *base;         /* what frozen weights were loaded from, in words: states leave them out;
                           NULL: states have them (ckpt_state_base) */
    bool base_planned;  /* with base: nothing is loaded, but would be */
};

void params_free(struct params *ps);

/* The --state of any parameter: "bf16", "8bit", or NULL if all have fp32 state. */
const char *params_small_state(const struct params *ps);

/* The formats of values in codes: "int8", "nf4", "int8 and nf4"; NULL if there are none. */
const char *params_frozen(const struct params *ps);

/* The handle of parameter i. */
ckpt_tensor params_handle(const struct params *ps, int32_t i);

/* The parameter of a handle, or NULL; hidden parameters have no handle. */
struct param *params_at(const struct params *ps, ckpt_tensor x);

/* Fails with the error of a save in a thread, which nobody has seen. */
int params_check_late(const struct params *ps);
/* Whether states leave out its value, because it is still that of a file of weights. */
bool param_is_apart(const struct params *ps, const struct param *p);

/* Return 0, or CKPT_EDEVICE and the sentence if the weights are lost; params_check_whole also
 * returns CKPT_EIO if a load stopped midway and mixed old and new values. */
int params_check_lost(const struct params *ps);
int params_check_whole(const struct params *ps);

/* params_fail: keeps a failure of this code, whose sentence was just written, for the next
 * ckpt_compile, unless an earlier one is kept; returns the code.  params_take_failure: fails with
 * the kept one; returns its code, 0 without one. */
int params_fail(struct params *ps, int code);
int params_take_failure(struct params *ps);

/* Dense shape of a slot: the parameter's, except for factors; of its part if it is cut.  VALUE has
 * the parameter's dtype, other slots fp32 unless half_state; codes are words (mean8.h, frozen.h).
 */
struct ckpt_desc param_slot_desc(const struct param *p, int slot);
/* The number of values of a slot, however they are stored, and its bytes. */
int64_t param_slot_numel(const struct param *p, int slot);
int64_t param_slot_bytes(const struct param *p, int slot);

/* Whether a slot is kept in codes: a mean in 8 bits, or a value that is not trained (frozen.h). */
bool param_slot_is_coded(const struct param *p, int slot);

/* Convert all n values of such a slot to its words, and back. */
void param_slot_encode(const struct param *p, int slot, const float *src, int64_t n, void *words);
void param_slot_decode(const struct param *p, int slot, const void *words, int64_t n, float *dst);

/* Whether it has an fp32 master beside its value once it is trained. */
static inline bool param_has_master(const struct param *p)
{
    return p->desc.dtype == CKPT_BF16 && !p->training.half_state;
}

/* Whether its value is bf16 and nothing more exact is ever kept. */
static inline bool param_is_narrow(const struct param *p)
{
    return p->desc.dtype == CKPT_BF16 &&
           (p->training.half_state || (!p->trainable && !p->place.bucket));
}

/* Rounds x to bf16. */
void param_narrow(float *x, int64_t n);

/* Keeps all values of p on the host, in the fewest bytes that lose none.  Returns 0 or CKPT_ENOMEM.
 */
int param_keep_initial(struct param *p, const float *src);
/* Reads n of the kept values, from element `first` on; of codes it reads all. */
void param_read_initial(const struct param *p, int64_t first, int64_t n, float *dst);
void param_drop_initial(struct param *p);
/* Returns freed memory to the system after many values were dropped; otherwise the heap keeps all
 * that lies below a small block in use, which may be the codes of a model. */
void params_trim_heap(void);

/* Shape of a parameter in files; strides have no meaning. */
struct ckpt_desc param_file_desc(const struct param *p);
/* The same of a part, if files have it in parts. */
struct ckpt_desc param_part_desc(const struct param *p);

/* Copy all values of a parameter whose axes are reordered, from its own order to that of files, and
 * back. */
void param_to_file(const struct param *p, const float *src, float *dst);
void param_from_file(const struct param *p, const float *src, float *dst);

/* Of a split parameter (param_split.c): the dense shape of a part; copies of all values from the
 * order of its axes to that of parts, and back; the element of the whole at a place in the order of
 * parts, with the number of elements that follow each other in both from there on. */
struct ckpt_desc param_part_of(const struct param *p);
void param_to_parts(const struct param *p, const float *src, float *dst);
void param_from_parts(const struct param *p, const float *src, float *dst);
int64_t param_split_element(const struct param *p, int64_t at, int64_t *run);

/* How a file orders values that lie in the order of parts: its axis i is axes[i] of the dense view.
 * False: axes of files are cut between two parts. */
bool param_split_view(const struct param *p, struct ckpt_desc *view, int *axes);

/* Fills dst with n initial values from element `first` on, of a split parameter in the order of
 * parts; they follow from (seed, name, init). */
void param_initialize(const struct param *p, uint64_t seed, int64_t first, int64_t n, float *dst);

#endif
