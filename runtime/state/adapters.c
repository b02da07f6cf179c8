/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other programs need beside the tensors of adapters (ckpt_lora): rank, alpha and the layers.
 * diffusers reads them from the file's metadata, PEFT from adapter_config.json beside the file.
 * Without them a reader takes a scale of 1.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/json.h"
#include "core/number.h"
#include "state/adapters.h"

#define NAMES_A    ".lora_A.weight"
#define NAMES_DOWN ".lora_down.weight" /* kohya's */

/* ---- layers --------------------------------------------------------------------------------- */

/* A layer with an adapter. */
struct layer {
    const char *weight; /* its name and the bytes of it that name the layer */
    int length;
    int64_t rank;
    float alpha;
};

/* The layers of a file, and the prefix of their names there. */
struct layers {
    struct layer *all;
    int n;
    const char **whole; /* parameters that are trained as a whole */
    int n_whole;
    float dropout;
    bool dora;
    char prefix[128];
    int cut; /* bytes before the layers' names that the file leaves out */
};

/* The weight whose adapter has these values as A; NULL: they are another part. */
static const struct param *find_weight(const struct save_item *s)
{
    const struct params *ps = &s->c->params;

    for (int32_t i = 0; i < ps->n && !s->form; i++)
        for (int32_t a = ps->data[i].training.lora; a; a = ps->data[a].training.factor.next)
            if (params_handle(ps, a).id == s->param.id)
                return &ps->data[i];
    return NULL;
}

bool adapters_alone(const struct save_item *items, int n)
{
    bool found = false;

    for (int i = 0; i < n; i++) {
        const struct param *p = params_at(&items[i].c->params, items[i].param);
        if (items[i].form == SAVE_ALPHA || (!p->training.adapter && !p->training.whole) ||
            (items[i].slot != CKPT_VALUE && items[i].slot != CKPT_EMA))
            return false;
        found = found || find_weight(&items[i]);
    }
    return found;
}

/* The bytes of a name before its end; -1: it has another end. */
static int before_end(const char *name, int n, const char *end)
{
    const int m = (int)strlen(end);

    return n >= m && !strncmp(name + n - m, end, (size_t)m) ? n - m : -1;
}

int adapters_alpha_items(struct save_item *items)
{
    const int stem =
        items->alias ? before_end(items->alias, (int)strlen(items->alias), NAMES_DOWN) : -1;

    if (stem < 0 || !find_weight(items))
        return 1;
    items[1] = items[0];
    items[1].form = SAVE_ALPHA;
    if (asprintf(&items[1].alias, "%.*s.alpha", stem, items->alias) >= 0)
        return 2;
    items[1].alias = NULL;
    return CKPT_ENOMEM;
}

/* The prefix is what the written name of an A has before its layer's name, which a file may have
 * without its first part: that says which of two models has the layer.  It is empty if the file has
 * another name for the layer. */
static int find_prefix(struct layers *l, const struct save_item *s)
{
    const struct layer *first = &l->all[0];
    char *name = save_name(s);

    if (!name)
        return CKPT_ENOMEM;
    const int stem = before_end(name, (int)strlen(name), NAMES_A);
    const int cuts[] = {0, (int)strcspn(first->weight, ".") + 1};
    for (int i = 0; i < 2 && stem >= 0 && cuts[i] < first->length; i++) {
        const int length = first->length - cuts[i], n = stem - length;
        if (n < 0 || strncmp(name + n, first->weight + cuts[i], (size_t)length))
            continue;
        snprintf(l->prefix, sizeof l->prefix, "%.*s", n, name);
        l->cut = cuts[i];
        break;
    }
    free(name);
    return 0;
}

/* Leaves the first part out of the names of layers. */
static void cut_names(struct layers *l)
{
    for (int i = 0; i < l->n; i++) {
        l->all[i].weight += l->cut;
        l->all[i].length -= l->cut;
    }
}

static int add_layer(struct layers *l, const struct save_item *s, const struct param *w)
{
    const struct param *a = params_at(&s->c->params, s->param);
    int all = (int)strlen(w->name), cut = before_end(w->name, all, ".weight");

    for (int i = 0; i < l->n; i++)
        if (l->all[i].weight == w->name)
            return error_set(CKPT_EINVAL,
                             "'%s' has several adapters, and a file has the settings of one: "
                             "select those of one",
                             w->name);
    l->all[l->n++] =
        (struct layer){w->name, cut < 0 ? all : cut, a->desc.shape[0], a->training.factor.alpha};
    l->dropout = a->training.factor.dropout;
    l->dora = l->dora || a->training.factor.magnitude;
    return l->n == 1 ? find_prefix(l, s) : 0;
}

static int layers_find(struct layers *l, const struct save_item *items, int n)
{
    int rc = 0;

    *l = (struct layers){.all = calloc((size_t)n, sizeof *l->all),
                         .whole = calloc((size_t)n, sizeof *l->whole)};
    if (!l->all || !l->whole)
        return CKPT_ENOMEM;
    for (int i = 0; i < n && !rc; i++) {
        const struct param *p = params_at(&items[i].c->params, items[i].param);
        const struct param *w = find_weight(&items[i]);
        if (p->training.whole)
            l->whole[l->n_whole++] = p->name;
        rc = w ? add_layer(l, &items[i], w) : 0;
    }
    cut_names(l);
    return rc;
}

