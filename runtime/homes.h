/* Where parameters and their state live between steps: in the arena or in a tier. */
#ifndef CKPT_HOMES_H
#define CKPT_HOMES_H

#include "context.h"

/* Opens the tiers that the options ask for.  Returns 0 or a code, the sentence in error_get(). */
int homes_open(ckpt *c);
/* untouched: a file operation has no end, so what it may still use is left alone. */
void homes_close(ckpt *c, bool untouched);

/* Bytes of a tier that homes take, and programs that have a plan. */
int64_t homes_tier_bytes(const ckpt *c, int tier);

/* Before the first step on the host: opens their queue, its threads on the node of the device, and
 * has programs recorded again that were when there were no such threads.  Returns 0 or a code, the
 * sentence in the context. */
int homes_open_steps(ckpt *c);

/* Makes the tiers long enough for all plans.  Returns 0 or a code, the sentence in the context. */
int homes_reserve(ckpt *c);

/* Copies n elements of a slot in or out as fp32, rounding where the slot is bf16. */
int homes_write(ckpt *c, const struct param *p, int slot, const float *src, int64_t n);
int homes_read(ckpt *c, const struct param *p, int slot, float *dst, int64_t n);
/* Fills a slot with zeros. */
int homes_clear(ckpt *c, const struct param *p, int slot);

#endif
