/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NULL for each pointer of the public contract in turn, and handles of tensors that are none: a
 * code and a sentence, or nothing at all where the contract allows it; never a crash.
 */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_op.h"
#include "ckpt_tools.h"

static ckpt *context;
static ckpt_program *program;
static ckpt_tensor weight;
static int wanted, at, verdict; /* which case runs; how many were passed over; 0: as it should be */
static const char *running, *no_text; /* its text; a NULL that no compiler sees */

/* The current case must return `code`. */
#define GIVES(code, call)                                                                          \
    do {                                                                                           \
        if (at++ == wanted) {                                                                      \
            running = #call;                                                                       \
            verdict = (call) != (code);                                                            \
        }                                                                                          \
    } while (0)
#define REFUSED(call) GIVES(CKPT_EINVAL, call)
/* It only must return. */
#define HARMLESS(call)                                                                             \
    do {                                                                                           \
        if (at++ == wanted) {                                                                      \
            running = #call;                                                                       \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

static const int64_t two[] = {4, 4};
static float buffer[64];
static const struct ckpt_adamw adamw = CKPT_ADAMW_INIT;

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    (void)user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4});
    ckpt_tensor y = ckpt_linear(t, x, weight, CKPT_NONE);
    ckpt_output(t, "y", y);
    return ckpt_mean(t, ckpt_mul(t, y, y), 3);
}

/* ---- calls that return a code ---------------------------------------------------------------- */

static void options_cases(void)
{
    int64_t size;
    int argc = 1;
    char *argv[] = {"test", NULL};
    const struct ckpt_option *table = ckpt_options_table();
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    REFUSED(ckpt_option_table_parse(NULL, &o, &argc, argv));
    REFUSED(ckpt_option_table_parse(table, NULL, &argc, argv));
    REFUSED(ckpt_option_table_parse(table, &o, NULL, argv));
    REFUSED(ckpt_option_table_parse(table, &o, &argc, NULL));
    REFUSED(ckpt_options_parse(NULL, &argc, argv));
    REFUSED(ckpt_options_parse(&o, NULL, argv));
    REFUSED(ckpt_options_parse(&o, &argc, NULL));
    REFUSED(ckpt_options_reject(2, NULL, 0, NULL));
    REFUSED(ckpt_options_reject(2, (char *[]){"test", "--x", NULL}, 1, NULL));
    REFUSED(ckpt_parse_size(NULL, &size));
    REFUSED(ckpt_parse_size("1G", NULL));
    REFUSED(ckpt_open(NULL, NULL));
    HARMLESS(ckpt_option_table_help(NULL, stderr));
    HARMLESS(ckpt_option_table_help(table, NULL));
    HARMLESS(ckpt_close(NULL));
    HARMLESS((void)ckpt_error(NULL));
}

static void parameter_cases(void)
{
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    ckpt_tensor found;
    GIVES(0, ckpt_param(NULL, "p", CKPT_F32, 2, two, CKPT_ZEROS, true).id);
    GIVES(0, ckpt_param_from(NULL, "p", CKPT_F32, 2, two, buffer, true).id);
    GIVES(0, ckpt_param_count(NULL));
    GIVES(0, ckpt_param_at(NULL, 0).id);
    GIVES(0, ckpt_param_at(context, -1).id);
    GIVES(0, ckpt_param_at(context, 99).id);
    REFUSED(ckpt_param_find(NULL, "w", &found));
    REFUSED(ckpt_param_find(context, NULL, &found));
    REFUSED(ckpt_param_find(context, "w", NULL));
    REFUSED(ckpt_param_info(NULL, weight, &info));
    REFUSED(ckpt_param_info(context, weight, NULL));
    GIVES(CKPT_ENAME, ckpt_param_info(context, CKPT_NONE, &info));
    GIVES(CKPT_ENAME, ckpt_param_info(context, (ckpt_tensor){.id = INT32_MIN}, &info));
    GIVES(CKPT_ENAME, ckpt_param_info(context, (ckpt_tensor){.id = INT32_MAX}, &info));
    REFUSED(ckpt_param_get(NULL, weight, CKPT_VALUE, buffer, 16));
    REFUSED(ckpt_param_get(context, weight, CKPT_VALUE, NULL, 16));
    GIVES(CKPT_ENAME, ckpt_param_get(context, weight, (enum ckpt_slot)9, buffer, 16));
    GIVES(CKPT_ENAME, ckpt_param_get(context, weight, (enum ckpt_slot) - 1, buffer, 16));
    REFUSED(ckpt_param_set(NULL, weight, CKPT_VALUE, buffer, 16));
    REFUSED(ckpt_param_set(context, weight, CKPT_VALUE, NULL, 16));
    REFUSED(ckpt_param_file_axes(NULL, weight, 2, NULL, (int[]){1, 0}));
    REFUSED(ckpt_param_file_axes(context, weight, 2, NULL, NULL));
    GIVES(0, ckpt_dtype_size((enum ckpt_dtype)77) < 0);
    HARMLESS((void)ckpt_error_name(12345));
}

