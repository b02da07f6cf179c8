/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The secret of a job, and what is made of it: keyed hashes by which two ranks prove to each other
 * that they know it, without saying it.  BLAKE2b of libsodium; without that library no job can have
 * a secret, and a key without one hashes everything to zeros.
 */
#ifndef CKPT_JOB_KEY_H
#define CKPT_JOB_KEY_H

#include "core/base.h"

enum { JOB_SECRET = 32, JOB_NONCE = 32, JOB_MAC = 32, JOB_TOKEN_LEAST = 16 };

struct job_key {
    bool secured; /* there is a secret */
    uint8_t bytes[JOB_SECRET];
};

/* Whether this libckpt can keep secrets. */
bool job_key_possible(void);
/* The key of a secret: a token, or random bytes.  Returns 0 or CKPT_EINVAL: a token of less than
 * JOB_TOKEN_LEAST bytes can be guessed; CKPT_ECOMM where no secret can be kept. */
int job_key_from_token(struct job_key *key, const char *token);
int job_key_from_bytes(struct job_key *key, const void *secret, size_t n);

/* Bytes that nobody can foresee, of the kernel.  Returns 0 or CKPT_ECOMM. */
int job_random(void *dst, size_t n);

struct job_part {
    const void *data;
    size_t bytes;
};
/* Keyed hash of the parts one after the other; their lengths follow from the first. */
void job_key_hash(const struct job_key *key, const struct job_part *parts, int n,
                  uint8_t mac[JOB_MAC]);
/* In a time that tells nothing of where they differ. */
bool job_macs_equal(const uint8_t a[JOB_MAC], const uint8_t b[JOB_MAC]);

#endif
