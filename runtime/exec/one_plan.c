/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One plan and one set of algorithms for all ranks: rank 0 plans under the smallest budget of all
 * ranks, and algorithms come from its files and measurements.  Plans and measurements of different
 * ranks would differ, since GPUs differ in free memory and in measured times, and hosts differ in
 * their files.
 */
#include <stdlib.h>
#include <string.h>
#include "dist/parts.h"
#include "dist/peers.h"
#include "exec/program.h"

/* The memory that one rank has for a plan, in bytes. */
struct capacity {
    int64_t budget;           /* of the device, reserved bytes included */
    int64_t left;             /* of the device, reserved bytes excluded */
    int64_t tier[TIER_COUNT]; /* budgets of the tiers */
    int64_t base[TIER_COUNT]; /* bytes of each tier that are in use */
};

static struct capacity capacity_of(const struct ckpt_program *p)
{
    const struct programs *ps = p->programs;
    struct capacity r = {
        .budget = ps->budget,
        .left = ps->budget == INT64_MAX ? INT64_MAX : ps->budget - p->reserved,
        .tier = {[TIER_HOST] = ps->memory->host, [TIER_NVME] = ps->memory->directories.bytes}};
    for (int i = 0; i < TIER_COUNT; i++)
        r.base[i] = program_tier_base(p, i);
    return r;
}

/* The rank with the smallest field at this offset of struct capacity; *differ: ranks differ in it.
 */
static int smallest(const struct capacity *all, int n, size_t offset, bool *differ)
{
    int64_t min = INT64_MAX;
    int rank = 0;
    *differ = false;
    for (int r = 0; r < n; r++) {
        int64_t bytes;
        memcpy(&bytes, (const char *)&all[r] + offset, sizeof bytes);
        *differ |= r > 0 && bytes != min;
        if (bytes < min) {
            min = bytes;
            rank = r;
        }
    }
    return rank;
}

static void report_smallest(struct programs *ps, const char *option, int rank, bool differ)
{
    size_t n = strlen(ps->memory->least);
    if (differ)
        snprintf(ps->memory->least + n, sizeof ps->memory->least - n, "%s%s of rank %d",
                 n ? ", " : "", option, ranks_number(ps->ranks, rank));
}

/* Sets the budgets to the smallest of all ranks, and p->reserved to match the device's. */
static void use_smallest(struct ckpt_program *p, const struct capacity *all, struct budgets *b)
{
    struct programs *ps = p->programs;
    bool differ;
    const struct comm *alike = ranks_alike(ps->ranks);
    int n = alike ? alike->size : 1,
        rank = smallest(all, n, offsetof(struct capacity, left), &differ);
    int64_t left = all[rank].left;
    bool reported = *ps->memory->least != '\0'; /* the plan of an earlier program has set it */
    rank = smallest(all, n, offsetof(struct capacity, budget), &differ);
    report_smallest(ps, "--vram", rank, differ && !reported);
    ps->budget = all[rank].budget;
    p->reserved = ps->budget == INT64_MAX ? p->reserved : ps->budget - left;
    b->device = ps->budget;
    for (int i = 0; i < TIER_COUNT; i++) {
        rank = smallest(all, n, offsetof(struct capacity, tier) + (size_t)i * sizeof(int64_t),
                        &differ);
        report_smallest(ps, i == TIER_HOST ? "--host" : "--nvme", rank, differ && !reported);
        *(i == TIER_HOST ? &b->host : &b->nvme) = all[rank].tier[i];
        b->tier_base[i] = 0;
        for (int r = 0; r < n; r++)
            b->tier_base[i] = max_i64(b->tier_base[i], all[r].base[i]);
    }
}

static int gather_capacities(struct programs *ps, const struct capacity *own, struct capacity *all)
{
    struct comm *hosts = ranks_alike(ps->ranks);
    int rc = comm_gather(hosts, own, all, sizeof *own, "budgets");
    return rc ? error_set(rc, "%s", hosts->reason) : 0;
}

/* ---- room for saves -------------------------------------------------------------------------- */

/* The slots that p will fill. */
static void mark_planned(const struct ckpt_program *p, bool *planned)
{
    for (int32_t i = 0; i < p->tape->n_storages; i++) {
        const struct storage *s = &p->tape->storages.data[i];
        if (s->kind >= STORAGE_VALUE && s->kind <= STORAGE_EXP_AVG_SQ_COL)
            planned[(int64_t)s->param * SLOT_COUNT + s->kind - STORAGE_VALUE] = true;
    }
}

static int refuse_saves(const struct programs *ps, int64_t bytes, int64_t base)
{
    if (!ps->memory->host)
        return error_set(CKPT_EINVAL,
                         "--save-async copies the state to host memory, %s (%lld bytes) on this "
                         "rank: give --host at least that, or leave out --save-async",
                         human_bytes(bytes), (long long)bytes);
    return error_set(CKPT_EINVAL,
                     "--save-async copies the state to host memory, %s (%lld bytes) on this rank, "
                     "and %s of --host are left: give --host at least %lld, or leave out "
                     "--save-async",
                     human_bytes(bytes), (long long)bytes, human_bytes(ps->memory->host - base),
                     (long long)(base + bytes));
}

