/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size rule of ckpt.h ("Structs"): every public struct is here, and none is missing.  Those
 * that a program fills or has filled are given as an older and as a newer header would have them;
 * those that never change are as they were.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_import.h"
#include "ckpt_nn.h"
#include "ckpt_tools.h"
#include "context/context.h"
#include "optim/optimizer.h"
#include "recorders.h"

enum { ROOM = 1024 };

/* Memory for a struct of any size, which begins with its size. */
union sized {
    size_t size;
    char bytes[ROOM];
};

/* ---- read by the library ----------------------------------------------------------------------
 */

static ckpt *context;

static int give_options(const void *options)
{
    return ckpt_paths_check(options, NULL, 0);
}

/* The refusal that a call left in the context, which the next case must not find there. */
static int failed(void)
{
    return params_take_failure(&context->params);
}

static int give_adamw(const void *settings)
{
    ckpt_adamw(context, settings);
    return failed();
}

static int give_sgd(const void *settings)
{
    ckpt_sgd(context, settings);
    return failed();
}

static int give_lion(const void *settings)
{
    ckpt_lion(context, settings);
    return failed();
}

static int give_adafactor(const void *settings)
{
    ckpt_adafactor(context, settings);
    return failed();
}

static int give_muon(const void *settings)
{
    ckpt_muon(context, settings);
    return failed();
}

static int give_group(const void *settings)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_optimizer_group(ckpt_adamw(context, &a), "*", settings);
    return failed();
}

static int give_schedule(const void *settings)
{
    return isnan(ckpt_schedule(settings, 1, 0)) ? CKPT_EINVAL : 0;
}

/* In a separate context: it changes the parameters. */
static int give_lora(const void *settings)
{
    ckpt *c;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    assert_int_equal(ckpt_open(&c, &o), 0);
    ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){4, 4}, CKPT_XAVIER, true);
    int rc = ckpt_lora(c, settings);
    ckpt_close(c);
    return rc < 0 ? rc : 0;
}

static ckpt_tape *open_tape(void)
{
    ckpt_tape *t;
    struct tape_env env = {.calls = &ops_calls, .params = &context->params};
    assert_int_equal(tape_new(&t, &env, 2, 1), 0);
    return t;
}

static int give_conv(const void *spec)
{
    ckpt_tape *t = open_tape();
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 4, (int64_t[]){2, 8, 8, 2});
    ckpt_tensor w = ckpt_input(t, "w", CKPT_F32, 4, (int64_t[]){2, 3, 3, 2});
    ckpt_conv(t, x, w, CKPT_NONE, spec);
    int rc = t->error.code;
    tape_free(t);
    return rc;
}

static int give_pool(const void *spec)
{
    ckpt_tape *t = open_tape();
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 4, (int64_t[]){2, 8, 8, 2});
    ckpt_max_pool(t, x, (int64_t[]){2, 3}, spec);
    int rc = t->error.code;
    tape_free(t);
    return rc;
}

static int give_attention(const void *spec)
{
    ckpt_tape *t = open_tape();
    ckpt_tensor q = ckpt_input(t, "q", CKPT_F32, 4, (int64_t[]){2, 8, 4, 8});
    ckpt_attention(t, q, q, q, CKPT_NONE, spec);
    int rc = t->error.code;
    tape_free(t);
    return rc;
}

static int give_cross_entropy(const void *spec)
{
    ckpt_tape *t = open_tape();
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){2, 8});
    ckpt_cross_entropy(t, x, ckpt_input(t, "label", CKPT_I32, 1, (int64_t[]){2}), spec);
    int rc = t->error.code;
    tape_free(t);
    return rc;
}

static int give_buffer_update(const void *settings)
{
    static ckpt_tensor buffer;
    if (!buffer.id)
        buffer = ckpt_param(context, "buffer", CKPT_F32, 1, (int64_t[]){2}, CKPT_ZEROS, false);
    ckpt_tape *t = open_tape();
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 1, (int64_t[]){2});
    ckpt_update_buffer_by(t, buffer, x, settings);
    int rc = t->error.code;
    tape_free(t);
    return rc;
}

static int like_input(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return 0;
}

