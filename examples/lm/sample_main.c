/* SPDX-License-Identifier: Apache-2.0 */
/* lm-sample: text from a language model, inside a memory budget. */
#include "../common/compiled.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

const char say_program[] = "lm-sample";

static int go(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    struct ckpt_options library = o->library;

    library.runs = o->chat ? 0 : o->sample_tokens;
    if (say_open(&r->context, &library))
        return -1;
    if (ckpt_ranks(r->context) > 1)
        return say_fail("--ranks: this program does not divide its texts among ranks");
    if (tokenizer_open(&r->tokenizer, lm_options_tokenizer(o)) ||
        ((o->chat || o->messages) && lm_chat_open(r)) || lm_make_model(r) ||
        lm_decoder_make(&r->decoder, &r->model, r->context, o->samples, o->length) ||
        ckpt_gather_refusals(r->context, true) || lm_decoder_compile(&r->decoder) ||
        compiled_all(r->context))
        return -1;
    lm_adapters_report(o);
    if (o->library.plan_only) {
        ckpt_plan_print(r->decoder.whole, stdout);
        return 0;
    }
    int rc = lm_write_text(r, stdout);
    ckpt_profile_print(r->decoder.next, stderr); /* stdout has only the texts */
    return rc;
}

int main(int argc, char **argv)
{
    static struct lm_run r = LM_RUN_INIT;

    say_begin();
    int rc = lm_sample_options_parse(&r.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&r);
    ckpt_close(r.context);
    lm_close(&r);
    return say_finish(rc ? 1 : 0);
}
