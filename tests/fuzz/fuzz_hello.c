/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of messages between ranks before they are one job, and of the rendezvous file.  The
 * first byte selects: 'c' challenge, 'h' hello, 'a' answer and the addresses after it, 'f' file.
 */
#include <stdlib.h>
#include <string.h>
#include "dist/comm/rendezvous_file.h"
#include "fuzz/fuzz.h"

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* Text ends within its bytes and has no control characters. */
static void check_text(const char *text, size_t size)
{
    size_t n = strnlen(text, size);
    must(n < size);
    for (size_t i = 0; i < n; i++)
        must(text[i] > ' ' && text[i] < 127);
}

/* A refusal says what is wrong. */
static bool accepted(const char *wrong)
{
    must(!wrong || *wrong);
    return !wrong;
}

static void check_challenge(const void *bytes, size_t n)
{
    struct challenge c;
    if (accepted(challenge_read(bytes, n, &c)))
        must((c.secured == 0 || c.secured == 1) && c.rank >= 0);
}

static void check_hello(const void *bytes, size_t n)
{
    static const struct job_key none;
    static const struct challenge c = {.magic = CHALLENGE_MAGIC};
    struct hello h;
    if (!accepted(hello_read(bytes, n, &h)))
        return;
    check_text(h.version, sizeof h.version);
    check_text(h.job, sizeof h.job);
    check_text(h.host, sizeof h.host);
    must(strlen(h.gives_up) < sizeof h.gives_up);
    must(h.rank > 0 && h.rank < h.size && h.to >= 0 && h.to < h.rank);
    must(h.port > 0 && h.port < 65536);
    hello_sign(&none, &c, &h);
    must(hello_is_proven(&none, &c, &h) == !h.secured);
}

static void check_address(const struct address *a)
{
    check_text(a->host, sizeof a->host);
    must(*a->host && a->port > 0 && a->port < 65536);
}

/* As a rank does: the answer, then the number of addresses that it announces. */
static void check_answer(const uint8_t *bytes, size_t n)
{
    struct answer a;
    size_t head = n < sizeof a ? n : sizeof a;
    if (!accepted(answer_read(bytes, head, &a)))
        return;
    must(strlen(a.sentence) < sizeof a.sentence);
    size_t rest = n - head, wanted = (size_t)a.n_addresses * sizeof(struct address);
    if (rest < wanted)
        return; /* a rank would wait for more */
    struct address *out = malloc(wanted + 1);
    if (out && accepted(addresses_read(bytes + head, wanted, out, a.n_addresses)))
        for (int32_t i = 0; i < a.n_addresses; i++)
            check_address(&out[i]);
    free(out);
}

static void check_file(const uint8_t *bytes, size_t n)
{
    char text[RENDEZVOUS_FILE_MAX] = "";
    struct rendezvous_file file;
    memcpy(text, bytes, n < sizeof text ? n : sizeof text - 1);
    if (!accepted(rendezvous_file_parse(text, &file)))
        return;
    struct address at = {.port = file.port};
    memcpy(at.host, file.host, sizeof at.host);
    check_address(&at);
    check_text(file.job, sizeof file.job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    /* Memory of exactly the right size: a sanitizer detects one byte too many. */
    uint8_t *copy = malloc(size > 1 ? size - 1 : 1);
    must(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    if (*data == 'c')
        check_challenge(copy, size - 1);
    else if (*data == 'h')
        check_hello(copy, size - 1);
    else if (*data == 'a')
        check_answer(copy, size - 1);
    else if (*data == 'f')
        check_file(copy, size - 1);
    free(copy);
    return 0;
}