static int give_op(const void *def)
{
    ckpt_tape *t = open_tape();
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 1, (int64_t[]){2}), y;
    int rc = ckpt_record(t, def, 1, &x, 1, &y, NULL, 0);
    tape_free(t);
    return rc;
}

static ckpt_tensor record_square(ckpt_tape *t, int64_t batch, void *w)
{
    ckpt_tensor x = *(ckpt_tensor *)w;
    (void)batch;
    return ckpt_reshape(t, ckpt_mean(t, ckpt_mul(t, x, x), 1), 0, NULL);
}

/* Also written. */
static int give_gradcheck(const void *check)
{
    struct ckpt_options o = {.size = sizeof o, .vram = 1 << 20, .device = "cpu"};
    ckpt *c;
    assert_int_equal(ckpt_open(&c, &o), 0);
    ckpt_tensor w = ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){2}, CKPT_NORMAL(1), true);
    int rc = ckpt_gradcheck(c, record_square, &w, (struct ckpt_gradcheck *)(uintptr_t)check);
    ckpt_close(c);
    return rc;
}

static struct ckpt_nn nn = CKPT_NN_INIT; /* its context is set before the first test */
static const struct ckpt_nn_mlp_spec mlp = {
    sizeof mlp, 2, 2, CKPT_NN_GELU_TANH, false, true, "gate", "up", "down", NULL, NULL};
static const struct ckpt_nn_attention_spec heads = {
    sizeof heads, 4, 2, 0, 0, 0, true, true, "q", "k", "v", NULL, "out", false, NULL};
static int modules; /* made so far: each has a name of its own */

static int give_nn(const void *s)
{
    ckpt_nn_linear(s, 2, 2, false, "linear%d", modules++);
    return failed();
}

static int give_nn_attention(const void *s)
{
    ckpt_nn_attention(&nn, s, "attention%d", modules++);
    return failed();
}

static int give_mlp(const void *s)
{
    ckpt_nn_mlp(&nn, s, "mlp%d", modules++);
    return failed();
}

static const struct ckpt_nn_transformer_layer_spec layer = {
    sizeof layer, &heads, NULL, &mlp, 0.f, false, "a", "b", "c", "d", "e", "f"};

static int give_layer(const void *s)
{
    ckpt_nn_transformer_layer(&nn, s, "layer%d", modules++);
    return failed();
}

static const struct ckpt_options options = CKPT_OPTIONS_INIT;
static const struct ckpt_gradcheck gradcheck = CKPT_GRADCHECK_INIT;
static const struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
static const struct ckpt_sgd sgd = CKPT_SGD_INIT;
static const struct ckpt_lion lion = CKPT_LION_INIT;
static const struct ckpt_adafactor adafactor = CKPT_ADAFACTOR_INIT;
static const struct ckpt_muon muon = CKPT_MUON_INIT;
static const struct ckpt_optimizer_group group = CKPT_OPTIMIZER_GROUP_INIT;
static const struct ckpt_schedule schedule = CKPT_SCHEDULE_INIT;
static const struct ckpt_lora lora = CKPT_LORA_INIT;
static const struct ckpt_conv_spec conv = CKPT_CONV_INIT;
static const struct ckpt_pool_spec pool = CKPT_POOL_INIT;
static const struct ckpt_attention_spec attention = CKPT_ATTENTION_INIT;
static const struct ckpt_cross_entropy_spec cross_entropy = CKPT_CROSS_ENTROPY_INIT;
static const struct ckpt_buffer_update buffer_update = CKPT_BUFFER_UPDATE_INIT;
static const struct ckpt_op_def op = {.size = sizeof op, .name = "twice", .shape = like_input};

