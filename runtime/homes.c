/* Homes in the lower tiers, and values in and out of any home. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "crew.h"
#include "device/team.h"
#include "exec/program.h"
#include "homes.h"
#include "ranks.h"
#include "optim/host_adamw.h"

#define SHARE (INT64_C(1) << 20) /* elements; fewer are not worth a thread */
#define UNIT  (INT64_C(1) << 10) /* no two threads write to one page */

#define STAGING_BYTES (2 * PLAN_STAGING_SLOTS * PLAN_STAGING_SLOT)

/* ---- opening and closing --------------------------------------------------------------------- */

static int pin(void *user, void *base, int64_t bytes)
{
    struct device *d = user;
    return d->ops->pin(d, base, bytes);
}

static void unpin(void *user, void *base, int64_t bytes)
{
    struct device *d = user;
    d->ops->unpin(d, base, bytes);
}

static int open_host(ckpt *c)
{
    struct device *d = c->device;
    c->pin = (struct tier_pin){.pin = pin, .unpin = unpin, .user = d};
    struct tier_host_options o = {.budget = c->options.host,
                                  .node = d->ops->numa_node ? d->ops->numa_node(d) : -1,
                                  .spread = true,
                                  .pin = d->ops->pin ? &c->pin : NULL};
    return tier_open_host(&c->tiers[TIER_HOST], &o);
}

/* The slots between device and files: anonymous memory, which io_uring wants, known to the device.
 */
static int open_staging(ckpt *c)
{
    struct device *d = c->device;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *p = mmap(NULL, STAGING_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED)
        return error_set(CKPT_ENOMEM, "no %s of host memory to stage what goes to --nvme",
                         human_bytes(STAGING_BYTES));
    int rc = d->ops->pin ? d->ops->pin(d, p, STAGING_BYTES) : 0;
    if (rc)
        munmap(p, STAGING_BYTES);
    else
        c->staging = p;
    return rc;
}

/* Queues of the host that the device waits for, as option needs them. */
static int open_threads(ckpt *c, const char *option)
{
    struct device *d = c->device;
    int rc = d->ops->io(d, QUEUE_WRITE, NULL);
    return rc ? error_set(rc, "%s: the driver of %s cannot wait for the host", option, d->name) : 0;
}

struct binding {
    bool bind;
    int node, ranks;
};

/* The first command of QUEUE_HOST: where it runs, and the threads that help it. */
static int prepare_host(const struct ckpt_kernel_args *a)
{
    const struct binding *b = a->attr;
    if (b->bind && host_adamw_bind(b->node, b->ranks, NULL) < 0) /* elsewhere it is only slower */
        host_adamw_bind(-1, b->ranks, NULL);
    return team_start();
}

/* Segments that were recorded when no thread could wait for an event have events in them, of which
 * threads would not be told. */
static int record_again(ckpt *c)
{
    int rc = 0;
    for (struct ckpt_program *p = c->programs; p && !rc; p = p->next)
        rc = p->n_segments ? program_record(p) : 0;
    return rc ? context_fail(c, rc, "the device cannot record the step: %s", c->device->reason) : 0;
}

int homes_open_steps(ckpt *c)
{
    struct device *d = c->device;
    struct binding b = {.bind = d->ops->numa_node != NULL, .ranks = ranks_beside(c)};
    if (c->host_steps)
        return 0;
    int rc = open_threads(c, "--host");
    if (rc)
        return context_fail(c, rc, "%s", error_get());
    b.node = b.bind ? d->ops->numa_node(d) : -1;
    d->ops->compute(d, QUEUE_HOST, prepare_host, &(struct ckpt_kernel_args){.attr = &b, .op = -1},
                    NULL);
    rc = d->ops->sync(d);
    if (rc == CKPT_ENOMEM) /* nothing of a step was under way: nothing is lost */
        return context_fail(c, rc, "cannot start the threads of updates on the host: lower "
                                   "--threads, or raise the limits of processes and memory");
    c->host_steps = rc == 0;
    return rc ? context_fail_device(c, NULL, rc) : record_again(c);
}

static int open_nvme(ckpt *c)
{
    int rc = open_threads(c, "--nvme");
    if (!rc)
        rc = open_staging(c);
    if (rc)
        return rc;
    struct tier_nvme_options o = {.directories = &c->directories,
                                  .deadline = c->options.io_deadline,
                                  .staging = c->staging,
                                  .staged = STAGING_BYTES};
    return tier_open_nvme(&c->tiers[TIER_NVME], &o);
}

