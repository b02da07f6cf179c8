/* Attributes of the rotary embedding. */
#ifndef CKPT_OPS_ROPE_H
#define CKPT_OPS_ROPE_H

#include <stdint.h>

struct rope_attr {
    int32_t axis;
    int32_t inverse; /* 1: turn back */
};

#endif
