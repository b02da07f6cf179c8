/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every public call that can fail, with a wrong value: a negative code, and a sentence of this
 * failure, not of one before, in the context that the call is on, else in the thread.
 * build-aux/lint checks that no call that returns an int is missing; these do not fail:
 * ckpt_version_number, ckpt_rank, ckpt_ranks, ckpt_sample_group, ckpt_sample_groups,
 * ckpt_param_count, ckpt_file_count, ckpt_import_input_count, ckpt_import_output_count,
 * ckpt_import_missing, ckpt_plan_in_full and ckpt_train_in_turn (but see test_null.c),
 * ckpt_gather_refusals (test_together.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_import.h"
#include "ckpt_op.h"
#include "ckpt_tools.h"

static ckpt *context, *other;
static ckpt_program *program, *forward;
static ckpt_optimizer *adamw;
static ckpt_tensor weight;
static int cases, failures;
static float values[16];
static char directory[] = "/tmp/ckpt-sentences-XXXXXX", good[64], text[64], absent[64];

static const char OLD[] = "--micro-batch -77"; /* in the sentence that stands before each case */

/* Gives the thread and both contexts a sentence that no case makes. */
static void make_old(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.micro_batch = -77;
    if (!ckpt_open(&c, &o) || !ckpt_load_params(context, OLD, NULL, NULL, NULL) ||
        !ckpt_load_params(other, OLD, NULL, NULL, NULL))
        exit(99);
}

static bool is_new(const char *sentence)
{
    return *sentence && !strstr(sentence, OLD);
}

/* Whether a call is on a context, or on something of one, by the names of its arguments. */
static bool is_on_context(const char *call)
{
    static const char *const names[] = {"context", "other", "program", "forward", "adamw", "(m,"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(call, names[i]))
            return true;
    return false;
}

/* The sentence is where the call keeps it, and not in the other place. */
static void judge(const char *call, int rc)
{
    cases++;
    bool in_context = is_new(ckpt_error(context)) || is_new(ckpt_error(other));
    bool in_thread = is_new(ckpt_error(NULL)), on_context = is_on_context(call);
    if (rc < 0 && in_context == on_context && in_thread != on_context)
        return;
    printf("FAIL: %s: %d (%s), a sentence in the context: %d, in the thread: %d\n", call, rc,
           ckpt_error_name(rc), in_context, in_thread);
    failures++;
}

#define FAILS(call)                                                                                \
    do {                                                                                           \
        make_old();                                                                                \
        judge(#call, call);                                                                        \
    } while (0)

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    (void)user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4});
    ckpt_tensor y = ckpt_linear(t, x, weight, CKPT_NONE);
    ckpt_output(t, "y", y);
    return ckpt_mean(t, ckpt_mul(t, y, y), CKPT_ALL_AXES);
}

static ckpt_tensor record_wrong(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor loss = record(t, batch, user), out;
    const struct ckpt_op_def none = {.size = sizeof none, .name = "none"};
    char why[16];
    struct ckpt_call call = {.message = why, .message_size = sizeof why};
    cases++;
    failures += ckpt_call_fail(&call, "it fails") >= 0 || strcmp(why, "it fails");
    cases++;
    failures += ckpt_record(t, &none, 1, &loss, 1, &out, NULL, 0) >= 0;
    return loss;
}

static void option_cases(void)
{
    int argc = 3;
    int64_t bytes;
    char *argv[] = {"program", "--vram", "much", NULL};
    const struct ckpt_option *table = ckpt_options_table();
    struct ckpt_options o = CKPT_OPTIONS_INIT, unset = {0};
    struct ckpt_path path = {"--save", "/nonexistent/directory/file", CKPT_PATH_FILE, 0};
    struct ckpt_replacement *r;
    ckpt *c;
    FILE *f;
    FAILS(ckpt_options_parse(&o, &argc, argv));
    FAILS(ckpt_option_table_parse(table, &o, &argc, argv));
    FAILS(ckpt_options_reject(argc, argv, 1, &table));
    setenv("CKPT_VRAN", "1", 1);
    FAILS(ckpt_environment_check());
    unsetenv("CKPT_VRAN");
    FAILS(ckpt_parse_size("12Q", &bytes));
    FAILS(ckpt_open(&c, &unset));
    o.threads = -3;
    FAILS(ckpt_open(&c, &o));
    FAILS(ckpt_paths_check(NULL, &path, 1));
    FAILS(ckpt_replace_open(&r, path.path));
    FAILS(ckpt_log_open(&f, path.path));
    FAILS(ckpt_input_open(&f, path.path));
    if (ckpt_replace_open(&r, text))
        exit(99);
    unlink(ckpt_replace_name(r));
    FAILS(ckpt_replace_commit(r, false));
}

