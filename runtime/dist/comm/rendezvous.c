/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rendezvous.  Rank 0 listens at the given address, every other rank sends its identity and
 * listening address, and rank 0 answers all of them: the addresses of all, or an error that ends
 * the job everywhere.  Then every pair of ranks without a socket opens one, the higher rank to the
 * lower; each rank listens only at the address with which it reached rank 0.
 *
 * If the job has a secret (CKPT_JOB_TOKEN, or one that rank 0 writes into the file of "file:PATH"),
 * both ends of every connection prove that they know it (hello.h), and only a peer that did can end
 * the job.  Without a secret only the form of the messages is checked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dist/comm/rendezvous.h"
#include "dist/comm/rendezvous_state.h"

/* Seconds within which a listener must send its challenge.  Rank 0 sends it at once; another
 * program may never. */
#define CHALLENGE_TIMEOUT 5.0

/* ---- where it is ----------------------------------------------------------------------------- */

/* "tcp:HOST:PORT" or "tcp:[HOST]:PORT"; IPv6 addresses need the brackets. */
static bool parse_where(struct rendezvous *v)
{
    bool tcp = !strncmp(v->m->where, "tcp:", 4);
    const char *host = tcp ? v->m->where + 4 : "", *colon = strrchr(host, ':');
    if (!colon || strlen(colon + 1) > 5)
        return false;
    size_t n = (size_t)(colon - host), digits = strspn(colon + 1, "0123456789");
    bool bracketed = n > 2 && host[0] == '[' && host[n - 1] == ']';
    if (bracketed) {
        host++;
        n -= 2;
    }
    v->port = atoi(colon + 1);
    if (!n || n >= sizeof v->host || !digits || colon[1 + digits] || v->port < 1 || v->port > 65535)
        return false;
    memcpy(v->host, host, n);
    v->host[n] = '\0';
    return bracketed || !strpbrk(v->host, ":[]");
}

int rendezvous_listen(struct rendezvous *v, const char *host, int port)
{
    const char *why = NULL;
    v->own_port = port;
    int n = socket_listen(host, &v->own_port, v->acceptor.listeners, ACCEPTOR_LISTENERS, &why);
    v->acceptor.n_listeners = n > 0 ? n : 0;
    if (n > 0)
        return 0;
    return error_set(CKPT_ECOMM, "rank %d cannot listen at %s port %d: %s", v->m->rank, host, port,
                     why ? why : strerror(errno));
}

static void stop_listening(struct rendezvous *v)
{
    while (v->acceptor.n_listeners)
        close(v->acceptor.listeners[--v->acceptor.n_listeners]);
}

/* NULL, or why the file does not lead to rank 0 of this job. */
static const char *read_file(struct rendezvous *v)
{
    struct rendezvous_file *file = &v->file;
    const char *wrong = rendezvous_file_read(v->path, file);
    if (!wrong && strcmp(file->job, v->m->job))
        wrong = "it is of another job";
    if (wrong)
        return wrong;
    if (!v->m->token) {
        v->key.secured = false;
        if (file->has_secret && job_key_from_bytes(&v->key, file->secret, sizeof file->secret))
            return "this libckpt was built without libsodium, rank 0's with it";
    }
    snprintf(v->host, sizeof v->host, "%s", file->host);
    v->port = file->port;
    return NULL;
}

/* Closes the connection of an authenticated rank that cannot be used. */
void rendezvous_reject(struct rendezvous *v, const struct arrival *from, const char *why)
{
    acceptor_count(&v->acceptor, from->from, why);
    close(from->fd);
}

/* ---- the others ------------------------------------------------------------------------------ */