/* Objects that persist in a context are created anew for each case. */
static ckpt *own;

static const struct ckpt_options small = {
    .size = sizeof small, .device = "cpu", .threads = 1, .vram = 1 << 20};
static ckpt *open_own(void)
{
    return ckpt_open(&own, &small) ? NULL : own;
}

/* Whether it has a sentence. */
static int close_own(void)
{
    int rc = own && *ckpt_error(own) ? CKPT_EINVAL : 0;
    ckpt_close(own);
    return rc;
}

static ckpt_optimizer *own_adamw(void)
{
    return ckpt_adamw(open_own(), &adamw);
}

static void optimizer_cases(void)
{
    const struct ckpt_optimizer_group group = CKPT_OPTIMIZER_GROUP_INIT;
    const struct ckpt_schedule schedule = CKPT_SCHEDULE_INIT;
    const struct ckpt_lora lora = CKPT_LORA_INIT;
    GIVES(true, ckpt_adamw(NULL, &adamw) == NULL);
    GIVES(true, ckpt_sgd(NULL, &(struct ckpt_sgd)CKPT_SGD_INIT) == NULL);
    GIVES(true, ckpt_lion(NULL, &(struct ckpt_lion)CKPT_LION_INIT) == NULL);
    GIVES(true, ckpt_adafactor(NULL, &(struct ckpt_adafactor)CKPT_ADAFACTOR_INIT) == NULL);
    GIVES(true, ckpt_muon(NULL, &(struct ckpt_muon)CKPT_MUON_INIT) == NULL);
    REFUSED((ckpt_adamw(open_own(), NULL), close_own()));
    REFUSED((ckpt_sgd(open_own(), NULL), close_own()));
    REFUSED((ckpt_lion(open_own(), NULL), close_own()));
    REFUSED((ckpt_adafactor(open_own(), NULL), close_own()));
    REFUSED((ckpt_muon(open_own(), NULL), close_own()));
    REFUSED(ckpt_optimizer_group(NULL, "*", &group));
    REFUSED((ckpt_optimizer_group(own_adamw(), NULL, &group), close_own()));
    REFUSED((ckpt_optimizer_group(own_adamw(), "*", NULL), close_own()));
    GIVES(true, isnan(ckpt_schedule(NULL, 1, 0)) != 0);
    GIVES(true, isnan(ckpt_schedule(&schedule, 1, -1)) != 0);
    REFUSED(ckpt_lora(NULL, &lora));
    REFUSED((ckpt_lora(open_own(), NULL), close_own()));
    REFUSED((ckpt_lora(open_own(), &lora), close_own())); /* there is no parameter */
    GIVES(false, ckpt_lora_only(NULL, NULL));
    REFUSED(ckpt_lora_merge(NULL));
    GIVES(0, ckpt_lora_merge(context));
}

static void program_cases(void)
{
    ckpt_program *p;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct ckpt_desc desc;
    struct ckpt_variant way = {.record = record}, none = {.record = NULL};
    REFUSED(ckpt_compile(NULL, record, NULL, NULL, 4, &p));
    REFUSED(ckpt_compile(context, NULL, NULL, ckpt_adamw(context, &adamw), 4, &p));
    REFUSED(ckpt_compile(context, record, NULL, ckpt_adamw(context, &adamw), 4, NULL));
    REFUSED(ckpt_compile_variants(NULL, 1, &way, NULL, 4, &p, NULL));
    REFUSED(ckpt_compile_variants(context, 1, NULL, ckpt_adamw(context, &adamw), 4, &p, NULL));
    REFUSED(ckpt_compile_variants(context, 1, &none, ckpt_adamw(context, &adamw), 4, &p, NULL));
    REFUSED(ckpt_compile_variants(context, 0, &way, ckpt_adamw(context, &adamw), 4, &p, NULL));
    REFUSED(ckpt_compile_variants(context, -1, &way, ckpt_adamw(context, &adamw), 4, &p, NULL));
    REFUSED(ckpt_compile_variants(context, 1, &way, ckpt_adamw(context, &adamw), 4, NULL, NULL));
    REFUSED(ckpt_compile(context, record, NULL, ckpt_adamw(context, &adamw), INT64_MIN, &p));
    HARMLESS(ckpt_compile(context, record, NULL, ckpt_adamw(context, &adamw), INT64_MAX, &p));
    REFUSED(ckpt_plan_in_full(NULL, true));
    REFUSED(ckpt_train_in_turn(NULL));
    REFUSED(ckpt_forecast(context, record, NULL, NULL, 4, 0, NULL));
    HARMLESS(ckpt_program_free(NULL));
    REFUSED(ckpt_feed(NULL, "x", buffer, 64));
    REFUSED(ckpt_feed(program, NULL, buffer, 64));
    REFUSED(ckpt_feed(program, "x", NULL, 64));
    REFUSED(ckpt_step(NULL, NULL));
    REFUSED(ckpt_submit(NULL));
    REFUSED(ckpt_wait(NULL, NULL));
    REFUSED(ckpt_fetch(NULL, "y", buffer, 64));
    REFUSED(ckpt_fetch(program, NULL, buffer, 64));
    REFUSED(ckpt_fetch(program, "y", NULL, 64));
    REFUSED(ckpt_program_desc(NULL, "y", &desc));
    REFUSED(ckpt_program_desc(program, NULL, &desc));
    REFUSED(ckpt_program_desc(program, "y", NULL));
    HARMLESS(ckpt_set_lr(NULL, 1.f));
    HARMLESS(ckpt_program_info(NULL, &info));
    HARMLESS(ckpt_program_info(program, NULL));
    HARMLESS(ckpt_plan_print(NULL, stderr));
    HARMLESS(ckpt_plan_print(program, NULL));
    HARMLESS(ckpt_profile_print(NULL, stderr));
    HARMLESS(ckpt_profile_print(program, NULL));
}

