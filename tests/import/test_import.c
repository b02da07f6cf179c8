/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of PyTorch, imported: loss, gradients of all parameters and changed buffers against what
 * PyTorch computed (tests/import/README), and the same bits under three budgets.
 *
 *     test_import [FOLDER [NAME...]]     by default the packed models of tests/import/models
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "ckpt_import.h"

enum { MOST = 4000 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) < 0) {                                                                          \
            printf("%s: %s: %s\n", s->name, #call, ckpt_error(s->c));                              \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

/* An input whose first element is fed as another, and how the step refuses it. */
struct spoiled {
    const char *model, *input;
    int32_t value;
    const char *text;
};

/* One model in one context, and what it gave. */
struct session {
    const char *name;
    ckpt_file *f; /* the reference */
    ckpt *c;
    ckpt_import *m;
    ckpt_program *p;
    const struct spoiled *spoiled; /* what is fed; or NULL */
    float loss;
    float *gradient[MOST];
    int64_t numel[MOST];
};

static int find(const struct session *s, const char *prefix, const char *name)
{
    char whole[600];

    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    return ckpt_file_find(s->f, whole);
}

static struct ckpt_file_entry entry_at(const struct session *s, int i)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;

    ckpt_file_entry(s->f, i, &e);
    return e;
}

static struct ckpt_param_info param_at(ckpt *c, int i)
{
    struct ckpt_param_info p = CKPT_PARAM_INFO_INIT;

