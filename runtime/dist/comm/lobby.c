/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an elastic job forms, and forms again.  Each process has a seat, its number among all that
 * the user starts.  One of them takes the place of the rendezvous, which the system gives to one
 * alone: the port of "tcp:", a lock beside the file of "file:".  It keeps it as long as the job
 * runs, so that one job has the place at any time.  The others connect as in any rendezvous, with
 * the number of their seat plus one, and are told their rank.  Processes that come later are told
 * to wait.
 *
 * Seat 0 takes the place first.  Once a job has lost a rank, whoever was in it may.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "dist/comm/rendezvous_state.h"

/* Seconds without arrivals after which a job forms without those that are missing: processes that
 * are started in place of others come a little later. */
#define GRACE_PERIOD 1.0
/* Seconds between two looks at the place; for which a process counts as waiting after it came. */
#define LOOK_EVERY 1.0
#define WAITS_FOR  5.0

struct comm_lobby {
    struct acceptor acceptor;
    struct job_key key;
    struct rendezvous_file file;
    char *path; /* of "file:", or NULL */
    int lock;   /* beside it, or -1 */
    int seats;
    int64_t divides;
    double next;  /* time of the next look */
    double *seen; /* when the process of a seat was told to wait */
};

/* The ranks of a job of n processes. */
static int most_ranks(int64_t divides, int n)
{
    while (n > 1 && divides % n)
        n--;
    return n;
}

void comm_lobby_close(struct comm_lobby *l)
{
    if (!l)
        return;
    while (l->acceptor.n_listeners)
        close(l->acceptor.listeners[--l->acceptor.n_listeners]);
    acceptor_close(&l->acceptor);
    if (l->path && l->file.port)
        rendezvous_file_remove(l->path, &l->file);
    if (l->lock >= 0)
        close(l->lock);
    explicit_bzero(&l->key, sizeof l->key);
    free(l->path);
    free(l->seen);
    free(l);
}

/* ---- the place ------------------------------------------------------------------------------- */

static int fail_memory(void)
{
    return error_set(CKPT_ENOMEM, "no memory for an elastic job");
}

/* 0: it is locked; 1: by another process; or a code. */
static int lock_file(struct comm_lobby *l)
{
    char *name;
    if (asprintf(&name, "%s.lock", l->path) < 0)
        return fail_memory();
    l->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int rc = 0;
    if (l->lock < 0)
        rc = error_set(CKPT_ECOMM, "cannot open %s: %s", name, strerror(errno));
    else if (flock(l->lock, LOCK_EX | LOCK_NB))
        rc = errno == EWOULDBLOCK
                 ? 1
                 : error_set(CKPT_ECOMM, "cannot lock %s: %s", name, strerror(errno));
    free(name);
    return rc;
}

/* As lock_file: listens at the place.  The address may be that of another host. */
static int listen_there(struct rendezvous *v)
{
    const char *why = NULL;
    if (v->path) {
        socket_own_address(v->file.host);
        memcpy(v->host, v->file.host, sizeof v->file.host);
    }
    v->own_port = v->path ? 0 : v->port;
    int n = socket_listen(v->host, &v->own_port, v->acceptor.listeners, ACCEPTOR_LISTENERS, &why);
    v->acceptor.n_listeners = n > 0 ? n : 0;
    if (n > 0)
        return 0;
    if (!why && (errno == EADDRINUSE || errno == EADDRNOTAVAIL))
        return 1;
    return error_set(CKPT_ECOMM, "cannot listen at %s port %d: %s", v->host, v->port,
                     why ? why : strerror(errno));
}

/* 0 with *l, which has nothing but the lock: this process has the place; 1: it cannot; or a code.
 */
static int take_place(struct rendezvous *v, int seats, struct comm_lobby **out)
{
    struct comm_lobby *l = calloc(1, sizeof *l);
    int rc = l ? 0 : fail_memory();
    if (rc)
        return rc;
    l->lock = -1;
    l->seats = seats;
    l->divides = v->m->divides;
    l->seen = calloc((size_t)seats, sizeof *l->seen);
    l->path = v->path ? strdup(v->path) : NULL;
    rc = l->seen && (l->path || !v->path) ? 0 : fail_memory();
    if (!rc && v->path)
        rc = lock_file(l);
    if (!rc)
        rc = listen_there(v);
    if (rc)
        comm_lobby_close(l);
    else
        *out = l;
    return rc;
}

