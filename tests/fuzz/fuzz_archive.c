/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of .pt2 archives: the zip, the program and the lists of tensors.  An input that
 * begins with a line "program" or "weights" is that member of an archive, which is made around it,
 * so that the damage is not always in the zip.
 */
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "import/zip.h"
#include "import/program_read.h"
#include "import/weights.h"

/* ---- an archive around a member -------------------------------------------------------------- */

static const char *archive_of(const char *member, const uint8_t *data, size_t size)
{
    static struct zip z;
    char *text = strndup((const char *)data, size); /* NUL is no JSON */
    bool program = !strcmp(member, "program");

    if (!text)
        abort();
    zip_archive(&z, program ? text : NULL, program ? NULL : text);
    free(text);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const members[] = {"program", "weights"};
    const char *path = NULL;
    struct archive *a;

    for (int i = 0; i < 2; i++) {
        size_t n = strlen(members[i]);
        if (size > n && size < ZIP_ROOM / 2 && !memcmp(data, members[i], n) && data[n] == '\n')
            path = archive_of(members[i], data + n + 1, size - n - 1);
    }
    int rc = archive_open(&a, path ? path : fuzz_file(data, size));
    check("archive", rc);
    if (rc)
        return 0;
    read_members(a);
    read_program(a);
    read_tensors(a);
    archive_close(a);
    return 0;
}
