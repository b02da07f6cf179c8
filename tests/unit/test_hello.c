/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between ranks before they are one job: every field is checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "dist/comm/hello.h"
#include "dist/comm/rendezvous_file.h"

static void test_hellos_are_checked(void **state)
{
    struct hello bad, out;
    struct hello good = {.magic = HELLO_MAGIC,
                         .pid = 1,
                         .rank = 2,
                         .to = 1,
                         .size = 3,
                         .port = 9,
                         .version = "0.2.0",
                         .job = "test"};
    struct challenge c = {.magic = CHALLENGE_MAGIC};
    (void)state;
    assert_null(hello_read(&good, sizeof good, &out));
    assert_null(challenge_read(&c, sizeof c, &(struct challenge){0}));
    assert_non_null(hello_read(&good, sizeof good - 1, &out));
#define CHECK_BAD(change)                                                                          \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        assert_non_null(hello_read(&bad, sizeof bad, &out));                                       \
    } while (0)
    CHECK_BAD(bad.magic = __builtin_bswap64(bad.magic));
    CHECK_BAD(bad.magic++);
    CHECK_BAD(bad.port = 0);
    CHECK_BAD(bad.port = 65536);
    CHECK_BAD(bad.rank = 3);
    CHECK_BAD(bad.rank = -1);
    CHECK_BAD(bad.to = 2);
    CHECK_BAD(bad.to = -1);
    CHECK_BAD(bad.size = HELLO_MAX_RANKS + 1);
    CHECK_BAD(bad.secured = 2);
    CHECK_BAD(bad.pid = 0);
    CHECK_BAD(memset(bad.version, '1', sizeof bad.version));
    CHECK_BAD(memset(bad.host, 'h', sizeof bad.host));
    CHECK_BAD(memset(bad.job, 'j', sizeof bad.job));
    CHECK_BAD(memset(bad.gives_up, 'g', sizeof bad.gives_up));
    CHECK_BAD(bad.host[0] = 27);
    CHECK_BAD(bad.version[0] = 0);
#undef CHECK_BAD
}

/* As Python's hashlib has it: blake2b(b"helloworld", key=K, digest_size=32), where K is
 * blake2b(b"libckpt job 1\0" + token, digest_size=32). */
static void test_hash_is_blake2b(void **state)
{
    static const uint8_t known[JOB_MAC] = {0xf9, 0x7a, 0x94, 0xb9, 0xd9, 0x7d, 0x6f, 0xa8,
                                           0x33, 0x4c, 0x07, 0xdb, 0xc6, 0x63, 0x9f, 0x91,
                                           0xb9, 0xdc, 0xf5, 0xbf, 0x6c, 0xe0, 0xc4, 0x80,
                                           0xe2, 0xdc, 0x29, 0x98, 0x62, 0x88, 0x43, 0x03};
    const struct job_part parts[] = {{"hello", 5}, {"world", 5}};
    struct job_key key = {0};
    uint8_t mac[JOB_MAC];
    (void)state;
    if (!job_key_available())
        skip();
    assert_int_equal(job_key_from_token(&key, "a token of sixteen bytes or more"), 0);
    job_key_hash(&key, parts, 2, mac);
    assert_memory_equal(mac, known, JOB_MAC);
    assert_true(job_macs_equal(mac, known));
    mac[JOB_MAC - 1] ^= 1;
    assert_false(job_macs_equal(mac, known));
}

/* In memory of exactly their size, so that a sanitizer detects one byte too many. */
static void test_addresses_are_checked(void **state)
{
    struct address out[2], *in = malloc(2 * sizeof *in);
    (void)state;
    assert_non_null(in);
    memset(in, 0, 2 * sizeof *in);
    strcpy(in[0].host, "10.0.0.1");
    strcpy(in[1].host, "fe80::1%eth0");
    in[0].port = in[1].port = 1;
    assert_null(addresses_read(in, 2 * sizeof *in, out, 2));
    assert_non_null(addresses_read(in, 2 * sizeof *in, out, 1));
    in[1].port = 65536;
    assert_non_null(addresses_read(in, 2 * sizeof *in, out, 2));
    in[1].port = 1;
    strcpy(in[1].host, "a.name");
    assert_non_null(addresses_read(in, 2 * sizeof *in, out, 2));
    memset(in[1].host, '1', sizeof in[1].host); /* no end */
    assert_non_null(addresses_read(in, 2 * sizeof *in, out, 2));
    free(in);
}

static void test_answers_are_checked(void **state)
{
    struct answer good = {.magic = ANSWER_MAGIC, .n_addresses = 2}, bad, out;
    (void)state;
    assert_null(answer_read(&good, sizeof good, &out));
    assert_non_null(answer_read(&good, sizeof good - 1, &out));
#define CHECK_BAD(change)                                                                          \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        assert_non_null(answer_read(&bad, sizeof bad, &out));                                      \
    } while (0)
    CHECK_BAD(bad.magic = HELLO_MAGIC);
    CHECK_BAD(bad.verdict = -1);
    CHECK_BAD(bad.verdict = ANSWER_UNPROVEN + 1);
    CHECK_BAD(bad.verdict = ANSWER_UNPROVEN); /* with addresses */
    CHECK_BAD(bad.verdict = ANSWER_REFUSED);  /* the same, and without a reason */
    CHECK_BAD(bad.n_addresses = -1);
    CHECK_BAD(bad.n_addresses = HELLO_MAX_RANKS + 1);
    CHECK_BAD(memset(bad.sentence, 's', sizeof bad.sentence));
#undef CHECK_BAD
}

static void test_files_are_checked(void **state)
{
    static const char *const wrong[] = {
        "",
        "ckpt node1 4000 []\n",
        "libckpt rendezvous 1\naddress 10.0.0.1 0\njob -\nsecret none\n",
        "libckpt rendezvous 1\naddress 10.0.0.1 65536\njob -\nsecret none\n",
        "libckpt rendezvous 1\naddress 10.0.0.1 040\njob -\nsecret none\n",
        "libckpt rendezvous 1\naddress node1 40\njob -\nsecret none\n",
        "libckpt rendezvous 1\naddress 10.0.0.1 40\njob -\nsecret 0123\n",
        "libckpt rendezvous 1\naddress 10.0.0.1 40\njob -\nsecret none\nmore\n",
        "libckpt rendezvous 1\naddress 10.0.0.1 40\njob -\nsecret none",
    };
    struct rendezvous_file file;
    (void)state;
    assert_null(rendezvous_file_parse(
        "libckpt rendezvous 1\naddress 10.0.0.1 40\njob 4711\nsecret none\n", &file));
    assert_string_equal(file.host, "10.0.0.1");
    assert_int_equal(file.port, 40);
    assert_string_equal(file.job, "4711");
    assert_false(file.has_secret);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!rendezvous_file_parse(wrong[i], &file))
            fail_msg("accepted: \"%s\"", wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hellos_are_checked),    cmocka_unit_test(test_answers_are_checked),
        cmocka_unit_test(test_addresses_are_checked), cmocka_unit_test(test_files_are_checked),
        cmocka_unit_test(test_hash_is_blake2b),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
