/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded before a program (LD_PRELOAD), makes one call of a kind fail: CKPT_TORTURE=pwrite:3 the
 * third pwrite, CKPT_TORTURE=mmap:2+ the second mmap and all later ones.  Several orders are
 * separated by commas; the first one that names the kind counts.
 *
 * - CKPT_TORTURE_COUNTS=FILE receives the number of calls of each kind, CKPT_TORTURE_BEGUN=FILE
 *   exists once main() runs, and CKPT_TORTURE_TRACE=1 prints the caller of the failed call, and
 *   where the program crashed.
 * - Calls of any caller count, from main() to the end of the process.  The loader and the
 *   constructors of libraries run earlier and are not tested, because no caller could handle their
 *   failures.
 * - For the same reason loading a library and parsing JSON fail as a whole, and nothing inside them
 *   does: libgfortran's constructor (a part of OpenBLAS) calls exit() without memory and then
 *   crashes in its own destructor; jansson drops characters without memory for them
 *   (github.com/akheron/jansson/issues/362) and reads past its buffer.
 * - A failing call does nothing, with one exception: a close that fails closes the file.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define KINDS(X)                                                                                   \
    X(malloc)                                                                                      \
    X(calloc)                                                                                      \
    X(realloc)                                                                                     \
    X(memalign)                                                                                    \
    X(mmap) X(mprotect) X(pthread_create) X(open) X(fopen) X(scandir) X(mkdir) X(pread) X(pwrite)  \
        X(write) X(fread) X(fwrite) X(fflush) X(fclose) X(fsync) X(ftruncate) X(fallocate)         \
            X(rename) X(link) X(lock) X(socket) X(setsockopt) X(bind) X(listen) X(accept)          \
                X(connect) X(send) X(recv) X(poll) X(getaddrinfo) X(dlopen) X(json_load)           \
                    X(uring_init) X(uring_register) X(uring_submit) X(uring_wait) X(avcodec)       \
                        X(cuda) X(cublas)

#define NUMBER(name) KIND_##name,
#define NAME(name)   #name,
enum kind { KINDS(NUMBER) KIND_COUNT };
static const char *const names[] = {KINDS(NAME)};

static atomic_long calls[KIND_COUNT];
static long from[KIND_COUNT], until[KIND_COUNT]; /* calls that fail; from 0: none, until 0: all */
static atomic_bool armed;
/* The current call comes from this file, or from libc for a call that was counted. */
static __thread bool inside __attribute__((tls_model("initial-exec")));

/* ---- which call fails ------------------------------------------------------------------------ */

static void read_order(const char *order)
{
    const char *colon = strchr(order, ':');
    for (int i = 0; colon && i < KIND_COUNT; i++) {
        size_t n = strlen(names[i]);
        if (n != (size_t)(colon - order) || strncmp(names[i], order, n) || from[i])
            continue;
        char *end;
        from[i] = strtol(colon + 1, &end, 10);
        until[i] = *end == '+' ? 0 : from[i];
    }
}

static void read_orders(void)
{
    const char *order = getenv("CKPT_TORTURE");
    while (order && *order) {
        read_order(order);
        order = strchr(order, ',');
        order = order ? order + 1 : NULL;
    }
}

static void show_caller(enum kind k, long n)
{
    void *frames[24];
    inside = true;
    dprintf(2, "torture: %s %ld fails in\n", names[k], n);
    backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
    inside = false;
}

/* Prints where, and crashes again. */
static void show_crash(int signal)
{
    void *frames[24];
    inside = true;
    dprintf(2, "torture: signal %d in\n", signal);
    backtrace_symbols_fd(frames, backtrace(frames, 24), 2);
}