static void file_cases(void)
{
    ckpt_file *f = NULL;
    ckpt_file_writer *w = NULL;
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int32_t i32[16];
    char path[] = "/tmp/ckpt-null-XXXXXX";
    int fd = mkstemp(path);
    close(fd);
    ckpt_save_params(context, path, CKPT_VALUE);
    ckpt_file_open(&f, path);
    unlink(path);
    ckpt_file_create(&w, path);
    REFUSED(ckpt_file_open(NULL, path));
    REFUSED(ckpt_file_open(&f, NULL));
    HARMLESS(ckpt_file_close(NULL));
    GIVES(0, ckpt_file_count(NULL));
    REFUSED(ckpt_file_entry(NULL, 0, &e));
    REFUSED(ckpt_file_entry(f, 0, NULL));
    REFUSED(ckpt_file_entry(f, -1, &e));
    REFUSED(ckpt_file_entry(f, 9, &e));
    REFUSED(ckpt_file_find(NULL, "w"));
    REFUSED(ckpt_file_find(f, NULL));
    GIVES(0, ckpt_file_note(NULL, "format") != NULL);
    GIVES(0, ckpt_file_note(f, NULL) != NULL);
    REFUSED(ckpt_file_read_f32(NULL, 0, buffer, 16));
    REFUSED(ckpt_file_read_f32(f, 0, NULL, 16));
    REFUSED(ckpt_file_read_f32(f, 9, buffer, 16));
    REFUSED(ckpt_file_read_i32(NULL, 0, i32, 16));
    REFUSED(ckpt_file_read_i32(f, 0, NULL, 16));
    REFUSED(ckpt_file_read_part_f32(NULL, 0, 0, buffer, 4));
    REFUSED(ckpt_file_read_part_f32(f, 0, 0, NULL, 4));
    REFUSED(ckpt_file_read_part_f32(f, 0, INT64_MAX, buffer, 4));
    REFUSED(ckpt_file_create(NULL, path));
    REFUSED(ckpt_file_create(&w, NULL));
    REFUSED(ckpt_file_add(NULL, "x", CKPT_F32, 2, two, buffer));
    REFUSED(ckpt_file_add(w, NULL, CKPT_F32, 2, two, buffer));
    REFUSED(ckpt_file_add(w, "x", CKPT_F32, 2, NULL, buffer));
    REFUSED(ckpt_file_add(w, "x", CKPT_F32, 2, two, NULL));
    REFUSED(ckpt_file_add(w, "x", CKPT_F32, 99, two, buffer));
    REFUSED(ckpt_file_add(w, "x", (enum ckpt_dtype)9, 2, two, buffer));
    REFUSED(ckpt_file_commit(NULL));
    HARMLESS(ckpt_file_abandon(NULL));
    REFUSED(ckpt_load_params(NULL, path, NULL, NULL, NULL));
    REFUSED(ckpt_load_params(context, NULL, NULL, NULL, NULL));
    REFUSED(ckpt_load_params_aliased(NULL, path, NULL, NULL, NULL, NULL));
    REFUSED(ckpt_load_params_aliased(context, NULL, NULL, NULL, NULL, NULL));
    REFUSED(ckpt_save_params(NULL, path, CKPT_VALUE));
    REFUSED(ckpt_save_params(context, NULL, CKPT_VALUE));
    HARMLESS(ckpt_save_params(context, path, (enum ckpt_slot)99));
    REFUSED(ckpt_save_params_filtered(NULL, path, CKPT_VALUE, NULL, NULL));
    REFUSED(ckpt_save_params_filtered(context, NULL, CKPT_VALUE, NULL, NULL));
    REFUSED(ckpt_save_params_aliased(context, NULL, CKPT_VALUE, NULL, NULL, NULL));
    REFUSED(ckpt_save_params_noted(NULL, path, CKPT_VALUE, NULL, NULL, "a", "b"));
    REFUSED(ckpt_save_params_noted(context, NULL, CKPT_VALUE, NULL, NULL, "a", "b"));
    REFUSED(ckpt_save_params_noted(context, path, CKPT_VALUE, NULL, NULL, "a", NULL));
    REFUSED(ckpt_save_state(NULL, path));
    REFUSED(ckpt_save_state(context, NULL));
    REFUSED(ckpt_load_state(NULL, path));
    REFUSED(ckpt_load_state(context, NULL));
    GIVES(0, ckpt_updates(NULL));
    REFUSED(ckpt_set_random_step(NULL, 0));
    ckpt_file_abandon(w);
    ckpt_file_close(f);
    unlink(path);
}

