/* Attributes of the norms. */
#ifndef CKPT_OPS_NORM_H
#define CKPT_OPS_NORM_H

struct norm_attr {
    float eps;
};

#endif
