/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt plan --place: assigns addresses to the buffers of a list. */
#include <stdlib.h>
#include "cli/cli.h"
#include "cli/place_csv.h"

static void print_result(const struct place_file *file, const struct place_result *r,
                         int64_t capacity, double seconds)
{
    printf("buffers %d\n", file->n);
    printf("peak %lld\n", (long long)r->peak);
    printf("max-load %lld\n", (long long)r->load);
    printf("ratio %.5f%s\n", r->load > 0 ? (double)r->peak / (double)r->load : 1.0,
           r->proved && (capacity == 0 || r->peak == r->load) ? ", the smallest possible" : "");
    printf("seconds %.3f\n", seconds);
}

/* Prints why the capacity was not reached. */
static int report_miss(const struct plan_options *o, const struct place_result *r)
{
    if (o->capacity < r->load)
        return cli_fail("%s does not fit %lld bytes: %lld bytes are alive at one time", o->place,
                        (long long)o->capacity, (long long)r->load);
    if (r->proved)
        return cli_fail("%s does not fit %lld bytes: no addresses do; the smallest placement found "
                        "has %lld bytes",
                        o->place, (long long)o->capacity, (long long)r->peak);
    return cli_fail("%s: no addresses within %lld bytes were found, only within %lld; search "
                    "longer with --seconds",
                    o->place, (long long)o->capacity, (long long)r->peak);
}

static int place_and_print(const struct plan_options *o, struct place_file *file)
{
    struct place_request q = {.capacity = o->capacity, .seconds = o->seconds};
    struct place_result r;
    double start = clock_seconds();
    if (plan_place(file->items, file->n, &q, &r))
        return cli_fail("%s: placing ran out of host memory", o->place);
    print_result(file, &r, o->capacity, clock_seconds() - start);
    if (o->out && place_file_write(file, o->out))
        return cli_fail("%s", error_get());
    return o->capacity > 0 && r.peak > o->capacity ? report_miss(o, &r) : EXIT_SUCCESS;
}

int cli_place(const struct plan_options *o)
{
    struct place_file file;
    if (place_file_read(o->place, &file))
        return cli_fail("%s", error_get());
    int rc = place_and_print(o, &file);
    place_file_free(&file);
    return rc;
}
