/* SPDX-License-Identifier: Apache-2.0 */
/* Saving parameters to a file and loading them: by name, exactly, all or nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"

static char path[] = "test_load_save.tmp.safetensors";

enum { BATCH = 4, IN = 3, OUT = 2 };

/* A linear layer, with a bf16 parameter and a buffer in addition to the fp32 parameter. */
struct model {
    ckpt *c;
    ckpt_tensor weight, bias, table;
};

static struct model open_model(int64_t seed)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct model m;

    opt.seed = seed;
    opt.threads = 1;
    if (ckpt_open(&m.c, &opt))
        fail_msg("%s", ckpt_error(NULL));
    m.weight =
        ckpt_param(m.c, "weight", CKPT_BF16, 2, (int64_t[]){OUT, IN}, CKPT_NORMAL(1.f), true);
    m.bias = ckpt_param(m.c, "bias", CKPT_F32, 1, (int64_t[]){OUT}, CKPT_NORMAL(1.f), true);
    m.table = ckpt_param(m.c, "table", CKPT_F32, 1, (int64_t[]){OUT}, CKPT_NORMAL(1.f), false);
    return m;
}

/* All values in order: weight, bias, table. */
enum { N_WEIGHT = OUT * IN, N_ALL = N_WEIGHT + OUT + OUT };

static void get_all(const struct model *m, enum ckpt_slot slot, float all[N_ALL])
{
    assert_int_equal(ckpt_param_get(m->c, m->weight, slot, all, N_WEIGHT), 0);
    assert_int_equal(ckpt_param_get(m->c, m->bias, slot, all + N_WEIGHT, OUT), 0);
    assert_int_equal(ckpt_param_get(m->c, m->table, CKPT_VALUE, all + N_WEIGHT + OUT, OUT), 0);
}

static void check_file(const float want[N_ALL])
{
    ckpt_file *f;
    float all[N_ALL];

    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), 3);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "weight"), all, N_WEIGHT), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "bias"), all + N_WEIGHT, OUT), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "table"), all + N_WEIGHT + OUT, OUT),
                     0);
    for (int i = 0; i < 3; i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        assert_int_equal(ckpt_file_entry(f, i, &e), 0);
        assert_string_equal(e.dtype, "F32");
        assert_int_equal(e.ndim, strcmp(e.name, "weight") ? 1 : 2);
    }
    ckpt_file_close(f);
    assert_memory_equal(all, want, sizeof(all));
}

static void count_report(void *user, const char *what, const char *name)
{
    char *text = user;

    strcat(strcat(strcat(strcat(text, what), " "), name), "; ");
}

static void test_before_training(void **state)
{
    struct model a = open_model(1), b = open_model(2);
    float of_a[N_ALL], of_b[N_ALL];
    char report[200] = "";
    int unmatched = -1;

    (void)state;
    get_all(&a, CKPT_VALUE, of_a);
    get_all(&b, CKPT_VALUE, of_b);
    assert_memory_not_equal(of_a, of_b, sizeof(of_a));
    assert_int_equal(ckpt_save_params(a.c, path, CKPT_VALUE), 0);
    check_file(of_a);
    assert_int_equal(ckpt_load_params(b.c, path, count_report, report, &unmatched), 0);
    assert_int_equal(unmatched, 0);
    assert_string_equal(report, "");
    get_all(&b, CKPT_VALUE, of_b);
    assert_memory_equal(of_a, of_b, sizeof(of_a));
    ckpt_close(a.c);
    ckpt_close(b.c);
    unlink(path);
}

/* ---- files that do not fit ---- */

struct tensor_to_write {
    const char *name;
    enum ckpt_dtype dtype;
    int ndim;
    int64_t shape[3];
};

static const float data[N_WEIGHT] = {1, 2, 3, 4, 5, 6};

