/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the reader of placement instances: every accepted instance can be placed. */
#include <stdlib.h>
#include "fuzz/fuzz.h"
#include "cli/place_csv.h"

/* No two items with a common step share bytes. */
static void check_offsets(const struct place_item *items, int32_t n, int64_t peak)
{
    for (int32_t i = 0; i < n; i++) {
        const struct place_item *a = &items[i];
        if (a->offset < 0 || a->bytes > peak - a->offset)
            abort();
        for (int32_t j = 0; j < i; j++) {
            const struct place_item *b = &items[j];
            bool together = a->first <= b->last && b->first <= a->last;
            if (together && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct place_file file;
    int rc = place_file_read(fuzz_file(data, size), &file);
    if (rc) {
        fuzz_sentence(rc, error_get());
        return 0;
    }
    int64_t load, peak;
    if (place_load(file.items, file.n, &load) || place_items(file.items, file.n, load, &peak) ||
        peak < load)
        abort();
    check_offsets(file.items, file.n, peak);
    place_file_free(&file);
    return 0;
}
