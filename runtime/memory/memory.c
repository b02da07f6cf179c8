/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the tiers, places in them, and access to values in any backing tier. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "ckpt_tools.h"
#include "core/thread_team.h"
#include "memory/device/team.h"
#include "memory/memory.h"
#include "optim/host_update.h"

#define SHARE (INT64_C(1) << 20) /* elements; fewer do not justify another thread */
#define UNIT  (INT64_C(1) << 10) /* elements: no two threads write to one page */

#define ROUNDING (INT64_C(8) << 20)

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

static int open_host(struct memory *m)
{
    struct device *d = m->device;
    m->pin = (struct tier_pin){.pin = pin, .unpin = unpin, .user = d};
    struct tier_host_options o = {.budget = m->host,
                                  .node = d->ops->numa_node ? d->ops->numa_node(d) : -1,
                                  .pin = d->ops->pin ? &m->pin : NULL};
    return tier_open_host(&m->tiers[TIER_HOST], &o);
}

static int64_t staging_bytes(const struct memory *m)
{
    return 2 * PLAN_STAGING_SLOTS * m->slot;
}

/* Reserves addresses for the staging slots between device and files: anonymous memory, which
 * io_uring can register. */
static int open_staging(struct memory *m)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    m->slot = plan_staging(m->host) / (2 * PLAN_STAGING_SLOTS);
    void *p = mmap(NULL, (size_t)staging_bytes(m), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED)
        return error_set(CKPT_ENOMEM, "no %s of host memory to stage transfers of --nvme",
                         human_bytes(staging_bytes(m)));
    m->staging = p;
    return 0;
}

/* Pins the slots for the device, before the first plan that uses them. */
static int pin_staging(struct memory *m)
{
    struct device *d = m->device;
    int rc = m->staged || !d->ops->pin ? 0 : d->ops->pin(d, m->staging, staging_bytes(m));
    m->staged = rc == 0;
    return rc;
}

/* Opens the queues that are host threads; option is named in the failure. */
static int open_threads(struct memory *m, const char *option)
{
    struct device *d = m->device;
    int rc = d->ops->io(d, QUEUE_WRITE, NULL);
    return rc ? error_set(rc, "%s: the driver of %s cannot wait for the host", option, d->name) : 0;
}

int memory_start_team(struct device *d, int processes)
{
    bool bind = d->ops->numa_node != NULL;
    int threads = bind ? host_update_bind(d->ops->numa_node(d), processes, NULL) : 0;
    if (threads < 0) /* another node is only slower */
        threads = host_update_bind(-1, processes, NULL);
    if (threads > 0)
        team_size(threads);
    return team_start();
}

struct host_team {
    struct device *device;
    int processes;
};

/* The first command of QUEUE_HOST. */
static int prepare_host(const struct ckpt_kernel_args *a)
{
    const struct host_team *t = a->attr;
    return memory_start_team(t->device, t->processes);
}

int memory_open_steps(struct memory *m, int ranks)
{
    struct device *d = m->device;
    struct host_team team = {d, ranks};
    int rc = open_threads(m, "--host");
    if (rc)
        return rc;
    d->ops->compute(d, QUEUE_HOST, prepare_host,
                    &(struct ckpt_kernel_args){.attr = &team, .op = -1}, NULL);
    rc = d->ops->sync(d);
    if (rc == CKPT_ENOMEM) /* no step was in flight, so the weights are not lost */
        return error_set(rc, "cannot start the threads of updates on the host: lower "
                             "--threads, or raise the limits of processes and memory");
    m->host_steps = rc == 0;
    return rc ? m->failed(m->user, rc) : 0;
}

static int open_nvme(struct memory *m)
{
    int rc = open_threads(m, "--nvme");
    if (!rc)
        rc = open_staging(m);
    if (rc)
        return rc;
    struct tier_nvme_options o = {.directories = &m->directories,
                                  .deadline = m->options->io_deadline,
                                  .staging = m->staging,
                                  .staged = staging_bytes(m)};
    return tier_open_nvme(&m->tiers[TIER_NVME], &o);
}

int memory_open(struct memory *m)
{
    int rc = 0;
    if (m->options->plan_only)
        return 0;
    /* The tier detects most hangs and describes them in more detail, so its deadline is shorter. */
    if (m->options->io_deadline > 0)
        m->device->ops->deadline(m->device, 2 * m->options->io_deadline);
    if (m->host)
        rc = open_host(m);
    if (!rc && m->directories.bytes)
        rc = open_nvme(m);
    return rc;
}

void memory_close(struct memory *m, bool untouched)
{
    struct device *d = m->device;
    if (untouched)
        return;
    bool stuck = m->tiers[TIER_NVME] && m->tiers[TIER_NVME]->stuck;
    for (int i = 0; i < TIER_COUNT; i++)
        if (m->tiers[i])
            m->tiers[i]->ops->close(m->tiers[i]);
    if (m->rounding)
        d->ops->host_free(d, m->rounding);
    if (!m->staging || stuck)
        return;
    if (d->ops->unpin && m->staged)
        d->ops->unpin(d, m->staging, staging_bytes(m));
    munmap(m->staging, (size_t)staging_bytes(m));
}