static void write_file(const struct tensor_to_write *t)
{
    ckpt_file_writer *w;

    assert_int_equal(ckpt_file_create(&w, path), 0);
    for (; t->name; t++)
        assert_int_equal(ckpt_file_add(w, t->name, t->dtype, t->ndim, t->shape, data), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
}

/* The load fails, the error has both words, and every value is unchanged. */
static void check_refused(const struct tensor_to_write *t, int code, const char *expect)
{
    struct model m = open_model(1);
    float before[N_ALL], after[N_ALL];
    char report[200] = "";

    write_file(t);
    get_all(&m, CKPT_VALUE, before);
    assert_int_equal(ckpt_load_params(m.c, path, count_report, report, NULL), code);
    if (!strstr(ckpt_error(m.c), expect) || !strstr(ckpt_error(m.c), path))
        fail_msg("the sentence is '%s', without '%s'", ckpt_error(m.c), expect);
    assert_string_equal(report, "");
    get_all(&m, CKPT_VALUE, after);
    assert_memory_equal(before, after, sizeof(before));
    ckpt_close(m.c);
    unlink(path);
}

static void test_wrong_shape(void **state)
{
    (void)state;
    check_refused(
        (struct tensor_to_write[]){
            {"bias", CKPT_F32, 1, {OUT}}, {"weight", CKPT_F32, 2, {IN, OUT}}, {0}},
        CKPT_ESHAPE, "tensor 'weight' has shape [3, 2] but the parameter has shape [2, 3]");
    check_refused((struct tensor_to_write[]){{"weight", CKPT_F32, 3, {OUT, IN, 1}}, {0}},
                  CKPT_ESHAPE, "shape [2, 3, 1] but the parameter has shape [2, 3]");
    check_refused((struct tensor_to_write[]){{"weight", CKPT_F32, 2, {OUT, IN}},
                                             {"table", CKPT_F32, 0, {0}},
                                             {0}},
                  CKPT_ESHAPE, "shape [] but the parameter has shape [2]");
}

/* A file without any matching name is refused, after a report of all names. */
static void test_foreign(void **state)
{
    struct model m = open_model(1);
    int unmatched = 0;

    (void)state;
    write_file((struct tensor_to_write[]){
        {"value/weight", CKPT_F32, 2, {OUT, IN}}, {"other", CKPT_F32, 1, {OUT}}, {0}});
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), CKPT_ENAME);
    if (!strstr(ckpt_error(m.c), "'other'") || !strstr(ckpt_error(m.c), path))
        fail_msg("the sentence is '%s'", ckpt_error(m.c));
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, &unmatched), CKPT_ENAME);
    write_file((struct tensor_to_write[]){{0}});
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, &unmatched), CKPT_ENAME);
    if (!strstr(ckpt_error(m.c), "it has no tensors"))
        fail_msg("the sentence is '%s'", ckpt_error(m.c));
    ckpt_close(m.c);
    unlink(path);
}

/* ---- files of other programs ---- */

static bool other_name(void *user, const char *name, int i, char *other, size_t size)
{
    (void)user;
    snprintf(other, size, "%s.%s", i ? "older" : "old", name);
    return i < 2;
}

static void test_other_names(void **state)
{
    static const float expected[] = {1, 2, 3, 4, 5, 6, 1, 2, 1, 2};
    struct model m = open_model(1);
    float all[N_ALL];
    char report[200] = "";
    int unmatched = -1;

    (void)state;
    write_file((struct tensor_to_write[]){{"weight", CKPT_F32, 2, {OUT, IN}},
                                          {"old.bias", CKPT_F32, 1, {OUT}},
                                          {"older.table", CKPT_F32, 3, {OUT, 1, 1}},
                                          {"old.weight", CKPT_F32, 1, {1}},
                                          {0}});
    assert_int_equal(
        ckpt_load_params_aliased(m.c, path, other_name, count_report, report, &unmatched), 0);
    assert_int_equal(unmatched, 1);
    assert_string_equal(report, "unexpected old.weight; ");
    get_all(&m, CKPT_VALUE, all);
    assert_memory_equal(all, expected, sizeof(all));
    ckpt_close(m.c);
    unlink(path);
}

