/* SPDX-License-Identifier: Apache-2.0 */
/* Shared code of the fuzz targets of file parsers. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fuzz/fuzz.h"
#include "fuzz/mutate.h"

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
enum { ROOM = 1 << 20, HANG = 60 /* seconds */ };

static long only;         /* the one to repeat; 0: all */
static long seeds;        /* ways to damage each file */
static const char *first; /* line in front of it; NULL: none */
static char running[256]; /* the case, for whoever looks at a finding */

/* Prints which case failed.  Sanitizers end in SIGABRT with abort_on_error=1. */
static void tell(int number)
{
    ssize_t n = write(STDERR_FILENO, running, strlen(running));

    (void)n;
    signal(number, SIG_DFL);
    raise(number);
}

static void run(const char *path, long seed, const uint8_t *data, size_t n)
{
    snprintf(running, sizeof running, "%s, seed %ld%s%s\n", path, seed, first ? ", " : "",
             first ? first : "");
    alarm(HANG);
    LLVMFuzzerTestOneInput(data, n);
}

static int run_file(const char *path)
{
    static uint8_t data[ROOM], copy[ROOM];
    size_t head = first ? strlen(first) + 1 : 0;
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    size_t n = fread(data + head, 1, sizeof data / 2 - head, f);
    fclose(f);
    if (first)
        snprintf((char *)copy, sizeof copy, "%s\n", first);
    memcpy(data, copy, head);
    run(path, 0, data, n + head);
    for (long seed = only ? only : 1; seed <= seeds; seed++) {
        memcpy(copy, data, n + head);
        run(path, seed, copy, head + mutate(copy + head, n, sizeof copy - head, (uint64_t)seed));
    }
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
    signal(SIGABRT, tell);
    signal(SIGSEGV, tell);
    signal(SIGALRM, tell);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--seeds") && i + 1 < argc)
            seeds = atol(argv[++i]);
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            only = seeds = atol(argv[++i]);
        else if (!strcmp(argv[i], "--line") && i + 1 < argc)
            first = argv[++i];
        else
            rc |= stat(argv[i], &s) == 0 && S_ISDIR(s.st_mode) ? run_directory(argv[i])
                                                               : run_file(argv[i]);
    return rc;
}
#endif
