/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and saves weights under Hugging Face's names. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/directory.h"
#include "../common/file_group.h"
#include "../common/json_make.h"
#include "../common/lock.h"
#include "../common/names.h"
#include "../common/patterns.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "run.h"

/* ---- loading ------------------------------------------------------------------------------- */

struct load {
    const struct lm *model;
    const struct lm_options *options;
    ckpt *context;
    struct names missing, unexpected, foreign;
    struct names random; /* missing, and never trained beside adapters */
};

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

bool lm_is_made_here(const struct lm *m, const char *name)
{
    return ends_with(name, ".position_ids") || ends_with(name, ".attn.bias") ||
           ends_with(name, ".attn.masked_bias") || ends_with(name, ".rotary_emb.inv_freq") ||
           (m->config.tied && (ends_with(name, lm_traits(&m->config)->head) ||
                               !strcmp(name, "cls.predictions.decoder.bias")));
}

/* Whether a parameter without a value in the file is used, and not trained. */
static bool stays_random(const struct load *l, const char *name)
{
    const bool of_pairs = !strncmp(name, "bert.pooler.", 12) || !strncmp(name, "cls.seq_", 8);
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    ckpt_tensor x;

    return l->options->adapters.rank && (!of_pairs || l->options->next_sentence) &&
           !ckpt_param_find(l->context, name, &x) && !ckpt_param_info(l->context, x, &info) &&
           !info.trainable;
}

static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;

    if (*what == 'm' && ckpt_lora_only(NULL, name))
        return; /* adapters have their own files */
    if (*what == 'm')
        names_add(stays_random(l, name) ? &l->random : &l->missing, name);
    else if (!lm_is_made_here(l->model, name))
        names_add(names_is_of_layer(name) ? &l->foreign : &l->unexpected, name);
}

/* Names in files of old versions of other programs. */
static const char *const old_names[][2] = {
    {".LayerNorm.weight", ".LayerNorm.gamma"},
    {".LayerNorm.bias", ".LayerNorm.beta"},
    {"cls.predictions.bias", "cls.predictions.decoder.bias"}};

static bool other_name(void *user, const char *name, int i, char *other, size_t size)
{
    const struct load *l = user;
    const struct lm_traits *f = lm_traits(&l->model->config);

    for (size_t k = 0; k < sizeof old_names / sizeof *old_names && f->masked && !i; k++) {
        if (!ends_with(name, old_names[k][0]))
            continue;
        snprintf(other, size, "%.*s%s", (int)(strlen(name) - strlen(old_names[k][0])), name,
                 old_names[k][1]);
        return true;
    }
    if (i || !f->prefix)
        return false;
    snprintf(other, size, "%s%s", f->prefix, name);
    return true;
}

/* Entries `a` and `b`, of n elements: 1: equal, 0: not, -1: an error of the library. */
static int compare(ckpt_file *f, int a, int b, int64_t n)
{
    enum { PART = 1 << 14 };
    static float x[PART], y[PART];
    bool same = true;

    for (int64_t at = 0; at < n && same; at += PART) {
        int64_t k = n - at < PART ? n - at : PART;
        if (ckpt_file_read_part_f32(f, a, at, x, k) || ckpt_file_read_part_f32(f, b, at, y, k))
            return -1;
        same = !memcmp(x, y, (size_t)k * sizeof *x);
    }
    return same;
}

static int find_either(const ckpt_file *f, const char *prefix, const char *name)
{
    char other[256];
    int i = ckpt_file_find(f, name);

    snprintf(other, sizeof other, "%s%s", prefix ? prefix : "", name);
    return i >= 0 ? i : ckpt_file_find(f, other);
}

/* A head of its own in the file of a model whose head is the embedding is another model. */
static int check_head(const struct lm *m, const char *path)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT, h = CKPT_FILE_ENTRY_INIT;
    const struct lm_traits *of = lm_traits(&m->config);
    ckpt_file *f;
    int same = 1;

    if (!m->config.tied || ckpt_file_open(&f, path))
        return 0; /* the load reports the error */
    int head = find_either(f, of->prefix, of->head),
        table = find_either(f, of->prefix, of->embedding);
    if (head >= 0 && table >= 0 && !ckpt_file_entry(f, head, &h) && !ckpt_file_entry(f, table, &e))
        same = e.numel == h.numel ? compare(f, head, table, e.numel) : 0;
    ckpt_file_close(f);
    if (same > 0)
        return 0;
    return same ? say_fail("%s", ckpt_error(NULL))
                : say_fail("%s: its %s is not the embedding, and config.json says that it is "
                           "(\"tie_word_embeddings\")",
                           path, of->head);
}