static const struct given {
    const char *name;
    const void *whole;
    size_t size, oldest; /* of today's, and as short as one may be that works */
    int (*give)(const void *s);
} given[] = {
    {"ckpt_options", &options, sizeof options, sizeof(size_t), give_options},
    {"ckpt_adamw", &adamw, sizeof adamw, sizeof(size_t), give_adamw},
    {"ckpt_sgd", &sgd, sizeof sgd, sizeof(size_t), give_sgd},
    {"ckpt_lion", &lion, sizeof lion, sizeof(size_t), give_lion},
    {"ckpt_adafactor", &adafactor, sizeof adafactor, sizeof(size_t), give_adafactor},
    {"ckpt_muon", &muon, sizeof muon, sizeof(size_t), give_muon},
    {"ckpt_optimizer_group", &group, sizeof group, sizeof(size_t), give_group},
    {"ckpt_schedule", &schedule, sizeof schedule, sizeof(size_t), give_schedule},
    {"ckpt_lora", &lora, sizeof lora, sizeof(size_t), give_lora},
    {"ckpt_conv_spec", &conv, sizeof conv, sizeof(size_t), give_conv},
    {"ckpt_pool_spec", &pool, sizeof pool, sizeof(size_t), give_pool},
    {"ckpt_gradcheck", &gradcheck, sizeof gradcheck, sizeof(size_t), give_gradcheck},
    {"ckpt_nn", &nn, sizeof nn, offsetof(struct ckpt_nn, dtype), give_nn},
    {"ckpt_nn_attention_spec", &heads, sizeof heads,
     offsetof(struct ckpt_nn_attention_spec, kv_heads), give_nn_attention},
    {"ckpt_nn_mlp_spec", &mlp, sizeof mlp, offsetof(struct ckpt_nn_mlp_spec, activation), give_mlp},
    {"ckpt_nn_transformer_layer_spec", &layer, sizeof layer,
     offsetof(struct ckpt_nn_transformer_layer_spec, eps), give_layer},
    {"ckpt_attention_spec", &attention, sizeof attention, sizeof(size_t), give_attention},
    {"ckpt_cross_entropy_spec", &cross_entropy, sizeof cross_entropy, sizeof(size_t),
     give_cross_entropy},
    {"ckpt_buffer_update", &buffer_update, sizeof buffer_update, sizeof(size_t),
     give_buffer_update},
    {"ckpt_op_def", &op, sizeof op, offsetof(struct ckpt_op_def, grad), give_op},
};

static void test_given(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const struct given *g = &given[i];
        union sized s;
        for (size_t size = g->oldest; size <= g->size; size += sizeof(int64_t)) {
            memset(&s, 0xa5, sizeof s); /* nobody may look behind the size */
            memcpy(&s, g->whole, size);
            s.size = size;
            assert_int_equal(g->give(&s), 0);
        }
        memset(&s, 0, sizeof s);
        memcpy(&s, g->whole, g->size);
        s.size = g->size + 24;
        assert_int_equal(g->give(&s), 0);
        s.bytes[g->size + 23] = 1;
        assert_int_equal(g->give(&s), CKPT_EINVAL);
        for (size_t size = 0; size < sizeof(size_t); size += 4) {
            s.size = size;
            assert_int_equal(g->give(&s), CKPT_EINVAL);
        }
        s.size = SIZE_MAX;
        assert_int_equal(g->give(&s), CKPT_EINVAL);
    }
}

static void test_defaults(void **state)
{
    (void)state;
    struct ckpt_options o = {.size = offsetof(struct ckpt_options, seed), .vram = 1 << 24};
    ckpt *c;
    assert_int_equal(ckpt_open(&c, &o), 0);
    assert_int_equal(c->options.vram, 1 << 24);
    assert_int_equal(c->options.seed, 42);
    assert_int_equal(c->options.check_ranks, 1000);
    assert_int_equal(c->options.size, sizeof o);
    struct ckpt_adamw a = {.size = offsetof(struct ckpt_adamw, beta1), .lr = 0.5f};
    const ckpt_optimizer *made = ckpt_adamw(c, &a);
    assert_true(made->lr == 0.5f && made->rule.update.beta2 == 0.999f);
    ckpt_close(c);
    /* An option without a field is refused, not ignored. */
    o = (struct ckpt_options){.size = offsetof(struct ckpt_options, check_ranks)};
    char *argv[] = {"test", "--check-ranks", "7", "--vram", "1G", NULL};
    int argc = 5;
    assert_int_equal(ckpt_options_parse(&o, &argc, argv), 0);
    assert_int_equal(argc, 3);
    assert_int_equal(o.vram, 1 << 30);
    assert_int_equal(o.check_ranks, 0);
}