/* ---- bytes of tiers -------------------------------------------------------------------------- */

static const enum backing backing_of_tier[] = {
    [TIER_HOST] = BACKING_HOST, [TIER_NVME] = BACKING_NVME};

static int64_t backing_bytes(const struct param *p, int slot)
{
    int64_t unit = p->place.backing[slot] == BACKING_NVME ? PLAN_NVME_ALIGN : CKPT_ALIGN;
    return round_up(param_slot_bytes(p, slot), unit);
}

int64_t memory_tier_bytes(const struct params *params, int tier)
{
    int64_t end = 0;
    for (int32_t i = 0; i < params->n; i++) {
        const struct param *p = &params->data[i];
        for (int s = 0; s < SLOT_COUNT; s++)
            if (p->place.backing[s] == backing_of_tier[tier])
                end = max_i64(end, p->place.offset[s] + backing_bytes(p, s));
    }
    return end;
}

int memory_reserve(struct memory *m, const int64_t bytes[TIER_COUNT])
{
    for (int i = 0; i < TIER_COUNT; i++) {
        struct tier *t = m->tiers[i];
        bool more = t && bytes[i] > t->bytes;
        int rc = more && i == TIER_NVME ? pin_staging(m) : 0;
        if (!rc && more)
            rc = t->ops->reserve(t, bytes[i]);
        if (rc)
            return rc;
    }
    return 0;
}

void memory_place_slot(struct memory *m, struct param *p, int slot, enum backing backing,
                       int64_t offset)
{
    if (p->place.offset[slot] >= 0)
        return;
    p->place.backing[slot] = backing;
    p->place.offset[slot] = offset;
    if (backing != BACKING_DEVICE)
        return;
    p->place.offset[slot] = m->persistent;
    m->persistent += round_up(param_slot_bytes(p, slot), CKPT_ALIGN);
}

/* ---- values ---------------------------------------------------------------------------------- */

int memory_sync(struct memory *m)
{
    int rc = m->device->ops->sync(m->device);
    if (rc)
        return m->failed(m->user, rc);
    return m->run_pending ? m->run_pending(m->user) : 0;
}

static int copy_device(struct memory *m, int64_t offset, void *host, int64_t bytes, bool in)
{
    struct device *d = m->device;
    char *device = d->ops->base(d) + offset;
    if (in)
        d->ops->copy(d, QUEUE_COPY_IN, device, host, bytes);
    else
        d->ops->copy(d, QUEUE_COPY_OUT, host, device, bytes);
    return memory_sync(m);
}

static bool is_half(const struct param *p, int slot)
{
    return param_slot_desc(p, slot).dtype == CKPT_BF16;
}

/* The number of elements a slot stores, in its dtype: values, or words of codes. */
static int64_t stored(const struct param *p, int slot)
{
    struct ckpt_desc d = param_slot_desc(p, slot);
    return desc_numel(&d);
}

/* The address of a slot if host threads can write it, or NULL. */
static char *find_backing(struct memory *m, const struct param *p, int slot)
{
    struct tier *host = m->tiers[TIER_HOST];
    if (p->place.backing[slot] == BACKING_HOST)
        return host->ops->base(host) + p->place.offset[slot];
    if (p->place.backing[slot] == BACKING_DEVICE && m->device->ops->backend == CKPT_ON_CPU)
        return m->device->ops->base(m->device) + p->place.offset[slot];
    return NULL;
}

/* fp32 values and the memory of the same elements in the slot's dtype. */
struct span {
    void *memory;
    float *values; /* NULL: the memory is set to zero */
    bool half, in;
};

static void convert_share(void *user, int64_t from, int64_t end)
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

static void convert(struct span s, int64_t n)
{
    thread_team_run(thread_team_size(0, n, SHARE), n, UNIT, convert_share, &s);
}

/* Copies a slot that only the device can access, piece by piece; bf16 is rounded in pinned memory.
 */
static int copy_pieces(struct memory *m, const struct param *p, int slot, int64_t first,
                       float *values, int64_t n, bool in)
{
    bool half = is_half(p, slot);
    int64_t size = half ? 2 : 4, max_count = ROUNDING / size;
    int rc = 0;
    if (half && !m->rounding)
        m->rounding = m->device->ops->host_alloc(m->device, ROUNDING);
    if (half && !m->rounding)
        return error_set(CKPT_ENOMEM, "no memory to round parameters");
    for (int64_t at = 0; at < n && !rc; at += max_count) {
        struct span s = {m->rounding, values + at, half, in};
        int64_t count = min_i64(n - at, max_count);
        if (half && in)
            convert(s, count);
        rc = copy_device(m, p->place.offset[slot] + (first + at) * size, half ? s.memory : s.values,
                         count * size, in);
        if (half && !in && !rc)
            convert(s, count);
    }
    return rc;
}

