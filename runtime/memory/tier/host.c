/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host tier: one range of anonymous memory.  Its addresses are reserved at open; reserve maps
 * pages there, on the device's NUMA node, as huge pages if possible, touches them with several
 * threads and pins them for the device.  Systems limit pinned memory, as WSL2 does: what is left
 * stays pageable, which is slower but correct.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef HAVE_NUMA
#include <numa.h>
#endif
#include "core/thread_team.h"
#include "memory/tier/host_limits.h"
#include "memory/tier/sys.h"
#include "memory/tier/tier.h"

#define PAGE      INT64_C(4096)
#define HUGE_PAGE (INT64_C(2) << 20)
#define SHARE     (INT64_C(64) << 20) /* bytes; fewer do not justify another thread */

struct host_tier {
    struct tier tier;
    struct tier_host_options options; /* root and pin point into this */
    const struct tier_sys *sys;
    struct tier_pin pin;
    char root[256];
    void *space; /* the reserved range; base is the first huge page in it */
    int64_t space_bytes;
    char *base;
    int64_t mapped; /* bytes that have pages */
    int64_t pinned; /* bytes that are pinned */
    bool huge;      /* the system accepted huge pages */
    int bound;      /* not 0: it refused the node */
};

static struct host_tier *host(struct tier *t)
{
    return (struct host_tier *)t;
}

/* ---- touching -------------------------------------------------------------------------------- */

struct touch {
    pthread_t caller; /* this thread stays on its own node */
    volatile char *at;
    int node;
};

static void touch_share(void *user, int64_t from, int64_t end)
{
    const struct touch *t = user;
#ifdef HAVE_NUMA
    if (t->node >= 0 && !pthread_equal(t->caller, pthread_self()) && numa_available() >= 0)
        numa_run_on_node(t->node);
#endif
    for (int64_t i = from; i < end; i += PAGE)
        t->at[i] = 0;
}

/* The kernel zeroes a page at its first touch, at the speed of one core: so several threads do it.
 */
static void touch(const struct host_tier *h, char *at, int64_t bytes)
{
    struct touch t = {.caller = pthread_self(), .at = at, .node = h->options.node};
    int threads = thread_team_size(h->options.threads, bytes, SHARE);
    thread_team_run(threads, bytes, HUGE_PAGE, touch_share, &t);
}

/* ---- pinning --------------------------------------------------------------------------------- */

static void unpin_from(struct host_tier *h, int64_t from)
{
    int64_t end = h->pinned;
    for (int64_t c = from; c < end; c += TIER_PIN_CHUNK)
        h->pin.unpin(h->pin.user, h->base + c, min_i64(TIER_PIN_CHUNK, end - c));
    h->pinned = min_i64(h->pinned, from);
}

/* Pins from h->pinned, a multiple of the chunk, to end, or as far as the device can. */
static int pin_on(struct host_tier *h, int64_t end)
{
    for (int64_t c = h->pinned; c < end; c += TIER_PIN_CHUNK) {
        int64_t bytes = min_i64(TIER_PIN_CHUNK, end - c);
        int rc = h->pin.pin(h->pin.user, h->base + c, bytes);
        if (rc)
            return rc;
        h->pinned = c + bytes;
    }
    return 0;
}

/* Pins up to end.  A chunk that was pinned in part is pinned again with what was added to it. After
 * a refusal the pinned bytes stay a prefix, and later growth is not pinned. */
static void pin_to(struct host_tier *h, int64_t end)
{
    if (!h->pin.pin || h->tier.pageable)
        return;
    int64_t before = h->pinned;
    unpin_from(h, before / TIER_PIN_CHUNK * TIER_PIN_CHUNK);
    if (pin_on(h, end) && h->pinned < before)
        pin_on(h, before);
}

/* ---- the arena ------------------------------------------------------------------------------- */

static int check_limits(const struct host_tier *h, int64_t bytes)
{
    struct host_limit limit = host_limits_check(h->root, bytes);
    if (limit.short_by <= 0)
        return 0;
    return error_set(CKPT_ENOMEM,
                     "host tier: %s (%lld bytes) of memory are needed, %s leaves %s: %s (%lld "
                     "bytes) short; lower --host or free memory",
                     human_bytes(bytes), (long long)bytes, limit.name, human_bytes(limit.left),
                     human_bytes(limit.short_by), (long long)limit.short_by);
}

