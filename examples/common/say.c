/* What the programs say: failures, sizes, large numbers. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "say.h"

static int rank = -1; /* of several */

void say_as_rank(int own, int ranks)
{
    rank = ranks > 1 ? own : -1;
    if (rank > 0 && !freopen("/dev/null", "w", stdout))
        say_fail("/dev/null: %s", strerror(errno));
}

int say_fail(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", say_program);
    if (rank >= 0)
        fprintf(stderr, "rank %d: ", rank);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return -1;
}

int64_t say_rss(void)
{
    long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f)
        return 0;
    if (fscanf(f, "%lld %lld", &pages, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

const char *say_bytes(char dst[32], int64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int i = 0;

    for (; value >= 1024 && i < 4; i++)
        value /= 1024;
    snprintf(dst, 32, i ? "%.2f %s" : "%.0f %s", value, unit[i]);
    return dst;
}

const char *say_count(char dst[32], int64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;

    for (int i = 0; i < length; i++) {
        dst[at++] = digits[i];
        if (i + 1 < length && (length - 1 - i) % 3 == 0)
            dst[at++] = ',';
    }
    dst[at] = 0;
    return dst;
}

int say_check_writable(const char *option, const char *path)
{
    char directory[4096] = ".";
    const char *slash = path ? strrchr(path, '/') : NULL;

    if (!path)
        return 0;
    if (slash)
        snprintf(directory, sizeof directory, "%.*s", (int)(slash - path + 1), path);
    if (access(directory, W_OK))
        return say_fail("--%s %s: %s: %s", option, path, directory, strerror(errno));
    return 0;
}

int say_make_directory(const char *option, const char *path)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return say_fail("--%s %s: %s", option, path, strerror(errno));
    return 0;
}