static void path_cases(void)
{
    struct ckpt_replacement *o;
    char shown[8];
    FILE *f;
    REFUSED(ckpt_paths_check(NULL, NULL, 1));
    REFUSED(ckpt_paths_check(NULL, NULL, -1));
    GIVES(0, ckpt_paths_check(NULL, NULL, 0));
    REFUSED(ckpt_unwritten(NULL));
    REFUSED(ckpt_replace_open(NULL, "x"));
    REFUSED(ckpt_replace_open(&o, NULL));
    GIVES(true, ckpt_replace_stream(NULL) == NULL);
    GIVES(0, (int)strlen(ckpt_replace_name(NULL)));
    REFUSED(ckpt_replace_commit(NULL, true));
    HARMLESS(ckpt_replace_abandon(NULL));
    REFUSED(ckpt_log_open(NULL, "x"));
    REFUSED(ckpt_log_open(&f, NULL));
    REFUSED(ckpt_input_open(NULL, "x"));
    REFUSED(ckpt_input_open(&f, NULL));
    HARMLESS(ckpt_escape(NULL, 0, "x"));
    HARMLESS(ckpt_escape(shown, sizeof shown, NULL));
}

static void other_cases(void)
{
    uint16_t half[4];
    ckpt_progress *pr = ckpt_progress_open(stderr, "case", 1);
    GIVES(0, ckpt_rank(NULL));
    GIVES(1, ckpt_ranks(NULL));
    HARMLESS(ckpt_request_stop(NULL));
    GIVES(false, ckpt_stop_requested(NULL));
    HARMLESS(ckpt_request_save(NULL));
    GIVES(false, ckpt_save_requested(NULL));
    REFUSED(ckpt_agree(NULL, &(struct ckpt_fact){"x", buffer, 4}, 1));
    REFUSED(ckpt_agree(context, NULL, 1));
    REFUSED(ckpt_agree(context, NULL, -1));
    GIVES(0, ckpt_agree(context, NULL, 0));
    REFUSED(ckpt_state_note(NULL, "a", "b"));
    REFUSED(ckpt_state_note(context, NULL, "b"));
    REFUSED(ckpt_state_note(context, "a", NULL));
    REFUSED(ckpt_load_state_changed(NULL, "x", NULL, NULL));
    REFUSED(ckpt_load_state_changed(context, NULL, NULL, NULL));
    REFUSED(ckpt_set_lr(NULL, 1));
    GIVES(0, (int)strlen(ckpt_rank_location(NULL, 0)));
    GIVES(0, *ckpt_rank_location(context, -1) + *ckpt_rank_location(context, 9));
    REFUSED(ckpt_rank_seconds(NULL, NULL));
    HARMLESS(ckpt_fill_normal(1, 0, 0, NULL, 4));
    HARMLESS(ckpt_fill_normal(1, 0, 0, buffer, -4));
    HARMLESS(ckpt_fill_uniform(1, 0, 0, NULL, 4));
    HARMLESS(ckpt_to_bf16(NULL, half, 4));
    HARMLESS(ckpt_to_bf16(buffer, NULL, 4));
    HARMLESS(ckpt_from_bf16(NULL, buffer, 4));
    HARMLESS(ckpt_from_bf16(half, NULL, 4));
    GIVES(true, ckpt_progress_open(NULL, "x", 1) == NULL);
    HARMLESS(ckpt_progress_step(NULL, 1, 0, 0));
    HARMLESS(ckpt_progress_close(NULL));
    ckpt_progress_close(pr);
}

/* ---- recording ------------------------------------------------------------------------------- */
/* The current case is recorded, and its tape must have an error then.  Without a tape no error can
 * be stored, and CKPT_NONE is returned. */
#define STICKS(call) HARMLESS((void)(call))

static const struct ckpt_op_def empty_op = {.size = sizeof(struct ckpt_op_def), .name = "empty"};

