/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a run's outputs: see outputs.h. */
#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "lock.h"
#include "outputs.h"
#include "say.h"

enum { MOST = 48 };

struct asked {
    const char *option, *path;
};

/* Fails on the first output that was requested; why ends the message. */
static int refuse_first(const struct asked *a, int n, const char *why)
{
    for (int i = 0; i < n; i++)
        if (a[i].path)
            return say_fail("%s %s: nothing would be written: %s", a[i].option, a[i].path, why);
    return 0;
}

int outputs_asked(const struct training_files *t)
{
    const struct ckpt_options *o = t->library;
    const struct training_options *r = t->train;
    const struct asked all[] = {
        {"--save", r->save},
        {"--save-low", r->save_low},
        {"--save-ema", r->save_ema},
        {"--save-int8", r->save_int8},
        {"--save-state", r->state.save},
        {"--log", r->log},
        {"--tensorboard", r->tensorboard},
        {"--dump", r->dump},
        {"--machine-out", o->machine_out},
        {"--trace-out", o->trace_out},
        /* these are written with --plan-only, too */
        {"--plan-out", o->plan_out},
        {"--graph-out", o->graph_out},
    };
    const struct asked average[] = {{"--save-ema", r->save_ema}};
    const struct asked codes[] = {{"--save-int8", r->save_int8}};
    int n = sizeof all / sizeof *all;

    if (o->plan_only)
        return refuse_first(all, n - 2, "--plan-only ends before the first step");
    if (!r->steps && (!r->state.from || r->state.automatic) &&
        refuse_first(all, n, "--steps 0 trains nothing"))
        return -1;
    if (!o->qat && refuse_first(codes, 1, "without --qat int8 no weight is rounded"))
        return -1;
    return r->ema_decay > 0 ? 0
                            : refuse_first(average, 1, "with --ema-decay 0 there is no average");
}

/* NULL for a directory: the next weights may be saved in the directory they were loaded from. */
static const char *file_only(const char *path)
{
    struct stat st;

    return path && !stat(path, &st) && S_ISDIR(st.st_mode) ? NULL : path;
}

