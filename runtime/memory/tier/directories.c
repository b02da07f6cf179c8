/* SPDX-License-Identifier: Apache-2.0 */
/* Parses --nvme: directories, and the bytes that may be used in each. */
#include <string.h>
#include "ckpt_tools.h"
#include "memory/tier/tier.h"

/* Adds one element of --nvme, n bytes at text, to d. */
static int add_directory(struct tier_directories *d, const char *text, size_t n)
{
    char part[TIER_PATH + 64];
    if (d->n == TIER_DIRECTORIES)
        return error_set(CKPT_EINVAL, "more than %d directories", TIER_DIRECTORIES);
    if (n >= sizeof part)
        return error_set(CKPT_EINVAL, "the name of a directory is too long");
    memcpy(part, text, n);
    part[n] = 0;
    char *colon = strrchr(part, ':');
    if (colon == part || (colon && colon - part >= TIER_PATH))
        return error_set(CKPT_EINVAL, "'%s' does not name a directory as DIR:SIZE does", part);
    int rc = ckpt_parse_size(colon ? colon + 1 : part, &d->at[d->n].bytes);
    if (rc && !colon && *part)
        return error_set(rc, "'%s' names no size, as /data:200G does", part);
    if (rc)
        return rc;
    if (d->at[d->n].bytes < 0)
        return error_set(CKPT_EINVAL, "give it in bytes, as 200G");
    snprintf(d->at[d->n++].path, TIER_PATH, "%.*s", colon ? (int)(colon - part) : 0, part);
    return 0;
}

/* Rounds to whole stripes of several directories or whole blocks of one, and sums up. */
static int add_up(struct tier_directories *d)
{
    int64_t unit = d->n > 1 ? TIER_STRIPE : TIER_BLOCK;
    for (int32_t i = 0; i < d->n; i++) {
        if (d->n > 1 && !*d->at[i].path)
            return error_set(CKPT_EINVAL, "several sizes, each needs its directory: "
                                          "DIR:SIZE,DIR:SIZE");
        d->at[i].bytes -= d->at[i].bytes % unit;
        if (d->at[i].bytes > INT64_MAX - d->bytes)
            return error_set(CKPT_EINVAL, "together they are too large");
        d->bytes += d->at[i].bytes;
    }
    return 0;
}

int tier_read_directories(struct tier_directories *d, const char *text)
{
    int rc = 0;
    *d = (struct tier_directories){0};
    for (const char *part = text; part && !rc;) {
        const char *comma = strchr(part, ',');
        rc = add_directory(d, part, comma ? (size_t)(comma - part) : strlen(part));
        part = comma ? comma + 1 : NULL;
    }
    if (!rc)
        rc = add_up(d);
    return rc ? error_set(rc, "--nvme %s: %s", text, error_get()) : 0;
}
