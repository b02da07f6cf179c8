/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that has set a locale with decimal commas: options, plans, graphs, machine files,
 * traces and states are the same text as in the C locale, and each locale reads what the other
 * wrote.  The locale is made here, by localedef of the C library alone.
 */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "core/number.h"

enum { FILES = 5, BATCH = 4, STEPS = 12, NAME = 64 };
static const char *const names[FILES] = {"plan", "graph", "machine", "trace", "state"};
static const char *const locales[] = {"C", "comma"};
static char directory[] = "test_locale.tmp-XXXXXX";

static char *in_directory(char dst[NAME], const char *locale, const char *name)
{
    snprintf(dst, NAME, "%s/%s.%s", directory, locale, name);
    return dst;
}

/* ---- the locale ------------------------------------------------------------------------------ */

static void write_source(FILE *f)
{
    fputs("comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \"<U002C>\"\n"
          "thousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n",
          f);
}

static void write_charmap(FILE *f)
{
    fputs("<code_set_name> ASCII\n<comment_char> %\n<escape_char> /\nCHARMAP\n", f);
    for (int c = 0; c < 128; c++)
        fprintf(f, "<U%04X> /x%02x\n", (unsigned)c, (unsigned)c);
    fputs("END CHARMAP\n", f);
}

static void write_to(const char *name, void (*put)(FILE *f))
{
    char path[NAME];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    put(f);
    assert_int_equal(fclose(f), 0);
}

/* Whether there is such a locale now; localedef misses the other categories and says so. */
static bool make_locale(void)
{
    char command[256];
    write_to("source", write_source);
    write_to("charmap", write_charmap);
    snprintf(command, sizeof command,
             "localedef -c -i %s/source -f %s/charmap ./%s/comma >/dev/null 2>&1", directory,
             directory, directory);
    if (system(command) == -1 || setenv("LOCPATH", directory, 1))
        return false;
    bool made = setlocale(LC_NUMERIC, "comma");
    setlocale(LC_NUMERIC, "C");
    return made;
}

static void use(const char *locale)
{
    char text[NUMBER_TEXT];
    assert_non_null(setlocale(LC_NUMERIC, locale));
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, strcmp(locale, "C") ? "0,5" : "0.5");
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_numbers(void **state)
{
    (void)state;
    char text[NUMBER_TEXT], *end, *memory;
    size_t size;
    use("comma");
    number_format(text, 0.1);
    assert_string_equal(text, "0.1");
    number_format(text, -1.5e300);
    assert_string_equal(text, "-1.5e+300");
    number_format_float(text, 0.9f);
    assert_string_equal(text, "0.9");
    assert_true(number_parse("2.5,", &end) == 2.5 && *end == ',');
    FILE *f = open_memstream(&memory, &size);
    number_put(f, 9, 0.95f);
    fclose(f);
    assert_string_equal(memory, "0.949999988");
    free(memory);
    use("comma"); /* it is the thread's again */
    use("C");
}

static ckpt_tensor weight;

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    (void)user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4});
    ckpt_tensor y = ckpt_clamp(t, ckpt_linear(t, x, weight, CKPT_NONE), -0.25f, 2.75f);
    return ckpt_mean(t, ckpt_mul(t, y, y), CKPT_ALL_AXES);
}

static void must(ckpt *c, int rc)
{
    if (rc)
        fail_msg("%s: %s", ckpt_error_name(rc), ckpt_error(c));
}

/* A context with options as typed, whose group makes the state describe its optimizer. */
static ckpt_program *open_run(ckpt **c, struct ckpt_options *o)
{
    char *argv[] = {(char *)"test", (char *)"--io-deadline", (char *)"7.5", NULL};
    int argc = 3;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_optimizer_group group = CKPT_OPTIMIZER_GROUP_INIT;
    ckpt_program *p;
    o->device = "cpu", o->threads = 1;
    must(NULL, ckpt_options_parse(o, &argc, argv));
    assert_true(o->io_deadline == 7.5);
    must(NULL, ckpt_open(c, o));
    weight = ckpt_param(*c, "w", CKPT_F32, 2, (int64_t[]){4, 4}, CKPT_ONES, true);
    ckpt_optimizer *adam = ckpt_adamw(*c, &adamw);
    group.weight_decay = 0.125f;
    must(*c, ckpt_optimizer_group(adam, "w", &group));
    must(*c, ckpt_compile(*c, record, NULL, adam, BATCH, &p));
    return p;
}

static void write_files(const char *locale)
{
    char path[FILES][NAME];
    float x[4 * BATCH] = {0.5f};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    for (int i = 0; i < FILES; i++)
        in_directory(path[i], locale, names[i]);
    o.plan_out = path[0], o.graph_out = path[1], o.machine_out = path[2], o.trace_out = path[3];
    use(locale);
    ckpt_program *p = open_run(&c, &o);
    must(c, ckpt_feed(p, "x", x, sizeof x));
    for (int i = 0; i < STEPS; i++)
        must(c, ckpt_step(p, NULL));
    must(c, ckpt_save_state(c, path[4]));
    must(c, ckpt_unwritten(c));
    ckpt_close(c);
    use("C");
}

static char *read_file(const char *locale, const char *name, size_t *size)
{
    char path[NAME];
    FILE *f = fopen(in_directory(path, locale, name), "r");
    char *text = calloc(1, 1 << 20);
    assert_non_null(f);
    assert_non_null(text);
    *size = fread(text, 1, 1 << 20, f);
    fclose(f);
    return text;
}

/* Plan, graph and state have no measured time in them. */
static void test_same_text(void **state)
{
    (void)state;
    const int same[] = {0, 1, 4};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        size_t n, m;
        char *plain = read_file("C", names[same[i]], &n);
        char *other = read_file("comma", names[same[i]], &m);
        if (n != m || memcmp(plain, other, n))
            fail_msg("%s: another text under a locale", names[same[i]]);
        free(plain);
        free(other);
    }
}

static void test_json(void **state)
{
    (void)state;
    char path[NAME];
    for (int i = 2; i < 4; i++) {
        json_error_t e;
        json_t *root = json_load_file(in_directory(path, "comma", names[i]), 0, &e);
        if (!root)
            fail_msg("%s: %s", path, e.text);
        json_decref(root);
    }
}

/* Reads all files that were written under one locale under the other. */
static void test_read(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        char plan[NAME], machine[NAME], from[NAME];
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        ckpt *c;
        use(locales[!k]);
        o.plan_in = in_directory(plan, locales[k], "plan");
        o.machine = in_directory(machine, locales[k], "machine");
        open_run(&c, &o);
        must(c, ckpt_load_state(c, in_directory(from, locales[k], "state")));
        ckpt_close(c);
        use("C");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_same_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_read),
    };
    char command[NAME];
    if (!mkdtemp(directory))
        return 99;
    int rc = 77;
    if (make_locale()) {
        write_files("C");
        write_files("comma");
        rc = cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
    } else {
        puts("skipped: localedef makes no locale with decimal commas here");
    }
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command) ? 99 : rc;
}