/* Lists the files of a trainer; returns their number. */
static int list_files(const struct training_files *t, struct ckpt_path rows[MOST])
{
    const struct training_options *r = t->train;
    const struct ckpt_path all[] = {
        {"--load", file_only(r->load), CKPT_PATH_INPUT, FAMILY_WEIGHTS},
        {"--save", r->save, CKPT_PATH_FILE, FAMILY_WEIGHTS},
        {"--save-ema", r->save_ema, CKPT_PATH_FILE, FAMILY_WEIGHTS},
        {"--save-int8", r->save_int8, CKPT_PATH_FILE, FAMILY_WEIGHTS},
        {"--resume", r->state.automatic ? NULL : r->state.from, CKPT_PATH_INPUT, FAMILY_STATE},
        {"--save-state", r->state.save, CKPT_PATH_FILE, FAMILY_STATE},
        {"--log", r->log, CKPT_PATH_LOG, 0},
        {"--tensorboard", r->tensorboard, CKPT_PATH_DIRECTORY, 0},
        {"--dump", r->dump, CKPT_PATH_FILE, 0},
        {t->out_option ? t->out_option : "--output", t->out, CKPT_PATH_DIRECTORY, 0},
    };

    memcpy(rows, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

int outputs_take(const struct ckpt_options *library, const struct ckpt_path *paths, int n)
{
    if (ckpt_paths_check(library, paths, n))
        return say_fail("%s", ckpt_error(NULL));
    for (int i = 0; i < n && !library->plan_only; i++)
        if (paths[i].path && paths[i].kind != CKPT_PATH_INPUT &&
            lock_take(paths[i].option, paths[i].path, paths[i].kind == CKPT_PATH_DIRECTORY))
            return -1;
    return 0;
}

int outputs_check(const struct training_files *t, const struct ckpt_path *more, int n)
{
    struct ckpt_path all[MOST];
    int own = list_files(t, all);

    if (n > MOST - own)
        return say_fail("more than %d files", MOST);
    for (int i = 0; i < n; i++)
        all[own + i] = more[i];
    return outputs_take(t->library, all, own + n);
}

/* ---- free space ------------------------------------------------------------------------------ */

/* Copies the directory of path to dst; false if it does not fit. */
static bool directory_of(const char *path, char dst[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 0;

    return snprintf(dst, PATH_MAX, "%.*s", n ? n : 1, n ? path : slash ? "/" : ".") < PATH_MAX;
}

/* The free bytes of a file system and its number; false if unknown, or if the file is no regular
 * one and no directory. */
static bool find_space(const char *path, int64_t *left, dev_t *device)
{
    char directory[PATH_MAX];
    struct statvfs fs;
    struct stat st;

    const bool there = !stat(path, &st), inside = there && S_ISDIR(st.st_mode);

    if ((there && !inside && !S_ISREG(st.st_mode)) || !directory_of(path, directory) ||
        stat(inside ? path : directory, &st) || statvfs(inside ? path : directory, &fs))
        return false;
    *device = st.st_dev;
    *left = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    return true;
}

/* The bytes of a file that is there, and will be replaced. */
static int64_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) || !S_ISREG(st.st_mode) ? 0 : (int64_t)st.st_size;
}

/* The bytes that the file and those before it add to this file system. */
static int64_t added_by(const struct output_size *files, int i, dev_t device)
{
    int64_t left, bytes = files[i].bytes;
    dev_t other;

    for (int k = 0; k < i; k++)
        if (files[k].path && find_space(files[k].path, &left, &other) && other == device)
            bytes += files[k].bytes - size_of(files[k].path);
    return bytes;
}

int outputs_fit(const struct output_size *files, int n)
{
    char wanted[32], room[32];
    int64_t left;
    dev_t device;

    for (int i = 0; i < n; i++)
        if (files[i].path && find_space(files[i].path, &left, &device) &&
            added_by(files, i, device) > left)
            return say_fail("%s %s: takes %s, and its file system has no room for all outputs: %s "
                            "are free",
                            files[i].option, files[i].path, say_bytes(wanted, files[i].bytes),
                            say_bytes(room, left));
    return 0;
}

/* ---- patterns of inputs ---------------------------------------------------------------------- */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool is_same(const char *path, const struct stat *a)
{
    struct stat b;

    return !stat(path, &b) && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

/* Whether the directory is one of those of the pattern, or if it is a name, its own. */
static bool is_searched(const char *pattern, bool name, const char *directory)
{
    char searched[PATH_MAX];
    struct stat a;
    glob_t found;
    bool same = false;

    if (!directory_of(pattern, searched))
        return false;
    if (name)
        return !stat(directory, &a) && is_same(searched, &a);
    if (stat(directory, &a)) /* it does not exist yet */
        return !fnmatch(searched, directory, FNM_PATHNAME | FNM_PERIOD);
    if (glob(searched, 0, NULL, &found))
        return false;
    for (size_t i = 0; i < found.gl_pathc && !same; i++)
        same = is_same(found.gl_pathv[i], &a);
    globfree(&found);
    return same;
}

/* Whether a pattern matches an output, or one of the files that are written in its directory.  The
 * name of a file that exists is no pattern, whatever its characters. */
static bool matches(const char *pattern, const struct ckpt_path *p, const char *const *inside)
{
    char directory[PATH_MAX];
    const char *name = name_of(pattern);
    bool exact = !access(pattern, F_OK);

    if (p->kind != CKPT_PATH_DIRECTORY) {
        const char *own = name_of(p->path);
        return directory_of(p->path, directory) && is_searched(pattern, exact, directory) &&
               (exact ? !strcmp(name, own) : !fnmatch(name, own, FNM_PERIOD));
    }
    for (; *inside; inside++)
        if (exact ? !strcmp(name, *inside) : !fnmatch(name, *inside, FNM_PERIOD))
            return is_searched(pattern, exact, p->path);
    return false;
}

int outputs_check_pattern(const struct training_files *t, const struct ckpt_path *more, int n_more,
                          const char *option, const char *pattern, const char *const *inside)
{
    const struct ckpt_options *o = t->library;
    struct ckpt_path all[MOST];
    int n = list_files(t, all);

    all[n++] = (struct ckpt_path){"--plan-out", o->plan_out, CKPT_PATH_FILE, 0};
    all[n++] = (struct ckpt_path){"--graph-out", o->graph_out, CKPT_PATH_FILE, 0};
    all[n++] = (struct ckpt_path){"--machine-out", o->machine_out, CKPT_PATH_FILE, 0};
    all[n++] = (struct ckpt_path){"--trace-out", o->trace_out, CKPT_PATH_FILE, 0};
    for (int i = 0; i < n_more && n < MOST; i++)
        all[n++] = more[i];
    for (int i = 0; i < n; i++)
        if (all[i].path && all[i].kind != CKPT_PATH_INPUT && matches(pattern, &all[i], inside))
            return say_fail("%s %s: is written where %s %s reads: its files would be data of the "
                            "next run",
                            all[i].option, all[i].path, option, pattern);
    return 0;
}

int outputs_untrained(const struct ckpt_options *o)
{
    const struct ckpt_options usual = CKPT_OPTIONS_INIT;
    const struct {
        const char *option;
        bool given;
    } all[] = {
        {"--plan-in", o->plan_in},
        {"--plan-out", o->plan_out},
        {"--graph-out", o->graph_out},
        {"--machine-out", o->machine_out},
        {"--trace-out", o->trace_out},
        {"--zero", o->zero != usual.zero},
        {"--shard-over", o->shard_over},
        {"--check-ranks", o->check_ranks != usual.check_ranks},
        {"--state", o->state},
        {"--activations", o->activations},
        {"--sequence", o->sequence != 1 && o->sequence},
        {"--stages", o->stages != 1 && o->stages},
        {"--tensor", o->tensor != 1 && o->tensor},
        {"--save-async", o->save_async},
        {"--qat", o->qat},
        {"--qat-ranges", o->qat_ranges},
        {"--qat-skip", o->qat_skip},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given)
            return say_fail("%s is for programs that train; this one does not: leave it out",
                            all[i].option);
    return 0;
}
