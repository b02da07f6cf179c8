/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls that compile, with the programs of a context. */
#include "context/context.h"

int ckpt_compile_variants(ckpt *c, int n, const struct ckpt_variant *variants,
                          const struct ckpt_optimizer *optimizer, int64_t batch, ckpt_program **out,
                          int *variant)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(variants);
    NOT_NULL(out);
    if (c->programs.mixed)
        return error_set(CKPT_EINVAL, "a program is compiled after ckpt_mix_programs: compile all "
                                      "before");
    const int unused = c->params.failed.code ? 0 : qat_check_skip(c);
    if (unused)
        return unused;
    return programs_compile(&c->programs, n, variants, optimizer, batch, out, variant);
}

int ckpt_compile(ckpt *c, ckpt_recorder record, void *user, const struct ckpt_optimizer *optimizer,
                 int64_t batch, ckpt_program **out)
{
    return ckpt_compile_variants(c, 1, &(struct ckpt_variant){.record = record, .user = user},
                                 optimizer, batch, out, NULL);
}

int ckpt_forecast(ckpt *c, ckpt_recorder record, void *user, const struct ckpt_optimizer *optimizer,
                  int64_t batch, double limit, struct ckpt_forecast *forecast)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(forecast);
    return programs_forecast(&c->programs, &(struct ckpt_variant){.record = record, .user = user},
                             optimizer, batch, limit, forecast);
}

int ckpt_watch_plan(ckpt *c, ckpt_plan_watch watch, void *user)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    c->programs.watch.report = watch;
    c->programs.watch.user = user;
    return 0;
}

int ckpt_plan_in_full(ckpt *c, bool full)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    c->programs.brief = !full;
    return 0;
}

int ckpt_train_in_turn(ckpt *c)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    c->programs.in_turn = true;
    return 0;
}

int ckpt_gather_refusals(ckpt *c, bool gather)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    c->programs.gathers = gather;
    return 0;
}
