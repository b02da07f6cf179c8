/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake of two ranks on a new connection, before any collective:
 *
 *   listener  -> connector   challenge   rank of the listener, a fresh nonce
 *   connector -> listener    hello       rank and listening port of the connector, a nonce, a keyed
 *                            hash
 *   listener  -> connector   answer      verdict, then the addresses of all ranks, a keyed hash
 *
 * Both hashes cover both nonces, so recorded messages cannot be replayed; neither contains the key.
 * The functions that parse the bytes are pure and trust nothing.  Numbers are sent in native byte
 * order; a mismatch of byte order shows in the magic numbers and is refused.
 */
#ifndef CKPT_HELLO_H
#define CKPT_HELLO_H

#include "dist/comm/job_key.h"
#include "dist/comm/socket.h"

enum { HELLO_TEXT = 64, HELLO_MAX_RANKS = 1 << 20 };

/* The last byte is the version of these messages. */
#define CHALLENGE_MAGIC UINT64_C(0x636b70742d636802)
#define HELLO_MAGIC     UINT64_C(0x636b70742d686903)
#define ANSWER_MAGIC    UINT64_C(0x636b70742d616e02)

struct challenge {
    uint64_t magic;
    int32_t secured; /* 1: the job has a token; 0: it has none */
    int32_t rank;    /* rank of the listener */
    uint8_t nonce[JOB_NONCE];
};

struct hello {
    uint64_t magic;
    int32_t secured, pid;
    int32_t rank, to;                 /* rank of the sender, rank it wants to reach */
    int32_t size;                     /* ranks of the job */
    int32_t port;                     /* port it listens on, at the address it connects from */
    int32_t former_rank, former_size; /* see struct comm_rendezvous; an elastic job alone */
    char version[16];
    char job[HELLO_TEXT];        /* job name, often "" */
    char host[HELLO_TEXT];       /* host name, for error messages */
    char gives_up[CKPT_MESSAGE]; /* why the sender ends before the job begins; "": it takes part */
    uint8_t nonce[JOB_NONCE];
    uint8_t mac[JOB_MAC]; /* last member */
};

enum answer_verdict {
    ANSWER_WELCOME,
    ANSWER_REFUSED,   /* final; the sentence gives the reason */
    ANSWER_OTHER_JOB, /* try again: the listener belongs to another job */
    ANSWER_UNPROVEN,  /* the token was not proven; this answer has no hash */
    ANSWER_WAIT,      /* try again: the job has formed without this process */
};

struct answer {
    uint64_t magic;
    int32_t verdict;
    int32_t n_addresses; /* number of addresses that follow: ranks 1 to n */
    int32_t rank, zero;  /* of the receiver, which an elastic job numbers */
    char sentence[CKPT_MESSAGE];
    uint8_t mac[JOB_MAC]; /* last member */
};

struct address {
    char host[SOCKET_HOST]; /* numeric */
    int32_t port;
};

/* Parse received bytes.  Return NULL, or what is wrong; then *out is undefined. */
const char *challenge_read(const void *bytes, size_t n, struct challenge *out);
const char *hello_read(const void *bytes, size_t n, struct hello *out);
const char *answer_read(const void *bytes, size_t n, struct answer *out);
const char *addresses_read(const void *bytes, size_t n, struct address *out, int32_t n_addresses);

/* Printable characters with a NUL within size bytes; empty only if allowed. */
bool hello_text_is_good(const char *text, size_t size, bool may_be_empty);

/* Keyed hashes: of a hello as reply to a challenge, and of the answer to that hello. */
void hello_sign(const struct job_key *key, const struct challenge *c, struct hello *h);
bool hello_is_proven(const struct job_key *key, const struct challenge *c, const struct hello *h);
void answer_sign(const struct job_key *key, const struct challenge *c, const struct hello *h,
                 const struct address *addresses, struct answer *a);
bool answer_is_proven(const struct job_key *key, const struct challenge *c, const struct hello *h,
                      const struct address *addresses, const struct answer *a);

#endif
