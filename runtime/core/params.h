/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters: what each is, and which of its slots (its value and the state of the optimizer) has
 * a place and a value.  Knows nothing of devices, tiers or ranks: who moves bytes asks for the
 * place, and says when it is filled.
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

struct param {
    char *name;
    struct ckpt_desc desc;
    struct ckpt_init init;
    bool trainable;
    bool cache;      /* what programs write while they run (ckpt_cache): it is in no file */
    bool bucket;     /* of several ranks: those of several parameters, trained as these are */
    bool half_state; /* in bf16: it has no master, and its element-wise means are bf16 too */
    bool byte_state; /* with half_state: those means are in 8 bits (mean8.h) */
    int codes;       /* enum frozen_format: its value is kept in codes (frozen.h), never trained */
    void *initial;   /* the value set on the host, until a slot has all of it: fp32, of codes */
    bool initial_narrow;              /* the words, or where bf16 has all of it bf16 */
    bool set_narrow;                  /* it was; since it went VALUE has all of what was set */
    enum backing backing[SLOT_COUNT]; /* where a slot lives between steps */
    int64_t offset[SLOT_COUNT];       /* in the arena or the tier; -1: it has no place yet */
    bool crosses[SLOT_COUNT];         /* the copy out of the arena goes on in the next step, from */
    int64_t crossing[SLOT_COUNT];     /* this address above the persistent bytes */
    bool filled[SLOT_COUNT];          /* its bytes hold a value */
    uint64_t set[CKPT_EXP_AVG_SQ_COL +
                 1];          /* of several ranks: a digest of what was set; 0: nothing was */
    int64_t part, part_first; /* part > 0: slots but VALUE are of so many elements from here on */
    struct {
        int32_t a, b; /* of LoRA: parameters [rank, in] and [out, rank]; 0, 0: none */
        float scale;
    } lora;
    bool adapter;                 /* it is one of those two */
    bool reordered;               /* files have its values in another order, see below */
    int file_axes[CKPT_MAX_DIMS]; /* that of these axes */
    struct ckpt_desc file_view;   /* of it, which the axes are of; ndim 0: its own */
};

/* A load ended midway: values, or whole states, are some of the file and some of before. */
enum torn { TORN_NOT, TORN_VALUES, TORN_STATE };

struct params {
    uint32_t owner; /* of the handles of these: see handle_owner */
    struct param *data;
    int64_t capacity;
    int32_t n;        /* the hidden ones, if any, are the last */
    int32_t n_hidden; /* buckets of the layout, each a parameter of its own */
    bool half_state;  /* of those in bf16 that are made: --state bf16, or */
    bool byte_state;  /* also --state 8bit */
    int failed;       /* sticky: the code of a ckpt_param or ckpt_adamw that made none */
    int64_t updates;  /* optimizer steps so far */
    int64_t lost;     /* the step that failed and left the weights in pieces, or 0 */
    bool differ;      /* it was the ranks that have come to differ */
    enum torn torn;
};

void params_free(struct params *ps);

/* What --state is of any: "bf16", "8bit", or NULL where all have fp32 state. */
const char *params_small_state(const struct params *ps);

/* What values in codes are in: "int8", "nf4", "int8 and nf4"; NULL where there are none. */
const char *params_frozen(const struct params *ps);

/* The handle of the i-th. */
ckpt_tensor params_handle(const struct params *ps, int32_t i);

/* The parameter behind a handle, or NULL; hidden ones have none. */
struct param *params_at(const struct params *ps, ckpt_tensor x);

/* Return 0, or CKPT_EDEVICE and the sentence where the weights are lost; the second also CKPT_EIO
 * where a load that ended midway left values of both. */
int params_check_lost(const struct params *ps, struct error *e);
int params_check_whole(const struct params *ps, struct error *e);

/* Shape of a slot, dense: that of the parameter, but for factors; of its part where it is cut;
 * VALUE in its dtype, the others fp32 but for half_state; codes are words (mean8.h, frozen.h). */
struct ckpt_desc param_slot_desc(const struct param *p, int slot);
/* Its values, whatever they are kept as, and what it takes. */
int64_t param_slot_numel(const struct param *p, int slot);
int64_t param_slot_bytes(const struct param *p, int slot);

/* Whether a slot is kept in codes: a mean in 8 bits, or a value that is not trained (frozen.h). */
bool param_slot_is_coded(const struct param *p, int slot);

/* All n values of such a slot into its words, and what these stand for. */
void param_slot_encode(const struct param *p, int slot, const float *src, int64_t n, void *words);
void param_slot_decode(const struct param *p, int slot, const void *words, int64_t n, float *dst);

/* Whether it has an fp32 copy beside its value, once it is trained. */
static inline bool param_has_master(const struct param *p)
{
    return p->desc.dtype == CKPT_BF16 && !p->half_state;
}

/* Whether its value is what bf16 has of it: nothing more exact is ever kept. */
static inline bool param_is_narrow(const struct param *p)
{
    return p->desc.dtype == CKPT_BF16 && (p->half_state || (!p->trainable && !p->bucket));
}

/* x as bf16 has it. */
void param_narrow(float *x, int64_t n);

/* Keeps all values of p on the host, in as few bytes as have them.  Returns 0 or CKPT_ENOMEM. */
int param_keep_initial(struct param *p, const float *src);
/* n of those that are kept, from element `first` on; of codes all. */
void param_read_initial(const struct param *p, int64_t first, int64_t n, float *dst);
void param_drop_initial(struct param *p);
/* Gives the system what was freed of many such; else the heap keeps all that lies below a small
 * block in use, which may be the codes of a model. */
void params_trim_heap(void);

/* Shape of a parameter as files have it; strides mean nothing. */
struct ckpt_desc param_file_desc(const struct param *p);

/* All values of a parameter whose axes are reordered, from its own order to that of files, and
 * back. */
void param_to_file(const struct param *p, const float *src, float *dst);
void param_from_file(const struct param *p, const float *src, float *dst);

/* Fills dst with n values from element `first` on, which follow from (seed, name, init). */
void param_initialize(const struct param *p, uint64_t seed, int64_t first, int64_t n, float *dst);

#endif
