/* SPDX-License-Identifier: Apache-2.0 */
/* Cleaning of captions, rule by rule. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../examples/common/say.h"
#include "../../examples/text/clean.h"

const char say_program[] = "test_clean";

static const struct {
    const char *from, *to;
} cases[] = {
    /* nothing to do but lower case */
    {"", ""},
    {"A Rabbit in a meadow.", "a rabbit in a meadow."},
    {"  two   blanks\tand\na line ", "two blanks and a line"},
    {"\xc3\x84\xc3\x96 \xce\xa3 \xd0\x96", "\xc3\xa4\xc3\xb6 \xcf\x83 \xd0\xb6"},
    {"a cat, aesthetic score: 6.5, motion score: 5.0.",
     "a cat, aesthetic score: 6.5, motion score: 5.0."},
    /* URLs, addresses */
    {"a%20dog+runs", "a dog runs"},
    {"<person> waves", "person waves"},
    {"see https://a.b/c now", "see a. b c now"},
    {"see www.example.com/x-y/ now", "see now"},
    {"mail me@example.com now", "mail me now"},
    {"by @someone here", "by here"},
    /* HTML */
    {"a <b>bold</b> sea<!-- not --> x", "a bold sea x"},
    {"1 < 2 and a <c", "1 < 2 and a <c"},
    {"salt &amp; pepper &#65;&#x42;", "salt pepper ab"},
    /* scripts, dashes, quotes */
    {"a \xe4\xbd\xa0\xe5\xa5\xbd b", "a b"},
    {"sun\xe2\x80\x94rise \xe2\x80\x93 set", "sun-rise - set"},
    {"\xe2\x80\x9cold\xe2\x80\x9d \xe2\x80\x99s house", "\"old\" 's house"},
    {"\"quoted\"", "quoted"},
    {"'''many\"\" quotes", "\"many\" quotes"},
    /* numbers and names of files */
    {"at 192.168.0.1 home", "at home"},
    {"it is 9:15 ", "it is 9:15"},
    {"a\\nb", "a b"},
    {"#12 item #123456 and 1234567", "item and"},
    {"photo IMG.JPG of a sea", "photo of a sea"},
    {"wait... what", "wait what"},
    {"a (b) [c] {d} * e", "a b c d e"},
    {"one . two", "one two"},
    {"a-b-c_d-e", "a b c d e"},
    {"a-b-c", "a-b-c"},
    /* what shops write */
    {"jc6640 shoe", "shoe"},
    {"6640vc231 b2b shoe", "shoe"},
    {"free shipping of worldwide free shipping", "of"},
    {"free download free of a song", "of a song"},
    {"click for more sea", "sea"},
    {"a png image here", "a here"},
    {"page 12 of it", "of it"},
    {"sofa 10.5\xc3\x97"
     "20 red 3x4",
     "sofa red"},
    /* punctuation, edges */
    {"colour : red", "colour: red"},
    {"red,green/blue", "red, green blue"},
    {"-begins and ends_", "begins and ends"},
    {".jpeg", "."},
    {".hidden", ""},
    /* made with Python 3.11, ftfy 6.3 and BeautifulSoup 4.15 */
    {"- \"Hello world\" ...", "hello world"},
    {"\"Sunset\" | \t", "sunset"},
    {"\"shoe\" jc6640", "shoe"},
    {"A Trip to \xc4\xb0stanbul", "a trip to i\xcc\x87stanbul"},
    {"\xce\x9f\xce\x94\xce\x9f\xce\xa3 sign, \xce\xa3\xce\x9f\xce\xa6\xce\x9f\xce\xa3",
     "\xce\xbf\xce\xb4\xce\xbf\xcf\x82 sign, \xcf\x83\xce\xbf\xcf\x86\xce\xbf\xcf\x82"},
    {"\xce\x91\xce\xa3'\xce\x91 \xce\xa3", "\xce\xb1\xcf\x83'\xce\xb1 \xcf\x83"},
    {"Henry \xe2\x85\xa7 rides, \xe2\x93\x82 sign", "henry \xe2\x85\xb7 rides, \xe2\x93\x9c sign"},
    {"\xd0\xa1\xd1\x96\xd0\xbc\xca\xbc\xd1\x8f", "\xd1\x81\xd1\x96\xd0\xbc'\xd1\x8f"},
    {"a \xe2\x80\x9aquoted\xe2\x80\x98 word, \xe2\x80\x9eso\xe2\x80\x9f",
     "a 'quoted' word, \"so\""},
    {"photo of a sea - IMG_1234.jpg", "photo of a sea"},
    {"\xef\xac\x81ne \xef\xac\x80 \xc4\xb3s", "fine ff ijs"},
    {"a <script>var b;</script> c <style>d</style> e", "a c e"},
    {"\xc3\xa9www.example.com/x y", "\xc3\xa9www y"},
    {"a.com/b.c.net y", "y"},
};

