/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The secret of a job, and the keyed hashes with which two ranks prove to each other that they know
 * it without sending it.  Uses BLAKE2b of libsodium.  Without that library no job can have a
 * secret, and a key without a secret hashes everything to zeros.
 */
#ifndef CKPT_JOB_KEY_H
#define CKPT_JOB_KEY_H

#include "core/base.h"

enum { JOB_SECRET = 32, JOB_NONCE = 32, JOB_MAC = 32, JOB_TOKEN_MIN = 16 };

struct job_key {
    bool secured; /* the job has a secret */
    uint8_t bytes[JOB_SECRET];
};

/* Was libckpt built with libsodium? */
bool job_key_available(void);
/* Makes the key from a secret: a token, or random bytes.  Returns 0, CKPT_EINVAL for a token of
 * less than JOB_TOKEN_MIN bytes (it could be guessed), or CKPT_ECOMM without libsodium. */
int job_key_from_token(struct job_key *key, const char *token);
int job_key_from_bytes(struct job_key *key, const void *secret, size_t n);

/* Cryptographic random bytes from the kernel.  Returns 0 or CKPT_ECOMM. */
int job_random(void *dst, size_t n);

struct job_part {
    const void *data;
    size_t bytes;
};
/* Keyed hash of the concatenated parts; the first part must determine the lengths of the others. */
void job_key_hash(const struct job_key *key, const struct job_part *parts, int n,
                  uint8_t mac[JOB_MAC]);
/* Compares in constant time. */
bool job_macs_equal(const uint8_t a[JOB_MAC], const uint8_t b[JOB_MAC]);

#endif