/* A block of a slot in a file, of the same size as the executor's: each has one checksum. */
struct block {
    struct span span;
    int64_t n, offset, bytes;
};

static struct block block_of(struct memory *m, const struct param *p, int slot, float *values,
                             int64_t i)
{
    bool half = is_half(p, slot);
    int64_t size = half ? 2 : 4, max_count = m->slot / size, at = i * max_count;
    int64_t n = min_i64(stored(p, slot) - at, max_count);
    return (struct block){
        .span = {m->staging + i % 2 * m->slot, values ? values + at : NULL, half, false},
        .n = n,
        .offset = p->place.offset[slot] + at * size,
        .bytes = round_up(n * size, PLAN_NVME_ALIGN)};
}

static void fill_block(struct block *b)
{
    int64_t bytes = b->n * (b->span.half ? 2 : 4);
    b->span.in = true;
    memset((char *)b->span.memory + bytes, 0, (size_t)(b->bytes - bytes));
    convert(b->span, b->n);
}

/* Copies a slot in a file.  While the disk works on one block, the one before or after is rounded.
 */
static int copy_file(struct memory *m, const struct param *p, int slot, float *values, bool in)
{
    struct tier *t = m->tiers[TIER_NVME];
    int64_t blocks = (param_slot_bytes(p, slot) + m->slot - 1) / m->slot;
    struct block next = {.n = 0}, last;
    int rc = 0;
    for (int64_t i = 0; i <= blocks && !rc; i++) {
        last = next;
        if (i < blocks) {
            next = block_of(m, p, slot, values, i);
            if (in)
                fill_block(&next);
            t->ops->begin(t, in, next.offset, next.span.memory, next.bytes);
        }
        if (i == 0)
            continue;
        rc = in ? t->ops->write(t, last.offset, last.span.memory, last.bytes)
                : t->ops->read(t, last.offset, last.span.memory, last.bytes);
        if (!rc && !in)
            convert(last.span, last.n);
    }
    return rc ? error_set(rc, "parameter '%s': %s", p->name, t->reason) : 0;
}

static int copy_run(struct memory *m, const struct param *p, int slot, int64_t first, float *values,
                    int64_t n, bool in)
{
    char *backing = find_backing(m, p, slot);
    int rc = memory_sync(m); /* a step that failed may have left the values incomplete */
    if (rc)
        return rc;
    if (p->place.backing[slot] == BACKING_NVME)
        return copy_file(m, p, slot, values, in);
    if (!backing)
        return copy_pieces(m, p, slot, first, values, n, in);
    const bool half = is_half(p, slot);
    convert((struct span){backing + first * (half ? 2 : 4), values, half, in}, n);
    return 0;
}

static int copy_slot(struct memory *m, const struct param *p, int slot, float *values, int64_t n,
                     bool in)
{
    return copy_run(m, p, slot, 0, values, n, in);
}

/* Copies the codes of a slot as a whole and converts them in host memory. */
static int copy_codes(struct memory *m, const struct param *p, int slot, float *values, int64_t n,
                      bool in)
{
    void *memory = calloc(1, (size_t)param_slot_bytes(p, slot));
    if (!memory)
        return error_set(CKPT_ENOMEM, "no memory to convert parameter '%s'", p->name);
    if (in)
        param_slot_encode(p, slot, values, n, memory);
    int rc = copy_slot(m, p, slot, memory, stored(p, slot), in);
    if (!rc && !in)
        param_slot_decode(p, slot, memory, n, values);
    free(memory);
    return rc;
}

int memory_write(struct memory *m, const struct param *p, int slot, const float *src, int64_t n)
{
    float *values = (float *)(uintptr_t)src;
    return param_slot_is_coded(p, slot) ? copy_codes(m, p, slot, values, n, true)
                                        : copy_slot(m, p, slot, values, n, true);
}

int memory_read(struct memory *m, const struct param *p, int slot, float *dst, int64_t n)
{
    return param_slot_is_coded(p, slot) ? copy_codes(m, p, slot, dst, n, false)
                                        : copy_slot(m, p, slot, dst, n, false);
}

bool memory_reads_runs(const struct param *p, int slot)
{
    return !param_slot_is_coded(p, slot) && p->place.backing[slot] != BACKING_NVME;
}

int memory_read_run(struct memory *m, const struct param *p, int slot, int64_t first, float *dst,
                    int64_t n)
{
    return copy_run(m, p, slot, first, dst, n, false);
}

int memory_clear(struct memory *m, const struct param *p, int slot)
{
    struct device *d = m->device;
    if (p->place.backing[slot] != BACKING_DEVICE || find_backing(m, p, slot))
        return copy_slot(m, p, slot, NULL, stored(p, slot), true);
    d->ops->fill(d, QUEUE_COPY_IN, d->ops->base(d) + p->place.offset[slot], 0,
                 param_slot_bytes(p, slot));
    return memory_sync(m);
}