    ckpt_param_info(c, ckpt_param_at(c, i), &p);
    return p;
}

/* ---- recording ------------------------------------------------------------------------------- */

/* The size of axis 0 that all inputs have; or 1: each is then one sample of its own shape. */
static int64_t batch_of(const struct session *s)
{
    int64_t batch = 0;

    for (int i = 0; i < ckpt_file_count(s->f); i++) {
        struct ckpt_file_entry e = entry_at(s, i);
        if (strncmp(e.name, "input.", 6) && strncmp(e.name, "target.", 7))
            continue;
        if (!e.ndim || (batch && e.shape[0] != batch))
            return 1;
        batch = e.shape[0];
    }
    return batch ? batch : 1;
}

static ckpt_tensor make_input(ckpt_tape *t, const struct session *s, const char *name,
                              enum ckpt_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t whole[CKPT_MAX_DIMS + 1] = {1};

    if (batch_of(s) > 1)
        return ckpt_input(t, name, dtype, ndim, shape);
    for (int i = 0; i < ndim; i++)
        whole[i + 1] = shape[i];
    return ckpt_reshape(t, ckpt_input(t, name, dtype, ndim + 1, whole), ndim, shape);
}

static void record_inputs(ckpt_tape *t, struct session *s, ckpt_tensor *in)
{
    for (int i = 0; i < ckpt_import_input_count(s->m); i++) {
        struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
        ckpt_import_input(s->m, i, &v);
        const int at = find(s, "input.", v.name);
        struct ckpt_file_entry e = entry_at(s, at); /* with the sizes of this batch */
        const enum ckpt_dtype dtype = v.desc.dtype == CKPT_I32 ? CKPT_I32 : CKPT_F32;
        in[i] = at < 0 ? CKPT_NONE : make_input(t, s, v.name, dtype, e.ndim, e.shape);
    }
}

/* The model's own loss, or the distances to the targets of the reference. */
static ckpt_tensor record_loss(ckpt_tape *t, const struct session *s, const ckpt_tensor *out)
{
    ckpt_tensor loss = CKPT_NONE;

    if (!strcmp(ckpt_file_note(s->f, "loss"), "output"))
        return out[0];
    for (int i = 0; i < ckpt_import_output_count(s->m); i++) {
        char name[40];
        snprintf(name, sizeof name, "target.%d", i);
        if (ckpt_file_find(s->f, name) < 0)
            continue;
        struct ckpt_file_entry e = entry_at(s, ckpt_file_find(s->f, name));
        ckpt_tensor y = make_input(t, s, name, CKPT_F32, e.ndim, e.shape);
        ckpt_tensor d = ckpt_sub(t, ckpt_cast(t, out[i], CKPT_F32), y);
        d = ckpt_reshape(t, ckpt_mean(t, ckpt_mul(t, d, d), CKPT_ALL_AXES), 0, NULL);
        loss = loss.id ? ckpt_add(t, loss, d) : d;
    }
    return loss;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    struct session *s = user;
    ckpt_tensor in[64], out[256];

    (void)batch;
    if (ckpt_import_input_count(s->m) > 64 || ckpt_import_output_count(s->m) > 256)
        return CKPT_NONE;
    record_inputs(t, s, in);
    ckpt_import_record(t, s->m, in, out);
    for (int i = 0; i < ckpt_param_count(s->c); i++) {
        struct ckpt_param_info p = param_at(s->c, i);
        if (p.trainable)
            ckpt_output_gradient(t, p.name, ckpt_param_at(s->c, i));
    }
    return record_loss(t, s, out);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static int feed(struct session *s, int i, const char *name)
{
    struct ckpt_file_entry e = entry_at(s, i);
    struct ckpt_desc d;
    float *x = malloc((size_t)e.numel * 4 + 4);
    const int known = ckpt_program_desc(s->p, name, &d);

    if (!x || known) { /* an input that the model does not read */
        free(x);
        return 0;
    }
    CHECK(d.dtype == CKPT_I32 ? ckpt_file_read_i32(s->f, i, (int32_t *)(void *)x, e.numel)
                              : ckpt_file_read_f32(s->f, i, x, e.numel));
    if (s->spoiled && !strcmp(s->spoiled->input, name))
        ((int32_t *)(void *)x)[0] = s->spoiled->value;
    CHECK(ckpt_feed(s->p, name, x, e.numel * 4));
    free(x);
    return 0;
}

static int feed_all(struct session *s)
{
    for (int i = 0; i < ckpt_file_count(s->f); i++) {
        struct ckpt_file_entry e = entry_at(s, i);
        const char *name = !strncmp(e.name, "input.", 6)    ? e.name + 6
                           : !strncmp(e.name, "target.", 7) ? e.name
                                                            : NULL;
        if (name && feed(s, i, name))
            return -1;
    }
    return 0;
}

static int fetch_gradients(struct session *s)
{
    for (int i = 0; i < ckpt_param_count(s->c) && i < MOST; i++) {
        struct ckpt_param_info p = param_at(s->c, i);
        if (!p.trainable)
            continue;
        s->numel[i] = p.numel;
        s->gradient[i] = malloc((size_t)p.numel * sizeof(float));
        CHECK(s->gradient[i] ? ckpt_fetch(s->p, p.name, s->gradient[i], p.numel * 4) : -1);
    }
    return 0;
}

static int run(struct session *s, const char *path, int64_t vram)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;

    sgd.lr = 0.f;
    o.device = "cpu";
    o.threads = 1;
    o.vram = vram;
    CHECK(ckpt_open(&s->c, &o));
    CHECK(ckpt_import_open(s->c, path, &s->m));
    CHECK(ckpt_compile(s->c, record, s, ckpt_sgd(s->c, &sgd), batch_of(s), &s->p));
    CHECK(feed_all(s));
    CHECK(ckpt_step(s->p, &s->loss));
    return fetch_gradients(s);
}

static void end(struct session *s)
{
    for (int i = 0; i < MOST; i++)
        free(s->gradient[i]);
    ckpt_import_close(s->m);
    ckpt_close(s->c);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

static float largest(const float *x, int64_t n)
{
    float most = 0;

    for (int64_t k = 0; k < n; k++)
        most = fmaxf(most, fabsf(x[k]));
    return most;
}

/* The axis of PyTorch that is axis i of a kernel with channels last, or of a matrix [out, in]. */
static int axis_of(const struct ckpt_desc *d, int i)
{
    if (d->ndim == 2)
        return 1 - i;
    return i == 0 ? 0 : i == d->ndim - 1 ? 1 : i + 1;
}

static bool may_be_reordered(const struct ckpt_desc *d, const struct ckpt_file_entry *e)
{
    bool fits = d->ndim > 1 && d->ndim == e->ndim;

    for (int i = 0; fits && i < d->ndim; i++)
        fits = d->shape[i] == e->shape[axis_of(d, i)];
    return fits;
}

/* Where element k, as PyTorch counts them, is in a parameter with reordered axes. */
static int64_t place(const struct ckpt_desc *d, const struct ckpt_file_entry *e, int64_t k)
{
    int64_t index[CKPT_MAX_DIMS], at = 0;

    for (int i = e->ndim - 1; i >= 0; i--) {
        index[i] = k % e->shape[i];
        k /= e->shape[i];
    }
    for (int i = 0; i < d->ndim; i++)
        at = at * d->shape[i] + index[axis_of(d, i)];
    return at;
}

/* The largest difference over the largest value, or over a thousandth of the largest of all. */
static double difference(const float *x, const struct ckpt_desc *d, const float *y,
                         const struct ckpt_file_entry *e, float top, bool reordered)
{
    double most = 0;

    for (int64_t k = 0; k < e->numel; k++) {
        const double off = fabs((double)x[reordered ? place(d, e, k) : k] - y[k]);
        most = off <= most ? most : off;
    }
    return most / fmax(largest(y, e->numel), top);
}

/* A matrix may be one of addmm, a tensor with more axes the kernel of a convolution. */
static double distance(const float *x, const struct ckpt_desc *d, const float *y,
                       const struct ckpt_file_entry *e, float top)
{
    const bool same =
        d->ndim == e->ndim && !memcmp(d->shape, e->shape, (size_t)d->ndim * sizeof d->shape[0]);
    const double plain = same ? difference(x, d, y, e, top, false) : INFINITY;

    return may_be_reordered(d, e) ? fmin(plain, difference(x, d, y, e, top, true)) : plain;
}

static float *read_entry(const struct session *s, const struct ckpt_file_entry *e, int i)
{
    float *y = calloc((size_t)e->numel + 1, sizeof *y);

    if (y && ckpt_file_read_f32(s->f, i, y, e->numel))
        memset(y, 0xff, (size_t)e->numel * sizeof *y);
    return y;
}

static float largest_gradient(const struct session *s)
{
    float top = 1e-30f;

    for (int i = 0; i < ckpt_file_count(s->f); i++) {
        struct ckpt_file_entry e = entry_at(s, i);
        float *y = strncmp(e.name, "grad.", 5) ? NULL : read_entry(s, &e, i);
        if (y)
            top = fmaxf(top, largest(y, e.numel));
        free(y);
    }
    return top;
}

struct result {
    double loss, gradient, buffer;
    const char *worst;
};

static void compare_param(const struct session *s, int i, float top, struct result *r)
{
    struct ckpt_param_info p = param_at(s->c, i);
    const int at = find(s, p.trainable ? "grad." : "after.", p.name);

    if (at < 0 && p.trainable) {
        printf("%s: no reference for %s\n", s->name, p.name);
        r->gradient = INFINITY;
    }
    if (at < 0)
        return;
    struct ckpt_file_entry e = entry_at(s, at);
    float *y = p.trainable ? read_entry(s, &e, at) : calloc((size_t)e.numel, sizeof *y);
    float *x = p.trainable ? s->gradient[i] : malloc((size_t)e.numel * sizeof *x);
    if (!p.trainable && strcmp(e.dtype, "I64")) {
        free(y);
        y = read_entry(s, &e, at);
    } else if (!p.trainable) {
        int32_t *whole = malloc((size_t)e.numel * sizeof *whole);
        ckpt_file_read_i32(s->f, at, whole, e.numel);
        for (int64_t k = 0; k < e.numel; k++)
            y[k] = (float)whole[k];
        free(whole);
    }
    if (!p.trainable)
        ckpt_param_get(s->c, ckpt_param_at(s->c, i), CKPT_VALUE, x, e.numel);
    const double off = distance(x, &p.desc, y, &e, p.trainable ? 1e-3f * top : 1e-3f);
    double *worst = p.trainable ? &r->gradient : &r->buffer;
    if (!(off <= *worst)) {
        *worst = off;
        if (p.trainable)
            r->worst = p.name;
    }
    free(y);
    if (!p.trainable)
        free(x);
}

static struct result compare(const struct session *s)
{
    struct result r = {.worst = ""};
    const float top = largest_gradient(s);
    float loss = NAN;

    ckpt_file_read_f32(s->f, ckpt_file_find(s->f, "loss"), &loss, 1);
    r.loss = fabs((double)s->loss - loss) / fmax(fabs((double)loss), 1e-3);
    for (int i = 0; i < ckpt_param_count(s->c) && i < MOST; i++)
        compare_param(s, i, top, &r);
    return r;
}

/* Under the smallest budget and one between it and what was used without one. */
static int compare_budgets(const struct session *s, const char *path)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    int differ = 0;

    ckpt_program_info(s->p, &info);
    for (int k = 0; k < 2; k++) {
        struct session other = {.name = s->name, .f = s->f};
        const int64_t vram = k ? (info.min_budget + info.planned_peak) / 2 : info.min_budget;
        if (run(&other, path, vram))
            differ++;
        else if (memcmp(&other.loss, &s->loss, sizeof s->loss))
            differ++;
        for (int i = 0; i < MOST && !differ; i++)
            if (s->gradient[i] &&
                memcmp(s->gradient[i], other.gradient[i], (size_t)s->numel[i] * sizeof(float)))
                differ++;
        end(&other);
    }
    return differ;
}

/* Gradients that follow from cos(t f) with t up to 999 and f from PyTorch's exp, which does not
 * round to the nearest float: an ulp of f is 3e-5 of the angle. */
static double limit_of(const char *name, double own, bool is_bf16)
{
    static const char *const angles[] = {"dit", "flux", "pixart", "qwenimage", "sd3"};

    for (size_t i = 0; i < sizeof angles / sizeof angles[0]; i++)
        if (!strcmp(name, angles[i]))
            return 3e-4;
    return is_bf16 ? 1.3 * own : fmax(1e-5, 10 * own);
}

/* Models that are refused, and what the sentence names. */
static const char *refusal_of(const char *name)
{
    static const char *const refused[][2] = {{"mochi", "aten.nonzero.default"},
                                             {"whole", "exact up to 2^24"},
                                             {"unkept_weight", "'w', which is trained"},
                                             {"unkept_part", "has memory of 'row'"},
                                             {"unkept_gradient", "where none is recorded"},
                                             {"unkept_window", "through aten.unfold.default"},
                                             {"unkept_constant", "'table', which is a constant"},
                                             {"unkept_frozen", "'w' and 'frozen' are one memory"},
                                             {"unkept_diagonal", "through aten.diagonal"}};

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (!strcmp(name, refused[i][0]))
            return refused[i][1];
    return NULL;
}

/* The sentence comes when the archive is opened, or with the recording. */
static int check_refusal(struct session *s, const char *path, const char *named)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;