/* Codes of e4m3: 1, 2, -0.5, 0 and 1.5. */
enum { CODES = 200 };
static const uint8_t codes[] = {0x38, 0x40, 0xb0, 0x00, 0x3c};
static const float decoded[] = {1, 2, -0.5, 0, 1.5};

/* A weight [rows, columns] of codes, and its scales under `name`; the load returns rc. */
static void check_scaled(int64_t rows, int64_t columns, const char *name, int ndim,
                         const int64_t *shape, const float *scale, int rc)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    static uint8_t code[CODES * CODES];
    static float got[CODES * CODES];
    int64_t n = rows * columns, across = ndim == 2 ? shape[1] : 1;
    ckpt_file_writer *w;
    int unmatched;
    ckpt *c;

    for (int64_t i = 0; i < n; i++)
        code[i] = codes[i % 5];
    assert_int_equal(ckpt_file_create(&w, path), 0);
    ckpt_file_add(w, "a.weight", CKPT_F8E4M3, 2, (int64_t[]){rows, columns}, code);
    ckpt_file_add(w, name, CKPT_F32, ndim, shape, scale);
    assert_int_equal(ckpt_file_commit(w), 0);
    assert_int_equal(ckpt_open(&c, &opt), 0);
    ckpt_tensor a =
        ckpt_param(c, "a.weight", CKPT_F32, 2, (int64_t[]){rows, columns}, CKPT_ZEROS, true);
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, &unmatched), rc);
    for (int64_t i = 0; i < n && !rc; i++) {
        int64_t r = i / columns, k = i % columns;
        int64_t at = !ndim || shape[0] == 1 ? 0 : shape[0] == rows ? r : r / 128 * across + k / 128;
        if (!i)
            assert_int_equal(ckpt_param_get(c, a, CKPT_VALUE, got, n), 0);
        assert_true(got[i] == decoded[i % 5] * scale[at]);
    }
    assert_int_equal(rc ? 0 : unmatched, 0);
    ckpt_close(c);
    unlink(path);
}

static void test_scaled(void **state)
{
    static const float scale[] = {0.125, 3, -2, 0.5, 7};

    (void)state;
    check_scaled(5, 7, "a.weight_scale", 0, NULL, scale, 0);
    check_scaled(5, 7, "a.weight_scale", 1, (int64_t[]){1}, scale, 0);
    check_scaled(5, 7, "a.scale_weight", 1, (int64_t[]){1}, scale, 0);
    check_scaled(5, 7, "a.weight_scale", 2, (int64_t[]){5, 1}, scale, 0);
    check_scaled(130, 200, "a.weight_scale_inv", 2, (int64_t[]){2, 2}, scale, 0);
    check_scaled(5, 7, "a.weight_scale", 1, (int64_t[]){3}, scale, CKPT_EFORMAT);
}

/* The file has [IN, OUT] for the parameter [OUT, IN]. */
static void test_other_order(void **state)
{
    static const float turned[N_WEIGHT] = {1, 3, 5, 2, 4, 6};
    struct model m = open_model(1);
    float weight[N_WEIGHT];
    ckpt_file *f;

    (void)state;
    assert_int_equal(ckpt_param_file_axes(m.c, m.weight, 2, NULL, (int[]){1, 1}), CKPT_EINVAL);
    assert_int_equal(ckpt_param_file_axes(m.c, CKPT_NONE, 2, NULL, (int[]){1, 0}), CKPT_ENAME);
    assert_int_equal(ckpt_param_file_axes(m.c, m.weight, 2, NULL, (int[]){1, 0}), 0);
    write_file((struct tensor_to_write[]){{"weight", CKPT_F32, 2, {OUT, IN}}, {0}});
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), CKPT_ESHAPE);
    write_file((struct tensor_to_write[]){{"weight", CKPT_F32, 2, {IN, OUT}}, {0}});
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), 0);
    assert_int_equal(ckpt_param_get(m.c, m.weight, CKPT_VALUE, weight, N_WEIGHT), 0);
    assert_memory_equal(weight, turned, sizeof(weight));
    assert_int_equal(ckpt_save_params(m.c, path, CKPT_VALUE), 0);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "weight"), weight, N_WEIGHT), 0);
    assert_memory_equal(weight, data, sizeof(weight));
    ckpt_file_close(f);
    ckpt_close(m.c);
    unlink(path);
}