static void parameter_cases(void)
{
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    struct ckpt_lora lora = CKPT_LORA_INIT;
    const struct ckpt_optimizer_group group = CKPT_OPTIMIZER_GROUP_INIT;
    ckpt_tensor found;
    FAILS(ckpt_param_find(context, "nosuch", &found));
    FAILS(ckpt_param_info(context, CKPT_NONE, &info));
    FAILS(ckpt_param_info(context, weight, &(struct ckpt_param_info){0}));
    FAILS(ckpt_param_get(context, weight, CKPT_VALUE, values, 3));
    FAILS(ckpt_param_get(context, weight, CKPT_EMA, values, 16));
    FAILS(ckpt_param_set(context, weight, CKPT_VALUE, values, 3));
    FAILS(ckpt_param_file_axes(context, weight, 2, NULL, (int[]){1, 1}));
    FAILS(ckpt_param_split(context, weight, 2, 1));
    FAILS(ckpt_param_file_parts(context, weight, 0, NULL));
    FAILS(ckpt_optimizer_group(adamw, "*", &group)); /* a program is compiled with it */
    FAILS(ckpt_compile(context, record, NULL, adamw, 4, &forward));
    FAILS(ckpt_lora(other, &lora));
    FAILS(ckpt_compile(other, record, NULL, NULL, 4, &forward));
    FAILS(ckpt_quantize_frozen(other, "*", "nf4"));
    FAILS(ckpt_offload_frozen(other, NULL));
    FAILS(
        ckpt_forecast(other, record, NULL, NULL, 4, 0, &(struct ckpt_forecast)CKPT_FORECAST_INIT));
}

static int feed_nothing(ckpt_program *p, void *user)
{
    (void)p, (void)user;
    return -1;
}

static int feed_from_other(ckpt_program *p, void *user)
{
    ckpt_tensor x;
    (void)p, (void)user;
    return ckpt_param_find(other, "nosuch", &x);
}

static void program_cases(void)
{
    struct ckpt_desc desc;
    struct ckpt_program_info unset = {0};
    const struct ckpt_variant variants[] = {{record, NULL, false}, {record_wrong, NULL, false}};
    struct ckpt_gradcheck check = CKPT_GRADCHECK_INIT;
    ckpt_program *p;
    int which;
    check.feed = feed_nothing;
    FAILS(ckpt_compile(context, record, NULL, adamw, -1, &p));
    FAILS(ckpt_compile(context, record_wrong, NULL, adamw, 4, &p));
    FAILS(ckpt_compile_variants(context, 2, variants, adamw, 4, &p, &which));
    FAILS(ckpt_forecast(context, record_wrong, NULL, adamw, 4, 0,
                        &(struct ckpt_forecast)CKPT_FORECAST_INIT));
    FAILS(ckpt_gradcheck(context, record, NULL, &check));
    check.feed = feed_from_other; /* its own failure has no part in that of the outer call */
    FAILS(ckpt_gradcheck(context, record, NULL, &check));
    cases++;
    failures +=
        !strstr(ckpt_error(context), "feed returned") || !strstr(ckpt_error(other), "nosuch");
    FAILS(ckpt_step(program, NULL)); /* nothing was fed */
    FAILS(ckpt_submit(program));
    FAILS(ckpt_wait(program, NULL));
    FAILS(ckpt_feed(program, "nosuch", values, 64));
    FAILS(ckpt_feed(program, "x", values, 63));
    if (ckpt_feed(program, "x", values, 64) || ckpt_submit(program))
        exit(99);
    FAILS(ckpt_mix_programs(context, NULL)); /* a step is under way */
    if (ckpt_wait(program, NULL))
        exit(99);
    FAILS(ckpt_fetch(program, "nosuch", values, 64));
    FAILS(ckpt_fetch(program, "y", values, 63));
    FAILS(ckpt_program_desc(program, "nosuch", &desc));
    FAILS(ckpt_program_info(program, &unset));
    FAILS(ckpt_set_lr(program, -1.f));
    FAILS(ckpt_set_random_step(program, 1));
}

static void file_cases(void)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    ckpt_file *f, *none;
    ckpt_file_writer *w;
    int32_t integers[16];
    if (ckpt_save_params(context, good, CKPT_VALUE) || ckpt_file_open(&f, good))
        exit(99);
    FAILS(ckpt_file_open(&none, absent));
    FAILS(ckpt_file_open(&none, text));
    FAILS(ckpt_file_find(f, "nosuch"));
    FAILS(ckpt_file_entry(f, 9, &e));
    FAILS(ckpt_file_read_f32(f, 0, values, 3));
    FAILS(ckpt_file_read_part_f32(f, 0, 14, values, 3));
    FAILS(ckpt_file_read_part_i32(f, 0, -1, (int32_t[1]){0}, 1));
    FAILS(ckpt_file_read_i32(f, 0, integers, 16));
    ckpt_file_close(f);
    if (ckpt_file_create(&w, "/nonexistent/directory/file"))
        exit(99);
    FAILS(ckpt_file_create(&w, NULL));
    FAILS(ckpt_file_add(w, "a", CKPT_F32, -1, (int64_t[]){16}, values));
    FAILS(ckpt_file_commit(w));
    FAILS(ckpt_load_params(context, absent, NULL, NULL, NULL));
    FAILS(ckpt_load_params_aliased(context, text, NULL, NULL, NULL, NULL));
    FAILS(ckpt_save_params(context, good, CKPT_EMA));
    FAILS(ckpt_save_params_filtered(context, absent, CKPT_VALUE, NULL, NULL));
    FAILS(ckpt_save_params_aliased(context, absent, CKPT_VALUE, NULL, NULL, NULL));
    FAILS(ckpt_save_params_merged(context, absent, NULL, NULL));
    FAILS(ckpt_save_params_int8(context, absent, CKPT_VALUE, NULL, NULL, NULL));
    FAILS(ckpt_save_params_noted(context, good, CKPT_VALUE, NULL, NULL, "format", "mine"));
    FAILS(ckpt_save_state(context, absent));
    FAILS(ckpt_save_state(other, good));
    FAILS(ckpt_save_wait(NULL));
    FAILS(ckpt_file_remove(absent));
    FAILS(ckpt_load_state(context, good));
    FAILS(ckpt_load_state_changed(context, good, NULL, NULL));
    FAILS(ckpt_state_note(context, "ckpt.mine", "note"));
    FAILS(ckpt_state_base(context, ""));
}