static void test_cases(void **state)
{
    struct cleaner *c;
    const char *left;
    int failures = 0;

    (void)state;
    assert_int_equal(cleaner_open(&c, TEXT_CLEANED), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = cleaner_clean(c, cases[i].from, &left);
        assert_non_null(out);
        assert_null(left);
        if (strcmp(out, cases[i].to)) {
            print_error("\"%s\": \"%s\", not \"%s\"\n", cases[i].from, out, cases[i].to);
            failures++;
        }
        free(out);
    }
    assert_int_equal(failures, 0);
    cleaner_close(c);
}

/* Text that is not cleaned is reported. */
static void test_left(void **state)
{
    static const struct {
        const char *text, *left;
    } all[] = {
        {"caf&eacute; here", "an entity of HTML"},
        {"a &lt; b &nbsp; c", NULL},
        {"caf\xc3\x83\xc2\xa9", "text that ftfy would repair"}, /* UTF-8 twice */
        {"it\xc3\xa2\xe2\x82\xac\xe2\x84\xa2s", "text that ftfy would repair"},
        {"\xef\xbc\xa1", "text that ftfy would repair"}, /* a wide letter */
        {"\xe0\xa4\x85", NULL},
        {"\"Hello world\": ...", "ends that Open-Sora and diffusers clean in different ways"},
        {"'A man says \"stop\"*", "ends that Open-Sora and diffusers clean in different ways"},
        {"a dog ...", NULL},
        {"<a &lt; b", "an entity of HTML"},
        {"bad \xff byte", "text that ftfy would repair"},
        {"caf\xc3\xa9", NULL},
    };
    struct cleaner *c;
    const char *left;

    (void)state;
    assert_int_equal(cleaner_open(&c, TEXT_CLEANED), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *out = cleaner_clean(c, all[i].text, &left);
        assert_non_null(out);
        if (!left != !all[i].left || (left && strcmp(left, all[i].left)))
            fail_msg("\"%s\": %s", all[i].text, left ? left : "nothing is left");
        free(out);
    }
    cleaner_close(c);
}

/* Wan's cleaning: entities of HTML, twice, and blanks. */
static void test_unescaped(void **state)
{
    static const char *const all[][2] = {
        {"", ""},
        {" \t\n", ""},
        {"  A  Cat\tand\na <b>DOG</b>. ", "A Cat and a <b>DOG</b>."},
        {"salt &amp;amp; pepper &lt;3", "salt & pepper <3"},
        {"&amp;#65;&nbsp; &#x42;", "A B"},
        {"&amp;amp;amp;", "&amp;"},
        {"50%20 + 1 < 2", "50%20 + 1 < 2"},
        {"\xe4\xbd\xa0\xe5\xa5\xbd\xe3\x80\x80\xe4\xbd\xa0",
         "\xe4\xbd\xa0\xe5\xa5\xbd \xe4\xbd\xa0"},
    };
    struct cleaner *c;
    const char *left;

    (void)state;
    assert_int_equal(cleaner_open(&c, TEXT_UNESCAPED), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *out = cleaner_clean(c, all[i][0], &left);
        assert_non_null(out);
        assert_null(left);
        assert_string_equal(out, all[i][1]);
        free(out);
    }
    char *out = cleaner_clean(c, "caf&eacute; here", &left);
    assert_string_equal(left, "an entity of HTML");
    assert_string_equal(out, "caf&eacute; here");
    free(out);
    cleaner_close(c);
}

/* All byte values in order end without an error. */
static void test_bytes(void **state)
{
    struct cleaner *c;
    const char *left;
    char text[400];

    (void)state;
    assert_int_equal(cleaner_open(&c, TEXT_CLEANED), 0);
    for (int i = 0; i < 300; i++) {
        int n = 0;
        for (unsigned k = 0; k < 120; k++) {
            unsigned byte = (unsigned)(i * 131) + k * (unsigned)(2 * i + 1);
            text[n++] = byte % 7 ? (char)(byte % 255 + 1) : "<&#%;x.-"[byte / 7 % 8];
        }
        text[n] = 0;
        char *out = cleaner_clean(c, text, &left);
        assert_non_null(out);
        free(out);
    }
    cleaner_close(c);
}

/* A megabyte takes a part of a second where time is linear in its length, else minutes. */
static void test_long(void **state)
{
    static const char *const parts[] = {"<a", "a.", " ", "1", "<!--"};
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES + 3);
    struct cleaner *c;
    const char *left;

    (void)state;
    assert_int_equal(cleaner_open(&c, TEXT_CLEANED), 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t n = strlen(parts[i]), at = 0;
        text[at++] = 'x';
        while (at + n <= BYTES) {
            memcpy(text + at, parts[i], n);
            at += n;
        }
        text[at++] = 'x';
        text[at] = 0;
        char *out = cleaner_clean(c, text, &left);
        assert_non_null(out);
        free(out);
    }
    free(text);
    cleaner_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long), cmocka_unit_test(test_cases), cmocka_unit_test(test_unescaped),
        cmocka_unit_test(test_left), cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
