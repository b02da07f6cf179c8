/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_import_save: a copy of an archive has the values of a context, whichever way they lie in it.
 * Beside it what a program asks of a model: dynamic dimensions, missing values, evaluation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "ckpt_import.h"

static char folder[] = "/tmp/test-import-save-XXXXXX";

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("FAIL: %s, line %d: %s\n", #what, __LINE__, c ? ckpt_error(c) : "");            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char *unpack(const char *name, const char *to)
{
    static char path[8][200];
    static int next;
    char command[4600];
    const char *srcdir = getenv("srcdir");

    snprintf(path[next], sizeof path[next], "%s/%s", folder, to);
    snprintf(command, sizeof command, "gzip -dc '%s/tests/import/%s.pt2.gz' >'%s'",
             srcdir ? srcdir : ".", name, path[next]);
    if (system(command))
        exit(1);
    return path[next++];
}

static ckpt *open_model(const char *path, ckpt_import **m)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c = NULL;

    o.device = "cpu";
    o.threads = 1;
    CHECK(!ckpt_open(&c, &o));
    CHECK(!ckpt_import_open(c, path, m));
    return c;
}

static struct ckpt_param_info param_at(ckpt *c, int i)
{
    struct ckpt_param_info p = CKPT_PARAM_INFO_INIT;

    ckpt_param_info(c, ckpt_param_at(c, i), &p);
    return p;
}

/* Whole numbers, which every dtype has. */
static float value_of(int i, int64_t k)
{
    return (float)((i * 7 + k * 3) % 101);
}

static void set_all(ckpt *c)
{
    for (int i = 0; i < ckpt_param_count(c); i++) {
        const int64_t n = param_at(c, i).numel;
        float *x = malloc((size_t)n * sizeof *x);
        for (int64_t k = 0; k < n; k++)
            x[k] = value_of(i, k);
        CHECK(!ckpt_param_set(c, ckpt_param_at(c, i), CKPT_VALUE, x, n));
        free(x);
    }
}

static void check_all(ckpt *c)
{
    for (int i = 0; i < ckpt_param_count(c); i++) {
        const int64_t n = param_at(c, i).numel;
        float *x = malloc((size_t)n * sizeof *x);
        CHECK(!ckpt_param_get(c, ckpt_param_at(c, i), CKPT_VALUE, x, n));
        for (int64_t k = 0; k < n; k++)
            CHECK(x[k] == value_of(i, k));
        free(x);
    }
}

/* Tied and transposed tensors, buffers of i64, kernels with channels last, matrices of addmm. */
static void save(const char *name)
{
    char out[300];
    const char *path = unpack(name, "from.pt2");
    ckpt_import *m;
    ckpt *c = open_model(path, &m);

    CHECK(ckpt_import_missing(m) == 0);
    set_all(c);
    snprintf(out, sizeof out, "%s/to.pt2", folder);
    CHECK(!ckpt_import_save(m, out));
    ckpt_import_close(m);
    ckpt_close(c);
    c = open_model(out, &m); /* which compares the checksums */
    check_all(c);
    CHECK(!ckpt_import_save(m, out)); /* over itself */
    ckpt_import_close(m);
    ckpt_close(c);
    c = open_model(out, &m);
    check_all(c);
    ckpt_import_close(m);
    ckpt_close(c);
    unlink(out);
}

static void refuse_empty(void)
{
    char out[300];
    ckpt_import *m;
    ckpt *c = open_model(unpack("empty/norms", "empty.pt2"), &m);

    CHECK(ckpt_import_missing(m) > 0);
    snprintf(out, sizeof out, "%s/to.pt2", folder);
    CHECK(ckpt_import_save(m, out) == CKPT_EINVAL && strstr(ckpt_error(c), "without values"));
    CHECK(access(out, F_OK));
    ckpt_import_close(m);
    ckpt_close(c);
}

static void find_dimensions(void)
{
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
    ckpt_import *m;
    ckpt *c = open_model(unpack("models/dynamic", "dynamic.pt2"), &m);

    CHECK(!ckpt_import_set_size(m, "x.0", 6) && !ckpt_import_set_size(m, "x.1", 12));
    CHECK(!ckpt_import_input(m, 0, &v));
    CHECK(v.desc.shape[0] == 6 && v.desc.shape[1] == 12 && v.desc.shape[2] == 8);
    CHECK(v.dimension[0] && v.dimension[0][0] == 's' && !*v.dimension[1] && !v.dimension[2]);
    CHECK(ckpt_import_set_size(m, "x.1", 13) == CKPT_ESHAPE);
    CHECK(ckpt_import_set_size(m, "x.2", 9) == CKPT_ESHAPE);
    CHECK(ckpt_import_set_size(m, "y.0", 4) == CKPT_ENAME);
    ckpt_import_close(m);
    ckpt_close(c);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor in[2], out;

    in[0] = ckpt_input(t, "image", CKPT_F32, 4, (int64_t[]){batch, 3, 12, 12});
    in[1] = ckpt_input(t, "label", CKPT_I32, 1, &batch);
    ckpt_import_record(t, user, in, &out);
    return out;
}

/* The loss of a batch of 4 equal samples, whose variance is none of training's. */
static float loss_of(ckpt *c, ckpt_import *m, bool trains)
{
    static float image[4 * 3 * 12 * 12];
    const int32_t label[4] = {1, 1, 1, 1};
    ckpt_program *p;
    float loss = -1;

    for (int k = 0; k < 4 * 3 * 12 * 12; k++)
        image[k] = (float)(k % 432 % 13) / 13;
    CHECK(!ckpt_import_set_training(m, trains));
    CHECK(!ckpt_compile(c, record, m, NULL, 4, &p));
    CHECK(!ckpt_feed(p, "image", image, sizeof image) &&
          !ckpt_feed(p, "label", label, sizeof label));
    CHECK(!ckpt_step(p, &loss));
    return loss;
}

/* Running statistics count where a model is evaluated, and only there. */
static void evaluate(void)
{
    ckpt_import *m;
    ckpt *c = open_model(unpack("models/norms", "norms.pt2"), &m);
    const float training = loss_of(c, m, true), before = loss_of(c, m, false);
    ckpt_tensor x;
    const float mean[8] = {3, -2, 1, 5, -4, 2, 1, 0};

    CHECK(!ckpt_param_find(c, "first.1.running_mean", &x));
    CHECK(!ckpt_param_set(c, x, CKPT_VALUE, mean, 8));
    CHECK(loss_of(c, m, true) == training);
    CHECK(loss_of(c, m, false) != before && before != training);
    ckpt_import_close(m);
    ckpt_close(c);
}

int main(void)
{
    char command[200];

    if (system("command -v gzip >/dev/null"))
        return 77;
    if (!mkdtemp(folder))
        return 1;
    save("models/probe");
    save("models/norms");
    refuse_empty();
    find_dimensions();
    evaluate();
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : 0;
}