/* A step of two, no padding: the padding is after the size. */
static void test_short_conv(void **state)
{
    (void)state;
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    spec.size = offsetof(struct ckpt_conv_spec, before);
    spec.stride[0] = spec.stride[1] = 2;
    spec.before[0] = 5;
    ckpt_tape *t = open_tape();
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 4, (int64_t[]){2, 9, 9, 2});
    ckpt_tensor w = ckpt_input(t, "w", CKPT_F32, 4, (int64_t[]){2, 3, 3, 2});
    struct ckpt_desc d = ckpt_desc_of(t, ckpt_conv(t, x, w, CKPT_NONE, &spec));
    assert_true(d.ndim == 4 && d.shape[1] == 4 && d.shape[2] == 4);
    tape_free(t);
}

/* The struct of a program built before dilation and groups existed: bytes after it are not read. */
static void test_old_conv(void **state)
{
    (void)state;
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    assert_int_equal(offsetof(struct ckpt_conv_spec, dilation), 88); /* its size then */
    spec.size = offsetof(struct ckpt_conv_spec, dilation);
    spec.dilation[0] = spec.dilation[1] = 3;
    spec.groups = 2;
    ckpt_tape *t = open_tape();
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 4, (int64_t[]){2, 9, 9, 2});
    ckpt_tensor w = ckpt_input(t, "w", CKPT_F32, 4, (int64_t[]){2, 3, 3, 2});
    struct ckpt_desc d = ckpt_desc_of(t, ckpt_conv(t, x, w, CKPT_NONE, &spec));
    assert_true(d.ndim == 4 && d.shape[1] == 7 && d.shape[2] == 7);
    tape_free(t);
}

/* ---- written by the library -------------------------------------------------------------------
 */

static ckpt_program *program;
static ckpt_tensor weight;
static ckpt_file *file;
static ckpt_import *imported;

static int fill_param(void *s)
{
    return ckpt_param_info(context, weight, s);
}

static int fill_program(void *s)
{
    return ckpt_program_info(program, s);
}

static ckpt_tensor record_weight(ckpt_tape *t, int64_t batch, void *user)
{
    (void)user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4});
    return ckpt_mse(t, x, ckpt_affine(t, x, 2.f, 0.f), CKPT_NONE);
}

static int fill_forecast(void *s)
{
    return ckpt_forecast(context, record_weight, NULL, NULL, 1, 0, s);
}

static int fill_entry(void *s)
{
    return ckpt_file_entry(file, 0, s);
}

static int fill_value(void *s)
{
    return ckpt_import_input(imported, 0, s);
}

static const struct filled {
    const char *name;
    size_t size;
    int (*fill)(void *s);
} filled[] = {
    {"ckpt_param_info", sizeof(struct ckpt_param_info), fill_param},
    {"ckpt_program_info", sizeof(struct ckpt_program_info), fill_program},
    {"ckpt_forecast", sizeof(struct ckpt_forecast), fill_forecast},
    {"ckpt_file_entry", sizeof(struct ckpt_file_entry), fill_entry},
    {"ckpt_import_value", sizeof(struct ckpt_import_value), fill_value},
};

static void test_filled(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++) {
        const struct filled *f = &filled[i];
        union sized whole = {.size = f->size}, s;
        assert_int_equal(f->fill(&whole), 0);
        for (size_t size = sizeof(size_t); size <= f->size + 40; size += sizeof(int64_t)) {
            memset(&s, 0xa5, sizeof s);
            s.size = size;
            assert_int_equal(f->fill(&s), 0);
            assert_int_equal(s.size, size);
            for (size_t b = sizeof(size_t); b < sizeof s; b++) {
                char want = b >= size ? (char)0xa5 : b < f->size ? whole.bytes[b] : 0;
                assert_int_equal(s.bytes[b], want);
            }
        }
        s.size = 0;
        assert_int_equal(f->fill(&s), CKPT_EINVAL);
    }
}

/* ---- those that never change ------------------------------------------------------------------
 */