int lm_load(const struct lm_run *r)
{
    struct load l = {.model = &r->model, .options = &r->options, .context = r->context};
    const char *path = r->options.train.load;
    const bool partial = r->options.train.partial;
    char text[NAMES_TEXT];

    if (check_head(l.model, path))
        return -1;
    int rc = ckpt_load_params_aliased(r->context, path, other_name, report, &l, NULL);

    names_report(&l.missing, path, "missing");
    names_report(&l.unexpected, path, "unexpected");
    if (rc)
        return say_fail("%s", ckpt_error(r->context));
    if (l.random.n)
        return say_fail("%s: lacks %s, which adapters leave random: give weights that have it, or "
                        "train it with --lora-also",
                        path, names_text(&l.random, text));
    if (l.missing.n && !partial)
        return say_fail("%s: %lld parameter%s missing; --partial initializes them", path,
                        (long long)l.missing.n, l.missing.n > 1 ? "s are" : " is");
    if (partial)
        names_report(&l.foreign, path, "unexpected");
    return partial ? 0 : names_refuse_layers(&l.foreign, path);
}

/* ---- saving -------------------------------------------------------------------------------- */

/* The parameters of one file: n of them from index `first` on. */
struct part {
    ckpt *context;
    int first, n;
    int64_t bytes;
};

/* The parameters that are saved: adapters, which are the last, are merged into them. */
static int count_saved(const ckpt *c)
{
    int n = ckpt_param_count(c);

    while (n && ckpt_lora_only(NULL, param_info_at(c, n - 1).name))
        n--;
    return n;
}

/* As many parameters as fit in `most` bytes of fp32, and at least one. */
static struct part next_part(ckpt *c, int first, int64_t most)
{
    const int all = count_saved(c);
    struct part p = {c, first, 0, 0};

    for (int i = first; i < all; i++) {
        int64_t bytes = param_info_at(c, i).numel * 4;
        if (p.n && p.bytes + bytes > most)
            break;
        p.bytes += bytes;
        p.n++;
    }
    return p;
}

static bool is_in_part(void *user, const char *name)
{
    const struct part *p = user;

    for (int i = 0; i < p->n; i++)
        if (!strcmp(param_info_at(p->context, p->first + i).name, name))
            return true;
    return false;
}

static int count_parts(ckpt *c, int64_t most)
{
    int n = 0;

    for (int at = 0, all = count_saved(c); at < all; n++)
        at += next_part(c, at, most).n;
    return n;
}

/* Files are written as NAME.new and replace those of an older model together (file_group.h). */
struct directory {
    const char *path;
    int parts;
    const struct lm_options *options;
};

enum { PATH = 4096 };

#define CONFIG "config.json"
#define INDEX  "model.safetensors.index.json"
#define ONLY   "model.safetensors"

/* The name of part i. */
static void part_name(char dst[64], const struct directory *d, int i)
{
    if (d->parts == 1)
        snprintf(dst, 64, ONLY);
    else
        snprintf(dst, 64, "model-%05d-of-%05d.safetensors", i + 1, d->parts);
}

static int path_in(char dst[PATH], const struct directory *d, const char *name, const char *end)
{
    if (snprintf(dst, PATH, "%s/%s%s", d->path, name, end) >= PATH)
        return say_fail("--save-hf %s: the name is too long", d->path);
    return 0;
}

static int write_config(const struct lm *m, const struct directory *d)
{
    char path[PATH];

    return path_in(path, d, CONFIG, ".new") ? -1 : lm_config_write(&m->config, path);
}

static int write_index(const struct directory *d, json_t *map, int64_t bytes)
{
    json_t *root =
        json_pack("{s{sI}sO}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    struct ckpt_replacement *file;
    char path[PATH];

    int rc = path_in(path, d, INDEX, ".new");
    if (!rc && ckpt_replace_open(&file, path))
        rc = say_fail("%s", ckpt_error(NULL));
    else if (!rc && (!root || json_dumpf(root, ckpt_replace_stream(file), JSON_INDENT(2)))) {
        ckpt_replace_abandon(file);
        rc = say_fail("%s: cannot be written", path);
    } else if (!rc && ckpt_replace_commit(file, true)) {
        rc = say_fail("%s", ckpt_error(NULL));
    }
    json_decref(root);
    return rc;
}

/* Adds the names of a file, which may have a parameter in parts, to the index. */
static int add_names(json_t *map, const char *path, const char *name)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    bool failed = false;
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    for (int i = 0; i < ckpt_file_count(f) && !ckpt_file_entry(f, i, &e); i++)
        json_make_set(map, e.name, json_string(name), &failed);
    ckpt_file_close(f);
    return failed ? say_fail("%s: no memory for the index", path) : 0;
}