int homes_open(ckpt *c)
{
    int rc = 0;
    if (c->options.plan_only)
        return 0;
    /* The tier sees most of what can hang, and says it better: it gets the first word. */
    if (c->options.io_deadline > 0)
        c->device->ops->deadline(c->device, 2 * c->options.io_deadline);
    if (c->options.host)
        rc = open_host(c);
    if (!rc && c->directories.bytes)
        rc = open_nvme(c);
    return rc;
}

void homes_close(ckpt *c, bool untouched)
{
    struct device *d = c->device;
    if (untouched)
        return;
    bool stuck = c->tiers[TIER_NVME] && c->tiers[TIER_NVME]->stuck;
    for (int i = 0; i < TIER_COUNT; i++)
        if (c->tiers[i])
            c->tiers[i]->ops->close(c->tiers[i]);
    if (c->rounding)
        d->ops->host_free(d, c->rounding);
    if (!c->staging || stuck)
        return;
    if (d->ops->unpin)
        d->ops->unpin(d, c->staging, STAGING_BYTES);
    munmap(c->staging, STAGING_BYTES);
}

/* ---- bytes of tiers -------------------------------------------------------------------------- */

static const enum home home_of_tier[] = {[TIER_HOST] = HOME_HOST, [TIER_NVME] = HOME_NVME};

static int64_t home_bytes(const struct param *p, int slot)
{
    int64_t unit = p->home[slot] == HOME_NVME ? PLAN_NVME_ALIGN : CKPT_ALIGN;
    return round_up(param_slot_bytes(p, slot), unit);
}

static int64_t plan_end(const struct plan *p, int tier)
{
    int64_t bytes = tier == TIER_HOST ? p->host_bytes : p->nvme_bytes;
    return bytes ? p->budgets.tier_base[tier] + bytes : 0;
}

int64_t homes_tier_bytes(const ckpt *c, int tier)
{
    int64_t end = 0;
    for (int32_t i = 0; i < c->params.n; i++) {
        const struct param *p = &c->params.data[i];
        for (int s = 0; s < SLOT_COUNT; s++)
            if (p->home[s] == home_of_tier[tier])
                end = max_i64(end, p->offset[s] + home_bytes(p, s));
    }
    for (const struct ckpt_program *p = c->programs; p; p = p->next)
        end = p->plan ? max_i64(end, plan_end(p->plan, tier)) : end;
    return end;
}