/* By value, or in an array.  On machines of 64 bits. */
static const struct frozen {
    const char *name;
    size_t size, was;
} frozen[] = {
    {"ckpt_tensor", sizeof(ckpt_tensor), 8},
    {"ckpt_desc", sizeof(struct ckpt_desc), 144},
    {"ckpt_init", sizeof(struct ckpt_init), 8},
    {"ckpt_view", sizeof(struct ckpt_view), 152},
    {"ckpt_variant", sizeof(struct ckpt_variant), 24},
    {"ckpt_option", sizeof(struct ckpt_option), 56},
    {"ckpt_path", sizeof(struct ckpt_path), 24},
    {"ckpt_fact", sizeof(struct ckpt_fact), 24},
    {"ckpt_nn_linear", sizeof(struct ckpt_nn_linear), 16},
    {"ckpt_nn_conv", sizeof(struct ckpt_nn_conv), 16},
    {"ckpt_nn_norm", sizeof(struct ckpt_nn_norm), 24},
    {"ckpt_nn_batch_norm", sizeof(struct ckpt_nn_batch_norm), 40},
    {"ckpt_nn_rnn", sizeof(struct ckpt_nn_rnn), 48},
    {"ckpt_nn_embedding", sizeof(struct ckpt_nn_embedding), 8},
    {"ckpt_nn_attention", sizeof(struct ckpt_nn_attention), 104},
    {"ckpt_nn_mlp", sizeof(struct ckpt_nn_mlp), 52},
    {"ckpt_nn_transformer_layer", sizeof(struct ckpt_nn_transformer_layer), 336},
};

/* Created by the library, read through a pointer by rules and kernels. */
static const char *const shown[] = {"ckpt_call", "ckpt_grad", "ckpt_cost", "ckpt_run",
                                    "ckpt_kernel_args"};

static void test_frozen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++)
        assert_int_equal(frozen[i].size, frozen[i].was);
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (!strcmp(name, given[i].name))
            return true;
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        if (!strcmp(name, filled[i].name))
            return true;
    for (size_t i = 0; i < sizeof frozen / sizeof *frozen; i++)
        if (!strcmp(name, frozen[i].name))
            return true;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (!strcmp(name, shown[i]))
            return true;
    return false;
}

/* Structs with a body in one header; each must be in a table above. */
static int check_header(const char *path)
{
    char line[256], name[64], brace;
    int n = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        const char *s = strncmp(line, "typedef ", 8) ? line : line + 8;
        if (sscanf(s, "struct %63[a-z_] %c", name, &brace) != 2 || brace != '{')
            continue;
        if (!is_known(name))
            fail_msg("%s: struct %s is in no table of this test", path, name);
        n++;
    }
    fclose(f);
    return n;
}

static void test_all(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "ckpt.h",    "ckpt_conv.h", "ckpt_dist.h", "ckpt_files.h", "ckpt_import.h",
        "ckpt_nn.h", "ckpt_op.h",   "ckpt_ops.h",  "ckpt_optim.h", "ckpt_tools.h"};
    const char *srcdir = getenv("srcdir");
    size_t n = 0;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/runtime/%s", srcdir ? srcdir : ".", headers[i]);
        n += (size_t)check_header(path);
    }
    assert_int_equal(n, sizeof given / sizeof *given + sizeof filled / sizeof *filled +
                            sizeof frozen / sizeof *frozen + sizeof shown / sizeof *shown);
}

/* ---- what they are about ----------------------------------------------------------------------
 */

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    (void)user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4});
    return ckpt_linear(t, x, weight, CKPT_NONE);
}

static int setup(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/ckpt-sized-%ld.safetensors", (long)getpid());
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.threads = 1;
    int rc = ckpt_open(&context, &o);
    if (rc)
        return rc;
    weight = ckpt_param(context, "w", CKPT_F32, 2, (int64_t[]){4, 4}, CKPT_XAVIER, true);
    nn.context = context;
    rc = ckpt_compile(context, record, NULL, NULL, 2, &program);
    rc = rc ? rc : ckpt_save_params(context, path, CKPT_VALUE);
    rc = rc ? rc : ckpt_file_open(&file, path);
    remove(path);
    const char *srcdir = getenv("srcdir");
    char archive[4096];
    snprintf(archive, sizeof archive, "%s/tests/fuzz/corpus/archive/small.pt2",
             srcdir ? srcdir : ".");
    rc = rc ? rc : ckpt_import_open(context, archive, &imported);
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    ckpt_file_close(file);
    ckpt_import_close(imported);
    ckpt_close(context);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given),      cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_short_conv), cmocka_unit_test(test_old_conv),
        cmocka_unit_test(test_filled),     cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_all),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
