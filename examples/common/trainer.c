/* SPDX-License-Identifier: Apache-2.0 */
/* The one order of all trainers: see trainer.h. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "compiled.h"
#include "dump.h"
#include "elastic.h"
#include "remedies.h"
#include "say.h"
#include "split_auto.h"
#include "trainer.h"

int64_t trainer_count(ckpt *c)
{
    int64_t n = 0;

    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        if (!ckpt_param_info(c, ckpt_param_at(c, i), &info) && info.trainable)
            n += info.numel;
    }
    return n;
}

/* Whether steps have different numbers of samples; then no batch is counted in advance. */
static bool varies(const struct trainer *t)
{
    return t->varies && t->varies(t->run);
}

/* ---- before the data ------------------------------------------------------------------------ */

/* What is refused before ranks meet.  One rank alone checks the outputs, too. */
static int check_alone(const struct trainer *t)
{
    if (t->library->sequence > 1 && !t->splits)
        return say_fail("--sequence %lld: this program has no sequences that ranks split; leave it "
                        "out",
                        (long long)t->library->sequence);
    if (t->library->tensor > 1 && !t->widths)
        return say_fail("--tensor %lld: this program has no layers that ranks split; leave it out",
                        (long long)t->library->tensor);
    return options_alone(t->library) || (!t->library->ranks && t->outputs(t->run)) ||
                   (t->before && t->before(t->run))
               ? -1
               : 0;
}

/* Only the first rank writes; ranks know their number after the rendezvous. */
static int open_context(const struct trainer *t)
{
    if (say_open(t->context, t->library))
        return -1;
    ckpt *c = *t->context;
    say_as_rank(ckpt_rank(c), ckpt_ranks(c));
    if (split_take(t) || options_agree(c, t->reading.own) || elastic_formed(t) ||
        resume_find(&t->train->state, c) ||
        (t->library->ranks && !ckpt_rank(c) && t->outputs(t->run)))
        return -1;
    if (t->train->dump && ckpt_ranks(c) > 1)
        return say_fail("--dump is for one rank alone");
    if (!varies(t))
        t->train->samples = t->train->batch * ckpt_sample_groups(c);
    return 0;
}

/* ---- data, model, programs ------------------------------------------------------------------ */

/* Opens the data, and compares between ranks what of them must be alike. */
static int open_data(const struct trainer *t)
{
    struct ckpt_fact fact[TRAINER_FACTS];

    if (t->data && t->data(t->run))
        return -1;
    int n = t->facts(t->run, fact);
    if (ckpt_agree(*t->context, fact, n))
        return say_fail("%s", ckpt_error(*t->context));
    if (training_has_steps(t->train) && !varies(t) && *t->samples &&
        *t->samples < t->train->samples && !ckpt_rank(*t->context))
        printf("a step has %lld samples, and the data %lld: they repeat within a step\n",
               (long long)t->train->samples, (long long)*t->samples);
    return 0;
}

/* Weights are loaded here, before anything is planned: a wrong file ends the run in seconds. */
static int make_model(const struct trainer *t)
{
    const struct ckpt_options usual = CKPT_OPTIONS_INIT;

    if (*t->train->dtype_note && !ckpt_rank(*t->context))
        say_note("%s", t->train->dtype_note);
    if (t->library->zero != usual.zero && ckpt_ranks(*t->context) == 1)
        say_note("--zero: one rank has nothing to share: it changes nothing here");
    if (t->model(t->run))
        return -1;
    t->introduce(t->run);
    return 0;
}

/* Prints the plans, once all programs are known to fit. */
static int fits(const struct trainer *t, bool trains)
{
    if (t->fits)
        return t->fits(t->run, trains);
    if (trains)
        ckpt_plan_print(*t->program, stdout);
    return 0;
}

