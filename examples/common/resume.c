/* SPDX-License-Identifier: Apache-2.0 */
/* Trainers that resume another run: see resume.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "names.h"
#include "options.h"
#include "saves.h"
#include "say.h"

#define LIBRARY "ckpt." /* prefix of the library's notes */

/* A bare number is a number of steps. */
static int read_when(struct resume_options *o)
{
    enum { MOST = 1000000000 };
    const char *text = o->when;
    char *end;

    if (!text)
        return 0;
    if (!*text || text[strspn(text, "0123456789")])
        return option_duration("save-every", text, &o->seconds);
    o->every = strtoll(text, &end, 10);
    if (o->every < 1 || o->every > MOST)
        return say_fail("--save-every %s: give 1 to %d steps, or a time, as 30m", text, MOST);
    return 0;
}

enum { WORDS = 4200 };

/* Whether a state has a note, and its text. */
static bool has_note(const char *path, const char *name, char text[WORDS])
{
    ckpt_file *f = NULL;
    const char *note = ckpt_file_open(&f, path) ? NULL : ckpt_file_note(f, name);

    snprintf(text, WORDS, "%s", note ? note : "");
    ckpt_file_close(f);
    return note != NULL;
}

/* The steps of a state, or -1. */
static int64_t steps_in(const char *path)
{
    char text[WORDS];

    return has_note(path, LIBRARY "updates", text) ? strtoll(text, NULL, 10) : -1;
}

/* ---- weights that a state leaves out --------------------------------------------------------- */

#define BASE_FROM LIBRARY "base.from" /* the words of ckpt_state_base */

int resume_check_base(const struct resume_options *o, const char *load)
{
    char from[WORDS];

    return o->from && !load && has_note(o->from, BASE_FROM, from)
               ? say_fail("%s: leaves out the frozen weights of its run, which came from %s: give "
                          "the same beside --resume",
                          o->from, from)
               : 0;
}

bool resume_knows(const ckpt_file *f, const char *name)
{
    const char *text = ckpt_file_note(f, LIBRARY "base");
    char value[512];

    snprintf(value, sizeof value, "value/%s", name);
    if (ckpt_file_find(f, value) >= 0)
        return true;
    json_t *base = text ? json_loads(text, 0, NULL) : NULL;
    bool known = json_object_get(base, name) != NULL;
    json_decref(base);
    return known;
}

/* A state with all values. */
static bool is_whole(const char *path)
{
    char from[WORDS];

    return steps_in(path) >= 0 && !has_note(path, BASE_FROM, from);
}

int resume_check(struct resume_options *o, const char *load, const char *const weights[4],
                 const char *directory)
{
    /* Saves that are kept are links to a file; a directory is replaced. */
    const char *asked = o->keep                 ? "keep"
                        : o->keep_every         ? "keep-every"
                        : o->when && !directory ? "save-every"
                                                : NULL;

    o->automatic = o->from && !strcmp(o->from, RESUME_AUTO);
    memcpy(o->weights, weights, sizeof o->weights);
    if (asked && !o->save && !weights[0] && !weights[1] && !weights[2] && !weights[3])
        return say_fail("--%s needs --save-state FILE, or --save FILE for the weights", asked);
    if (o->automatic && !o->save)
        return say_fail("--resume auto needs --save-state FILE");
    if (o->from && load && !o->automatic && is_whole(o->from))
        return say_fail("--resume and --load exclude each other: this state contains the weights");
    return read_when(o);
}

/* ---- saves side by side ---------------------------------------------------------------------- */

bool resume_keeps(const struct resume_options *o)
{
    return o->keep || o->keep_every;
}

static int keep(const struct resume_options *o, const char *file, int64_t step)
{
    struct saves_policy policy = {o->keep ? o->keep : 1, o->keep_every};

    return file ? saves_keep(file, step, &policy) : 0;
}

/* Only rank 0 handles the files.  The resumed run may have been killed before it kept its last
 * save. */
static int begin_keeping(const struct resume_options *o, ckpt *c, int64_t step)
{
    if (!resume_keeps(o) || ckpt_rank(c))
        return 0;
    const char *files[] = {o->save, o->weights[0], o->weights[1], o->weights[2]};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] && saves_check(files[i], step))
            return -1;
    return o->from && o->save && !strcmp(o->from, o->save) ? keep(o, o->save, step) : 0;
}

/* Checks that all ranks found the same save. */
static int agree_on_found(const struct resume_options *o, ckpt *c, const char *path)
{
    const char *found = *path ? path + strlen(o->save) : "none";
    struct ckpt_fact fact = {"newest save of --save-state", *found ? found : "last", 0};

    fact.bytes = strlen(fact.data);
    return ckpt_agree(c, &fact, 1) ? say_fail("%s", ckpt_error(c)) : 0;
}

/* A job that has formed again.  What is at the path of --save-state may be of another run, unless
 * this job wrote it. */
static int find_last(struct resume_options *o, ckpt *c, bool saved, int64_t kept)
{
    static char path[SAVES_PATH];

    *path = 0;
    if (saved && o->save &&
        (saves_newest(o->save, !ckpt_rank(c), path) || agree_on_found(o, c, path)))
        return -1;
    if (*path && steps_in(path) > kept)
        o->from = path;
    else if (kept >= 0)
        o->from = CKPT_PEERS;
    return 0;
}