static void pointer_cases(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor out[4];
    STICKS((ckpt_label(t, no_text, 1), ckpt_tape_fail(t, CKPT_EINVAL, no_text, 1)));
    STICKS(ckpt_input(t, NULL, CKPT_F32, 2, two));
    STICKS(ckpt_input(t, "i", CKPT_F32, 2, NULL));
    STICKS(ckpt_input(t, "i", (enum ckpt_dtype)7, 2, two));
    STICKS(ckpt_input(t, "i", CKPT_F32, 99, two));
    STICKS(ckpt_input(t, "i", CKPT_F32, -1, two));
    STICKS(ckpt_constant(t, "c", CKPT_F32, 2, NULL, buffer));
    STICKS(ckpt_constant(t, "c", CKPT_F32, 2, two, NULL));
    STICKS(ckpt_constant(t, "c", CKPT_F32, 2, (int64_t[]){INT64_MAX / 2, 9}, buffer));
    STICKS(ckpt_constant(t, "c", (enum ckpt_dtype)9, 2, two, buffer));
    HARMLESS(ckpt_output(t, NULL, x));
    HARMLESS(ckpt_output_gradient(t, NULL, weight));
    STICKS(ckpt_pack(t, x, x, NULL));
    STICKS(ckpt_reshape(t, x, 2, NULL));
    STICKS(ckpt_reshape(t, x, 99, two));
    STICKS(ckpt_reshape(t, x, 3, (int64_t[]){INT64_MAX, INT64_MAX, 16}));
    STICKS(ckpt_permute(t, x, NULL));
    STICKS(ckpt_permute(t, x, (int[]){0, 77}));
    STICKS(ckpt_slice(t, x, 9, 0, 1));
    STICKS(ckpt_slice(t, x, -1, 0, 1));
    STICKS(ckpt_slice(t, x, 0, -1, 3));
    STICKS(ckpt_slice(t, x, 0, 0, INT64_MAX));
    HARMLESS(ckpt_split(t, x, 0, 2, NULL));
    HARMLESS(ckpt_split(t, x, 0, 0, out));
    HARMLESS(ckpt_split(t, x, 9, 2, out));
    HARMLESS(ckpt_split(t, x, 0, INT32_MAX, out));
    STICKS(ckpt_concat(t, 0, 2, NULL));
    STICKS(ckpt_concat(t, 0, 0, &x));
    STICKS(ckpt_concat(t, 0, -1, &x));
    STICKS(ckpt_concat(t, 7, 1, &x));
    STICKS(ckpt_concat(t, 0, INT32_MAX, &x));
    STICKS(ckpt_cast(t, x, (enum ckpt_dtype)9));
    STICKS(ckpt_randn(t, CKPT_F32, 2, NULL));
    STICKS(ckpt_randn(t, (enum ckpt_dtype)9, 2, two));
    STICKS(ckpt_randn(t, CKPT_F32, 2, (int64_t[]){INT64_MAX, 4}));
    STICKS(ckpt_iota(t, CKPT_F32, 2, NULL, 0));
    STICKS(ckpt_iota(t, CKPT_F32, 2, two, 2));
    STICKS(ckpt_iota(t, CKPT_F32, 9, two, 0));
    STICKS(ckpt_iota(t, (enum ckpt_dtype)9, 2, two, 0));
    STICKS(ckpt_iota(t, CKPT_F32, 1, (int64_t[]){INT64_MAX}, 0));
    STICKS(ckpt_bernoulli(t, 0.5f, CKPT_F32, 2, NULL));
    STICKS(ckpt_bernoulli(t, NAN, CKPT_F32, 2, two));
    STICKS(ckpt_dropout(t, x, 1.f));
    STICKS(ckpt_dropout(t, x, NAN));
    STICKS(ckpt_clamp(t, x, 1.f, 0.f));
    STICKS(ckpt_clamp(t, x, NAN, 0.f));
    STICKS(ckpt_upsample_nearest(t, x, NULL));
    STICKS(ckpt_max_pool(t, x, NULL, NULL));
    STICKS(ckpt_group_norm_join(t, 2, NULL, 1e-5f));
    STICKS(ckpt_group_norm_join(t, -1, &x, 1e-5f));
    STICKS(ckpt_timestep_embedding(t, x, -2, 1e4f, CKPT_F32));
    STICKS(ckpt_expand(t, x, 2, NULL));
    STICKS(ckpt_expand(t, x, -1, two));
    STICKS(ckpt_repeat(t, x, NULL));
    STICKS(ckpt_stack(t, 0, 2, NULL));
    STICKS(ckpt_stack(t, 0, INT32_MAX, &x));
    STICKS(ckpt_pad(t, x, 0, -1, 0, CKPT_PAD_CONSTANT, 0.f));
    STICKS(ckpt_pad(t, x, 0, 1, 0, (enum ckpt_padding)7, 0.f));
    STICKS(ckpt_pad(t, x, 0, INT64_MAX, INT64_MAX, CKPT_PAD_CONSTANT, 0.f));
    STICKS(ckpt_avg_pool(t, x, NULL, NULL));
    STICKS(ckpt_resize_linear(t, x, NULL));
    STICKS(ckpt_pixel_shuffle(t, x, NULL));
    STICKS(ckpt_topk(t, x, 0, NULL));
    STICKS(ckpt_var(t, x, 1, 99));
    STICKS(ckpt_amax(t, x, 1u << 31));
    STICKS(ckpt_embedding(t, x, x, 99));
    STICKS(ckpt_record(t, NULL, 1, &x, 1, out, NULL, 0));
    STICKS(ckpt_record(t, &empty_op, 1, &x, 1, out, NULL, 0));
    STICKS(ckpt_record(t, &empty_op, 1, NULL, 1, out, NULL, 0));
    STICKS(ckpt_record(t, &empty_op, 1, &x, 1, NULL, NULL, 0));
    STICKS(ckpt_record(t, &empty_op, 1, &x, 1, out, NULL, 64));
    STICKS(ckpt_record(t, &empty_op, -1, &x, 1, out, NULL, 0));
    STICKS(ckpt_record(t, &empty_op, 1, &x, 1 << 30, out, NULL, 0));
}

