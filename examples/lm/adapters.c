/* SPDX-License-Identifier: Apache-2.0 */
/* Several adapters of one model: --adapter NAME=FILE[:X],...; all but one are added as they are. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/digest.h"
#include "../common/patterns.h"
#include "run.h"

/* ---- the list -------------------------------------------------------------------------------- */

static size_t name_length(const char *entry)
{
    size_t n = 0;

    while (isalnum((unsigned char)entry[n]) || entry[n] == '-' || entry[n] == '_')
        n++;
    return entry[n] == '=' ? n : 0;
}

/* One file or directory has no name, whatever its path is. */
static bool is_list(const char *given)
{
    return name_length(given) && access(given, F_OK);
}

static const struct lm_adapter *find(const struct lm_adapters *all, const char *name, size_t n)
{
    for (int i = 0; i < all->n; i++)
        if (strlen(all->each[i].name) == n && !strncmp(all->each[i].name, name, n))
            return &all->each[i];
    return NULL;
}

/* Takes ":X" off the end of a path. */
static int take_weight(char *path, double *weight)
{
    char *colon = strrchr(path, ':'), *end;

    *weight = 1;
    if (!colon)
        return 0;
    const double x = strtod(colon + 1, &end);
    if (end == colon + 1 || *end)
        return 0;
    *colon = 0;
    *weight = x;
    return isfinite(x) && x != 0
               ? 0
               : say_fail("--adapter %s: a weight of %s adds nothing", path, colon + 1);
}

static int take_entry(void *user, char *entry)
{
    struct lm_adapters *all = user;
    const size_t n = name_length(entry);

    if (!n || n >= sizeof all->each[0].name)
        return say_fail("--adapter %s: give NAME=FILE or NAME=FILE:WEIGHT, joined by commas",
                        entry);
    if (find(all, entry, n))
        return say_fail("--adapter: two are called '%.*s'", (int)n, entry);
    if (all->n == LM_ADAPTERS)
        return say_fail("--adapter: at most %d adapters", LM_ADAPTERS);
    struct lm_adapter *x = &all->each[all->n++];
    snprintf(x->name, sizeof x->name, "%.*s", (int)n, entry);
    if (snprintf(x->path, sizeof x->path, "%s", entry + n + 1) >= (int)sizeof x->path)
        return say_fail("--adapter %s: the path is too long", x->name);
    return take_weight(x->path, &x->weight);
}

/* ---- which of them --------------------------------------------------------------------------- */

static int refuse_name(const struct lm_adapters *all, const char *option, const char *name)
{
    char text[LM_ADAPTERS * 66] = "";
    size_t at = 0;

    for (int i = 0; i < all->n; i++)
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "", all->each[i].name);
    return *name
               ? say_fail("--%s %s: no adapter is called so; --adapter has %s", option, name, text)
               : say_fail("--%s NAME is missing: which adapter is trained?  --adapter has %s",
                          option, text);
}

static int use(void *user, char *name)
{
    struct lm_adapters *all = user;
    const struct lm_adapter *x = find(all, name, strlen(name));

    if (!x)
        return refuse_name(all, "use", name);
    all->each[x - all->each].used = true;
    return 0;
}

/* Keeps those of --use. */
static int choose_used(struct lm_adapters *all, const char *names)
{
    int n = 0;

    if (!names)
        return 0;
    if (option_parts("--use", names, all, use))
        return -1;
    for (int i = 0; i < all->n; i++)
        if (all->each[i].used)
            all->each[n++] = all->each[i];
    all->n = n;
    return 0;
}

/* Moves the adapter that is trained, or the first one, in front. */
static int choose_first(struct lm_adapters *all, const char *trained)
{
    const struct lm_adapter *x = trained       ? find(all, trained, strlen(trained))
                                 : all->n == 1 ? all->each
                                               : NULL;

    if (!x)
        return refuse_name(all, "train-adapter", trained ? trained : "");
    if (x->weight != 1)
        return say_fail("--adapter: '%s' is trained, and has no weight", x->name);
    const struct lm_adapter first = *x;
    all->each[x - all->each] = all->each[0];
    all->each[0] = first;
    return 0;
}

static void name_all(struct lm_options *o)
{
    const struct adapter_names *names = lm_traits(&o->config)->adapters;
    char prefix[sizeof o->others.each[0].prefix];

    for (int i = 0; i < o->others.n; i++) {
        struct lm_adapter *x = &o->others.each[i];
        x->names = *names;
        snprintf(prefix, sizeof prefix, "%s/%s", x->name, names->prefix);
        memcpy(x->prefix, prefix, sizeof prefix);
        x->names.prefix = x->prefix;
    }
}

