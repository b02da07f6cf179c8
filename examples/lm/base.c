/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A digest of the weights that adapters are trained on.  It is of values as bf16, in no order and
 * without names: the same weights in other files, or as another dtype, have the same one.  A few
 * thousand values of each tensor tell weights apart, since training changes all tensors.  Experts
 * of gpt-oss do not count: files have them in 4 bits or as numbers.
 */
#include <inttypes.h>
#include <string.h>
#include "../common/digest.h"
#include "ckpt_files.h"
#include "run.h"

enum { PARTS = 8, VALUES = 1024 };

static uint64_t add_value(uint64_t hash, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return digest_word(hash, bits);
}

/* The values of up to PARTS places of a tensor. */
static int digest_entry(ckpt_file *f, int i, int64_t n, uint64_t *hash)
{
    const int64_t parts = n > PARTS * VALUES ? PARTS : 1;
    const int64_t size = parts > 1 ? VALUES : n;
    float x[PARTS * VALUES];

    *hash = DIGEST_START;
    for (int64_t p = 0; p < parts; p++) {
        if (ckpt_file_read_part_f32(f, i, p * (n / parts), x, size))
            return say_fail("%s", ckpt_error(NULL));
        for (int64_t k = 0; k < size; k++)
            *hash = add_value(*hash, x[k]);
    }
    return 0;
}

int lm_base_digest(const struct lm *m, const char *path, char to[ADAPTER_BASE])
{
    uint64_t sum = 0, hash;
    ckpt_file *f;
    int rc = 0;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    for (int i = 0; i < ckpt_file_count(f) && !rc; i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        if (ckpt_file_entry(f, i, &e) || !e.numel || lm_is_made_here(m, e.name) ||
            (m->config.family == LM_GPT_OSS && strstr(e.name, ".experts.")))
            continue;
        rc = digest_entry(f, i, e.numel, &hash);
        sum += hash;
    }
    ckpt_file_close(f);
    snprintf(to, ADAPTER_BASE, "%016" PRIx64, sum);
    return rc;
}
