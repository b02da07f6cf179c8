/* SPDX-License-Identifier: Apache-2.0 */
/* Validation of handshake messages, and the fields that their hashes cover. */
#include <string.h>
#include "dist/comm/hello.h"

_Static_assert(sizeof(struct challenge) == 16 + JOB_NONCE, "no padding travels");
_Static_assert(sizeof(struct hello) == 56 + 2 * HELLO_TEXT + CKPT_MESSAGE + JOB_NONCE + JOB_MAC,
               "no padding travels");
_Static_assert(sizeof(struct answer) == 24 + CKPT_MESSAGE + JOB_MAC, "no padding travels");
_Static_assert(sizeof(struct address) == SOCKET_HOST + 4, "no padding travels");

static const char *const endless = "text without an end or with strange characters";

/* ---- reading --------------------------------------------------------------------------------- */

static const char *magic_is_wrong(uint64_t magic, uint64_t right)
{
    if (magic == right)
        return NULL;
    if (magic == __builtin_bswap64(right))
        return "its machine has another order of bytes";
    return magic >> 8 == right >> 8 ? "another version of libckpt" : "no message of libckpt";
}

bool hello_text_is_good(const char *text, size_t size, bool may_be_empty)
{
    size_t n = strnlen(text, size);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return n < size && (n || may_be_empty);
}

/* Numeric IPv4 or IPv6 address, with an interface name where IPv6 needs one. */
static bool is_address(const char *host)
{
    const char *scope = strchr(host, '%');
    return strspn(host, "0123456789abcdefABCDEF.:") ==
           (scope ? (size_t)(scope - host) : strlen(host));
}

static bool is_port(int32_t port)
{
    return port >= 1 && port <= 65535;
}

const char *challenge_read(const void *bytes, size_t n, struct challenge *out)
{
    const char *wrong;
    if (n != sizeof *out)
        return "another length";
    memcpy(out, bytes, n);
    if ((wrong = magic_is_wrong(out->magic, CHALLENGE_MAGIC)))
        return wrong;
    if (out->secured < 0 || out->secured > 1 || out->rank < 0 || out->rank >= HELLO_MAX_RANKS)
        return "numbers out of range";
    return NULL;
}

const char *hello_read(const void *bytes, size_t n, struct hello *out)
{
    const char *wrong;
    if (n != sizeof *out)
        return "another length";
    memcpy(out, bytes, n);
    if ((wrong = magic_is_wrong(out->magic, HELLO_MAGIC)))
        return wrong;
    if (!hello_text_is_good(out->version, sizeof out->version, false) ||
        !hello_text_is_good(out->job, sizeof out->job, true) ||
        !hello_text_is_good(out->host, sizeof out->host, true) ||
        !memchr(out->gives_up, '\0', sizeof out->gives_up))
        return endless;
    if (out->secured < 0 || out->secured > 1 || out->pid < 1 || !is_port(out->port) ||
        out->size < 2 || out->size > HELLO_MAX_RANKS || out->rank < 1 || out->rank >= out->size ||
        out->to < 0 || out->to >= out->rank || out->former_size < 0 || out->former_rank < 0 ||
        out->former_size > HELLO_MAX_RANKS || out->former_rank > out->former_size)
        return "numbers out of range";
    return NULL;
}

const char *answer_read(const void *bytes, size_t n, struct answer *out)
{
    const char *wrong;
    if (n != sizeof *out)
        return "another length";
    memcpy(out, bytes, n);
    if ((wrong = magic_is_wrong(out->magic, ANSWER_MAGIC)))
        return wrong;
    if (!memchr(out->sentence, '\0', sizeof out->sentence))
        return endless;
    if (out->verdict < ANSWER_WELCOME || out->verdict > ANSWER_WAIT || out->rank < 0 ||
        out->rank >= HELLO_MAX_RANKS || out->n_addresses < 0 ||
        out->n_addresses > (out->verdict == ANSWER_WELCOME ? HELLO_MAX_RANKS : 0) ||
        (out->verdict == ANSWER_REFUSED && !*out->sentence))
        return "numbers out of range";
    return NULL;
}

const char *addresses_read(const void *bytes, size_t n, struct address *out, int32_t n_addresses)
{
    if (n != (size_t)n_addresses * sizeof *out)
        return "another length";
    if (n)
        memmove(out, bytes, n);
    for (int32_t i = 0; i < n_addresses; i++) {
        if (!hello_text_is_good(out[i].host, sizeof out[i].host, false) || !is_address(out[i].host))
            return "an invalid address";
        if (!is_port(out[i].port))
            return "numbers out of range";
    }
    return NULL;
}

/* ---- hashes ---------------------------------------------------------------------------------- */

/* Covers the challenge and all of the hello except its own hash. */
static void hash_hello(const struct job_key *key, const struct challenge *c, const struct hello *h,
                       uint8_t mac[JOB_MAC])
{
    const struct job_part parts[] = {
        {"hello", 5}, {c, sizeof *c}, {h, offsetof(struct hello, mac)}};
    job_key_hash(key, parts, 3, mac);
}

static void hash_answer(const struct job_key *key, const struct challenge *c, const struct hello *h,
                        const struct address *addresses, const struct answer *a,
                        uint8_t mac[JOB_MAC])
{
    const struct job_part parts[] = {
        {"answer", 6},
        {c, sizeof *c},
        {h, sizeof *h},
        {a, offsetof(struct answer, mac)},
        {addresses, (size_t)a->n_addresses * sizeof *addresses},
    };
    job_key_hash(key, parts, 5, mac);
}

void hello_sign(const struct job_key *key, const struct challenge *c, struct hello *h)
{
    hash_hello(key, c, h, h->mac);
}

bool hello_is_proven(const struct job_key *key, const struct challenge *c, const struct hello *h)
{
    uint8_t mac[JOB_MAC];
    hash_hello(key, c, h, mac);
    return h->secured == key->secured && job_macs_equal(mac, h->mac);
}

void answer_sign(const struct job_key *key, const struct challenge *c, const struct hello *h,
                 const struct address *addresses, struct answer *a)
{
    hash_answer(key, c, h, addresses, a, a->mac);
}

bool answer_is_proven(const struct job_key *key, const struct challenge *c, const struct hello *h,
                      const struct address *addresses, const struct answer *a)
{
    uint8_t mac[JOB_MAC];
    hash_answer(key, c, h, addresses, a, mac);
    return job_macs_equal(mac, a->mac);
}