/* The job keeps the place: the listeners go on, with a copy of the key. */
static void keep_place(struct rendezvous *v, struct comm_lobby *l)
{
    l->key = v->key;
    l->file = v->file;
    l->acceptor = v->acceptor;
    l->acceptor.key = &l->key;
    v->acceptor = (struct acceptor){.key = &v->key, .job = v->m->job};
    *v->m->lobby = l;
}

/* ---- who comes ------------------------------------------------------------------------------- */

#define FOREIGN "it is of another version, or one of another number of ranks"

static bool is_of_job(const struct hello *h, int seats)
{
    return h->size == seats + 1 && !strncmp(h->version, ckpt_version(), sizeof h->version - 1);
}

/* Tells a process to try again; one that can never be of the job, that it is refused. */
static void send_away(const struct job_key *key, const struct arrival *to, int seats, int verdict)
{
    struct answer a = {.magic = ANSWER_MAGIC, .verdict = verdict};
    if (!is_of_job(&to->hello, seats)) {
        a.verdict = ANSWER_REFUSED;
        snprintf(a.sentence, sizeof a.sentence, "the job there does not take this process: %s",
                 FOREIGN);
    }
    answer_sign(key, &to->challenge, &to->hello, NULL, &a);
    socket_write(to->fd, &a, sizeof a, clock_seconds() + 0.1);
    close(to->fd);
}

static void leave_out(struct rendezvous *v, int i, int verdict)
{
    const int seats = v->m->size - 1;
    send_away(&v->key, &v->arrivals[i], seats, verdict);
    v->fds[i] = -1;
}

/* A second process of a seat waits, as it may be the next one there. */
static void take_seat(struct rendezvous *v, int own_seat, const struct arrival *came)
{
    const struct hello *h = &came->hello;
    if (!is_of_job(h, v->m->size - 1))
        rendezvous_reject(v, came, FOREIGN);
    else if (*h->gives_up) {
        rendezvous_note_end(v, h->rank - 1, h->gives_up);
        send_away(&v->key, came, v->m->size - 1, ANSWER_WAIT);
        v->told++;
    } else if (v->fds[h->rank] >= 0 || h->rank == own_seat + 1)
        send_away(&v->key, came, v->m->size - 1, ANSWER_WAIT);
    else {
        v->arrivals[h->rank] = *came;
        v->fds[h->rank] = came->fd;
    }
}

/* The processes that are there, this one included; *survivors: of a job before; *former: its size.
 */
static int count(const struct rendezvous *v, int *survivors, int *former)
{
    int n = 1;
    *former = v->m->former_size;
    *survivors = *former > 0;
    for (int i = 1; i < v->m->size; i++) {
        if (v->fds[i] < 0)
            continue;
        const int size = v->arrivals[i].hello.former_size;
        n++;
        *survivors += size > 0;
        *former = size > *former ? size : *former;
    }
    return n;
}

static int refuse(const struct rendezvous *v, int n)
{
    char rejected[192];
    acceptor_describe(&v->acceptor, rejected, sizeof rejected);
    return error_set(CKPT_ECOMM, "%d of %d ranks reached %.200s within %g s%s", n, v->m->size - 1,
                     v->m->where, v->deadline, rejected);
}

/* Waits until a job can form.  0 or a code.  One that forms for the first time ends where a process
 * gives up; another one goes on without it. */
static int gather(struct rendezvous *v, int own_seat)
{
    struct arrival came;
    double last = clock_seconds();
    int which, survivors, former;
    for (;;) {
        const int n = count(v, &survivors, &former);
        const bool enough = former && survivors >= former - 1;
        const bool ends = *v->ended && !former;
        double until = enough || ends ? last + GRACE_PERIOD : v->until;
        if (n == v->m->size - 1)
            return 0;
        switch (acceptor_wait(&v->acceptor, until, v->fds, v->m->size, &came, &which)) {
        case ACCEPTOR_LATE:
            return former ? 0 : ends ? rendezvous_end(v) : refuse(v, n);
        case ACCEPTOR_ARRIVAL:
            take_seat(v, own_seat, &came);
            last = clock_seconds();
            break;
        case ACCEPTOR_READABLE:
            rendezvous_reject(v, &v->arrivals[which], "it left before the job formed");
            v->fds[which] = -1;
            break;
        }
    }
}