/* Compiles all programs and gathers their refusals, so that one sentence names a budget for all. */
static int compile(const struct trainer *t)
{
    const bool trains = training_has_steps(t->train) || t->library->plan_only;
    const int64_t all = t->parameters ? t->parameters(t->run) : trainer_count(*t->context);
    struct training_setup setup;

    training_setup_begin(&setup, *t->context, trains ? all : 0,
                         t->library->plan_only && !varies(t));
    if (t->compile(t->run, trains) || compiled_all(*t->context) || fits(t, trains))
        return -1;
    training_setup_end(&setup);
    return 0;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Notes for saved states: the number of samples, the options, the program's own. */
static int note(const struct trainer *t, struct resume_place *place)
{
    const struct option_part *own = t->reading.own;

    if (resume_note_count(*t->context, t->counted, *t->samples))
        return -1;
    if (t->splits && resume_note_count(*t->context, "sequence", t->library->sequence))
        return -1;
    if (t->widths && resume_note_count(*t->context, "tensor", t->library->tensor))
        return -1;
    if (t->library->stages > 1 && resume_note_count(*t->context, "stages", t->library->stages))
        return -1;
    for (int i = 0; i < OPTION_PARTS && own[i].rows; i++)
        if (resume_note(*t->context, own[i].rows, own[i].values))
            return -1;
    return t->notes ? t->notes(t->run, place) : 0;
}

/* Loads the state to continue, if there is one, and brings the data to its place. */
static int resume(const struct trainer *t)
{
    struct resume_place place = {.name = NULL};

    if (note(t, &place))
        return -1;
    int rc = resume_load(&t->train->state, *t->context, &place, t->first);
    if (!rc && t->train->steps > 0 && *t->first >= t->train->steps)
        say_print("--steps %lld: no step is left; a larger number continues this run\n",
                  (long long)t->train->steps);
    if (!rc && t->resumed)
        rc = t->resumed(t->run, &place);
    free(place.was);
    free(place.bad);
    return rc;
}

/* After the state was loaded: the log begins with the step after it. */
static int open_log(const struct trainer *t)
{
    if (log_open(t->log, t->train, ckpt_rank(*t->context), *t->first))
        return -1;
    if (!t->log->f)
        return 0;
    log_config_begin(t->log);
    t->describe(t->run, t->log->f);
    log_config_end(t->log, *t->context, *t->program, t->train, t->library);
    return 0;
}

/* The steps, the last look, and what they opened; the data close even after a failure. */
static int run_steps(const struct trainer *t, struct training *s)
{
    int rc = t->open_steps(t->run, s) || training_fits(s) ? -1 : training_run(s);

    if (!rc)
        rc = training_look_last(s);
    if (s->user)
        t->close_steps(s->user);
    return rc ? rc : dump_check(t->train->dump, s->ended - s->first);
}

/* Said before hours of steps, not after them. */
static void note_unsaved(const struct trainer *t)
{
    const struct training_options *o = t->train;

    if (!o->save && !o->save_ema && !o->save_int8 && !o->state.save && !o->dump && !o->directory)
        say_print("nothing is saved at the end: give --save FILE for the weights, or --save-state "
                  "FILE to continue later\n");
    fflush(stdout); /* before the first step in a pipe, too */
}

/* The job is elastic and begins again. */
static bool is_lost(const struct trainer *t)
{
    const struct resume_options *o = &t->train->state;

    return o->elastic && (o->grows || ckpt_rank_is_lost(*t->context));
}

/* From the state to resume to the weights.  What was trained is saved even where a step failed, as
 * far as training_save can. */
static int train(const struct trainer *t)
{
    if (resume(t) || open_log(t))
        return -1;
    note_unsaved(t);
    struct training s = {.context = *t->context,
                         .run = t->run,
                         .options = t->train,
                         .grows = &t->train->state,
                         .first = *t->first,
                         .submitted = *t->first,
                         .ended = *t->first,
                         .log = t->log,
                         .only = *t->program,
                         .ahead = t->train->dump ? 0 : 1}; /* a dump reads the first step alone */
    int rc = run_steps(t, &s);
    if (rc && is_lost(t))
        return -1;
    training_report(&s, t->measure ? t->measure : "loss", *t->program);
    if (t->report)
        t->report(t->run);
    return training_save(&s, rc);
}

/* ---- the whole program ---------------------------------------------------------------------- */

/* An output that was asked for and has nothing to write is a failure, as with --trace-out. */
static int unwritten(const struct trainer *t)
{
    return ckpt_unwritten(*t->context) ? say_fail("%s", ckpt_error(*t->context)) : 0;
}

/* The order that trainer.h promises; returns at the first failure, and run() closes what is open.
 */
static int go(const struct trainer *t)
{
    if (open_context(t) || open_data(t) || make_model(t) || compile(t))
        return -1;
    if (remedies_planning())
        split_tell(t);
    if (t->library->plan_only)
        return unwritten(t);
    if (training_has_steps(t->train) && train(t))
        return -1;
    if (t->finish && t->finish(t->run, training_has_steps(t->train)))
        return -1;
    return unwritten(t);
}

/* The value of an option of the program; NULL: there is no such option, or no value. */
static const char *value_of(const struct trainer *t, const char *name)
{
    const struct option_part *own = t->reading.own;
    static char text[32];

    for (int i = 0; i < OPTION_PARTS && own[i].rows; i++)
        for (const struct ckpt_option *row = own[i].rows; row->name; row++)
            if (!strcmp(row->name, name))
                return option_text(row, own[i].values, text);
    return NULL;
}

static bool is(const char *value, const char *text)
{
    return value && !strcmp(value, text);
}

/* Options that save memory and that the run was not given. */
static void list_remedies(const struct trainer *t, struct remedies *r)
{
    static const struct remedy half = {{"--dtype", "bf16"}, 0};
    static const struct remedy both = {{"--dtype", "bf16", "--state", "bf16"}, 0};
    static const struct remedy state = {{"--state", "bf16"}, 0};
    static const struct remedy micro = {{"--micro-batch", "1"}, 0};
    static const struct remedy host = {{"--host", "50%"}, 0};
    static const struct remedy nf4 = {{"--frozen", "nf4"}, 0};
    static const struct remedy adapters = {{"--lora-rank", "64"}, 0}; /* all weights are trained */
    const struct ckpt_options *o = t->library;
    const bool full = is(value_of(t, "dtype"), "fp32");

    if (full)
        remedies_add(r, &half);
    if (!o->state || is(o->state, "fp32"))
        remedies_add(r, full ? &both : &state);
    if (!o->micro_batch && t->train->batch > 1)
        remedies_add(r, &micro);
    if (!o->host)
        remedies_add(r, &host);
    const char *frozen = value_of(t, "frozen");
    if (frozen && !is(frozen, "nf4") && !is(value_of(t, "lora-rank"), "0"))
        remedies_add(r, &nf4);
    if (is(value_of(t, "lora-rank"), "0"))
        remedies_add(r, &adapters);
}

/* A run that is shared by ranks is refused on all of them, and planned by none alone. */
static bool is_refused(const struct trainer *t, const struct remedies *r)
{
    return r->command && *compiled_refusal() && !t->library->ranks && !remedies_planning();
}

/* Ends before the ranks meet. */
static int refuse(const struct trainer *t)
{
    options_refuse(t->library, t->train->state.elastic && !t->library->plan_only);
    return -1;
}

/* Runs, closes all in the reverse order, and proposes options where no plan fitted. */
static int run(const struct trainer *t, struct remedies *r)
{
    if (remedies_planning())
        remedies_set_options(t->library);
    int rc = split_choose(t, r->command) || elastic_begin(t, r->command) || check_alone(t)
                 ? refuse(t)
                 : go(t);
    if (rc)
        elastic_end(t, r->command);
    if (rc && *t->context)
        ckpt_give_up(*t->context, NULL, say_failure());
    if (is_refused(t, r))
        list_remedies(t, r);
    if (log_close(t->log))
        rc = -1;
    ckpt_close(*t->context);
    t->close(t->run);
    if (r->n)
        remedies_print(r, remedies_needs(compiled_refusal()));
    return rc;
}

int trainer_main(const struct trainer *t, int argc, char **argv)
{
    struct remedies r = {.command = options_copy(argc, argv)};

    say_begin();
    int rc = options_read(&t->reading, argc, argv);
    if (!rc && t->check(t->options))
        rc = refuse(t);
    if (rc)
        rc = rc > 0 ? 0 : 2;
    else
        rc = say_finish(run(t, &r) ? 1 : 0);
    free(r.command);
    return rc;
}
