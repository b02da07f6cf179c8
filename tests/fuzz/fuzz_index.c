/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the index of a sharded model: it opens files next to it and no others. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "fuzz/fuzz.h"
#include "state/safetensors.h"

/* A directory with two shards, and the data as their index. */
static const char *make_files(const uint8_t *data, size_t size)
{
    static char dir[] = "/tmp/fuzz-index-XXXXXX", path[2][64], index[64];
    static const float value = 1;
    if (!*index) {
        if (!mkdtemp(dir))
            abort();
        for (int i = 0; i < 2; i++) {
            ckpt_file_writer *w;
            snprintf(path[i], sizeof path[i], "%s/%c.safetensors", dir, "ab"[i]);
            if (ckpt_file_create(&w, path[i]) ||
                ckpt_file_add(w, i ? "b" : "a", CKPT_F32, 0, NULL, &value) || ckpt_file_commit(w))
                abort();
        }
        snprintf(index, sizeof index, "%s/index.json", dir);
    }
    FILE *f = fopen(index, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f))
        abort();
    return index;
}

static void clean(const char *index)
{
    char path[96];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.*s/%c.safetensors", (int)(strrchr(index, '/') - index),
                 index, "ab"[i]);
        unlink(path);
    }
    unlink(index);
    snprintf(path, sizeof path, "%.*s", (int)(strrchr(index, '/') - index), index);
    rmdir(path);
}

static const char *used;

static void clean_used(void)
{
    clean(used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt_file *f;
    bool first = !used;
    used = make_files(data, size);
    if (first)
        atexit(clean_used);
    int rc = ckpt_file_open(&f, used);
    if (rc == CKPT_EIO) /* a shard that is not there */
        return 0;
    if (rc) {
        fuzz_sentence(rc, error_get());
        return 0;
    }
    for (int i = 0; i < ckpt_file_count(f); i++) {
        float x = 0;
        if (ckpt_file_read_f32(f, i, &x, 1) || x != 1)
            abort();
    }
    ckpt_file_close(f);
    return 0;
}