static void function_cases(ckpt_tape *t, ckpt_tensor x)
{
    STICKS(ckpt_exp(t, x));
    STICKS(ckpt_expm1(t, x));
    STICKS(ckpt_log(t, x));
    STICKS(ckpt_log1p(t, x));
    STICKS(ckpt_sqrt(t, x));
    STICKS(ckpt_rsqrt(t, x));
    STICKS(ckpt_neg(t, x));
    STICKS(ckpt_abs(t, x));
    STICKS(ckpt_sign(t, x));
    STICKS(ckpt_floor(t, x));
    STICKS(ckpt_round(t, x));
    STICKS(ckpt_sin(t, x));
    STICKS(ckpt_cos(t, x));
    STICKS(ckpt_tanh(t, x));
    STICKS(ckpt_sigmoid(t, x));
    STICKS(ckpt_erf(t, x));
    STICKS(ckpt_gelu_erf(t, x));
    STICKS(ckpt_softplus(t, x));
    STICKS(ckpt_mish(t, x));
    STICKS(ckpt_not(t, x));
    STICKS(ckpt_div(t, x, x));
    STICKS(ckpt_pow(t, x, x));
    STICKS(ckpt_minimum(t, x, x));
    STICKS(ckpt_maximum(t, x, x));
    STICKS(ckpt_eq(t, x, x));
    STICKS(ckpt_ne(t, x, x));
    STICKS(ckpt_lt(t, x, x));
    STICKS(ckpt_le(t, x, x));
    STICKS(ckpt_gt(t, x, x));
    STICKS(ckpt_ge(t, x, x));
    STICKS(ckpt_and(t, x, x));
    STICKS(ckpt_or(t, x, x));
    STICKS(ckpt_pow_scalar(t, x, 2.f));
    STICKS(ckpt_clamp(t, x, 0.f, 1.f));
    STICKS(ckpt_leaky_relu(t, x, 0.1f));
    STICKS(ckpt_elu(t, x, 1.f));
    STICKS(ckpt_dropout(t, x, 0.5f));
}

static void general_cases(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor out;
    STICKS(ckpt_layer_norm(t, x, x, x, 1e-5f));
    STICKS(ckpt_index_select(t, x, 0, x));
    STICKS(ckpt_embedding(t, x, x, -1));
    STICKS((ckpt_gather(t, x, 0, x), ckpt_grouped_matmul(t, x, x, x, true)));
    STICKS((ckpt_scatter_add(t, x, 0, x, x), ckpt_index_add(t, x, 0, x, x)));
    STICKS(ckpt_amax(t, x, 1));
    STICKS(ckpt_amin(t, x, 1));
    STICKS(ckpt_prod(t, x, 1));
    STICKS(ckpt_var(t, x, 1, 0));
    STICKS(ckpt_logsumexp(t, x, 1));
    STICKS(ckpt_norm(t, x, 1));
    STICKS(ckpt_argmax(t, x, 0));
    STICKS(ckpt_softmax(t, x, 0));
    STICKS(ckpt_log_softmax(t, x, 0));
    STICKS(ckpt_cumsum(t, x, 0));
    STICKS(ckpt_argsort(t, x, true));
    STICKS(ckpt_sort(t, x, true, &out));
    STICKS(ckpt_topk(t, x, 1, &out));
    STICKS(ckpt_matmul(t, x, x, true, false));
    STICKS(ckpt_expand(t, x, 2, two));
    STICKS(ckpt_repeat(t, x, two));
    STICKS(ckpt_transpose(t, x, 0, 1));
    STICKS(ckpt_squeeze(t, x, 0));
    STICKS(ckpt_unsqueeze(t, x, 0));
    STICKS(ckpt_stack(t, 0, 1, &x));
    STICKS(ckpt_flip(t, x, 0));
    STICKS(ckpt_roll(t, x, 0, 1));
    STICKS(ckpt_pad(t, x, 0, 1, 1, CKPT_PAD_REFLECT, 0.f));
    STICKS(ckpt_one_hot(t, x, 3, CKPT_F32));
    STICKS(ckpt_masked_fill(t, x, x, 0.f));
    STICKS(ckpt_avg_pool(t, x, two, NULL));
    STICKS(ckpt_adaptive_avg_pool(t, x, two));
    STICKS(ckpt_resize_linear(t, x, two));
    STICKS(ckpt_pixel_shuffle(t, x, two));
}