int homes_reserve(ckpt *c)
{
    for (int i = 0; i < TIER_COUNT; i++) {
        struct tier *t = c->tiers[i];
        int64_t bytes = homes_tier_bytes(c, i);
        int rc = t && bytes > t->bytes ? t->ops->reserve(t, bytes) : 0;
        if (rc)
            return context_fail(c, rc, "%s", error_get());
    }
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int copy_device(ckpt *c, int64_t offset, void *host, int64_t bytes, bool in)
{
    struct device *d = c->device;
    char *device = d->ops->base(d) + offset;
    if (in)
        d->ops->copy(d, QUEUE_COPY_IN, device, host, bytes);
    else
        d->ops->copy(d, QUEUE_COPY_OUT, host, device, bytes);
    int rc = d->ops->sync(d);
    return rc ? context_fail_device(c, NULL, rc) : 0;
}

/* The caller's values have to be whole: a step that failed in between left them in pieces. */
static int begin(ckpt *c)
{
    int rc = c->device->ops->sync(c->device);
    return rc ? context_fail_device(c, NULL, rc) : 0;
}

static bool is_half(const struct param *p, int slot)
{
    return slot == SLOT_VALUE && p->desc.dtype == CKPT_BF16;
}

/* Where a slot stands if the host's own threads can write it, or NULL. */
static char *find_home(ckpt *c, const struct param *p, int slot)
{
    struct tier *host = c->tiers[TIER_HOST];
    if (p->home[slot] == HOME_HOST)
        return host->ops->base(host) + p->offset[slot];
    if (p->home[slot] == HOME_DEVICE && c->device->ops->backend == CKPT_ON_CPU)
        return c->device->ops->base(c->device) + p->offset[slot];
    return NULL;
}

/* Elements between fp32 values and memory where they are as the slot has them. */
struct span {
    void *memory;
    float *values; /* NULL: the memory becomes zero */
    bool half, in;
};

static void carry_share(void *user, int64_t from, int64_t end)
{
    const struct span *s = user;
    size_t size = s->half ? 2 : 4, bytes = (size_t)(end - from) * size;
    char *memory = (char *)s->memory + (size_t)from * size;
    if (!s->values)
        memset(memory, 0, bytes);
    else if (s->half && s->in)
        ckpt_to_bf16(s->values + from, (uint16_t *)memory, end - from);
    else if (s->half)
        ckpt_from_bf16((const uint16_t *)memory, s->values + from, end - from);
    else
        memcpy(s->in ? memory : (char *)(s->values + from),
               s->in ? (char *)(s->values + from) : memory, bytes);
}

static void carry(struct span s, int64_t n)
{
    crew_run(crew_size(0, n, SHARE), n, UNIT, carry_share, &s);
}

/* All of a slot where only the device reaches it, piece by piece; bf16 is rounded in pinned memory.
 */
static int copy_pieces(ckpt *c, const struct param *p, int slot, float *values, int64_t n, bool in)
{
    bool half = is_half(p, slot);
    int64_t size = half ? 2 : 4, most = PLAN_STAGING_SLOT / size;
    int rc = 0;
    if (half && !c->rounding)
        c->rounding = c->device->ops->host_alloc(c->device, PLAN_STAGING_SLOT);
    if (half && !c->rounding)
        return context_fail(c, CKPT_ENOMEM, "no memory to round parameters");
    for (int64_t at = 0; at < n && !rc; at += most) {
        struct span s = {c->rounding, values + at, half, in};
        int64_t count = min_i64(n - at, most);
        if (half && in)
            carry(s, count);
        rc = copy_device(c, p->offset[slot] + at * size, half ? s.memory : s.values, count * size,
                         in);
        if (half && !in && !rc)
            carry(s, count);
    }
    return rc;
}

/* A block of the executor: checksums in files are of the whole. */
struct block {
    struct span span;
    int64_t n, offset, bytes;
};

static struct block block_of(ckpt *c, const struct param *p, int slot, float *values, int64_t i)
{
    bool half = is_half(p, slot);
    int64_t size = half ? 2 : 4, most = PLAN_STAGING_SLOT / size, at = i * most;
    int64_t n = min_i64(param_slot_numel(p, slot) - at, most);
    return (struct block){
        .span = {c->staging + i % 2 * PLAN_STAGING_SLOT, values ? values + at : NULL, half, false},
        .n = n,
        .offset = p->offset[slot] + at * size,
        .bytes = round_up(n * size, PLAN_NVME_ALIGN)};
}

static void fill_block(struct block *b)
{
    int64_t bytes = b->n * (b->span.half ? 2 : 4);
    b->span.in = true;
    memset((char *)b->span.memory + bytes, 0, (size_t)(b->bytes - bytes));
    carry(b->span, b->n);
}

/* All of a slot in a file.  A block is with the disk while the one before, or behind, is rounded.
 */
static int copy_file(ckpt *c, const struct param *p, int slot, float *values, bool in)
{
    struct tier *t = c->tiers[TIER_NVME];
    int64_t blocks = (param_slot_bytes(p, slot) + PLAN_STAGING_SLOT - 1) / PLAN_STAGING_SLOT;
    struct block next = {.n = 0}, last;
    int rc = 0;
    for (int64_t i = 0; i <= blocks && !rc; i++) {
        last = next;
        if (i < blocks) {
            next = block_of(c, p, slot, values, i);
            if (in)
                fill_block(&next);
            t->ops->begin(t, in, next.offset, next.span.memory, next.bytes);
        }
        if (i == 0)
            continue;
        rc = in ? t->ops->write(t, last.offset, last.span.memory, last.bytes)
                : t->ops->read(t, last.offset, last.span.memory, last.bytes);
        if (!rc && !in)
            carry(last.span, last.n);
    }
    return rc ? context_fail(c, rc, "parameter '%s': %s", p->name, t->reason) : 0;
}

static int copy_slot(ckpt *c, const struct param *p, int slot, float *values, int64_t n, bool in)
{
    char *home = find_home(c, p, slot);
    int rc = begin(c);
    if (rc)
        return rc;
    if (p->home[slot] == HOME_NVME)
        return copy_file(c, p, slot, values, in);
    if (!home)
        return copy_pieces(c, p, slot, values, n, in);
    carry((struct span){home, values, is_half(p, slot), in}, n);
    return 0;
}

int homes_write(ckpt *c, const struct param *p, int slot, const float *src, int64_t n)
{
    return copy_slot(c, p, slot, (float *)(uintptr_t)src, n, true);
}

int homes_read(ckpt *c, const struct param *p, int slot, float *dst, int64_t n)
{
    return copy_slot(c, p, slot, dst, n, false);
}

int homes_clear(ckpt *c, const struct param *p, int slot)
{
    struct device *d = c->device;
    if (p->home[slot] != HOME_DEVICE || find_home(c, p, slot))
        return copy_slot(c, p, slot, NULL, param_slot_numel(p, slot), true);
    d->ops->fill(d, QUEUE_COPY_IN, d->ops->base(d) + p->offset[slot], 0, param_slot_bytes(p, slot));
    return begin(c);
}
