/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph files.  The text after "  # " on a line is a name.
 *
 *     libckpt-graph 1
 *     micro N [stage S of N pipelines P unrolled M]
 *                              bodies of a step; the stage of a pipeline, from 1, and micro-steps
 *                              that a body has one after another
 *     storages N, ops N, body N, refs N
 *     storage KIND BYTES [persistent] [carried]
 *     op PHASE TAPE_OP WORKSPACE FLOPS BYTES KEY SECONDS [rerun]
 *        [COLLECTIVE RANKS [layer | stride N]]
 *         reads S ... writes S ...     on the same line
 *     end
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "core/number.h"
#include "plan/search/comm_cost.h"
#include "plan/graph/graph_file.h"
#include "plan/graph/lines.h"

static const char *const kinds[] = {
    [KIND_INPUT] = "input",       [KIND_ACTIVATION] = "activation", [KIND_TEMPORARY] = "temporary",
    [KIND_GRADIENT] = "gradient", [KIND_PARAMETER] = "parameter",   [KIND_OPTIMIZER] = "optimizer"};
static const char *const phases[] = {
    [GRAPH_FORWARD] = "forward", [GRAPH_BACKWARD] = "backward", [GRAPH_UPDATE] = "update"};
static const char *const collectives[] = {[GRAPH_ALL_GATHER - 1] = "all_gather",
                                          [GRAPH_REDUCE_SCATTER - 1] = "reduce_scatter",
                                          [GRAPH_ALL_REDUCE - 1] = "all_reduce",
                                          [GRAPH_ALL_TO_ALL - 1] = "all_to_all",
                                          [GRAPH_SEND - 1] = "send",
                                          [GRAPH_RECEIVE - 1] = "receive"};
#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* ---- writing -------------------------------------------------------------------------------- */

static void put_real(FILE *f, double value)
{
    char text[NUMBER_TEXT];
    number_format(text, value);
    fprintf(f, " %s", text);
}

static void put_refs(FILE *f, const char *word, const int32_t *refs, int32_t n)
{
    fprintf(f, " %s", word);
    for (int32_t i = 0; i < n; i++)
        fprintf(f, " %" PRId32, refs[i]);
}

static void put_op(FILE *f, const struct graph *g, const struct graph_op *o)
{
    fprintf(f, "op %s %" PRId32 " %" PRId64, phases[o->phase], o->tape_op, o->workspace);
    put_real(f, o->flops);
    put_real(f, o->bytes);
    fprintf(f, " %016" PRIx64, o->cost_key);
    put_real(f, o->collective ? o->comm_seconds : o->seconds);
    fputs(o->attention ? " attention" : "", f);
    fputs(o->rerunnable ? " rerun" : "", f);
    if (o->collective)
        fprintf(f, " %s %" PRId32, collectives[o->collective - 1], o->ranks);
    fputs(o->within_layer ? " layer" : "", f);
    if (o->stride)
        fprintf(f, " stride %" PRId32, o->stride);
    if (o->contention_seconds > 0) {
        fputs(" drag", f);
        put_real(f, o->contention_seconds);
    }
    fputs(o->drop_after_forward ? " passing" : "", f);
    if (o->replicas > 1)
        fprintf(f, " replicas %" PRId32, o->replicas);
    put_refs(f, "reads", &g->refs[o->reads], o->n_reads);
    put_refs(f, "writes", &g->refs[o->writes], o->n_writes);
    lines_put_name(f, o->name);
}

static void put_micro(FILE *f, const struct graph *g)
{
    const struct graph_pipeline *of = &g->pipeline;
    fprintf(f, "micro %" PRId32, g->n_micro);
    if (of->stages)
        fprintf(f, " stage %" PRId32 " of %" PRId32 " pipelines %" PRId32 " unrolled %" PRId32,
                of->stage + 1, of->stages, of->pipelines, of->unrolled);
    putc('\n', f);
}

