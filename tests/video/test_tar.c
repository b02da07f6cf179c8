/* SPDX-License-Identifier: Apache-2.0 */
/* Tar files as tar writes them, and captions beside videos in tar files and directories. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/common/say.h"
#include "../../examples/common/shard.h"
#include "../../examples/video/videos.h"

static char said[4096], folder[] = "/tmp/test_tar_XXXXXX";

static int keep_words(const char *fmt, va_list ap)
{
    size_t n = strlen(said);

    vsnprintf(said + n, sizeof said - n, fmt, ap);
    return -1;
}

int say_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    keep_words(fmt, ap);
    va_end(ap);
    return -1;
}

void say_note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    keep_words(fmt, ap);
    va_end(ap);
}

const char *say_count(char dst[32], int64_t n)
{
    snprintf(dst, 32, "%lld", (long long)n);
    return dst;
}

/* Runs a command of the shell in the folder. */
static void run(const char *command)
{
    char all[2048];

    snprintf(all, sizeof all, "cd %s && { %s; }", folder, command);
    assert_int_equal(system(all), 0);
}

static const char *path_of(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* "NAME=BYTES " of all members, at most 9 bytes each. */
static const char *members_of(const char *name)
{
    static char all[2048];
    struct shard s;
    size_t n = 0;
    FILE *f = fopen(path_of(name), "rb");

    said[0] = all[0] = 0;
    assert_int_equal(shard_open(&s, path_of(name)), 0);
    for (int64_t i = 0; i < s.n; i++) {
        char bytes[10] = "";
        size_t size = s.member[i].size < 9 ? (size_t)s.member[i].size : 9;
        fseek(f, (long)s.member[i].start, SEEK_SET);
        assert_int_equal(fread(bytes, 1, size, f), size);
        n += (size_t)snprintf(all + n, sizeof all - n, "%s=%s ", s.member[i].name, bytes);
    }
    shard_close(&s);
    fclose(f);
    return all;
}

static void test_links(void **state)
{
    (void)state;
    run("mkdir l; echo -n one >l/a.mp4; ln l/a.mp4 l/b.mp4; ln l/b.mp4 l/c.mp4; ln -s a.mp4 "
        "l/d.mp4;"
        "ln -s nowhere l/e.mp4; tar cf l.tar l/a.mp4 l/b.mp4 l/c.mp4 l/d.mp4 l/e.mp4");
    assert_string_equal(members_of("l.tar"), "l/a.mp4=one l/b.mp4=one l/c.mp4=one l/d.mp4=one ");
    assert_non_null(strstr(said, "links to nothing in it: l/e.mp4"));
    run("ln l/a.mp4 l/\xc3\xa9.mp4; ln l/a.mp4 l/\xc3\xa8.mp4; ln -s \xc3\xa9.mp4 l/\xc3\xaa.mp4;"
        "tar --format=pax -cf wide.tar l/\xc3\xa9.mp4 l/\xc3\xa8.mp4 l/\xc3\xaa.mp4");
    assert_string_equal(members_of("wide.tar"),
                        "l/\xc3\xa9.mp4=one l/\xc3\xa8.mp4=one l/\xc3\xaa.mp4=one ");
    run("tar cf late.tar l/d.mp4 l/a.mp4"); /* the link comes first */
    assert_string_equal(members_of("late.tar"), "l/d.mp4=one l/a.mp4=one ");
}

/* A member that was added again, and a file behind the end. */
static void test_twice(void **state)
{
    (void)state;
    run("mkdir w; echo -n old >w/a; echo -n b >w/b; tar cf w.tar w/a w/b; echo -n new >w/a;"
        "tar rf w.tar w/a; tar cf x.tar w/b; cat w.tar x.tar >wx.tar");
    assert_string_equal(members_of("w.tar"), "w/b=b w/a=new ");
    assert_non_null(strstr(said, "replaced by later members of the same name: w/a"));
    assert_null(strstr(said, "behind its end"));
    assert_string_equal(members_of("wx.tar"), "w/b=b w/a=new ");
    assert_non_null(strstr(said, "has more behind its end"));
}

/* The content of a member, holes included, as FFmpeg gets it. */
static void check_content(const struct shard_member *m, const char *tar)
{
    char *own = calloc(1, (size_t)m->size + 1), *real = calloc(1, (size_t)m->size + 1);
    FILE *f = fopen(path_of(m->name), "rb"), *t = fopen(tar, "rb");

    assert_int_equal(fread(real, 1, (size_t)m->size + 1, f), m->size);
    const struct shard_run whole = {0, m->size, m->start}, *run = m->runs ? m->run : &whole;
    for (int64_t i = 0; i < (m->runs ? m->runs : 1); i++, run++) {
        fseek(t, (long)run->start, SEEK_SET);
        assert_int_equal(fread(own + run->at, 1, (size_t)run->bytes, t), run->bytes);
    }
    assert_memory_equal(own, real, (size_t)m->size);
    fclose(f);
    fclose(t);
    free(own);
    free(real);
}

/* Holes at the start, in the middle and at the end, many of them (a map of several blocks), a file
 * that is one hole, a link to a member with holes, and a member behind. */
static void test_sparse(void **state)
{
    static const char *const formats[] = {"gnu", "pax --sparse-version=0.0",
                                          "pax --sparse-version=0.1", "pax --sparse-version=1.0"};
    char command[512], tar[64];
    int64_t holes = 0;

    (void)state;
    run("mkdir s; truncate -s 300K s/a; head -c 70000 /dev/urandom | "
        "dd of=s/a bs=1000 seek=100 conv=notrunc 2>/dev/null;"
        "for i in $(seq 0 40); do echo x$i | dd of=s/many bs=1 seek=$((i * 48000)) conv=notrunc "
        "2>/dev/null; done;"
        "truncate -s 100K s/none; cp --sparse=always s/a s/cp; ln s/a s/link; echo -n b >s/b");
    for (int i = 0; i < 4; i++) {
        struct shard s;
        snprintf(command, sizeof command,
                 "tar --format=%s --sparse -cf s%d.tar s/a s/many s/none s/cp s/link s/b",
                 formats[i], i);
        run(command);
        snprintf(tar, sizeof tar, "s%d.tar", i);
        snprintf(command, sizeof command, "%s", path_of(tar));
        said[0] = 0;
        assert_int_equal(shard_open(&s, command), 0);
        assert_string_equal(said, "");
        assert_int_equal(s.n, 6);
        for (int64_t k = 0; k < s.n; k++) {
            check_content(&s.member[k], command);
            holes += s.member[k].runs > 1;
        }
        shard_close(&s);
    }
    if (!holes)
        print_message("this file system has no holes\n");
}

static void test_names(void **state)
{
    static const char *const formats[] = {"pax", "gnu", "posix", "ustar"};
    char command[256];

    (void)state;
    run("n=$(printf %0120d 0); mkdir n; echo -n long >n/$n; echo -n wide >n/\xc3\xa9\xe6\xb5\xb7; "
        ":>n/e;"
        "echo -n hidden >n/__key__");
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command,
                 "tar --format=%s -cf n.tar n/\xc3\xa9\xe6\xb5\xb7 n/e n/__key__ n/0*", formats[i]);
        if (i == 3)
            strcpy(strstr(command, " n/0*"), ""); /* too long for it */
        run(command);
        const char *all = members_of("n.tar"), *first = "n/\xc3\xa9\xe6\xb5\xb7=wide n/e= ";
        assert_int_equal(strncmp(all, first, strlen(first)), 0);
        assert_int_equal(strlen(all) - strlen(first), i == 3 ? 0 : 2 + 120 + 6);
        assert_string_equal(said, "");
    }
}