static void buffer_cases(ckpt_tape *t, ckpt_tensor x)
{
    STICKS(ckpt_batch_norm(t, x, x, x, x, x, 0.1f, 1e-5f));
    STICKS(ckpt_batch_norm_apply(t, x, x, x, x, x, 1e-5f));
    STICKS(ckpt_instance_norm(t, x, x, x, 1e-5f));
    STICKS(ckpt_full(t, 1, CKPT_F32, 1, NULL));
    STICKS(ckpt_full(t, 1, CKPT_F32, 99, two));
    HARMLESS(ckpt_update_buffer(t, x, x, 1));
    HARMLESS(ckpt_update_buffer(t, weight, x, 1));
}

/* Each op once, with a valid tensor for all operands. */
static void tensor_cases(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor out[4];
    STICKS(ckpt_linear(t, x, x, x));
    STICKS(ckpt_linear_add(t, x, x, x, x));
    STICKS(ckpt_add(t, x, x));
    STICKS(ckpt_sub(t, x, x));
    STICKS(ckpt_mul(t, x, x));
    STICKS(ckpt_affine(t, x, 1, 1));
    STICKS(ckpt_where(t, x, x, x));
    STICKS(ckpt_gelu_tanh(t, x));
    STICKS(ckpt_silu(t, x));
    function_cases(t, x);
    STICKS(ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, 1e-5f));
    STICKS(ckpt_rms_norm(t, x, x, 1e-5f));
    STICKS(ckpt_modulate(t, x, x, x));
    STICKS(ckpt_layer_norm_modulate(t, x, x, x, 1e-5f));
    STICKS(ckpt_gated_residual(t, x, x, x));
    STICKS(ckpt_rope(t, x, x, 0));
    STICKS(ckpt_rms_norm_rope(t, x, x, 1e-5f, x, 0));
    STICKS(ckpt_attention(t, x, x, x, x, NULL));
    STICKS(ckpt_cross_attention(t, x, x, x, x, 1));
    STICKS(ckpt_pack(t, x, x, out));
    STICKS(ckpt_timestep_embedding(t, x, 4, 1e4f, CKPT_F32));
    STICKS(ckpt_patchify(t, x, 1, 1, 1));
    STICKS(ckpt_unpatchify(t, x, 1, 1, 1, 1, 1, 1, 1));
    if (x.id) { /* no tensor seen in another way is no tensor */
        STICKS(ckpt_reshape(t, x, 1, (int64_t[]){-1}));
        STICKS(ckpt_permute(t, x, (int[]){0, 1, 2, 3, 4, 5, 6, 7}));
    }
    STICKS(ckpt_slice(t, x, 0, 0, 1));
    HARMLESS(ckpt_split(t, x, 0, 2, out));
    STICKS(ckpt_concat(t, 0, 1, &x));
    STICKS(ckpt_contiguous(t, x));
    STICKS(ckpt_cast(t, x, CKPT_BF16));
    STICKS(ckpt_sum(t, x, 1));
    STICKS(ckpt_mean(t, x, 1));
    STICKS(ckpt_mse(t, x, x, x));
    STICKS(ckpt_cross_entropy(t, x, x, NULL));
    STICKS(ckpt_bce_with_logits(t, x, x, x, 0));
    STICKS(ckpt_huber(t, x, x, 1, 0));
    STICKS(ckpt_smooth_l1(t, x, x, 1, 0));
    STICKS(ckpt_kl_div(t, x, x, true, 0));
    STICKS(ckpt_cosine_embedding(t, x, x, x, 0, 0));
    STICKS(ckpt_linear_cross_entropy(t, x, x, x, x, NULL));
    STICKS(ckpt_conv(t, x, x, x, NULL));
    STICKS(ckpt_conv_transpose(t, x, x, x, NULL));
    STICKS(ckpt_group_norm_silu(t, x, x, x, 1, 1e-5f, true));
    STICKS(ckpt_upsample_nearest(t, x, two));
    STICKS(ckpt_l1(t, x, x));
    STICKS(ckpt_kl_normal(t, x, x));
    STICKS(ckpt_sample_normal(t, x, x, x));
    STICKS(ckpt_relu(t, x));
    STICKS(ckpt_max_pool(t, x, two, NULL));
    STICKS(ckpt_feature_distance(t, x, x, x));
    STICKS(ckpt_quantize(t, x, x, out, out + 1));
    STICKS(ckpt_quantize(t, x, x, NULL, NULL));
    STICKS(ckpt_group_norm_moments(t, x, 1));
    STICKS(ckpt_group_norm_join(t, 1, &x, 1e-5f));
    STICKS(ckpt_group_norm_apply(t, x, x, x, x, true));
    general_cases(t, x);
    buffer_cases(t, x);
    HARMLESS(ckpt_output(t, "o", x));
    HARMLESS(ckpt_output_gradient(t, "g", x));
    HARMLESS(ckpt_gradients(t, x, 1, &x, out));
    HARMLESS(ckpt_gradients(t, x, 1, NULL, out));
    HARMLESS(ckpt_gradients(t, x, 1, &x, NULL));
    HARMLESS(ckpt_gradients(t, x, -1, &x, out));
    STICKS(ckpt_stop_gradient(t, x));
}