static void import_cases(void)
{
    char path[4096];
    const char *srcdir = getenv("srcdir");
    ckpt_import *m, *none;
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/archive/small.pt2", srcdir ? srcdir : ".");
    if (ckpt_import_open(context, path, &m))
        exit(99);
    FAILS(ckpt_import_open(context, absent, &none));
    FAILS(ckpt_import_open(context, path, &none)); /* its parameters are there already */
    FAILS(ckpt_import_input(m, 99, &v));
    FAILS(ckpt_import_output(m, 99, &v));
    FAILS(ckpt_import_set_size(m, "nosuch", 2));
    FAILS(ckpt_import_set_training(NULL, true));
    FAILS(ckpt_import_save(m, absent));
    ckpt_import_close(m);
}

static void other_cases(void)
{
    FAILS(ckpt_agree(context, NULL, 1));
    FAILS(ckpt_give_up(NULL, NULL, "x"));
    FAILS(ckpt_launched(NULL, NULL));
    FAILS(ckpt_gather_ranks(context, NULL, 4, values));
    FAILS(ckpt_job_history(context, NULL, NULL, NULL));
    FAILS(ckpt_restart(context, NULL));
    FAILS(ckpt_rank_seconds(context, NULL));
    FAILS(ckpt_lora_merge(NULL));
    FAILS(ckpt_lora_magnitudes(NULL));
    FAILS(ckpt_lora_whole(context, "nosuch"));
    FAILS(ckpt_unwritten(other));
    FAILS(ckpt_watch_plan(NULL, NULL, NULL));
}

/* The sentence that ckpt_compile returns is that of the failure it reports, not of one that came
 * after it; then the context can be used. */
static void test_kept_failure(void)
{
    ckpt_tensor x;
    ckpt_program *p;
    ckpt_param(context, "w", CKPT_F32, 1, (int64_t[]){4}, CKPT_ZEROS, true);
    ckpt_param_find(context, "nosuch", &x);
    int rc = ckpt_compile(context, record, NULL, adamw, 4, &p);
    bool right = rc == CKPT_EINVAL && strstr(ckpt_error(context), "the name is used twice");
    right = right && !ckpt_compile(context, record, NULL, adamw, 4, &p);
    right = right && ckpt_param(context, "v", CKPT_F32, 1, (int64_t[]){4}, CKPT_ZEROS, false).id;
    cases++;
    failures += !right;
    if (!right)
        printf("FAIL: a parameter made twice: %d, %s\n", rc, ckpt_error(context));
}

static int open_both(void)
{
    const struct ckpt_adamw settings = CKPT_ADAMW_INIT;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = "cpu", o.threads = 1;
    int rc = ckpt_open(&context, &o);
    o.graph_out = good;
    if (!rc)
        rc = ckpt_open(&other, &o);
    if (rc)
        return rc;
    weight = ckpt_param(context, "w", CKPT_F32, 2, (int64_t[]){4, 4}, CKPT_ONES, true);
    adamw = ckpt_adamw(context, &settings);
    return ckpt_compile(context, record, NULL, adamw, 4, &program);
}

int main(void)
{
    FILE *f = mkdtemp(directory) ? stdout : NULL;
    snprintf(good, sizeof good, "%s/good", directory);
    snprintf(text, sizeof text, "%s/text", directory);
    snprintf(absent, sizeof absent, "%s/no/file", directory);
    if (!f || ckpt_log_open(&f, text) || fputs("no tensors", f) < 0 || fclose(f) || open_both())
        return 99;
    option_cases();
    parameter_cases();
    program_cases();
    file_cases();
    import_cases();
    other_cases();
    test_kept_failure();
    ckpt_close(other);
    ckpt_close(context);
    unlink(good);
    unlink(text);
    rmdir(directory);
    printf("%d cases, %d failed\n", cases, failures);
    return failures ? 1 : 0;
}