int resume_find(struct resume_options *o, ckpt *c)
{
    static char path[SAVES_PATH];
    bool again = false, saved = false;
    int64_t kept = -1;

    if (o->elastic && ckpt_job_history(c, &again, &saved, &kept))
        return say_fail("%s", ckpt_error(c));
    if (again && kept < 0 && !ckpt_rank(c))
        say_note("--elastic: no state in memory is complete: the job goes on from %s",
                 saved ? "its last save" : "where it began");
    if (again && (kept >= 0 || saved))
        return find_last(o, c, saved, kept);
    if (!o->automatic)
        return 0;
    if (saves_newest(o->save, !ckpt_rank(c), path) || agree_on_found(o, c, path))
        return -1;
    o->from = *path ? path : NULL;
    if (!*path)
        say_print("no complete save of %s: starting at step 0\n", o->save);
    return 0;
}

/* ---- options stored in a state --------------------------------------------------------------- */

#define CHECKSUM LIBRARY "checksum"

int resume_note(ckpt *c, const struct ckpt_option *table, const void *owner)
{
    char text[32];

    for (const struct ckpt_option *row = table; row->name; row++)
        if (ckpt_option_has_value(row) && option_role(row->name) != OPTION_FREE &&
            ckpt_state_note(c, row->name, option_text(row, owner, text)))
            return say_fail("%s", ckpt_error(c));
    return 0;
}

struct asked {
    const struct resume_options *options;
    struct resume_place *place;
    bool unchecked, refused;
    bool slots;           /* the optimizers keep other values */
    bool based;           /* the state leaves out weights, which the library compares */
    struct names unknown; /* notes that only one of the two runs has */
};

static const char *own_name(const char *name)
{
    return strncmp(name, LIBRARY, strlen(LIBRARY)) ? name : name + strlen(LIBRARY);
}

/* Whether a note may differ because the run has a place.  Stores the note's old value. */
static bool is_place(const struct asked *a, const char *name, const char *was)
{
    struct resume_place *place = a->place;

    if (place && !strcmp(name, RESUME_BAD)) {
        place->bad = was ? strdup(was) : NULL;
        return true;
    }
    if (!place || !place->name ||
        (strcmp(name, place->name) && strcmp(name, LIBRARY "step_samples")))
        return false;
    if (was && !strcmp(name, place->name))
        place->was = strdup(was);
    return true;
}

/* States of version 0.2 store "none" for defaults that were not given. */
static bool is_default(const char *name, const char *was, const char *is)
{
    static const char *const usual[][2] = {{"optimizer", "adamw"}, {"schedule", "constant"}};

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!strcmp(name, usual[i][0]))
            return !strcmp(was, "none") && !strcmp(is, usual[i][1]);
    return false;
}

/* The library and the options both note optimizer settings; a change is reported once. */
static bool may_change(void *user, const char *name, const char *was, const char *is)
{
    struct asked *a = user;
    enum option_role role = option_role(own_name(name));

    if (is_place(a, name, was) || (a->based && !strcmp(name, "lora-base")))
        return true;
    if (!strcmp(name, CHECKSUM)) {
        a->unchecked = true;
        return true;
    }
    if (!was || !is) {
        names_add(&a->unknown, own_name(name));
        return true;
    }
    if (is_default(name, was, is))
        return true;
    a->slots = a->slots || !strcmp(name, "optimizer") ||
               (!strcmp(name, "ema-decay") && (!strcmp(was, "0") || !strcmp(is, "0")));
    if (role == OPTION_SHAPES && !a->options->changed) {
        a->refused = true;
        return false;
    }
    if (own_name(name) == name || role == OPTION_SHAPES)
        printf("changed: %s was %s, is %s\n", own_name(name), was, is);
    return true;
}

int resume_note_count(ckpt *c, const char *name, int64_t n)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)n);
    return ckpt_state_note(c, name, text) ? say_fail("%s", ckpt_error(c)) : 0;
}

static const char *hint(const struct asked *a)
{
    if (a->slots)
        return "; its optimizer keeps other values: to continue from the weights alone, --save "
               "them with its options, and --load them";
    return a->refused ? "; --resume-changed continues nevertheless" : "";
}

int resume_load(const struct resume_options *o, ckpt *c, struct resume_place *place, int64_t *step)
{
    struct asked a = {.options = o, .place = place};
    char text[NAMES_TEXT], from[WORDS];

    *step = 0;
    a.based = o->from && has_note(o->from, BASE_FROM, from);
    if (!o->from)
        return begin_keeping(o, c, 0);
    if (ckpt_load_state_changed(c, o->from, may_change, &a))
        return say_fail("%s%s", ckpt_error(c), hint(&a));
    *step = ckpt_updates(c);
    if (a.unknown.n)
        say_print("%s: does not record these options of its run: %s\n", o->from,
                  names_text(&a.unknown, text));
    say_print("resumed: %s, after %lld steps%s\n", o->from, (long long)*step,
              a.unchecked ? ", without checksums" : "");
    fflush(stdout);
    return begin_keeping(o, c, *step);
}

bool resume_due(const struct resume_options *o, int64_t step)
{
    return o->every && step % o->every == 0;
}

int resume_save(const struct resume_options *o, ckpt *c)
{
    return ckpt_save_state(c, o->save) ? say_fail("%s", ckpt_error(c)) : 0;
}

int resume_keep_in_memory(const struct resume_options *o, ckpt *c)
{
    return o->elastic && ckpt_save_state(c, CKPT_PEERS) ? say_fail("%s", ckpt_error(c)) : 0;
}

int resume_keep(const struct resume_options *o, ckpt *c, int64_t step)
{
    if (ckpt_save_wait(c))
        return say_fail("%s", ckpt_error(c));
    return resume_keeps(o) && !ckpt_rank(c) ? keep(o, o->save, step) : 0;
}

int resume_keep_weights(const struct resume_options *o, ckpt *c, int64_t step)
{
    if (!resume_keeps(o) || ckpt_rank(c))
        return 0;
    for (size_t i = 0; i < sizeof o->weights / sizeof *o->weights; i++)
        if (keep(o, o->weights[i], step))
            return -1;
    return 0;
}
