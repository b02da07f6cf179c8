/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that find each other over sockets: their listening addresses, who may join, and attacks by
 * strangers.  Ranks are threads here; strangers connect to the same ports.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "dist/comm/hello.h"
#include "dist/comm/linked.h"
#include "dist/comm/rendezvous.h"
#include "dist/comm/rendezvous_file.h"

enum { MOST = 3, STRANGERS = 24 };

static const char right[] = "a token of sixteen bytes or more", other[] = "another such token";
static char directory[] = "test_rendezvous.tmp-XXXXXX";

struct rank {
    struct comm_rendezvous m;
    struct comm *comm;
    double deadline;
    int rc;
    char said[CKPT_MESSAGE], how[RENDEZVOUS_HOW];
    pthread_t id;
};

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    r->rc = comm_open_tcp(&r->comm, &r->m, r->deadline);
    if (r->rc) {
        snprintf(r->said, sizeof r->said, "%s", error_get());
        return NULL;
    }
    snprintf(r->how, sizeof r->how, "%s", r->comm->how);
    r->rc = comm_barrier(r->comm, "the test");
    snprintf(r->said, sizeof r->said, "%s", r->comm->reason);
    comm_close(r->comm);
    return NULL;
}

static void start(struct rank *r, const char *where, const char *token, int rank, int size,
                  double deadline)
{
    *r = (struct rank){.m = {where, "test", token, rank, size}, .deadline = deadline};
    assert_int_equal(pthread_create(&r->id, NULL, rank_main, r), 0);
}

static void join(struct rank *r)
{
    assert_int_equal(pthread_join(r->id, NULL), 0);
}

static void join_all_well(struct rank *ranks, int n)
{
    for (int r = 0; r < n; r++)
        join(&ranks[r]);
    for (int r = 0; r < n; r++) {
        assert_string_equal(ranks[r].said, "");
        assert_int_equal(ranks[r].rc, 0);
    }
}

static void assert_says(const struct rank *r, const char *words)
{
    assert_int_equal(r->rc, CKPT_ECOMM);
    if (!strstr(r->said, words))
        fail_msg("rank %d says \"%s\", without \"%s\"", r->m.rank, r->said, words);
}

/* A port of the loopback address that is free until the next call, or -1: a socket with its address
 * keeps other programs, such as tests beside this one, from getting it, but not one that listens
 * there (SO_REUSEADDR). */
static int hold_port(int family)
{
    static int held = -1;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at = {.v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}};
    socklen_t size = sizeof at;
    int one = 1;
    if (family == AF_INET)
        at.v4 = (struct sockaddr_in){AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
    if (held >= 0)
        close(held);
    held = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(held, &at.any, size) || getsockname(held, &at.any, &size))
        return -1;
    return ntohs(family == AF_INET ? at.v4.sin_port : at.v6.sin6_port);
}

static int where_free(char where[64])
{
    int port = hold_port(AF_INET);
    assert_true(port > 0);
    snprintf(where, 64, "tcp:127.0.0.1:%d", port);
    return port;
}

static void needs_secrets(void)
{
    if (!job_key_available())
        skip();
}

/* No resolver here knows localhost, as on a machine without /etc/hosts. */
int getaddrinfo(const char *restrict host, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict found)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&next, &symbol, sizeof next);
    return host && !strcmp(host, "localhost") ? EAI_NONAME : next(host, service, hints, found);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void check_job(const char *where, const char *token, int size)
{
    struct rank ranks[MOST];
    for (int r = size - 1; r >= 0; r--)
        start(&ranks[r], where, token, r, size, 30);
    join_all_well(ranks, size);
    bool proven = token || (!strncmp(where, "file:", 5) && job_key_available());
    assert_non_null(strstr(ranks[0].how, proven ? "authenticated" : "no job token"));
}

static void test_jobs(void **state)
{
    char where[64];
    const char *tokens[] = {NULL, right};
    (void)state;
    for (int t = 0; t < (job_key_available() ? 2 : 1); t++)
        for (int size = 1; size <= MOST; size++) {
            int port = where_free(where);
            check_job(where, tokens[t], size);
            snprintf(where, sizeof where, "tcp:0.0.0.0:%d", port);
            check_job(where, tokens[t], size);
            snprintf(where, sizeof where, "tcp:localhost:%d", port);
            check_job(where, tokens[t], size);
            snprintf(where, sizeof where, "file:%s/meet", directory);
            check_job(where, tokens[t], size);
        }
}