/* The bytes of this rank's part of a state; or a code. */
static int64_t bytes_of_part(const struct ckpt_program *p)
{
    const struct programs *ps = p->programs;
    bool *planned = calloc((size_t)ps->params->n * SLOT_COUNT + 1, sizeof *planned);
    if (!planned)
        return error_set(CKPT_ENOMEM, "no memory to plan saves");
    mark_planned(p, planned);
    const int64_t bytes = part_bytes(ps->ranks, planned);
    free(planned);
    return bytes;
}

/* The names of a part take less than this of each of its tensors. */
enum { HEADER_OF_TENSOR = 1024 };

/* Elastic jobs: takes the memory for states out of --host. */
static int reserve_peers(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    int64_t more, bytes = bytes_of_part(p);
    if (bytes < 0)
        return (int)bytes;
    bytes += (int64_t)HEADER_OF_TENSOR * (ps->params->n + 8);
    int rc = peers_plan(ps->ranks->peers, ranks_all(ps->ranks), bytes, &more);
    if (rc)
        return rc;
    if (more > ps->memory->host)
        return error_set(CKPT_EINVAL,
                         "--elastic keeps the last states of this rank and of the one before it in "
                         "host memory, %s (%lld bytes): give --host at least %lld more, or leave "
                         "out --elastic",
                         human_bytes(peers_planned(ps->ranks->peers)),
                         (long long)peers_planned(ps->ranks->peers),
                         (long long)(more - ps->memory->host));
    ps->memory->host -= more;
    return 0;
}

/* --save-async: keeps the bytes of this rank's part of a state at the bottom of the host tier, and
 * above everything there if a later program adds state. */
static int reserve_saves(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct memory *m = ps->memory;
    const int64_t bytes = bytes_of_part(p);
    if (bytes < 0)
        return (int)bytes;
    const int64_t base = ps->first ? programs_tier_bytes(ps, TIER_HOST) : 0;
    if (ps->first && bytes <= m->saves)
        return 0;
    if (bytes > ps->memory->host - base)
        return refuse_saves(ps, bytes, base);
    m->saves_at = base;
    m->saves = bytes;
    return 0;
}

