/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory snapshots: see memory_viz.h.  A snapshot is a pickle of protocol 2 that uses only the
 * opcodes the viewer supports.  The viewer replays the events backwards from the last one, so the
 * blocks listed as live at the end must match the events.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/graph/lines.h"
#include "report/memory_viz.h"

enum { TIERS = TIER_COUNT + 1, BATCH = 1000 /* items per append, as the viewer reads them */ };

/* Bytes in use from step first to step last. */
struct block {
    int tier;        /* 0: device */
    int32_t storage; /* or -1 - k: the workspace of step k; or PROCESS */
    int32_t first, last;
    int64_t offset, bytes;
};

enum { PROCESS = INT32_MIN };

/* Sorted by time. */
struct event {
    int32_t step, block;
    bool allocates;
};

struct snapshot {
    const struct graph *g;
    const struct plan *p;
    struct {
        struct block *data;
        int64_t capacity;
    } blocks;
    int32_t n_blocks;
    struct event *events;
    int32_t n_events;
    struct block *live; /* live after the last step, by tier and address */
    int32_t n_live;
    int64_t bytes[TIERS];
};

/* ---- what stands where ----------------------------------------------------------------------- */

static int add_block(struct snapshot *s, const struct block *b)
{
    if (!b->bytes || b->first > b->last)
        return 0;
    if (ARRAY_RESERVE(&s->blocks, s->n_blocks))
        return CKPT_ENOMEM;
    s->blocks.data[s->n_blocks++] = *b;
    return 0;
}

/* A residence that runs into the next step is split in two blocks. */
static int add_residence(struct snapshot *s, const struct residence *r, int64_t base)
{
    int32_t n = s->p->n_steps;
    struct block b = {r->tier + 1,      r->storage,
                      r->first,         r->last < n ? r->last : n - 1,
                      base + r->offset, residence_bytes(s->g, s->p, r)};
    if (add_block(s, &b))
        return CKPT_ENOMEM;
    b.first = 0;
    b.last = r->last - n;
    return r->last < n ? 0 : add_block(s, &b);
}

/* Persistent storages that never leave come first; the context assigns their addresses. */
static int add_device(struct snapshot *s, int64_t process)
{
    const struct plan *p = s->p;
    int32_t end = p->n_steps - 1;
    int64_t at = process;
    int rc = add_block(s, &(struct block){0, PROCESS, 0, end, 0, process});
    for (int32_t i = 0; i < p->n_residences && !rc; i++) {
        const struct residence *r = &p->residences[i];
        if (r->tier != TIER_DEVICE || !plan_is_backing(s->g, p, r))
            continue;
        int64_t bytes = s->g->storages[r->storage].bytes;
        rc = add_block(s, &(struct block){0, r->storage, 0, end, at, bytes});
        at += bytes;
    }
    return rc;
}

static int add_blocks(struct snapshot *s, int64_t process)
{
    const struct plan *p = s->p;
    int rc = add_device(s, process);
    for (int32_t i = 0; i < p->n_residences && !rc; i++) {
        const struct residence *r = &p->residences[i];
        if (r->tier != TIER_DEVICE)
            rc = add_residence(s, r, 0);
        else if (!plan_is_backing(s->g, p, r))
            rc = add_residence(s, r, process + p->persistent);
    }
    s->bytes[0] = process + p->persistent + p->transient;
    for (int32_t i = 0; i < s->n_blocks; i++) {
        const struct block *b = &s->blocks.data[i];
        s->bytes[b->tier] = max_i64(s->bytes[b->tier], b->offset + b->bytes);
    }
    return rc;
}

/* Within a step, frees of the previous step come before allocations. */
static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->allocates != y->allocates)
        return x->allocates ? 1 : -1;
    return (x->block > y->block) - (x->block < y->block);
}

static int by_address(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    if (x->tier != y->tier)
        return x->tier < y->tier ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int add_events(struct snapshot *s)
{
    s->events = malloc((2 * (size_t)s->n_blocks + 1) * sizeof *s->events);
    s->live = malloc(((size_t)s->n_blocks + 1) * sizeof *s->live);
    if (!s->events || !s->live)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < s->n_blocks; i++) {
        const struct block *b = &s->blocks.data[i];
        s->events[s->n_events++] = (struct event){b->first, i, true};
        if (b->last < s->p->n_steps - 1)
            s->events[s->n_events++] = (struct event){b->last + 1, i, false};
        else
            s->live[s->n_live++] = *b;
    }
    qsort(s->live, (size_t)s->n_live, sizeof *s->live, by_address);
    qsort(s->events, (size_t)s->n_events, sizeof *s->events, by_time);
    return 0;
}

/* ---- pickle ---------------------------------------------------------------------------------- */

static void put_little(FILE *f, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> (8 * i) & 0xff), f);
}

/* Readers reject text that is not UTF-8. */
static void put_text(FILE *f, const char *text)
{
    size_t n = strlen(text);
    bool good = text_is_utf8(text);
    fputc('X', f);
    put_little(f, n, 4);
    for (size_t i = 0; i < n; i++)
        fputc(good || (unsigned char)text[i] < 0x80 ? text[i] : '?', f);
}

static void put_int(FILE *f, const char *key, int64_t value)
{
    put_text(f, key);
    if (value == (int32_t)value) {
        fputc('J', f);
        put_little(f, (uint64_t)value, 4);
    } else {
        fputs("\x8a\x08", f);
        put_little(f, (uint64_t)value, 8);
    }
}

static void put_pair(FILE *f, const char *key, const char *text)
{
    put_text(f, key);
    put_text(f, text);
}

static void begin_dict(FILE *f)
{
    fputs("}(", f);
}

