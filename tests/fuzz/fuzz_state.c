/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of training states: header, checksums, counts.  The header gets a valid checksum, so
 * that the code after that check is reached; an accepted state has counts in range, and its tensors
 * are read or refused.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "fuzz/fuzz.h"
#include "state/state_counts.h"

static void check_counts(const struct state_counts *n)
{
    int64_t sum = 0;
    for (int i = 0; i < n->n_programs; i++) {
        if (n->steps[i] < 0 || n->batches[i] < 1 || n->batches[i] > COUNT_MAX)
            abort();
        sum += n->steps[i];
    }
    if (sum < 0 || sum > n->updates || n->updates > COUNT_MAX)
        abort();
}

static void read_tensors(ckpt_file *f)
{
    static float values[1 << 16];
    for (int i = 0; i < ckpt_file_count(f); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        if (ckpt_file_entry(f, i, &e) || e.numel > 1 << 16)
            continue;
        int rc = ckpt_file_read_f32(f, i, values, e.numel);
        if (rc)
            fuzz_sentence(rc, error_get());
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct state_counts n;
    ckpt_file *f;
    uint64_t length;
    char *copy = malloc(size + 8);
    memset(copy, 0, size + 8);
    if (size)
        memcpy(copy, data, size);
    memcpy(&length, copy, sizeof length);
    if (size >= 8 && length <= size - 8)
        file_seal_header(copy, 8 + (int64_t)length);
    int rc = ckpt_file_open(&f, fuzz_file((const uint8_t *)copy, size));
    free(copy);
    if (rc) {
        fuzz_sentence(rc, error_get());
        return 0;
    }
    rc = state_counts_read(f, &n);
    if (rc)
        fuzz_sentence(rc, error_get());
    else
        check_counts(&n);
    state_counts_free(&n);
    read_tensors(f);
    ckpt_file_close(f);
    return 0;
}