/* ---- the ranks ------------------------------------------------------------------------------- */

/* The processes by their ranks in the job before: number 0 is this one, -1: the rank is not there.
 */
struct former {
    int size;
    int *at;
    bool *spare; /* may be left out, together */
};

static int former_of(const struct rendezvous *v, int i, int *rank)
{
    const struct hello *h = &v->arrivals[i].hello;
    *rank = i ? h->former_rank : v->m->former_rank;
    return i ? h->former_size : v->m->former_size;
}

static bool is_there(const struct rendezvous *v, int i)
{
    return !i || v->fds[i] >= 0;
}

static int former_open(const struct rendezvous *v, int size, struct former *f)
{
    int rank;
    *f = (struct former){.size = size,
                         .at = calloc((size_t)size + 1, sizeof *f->at),
                         .spare = calloc((size_t)size + 1, sizeof *f->spare)};
    if (!f->at || !f->spare)
        return fail_memory();
    memset(f->at, -1, (size_t)size * sizeof *f->at);
    for (int i = 0; i < v->m->size; i++)
        if (is_there(v, i) && former_of(v, i, &rank) == size && rank >= 0 && rank < size)
            f->at[rank] = i;
    return 0;
}

static void former_close(struct former *f)
{
    free(f->at);
    free(f->spare);
}

/*
 * Marks as many as can be left out while the others have the states of all ranks.  Each has that of
 * its rank and of the rank before it, so a rank may go whose two neighbours stay: around the ring,
 * from a gap on, the next one that may.  leads: this process stays.  Returns their number.
 */
static int mark_spares(struct former *f, bool leads)
{
    int begin = 0, n = 0;
    for (int k = 0; k < f->size; k++)
        begin = f->at[k] < 0 || (!f->at[k] && f->at[begin] >= 0) ? k : begin;
    memset(f->spare, 0, (size_t)f->size * sizeof *f->spare);
    for (int d = 1; d < f->size; d++) {
        const int k = (begin + d) % f->size, before = (k + f->size - 1) % f->size;
        f->spare[k] = f->at[k] >= !!leads && f->at[before] >= 0 && !f->spare[before] &&
                      f->at[(k + 1) % f->size] >= 0;
        n += f->spare[k];
    }
    return n;
}

/* How many of a job before must be left out so that n of `all` stay, after those that are new. */
static int count_spares(const struct rendezvous *v, int all, int n, int survivors, bool leads)
{
    const int fresh = all - survivors - (leads && !v->m->former_size);
    return all - n > fresh ? all - n - fresh : 0;
}

/* The process to leave out next: a new one, else one whose state others hold, else the last. */
static int choose_spare(const struct rendezvous *v, const struct former *f)
{
    int last = 0, covered = 0, rank;
    for (int i = v->m->size - 1; i > 0; i--) {
        if (!is_there(v, i))
            continue;
        const int size = former_of(v, i, &rank);
        if (!size)
            return i;
        last = last ? last : i;
        covered = !covered && size == f->size && f->spare[rank] ? i : covered;
    }
    return covered ? covered : last;
}

/* Leaves out those that are too many.  1: states would be lost that are kept if another process
 * takes the place. */
static int leave_out_spares(struct rendezvous *v, int n)
{
    int survivors, size;
    struct former f;
    int all = count(v, &survivors, &size), rc = former_open(v, size, &f);
    if (!rc && count_spares(v, all, n, survivors, false) <= mark_spares(&f, false) &&
        count_spares(v, all, n, survivors, true) > mark_spares(&f, true))
        rc = 1;
    if (!rc)
        mark_spares(&f, true);
    for (; !rc && all > n; all--)
        leave_out(v, choose_spare(v, &f), ANSWER_WAIT);
    for (int i = 1; rc && i < v->m->size; i++)
        if (is_there(v, i))
            leave_out(v, i, ANSWER_OTHER_JOB);
    former_close(&f);
    return rc;
}