static void fill_hello(const struct rendezvous *v, int to, struct hello *h)
{
    *h = (struct hello){.magic = HELLO_MAGIC,
                        .secured = v->key.secured,
                        .pid = (int32_t)getpid(),
                        .rank = v->m->rank,
                        .to = to,
                        .size = v->m->size,
                        .port = v->own_port,
                        .former_rank = v->m->former_rank,
                        .former_size = v->m->former_size};
    memcpy(h->version, v->version, sizeof h->version);
    memcpy(h->host, v->node, sizeof h->host);
    snprintf(h->job, sizeof h->job, "%s", v->m->job);
    if (v->m->gives_up)
        snprintf(h->gives_up, sizeof h->gives_up, "%s", v->m->gives_up);
}

/* NULL, or why this is not the wanted rank. */
static const char *read_challenge(const struct rendezvous *v, int fd, int to, double until,
                                  struct challenge *c)
{
    char bytes[sizeof *c];
    if (!socket_read(fd, bytes, sizeof bytes, until))
        return errno == ETIMEDOUT ? "the listener there does not respond" : strerror(errno);
    if (challenge_read(bytes, sizeof bytes, c))
        return "the listener there is not libckpt of this version";
    if (c->rank != to)
        return "another rank listens there";
    if (c->secured != v->key.secured)
        return c->secured ? "the rank that listens there has a CKPT_JOB_TOKEN, this one has none"
                          : "the rank that listens there has no CKPT_JOB_TOKEN, this one has one";
    return NULL;
}

/* Whether an answer has the addresses of all others.  An elastic job may have fewer ranks. */
static bool has_addresses(const struct rendezvous *v, const struct answer *a, int to)
{
    const int all = to ? 0 : v->m->size - 1;
    if (a->verdict != ANSWER_WELCOME)
        return a->n_addresses == 0;
    if (!v->m->lobby || to)
        return a->n_addresses == all;
    return a->n_addresses < all && a->rank >= 1 && a->rank <= a->n_addresses;
}

/* Reads the answer to a hello, with addresses on success.  NULL, or why it is invalid. */
static const char *read_answer(struct rendezvous *v, int fd, const struct challenge *c,
                               const struct hello *h, double until, struct answer *a)
{
    char bytes[sizeof *a];
    if (!socket_read(fd, bytes, sizeof bytes, until))
        return errno == ETIMEDOUT ? "no answer came" : "it closed the connection";
    const char *wrong = answer_read(bytes, sizeof bytes, a);
    if (wrong)
        return wrong;
    if (a->verdict == ANSWER_UNPROVEN)
        return "another CKPT_JOB_TOKEN is set there";
    if (!has_addresses(v, a, h->to))
        return "numbers out of range";
    size_t size = (size_t)a->n_addresses * sizeof *v->addresses;
    if (!socket_read(fd, v->addresses, size, until))
        return "it closed the connection";
    if (!answer_is_proven(&v->key, c, h, v->addresses, a))
        return "the listener there does not know the CKPT_JOB_TOKEN";
    return addresses_read(v->addresses, size, v->addresses, a->n_addresses);
}

/* Performs the handshake on a new connection. 0, CKPT_ECOMM when refused finally, or 1 with
 * *why. */
static int handshake(struct rendezvous *v, int fd, int to, double challenge_until, double until,
                     const char **why)
{
    struct challenge c;
    struct hello h;
    struct answer a;
    fill_hello(v, to, &h);
    int rc = job_random(h.nonce, sizeof h.nonce);
    if (rc)
        return rc;
    if ((*why = read_challenge(v, fd, to, challenge_until, &c)))
        return 1;
    hello_sign(&v->key, &c, &h);
    if (!socket_write(fd, &h, sizeof h, until)) {
        *why = strerror(errno);
        return 1;
    }
    if ((*why = read_answer(v, fd, &c, &h, until, &a)))
        return 1;
    if (v->m->gives_up && (a.verdict == ANSWER_REFUSED || a.verdict == ANSWER_WAIT))
        return 0;
    if (a.verdict == ANSWER_REFUSED)
        return error_set(CKPT_ECOMM, "%s", a.sentence);
    v->waits = a.verdict == ANSWER_WAIT;
    *why = "another job listens there";
    if (a.verdict != ANSWER_WELCOME)
        return 1;
    if (v->m->lobby && !to) {
        v->acceptor.rank = v->m->rank = a.rank;
        v->m->size = a.n_addresses + 1;
    }
    return 0;
}