static int save_part(struct part *p, const struct directory *d, int i, json_t *map)
{
    char name[64], path[PATH];

    part_name(name, d, i);
    if (path_in(path, d, name, ".new"))
        return -1;
    if (d->options->adapters.rank
            ? ckpt_save_params_merged(p->context, path, is_in_part, p)
            : ckpt_save_params_filtered(p->context, path, CKPT_VALUE, is_in_part, p))
        return say_fail("%s", ckpt_error(p->context));
    return ckpt_rank(p->context) ? 0 : add_names(map, path, name);
}

/* Copies a file beside the model or its tokenizer, as it is.  Returns 0, also where there is none,
 * or -1 after an error message. */
static int copy_file(const struct directory *d, const char *from, const char *name)
{
    char bytes[1 << 14], path[PATH];
    struct ckpt_replacement *to;
    bool failed = false;
    size_t n;
    FILE *f;

    if (path_in(path, d, name, ".new") || ckpt_input_open(&f, from))
        return say_fail("%s", ckpt_error(NULL));
    if (ckpt_replace_open(&to, path)) {
        fclose(f);
        return say_fail("%s", ckpt_error(NULL));
    }
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0 && !failed)
        failed = fwrite(bytes, 1, n, ckpt_replace_stream(to)) != n;
    failed |= ferror(f) != 0;
    fclose(f);
    if (failed) {
        ckpt_replace_abandon(to);
        return say_fail("%s: cannot be copied from %s", path, from);
    }
    return ckpt_replace_commit(to, true) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

/* The tokenizer and what else another program needs of the model that this one began from. */
#define COMPANIONS                                                                                 \
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",     \
        "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "chat_template.jinja",         \
        "generation_config.json"
static const char *const companions[] = {COMPANIONS};

static int copy_companions(const struct directory *d)
{
    char from[PATH];
    int rc = 0;

    for (size_t i = 0; i < sizeof companions / sizeof *companions && !rc; i++)
        if (lm_options_companion(d->options, companions[i], from))
            rc = copy_file(d, from, companions[i]);
    return rc;
}

static int write_all(const struct lm *m, ckpt *c, const struct directory *d, int64_t most)
{
    json_t *map = json_object();
    int at = 0, rc = 0;
    int64_t bytes = 0;

    for (int i = 0; i < d->parts && !rc; i++) {
        struct part p = next_part(c, at, most);
        rc = save_part(&p, d, i, map);
        bytes += p.bytes;
        at += p.n;
    }
    if (!rc && !ckpt_rank(c))
        rc = write_config(m, d) || copy_companions(d) ? -1 : 0;
    if (!rc && !ckpt_rank(c) && d->parts > 1)
        rc = write_index(d, map, bytes);
    json_decref(map);
    return rc;
}

/* The files of a saved model. */
static const char *const group[] = {CONFIG,     ONLY, INDEX, "model-*-of-*.safetensors",
                                    COMPANIONS, NULL};

int lm_recover(const struct lm_options *o)
{
    const bool alone = !o->library.ranks && !o->library.plan_only;

    if (o->to_hf && alone && file_group_is_left(o->to_hf, group) &&
        (lock_take("--save-hf", o->to_hf, true) || file_group_recover(o->to_hf, group)))
        return -1;
    return o->train.load ? file_group_check("--load", o->train.load, group) : 0;
}

/* Without an index parts of two models are never read as one. */
static int end_all(const struct directory *d, bool keep)
{
    if (keep)
        return file_group_commit(d->path, group, INDEX, d->parts > 1 ? ONLY : NULL);
    file_group_abandon(d->path, group);
    return 0;
}

int lm_save_hf(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    const struct directory d = {o->to_hf, count_parts(r->context, o->shard_size), o};
    int rc = ckpt_rank(r->context)                                         ? 0
             : directory_make(d.path) || file_group_recover(d.path, group) ? -1
                                                                           : 0;

    if (!rc)
        rc = write_all(&r->model, r->context, &d, o->shard_size);
    if (!ckpt_rank(r->context) && end_all(&d, !rc))
        rc = -1;
    return rc;
}