static void trace(void)
{
    void *frame;
    backtrace(&frame, 1); /* it loads a library at its first call */
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction show = {.sa_handler = show_crash, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaction(crashes[i], &show, NULL);
}

static bool fails(enum kind k)
{
    if (!armed || inside)
        return false;
    long n = ++calls[k];
    bool it = from[k] && n >= from[k] && (!until[k] || n <= until[k]);
    if (it && n == from[k] && getenv("CKPT_TORTURE_TRACE"))
        show_caller(k, n);
    return it;
}

static int find_kind(const char *kind)
{
    int i = 0;
    while (i < KIND_COUNT && strcmp(names[i], kind))
        i++;
    return i;
}

/* For libraries that replace others: whether this call must fail. */
bool torture_fails(const char *kind)
{
    int k = find_kind(kind);
    return k < KIND_COUNT && fails((enum kind)k);
}

/* For programs that read their own counts. */
long torture_calls(const char *kind)
{
    int k = find_kind(kind);
    return k < KIND_COUNT ? calls[k] : -1;
}

static void write_counts(void)
{
    const char *path = getenv("CKPT_TORTURE_COUNTS");
    armed = false;
    FILE *f = path ? fopen(path, "w") : NULL;
    for (int i = 0; f && i < KIND_COUNT; i++)
        fprintf(f, "%s %ld\n", names[i], (long)calls[i]);
    if (f)
        fclose(f);
}

static int (*program)(int, char **, char **);

static int main_of_program(int argc, char **argv, char **env)
{
    read_orders();
    const char *begun = getenv("CKPT_TORTURE_BEGUN");
    if (begun)
        close(creat(begun, 0600));
    if (getenv("CKPT_TORTURE_TRACE"))
        trace();
    unsetenv("LD_PRELOAD"); /* what the program starts is left alone */
    atexit(write_counts);
    armed = true;
    return program(argc, argv, env);
}

/* The intended function, of libc or of the library after this one. */
static void *real(const char *name)
{
    bool before = inside;
    inside = true;
    void *p = dlsym(RTLD_NEXT, name);
    inside = before;
    return p;
}

typedef int (*main_type)(int, char **, char **);
int __libc_start_main(main_type entry, int argc, char **argv, main_type init, void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    int (*start)(main_type, int, char **, main_type, void (*)(void), void (*)(void), void *) =
        real("__libc_start_main");
    program = entry;
    return start(main_of_program, argc, argv, init, fini, rtld_fini, stack_end);
}

/* ---- memory and threads ---------------------------------------------------------------------- */
/* By libc's internal names: dlsym itself allocates memory. */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t n)
{
    return fails(KIND_malloc) ? no_memory() : __libc_malloc(n);
}

void *calloc(size_t a, size_t b)
{
    return fails(KIND_calloc) ? no_memory() : __libc_calloc(a, b);
}

void *realloc(void *p, size_t n)
{
    return fails(KIND_realloc) ? no_memory() : __libc_realloc(p, n);
}

void *aligned_alloc(size_t a, size_t n)
{
    return fails(KIND_memalign) ? no_memory() : __libc_memalign(a, n);
}

int posix_memalign(void **p, size_t a, size_t n)
{
    if (fails(KIND_memalign))
        return ENOMEM;
    *p = __libc_memalign(a, n);
    return *p ? 0 : ENOMEM;
}

/* Defines a call that returns `bad` with errno `why` when it must fail, else the result of the real
 * one. */