    o.device = "cpu";
    int rc = ckpt_open(&s->c, &o) ? 0 : ckpt_import_open(s->c, path, &s->m);
    rc = rc ? rc : ckpt_compile(s->c, record, s, NULL, batch_of(s), &s->p);
    const bool as_said = rc == CKPT_EFORMAT && strstr(ckpt_error(s->c), named);
    printf("%s: %s: refused: %.150s\n", as_said ? "ok" : "FAIL", s->name, ckpt_error(s->c));
    return !as_said;
}

/* One of several indices that is beyond its own axis, but not behind the last element; a product of
 * whole numbers that is not exact. */
static const struct spoiled spoiled[] = {
    {"written", "column", 9, "index -1 at place 0 is not in [0, 32)"},
    {"sums", "count", 4096, "products of whole numbers, exact below 2^24"},
    {"tiles", "index", 1, "places that are written twice"}};

static int check_spoiled(const struct session *s, const char *path)
{
    int bad = 0;

    for (size_t i = 0; i < sizeof spoiled / sizeof spoiled[0]; i++) {
        struct session other = {.name = s->name, .f = s->f, .spoiled = &spoiled[i]};
        if (strcmp(s->name, spoiled[i].model))
            continue;
        if (run(&other, path, CKPT_VRAM_NONE) == 0 || !strstr(ckpt_error(other.c), spoiled[i].text))
            bad = printf("FAIL: %s: %s with %d was not reported\n", s->name, spoiled[i].input,
                         spoiled[i].value);
        end(&other);
    }
    return bad;
}