static void put_graph(FILE *f, const void *user)
{
    const struct graph *g = user;
    int32_t n_refs = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        n_refs += g->ops[i].n_reads + g->ops[i].n_writes;
    fputs("libckpt-graph 1\n", f);
    put_micro(f, g);
    fprintf(f, "storages %" PRId32 "\nops %" PRId32, g->n_storages, g->n_ops);
    fprintf(f, "\nbody %" PRId32 "\nrefs %" PRId32 "\n", g->n_body, n_refs);
    for (int32_t s = 0; s < g->n_storages; s++) {
        const struct graph_storage *t = &g->storages[s];
        fprintf(f, "storage %s %" PRId64 "%s%s", kinds[t->kind], t->bytes,
                t->persistent ? " persistent" : "", t->carried ? " carried" : "");
        lines_put_name(f, t->name);
    }
    for (int32_t i = 0; i < g->n_ops; i++)
        put_op(f, g, &g->ops[i]);
    fputs("end\n", f);
}

int graph_name_stage(char *path, size_t size, const char *to, int32_t stages, int32_t stage)
{
    const int n = snprintf(path, size, "%s.stages.%" PRId32 ".%" PRId32, to, stages, stage + 1);
    return n >= 0 && (size_t)n < size
               ? 0
               : error_set(CKPT_EIO, "graph file %.200s...: its name is too long", to);
}

int graph_write(const struct graph *g, const char *path)
{
    return lines_write("graph file", path, put_graph, g);
}

/* ---- reading -------------------------------------------------------------------------------- */

#define MAX_BYTES (INT64_MAX / 4) /* of all storages: sums of such sums do not overflow */
#define MAX_COUNT (1 << 28)       /* storages, ops, refs */

struct reader {
    struct lines *l;
    struct graph *g;
    int32_t *seen; /* per storage: the last list of refs that names it */
    bool *written; /* per storage: an op before wrote it, or it is persistent or carried */
    int32_t list;  /* number of the current list of refs */
    int64_t bytes; /* of all storages so far */
    int64_t room_storages, room_ops, room_refs;
    int32_t ranks;    /* of gathers and reduce-scatters so far, or 0 */
    int32_t replicas; /* of reduce-scatters so far, or 0 */
    int32_t all;      /* ranks of all-reduces so far, or 0 */
    int32_t stages;   /* of transfers so far and of the pipeline, or 0 */
    int32_t sequence; /* ranks of all-to-alls so far, or 0 */
    int32_t layer;    /* ranks of all-reduces within layers so far, or 0 */
    int32_t stride;   /* of collectives so far, or 0, and */
    int32_t strided;  /* ranks of those, or 0 */
};

/* Memory is allocated for lines that exist, not for a count in the header. */
static bool reserve(struct reader *r, void **data, int64_t *room, int64_t n, size_t element)
{
    if (!r->l->rc && array_reserve(data, room, n, element))
        lines_fail(r->l, CKPT_ENOMEM, "out of host memory");
    return !r->l->rc;
}

/* The index of a word in a list; an error if it is not there. */
static int get_word(struct lines *l, const char *const *words, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (lines_take(l, words[i]))
            return i;
    lines_fail(l, CKPT_EFORMAT, "expected %s", what);
    return 0;
}

static char *get_name(struct lines *l)
{
    const char *name = lines_name(l);
    char *copy = name ? strdup(name) : NULL;
    if (name && !copy)
        lines_fail(l, CKPT_ENOMEM, "out of host memory");
    return copy;
}

static int64_t get_aligned(struct lines *l, const char *what, int64_t least)
{
    int64_t bytes = lines_number(l, what, least, MAX_BYTES);
    if (bytes % CKPT_ALIGN)
        lines_fail(l, CKPT_EFORMAT, "%s must be a multiple of %d", what, CKPT_ALIGN);
    return bytes;
}

static void get_storage(struct reader *r, int32_t s)
{
    struct lines *l = r->l;
    if (!lines_take(l, "storage"))
        lines_fail(l, CKPT_EFORMAT, "expected \"storage\"");
    struct graph_storage t = {.tape_storage = s};
    t.kind = (enum graph_kind)get_word(l, kinds, COUNT(kinds),
                                       "the kind of a storage: input, activation, temporary, "
                                       "gradient, parameter or optimizer");
    t.bytes = get_aligned(l, "the bytes of a storage", CKPT_ALIGN);
    t.persistent = lines_take(l, "persistent");
    t.carried = lines_take(l, "carried");
    if (t.bytes > MAX_BYTES - r->bytes)
        lines_fail(l, CKPT_EFORMAT, "the storages together pass %" PRId64 " bytes", MAX_BYTES);
    t.name = get_name(l);
    if (!reserve(r, (void **)&r->g->storages, &r->room_storages, s, sizeof(t))) {
        free(t.name);
        return;
    }
    r->bytes += t.bytes;
    r->g->storages[s] = t;
    r->g->n_storages = s + 1;
}

