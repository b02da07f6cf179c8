/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of jobs, with libsodium if available. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#ifdef HAVE_SODIUM
#include <sodium.h>
#endif
#include "dist/comm/job_key.h"

/* Avoids libsodium's generator, which ends the process if the kernel fails. */
int job_random(void *dst, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = getrandom((char *)dst + at, n - at, 0);
        if (got < 0 && errno != EINTR)
            return error_set(CKPT_ECOMM, "the system gives no random numbers: %s", strerror(errno));
        at += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int job_key_from_token(struct job_key *key, const char *token)
{
    size_t n = strlen(token);
    if (n < JOB_TOKEN_MIN)
        return error_set(CKPT_EINVAL,
                         "CKPT_JOB_TOKEN has %zu bytes, which can be guessed: %d or more, as from "
                         "\"openssl rand -hex 16\"",
                         n, JOB_TOKEN_MIN);
    return job_key_from_bytes(key, token, n);
}

#ifdef HAVE_SODIUM

_Static_assert(JOB_MAC == crypto_generichash_BYTES && JOB_SECRET == crypto_generichash_KEYBYTES,
               "sizes of BLAKE2b");

bool job_key_available(void)
{
    return true;
}

/*
 * Does not call sodium_init: it initializes random numbers, may end the process, and selects faster
 * code.  BLAKE2b works without it, also while the program calls it concurrently.
 */
int job_key_from_bytes(struct job_key *key, const void *secret, size_t n)
{
    static const char purpose[] = "libckpt job 1";
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof key->bytes);
    crypto_generichash_update(&state, (const uint8_t *)purpose, sizeof purpose);
    crypto_generichash_update(&state, secret, n);
    crypto_generichash_final(&state, key->bytes, sizeof key->bytes);
    explicit_bzero(&state, sizeof state);
    key->secured = true;
    return 0;
}

void job_key_hash(const struct job_key *key, const struct job_part *parts, int n,
                  uint8_t mac[JOB_MAC])
{
    crypto_generichash_state state;
    memset(mac, 0, JOB_MAC);
    if (!key->secured)
        return;
    crypto_generichash_init(&state, key->bytes, sizeof key->bytes, JOB_MAC);
    for (int i = 0; i < n; i++)
        crypto_generichash_update(&state, parts[i].data, parts[i].bytes);
    crypto_generichash_final(&state, mac, JOB_MAC);
    explicit_bzero(&state, sizeof state);
}

bool job_macs_equal(const uint8_t a[JOB_MAC], const uint8_t b[JOB_MAC])
{
    return sodium_memcmp(a, b, JOB_MAC) == 0;
}

#else

bool job_key_available(void)
{
    return false;
}

int job_key_from_bytes(struct job_key *key, const void *secret, size_t n)
{
    (void)key;
    (void)secret;
    (void)n;
    return error_set(CKPT_ECOMM, "CKPT_JOB_TOKEN is set, but this libckpt was built without "
                                 "libsodium and cannot prove a token: build it with that "
                                 "(libsodium-dev), or unset CKPT_JOB_TOKEN on all ranks");
}

void job_key_hash(const struct job_key *key, const struct job_part *parts, int n,
                  uint8_t mac[JOB_MAC])
{
    (void)key;
    (void)parts;
    (void)n;
    memset(mac, 0, JOB_MAC);
}

bool job_macs_equal(const uint8_t a[JOB_MAC], const uint8_t b[JOB_MAC])
{
    return memcmp(a, b, JOB_MAC) == 0;
}

#endif