static int check_model(const char *folder, const char *name)
{
    char path[4200], reference[4200];
    struct session *s = calloc(1, sizeof *s);
    int bad = 1;

    snprintf(path, sizeof path, "%s/%s.pt2", folder, name);
    snprintf(reference, sizeof reference, "%s/%s.safetensors", folder, name);
    s->name = name;
    if (ckpt_file_open(&s->f, reference)) {
        printf("%s\n", ckpt_error(NULL));
    } else if (refusal_of(name)) {
        bad = check_refusal(s, path, refusal_of(name));
    } else if (!run(s, path, CKPT_VRAM_NONE)) {
        const char *own = ckpt_file_note(s->f, "error");
        const struct result r = compare(s);
        const char *dtype = ckpt_file_note(s->f, "dtype");
        const bool is_bf16 = dtype && !strcmp(dtype, "torch.bfloat16");
        const double limit = limit_of(name, own ? atof(own) : 0, is_bf16);
        const int differ = getenv("CKPT_TEST_ONE_BUDGET") ? 0 : compare_budgets(s, path);
        bad = !(r.loss <= limit && r.gradient <= limit &&
                r.buffer <= (is_bf16 ? 1e-2 : fmax(1e-5, atof(own ? own : "0")))) ||
              differ;
        bad |= check_spoiled(s, path) != 0;
        printf("%s: %s: loss %.1e, gradients %.1e (%s), PyTorch's own %s, buffers %.1e%s\n",
               bad ? "FAIL" : "ok", name, r.loss, r.gradient, r.worst, own, r.buffer,
               differ ? ", budgets differ" : "");
    }
    fflush(stdout);
    end(s);
    ckpt_file_close(s->f);
    free(s);
    return bad;
}