static void add_ref(struct reader *r, int32_t s, bool reads)
{
    struct graph *g = r->g;
    const char *list = reads ? "reads" : "writes";
    if (r->seen[s] == r->list)
        lines_fail(r->l, CKPT_EFORMAT, "storage %" PRId32 " stands twice in \"%s\"", s, list);
    if (reads && !r->written[s])
        lines_fail(r->l, CKPT_EFORMAT,
                   "op %" PRId32 " reads storage %" PRId32 ", which no op before it writes: the "
                   "ops are out of order or form a cycle",
                   g->n_ops, s);
    if (!reserve(r, (void **)&g->refs, &r->room_refs, g->n_refs, sizeof(*g->refs)))
        return;
    r->seen[s] = r->list;
    g->refs[g->n_refs++] = s;
}

/* Storage numbers up to the next word.  Returns how many. */
static int32_t get_refs(struct reader *r, bool reads)
{
    struct lines *l = r->l;
    int32_t first = r->g->n_refs;
    if (!lines_take(l, reads ? "reads" : "writes"))
        lines_fail(l, CKPT_EFORMAT, "expected \"%s\" and storages", reads ? "reads" : "writes");
    r->list++;
    while (!l->rc && l->at[0] == ' ' && ((l->at[1] >= '0' && l->at[1] <= '9') || l->at[1] == '-')) {
        int32_t s = (int32_t)lines_number(l, "a storage", 0, r->g->n_storages - 1);
        if (!l->rc)
            add_ref(r, s, reads);
    }
    return r->g->n_refs - first;
}

/* A step is forward, backward, update; the first two are the body.  In that of a stage passes of
 * several micro-steps take turns. */
static void check_phase(struct reader *r, int32_t i, enum graph_phase phase, int32_t n_body)
{
    const struct graph *g = r->g;
    const bool turns = g->pipeline.stages && i < n_body;
    if (i > 0 && phase < g->ops[i - 1].phase && !turns)
        lines_fail(r->l, CKPT_EFORMAT, "a %s op cannot follow a %s op", phases[phase],
                   phases[g->ops[i - 1].phase]);
    if ((phase == GRAPH_UPDATE) != (i >= n_body))
        lines_fail(r->l, CKPT_EFORMAT,
                   "op %" PRId32 " is a %s op, but the body has %" PRId32 " ops", i, phases[phase],
                   n_body);
}

/* All collectives of a kind must have the same number. */
static void compare_ranks(struct reader *r, int32_t *before, int32_t ranks, const char *what)
{
    if (*before && *before != ranks)
        lines_fail(r->l, CKPT_EFORMAT, "a collective of %" PRId32 " %s after one of %" PRId32,
                   ranks, what, *before);
    *before = ranks;
}

/* Ranks times replicas of shares must be the number of all ranks, and groups part of them. */
static void check_ranks(struct reader *r)
{
    if (!r->l->rc && r->all && r->sequence && r->all % r->sequence)
        lines_fail(r->l, CKPT_EFORMAT,
                   "%" PRId32 " ranks do not divide into groups of %" PRId32 " that exchange",
                   r->all, r->sequence);
    if (!r->l->rc && r->strided &&
        (r->stride != (r->stages ? r->stages : r->layer) ||
         (r->all && r->all != r->strided * (int64_t)r->stride)))
        lines_fail(r->l, CKPT_EFORMAT,
                   "%" PRId32 " ranks, %" PRId32 " apart, are not those with one of the parts of "
                   "layers, or with one stage",
                   r->strided, r->stride);
    int64_t all = (int64_t)r->ranks * (r->replicas ? r->replicas : 1);
    if (!r->l->rc && r->all && r->ranks && r->all != all)
        lines_fail(r->l, CKPT_EFORMAT,
                   "sums are over %" PRId32 " ranks, of which %" PRId64 " have shares", r->all,
                   all);
}

