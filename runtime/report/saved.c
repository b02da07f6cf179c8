/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists which activations the backward pass reads in 8 bits, which it recomputes from those, and
 * which it reads unchanged: storages and bytes of a micro-step, grouped by the first op that reads
 * each or recomputes it.  Which of them the plan keeps is shown elsewhere.
 */
#include "report/saved.h"
#include <stdlib.h>
#include <string.h>
#include "ops.h"

enum { KINDS = 12 }; /* kinds of ops listed; the last entry counts the others */

struct kind {
    const char *reader;
    int n;
    int64_t bytes; /* in bf16 if stored in codes */
};

struct group {
    struct kind kind[KINDS], all;
    int n;
};

static void add(struct group *g, const char *reader, int64_t bytes)
{
    int i = 0;
    while (i < g->n && strcmp(g->kind[i].reader, reader))
        i++;
    if (i == KINDS)
        g->kind[--i].reader = "others";
    else if (i == g->n)
        g->kind[g->n++].reader = reader;
    g->kind[i].n++, g->kind[i].bytes += bytes;
    g->all.n++, g->all.bytes += bytes;
}

static int64_t bytes_of(const ckpt_tape *t, int32_t x)
{
    return t->storages.data[t->tensors.data[x].storage].bytes;
}

/* Adds each storage of the forward pass that op i of the backward pass reads first. */
static void add_reads(const ckpt_tape *t, int32_t i, bool *seen, struct group *g)
{
    const struct op *o = &t->ops.data[i];
    for (int k = 0; k < o->n_in; k++) {
        const int32_t x = op_in(t, o, k), s = x > 0 ? t->tensors.data[x].storage : -1;
        if (s < 0 || seen[s] || t->storages.data[s].kind != STORAGE_ACTIVATION)
            continue;
        seen[s] = true;
        add(g, ops_name(o->def, o->attr), t->storages.data[s].bytes);
    }
}

/* The highest number of a recorded forward op: a backward op with a number up to it is a
 * recomputation. */
static int32_t last_number(const ckpt_tape *t)
{
    int32_t last = -1;
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->phase == PHASE_FORWARD && o->def != &op_to_int8 && o->number > last)
            last = o->number;
    }
    return last;
}

/* Adds the codes that op i decodes, under the op that reads the decoded values. */
static void add_codes(const ckpt_tape *t, int32_t i, bool *seen, struct group *g)
{
    const struct op *o = &t->ops.data[i], *reader = o;
    const int32_t s = t->tensors.data[op_in(t, o, 0)].storage;
    while (reader->def == &op_from_int8)
        reader++;
    if (!seen[s])
        add(g, ops_name(reader->def, reader->attr), bytes_of(t, op_out(t, o, 0)));
    seen[s] = true;
}

struct saved {
    struct group codes, recomputed, unchanged;
    int64_t bytes; /* of the codes */
};

static void find(const ckpt_tape *t, struct saved *v, bool *seen)
{
    const int32_t last = last_number(t);
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->def == &op_to_int8)
            v->bytes += bytes_of(t, op_out(t, o, 0));
        if (o->phase != PHASE_BACKWARD || (o->def->flags & CKPT_OP_VIEW))
            continue;
        if (o->def == &op_from_int8)
            add_codes(t, i, seen, &v->codes);
        else if (o->number <= last)
            add(&v->recomputed, ops_name(o->def, o->attr), bytes_of(t, op_out(t, o, 0)));
        if (o->def != &op_from_int8)
            add_reads(t, i, seen, &v->unchanged);
    }
}

static void print_kinds(const struct group *g, FILE *f)
{
    for (int i = 0; i < g->n; i++)
        fprintf(f, "    %-22s %12s  %d storage%s\n", g->kind[i].reader,
                human_bytes(g->kind[i].bytes), g->kind[i].n, g->kind[i].n == 1 ? "" : "s");
}

void saved_print(const ckpt_tape *t, FILE *f)
{
    struct saved v = {.bytes = 0};
    bool *seen = calloc((size_t)t->n_storages + 1, sizeof *seen);
    if (!seen)
        return;
    find(t, &v, seen);
    fprintf(f,
            "  %-24s %12s  (--activations 8bit) %d of the %d storages that the backward pass "
            "reads%s\n",
            "activations in 8 bits", v.codes.all.n ? human_bytes(v.bytes) : "none", v.codes.all.n,
            v.codes.all.n + v.recomputed.all.n + v.unchanged.all.n,
            v.codes.all.n ? "; bytes in bf16, by reader:" : "");
    print_kinds(&v.codes, f);
    if (v.recomputed.all.n)
        fprintf(f, "  %-24s %12s  by\n", "recomputed from these",
                human_bytes(v.recomputed.all.bytes));
    print_kinds(&v.recomputed, f);
    fprintf(f, "  %-24s %12s  read by\n", "activations, unchanged",
            human_bytes(v.unchanged.all.bytes));
    print_kinds(&v.unchanged, f);
    free(seen);
}