int rendezvous_join(struct rendezvous *v, const char **why)
{
    char own[SOCKET_HOST];
    *why = v->path ? read_file(v) : NULL;
    if (*why)
        return 1;
    int fd = socket_connect(v->host, v->port, v->path != NULL, v->until, why);
    if (fd < 0) {
        *why = *why ? *why : strerror(errno);
        return 1;
    }
    int rc = socket_address(fd, false, own) ? rendezvous_listen(v, own, 0) : 1;
    double now = clock_seconds();
    if (rc == 1)
        *why = strerror(errno);
    else if (!rc) /* rank 0 may have started to wait later than this rank */
        rc = handshake(v, fd, 0, now + (v->m->lobby ? v->deadline : CHALLENGE_TIMEOUT),
                       now + v->deadline + 1, why);
    if (rc == 0) {
        v->fds[0] = fd;
        return 0;
    }
    close(fd);
    stop_listening(v);
    return rc;
}

/* Waits longer after each attempt, to limit the rate of rejected connections. */
static int join_rendezvous(struct rendezvous *v)
{
    double pause = 0.02;
    for (;;) {
        const char *why = NULL;
        int rc = rendezvous_join(v, &why);
        if (rc <= 0)
            return rc;
        if (clock_seconds() + pause > v->until)
            return error_set(CKPT_ECOMM, "rank %d did not find rank 0 at %.200s within %g s: %s",
                             v->m->rank, v->m->where,
                             v->deadline * (v->m->patience ? v->m->patience : 1), why);
        usleep((unsigned)(pause * 1e6));
        pause = pause < 0.2 ? pause * 1.2 : pause;
    }
}

/* ---- between the others ---------------------------------------------------------------------- */

static int connect_down(struct rendezvous *v, int rank, double until)
{
    const struct address *at = &v->addresses[rank - 1];
    const char *why = NULL;
    int rc = 1, fd = socket_connect(at->host, at->port, true, until, &why);
    if (fd < 0)
        why = why ? why : strerror(errno);
    else
        rc = handshake(v, fd, rank, until, until, &why);
    v->fds[rank] = fd;
    if (rc <= 0)
        return rc;
    return error_set(CKPT_ECOMM, "rank %d does not reach rank %d at %s port %d: %s", v->m->rank,
                     rank, at->host, at->port, why);
}

/* True if the rank was expected.  A second connection of a connected rank is rejected. */
static bool accept_peer(struct rendezvous *v, const struct arrival *came)
{
    const struct hello *h = &came->hello;
    struct answer a = {.magic = ANSWER_MAGIC, .verdict = ANSWER_WELCOME};
    if (h->size == v->m->size && !strcmp(h->version, v->version) && v->fds[h->rank] < 0) {
        answer_sign(&v->key, &came->challenge, h, NULL, &a);
        if (socket_write(came->fd, &a, sizeof a, clock_seconds() + 1)) {
            v->fds[h->rank] = came->fd;
            return true;
        }
    }
    rendezvous_reject(v, came, "it is not an expected rank");
    return false;
}

/* The lower rank listens; the higher one connects. */
static int meet_peers(struct rendezvous *v)
{
    const struct comm_rendezvous *m = v->m;
    double until = clock_seconds() + v->deadline;
    struct arrival came;
    char rejected[192];
    int rc = 0, which;
    for (int r = 1; r < m->rank && !rc; r++)
        rc = connect_down(v, r, until);
    for (int missing = m->size - 1 - m->rank; missing > 0 && !rc;) {
        if (acceptor_wait(&v->acceptor, until, NULL, 0, &came, &which) == ACCEPTOR_ARRIVAL) {
            missing -= accept_peer(v, &came);
            continue;
        }
        acceptor_describe(&v->acceptor, rejected, sizeof rejected);
        rc = error_set(CKPT_ECOMM, "%d ranks above %d did not connect to it within %g s%s", missing,
                       m->rank, v->deadline, rejected);
    }
    return rc;
}