/* Describes page size, node and pins in `how`. */
static void describe(struct host_tier *h)
{
    char where[64] = "any node", pins[64] = "";
    if (h->options.node >= 0)
        snprintf(where, sizeof where, "near node %d%s", h->options.node,
                 h->bound ? " was refused" : "");
    if (h->tier.pageable)
        snprintf(pins, sizeof pins, ", only %s pinned", human_bytes(h->pinned));
    else if (h->pin.pin)
        snprintf(pins, sizeof pins, ", pinned");
    snprintf(h->tier.how, sizeof h->tier.how, "%s, %s%s", h->huge ? "huge pages" : "small pages",
             where, pins);
}

/* Placement is advice: without libnuma, or if a container forbids it, the arena works as well, and
 * `how` says so. */
static void advise(struct host_tier *h, char *at, int64_t bytes)
{
    h->bound = h->options.node >= 0 ? h->sys->bind(at, (size_t)bytes, h->options.node) : 0;
    h->huge = !h->sys->madvise(at, (size_t)bytes, MADV_HUGEPAGE);
}

static void *map(struct host_tier *h, char *at, int64_t bytes, int protection)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    if (protection == PROT_NONE)
        flags |= MAP_NORESERVE;
    return h->sys->mmap(at, (size_t)bytes, protection, flags, -1, 0);
}

static int out_of_memory(int64_t bytes, const char *what)
{
    return error_set(CKPT_ENOMEM, "host tier: %s of %s (%lld bytes): %s", what, human_bytes(bytes),
                     (long long)bytes, strerror(errno));
}

static int grow(struct host_tier *h, int64_t end)
{
    char *at = h->base + h->mapped;
    int64_t bytes = end - h->mapped;
    int rc = bytes ? check_limits(h, bytes) : 0;
    if (rc || !bytes)
        return rc;
    if (map(h, at, bytes, PROT_READ | PROT_WRITE) == MAP_FAILED)
        return out_of_memory(bytes, "the system refused a mapping");
    advise(h, at, bytes);
    touch(h, at, bytes);
    pin_to(h, end);
    h->mapped = end;
    h->tier.pageable = h->pin.pin ? end - h->pinned : 0;
    describe(h);
    return 0;
}

static int host_reserve(struct tier *t, int64_t bytes)
{
    struct host_tier *h = host(t);
    if (bytes <= t->bytes)
        return 0;
    if (bytes > h->options.budget)
        return error_set(CKPT_ENOMEM,
                         "host tier: %s (%lld bytes) are needed, --host is %s: %lld "
                         "bytes short",
                         human_bytes(bytes), (long long)bytes, human_bytes(h->options.budget),
                         (long long)(bytes - h->options.budget));
    int rc = grow(h, round_up(bytes, PAGE));
    if (!rc)
        t->bytes = bytes;
    return rc;
}

static char *host_base(struct tier *t)
{
    return host(t)->base;
}

static int host_write(struct tier *t, int64_t offset, const void *src, int64_t bytes)
{
    memcpy(host(t)->base + offset, src, (size_t)bytes);
    return 0;
}

static int host_read(struct tier *t, int64_t offset, void *dst, int64_t bytes)
{
    memcpy(dst, host(t)->base + offset, (size_t)bytes);
    return 0;
}

static void host_close(struct tier *t)
{
    if (!t)
        return;
    struct host_tier *h = host(t);
    unpin_from(h, 0);
    h->sys->munmap(h->space, (size_t)h->space_bytes);
    free(h);
}

static const struct tier_ops host_ops = {.name = "host",
                                         .reserve = host_reserve,
                                         .base = host_base,
                                         .write = host_write,
                                         .read = host_read,
                                         .close = host_close};

int tier_open_host(struct tier **t, const struct tier_host_options *o)
{
    *t = NULL;
    if (o->budget <= 0 || o->budget > INT64_MAX - 2 * HUGE_PAGE)
        return error_set(CKPT_EINVAL, "host tier: --host %lld: give it in bytes, as 64G",
                         (long long)o->budget);
    struct host_tier *h = calloc(1, sizeof *h);
    if (!h)
        return error_set(CKPT_ENOMEM, "host tier: out of memory");
    h->tier.ops = &host_ops;
    h->options = *o;
    h->sys = o->sys ? o->sys : &tier_system;
    h->pin = o->pin ? *o->pin : (struct tier_pin){0};
    snprintf(h->root, sizeof h->root, "%s", o->root ? o->root : "");
    h->space_bytes = round_up(o->budget, HUGE_PAGE) + HUGE_PAGE;
    h->space = map(h, NULL, h->space_bytes, PROT_NONE);
    if (h->space == MAP_FAILED) {
        int rc = out_of_memory(o->budget, "the system refused address space");
        free(h);
        return rc;
    }
    h->base = (char *)round_up((int64_t)(intptr_t)h->space, HUGE_PAGE);
    snprintf(h->tier.how, sizeof h->tier.how, "nothing reserved yet");
    *t = &h->tier;
    return 0;
}