/* Cut at any place: the members before it, a note, and no bytes beyond the end. */
static void test_cut(void **state)
{
    char command[64];

    (void)state;
    run("mkdir c; echo -n one >c/a; head -c 3000 /dev/zero >c/b; echo -n two >c/c; tar cf c.tar -C "
        "c a b c");
    /* Headers are at 0, 1024 and 4608, the bytes of c at 5120. */
    for (int size = 512; size < 6000; size += 499) {
        snprintf(command, sizeof command, "head -c %d c.tar >cut.tar", size);
        run(command);
        struct shard s;
        said[0] = 0;
        int rc = shard_open(&s, path_of("cut.tar"));
        int64_t whole = size >= 5632 ? 3 : size >= 4536 ? 2 : size >= 1027 ? 1 : 0;
        for (int64_t i = 0; i < s.n; i++)
            assert_true(s.member[i].start + s.member[i].size <= size);
        if (!rc && s.n != whole)
            fail_msg("%d bytes: %d members", size, (int)s.n);
        assert_true(rc || size >= 5632 || strstr(said, "truncated"));
        shard_close(&s);
    }
    run("echo hello >no.tar; : >empty.tar");
    struct shard s;
    assert_int_equal(shard_open(&s, path_of("no.tar")), -1);
    shard_close(&s);
    assert_int_equal(shard_open(&s, path_of("empty.tar")), -1);
    shard_close(&s);
}

