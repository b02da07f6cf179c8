/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of .pt2 archives: the zip, the program, the lists of tensors, and the recorder.  An
 * input that begins with a line "program" or "weights" takes the place of that member in the
 * archive of the corpus, so that the damage is not always in the zip.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_import.h"
#include "fuzz/fuzz.h"
#include "import/program_read.h"
#include "import/weights.h"
#include "import/zip.h"

/* ---- another member in an archive --------------------------------------------------------------
 */

/* The archive of the corpus. */
static struct archive *whole(void)
{
    static struct archive *a;
    const char *srcdir = getenv("srcdir");
    char path[4096];

    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/archive/small.pt2", srcdir ? srcdir : ".");
    if (!a && archive_open(&a, path))
        abort();
    return a;
}

static void put_member(struct zip *z, const struct archive *a, const struct archive_member *m)
{
    char name[256];
    uint8_t *data = malloc((size_t)m->size + 1);

    snprintf(name, sizeof name, "m/%s", m->name);
    if (!data || archive_read(a, m, 0, data, (size_t)m->size))
        abort();
    zip_member(z, name, data, (size_t)m->size);
    free(data);
}

/* That archive with other bytes as one of its members. */
static const char *archive_of(const char *member, const uint8_t *data, size_t size)
{
    static struct zip z;
    const struct archive *a = whole();
    char name[256];

    zip_begin(&z);
    for (int64_t i = 0; archive_at(a, i); i++)
        if (strcmp(archive_at(a, i)->name, member) != 0)
            put_member(&z, a, archive_at(a, i));
    snprintf(name, sizeof name, "m/%s", member);
    zip_member(&z, name, data, size);
    zip_end(&z);
    return fuzz_file(z.data, z.n);
}

/* A refusal has a sentence, which FUZZ_SHOW prints. */
static void check(const char *what, int rc)
{
    if (rc)
        fuzz_sentence(rc, error_get());
    if (getenv("FUZZ_SHOW"))
        fprintf(stderr, "%s: %d %s\n", what, rc, rc ? error_get() : "");
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void read_program(const struct archive *a)
{
    struct pt2_program p = {0};
    json_t *json;
    int rc = archive_json(a, "models/model.json", &json);

    if (!rc)
        rc = pt2_program_read(&p, archive_path(a), json);
    check("program", rc);
    if (!rc)
        pt2_program_free(&p);
}

static void read_tensor(const struct weights *w, const struct weight *x)
{
    if (x->numel > 1 << 20)
        return; /* expanded; the buffer below should stay small */
    float *values = malloc((size_t)x->numel * 16 + 1);
    check("f32", weights_read_f32(w, x, 0, values, x->numel));
    check("i32", weights_read_i32(w, x, x->numel / 2, (int32_t *)values, x->numel - x->numel / 2));
    check("raw", weights_read(w, x, 0, values, x->numel));
    free(values);
}

static void read_tensors(const struct archive *a)
{
    struct weights *w;
    int rc = weights_open(&w, a, "model");

    check("weights", rc);
    if (rc)
        return;
    for (int i = 0; weights_at(w, i); i++) {
        if (!weights_find(w, weights_at(w, i)->name))
            abort();
        read_tensor(w, weights_at(w, i));
    }
    weights_close(w);
}

static void read_members(const struct archive *a)
{
    for (int64_t i = 0; archive_at(a, i); i++) {
        const struct archive_member *m = archive_at(a, i);
        char last;
        if (archive_find(a, m->name) != m || (m->size && archive_read(a, m, m->size - 1, &last, 1)))
            abort();
    }
}

/* ---- what is recorded ------------------------------------------------------------------------ */

enum { MOST_VALUES = 16 };

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_import *m = user;
    ckpt_tensor in[MOST_VALUES], out[MOST_VALUES];

    (void)batch;
    for (int i = 0; i < ckpt_import_input_count(m); i++) {
        struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
        if (ckpt_import_input(m, i, &v)) {
            ckpt_tape_fail(t, CKPT_EFORMAT, "an input has no size");
            return CKPT_NONE;
        }
        in[i] = ckpt_input(t, v.name, v.desc.dtype, v.desc.ndim, v.desc.shape);
    }
    ckpt_import_record(t, m, in, out);
    return out[0];
}

/* The model as a program that is only planned. */
static void record_model(const char *path)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    ckpt_import *m = NULL;
    ckpt_program *p;
    ckpt *c;

    options.device = "cpu";
    options.threads = 1;
    options.plan_only = true;
    if (ckpt_open(&c, &options))
        abort();
    int rc = ckpt_import_open(c, path, &m);
    if (!rc && ckpt_import_input_count(m) <= MOST_VALUES &&
        ckpt_import_output_count(m) <= MOST_VALUES && ckpt_import_output_count(m) > 0)
        rc = ckpt_compile(c, record, m, NULL, 4, &p);
    if (rc && !*ckpt_error(c))
        abort();
    if (getenv("FUZZ_SHOW"))
        fprintf(stderr, "record: %d %s\n", rc, rc ? ckpt_error(c) : "");
    ckpt_import_close(m);
    ckpt_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const members[][2] = {{"program", "models/model.json"},
                                             {"weights", "data/weights/model_weights_config.json"}};
    const char *path = NULL;
    struct archive *a;

    for (int i = 0; i < 2; i++) {
        size_t n = strlen(members[i][0]);
        if (size > n && size < ZIP_ROOM / 2 && !memcmp(data, members[i][0], n) && data[n] == '\n')
            path = archive_of(members[i][1], data + n + 1, size - n - 1);
    }
    int rc = archive_open(&a, path ? path : fuzz_file(data, size));
    check("archive", rc);
    if (rc)
        return 0;
    read_members(a);
    read_program(a);
    read_tensors(a);
    record_model(archive_path(a));
    archive_close(a);
    return 0;
}