static void get_collective(struct reader *r, struct graph_op *o)
{
    struct lines *l = r->l;
    for (int k = 0; k < COUNT(collectives) && !o->collective; k++)
        if (lines_take(l, collectives[k]))
            o->collective = (enum graph_collective)(k + 1);
    if (!o->collective)
        return;
    o->ranks = (int32_t)lines_number(l, "the number of ranks", 2, 1 << 20);
    o->within_layer = o->collective == GRAPH_ALL_REDUCE && lines_take(l, "layer");
    if (!o->within_layer && lines_take(l, "stride")) {
        o->stride = (int32_t)lines_number(l, "the distance of ranks", 2, 1 << 20);
        compare_ranks(r, &r->stride, o->stride, "ranks between two of it");
    }
    int32_t *before = o->within_layer                     ? &r->layer
                      : o->stride                         ? &r->strided
                      : o->collective >= GRAPH_SEND       ? &r->stages
                      : o->collective == GRAPH_ALL_REDUCE ? &r->all
                      : o->collective == GRAPH_ALL_TO_ALL ? &r->sequence
                                                          : &r->ranks;
    compare_ranks(r, before, o->ranks, "ranks");
    if (lines_take(l, "drag"))
        o->contention_seconds = lines_real(l, "the seconds that others take longer", 1e11);
    o->drop_after_forward = o->rerunnable && lines_take(l, "passing");
    if (o->collective == GRAPH_REDUCE_SCATTER) {
        o->replicas = 1;
        if (lines_take(l, "replicas"))
            o->replicas = (int32_t)lines_number(l, "the number of replicas", 2, 1 << 20);
        compare_ranks(r, &r->replicas, o->replicas, "replicas");
    }
    o->comm_seconds = o->seconds;
}

static void check_collective(struct reader *r, const struct graph_op *o)
{
    if (o->collective && (o->n_reads != 1 || o->n_writes != 1))
        lines_fail(r->l, CKPT_EFORMAT, "a collective reads one storage and writes one");
}

static void get_op(struct reader *r, int32_t i, int32_t n_body)
{
    struct lines *l = r->l;
    struct graph *g = r->g;
    if (!lines_take(l, "op"))
        lines_fail(l, CKPT_EFORMAT, "expected \"op\"");
    struct graph_op o = {.phase = (enum graph_phase)get_word(
                             l, phases, COUNT(phases), "a phase: forward, backward or update")};
    check_phase(r, i, o.phase, n_body);
    o.tape_op = (int32_t)lines_number(l, "the number of the op", 0, INT32_MAX);
    o.workspace = get_aligned(l, "the bytes of workspace", 0);
    o.flops = lines_real(l, "the arithmetic of an op", 1e30);
    o.bytes = lines_real(l, "the bytes an op moves", 1e30);
    o.cost_key = lines_hex(l, "the key of a cost");
    o.seconds = lines_real(l, "the seconds of an op", 1e9);
    o.attention = lines_take(l, "attention");
    o.rerunnable = lines_take(l, "rerun");
    if (o.rerunnable && o.phase != GRAPH_FORWARD)
        lines_fail(l, CKPT_EFORMAT, "a rerunnable op is a forward op");
    get_collective(r, &o);
    o.reads = g->n_refs;
    o.n_reads = get_refs(r, true);
    o.writes = g->n_refs;
    o.n_writes = get_refs(r, false);
    check_collective(r, &o);
    o.name = get_name(l);
    if (!reserve(r, (void **)&g->ops, &r->room_ops, i, sizeof(o))) {
        free(o.name);
        return;
    }
    for (int32_t j = 0; j < o.n_writes; j++)
        r->written[g->refs[o.writes + j]] = true;
    g->ops[i] = o;
    g->n_ops = i + 1;
}