/* With a tape: tensors of other tapes, or none. */
static void recorded_cases(ckpt_tape *t, ckpt_tensor x)
{
    pointer_cases(t, x);
    tensor_cases(t, CKPT_NONE);
    tensor_cases(t, (ckpt_tensor){.id = INT32_MAX});
    tensor_cases(t, (ckpt_tensor){.id = INT32_MIN});
    tensor_cases(t, (ckpt_tensor){.id = -1000000});
}

/* An error of ckpt_param persists in its context, so each case has its own. */
static int make_parameter(const char *name, const int64_t *shape, enum ckpt_dtype dtype)
{
    ckpt *c;
    ckpt_program *p;
    const struct ckpt_options o = {
        .size = sizeof o, .device = "cpu", .threads = 1, .vram = 1 << 20};
    int rc = ckpt_open(&c, &o);
    ckpt_param(c, name, dtype, 2, shape, CKPT_ZEROS, true);
    if (!rc)
        rc = ckpt_compile(c, record, NULL, ckpt_adamw(c, &adamw), 4, &p);
    ckpt_close(c);
    return rc;
}

static void tapeless_cases(void)
{
    struct ckpt_call call = {.n_in = 0};
    REFUSED(make_parameter(NULL, two, CKPT_F32));
    REFUSED(make_parameter("p", two, (enum ckpt_dtype)9));
    GIVES(CKPT_ESHAPE, make_parameter("p", NULL, CKPT_F32));
    pointer_cases(NULL, weight);
    tensor_cases(NULL, weight);
    tensor_cases(NULL, (ckpt_tensor){.id = 1});
    HARMLESS(ckpt_label(NULL, "label"));
    GIVES(-1, ckpt_desc_of(NULL, weight).ndim);
    GIVES(1, (int)ckpt_desc_of(NULL, weight).shape[CKPT_MAX_DIMS - 1]);
    HARMLESS(ckpt_tape_fail(NULL, CKPT_EINVAL, "why"));
    HARMLESS((void)ckpt_tape_at(NULL, NULL, 0));
    GIVES(CKPT_ESHAPE, ckpt_call_fail(NULL, "why"));
    GIVES(CKPT_ESHAPE, ckpt_call_fail(&call, "why"));
}

static ckpt_tensor record_case(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor loss = record(t, batch, user);
    ckpt_tensor x = ckpt_input(t, "z", CKPT_F32, 2, two);
    recorded_cases(t, x);
    return loss;
}

static void compile_cases(void)
{
    ckpt_program *p;
    int first = at;
    int rc = ckpt_compile(context, record_case, NULL, NULL, 4, &p);
    if (wanted < first || wanted >= at)
        return;
    verdict = rc != CKPT_EINVAL && rc != CKPT_ESHAPE;
    if (!verdict && !*ckpt_error(context))
        verdict = 1;
}

/* ---- one after the other  ---------------------------------------------------------------------
 */

static sigjmp_buf next;
static int failures;

static void crashed(int signal)
{
    static const char said[] = "\nFAIL: a crash in ";
    (void)signal;
    if (write(1, said, sizeof said - 1) < 0 || write(1, running, strlen(running)) < 0)
        _exit(2);
    siglongjmp(next, 1); /* the tape, if there is one, is lost; that is why it failed */
}

static int open_context(void)
{
    if (ckpt_open(&context, &small))
        return 1;
    weight = ckpt_param(context, "w", CKPT_F32, 2, two, CKPT_ONES, true);
    return ckpt_compile(context, record, NULL, ckpt_adamw(context, &adamw), 4, &program);
}

/* Runs case `wanted`; false if there is none. */
static bool run_case(void)
{
    static void (*const groups[])(void) = {options_cases, parameter_cases, optimizer_cases,
                                           program_cases, file_cases,      path_cases,
                                           other_cases,   tapeless_cases,  compile_cases};
    running = NULL;
    verdict = at = 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        groups[i]();
    if (verdict)
        printf("FAIL: %s\n", running);
    failures += verdict;
    return running;
}

int main(void)
{
    static const int fatal[] = {SIGSEGV, SIGFPE, SIGABRT, SIGBUS};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], crashed);
    if (open_context()) {
        printf("FAIL: %s\n", ckpt_error(context));
        return 1;
    }
    for (bool more = true; more; wanted += more) {
        fflush(stdout);
        if (sigsetjmp(next, 1))
            failures++;
        else
            more = run_case();
    }
    ckpt_close(context);
    printf("%d cases, %d failed\n", wanted, failures);
    return failures ? 1 : 0;
}
