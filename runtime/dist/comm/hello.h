/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two ranks say when one connects to the other, before any collective:
 *
 *   listener  -> connector   challenge   who listens, a fresh nonce
 *   connector -> listener    hello       who comes and where it listens, a nonce, a keyed hash
 *   listener  -> connector   answer      yes or no, then the addresses of all, a keyed hash
 *
 * Both hashes cover both nonces, so that nothing that was abort_text can be said again, and neither
 * has the key in it.  Here is how the bytes are read: pure functions that believe nothing.  Numbers
 * travel as they stand in memory; the magic numbers are refused where the order of bytes differs.
 */
#ifndef CKPT_HELLO_H
#define CKPT_HELLO_H

#include "dist/comm/job_key.h"
#include "dist/comm/socket.h"

enum { HELLO_TEXT = 64, HELLO_MOST_RANKS = 1 << 20 };

/* The last byte counts the versions of these messages. */
#define CHALLENGE_MAGIC UINT64_C(0x636b70742d636801)
#define HELLO_MAGIC     UINT64_C(0x636b70742d686901)
#define ANSWER_MAGIC    UINT64_C(0x636b70742d616e01)

struct challenge {
    uint64_t magic;
    int32_t secured; /* 1: the job has a token, 0: it has none */
    int32_t rank;    /* that listens */
    uint8_t nonce[JOB_NONCE];
};

struct hello {
    uint64_t magic;
    int32_t secured, pid;
    int32_t rank, to; /* the own one, the one that it wants */
    int32_t size;     /* ranks of the job */
    int32_t port;     /* where it listens, at the address it comes from */
    char version[16];
    char job[HELLO_TEXT];  /* name of the job, often "" */
    char host[HELLO_TEXT]; /* name of its machine, for sentences */
    uint8_t nonce[JOB_NONCE];
    uint8_t mac[JOB_MAC]; /* last */
};

enum answer_verdict {
    ANSWER_WELCOME,
    ANSWER_REFUSED,   /* for good, and the sentence says why */
    ANSWER_OTHER_JOB, /* try again: this was not the job you look for */
    ANSWER_UNPROVEN,  /* the token was not proven; this answer has no hash either */
};

struct answer {
    uint64_t magic;
    int32_t verdict;
    int32_t n_addresses; /* that follow: of ranks 1 to n */
    char sentence[CKPT_MESSAGE];
    uint8_t mac[JOB_MAC]; /* last */
};

struct address {
    char host[SOCKET_HOST]; /* in digits */
    int32_t port;
};

/* NULL, or what is wrong with bytes that came; then *out means nothing. */
const char *challenge_read(const void *bytes, size_t n, struct challenge *out);
const char *hello_read(const void *bytes, size_t n, struct hello *out);
const char *answer_read(const void *bytes, size_t n, struct answer *out);
const char *addresses_read(const void *bytes, size_t n, struct address *out, int32_t n_addresses);

/* Visible characters, an end within size bytes; empty only if it may be. */
bool hello_text_is_good(const char *text, size_t size, bool may_be_empty);

/* The keyed hash of a hello to whoever said the challenge, of the answer to it. */
void hello_sign(const struct job_key *key, const struct challenge *c, struct hello *h);
bool hello_is_proven(const struct job_key *key, const struct challenge *c, const struct hello *h);
void answer_sign(const struct job_key *key, const struct challenge *c, const struct hello *h,
                 const struct address *addresses, struct answer *a);
bool answer_is_proven(const struct job_key *key, const struct challenge *c, const struct hello *h,
                      const struct address *addresses, const struct answer *a);

#endif
