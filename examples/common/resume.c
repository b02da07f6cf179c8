/* Trainers that go on where another run ended: see resume.h. */
#include "ckpt_state.h"
#include "resume.h"
#include "say.h"

int resume_check(const struct resume_options *o, const char *load)
{
    if (o->every && !o->save)
        return say_fail("--save-every: say where with --save-state FILE");
    if (o->from && load)
        return say_fail("--resume and --load exclude each other: a state has the weights, too");
    return 0;
}

int resume_load(const struct resume_options *o, ckpt *c, int64_t *step)
{
    *step = 0;
    if (!o->from)
        return 0;
    if (ckpt_load_state(c, o->from))
        return say_fail("%s", ckpt_error(c));
    *step = ckpt_updates(c);
    say_print("resumed: %s, after %lld steps\n", o->from, (long long)*step);
    fflush(stdout);
    return 0;
}

bool resume_due(const struct resume_options *o, int64_t step)
{
    return o->every && step % o->every == 0;
}

int resume_save(const struct resume_options *o, ckpt *c)
{
    return ckpt_save_state(c, o->save) ? say_fail("%s", ckpt_error(c)) : 0;
}