static void test_ipv6(void **state)
{
    char where[64];
    int port = hold_port(AF_INET6);
    (void)state;
    if (port < 0)
        skip();
    snprintf(where, sizeof where, "tcp:[::1]:%d", port);
    check_job(where, NULL, 3);
    snprintf(where, sizeof where, "tcp:[::]:%d", port);
    check_job(where, NULL, 2);
}

static void test_wrong_words(void **state)
{
    static const char *const wrong[] = {
        "tcp:",         "tcp:host",  "tcp:host:",   "tcp::12",    "tcp:host:0",
        "tcp:h:65536",  "tcp:h:12x", "tcp:h:+12",   "tcp:::1:12", "tcp:[]:12",
        "tcp:h:999999", "file:",     "udp:host:12", "x",          ""};
    static char how[RENDEZVOUS_HOW];
    int fds[2];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct comm_rendezvous m = {.where = wrong[i], .rank = 1, .size = 2};
        int rc = rendezvous_connect(&m, 1, fds, how);
        if (rc != CKPT_EINVAL)
            fail_msg("\"%s\": %d, %s", wrong[i], rc, error_get());
    }
    struct comm_rendezvous m = {.where = "tcp:localhost:12", .token = "short", .size = 2};
    assert_int_equal(rendezvous_connect(&m, 1, fds, how), CKPT_EINVAL);
    m.token = "";
    assert_int_equal(rendezvous_connect(&m, 1, fds, how), CKPT_EINVAL);
    m = (struct comm_rendezvous){.where = "tcp:localhost:12", .job = "two words", .size = 2};
    assert_int_equal(rendezvous_connect(&m, 1, fds, how), CKPT_EINVAL);
}

/* ---- where they listen ----------------------------------------------------------------------- */

/* Is this socket one of this process? */
static bool is_ours(unsigned long inode)
{
    char wanted[64], path[300], link[64];
    bool found = false;
    DIR *d = opendir("/proc/self/fd");
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d)) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n > 0 ? n : 0] = '\0';
        found = !strcmp(link, wanted);
    }
    if (d)
        closedir(d);
    return found;
}

/* Counts the listening sockets of this process; `elsewhere` those not at 127.0.0.1. */
static int count_listeners(const char *table, int *elsewhere)
{
    char line[512], address[64];
    unsigned port, socket_state;
    unsigned long inode;
    int n = 0;
    FILE *f = fopen(table, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, " %*d: %63[0-9A-F]:%x %*s %x %*s %*s %*s %*d %*d %lu", address, &port,
                   &socket_state, &inode) == 4 &&
            socket_state == 0x0a && is_ours(inode)) {
            n++;
            *elsewhere +=
                strtoul(address, NULL, 16) != htonl(INADDR_LOOPBACK) || strlen(address) != 8;
        }
    if (f)
        fclose(f);
    return n;
}

static void check_listeners(int expected)
{
    int n = 0, elsewhere = 0;
    for (double until = clock_seconds() + 20; n < expected && clock_seconds() < until;) {
        usleep(10000);
        n = count_listeners("/proc/net/tcp", &elsewhere);
    }
    n += count_listeners("/proc/net/tcp6", &elsewhere);
    assert_int_equal(n, expected);
    assert_int_equal(elsewhere, 0);
}

/* Ranks 0 and 1 wait for rank 2, each with an open port. */
static void test_listens_where_it_was_told(void **state)
{
    struct rank ranks[3];
    char where[64];
    (void)state;
    if (access("/proc/net/tcp", R_OK))
        skip();
    where_free(where);
    start(&ranks[0], where, NULL, 0, 3, 30);
    start(&ranks[1], where, NULL, 1, 3, 30);
    check_listeners(2);
    start(&ranks[2], where, NULL, 2, 3, 30);
    join_all_well(ranks, 3);
}

/* A free port of those that the system gives first to sockets that connect. */
static int even_port(void)
{
    const char *why;
    int port, fd;
    do {
        port = 0;
        assert_int_equal(socket_listen("127.0.0.1", &port, &fd, 1, &why), 1);
        close(fd);
        port &= ~1;
    } while (socket_listen("127.0.0.1", &port, &fd, 1, &why) != 1);
    close(fd);
    return port;
}

/* Nobody listens at this port: after as many attempts as there are such ports, one would have met
 * itself.  The port is free afterwards. */
