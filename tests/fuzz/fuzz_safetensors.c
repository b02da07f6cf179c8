/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the safetensors reader. */
#include <stdlib.h>
#include "ckpt_files.h"
#include "fuzz/fuzz.h"

/* Reads everything that the header describes; a reader can trust an accepted header. */
static void read_entry(ckpt_file *f, int i)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;

    if (ckpt_file_entry(f, i, &e) || ckpt_file_find(f, e.name) != i || e.numel < 0)
        abort();
    if (e.numel > 1 << 20)
        return; /* only of no bytes or of many; the buffers below should stay small */
    float *floats = malloc((size_t)e.numel * sizeof(float) + 1);
    int32_t *ints = malloc((size_t)e.numel * sizeof(int32_t) + 1);
    int rc = ckpt_file_read_f32(f, i, floats, e.numel);
    if (rc != 0 && rc != CKPT_EFORMAT)
        abort();
    rc = ckpt_file_read_i32(f, i, ints, e.numel);
    if (rc != 0 && rc != CKPT_EFORMAT)
        abort();
    free(floats);
    free(ints);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_file *f;
    int rc = ckpt_file_open(&f, fuzz_file(data, size));

    if (rc) {
        fuzz_sentence(rc, error_get());
        return 0;
    }
    for (int i = 0; i < ckpt_file_count(f); i++)
        read_entry(f, i);
    ckpt_file_close(f);
    return 0;
}
