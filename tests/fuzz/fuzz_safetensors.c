/*
 * Fuzz target of the safetensors reader.
 *
 * With libFuzzer:   clang -fsanitize=fuzzer,address -DWITH_LIBFUZZER fuzz_safetensors.c ...
 * libckpt.a Without:          the program runs the files named on its command line, to repeat a
 * finding.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads whatever the header promises; an accepted header must be one that reading can trust. */
static void read_entry(ckpt_file *f, int i)
{
    struct ckpt_file_entry e;

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
    static int fd = -1; /* one file in memory for all inputs */
    char path[64];
    ckpt_file *f;

    if (fd < 0)
        fd = memfd_create("fuzz_safetensors", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int rc = ckpt_file_open(&f, path);
    if (rc == CKPT_EFORMAT)
        return 0;
    if (rc)
        abort();
    for (int i = 0; i < ckpt_file_count(f); i++)
        read_entry(f, i);
    ckpt_file_close(f);
    return 0;
}

#ifndef WITH_LIBFUZZER
int main(int argc, char **argv)
{
    static uint8_t data[1 << 20];

    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) {
            perror(argv[i]);
            return 1;
        }
        size_t n = fread(data, 1, sizeof(data), f);
        fclose(f);
        LLVMFuzzerTestOneInput(data, n);
    }
    return 0;
}
#endif