/* ---- both ------------------------------------------------------------------------------------ */

static int run_rendezvous(struct rendezvous *v)
{
    int rc = v->m->token ? job_key_from_token(&v->key, v->m->token) : 0;
    if (!rc && v->m->lobby)
        rc = rendezvous_form(v);
    else if (!rc)
        rc = v->m->rank ? join_rendezvous(v) : rendezvous_host(v);
    return rc || !v->m->rank || v->m->gives_up ? rc : meet_peers(v);
}

static int check(struct rendezvous *v)
{
    const struct comm_rendezvous *m = v->m;
    if (m->size < 1 || m->size > HELLO_MAX_RANKS || m->rank < 0 || m->rank >= m->size)
        return error_set(CKPT_EINVAL, "rank %d of %d: there is no such rank", m->rank, m->size);
    if (!strncmp(m->where, "file:", 5) && m->where[5])
        v->path = m->where + 5;
    else if (!parse_where(v))
        return error_set(
            CKPT_EINVAL,
            "rendezvous \"%.200s\": give tcp:HOST:PORT, tcp:[ADDRESS]:PORT for IPv6, or file:PATH",
            m->where);
    if (!hello_text_is_good(m->job, HELLO_TEXT, true))
        return error_set(CKPT_EINVAL, "the name of the job has more than %d bytes, or blanks",
                         HELLO_TEXT - 1);
    return 0;
}

static void describe(const struct rendezvous *v, char how[RENDEZVOUS_HOW])
{
    char rejected[48] = "";
    if (v->acceptor.rejected)
        snprintf(rejected, sizeof rejected, ", %lld other connection%s rejected",
                 (long long)v->acceptor.rejected, v->acceptor.rejected == 1 ? "" : "s");
    snprintf(how, RENDEZVOUS_HOW, "sockets, rendezvous at %.48s, %s%s", v->m->where,
             v->key.secured ? "authenticated" : "no job token", rejected);
}

int rendezvous_connect(struct comm_rendezvous *m, double deadline, int *fds,
                       char how[RENDEZVOUS_HOW])
{
    struct rendezvous v = {.m = m, .deadline = deadline, .fds = fds};
    const int all = m->lobby ? m->size + 1 : m->size;
    m->job = m->job ? m->job : "";
    int rc = check(&v);
    if (rc)
        return rc;
    for (int r = 0; r < all; r++)
        fds[r] = -1;
    const double patience = m->gives_up ? rendezvous_late(&v) : deadline;
    v.until = clock_seconds() + (m->rank && m->patience ? deadline * m->patience : patience);
    snprintf(v.version, sizeof v.version, "%s", ckpt_version());
    gethostname(v.node, sizeof v.node - 1);
    if (!hello_text_is_good(v.node, sizeof v.node, true))
        *v.node = '\0';
    v.arrivals = calloc((size_t)all, sizeof *v.arrivals);
    v.addresses = calloc((size_t)all, sizeof *v.addresses);
    v.acceptor = (struct acceptor){.key = &v.key, .job = m->job, .rank = m->rank};
    rc = v.arrivals && v.addresses ? acceptor_open(&v.acceptor, all)
                                   : error_set(CKPT_ENOMEM, "no memory for %d ranks", m->size);
    if (!rc)
        rc = run_rendezvous(&v);
    stop_listening(&v);
    acceptor_close(&v.acceptor);
    describe(&v, how); /* by now all others are counted */
    for (int r = 0; r < all && (rc || m->gives_up); r++)
        if (fds[r] >= 0)
            close(fds[r]);
    explicit_bzero(&v.key, sizeof v.key);
    explicit_bzero(&v.file, sizeof v.file);
    free(v.arrivals);
    free(v.addresses);
    return rc;
}