/* Storages with contents before the first op: persistent ones and sums carried between bodies. */
static bool start_ops(struct reader *r)
{
    size_t n = (size_t)r->g->n_storages + 1;
    r->seen = calloc(n, sizeof(*r->seen));
    r->written = calloc(n, sizeof(*r->written));
    if (!r->seen || !r->written) {
        lines_fail(r->l, CKPT_ENOMEM, "out of host memory");
        return false;
    }
    for (int32_t s = 0; s < r->g->n_storages; s++)
        r->written[s] = r->g->storages[s].persistent || r->g->storages[s].carried;
    return true;
}

/* The stage of a pipeline, if the graph is one. */
static void get_pipeline(struct reader *r)
{
    struct lines *l = r->l;
    struct graph_pipeline *of = &r->g->pipeline;
    if (!lines_take(l, "stage"))
        return;
    if (r->g->n_micro > 1)
        lines_fail(l, CKPT_EFORMAT, "a stage has its micro-steps in one body");
    of->stage = (int32_t)lines_number(l, "the number of the stage", 1, 1 << 20) - 1;
    if (!lines_take(l, "of"))
        lines_fail(l, CKPT_EFORMAT, "expected \"of\" and the number of stages");
    of->stages = r->stages =
        (int32_t)lines_number(l, "the number of stages", max_i64(2, of->stage + 1), 1 << 20);
    if (!lines_take(l, "pipelines"))
        lines_fail(l, CKPT_EFORMAT, "expected \"pipelines\" and their number");
    of->pipelines = (int32_t)lines_number(l, "the number of pipelines", 1, 1 << 20);
    if (!lines_take(l, "unrolled"))
        lines_fail(l, CKPT_EFORMAT, "expected \"unrolled\" and the number of micro-steps");
    of->unrolled = (int32_t)lines_number(l, "the number of micro-steps", 1, MAX_COUNT);
}

static void get_micro(struct reader *r)
{
    struct lines *l = r->l;
    if (!lines_next(l))
        return;
    if (!lines_take(l, "micro"))
        lines_fail(l, CKPT_EFORMAT, "expected \"micro\" and a number");
    r->g->n_micro = (int32_t)lines_number(l, "micro", 1, INT32_MAX);
    get_pipeline(r);
    lines_end(l);
}

static void get_graph(struct lines *l, void *user)
{
    struct reader *r = user;
    struct graph *g = r->g;
    r->l = l;
    if (lines_next(l) && strcmp(l->line, "libckpt-graph 1"))
        lines_fail(l, CKPT_EFORMAT,
                   "this is no graph file of version 1, which begins \"libckpt-graph 1\"");
    get_micro(r);
    int32_t storages = (int32_t)lines_total(l, "storages", 0, MAX_COUNT);
    int32_t ops = (int32_t)lines_total(l, "ops", 1, MAX_COUNT);
    int32_t n_body = (int32_t)lines_total(l, "body", 1, ops);
    int32_t refs = (int32_t)lines_total(l, "refs", 0, MAX_COUNT);
    for (int32_t s = 0; s < storages && lines_next(l); s++)
        get_storage(r, s);
    if (l->rc || !start_ops(r))
        return;
    for (int32_t i = 0; i < ops && lines_next(l); i++)
        get_op(r, i, n_body);
    g->n_body = n_body;
    if (!l->rc && g->pipeline.unrolled > n_body)
        lines_fail(l, CKPT_EFORMAT,
                   "%" PRId32 " micro-steps cannot be in a body of %" PRId32 " ops",
                   g->pipeline.unrolled, n_body);
    check_ranks(r);
    lines_next(l);
    lines_last(l);
    if (!l->rc && g->n_refs != refs)
        lines_fail(l, CKPT_EFORMAT, "the ops have %" PRId32 " operands, not %" PRId32, g->n_refs,
                   refs);
    if (!l->rc)
        graph_price_collectives(g);
}

int graph_read(const char *path, struct graph **out)
{
    struct lines l;
    struct reader r = {.g = calloc(1, sizeof(*r.g))};
    *out = NULL;
    if (!r.g)
        return error_set(CKPT_ENOMEM, "out of host memory");
    int rc = lines_read(&l, "graph file", path, get_graph, &r);
    free(r.seen);
    free(r.written);
    if (rc)
        graph_free(r.g);
    else
        *out = r.g;
    return rc;
}
