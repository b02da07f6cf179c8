/* SPDX-License-Identifier: Apache-2.0 */
/* pt2-train: trains a model that PyTorch exported, inside a memory budget. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../common/trainer.h"
#include "run.h"

/* ---- introduction ---------------------------------------------------------------------------- */

/* "ids [batch, 16], mask [batch, 16]" */
static void print_inputs(const struct pt2_run *r)
{
    for (int i = 0; i < r->n_feeds; i++) {
        const struct pt2_feed *f = &r->feed[i];
        say_print("%s%s %s [batch", i ? ", " : "inputs: ", f->name, f->whole ? "i32" : "fp32");
        for (int k = 0; k < f->ndim; k++)
            printf(", %lld", (long long)f->shape[k]);
        printf("]%s", f->in ? "" : " (target)");
    }
    for (int i = 0; i < r->shared.n; i++)
        say_print(", %s (shared)", r->shared.column[i].name);
    printf("\n");
}

static void introduce(const void *run)
{
    const struct pt2_run *r = run;
    const struct pt2_options *o = &r->options;
    char trained[32], all[32], rows[32];

    say_print("model: %s, %s trainable parameters of %s\n", o->model,
              say_count(trained, r->trainable), say_count(all, r->parameters));
    if (ckpt_rank(r->context))
        return;
    print_inputs(r);
    if (r->data.n)
        say_print("data: %s, %s samples in %d file%s, batches of %lld\n", o->data,
                  say_count(rows, r->data.rows), r->data.n_files, r->data.n_files > 1 ? "s" : "",
                  (long long)o->train.batch);
    const int64_t rest = r->validation.n ? r->validation.rows % o->train.batch : 0;
    if (rest)
        printf("validation: the last %lld samples fill no batch and are left out\n",
               (long long)rest);
}

static void describe(const void *run, FILE *f)
{
    const struct pt2_run *r = run;
    const struct pt2_options *o = &r->options;

    json_put_string(f, "model", o->model);
    json_put_string(f, "loss_of", o->loss ? o->loss : "the model");
    json_put_int(f, "parameters", r->parameters);
    json_put_int(f, "trainable", r->trainable);
    json_put_int(f, "lora_rank", o->adapters.rank);
    json_put_string(f, "frozen", o->adapters.frozen);
    json_put_string(f, "data", o->data);
    json_put_int(f, "samples", r->data.rows);
}

/* ---- what trainer_main calls ----------------------------------------------------------------- */

static const char *file_only(const char *path)
{
    struct stat st;

    return path && !stat(path, &st) && S_ISREG(st.st_mode) ? path : NULL;
}

/* Outputs must not be data of this run or the next one. */
static int check_pattern(const struct training_files *files, const struct ckpt_path *more, int n,
                         const char *option, const char *pattern)
{
    static const char *const inside[] = {"events.out.tfevents.1", NULL};
    static const char *const ends[] = {"/*.safetensors", "/*.npy"};
    char all[4096];
    struct stat st;
    int rc = 0;

    if (!pattern || file_only(pattern))
        return 0;
    if (stat(pattern, &st) || !S_ISDIR(st.st_mode))
        return outputs_check_pattern(files, more, n, option, pattern, inside);
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !rc; i++) {
        snprintf(all, sizeof all, "%s%s", pattern, ends[i]);
        rc = outputs_check_pattern(files, more, n, option, all, inside);
    }
    return rc;
}

static int check_outputs(const void *run)
{
    const struct pt2_options *o = &((const struct pt2_run *)run)->options;
    const struct adapter_options *a = &o->adapters;
    struct training_files files = pt2_files(o);
    char beside[2][4096];
    const struct ckpt_path more[] = {
        {"--model", o->model, CKPT_PATH_INPUT, 0},
        {"--data", file_only(o->data), CKPT_PATH_INPUT, 0},
        {"--shared", file_only(o->shared), CKPT_PATH_INPUT, 0},
        {"--val", file_only(o->validation), CKPT_PATH_INPUT, 0},
        {"--lora-merge", a->merge, CKPT_PATH_FILE, 0},
        adapter_beside(a, &o->train, false, beside[0]),
        adapter_beside(a, &o->train, true, beside[1]),
        {"--save-pt2", o->save_pt2, CKPT_PATH_FILE, 0},
    };

    enum { N = sizeof more / sizeof *more };

    return outputs_check(&files, more, N) || check_pattern(&files, more, N, "--data", o->data) ||
                   check_pattern(&files, more, N, "--shared", o->shared) ||
                   check_pattern(&files, more, N, "--val", o->validation)
               ? -1
               : 0;
}

static int facts(const void *run, struct ckpt_fact fact[TRAINER_FACTS])
{
    const struct pt2_run *r = run;

    fact[0] = (struct ckpt_fact){"number of samples", &r->data.rows, sizeof r->data.rows};
    fact[1] = (struct ckpt_fact){"number of samples of --val", &r->validation.rows,
                                 sizeof r->validation.rows};
    return 2;
}

/* Without training steps: the loss of the weights as they are. */
static int finish(void *run, bool trained)
{
    struct pt2_run *r = run;
    double loss;

    if (!trained && r->measuring) {
        if (pt2_measure(r, &loss))
            return -1;
        say_print("validation loss %.6f\n", loss);
    }
    return pt2_save(r);
}

static void close(void *run)
{
    struct pt2_run *r = run;

    ckpt_import_close(r->model);
    for (int i = 0; r->common && i < r->signature.n_in; i++)
        free(r->common[i]);
    free(r->common);
    free(r->feed);
    sample_order_close(&r->order);
    dataset_close(&r->data);
    dataset_close(&r->shared);
    dataset_close(&r->validation);
    signature_close(&r->signature);
}

int main(int argc, char **argv)
{
    static struct pt2_run r;
    const struct trainer t = {TRAINER_RUN(r),
                              .reading = pt2_options_reading(&r.options),
                              .check = pt2_options_check,
                              .outputs = check_outputs,
                              .before = pt2_prepare,
                              .facts = facts,
                              .model = pt2_make_model,
                              .introduce = introduce,
                              .compile = pt2_compile,
                              .program = &r.training,
                              .counted = "samples of the data",
                              .samples = &r.data.rows,
                              .describe = describe,
                              .open_steps = pt2_open_steps,
                              .close_steps = pt2_close_steps,
                              .finish = finish,
                              .close = close};

    return trainer_main(&t, argc, argv);
}