static void test_nobody_meets_itself(void **state)
{
    const char *why;
    double until = clock_seconds() + 20;
    int port = even_port(), fd;
    (void)state;
    for (int i = 0; i < 15000; i++)
        assert_int_equal(socket_connect("127.0.0.1", port, true, until, &why), -1);
    while (socket_listen("127.0.0.1", &port, &fd, 1, &why) != 1)
        assert_true(clock_seconds() < until);
    close(fd);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int connect_port(int port)
{
    const char *why;
    for (double until = clock_seconds() + 20; clock_seconds() < until; usleep(5000)) {
        int fd = socket_connect("127.0.0.1", port, true, until, &why);
        if (fd >= 0)
            return fd;
    }
    fail_msg("nobody listens at port %d", port);
    return -1;
}

static void read_challenge(int fd, struct challenge *c)
{
    char bytes[sizeof *c];
    assert_true(socket_read(fd, bytes, sizeof bytes, clock_seconds() + 20));
    assert_null(challenge_read(bytes, sizeof bytes, c));
}

static struct hello hello_of(int rank, int to, int size, bool secured)
{
    struct hello h = {.magic = HELLO_MAGIC,
                      .secured = secured,
                      .pid = 1,
                      .rank = rank,
                      .to = to,
                      .size = size,
                      .port = 9,
                      .job = "test"};
    snprintf(h.version, sizeof h.version, "%s", ckpt_version());
    return h;
}

static bool was_closed(int fd)
{
    char byte;
    double until = clock_seconds() + 20;
    while (socket_read(fd, &byte, 1, until))
        ;
    return clock_seconds() < until;
}

/* Everything that a stranger without a token can send to a port. */
static int send_strange(int port, int fds[STRANGERS])
{
    static char garbage[4096];
    int n = 0;
    struct challenge c;
    struct hello h = hello_of(1, 0, 3, true);
    memset(garbage, 'x', sizeof garbage);
    for (int i = 0; i < 8; i++) { /* a byte, then silence */
        fds[n] = connect_port(port);
        assert_true(socket_write(fds[n++], "x", 1, clock_seconds() + 5));
    }
    for (int i = 0; i < 8; i++) /* silence */
        fds[n++] = connect_port(port);
    for (int i = 0; i < 4; i++) /* a scanner */
        close(connect_port(port));
    fds[n] = connect_port(port);
    assert_true(socket_write(fds[n++], garbage, sizeof garbage, clock_seconds() + 5));
    fds[n] = connect_port(port);
    assert_true(socket_write(fds[n++], "GET / HTTP/1.0\r\n\r\n", 18, clock_seconds() + 5));
    fds[n] = connect_port(port); /* right but for the hash */
    read_challenge(fds[n], &c);
    assert_true(socket_write(fds[n++], &h, sizeof h, clock_seconds() + 5));
    fds[n] = connect_port(port); /* a text without an end */
    memset(h.host, 'h', sizeof h.host);
    assert_true(socket_write(fds[n++], &h, sizeof h, clock_seconds() + 5));
    return n;
}

static void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

/* Every stranger counts, also one that is still silent when the ranks are there. */
static void assert_rejected(const struct rank *r, int least)
{
    const char *last = strrchr(r->how, ',');
    int n = 0;
    if (!last || sscanf(last, ", %d other connections rejected", &n) != 1 || n < least)
        fail_msg("rank %d says \"%s\", with fewer than %d rejected", r->m.rank, r->how, least);
}

/* If each were served for 2 s in turn, they would take longer than the deadline. */
static void check_strangers(const char *token)
{
    struct rank ranks[3];
    char where[64];
    int fds[STRANGERS], port = where_free(where);
    start(&ranks[0], where, token, 0, 3, 25);
    int n = send_strange(port, fds);
    start(&ranks[1], where, token, 1, 3, 25);
    start(&ranks[2], where, token, 2, 3, 25);
    join_all_well(ranks, 3);
    assert_rejected(&ranks[0], STRANGERS);
    close_all(fds, n);
}

static void test_strangers(void **state)
{
    (void)state;
    needs_secrets();
    check_strangers(right);
}

/* Without a token only the format protects: this hello is valid but for its secured flag. */
static void test_strangers_without_token(void **state)
{
    (void)state;
    check_strangers(NULL);
}

/* At the port of rank 1, which serves it when rank 2 connects. */
static void test_strangers_between_ranks(void **state)
{
    struct rank ranks[3];
    char where[64], line[512];
    int fds[16], n = 0, own = 0, port = where_free(where);
    (void)state;
    if (access("/proc/net/tcp", R_OK))
        skip();
    start(&ranks[0], where, NULL, 0, 3, 25);
    start(&ranks[1], where, NULL, 1, 3, 25);
    check_listeners(2);
    FILE *f = fopen("/proc/net/tcp", "r");
    while (fgets(line, sizeof line, f)) {
        unsigned at, socket_state;
        unsigned long inode;
        if (sscanf(line, " %*d: %*[0-9A-F]:%x %*s %x %*s %*s %*s %*d %*d %lu", &at, &socket_state,
                   &inode) == 3 &&
            socket_state == 0x0a && (int)at != port && is_ours(inode))
            own = (int)at;
    }
    fclose(f);
    assert_true(own > 0);
    while (n < 16) {
        fds[n] = connect_port(own);
        assert_true(socket_write(fds[n++], "x", 1, clock_seconds() + 5));
    }
    start(&ranks[2], where, NULL, 2, 3, 25);
    join_all_well(ranks, 3);
    close_all(fds, n);
}

/* More connections than are served at once. */
static void test_many_strangers(void **state)
{
    struct rank ranks[2];
    char where[64];
    int fds[200], port = where_free(where);
    (void)state;
    start(&ranks[0], where, NULL, 0, 2, 25);
    for (int i = 0; i < 200; i++)
        fds[i] = connect_port(port);
    start(&ranks[1], where, NULL, 1, 2, 25);
    join_all_well(ranks, 2);
    close_all(fds, 200);
}

/* A recorded message of a rank is not accepted on another connection. */
static void test_replay(void **state)
{
    struct rank ranks[3];
    char where[64];
    struct job_key key;
    struct challenge c;
    struct answer answer;
    struct hello h = hello_of(1, 0, 3, true);
    int port = where_free(where);
    (void)state;
    needs_secrets();
    assert_int_equal(job_key_from_token(&key, right), 0);
    start(&ranks[0], where, right, 0, 3, 25);
    int first = connect_port(port);
    read_challenge(first, &c);
    hello_sign(&key, &c, &h);
    assert_true(socket_write(first, &h, sizeof h, clock_seconds() + 5));
    usleep(200000);
    close(first); /* a rank that was there and left may come again */
    int second = connect_port(port);
    read_challenge(second, &c);
    assert_true(socket_write(second, &h, sizeof h, clock_seconds() + 5));
    assert_true(socket_read(second, &answer, sizeof answer, clock_seconds() + 20));
    assert_int_equal(answer.verdict, ANSWER_UNPROVEN);
    assert_true(was_closed(second));
    start(&ranks[1], where, right, 1, 3, 25);
    start(&ranks[2], where, right, 2, 3, 25);
    join_all_well(ranks, 3);
    close(second);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Rank 0 is there from before the first attempt of rank 1 until after its last one. */
static void check_wrong_token(const char *of_0, const char *of_1, const char *words)
{
    struct rank ranks[2];
    char where[64];
    int port = where_free(where);
    start(&ranks[0], where, of_0, 0, 2, 3);
    close(connect_port(port));
    start(&ranks[1], where, of_1, 1, 2, 0.5);
    join(&ranks[0]);
    join(&ranks[1]);
    assert_says(&ranks[0], "rank 1 of 2 did not reach tcp:127.0.0.1:");
    assert_says(&ranks[0], "rejected, the last from 127.0.0.1");
    assert_says(&ranks[1], "rank 1 did not find rank 0 at tcp:127.0.0.1:");
    assert_says(&ranks[1], words);
}

static void test_wrong_token(void **state)
{
    (void)state;
    needs_secrets();
    check_wrong_token(right, other, "another CKPT_JOB_TOKEN is set there");
    check_wrong_token(right, NULL, "has a CKPT_JOB_TOKEN, this one has none");
    check_wrong_token(NULL, right, "has no CKPT_JOB_TOKEN, this one has one");
}

/* Two jobs at one port, distinguished by their names. */
static void test_other_job(void **state)
{
    struct rank ranks[2], stray;
    char where[64];
    int port = where_free(where);
    (void)state;
    start(&ranks[0], where, NULL, 0, 2, 20);
    close(connect_port(port));
    stray = (struct rank){.m = {where, "other", NULL, 1, 2}, .deadline = 0.5};
    assert_int_equal(pthread_create(&stray.id, NULL, rank_main, &stray), 0);
    join(&stray);
    assert_says(&stray, "another job listens there");
    start(&ranks[1], where, NULL, 1, 2, 20);
    join_all_well(ranks, 2);
}

/* A listener in place of rank 0 that does not know the token is rejected.  Its challenge and answer
 * are valid but for the hash. */
static void test_impostor(void **state)
{
    struct rank rank;
    char where[64], bytes[sizeof(struct hello)];
    const char *why;
    int listener, port = where_free(where), told = 0;
    (void)state;
    needs_secrets();
    assert_int_equal(socket_listen("127.0.0.1", &port, &listener, 1, &why), 1);
    start(&rank, where, right, 1, 2, 2);
    for (double until = clock_seconds() + 1.5; clock_seconds() < until;) {
        struct challenge c = {.magic = CHALLENGE_MAGIC, .secured = 1};
        struct answer a = {.magic = ANSWER_MAGIC, .verdict = ANSWER_REFUSED, .sentence = "go away"};
        if (!socket_ready(listener, POLLIN, until))
            break;
        int fd = socket_accept(listener);
        assert_true(fd >= 0);
        if (socket_write(fd, &c, sizeof c, until) && socket_read(fd, bytes, sizeof bytes, until))
            told += socket_write(fd, &a, sizeof a, until);
        close(fd);
    }
    close(listener);
    join(&rank);
    assert_true(told > 0);
    assert_says(&rank, "rank 1 did not find rank 0");
    assert_null(strstr(rank.said, "go away"));
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_file_is_secret(void **state)
{
    struct rank ranks[2];
    struct rendezvous_file file;
    struct stat s;
    char where[64];
    const char *path = where + 5;
    (void)state;
    snprintf(where, sizeof where, "file:%s/meet", directory);
    start(&ranks[0], where, NULL, 0, 2, 30);
    for (double until = clock_seconds() + 20; stat(path, &s) && clock_seconds() < until;)
        usleep(5000);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_null(rendezvous_file_read(path, &file));
    assert_int_equal(file.has_secret, job_key_available());
    start(&ranks[1], where, NULL, 1, 2, 30);
    join_all_well(ranks, 2);
    assert_int_equal(stat(path, &s), -1); /* nothing is left behind */
}

/* Nor after an error. */
static void test_file_of_a_failed_job(void **state)
{
    struct rank rank;
    struct stat s;
    char where[64];
    (void)state;
    snprintf(where, sizeof where, "file:%s/meet", directory);
    start(&rank, where, NULL, 0, 2, 0.3);
    join(&rank);
    assert_says(&rank, "rank 1 of 2 did not reach file:");
    assert_int_equal(stat(where + 5, &s), -1);
}

/* Files that other users could have written are ignored, whatever their contents. */
static void test_file_of_others(void **state)
{
    static const struct rendezvous_file file = {.host = "127.0.0.1", .port = 9};
    struct rank rank;
    char where[64];
    const char *path = where + 5;
    (void)state;
    snprintf(where, sizeof where, "file:%s/meet", directory);
    assert_int_equal(rendezvous_file_write(path, &file), 0);
    assert_int_equal(chmod(path, 0644), 0);
    start(&rank, where, NULL, 1, 2, 0.2);
    join(&rank);
    assert_says(&rank, "others than its owner may read or write it");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* does not hang */
    start(&rank, where, NULL, 1, 2, 0.2);
    join(&rank);
    assert_says(&rank, "it is not a file");
    unlink(path);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* A rank that joins, and then sends a length that no message has. */
static void check_prefix(int64_t prefix)
{
    struct rank rank;
    char where[64], how[RENDEZVOUS_HOW];
    int fds[2];
    where_free(where);
    start(&rank, where, NULL, 0, 2, 25);
    struct comm_rendezvous m = {.where = where, .job = "test", .rank = 1, .size = 2};
    assert_int_equal(rendezvous_connect(&m, 25, fds, how), 0);
    assert_true(socket_write(fds[0], &prefix, sizeof prefix, clock_seconds() + 5));
    join(&rank);
    assert_says(&rank, "rank 1 is gone at barrier \"the test\" of step 0: it sent an invalid "
                       "message");
    close(fds[0]);
}

static void test_lengths_are_checked(void **state)
{
    (void)state;
    check_prefix(-1);
    check_prefix(0);
    check_prefix(INT64_MIN);
    check_prefix(INT64_MAX);
    check_prefix((INT64_C(1) << 62) + 5);
    check_prefix(1 << 30);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_wrong_words),
        cmocka_unit_test(test_listens_where_it_was_told),
        cmocka_unit_test(test_nobody_meets_itself),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_strangers_without_token),
        cmocka_unit_test(test_strangers_between_ranks),
        cmocka_unit_test(test_many_strangers),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_other_job),
        cmocka_unit_test(test_impostor),
        cmocka_unit_test(test_file_is_secret),
        cmocka_unit_test(test_file_of_a_failed_job),
        cmocka_unit_test(test_file_of_others),
        cmocka_unit_test(test_lengths_are_checked),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
