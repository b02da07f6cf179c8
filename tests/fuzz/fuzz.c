/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets of file parsers share. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fuzz/fuzz.h"

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return path;
}

void fuzz_sentence(int rc, const char *message)
{
    if (rc != CKPT_EFORMAT && rc != CKPT_EPLAN && rc != CKPT_EINVAL && rc != CKPT_EBUDGET &&
        rc != CKPT_ENOMEM)
        abort();
    size_t n = strnlen(message, CKPT_MESSAGE);
    if (n == 0 || n == CKPT_MESSAGE || memchr(message, '\n', n))
        abort();
}

#ifndef WITH_LIBFUZZER
static int run_file(const char *path)
{
    static uint8_t data[1 << 20];
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    size_t n = fread(data, 1, sizeof(data), f);
    fclose(f);
    LLVMFuzzerTestOneInput(data, n);
    return 0;
}

static int run_directory(const char *path)
{
    int rc = 0;
    DIR *d = opendir(path);
    if (!d) {
        perror(path);
        return 1;
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char name[4096];
        snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            rc |= run_file(name);
    }
    closedir(d);
    return rc;
}

int main(int argc, char **argv)
{
    int rc = 0;
    struct stat s;
    for (int i = 1; i < argc; i++)
        rc |= stat(argv[i], &s) == 0 && S_ISDIR(s.st_mode) ? run_directory(argv[i])
                                                           : run_file(argv[i]);
    return rc;
}
#endif
