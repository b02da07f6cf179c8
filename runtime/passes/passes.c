/* SPDX-License-Identifier: Apache-2.0 */
/* The passes over a tape, in their order. */
#include <stdio.h>
#include <string.h>
#include "optim/optim.h"
#include "passes/dump.h"
#include "passes/passes.h"
#include "sequence.h"
#include "tensor_parts.h"

static bool was_recorded_twice(const struct compilation *c)
{
    return c->other != NULL;
}

static bool splits_sequences(const struct compilation *c)
{
    return c->optimizer && c->tape->env.sharing.sequence > 1;
}

static bool splits_layers(const struct compilation *c)
{
    return c->optimizer && c->tape->env.sharing.tensor > 1;
}

static bool has_stages(const struct compilation *c)
{
    return c->tape->env.sharing.stages > 1;
}

static bool trains_in_stages(const struct compilation *c)
{
    return c->optimizer && has_stages(c);
}

static bool trains(const struct compilation *c)
{
    return c->optimizer != NULL;
}

static bool has_fp8(const struct compilation *c)
{
    return c->tape->env.matmul != MATMUL_BF16;
}

static bool has_epilogues(const struct compilation *c)
{
    return c->tape->env.epilogue_tiles && !c->tape->env.int8;
}

static bool has_codes(const struct compilation *c)
{
    return trains(c) && c->tape->env.int8;
}

static int run_nothing(const struct compilation *c)
{
    return c->tape->error.code;
}

static int check_sequence(const struct compilation *c)
{
    return sequence_check(c->tape, c->loss);
}

static int check_tensor(const struct compilation *c)
{
    return tensor_check(c->tape, c->loss);
}

static int append_update(const struct compilation *c)
{
    return optim_append(c->tape, c->optimizer, c->groups);
}

/* Each row: name, gate, run, rewrite; what it needs; what it gives and ends; the reason for its
 * place. */
const struct pass passes[] = {
    {"record", NULL, run_nothing, NO_REWRITE, 0, TAPE_RECORDED | TAPE_SINGLE_OPS, 0,
     "the tape as the model recorded it"},

    /* The step: what it computes is complete after these. */
    {"counts", was_recorded_twice, pass_counts, NO_REWRITE, TAPE_RECORDED | TAPE_SINGLE_OPS, 0, 0,
     "gradients divide by the counts that the forward pass divides by"},
    {"sequence", splits_sequences, check_sequence, NO_REWRITE, TAPE_RECORDED | TAPE_SINGLE_OPS, 0,
     0, "it follows what the model and the counts record, and nothing else"},
    {"tensor", splits_layers, check_tensor, NO_REWRITE, TAPE_RECORDED | TAPE_SINGLE_OPS, 0, 0,
     "it follows the model, whose gradients are parts on purpose"},
    {"unused", trains, pass_unused, NO_REWRITE, TAPE_RECORDED | TAPE_SINGLE_OPS, 0, 0,
     "what has no reader needs no gradient"},
    {"stages", has_stages, pass_stages, NO_REWRITE, TAPE_RECORDED | TAPE_SINGLE_OPS, 0, 0,
     "what is cut is what has gradients, which then go the way back"},
    {"differentiate", trains, pass_differentiate, NO_REWRITE, TAPE_RECORDED | TAPE_SINGLE_OPS,
     TAPE_GRADIENTS, 0, "each op recorded so far has its gradient rule; fused ops have none"},
    {"outputs", trains, pass_outputs, NO_REWRITE, TAPE_GRADIENTS, 0, 0,
     "a requested gradient is that of its parameter, before buckets take it"},
    {"shard", trains, pass_shard, NO_REWRITE, TAPE_GRADIENTS, 0, 0,
     "the update reads sums over the ranks"},
    {"update", trains, append_update, NO_REWRITE, TAPE_GRADIENTS, TAPE_COMPLETE, 0,
     "all gradients are complete"},

    /* Rewrites: the step computes the same in fewer bytes and passes. */
    {"sources", has_fp8, pass_sources, NO_REWRITE, TAPE_COMPLETE | TAPE_SINGLE_OPS, 0, 0,
     "it looks for single GELUs and norms, and those it removes are no epilogue any more"},
    {"products", has_epilogues, pass_products, REWRITE_PRODUCTS, TAPE_COMPLETE | TAPE_SINGLE_OPS, 0,
     0, "its patterns are single ops, which fusion would take"},
    {"losses", trains, pass_losses, REWRITE_LOSSES, TAPE_COMPLETE | TAPE_SINGLE_OPS, 0, 0,
     "it moves single ops; what fusion may merge depends on the new order"},
    {"fuse", NULL, pass_fuse, REWRITE_FUSION, TAPE_COMPLETE | TAPE_SINGLE_OPS, TAPE_CHAINS,
     TAPE_SINGLE_OPS, "all patterns of single ops have been applied"},
    {"activations", has_codes, pass_activations, NO_REWRITE, TAPE_CHAINS, 0, 0,
     "only what the backward pass still reads after fusion is worth codes"},
    {"extra", has_fp8, pass_extra, NO_REWRITE, TAPE_CHAINS, 0, 0,
     "the ops that write the operands of 8-bit copies are final"},
    {"pair", NULL, pass_pair, REWRITE_PAIRS, TAPE_CHAINS, 0, 0,
     "pairs are neighbours: no later pass but one of copies moves or inserts an op"},
    {"unroll", trains_in_stages, pass_unroll, NO_REWRITE, TAPE_CHAINS, 0, 0,
     "it copies ops, which are final, so all micro-steps have the same"},
    {0}};

static bool applies(const struct pass *p, const struct compilation *c)
{
    return (!p->gate || p->gate(c)) &&
           (p->rewrite == NO_REWRITE || tape_rewrites(c->tape, (enum rewrite)p->rewrite));
}

/* Refuses a name that is no pass's, with those that are. */
static int check_dump(const struct compilation *c)
{
    char names[CKPT_MESSAGE / 2] = "";
    size_t n = 0;
    for (const struct pass *p = passes; p->name; p++) {
        if (!c->dump || !strcmp(p->name, c->dump))
            return 0;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", p->name);
    }
    c->tape->file = NULL;
    return tape_fail(c->tape, CKPT_EINVAL, "--dump-tape %s: no pass has this name; there are %s",
                     c->dump, names);
}

/* A pass that the program does not need leaves the tape as it is, and is dumped like the others. */
static void run_pass(const struct pass *p, const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    const bool runs = applies(p, c);
    if (runs)
        p->run(c);
    if (runs && c->verify && !t->error.code)
        passes_verify(t, p->name);
    if (c->dump && !strcmp(p->name, c->dump))
        passes_dump(t, p->name, stdout);
}

int passes_run(const struct compilation *c)
{
    if (!c->tape->error.code)
        check_dump(c);
    for (const struct pass *p = passes; p->name && !c->tape->error.code; p++) {
        run_pass(p, c);
        if (c->last && !strcmp(p->name, c->last))
            break;
    }
    return c->tape->error.code;
}