/* Numbers those that stay in order of their seats, and welcomes them.  1: see above. */
static int form(struct rendezvous *v)
{
    int survivors, former, at = 1;
    const int n = most_ranks(v->m->divides, count(v, &survivors, &former));
    const int rc = leave_out_spares(v, n);
    if (rc)
        return rc;
    for (int i = 1; i < v->m->size; i++) {
        const int fd = v->fds[i];
        if (fd < 0)
            continue;
        v->fds[i] = -1;
        v->fds[at] = fd;
        v->arrivals[at++] = v->arrivals[i];
    }
    v->m->size = n;
    return rendezvous_welcome(v);
}

static int lead(struct rendezvous *v, int seat, int seats, struct comm_lobby *l)
{
    v->m->rank = 0;
    v->m->size = seats + 1;
    v->acceptor.rank = 0;
    int rc = v->path ? rendezvous_publish(v) : 0;
    if (v->m->gives_up)
        rendezvous_note_end(v, seat, v->m->gives_up);
    if (!rc)
        rc = v->m->gives_up ? rendezvous_end(v) : gather(v, seat);
    if (!rc && !v->m->gives_up)
        rc = form(v);
    keep_place(v, l);
    if (!rc && !v->m->gives_up)
        return 0;
    comm_lobby_close(l);
    *v->m->lobby = NULL;
    return rc == 1 && acceptor_open(&v->acceptor, seats + 1) ? CKPT_ENOMEM : rc;
}

/* A process that was told to wait does so as long as the job runs.  Where it is told so again
 * later, which no job does that has just lost a rank, what it knows of a job before is out of date:
 * the next one does not wait for the others of that, and where the job has ended this process does
 * not begin it again. */
int rendezvous_form(struct rendezvous *v)
{
    const int seat = v->m->rank, seats = v->m->size;
    const bool may_lead = !seat || (v->m->former_size && !v->m->gives_up);
    double told = INFINITY, leads_at = 0;
    struct comm_lobby *l = NULL;
    for (;;) {
        const char *why = "nobody is there";
        int rc = may_lead && clock_seconds() >= leads_at ? take_place(v, seats, &l) : 1;
        if (!rc) {
            rc = lead(v, seat, seats, l);
            leads_at = clock_seconds() + 3 * GRACE_PERIOD; /* another takes the place meanwhile */
            if (rc <= 0)
                return rc;
        }
        v->m->rank = seat + 1;
        v->m->size = seats + 1;
        v->waits = false;
        if (rc == 1)
            rc = rendezvous_join(v, &why);
        if (rc <= 0)
            return rc;
        if (v->waits) {
            told = fmin(told, clock_seconds());
            v->until = clock_seconds() + v->deadline;
            if (clock_seconds() > told + LOOK_EVERY)
                v->m->former_size = 0;
        }
        if (clock_seconds() + 0.1 > v->until)
            return error_set(CKPT_ECOMM, "rank %d found no job at %.200s within %g s: %s", seat,
                             v->m->where, v->deadline, why);
        usleep(v->waits ? 500000 : 50000);
    }
}

/* ---- while the job runs ---------------------------------------------------------------------- */

/* Tells those that wait at the place to go on waiting. */
static void look(struct comm_lobby *l, double now)
{
    struct arrival came;
    int which;
    l->next = now + LOOK_EVERY;
    while (acceptor_wait(&l->acceptor, clock_seconds() + 1e-3, NULL, 0, &came, &which) ==
           ACCEPTOR_ARRIVAL) {
        if (is_of_job(&came.hello, l->seats) && !*came.hello.gives_up)
            l->seen[came.hello.rank - 1] = now;
        send_away(&l->key, &came, l->seats, ANSWER_WAIT);
    }
}

bool comm_lobby_grows(struct comm_lobby *l, int ranks)
{
    const double now = clock_seconds();
    int n = ranks;
    if (!l)
        return false;
    if (now >= l->next)
        look(l, now);
    for (int i = 0; i < l->seats; i++)
        n += l->seen[i] > 0 && l->seen[i] > now - WAITS_FOR;
    return most_ranks(l->divides, n < l->seats ? n : l->seats) > ranks;
}