int lm_adapters_list(struct lm_options *o, bool trains)
{
    struct lm_adapters *all = &o->others;
    const char *option = o->use ? "use" : o->train_adapter ? "train-adapter" : NULL;

    if (!o->adapter || !is_list(o->adapter))
        return option ? say_fail("--%s is for adapters with names: --adapter NAME=FILE", option)
                      : 0;
    if (option_parts("--adapter", o->adapter, all, take_entry) || choose_used(all, o->use))
        return -1;
    if (trains && choose_first(all, o->train_adapter))
        return -1;
    o->adapter = all->each[0].path;
    name_all(o);
    return 0;
}

const struct adapter_names *lm_adapter_names(const struct lm_options *o)
{
    return o->others.n > 1 ? &o->others.each[0].names : lm_traits(&o->config)->adapters;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void weigh(struct adapter_options *a, double weight)
{
    for (int i = 0; i < a->file.n; i++)
        a->file.layer[i].alpha *= weight;
}

/* An adapter that is added as it is. */
static int read_other(const struct lm_options *o, struct lm_adapter *x)
{
    static const struct training_options none = {.steps = 0};
    const struct adapter_names *names = lm_traits(&o->config)->adapters;
    struct adapter_options *a = &x->options;

    *a = (struct adapter_options){ADAPTER_DEFAULTS("model", "peft")};
    if (adapter_options_read(a, names, &none, x->path))
        return -1;
    if (!a->file.n)
        return say_fail("--adapter %s: %s: %s", x->name, a->file.path,
                        access(a->file.path, F_OK) ? "no such file or directory"
                                                   : "there are no LoRA adapters in it");
    if (a->file.n_whole)
        return say_fail(
            "--adapter %s: %s: '%s' is trained as a whole (modules_to_save), which only "
            "the first adapter may have",
            x->name, a->file.path, a->file.whole[0]);
    a->dropout = 0;
    weigh(a, x->weight);
    return 0;
}

int lm_adapters_read(struct lm_options *o)
{
    struct lm_adapters *all = &o->others;

    if (all->n && !o->train.state.from)
        weigh(&o->adapters, all->each[0].weight);
    for (int i = 1; i < all->n; i++)
        if (read_other(o, &all->each[i]))
            return -1;
    return 0;
}

void lm_adapters_close(struct lm_options *o)
{
    for (int i = 1; i < o->others.n; i++)
        adapter_file_close(&o->others.each[i].options.file);
}

/* ---- the model ------------------------------------------------------------------------------- */

static int each_other(struct lm_run *r, int (*visit)(const struct adapter_run *other))
{
    struct lm_adapters *all = &r->options.others;

    for (int i = 1; i < all->n; i++) {
        struct adapter_run other = r->adapters;
        other.options = &all->each[i].options;
        memcpy(other.options->base, r->options.adapters.base, ADAPTER_BASE);
        other.options->other_base = r->options.adapters.other_base;
        other.names = &all->each[i].names;
        other.frozen = true;
        other.trains = false;
        if (visit(&other))
            return -1;
    }
    return 0;
}

int lm_adapters_add(struct lm_run *r)
{
    return each_other(r, adapters_add);
}

int lm_adapters_begin(struct lm_run *r)
{
    return each_other(r, adapters_begin);
}

void lm_adapters_report(const struct lm_options *o)
{
    const struct lm_adapters *all = &o->others;
    char text[ADAPTERS_TEXT];

    for (int i = 0; i < (all->n ? all->n : 1); i++)
        if (adapters_text(i ? &all->each[i].options : &o->adapters, text))
            say_note("%s%s%s", all->n ? all->each[i].name : "", all->n ? ": " : "", text);
}

int lm_adapters_note(struct lm_run *r)
{
    const struct lm_adapters *all = &r->options.others;
    uint64_t hash = DIGEST_START;
    char digest[ADAPTER_BASE];

    for (int i = 1; i < all->n; i++) {
        const struct lm_adapter *x = &all->each[i];
        if (lm_base_digest(&r->model, x->options.file.path, digest))
            return -1;
        hash = digest_bytes(hash, x->name, strlen(x->name) + 1);
        hash = digest_bytes(hash, &x->weight, sizeof x->weight);
        hash = digest_bytes(hash, digest, strlen(digest));
    }
    return all->n > 1 ? resume_note_count(r->context, "digest of the adapters that are not trained",
                                          (int64_t)hash)
                      : 0;
}
