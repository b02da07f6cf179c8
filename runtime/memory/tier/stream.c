/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers a range of bytes through two pieces of memory, as fast as a step would. */
#include "memory/tier/tier.h"

static char *memory_at(const struct tier_stream *s, int64_t at)
{
    return s->memory + at / s->piece % 2 * s->piece;
}

static void begin(const struct tier_stream *s, int64_t at)
{
    if (at < s->from + s->bytes)
        s->tier->ops->begin(s->tier, s->write, at, memory_at(s, at), s->piece);
}

static int move(const struct tier_stream *s, int64_t at)
{
    const struct tier_ops *ops = s->tier->ops;
    char *memory = memory_at(s, at);
    return s->write ? ops->write(s->tier, at, memory, s->piece)
                    : ops->read(s->tier, at, memory, s->piece);
}

int tier_stream_run(const struct tier_stream *s)
{
    int rc = 0;
    begin(s, s->from);
    for (int64_t at = s->from; at < s->from + s->bytes && !rc; at += s->piece) {
        begin(s, at + s->piece);
        rc = move(s, at);
    }
    return rc;
}