/* ---- models ---------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the files with an end, without it; sorted. */
static int list(const char *folder, const char *end, char **names, int most)
{
    DIR *d = opendir(folder);
    int n = 0;

    for (struct dirent *e = d ? readdir(d) : NULL; e && n < most; e = readdir(d)) {
        const size_t k = strlen(e->d_name), m = strlen(end);
        if (k > m && !strcmp(e->d_name + k - m, end))
            names[n++] = strndup(e->d_name, k - m);
    }
    if (d)
        closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    return n;
}

static int unpack(const char *from, const char *to)
{
    char command[9000];

    snprintf(command, sizeof command,
             "for f in '%s'/*.gz; do gzip -dc \"$f\" >'%s'/\"$(basename \"$f\" .gz)\" || "
             "exit 1; done",
             from, to);
    return system(command);
}

int main(int argc, char **argv)
{
    char *names[300], temporary[] = "/tmp/ckpt-import-XXXXXX", packed[4096], command[100];
    const char *srcdir = getenv("srcdir"), *folder = argc > 1 ? argv[1] : NULL;
    int failed = 0, n = 0;

    snprintf(packed, sizeof packed, "%s/tests/import/models", srcdir ? srcdir : ".");
    if (!folder && (!mkdtemp(temporary) || unpack(packed, temporary)))
        return 99;
    folder = folder ? folder : temporary;
    for (int i = 2; i < argc; i++)
        names[n++] = strdup(argv[i]);
    if (!n)
        n = list(folder, ".pt2", names, 300);
    for (int i = 0; i < n; i++) {
        failed += check_model(folder, names[i]);
        free(names[i]);
    }
    printf("%d models, %d failed\n", n, failed);
    if (argc < 2) {
        snprintf(command, sizeof command, "rm -rf '%s'", temporary);
        if (system(command))
            return 99;
    }
    return failed || !n;
}