int program_find_budgets(struct ckpt_program *p, struct budgets *b)
{
    struct programs *ps = p->programs;
    int rc = p->trains && ps->ranks->peers ? reserve_peers(p) : 0;
    if (!rc && p->trains && ps->options->save_async)
        rc = reserve_saves(p);
    if (rc)
        return ranks_give_up(ps->ranks, rc);
    struct capacity own = capacity_of(p);
    const struct comm *alike = ranks_alike(ps->ranks);
    if (!alike) {
        use_smallest(p, &own, b);
        return 0;
    }
    struct capacity *all = calloc((size_t)alike->size, sizeof *all);
    rc = all ? 0 : error_set(CKPT_ENOMEM, "no memory for the budgets of ranks");
    if (!rc)
        rc = gather_capacities(ps, &own, all);
    if (!rc)
        use_smallest(p, all, b);
    free(all);
    return rc;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Rank 0 broadcasts this first: how planning ended, and the bytes of the plan's text. */
struct outcome {
    int64_t rc, size;
    char message[CKPT_MESSAGE];
};

static int broadcast(struct comm *hosts, void *data, size_t bytes)
{
    int rc = comm_broadcast(hosts, data, bytes, "plan");
    return rc ? error_set(rc, "%s", hosts->reason) : 0;
}

/* The first of them plans meanwhile.  A group has the deadline of all ranks. */
static int broadcast_patiently(struct programs *ps, struct comm *alike, void *data, size_t bytes)
{
    ranks_await_plan(ps->ranks, true);
    const int rc = broadcast(alike, data, bytes);
    ranks_await_plan(ps->ranks, false);
    return rc;
}

int program_broadcast_decision(struct ckpt_program *p, bool *decision)
{
    int32_t yes = *decision;
    struct comm *hosts = ranks_all(p->programs->ranks);
    int rc = hosts ? broadcast(hosts, &yes, sizeof yes) : 0;
    *decision = yes != 0;
    return rc;
}

int program_broadcast_bytes(struct ckpt_program *p, int rc, int64_t *bytes)
{
    struct programs *ps = p->programs;
    int64_t answer[2] = {rc, *bytes};
    struct comm *alike = ranks_alike(ps->ranks);
    if (!alike)
        return rc;
    int failed = broadcast_patiently(ps, alike, answer, sizeof answer);
    *bytes = answer[1];
    if (failed || ranks_lead(ps->ranks) || !answer[0])
        return failed ? failed : rc;
    return error_set((int)answer[0], "rank %d has no smallest budget", ranks_number(ps->ranks, 0));
}

/* Pads a text of n bytes with zeros to whole 32-bit words, the unit of a broadcast; at least one
 * zero ends it. */
static int pad_text(char **text, size_t n, int64_t *size)
{
    *size = round_up((int64_t)n + 1, sizeof(int32_t));
    char *longer = realloc(*text, (size_t)*size);
    if (!longer)
        return CKPT_ENOMEM;
    memset(longer + n, '\0', (size_t)*size - n);
    *text = longer;
    return 0;
}

/* The first rank sends its text; the others allocate and receive a copy. */
static int broadcast_text(struct comm *hosts, char **text, int64_t size)
{
    if (hosts->rank)
        *text = malloc((size_t)size);
    if (!*text)
        return error_set(CKPT_ENOMEM, "no memory for the plan");
    return broadcast(hosts, *text, (size_t)size);
}

/* Why the first rank fails: for lack of memory, perhaps of another rank, or for what only it reads.
 */
static void name_reason(const struct programs *ps, int rc, char *dst, size_t size)
{
    const bool lacks = rc == CKPT_EBUDGET;
    if (lacks && *ps->memory->least)
        snprintf(dst, size, "%s\n  the budgets are the smallest of all ranks%s: %s", error_get(),
                 ps->ranks->sharing.stages > 1 ? " of a stage" : "", ps->memory->least);
    else if (lacks)
        snprintf(dst, size, "%s", error_get());
    else
        snprintf(dst, size, "rank %d: %s", ps->ranks->rank, error_get());
}

/*
 * The first of some ranks has a text of n bytes, or a code with its sentence.  Broadcasts it to
 * them: the text ends with a zero and is freed by the caller.  Returns the code, or that of a
 * failed broadcast.
 */
static int broadcast_result(struct programs *ps, struct comm *hosts, int rc, char **text, size_t n)
{
    struct outcome *o = calloc(1, sizeof *o);
    if (!o)
        return error_set(CKPT_ENOMEM, "no memory for the plan");
    if (!rc && !hosts->rank && pad_text(text, n, &o->size))
        rc = error_set(CKPT_ENOMEM, "no memory for the plan");
    o->rc = rc;
    if (rc)
        name_reason(ps, rc, o->message, sizeof o->message);
    rc = broadcast_patiently(ps, hosts, o, sizeof *o);
    if (!rc && o->rc)
        rc = error_set((int)o->rc, "%s", o->message);
    if (!rc)
        rc = broadcast_text(hosts, text, o->size);
    free(o);
    return rc;
}

static int parse_plan(struct ckpt_program *p, char *text)
{
    int rc = plan_parse(p->graph, text, strlen(text), &p->plan);
    if (!rc)
        algorithms_free(&p->plan->algorithms); /* each rank keeps those that it has used itself */
    if (!rc && p->programs->options->verify)
        rc = plan_check(p->graph, p->plan);
    return rc;
}

int program_broadcast_plan(struct ckpt_program *p, int rc)
{
    struct programs *ps = p->programs;
    char *text = NULL;
    size_t n = 0;
    struct comm *alike = ranks_alike(ps->ranks);
    if (!alike)
        return rc;
    if (!rc && !alike->rank && plan_print(p->graph, p->plan, &text, &n))
        rc = error_set(CKPT_ENOMEM, "no memory for the plan");
    rc = broadcast_result(ps, alike, rc, &text, n);
    if (!rc && alike->rank)
        rc = parse_plan(p, text);
    free(text);
    return rc;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

/* Omits what the library proposes by itself, because it does so on every rank. */
static int print_algorithms(const struct algorithms *algorithms, char **text, size_t *n)
{
    struct algorithms some = {0};
    FILE *f = open_memstream(text, n);
    int rc = f ? 0 : CKPT_ENOMEM;
    for (int64_t i = 0; i < algorithms->n && !rc; i++)
        if (algorithms->data[i].origin != ALGORITHM_PROPOSED)
            rc = algorithms_set(&some, algorithms->data[i].key, algorithms->data[i].choice);
    if (!rc)
        rc = algorithms_write(&some, f);
    if (f && fclose(f))
        rc = CKPT_ENOMEM;
    algorithms_free(&some);
    return rc;
}

static int parse_algorithms(char *text, struct algorithms *algorithms)
{
    bool is_algorithm;
    int rc = 0;
    for (char *at = text, *line; !rc && (line = strsep(&at, "\n"));)
        rc = algorithms_read(algorithms, line, &is_algorithm);
    return rc;
}

int program_broadcast_algorithms(struct ckpt_program *p, struct algorithms *algorithms, int rc)
{
    struct programs *ps = p->programs;
    char *text = NULL;
    size_t n = 0;
    if (!ps->ranks->comm)
        return rc;
    if (!rc && !ps->ranks->rank && print_algorithms(algorithms, &text, &n))
        rc = error_set(CKPT_ENOMEM, "no memory for the algorithms of libraries");
    rc = broadcast_result(ps, ranks_hosts(ps->ranks), rc, &text, n);
    if (!rc && ps->ranks->rank && parse_algorithms(text, algorithms))
        rc = error_set(CKPT_ENOMEM, "no memory for the algorithms of libraries");
    free(text);
    return rc;
}