/* The file has the columns of the parameter, seen as [IN, OUT], in order. */
static void test_other_view(void **state)
{
    static const float turned[N_WEIGHT] = {1, 4, 2, 5, 3, 6};
    static const int64_t view[] = {IN, OUT}, wrong[] = {IN, OUT + 1};
    struct model m = open_model(1);
    float weight[N_WEIGHT];
    ckpt_file *f;

    (void)state;
    assert_int_equal(ckpt_param_file_axes(m.c, m.weight, 2, wrong, (int[]){1, 0}), CKPT_EINVAL);
    assert_int_equal(ckpt_param_file_axes(m.c, m.weight, 3, NULL, (int[]){1, 0, 2}), CKPT_EINVAL);
    assert_int_equal(ckpt_param_file_axes(m.c, m.weight, 2, view, (int[]){1, 0}), 0);
    write_file((struct tensor_to_write[]){{"weight", CKPT_F32, 2, {OUT, IN}}, {0}});
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), 0);
    assert_int_equal(ckpt_param_get(m.c, m.weight, CKPT_VALUE, weight, N_WEIGHT), 0);
    assert_memory_equal(weight, turned, sizeof(weight));
    assert_int_equal(ckpt_save_params(m.c, path, CKPT_VALUE), 0);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "weight"), weight, N_WEIGHT), 0);
    assert_memory_equal(weight, data, sizeof(weight));
    ckpt_file_close(f);
    ckpt_close(m.c);
    unlink(path);
}

/* A file of one parameter of the model; the others keep their values when it is loaded. */
static bool is_bias(void *user, const char *name)
{
    ++*(int *)user;
    return !strcmp(name, "bias");
}

static void test_chosen(void **state)
{
    struct model m = open_model(1);
    int asked = 0, unmatched = -1;
    char report[200] = "";
    float before[N_ALL], after[N_ALL];
    ckpt_file *f;

    (void)state;
    get_all(&m, CKPT_VALUE, before);
    assert_int_equal(ckpt_save_params_filtered(m.c, path, CKPT_VALUE, is_bias, &asked), 0);
    assert_int_equal(asked, ckpt_param_count(m.c));
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), 1);
    assert_int_equal(ckpt_file_find(f, "bias"), 0);
    ckpt_file_close(f);
    assert_int_equal(ckpt_load_params(m.c, path, count_report, report, &unmatched), 0);
    assert_int_equal(unmatched, ckpt_param_count(m.c) - 1);
    get_all(&m, CKPT_VALUE, after);
    assert_memory_equal(after, before, sizeof(after));
    ckpt_close(m.c);
    unlink(path);
}

/* A line of the metadata is read back; the library's own names cannot be set. */
static void test_noted(void **state)
{
    struct model m = open_model(1);
    int asked = 0;
    ckpt_file *f;

    (void)state;
    assert_int_equal(
        ckpt_save_params_noted(m.c, path, CKPT_VALUE, is_bias, &asked, "of", "\"a\"\n{1}"), 0);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), 1);
    assert_string_equal(ckpt_file_note(f, "of"), "\"a\"\n{1}");
    assert_string_equal(ckpt_file_note(f, "format"), "pt");
    assert_null(ckpt_file_note(f, "nothing"));
    ckpt_file_close(f);
    unlink(path);
    assert_int_equal(ckpt_save_params_noted(m.c, path, CKPT_VALUE, NULL, NULL, "ckpt.a", "b"),
                     CKPT_EINVAL);
    assert_int_equal(ckpt_save_params_noted(m.c, path, CKPT_VALUE, NULL, NULL, "a", "\xff"),
                     CKPT_EINVAL);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(ckpt_save_params_noted(m.c, path, CKPT_VALUE, NULL, NULL, NULL, NULL), 0);
    ckpt_close(m.c);
    unlink(path);
}

