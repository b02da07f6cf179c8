/* SPDX-License-Identifier: Apache-2.0 */
/* Options that all trainers share: see training_options.h. */
#include <string.h>
#include "run_clock.h"
#include "say.h"
#include "training_options.h"

void training_preset(struct training_options *t, int64_t batch, int64_t steps, int64_t warmup,
                     double lr)
{
    option_take(&t->batch, batch, 0);
    option_take(&t->steps, steps, -1);
    option_take(&t->warmup, warmup, -1);
    t->lr = t->lr < 0 ? lr : t->lr;
}

static int check_dtypes(const struct training_options *t, const char *dtype)
{
    if (option_dtype("grad-dtype", t->grad_dtype))
        return -1;
    if (!strcmp(dtype, "fp32") && strcmp(t->grad_dtype, "fp32"))
        return say_fail("--grad-dtype %s would change nothing with --dtype fp32; leave it out, or "
                        "add --dtype bf16",
                        t->grad_dtype);
    return 0;
}

int training_check(struct training_options *t, const struct ckpt_options *library,
                   const char *dtype, int64_t batch)
{
    if (check_dtypes(t, dtype) || optimizer_check(t->optimizer))
        return -1;
    if (library->micro_batch > 0 && batch % library->micro_batch)
        return say_fail("--micro-batch %lld does not divide --batch %lld",
                        (long long)library->micro_batch, (long long)batch);
    if (option_schedule(t->schedule, t->warmup, t->steps, t->final_lr, &t->rates))
        return -1;
    if (library->save_async && !t->state.save && !library->plan_only)
        return say_fail("--save-async needs --save-state FILE: only states are written in a "
                        "thread");
    t->begun = run_clock_now();
    if (t->time_limit && option_duration("time-limit", t->time_limit, &t->limit))
        return -1;
    return resume_check(&t->state, t->load,
                        (const char *const[4]){t->save, t->save_ema, t->save_int8, t->save_low},
                        t->directory);
}

struct ckpt_adamw training_adamw(const struct training_options *t)
{
    struct ckpt_adamw s = CKPT_ADAMW_INIT;

    s.lr = (float)t->lr;
    s.beta2 = t->beta2 >= 0 ? (float)t->beta2 : s.beta2;
    s.weight_decay = (float)t->weight_decay;
    s.clip_norm = (float)t->clip_norm;
    s.ema_decay = (float)t->ema_decay;
    s.grad_dtype = strcmp(t->grad_dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    return s;
}