#define CALL(type, name, kind, bad, why, parameters, arguments)                                    \
    type name parameters                                                                           \
    {                                                                                              \
        static type(*call) parameters;                                                             \
        if (!call)                                                                                 \
            call = real(#name);                                                                    \
        if (fails(KIND_##kind)) {                                                                  \
            errno = why;                                                                           \
            return bad;                                                                            \
        }                                                                                          \
        return call arguments;                                                                     \
    }

CALL(void *, mmap, mmap, MAP_FAILED, ENOMEM,
     (void *at, size_t n, int prot, int flags, int fd, off_t offset),
     (at, n, prot, flags, fd, offset))
CALL(int, mprotect, mprotect, -1, ENOMEM, (void *at, size_t n, int prot), (at, n, prot))
CALL(int, pthread_create, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * t, const pthread_attr_t *a, void *(*run)(void *), void *arg), (t, a, run, arg))

/* ---- files ------------------------------------------------------------------------------------
 */

int open(const char *path, int flags, ...)
{
    static int (*call)(const char *, int, ...);
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (!call)
        call = real("open");
    if (fails(KIND_open)) {
        errno = EMFILE;
        return -1;
    }
    return call(path, flags, mode);
}

CALL(FILE *, fopen, fopen, NULL, EMFILE, (const char *path, const char *mode), (path, mode))
CALL(int, mkdir, mkdir, -1, ENOSPC, (const char *path, mode_t mode), (path, mode))
CALL(ssize_t, pread, pread, -1, EIO, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
CALL(ssize_t, pwrite, pwrite, -1, ENOSPC, (int fd, const void *p, size_t n, off_t at),
     (fd, p, n, at))
CALL(int, fsync, fsync, -1, EIO, (int fd), (fd))
CALL(int, ftruncate, ftruncate, -1, ENOSPC, (int fd, off_t n), (fd, n))
CALL(int, fallocate, fallocate, -1, ENOSPC, (int fd, int mode, off_t at, off_t n),
     (fd, mode, at, n))
CALL(int, rename, rename, -1, EXDEV, (const char *a, const char *b), (a, b))
CALL(int, link, link, -1, EPERM, (const char *a, const char *b), (a, b))

/* Locks of open files: "lock" is a file system without them. */
static int control(int (*call)(int, int, ...), int fd, int command, void *argument)
{
    if (command == F_OFD_SETLK && fails(KIND_lock)) {
        errno = ENOLCK;
        return -1;
    }
    return call(fd, command, argument);
}

int fcntl(int fd, int command, ...)
{
    static int (*call)(int, int, ...);
    va_list ap;
    va_start(ap, command);
    void *argument = va_arg(ap, void *);
    va_end(ap);
    if (!call)
        call = real("fcntl");
    return control(call, fd, command, argument);
}

int fcntl64(int fd, int command, ...)
{
    static int (*call)(int, int, ...);
    va_list ap;
    va_start(ap, command);
    void *argument = va_arg(ap, void *);
    va_end(ap);
    if (!call)
        call = real("fcntl64");
    return control(call, fd, command, argument);
}

struct dirent;
CALL(int, scandir, scandir, -1, ENOMEM,
     (const char *path, struct dirent ***list, int (*choose)(const struct dirent *),
      int (*order)(const struct dirent **, const struct dirent **)),
     (path, list, choose, order))

static bool spoken(int fd)
{
    return fd == 1 || fd == 2;
}

ssize_t write(int fd, const void *p, size_t n)
{
    static ssize_t (*call)(int, const void *, size_t);
    if (!call)
        call = real("write");
    if (!spoken(fd) && fails(KIND_write)) {
        errno = ENOSPC;
        return -1;
    }
    return call(fd, p, n);
}

static bool spoken_to(FILE *f)
{
    return !f || f == stdout || f == stderr;
}

/* The state of a stream after a failure in libc; ferror() reads it. */
static void mark(FILE *f, int why)
{
    f->_flags |= 0x20; /* _IO_ERR_SEEN */
    errno = why;
}

size_t fread(void *p, size_t size, size_t n, FILE *f)
{
    static size_t (*call)(void *, size_t, size_t, FILE *);
    if (!call)
        call = real("fread");
    if (fails(KIND_fread)) {
        mark(f, EIO);
        return 0;
    }
    return call(p, size, n, f);
}

size_t fwrite(const void *p, size_t size, size_t n, FILE *f)
{
    static size_t (*call)(const void *, size_t, size_t, FILE *);
    if (!call)
        call = real("fwrite");
    if (!spoken_to(f) && fails(KIND_fwrite)) {
        mark(f, ENOSPC);
        return 0;
    }
    return call(p, size, n, f);
}

int fflush(FILE *f)
{
    static int (*call)(FILE *);
    if (!call)
        call = real("fflush");
    if (!spoken_to(f) && fails(KIND_fflush)) {
        mark(f, ENOSPC);
        return EOF;
    }
    return call(f);
}

int fclose(FILE *f)
{
    static int (*call)(FILE *);
    if (!call)
        call = real("fclose");
    bool bad = !spoken_to(f) && fails(KIND_fclose);
    int rc = call(f);
    if (bad)
        errno = ENOSPC;
    return bad ? EOF : rc;
}

/* ---- sockets --------------------------------------------------------------------------------- */

CALL(int, socket, socket, -1, EMFILE, (int domain, int type, int protocol),
     (domain, type, protocol))
CALL(int, setsockopt, setsockopt, -1, ENOBUFS,
     (int fd, int level, int name, const void *value, socklen_t n), (fd, level, name, value, n))
CALL(int, bind, bind, -1, EADDRINUSE, (int fd, const struct sockaddr *at, socklen_t n), (fd, at, n))
CALL(int, listen, listen, -1, EADDRINUSE, (int fd, int n), (fd, n))
CALL(int, accept, accept, -1, EMFILE, (int fd, struct sockaddr *at, socklen_t *n), (fd, at, n))
CALL(int, accept4, accept, -1, EMFILE, (int fd, struct sockaddr *at, socklen_t *n, int flags),
     (fd, at, n, flags))
CALL(int, connect, connect, -1, ECONNREFUSED, (int fd, const struct sockaddr *at, socklen_t n),
     (fd, at, n))
CALL(ssize_t, send, send, -1, ECONNRESET, (int fd, const void *p, size_t n, int flags),
     (fd, p, n, flags))
CALL(ssize_t, recv, recv, -1, ECONNRESET, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
CALL(int, poll, poll, -1, ENOMEM, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout))
CALL(int, ppoll, poll, -1, ENOMEM,
     (struct pollfd * fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask),
     (fds, n, timeout, mask))
CALL(int, getaddrinfo, getaddrinfo, EAI_MEMORY, ENOMEM,
     (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list),
     (node, service, hints, list))

/* ---- whole calls of libraries: nothing inside them fails ------------------------------------- */

void *dlopen(const char *path, int flags)
{
    static void *(*call)(const char *, int);
    if (!call)
        call = real("dlopen");
    /* A missing name gives dlerror() a sentence. */
    const char *name = fails(KIND_dlopen) ? "torture: no memory for a library" : path;
    bool before = inside;
    inside = true;
    void *library = call(name, flags);
    inside = before;
    return library;
}

static json_t *no_json(json_error_t *error)
{
    *error = (json_error_t){.line = -1, .column = -1, .text = "out of memory"};
    error->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory;
    return NULL;
}

json_t *json_loadb(const char *text, size_t n, size_t flags, json_error_t *error)
{
    static json_t *(*call)(const char *, size_t, size_t, json_error_t *);
    if (!call)
        call = real("json_loadb");
    if (fails(KIND_json_load))
        return no_json(error);
    inside = true;
    json_t *root = call(text, n, flags, error);
    inside = false;
    return root;
}

json_t *json_loadf(FILE *f, size_t flags, json_error_t *error)
{
    static json_t *(*call)(FILE *, size_t, json_error_t *);
    if (!call)
        call = real("json_loadf");
    if (fails(KIND_json_load))
        return no_json(error);
    inside = true;
    json_t *root = call(f, flags, error);
    inside = false;
    return root;
}

/* It ends the process if there is no memory for the options of a codec. */
void *avcodec_alloc_context3(const void *codec)
{
    static void *(*call)(const void *);
    if (!call)
        call = real("avcodec_alloc_context3");
    if (fails(KIND_avcodec))
        return NULL;
    inside = true;
    void *context = call(codec);
    inside = false;
    return context;
}

/* ---- io_uring, as liburing has it ------------------------------------------------------------ */

struct io_uring;
struct io_uring_cqe;
struct __kernel_timespec;
CALL(int, io_uring_queue_init, uring_init, -ENOMEM, ENOMEM,
     (unsigned n, struct io_uring *ring, unsigned flags), (n, ring, flags))
CALL(int, io_uring_register_buffers, uring_register, -ENOMEM, ENOMEM,
     (struct io_uring * ring, const struct iovec *buffers, unsigned n), (ring, buffers, n))
CALL(int, io_uring_register_files, uring_register, -EMFILE, EMFILE,
     (struct io_uring * ring, const int *files, unsigned n), (ring, files, n))
CALL(int, io_uring_submit, uring_submit, -EIO, EIO, (struct io_uring * ring), (ring))
CALL(int, io_uring_wait_cqes, uring_wait, -EIO, EIO,
     (struct io_uring * ring, struct io_uring_cqe **cqe, unsigned n, struct __kernel_timespec *t,
      sigset_t *mask),
     (ring, cqe, n, t, mask))