static void test_wrong_dtype(void **state)
{
    (void)state;
    check_refused((struct tensor_to_write[]){{"bias", CKPT_F32, 1, {OUT}},
                                             {"weight", CKPT_I32, 2, {OUT, IN}},
                                             {0}},
                  CKPT_EFORMAT, "'weight' is I32");
}

static void test_unmatched(void **state)
{
    struct model m = open_model(1);
    float before[N_ALL], after[N_ALL];
    char report[200] = "";
    int unmatched = -1;

    (void)state;
    write_file((struct tensor_to_write[]){
        {"rope.freqs", CKPT_I32, 1, {2}}, {"weight", CKPT_F32, 2, {OUT, IN}}, {0}});
    get_all(&m, CKPT_VALUE, before);
    assert_int_equal(ckpt_load_params(m.c, path, count_report, report, &unmatched), 0);
    assert_int_equal(unmatched, 3);
    assert_string_equal(report, "missing bias; missing table; unexpected rope.freqs; ");
    get_all(&m, CKPT_VALUE, after);
    assert_memory_equal(after, data, sizeof(data));
    assert_memory_equal(after + N_WEIGHT, before + N_WEIGHT, (OUT + OUT) * sizeof(float));
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), 0);
    ckpt_close(m.c);
    unlink(path);
}

static void test_bad_file(void **state)
{
    struct model m = open_model(1);
    FILE *f = fopen(path, "wb");

    (void)state;
    assert_non_null(f);
    fputs("not a tensor file", f);
    fclose(f);
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_non_null(strstr(ckpt_error(m.c), "not a safetensors file"));
    unlink(path);
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), CKPT_EIO);
    assert_non_null(strstr(ckpt_error(m.c), "No such file"));
    assert_int_equal(ckpt_save_params(m.c, "no-such-directory/x", CKPT_VALUE), CKPT_EIO);
    assert_non_null(strstr(ckpt_error(m.c), "no-such-directory/x"));
    ckpt_close(m.c);
}

/* A slot that is not kept is refused, and the existing file does not change. */
static void test_no_such_slot(void **state)
{
    struct model m = open_model(1);
    float values[N_ALL];

    (void)state;
    get_all(&m, CKPT_VALUE, values);
    assert_int_equal(ckpt_save_params(m.c, path, CKPT_VALUE), 0);
    assert_int_equal(ckpt_save_params(m.c, path, CKPT_EMA), CKPT_ENAME);
    assert_non_null(strstr(ckpt_error(m.c), "parameter 'bias' keeps no such state"));
    check_file(values);
    ckpt_close(m.c);
    unlink(path);
}

/* ---- after steps ---- */

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_BF16, 2, (int64_t[]){batch, IN});
    ckpt_tensor want = ckpt_input(t, "want", CKPT_F32, 2, (int64_t[]){batch, OUT});
    ckpt_tensor y = ckpt_cast(t, ckpt_linear(t, x, m->weight, CKPT_NONE), CKPT_F32);

    y = ckpt_mul(t, ckpt_add(t, y, m->bias), m->table);
    return ckpt_mse(t, y, want, CKPT_NONE);
}