static void end_dict(FILE *f)
{
    fputc('u', f);
}

static void begin_list(FILE *f)
{
    fputs("](", f);
}

/* Called before item i. */
static void next_item(FILE *f, int32_t i)
{
    if (i && i % BATCH == 0)
        fputs("e(", f);
}

static void end_list(FILE *f)
{
    fputc('e', f);
}

/* ---- the snapshot ---------------------------------------------------------------------------- */

/* Address ranges of tiers are far apart; viewers keep addresses in doubles. */
static int64_t base_of(int tier)
{
    return (int64_t)(tier + 1) << 44;
}

static const char *name_of(const struct snapshot *s, const struct block *b)
{
    if (b->storage == PROCESS)
        return "context, libraries";
    return b->storage < 0 ? "workspace" : s->g->storages[b->storage].name;
}

/* The frame shows the storage in place of the function, the op as the file, and the plan step as
 * the line. */
static void put_frames(const struct snapshot *s, FILE *f, const struct block *b)
{
    put_text(f, "frames");
    begin_list(f);
    begin_dict(f);
    put_pair(f, "name", name_of(s, b));
    put_pair(f, "filename", s->p->n_steps ? s->g->ops[s->p->steps[b->first].op].name : "no step");
    put_int(f, "line", b->first);
    end_dict(f);
    end_list(f);
}

static void put_event(const struct snapshot *s, FILE *f, const char *action, const struct block *b)
{
    begin_dict(f);
    put_pair(f, "action", action);
    put_int(f, "addr", base_of(b->tier) + b->offset);
    put_int(f, "size", b->bytes);
    put_int(f, "stream", 0);
    put_frames(s, f, b);
    end_dict(f);
}

static void put_trace(const struct snapshot *s, FILE *f, int tier)
{
    int32_t n = 0;
    struct block all = {tier, PROCESS, 0, 0, 0, s->bytes[tier]};
    begin_list(f);
    if (s->bytes[tier])
        put_event(s, f, "segment_alloc", &all), n++;
    for (int32_t i = 0; i < s->n_events; i++) {
        const struct event *e = &s->events[i];
        const struct block *b = &s->blocks.data[e->block];
        if (b->tier != tier)
            continue;
        next_item(f, n++);
        put_event(s, f, e->allocates ? "alloc" : "free_requested", b);
        if (e->allocates)
            continue;
        next_item(f, n++);
        put_event(s, f, "free_completed", b);
    }
    end_list(f);
}

/* b NULL: free bytes. */
static void put_block(const struct snapshot *s, FILE *f, int64_t address, int64_t bytes,
                      const struct block *b)
{
    begin_dict(f);
    put_int(f, "address", address);
    put_int(f, "size", bytes);
    put_int(f, "requested_size", bytes);
    put_pair(f, "state", b ? "active_allocated" : "inactive");
    if (b) {
        put_frames(s, f, b);
    } else {
        put_text(f, "frames");
        begin_list(f);
        end_list(f);
    }
    end_dict(f);
}

/* Blocks must cover the segment without gaps. */
static int64_t put_blocks(const struct snapshot *s, FILE *f, int tier)
{
    int64_t at = 0, active = 0;
    int32_t n = 0;
    begin_list(f);
    for (int32_t i = 0; i < s->n_live; i++) {
        const struct block *b = &s->live[i];
        if (b->tier != tier)
            continue;
        if (b->offset > at) {
            next_item(f, n++);
            put_block(s, f, base_of(tier) + at, b->offset - at, NULL);
        }
        next_item(f, n++);
        put_block(s, f, base_of(tier) + b->offset, b->bytes, b);
        at = b->offset + b->bytes;
        active += b->bytes;
    }
    if (at < s->bytes[tier]) {
        next_item(f, n);
        put_block(s, f, base_of(tier) + at, s->bytes[tier] - at, NULL);
    }
    end_list(f);
    return active;
}

static void put_segment(const struct snapshot *s, FILE *f, int tier)
{
    begin_dict(f);
    put_int(f, "device", tier);
    put_int(f, "address", base_of(tier));
    put_int(f, "total_size", s->bytes[tier]);
    put_int(f, "stream", 0);
    put_pair(f, "segment_type", "large");
    put_text(f, "frames");
    begin_list(f);
    end_list(f);
    put_text(f, "blocks");
    int64_t active = put_blocks(s, f, tier);
    put_int(f, "allocated_size", active);
    put_int(f, "active_size", active);
    end_dict(f);
}

static void put_snapshot(FILE *f, const void *user)
{
    const struct snapshot *s = user;
    int tiers = s->bytes[2] ? 3 : s->bytes[1] ? 2 : 1;
    fputs("\x80\x02", f);
    begin_dict(f);
    put_text(f, "segments");
    begin_list(f);
    for (int tier = 0; tier < tiers; tier++)
        if (s->bytes[tier])
            put_segment(s, f, tier);
    end_list(f);
    put_text(f, "device_traces");
    begin_list(f);
    for (int tier = 0; tier < tiers; tier++)
        put_trace(s, f, tier);
    end_list(f);
    end_dict(f);
    fputc('.', f);
}

int memory_viz_write(const struct graph *g, const struct plan *p, const struct machine *machine,
                     const char *path)
{
    struct snapshot s = {.g = g, .p = p};
    bool good = !add_blocks(&s, machine->process) && !add_events(&s);
    int rc = good ? lines_write("snapshot", path, put_snapshot, &s)
                  : error_set(CKPT_ENOMEM, "no memory for the snapshot");
    free(s.blocks.data);
    free(s.events);
    free(s.live);
    return rc;
}