static bool is_peft(const struct layers *l)
{
    return !strncmp(l->prefix, ADAPTERS_PEFT, strlen(ADAPTERS_PEFT));
}

/* ---- settings ------------------------------------------------------------------------------- */

static void put_layer(FILE *f, const struct layer *l)
{
    char name[512];

    snprintf(name, sizeof name, "%.*s", l->length, l->weight);
    json_write_string(f, name);
}

static void put_alpha(FILE *f, float alpha)
{
    char text[NUMBER_TEXT];

    number_format_float(text, alpha);
    fputs(text, f);
}

/* The ranks, or the alphas, that differ from those of the first layer. */
static void put_pattern(FILE *f, const struct layers *l, bool ranks)
{
    const char *between = "";

    fputc('{', f);
    for (int i = 1; i < l->n; i++) {
        const struct layer *x = &l->all[i];
        if (ranks ? x->rank == l->all[0].rank : x->alpha == l->all[0].alpha)
            continue;
        fputs(between, f);
        put_layer(f, x);
        fputs(": ", f);
        if (ranks)
            fprintf(f, "%lld", (long long)x->rank);
        else
            put_alpha(f, x->alpha);
        between = ", ";
    }
    fputc('}', f);
}

/* The layers of the parameters that are trained as a whole: without ".weight" and ".bias". */
static void put_whole(FILE *f, const struct layers *l)
{
    int before = 0;

    for (int i = 0; i < l->n_whole; i++) {
        const char *name = l->whole[i], *dot = strrchr(name, '.');
        const int length = (int)(dot ? dot - name : (long)strlen(name));
        const bool again = i && length == before && !strncmp(name, l->whole[i - 1], (size_t)length);
        if (!again) {
            fputs(i ? ", " : "", f);
            put_layer(f, &(struct layer){.weight = name, .length = length});
        }
        before = length;
    }
}

/* The settings that change what adapters do; all others have PEFT's defaults. */
static void put_settings(FILE *f, const char *prefix, const struct layers *l)
{
    fprintf(f, "\"%sr\": %lld, \"%slora_alpha\": ", prefix, (long long)l->all[0].rank, prefix);
    put_alpha(f, l->all[0].alpha);
    fprintf(f, ", \"%srank_pattern\": ", prefix);
    put_pattern(f, l, true);
    fprintf(f, ", \"%salpha_pattern\": ", prefix);
    put_pattern(f, l, false);
    fprintf(f, ", \"%starget_modules\": [", prefix);
    for (int i = 0; i < l->n; i++) {
        fputs(i ? ", " : "", f);
        put_layer(f, &l->all[i]);
    }
    fprintf(f, "], \"%smodules_to_save\": ", prefix);
    fputs(l->n_whole ? "[" : "null", f);
    put_whole(f, l);
    fprintf(f, "%s, \"%sbias\": \"none\", \"%slora_dropout\": ", l->n_whole ? "]" : "", prefix,
            prefix);
    put_alpha(f, l->dropout);
    fprintf(f, ", \"%suse_dora\": %s, \"%suse_rslora\": false", prefix, l->dora ? "true" : "false",
            prefix);
}

/* diffusers looks for keys with the prefix of the tensors, PEFT for keys without one. */
static char *settings_text(const struct layers *l, bool config)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    fputc('{', f);
    if (config)
        fputs("\"peft_type\": \"LORA\", \"task_type\": null, \"base_model_name_or_path\": null, "
              "\"fan_in_fan_out\": false, \"init_lora_weights\": true, \"inference_mode\": true, ",
              f);
    put_settings(f, config || is_peft(l) ? "" : l->prefix, l);
    fputs(config ? "}\n" : "}", f);
    text_close(f, &text);
    return text;
}

int adapters_describe(struct adapters_texts *t, const struct save_item *items, int n)
{
    struct layers l;
    int rc = layers_find(&l, items, n);

    *t = (struct adapters_texts){NULL, NULL};
    if (!rc)
        t->note = settings_text(&l, false);
    if (!rc && is_peft(&l))
        t->config = settings_text(&l, true);
    if (!rc && (!t->note || (is_peft(&l) && !t->config)))
        rc = CKPT_ENOMEM;
    free(l.all);
    free(l.whole);
    return rc;
}

void adapters_free(struct adapters_texts *t)
{
    free(t->note);
    free(t->config);
}

/* ---- adapter_config.json -------------------------------------------------------------------- */

struct fill {
    const char *path, *text;
};

static int fill(void *user, int fd)
{
    const struct fill *f = user;

    return file_write_all(f->path, fd, f->text, (int64_t)strlen(f->text));
}

/* Nothing is beside a pipe. */
int adapters_write_config(const char *path, const char *text)
{
    const int stem = (int)(file_name_of(path) - path);
    struct stat st;
    char *beside;

    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return 0;
    if (asprintf(&beside, "%.*sadapter_config.json", stem, path) < 0)
        return error_set(CKPT_ENOMEM, "%s: no memory for adapter_config.json beside it", path);
    int rc = file_replace(beside, fill, &(struct fill){beside, text});
    free(beside);
    return rc;
}