static ckpt_program *compile(struct model *m, float ema_decay)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p;
    uint16_t x[BATCH * IN];
    float want[BATCH * OUT], values[BATCH * IN];

    adamw.lr = 0.01f;
    adamw.ema_decay = ema_decay;
    if (ckpt_compile(m->c, record, m, ckpt_adamw(m->c, &adamw), BATCH, &p))
        fail_msg("%s", ckpt_error(m->c));
    ckpt_fill_normal(1, 0, 0, values, BATCH * IN);
    ckpt_to_bf16(values, x, BATCH * IN);
    ckpt_fill_normal(1, 0, 1, want, BATCH * OUT);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof(x)), 0);
    assert_int_equal(ckpt_feed(p, "want", want, sizeof(want)), 0);
    return p;
}

static float step(struct model *m, ckpt_program *p)
{
    float loss;

    if (ckpt_step(p, &loss))
        fail_msg("%s", ckpt_error(m->c));
    return loss;
}

static void test_slots_after_steps(void **state)
{
    static const enum ckpt_slot slots[] = {CKPT_VALUE, CKPT_EXP_AVG, CKPT_EXP_AVG_SQ, CKPT_EMA};
    struct model m = open_model(1);
    ckpt_program *p = compile(&m, 0.9f);
    float all[4][N_ALL];

    (void)state;
    for (int i = 0; i < 3; i++)
        step(&m, p);
    for (int i = 0; i < 4; i++) {
        get_all(&m, slots[i], all[i]);
        assert_int_equal(ckpt_save_params(m.c, path, slots[i]), 0);
        check_file(all[i]);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(all[i], all[k], N_WEIGHT * sizeof(float));
    }
    ckpt_close(m.c);
    unlink(path);
}

/* Trained and saved weights give the same loss after loading into a new compiled model. */
static void test_trained_values_return(void **state)
{
    struct model a = open_model(1), b = open_model(2);
    ckpt_program *pa = compile(&a, 0), *pb = compile(&b, 0);
    float of_a[N_ALL], of_b[N_ALL];

    (void)state;
    for (int i = 0; i < 3; i++)
        step(&a, pa);
    assert_int_equal(ckpt_save_params(a.c, path, CKPT_VALUE), 0);
    assert_int_equal(ckpt_load_params(b.c, path, NULL, NULL, NULL), 0);
    get_all(&a, CKPT_VALUE, of_a);
    get_all(&b, CKPT_VALUE, of_b);
    assert_memory_equal(of_a, of_b, sizeof(of_a));
    float loss_a = step(&a, pa), loss_b = step(&b, pb);
    assert_memory_equal(&loss_a, &loss_b, sizeof(loss_a));
    ckpt_close(a.c);
    ckpt_close(b.c);
    unlink(path);
}

/* All names have the prefix of DistributedDataParallel, which is removed; not if a single name
 * lacks it. */
static void test_module_prefix(void **state)
{
    struct model m = open_model(1);
    float all[N_ALL];
    char report[200] = "";
    int unmatched;

    (void)state;
    write_file((struct tensor_to_write[]){{"module.bias", CKPT_F32, 1, {OUT}},
                                          {"module.table", CKPT_F32, 1, {OUT}},
                                          {"module.weight", CKPT_F32, 2, {OUT, IN}},
                                          {0}});
    assert_int_equal(ckpt_load_params(m.c, path, count_report, report, &unmatched), 0);
    assert_string_equal(report, "");
    get_all(&m, CKPT_VALUE, all);
    assert_memory_equal(all, data, N_WEIGHT * sizeof(float));
    write_file((struct tensor_to_write[]){{"module.bias", CKPT_F32, 1, {OUT}},
                                          {"module.weight", CKPT_F32, 2, {OUT, IN}},
                                          {"table", CKPT_F32, 1, {OUT}},
                                          {0}});
    assert_int_equal(ckpt_load_params(m.c, path, count_report, report, &unmatched), 0);
    assert_int_equal(unmatched, 4);
    assert_non_null(strstr(report, "missing bias; "));
    assert_non_null(strstr(report, "unexpected module.bias; "));
    ckpt_close(m.c);
    unlink(path);
}

/* A damaged value is detected while others are set: the context continues after a complete load,
 * not after a partial one. */
