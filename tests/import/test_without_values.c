/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model that was exported without values gets them from a file of weights, by the names of
 * PyTorch; one with constants that no such file has is planned, and refused when it is to run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "ckpt_import.h"

static char folder[] = "/tmp/test-without-values-XXXXXX";
static const char *const packed[] = {"models/norms", "empty/norms", "empty/bert"};

static void fail(const char *what, const char *why)
{
    printf("FAIL: %s: %s\n", what, why);
    exit(1);
}

static const char *file(int i)
{
    static char path[4][100];

    snprintf(path[i], sizeof path[i], "%s/%d.pt2", folder, i);
    return path[i];
}

static void unpack(void)
{
    const char *srcdir = getenv("srcdir");
    char command[4096];

    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "gzip -dc '%s/tests/import/%s.pt2.gz' >'%s'",
                 srcdir ? srcdir : ".", packed[i], file(i));
        if (system(command))
            fail(packed[i], "cannot be unpacked");
    }
}

static ckpt *open_context(bool plan_only)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    ckpt *c;

    options.device = "cpu";
    options.threads = 1;
    options.plan_only = plan_only;
    if (ckpt_open(&c, &options))
        fail("ckpt_open", ckpt_error(NULL));
    return c;
}

static ckpt *open_model(int i, bool plan_only)
{
    ckpt *c = open_context(plan_only);
    ckpt_import *m;

    if (ckpt_import_open(c, file(i), &m))
        fail(packed[i], ckpt_error(c));
    ckpt_import_close(m);
    return c;
}

/* Whether a parameter of both has the same values. */
static bool is_same(ckpt *a, ckpt *b, int i)
{
    struct ckpt_param_info p = CKPT_PARAM_INFO_INIT;
    float x[400], y[400];

    ckpt_param_info(a, ckpt_param_at(a, i), &p);
    int64_t n = p.numel;
    if (n > 400 || ckpt_param_get(a, ckpt_param_at(a, i), CKPT_VALUE, x, n) ||
        ckpt_param_get(b, ckpt_param_at(b, i), CKPT_VALUE, y, n))
        fail(p.name, "cannot be compared");
    return !memcmp(x, y, (size_t)n * sizeof *x);
}

static void load_weights(void)
{
    ckpt *full = open_model(0, false), *empty = open_model(1, false);
    int n = ckpt_param_count(full), unmatched = -1, same = 0;
    char path[100];

    snprintf(path, sizeof path, "%s/weights", folder);
    if (n != ckpt_param_count(empty))
        fail("empty/norms", "it has other parameters");
    for (int i = 0; i < n; i++)
        same += is_same(full, empty, i);
    if (same > n / 2)
        fail("empty/norms", "it has values");
    if (ckpt_save_params(full, path, CKPT_VALUE))
        fail("save", ckpt_error(full));
    if (ckpt_load_params(empty, path, NULL, NULL, &unmatched) || unmatched)
        fail("load", ckpt_error(empty));
    for (int i = 0; i < n; i++)
        if (!is_same(full, empty, i))
            fail("empty/norms", "other values than in the file");
    unlink(path);
    ckpt_close(full);
    ckpt_close(empty);
}

static void refuse_constants(void)
{
    ckpt *c = open_context(false);
    ckpt_import *m = NULL;

    ckpt_close(open_model(2, true));
    if (ckpt_import_open(c, file(2), &m) != CKPT_EFORMAT || m ||
        !strstr(ckpt_error(c), "is a constant of it"))
        fail("empty/bert", ckpt_error(c));
    ckpt_close(c);
}

int main(void)
{
    if (system("command -v gzip >/dev/null"))
        return 77;
    if (!mkdtemp(folder))
        return 1;
    unpack();
    load_weights();
    refuse_constants();
    for (int i = 0; i < 3; i++)
        unlink(file(i));
    rmdir(folder);
    return 0;
}