/* ---- captions ------------------------------------------------------------------------------ */

static const char make_captions[] =
    "mkdir v; printf '  the sea\\r\\n' >v/a.txt; printf 'dots' >v/b.c.txt; printf 'one dot' "
    ">v/b.txt;"
    "printf '\\357\\273\\277{\"caption\": \" json \"}' >v/j.json; printf '{\"text\": \"t\"}' "
    ">v/t.json;"
    "printf '{\"caption\": [\"l\"]}' >v/list.json; printf '{' >v/bad.json;"
    "printf 'a\\0b' >v/zero.txt; printf 'a' | iconv -t UTF-16 >v/wide.txt; printf '\\351t' "
    ">v/latin.txt;"
    "printf 'text' >v/both.txt; printf '{\"caption\": \"json\"}' >v/both.json;"
    "printf '\\343\\200\\200sea\\302\\240' >v/blank.txt; printf 'key' >v/key.txt; : >v/none.txt;"
    "tar cf v.tar v/*.json v/*.txt";

static const struct {
    const char *video, *caption, *words;
} captions[] = {
    {"a.mp4", "the sea", ""},
    {"b.c.mp4", "dots", ""},
    {"b.mp4", "one dot", ""},
    {"b.d.mp4", "one dot", ""}, /* webdataset's key */
    {"j.mp4", "json", ""},
    {"t.mp4", "t", ""},
    {"list.mp4", NULL, "list.json: has no caption"},
    {"bad.mp4", NULL, "bad.json: is not JSON"},
    {"zero.mp4", NULL, "zero.txt, line 1: has a zero byte"},
    {"wide.mp4", NULL, "wide.txt: is UTF-16"},
    {"latin.mp4", NULL, "latin.txt, line 1: is not UTF-8"},
    {"both.mp4", "text", ""},
    {"blank.mp4", "sea", ""},
    {"key.0.mp4", "key", ""},
    {"none.mp4", "", ""},
    {"missing.mp4", NULL, ""},
};

static void check_caption(size_t i, char *caption, const char *where)
{
    const char *want = captions[i].caption;

    if (!caption != !want || (want && strcmp(caption, want) != 0))
        fail_msg("%s, %s: %s", where, captions[i].video, caption ? caption : "none");
    if (captions[i].words[0] ? !strstr(said, captions[i].words) : said[0])
        fail_msg("%s, %s: says %s", where, captions[i].video, said);
    free(caption);
}

static void test_captions(void **state)
{
    struct captions_in in;
    struct shard s;
    char video[64], tar[256], beside[256];

    (void)state;
    run(make_captions);
    snprintf(tar, sizeof tar, "%s", path_of("v.tar"));
    assert_int_equal(shard_open(&s, tar), 0);
    assert_int_equal(captions_in_open(&in, tar, &s), 0);
    for (size_t i = 0; i < sizeof captions / sizeof *captions; i++) {
        snprintf(video, sizeof video, "v/%s", captions[i].video);
        snprintf(beside, sizeof beside, "%s", path_of(video));
        said[0] = 0;
        check_caption(i, caption_beside(beside), "directory");
        said[0] = 0;
        check_caption(i, captions_in_find(&in, video), "tar file");
    }
    captions_in_close(&in);
    shard_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_links), cmocka_unit_test(test_twice), cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_names), cmocka_unit_test(test_cut),   cmocka_unit_test(test_captions),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder) ? 1 : 0;
}