static void test_damaged(void **state)
{
    struct model m = open_model(1);
    float all[N_ALL], now[N_ALL];

    (void)state;
    get_all(&m, CKPT_VALUE, all);
    assert_int_equal(ckpt_save_params(m.c, path, CKPT_VALUE), 0);
    FILE *f = fopen(path, "r+b");
    fseek(f, -1, SEEK_END);
    fputc(1, f);
    fclose(f);
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_non_null(strstr(ckpt_error(m.c), "tensor 'weight' does not match its checksum"));
    assert_int_equal(ckpt_param_get(m.c, m.bias, CKPT_VALUE, now, OUT), CKPT_EIO);
    assert_non_null(strstr(ckpt_error(m.c), "a load ended midway"));
    assert_int_equal(ckpt_save_params(m.c, path, CKPT_VALUE), CKPT_EIO);
    write_file((struct tensor_to_write[]){{"bias", CKPT_F32, 1, {OUT}}, {0}});
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), 0);
    assert_int_equal(ckpt_param_get(m.c, m.bias, CKPT_VALUE, now, OUT), CKPT_EIO);
    write_file((struct tensor_to_write[]){{"bias", CKPT_F32, 1, {OUT}},
                                          {"table", CKPT_F32, 1, {OUT}},
                                          {"weight", CKPT_F32, 2, {OUT, IN}},
                                          {0}});
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), 0);
    get_all(&m, CKPT_VALUE, now);
    assert_memory_equal(now, data, N_WEIGHT * sizeof(float));
    ckpt_close(m.c);
    unlink(path);
}

/* Several threads read and keep a large parameter.  Only its last value may have more bits than
 * bf16. */
static void check_large(bool narrow)
{
    enum { N = 3 * (1 << 20) + 1 };
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    char header[128];
    int unmatched;
    ckpt *c;
    float *values = malloc(N * sizeof *values), *got = malloc(N * sizeof *got);
    FILE *f = fopen(path, "wb");

    assert_true(values && got && f);
    for (int i = 0; i < N; i++)
        values[i] = (float)(i % 251 - 100);
    values[N - 1] = narrow ? 3.f : 1.001f;
    snprintf(header, sizeof header,
             "{\"large\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", N, 4 * N);
    uint64_t length = strlen(header);
    assert_int_equal(fwrite(&length, sizeof length, 1, f), 1);
    assert_int_equal(fwrite(header, length, 1, f), 1);
    assert_int_equal(fwrite(values, sizeof *values, N, f), N);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(ckpt_open(&c, &opt), 0);
    ckpt_tensor large =
        ckpt_param(c, "large", CKPT_BF16, 1, (int64_t[]){N}, CKPT_NORMAL(1.f), true);
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, &unmatched), 0);
    assert_int_equal(ckpt_param_get(c, large, CKPT_VALUE, got, N), 0);
    assert_memory_equal(got, values, N * sizeof *values);
    ckpt_file *file;
    assert_int_equal(ckpt_file_open(&file, path), 0);
    assert_int_equal(truncate(path, 2 * N), 0); /* threads read behind the end */
    assert_int_not_equal(ckpt_file_read_f32(file, 0, got, N), 0);
    assert_non_null(strstr(ckpt_error(NULL), path));
    ckpt_file_close(file);
    ckpt_close(c);
    free(values);
    free(got);
}

static void test_large(void **state)
{
    (void)state;
    check_large(true);
    check_large(false);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_module_prefix),
        cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_before_training),
        cmocka_unit_test(test_wrong_shape),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_wrong_dtype),
        cmocka_unit_test(test_unmatched),
        cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_other_order),
        cmocka_unit_test(test_other_view),
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_noted),
        cmocka_unit_test(test_bad_file),
        cmocka_unit_test(test_no_such_slot),
        cmocka_unit_test(test_slots_after_steps),
        cmocka_unit_test(test_trained_values_return),
        cmocka_unit_test(test_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
