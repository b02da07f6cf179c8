/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of the example programs, by name: see fuzz_readers.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../examples/common/say.h"
#include "fuzz/fuzz_readers.h"

const char say_program[] = "fuzz";

static char directory[] = "/tmp/fuzz-readers-XXXXXX";

static void remove_directory(void)
{
    rmdir(directory);
}

static const char *make_directory(void)
{
    static bool made;

    if (!made && !mkdtemp(directory))
        abort();
    if (!made)
        atexit(remove_directory);
    made = true;
    return directory;
}

const char *fuzz_source(char dst[4096], const char *name)
{
    const char *source = getenv("srcdir");

    snprintf(dst, 4096, "%s/%s", source ? source : ".", name);
    return dst;
}

static void run(const struct fuzz_reader *r, const uint8_t *data, size_t size)
{
    char path[4096], said[4096];
    const char *in = make_directory();

    snprintf(path, sizeof path, "%s/%s", in, r->file);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f))
        abort();
    say_keep(said, sizeof said);
    int rc = r->read(path, in);
    say_keep(NULL, 0);
    remove(path);
    if ((rc != 0 && rc != -1) || (rc && !*said)) {
        fprintf(stderr, "%s: returned %d and said '%s'\n", r->name, rc, said);
        abort();
    }
    if (getenv("FUZZ_SHOW"))
        fprintf(stderr, "%s: %d %s\n", r->name, rc, said);
}

void fuzz_readers_run(const struct fuzz_reader *readers, int n, const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size < 64 ? size : 64) : NULL;
    size_t name = end ? (size_t)(end - data) : 0;

    for (int i = 0; i < n && end; i++)
        if (strlen(readers[i].name) == name && !memcmp(readers[i].name, data, name))
            run(&readers[i], end + 1, size - name - 1);
}
