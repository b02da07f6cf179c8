/* SPDX-License-Identifier: Apache-2.0 */
/* The host tier: pages, pins, growth, and recorded machines with too little memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "test_directory.h"
#include "core/cores.h"
#include "memory/tier/host_limits.h"
#include "memory/tier/sys.h"
#include "memory/tier/tier.h"

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* ---- a machine of files -----------------------------------------------------------------------
 */

static char machine[64];

static void put(const char *name, const char *text)
{
    char file[512];
    snprintf(file, sizeof file, "%s%s", machine, name);
    for (char *slash = file + strlen(machine); (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        mkdir(file, 0700);
        *slash = '/';
    }
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int remove_one(const char *name, const struct stat *s, int type, struct FTW *f)
{
    (void)s, (void)type, (void)f;
    return remove(name);
}

/* 64 GiB, of a container of a systemd host, control groups of version 2. */
static int make_machine(void **state)
{
    (void)state;
    snprintf(machine, sizeof machine, "%s/machine", dir);
    mkdir(machine, 0700);
    put("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree:         1048576 kB\n"
                         "MemAvailable:   33554432 kB\nBuffers:          200256 kB\n");
    put("/proc/self/cgroup", "0::/user.slice/run-3.scope\n");
    return 0;
}

static int remove_machine(void **state)
{
    (void)state;
    return nftw(machine, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void expect(int64_t bytes, const char *name, int64_t left)
{
    struct host_limit limit = host_limits_check(machine, bytes);
    if (!name) {
        assert_int_equal(limit.short_by, 0);
        return;
    }
    assert_string_equal(limit.name, name);
    assert_int_equal(limit.left, left);
    assert_int_equal(limit.short_by, bytes - left);
}

/* One GiB stays free. */
static void test_available(void **state)
{
    (void)state;
    expect(31 * GIB, NULL, 0);
    expect(31 * GIB + 1, "available memory (MemAvailable)", 31 * GIB);
    put("/proc/meminfo", "MemTotal:       67108864 kB\nMemAvailable:   512 kB\n");
    expect(4096, "available memory (MemAvailable)", 0);
    put("/proc/meminfo", "nothing of this kind\n");
    expect(INT64_C(1) << 60, NULL, 0);
}

static void test_group_of_version_2(void **state)
{
    (void)state;
    put("/sys/fs/cgroup/user.slice/run-3.scope/memory.max", "max\n");
    put("/sys/fs/cgroup/user.slice/run-3.scope/memory.current", "1073741824\n");
    expect(31 * GIB, NULL, 0);
    /* 4 GiB, 2 of them used, of those 1 of files: 3 GiB less a 64th of 4 */
    put("/sys/fs/cgroup/user.slice/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/user.slice/memory.current", "2147483648\n");
    put("/sys/fs/cgroup/user.slice/memory.stat",
        "anon 1073741824\nfile 1073741824\ninactive_anon 7\ninactive_file 536870912\n"
        "active_file 536870912\nworkingset 1\n");
    expect(3 * GIB - 64 * MIB, NULL, 0);
    expect(3 * GIB, "control group limit /sys/fs/cgroup/user.slice/memory.max", 3 * GIB - 64 * MIB);
    /* that of the process itself is lower still */
    put("/sys/fs/cgroup/user.slice/run-3.scope/memory.max", "2147483648\n");
    expect(3 * GIB, "control group limit /sys/fs/cgroup/user.slice/run-3.scope/memory.max",
           GIB - 32 * MIB);
}

/* In a container the path is that of the host; its own group is at the mount. */
static void test_group_of_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "9:name=systemd:/docker/0123\n4:cpu,memory:/docker/0123\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "6442450944\n");
    expect(31 * GIB, NULL, 0);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n");
    put("/sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 1073741824\n"
        "total_active_file 1073741824\n");
    int64_t left = 4 * GIB - 128 * MIB;
    expect(left, NULL, 0);
    expect(left + 1, "control group limit /sys/fs/cgroup/memory/memory.limit_in_bytes", left);
}

/* The least of the group and its ancestors counts, rounded up; "max", -1 and nonsense are none. */
static void test_cpu_quota(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/user.slice/run-3.scope\n");
    assert_int_equal(cores_quota(machine), 0);
    put("/sys/fs/cgroup/user.slice/run-3.scope/cpu.max", "max 100000\n");
    assert_int_equal(cores_quota(machine), 0);
    put("/sys/fs/cgroup/user.slice/cpu.max", "800000 100000\n");
    assert_int_equal(cores_quota(machine), 8);
    put("/sys/fs/cgroup/user.slice/run-3.scope/cpu.max", "250000 100000\n");
    assert_int_equal(cores_quota(machine), 3);
    put("/sys/fs/cgroup/user.slice/run-3.scope/cpu.max", "1000 100000\n");
    assert_int_equal(cores_quota(machine), 1);
    put("/sys/fs/cgroup/user.slice/run-3.scope/cpu.max", "1000\n");
    put("/sys/fs/cgroup/user.slice/cpu.max", "x 0\n");
    assert_int_equal(cores_quota(machine), 0);
    put("/proc/self/cgroup", "3:cpuset:/\n1:cpuacct,cpu:/docker/0123\n0::/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_quota(machine), 0);
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(cores_quota(machine), 4);
    assert_true(cores_allowed() >= 1);
}

/* This machine: whatever its files contain, some memory is available and not all of it. */
static void test_this_machine(void **state)
{
    (void)state;
    assert_int_equal(host_limits_check("", MIB).short_by, 0);
    assert_true(host_limits_check("", INT64_C(1) << 60).short_by > 0);
}

/* ---- the arena --------------------------------------------------------------------------------
 */

static struct tier *open_tier(const struct tier_host_options *o)
{
    struct tier *t;
    if (tier_open_host(&t, o))
        fail_msg("%s", error_get());
    assert_string_equal(t->ops->name, "host");
    return t;
}

static void test_growth(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 4095, 4096, 4097, 3 * MIB + 5, 3 * MIB + 5, MIB, 150 * MIB};
    for (int threads = 0; threads < 4; threads++) {
        struct tier *t = open_tier(
            &(struct tier_host_options){.budget = 150 * MIB, .node = -1, .threads = threads});
        char *base = t->ops->base(t), copy[4];
        int64_t known = 0;
        assert_int_equal((intptr_t)base % (2 * MIB), 0);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            assert_int_equal(t->ops->reserve(t, sizes[i]), 0);
            assert_ptr_equal(t->ops->base(t), base);
            for (int64_t k = 0; k < known; k += 997)
                assert_int_equal(base[k], (char)(k % 251));
            for (; known < sizes[i]; known++)
                base[known] = (char)(known % 251);
            assert_int_equal(t->bytes, known);
        }
        assert_int_equal(t->ops->read(t, 77, copy, 4), 0);
        assert_memory_equal(copy, base + 77, 4);
        assert_int_equal(t->ops->write(t, 5000, copy, 4), 0);
        assert_memory_equal(copy, base + 5000, 4);
        assert_int_equal(t->ops->reserve(t, 150 * MIB + 1), CKPT_ENOMEM);
        assert_non_null(strstr(error_get(), "1 bytes short"));
        t->ops->close(t);
    }
}

static void test_refusal(void **state)
{
    (void)state;
    struct tier *t =
        open_tier(&(struct tier_host_options){.budget = 48 * GIB, .node = 1, .root = machine});
    assert_int_equal(t->ops->reserve(t, 40 * GIB), CKPT_ENOMEM);
    assert_string_equal(
        error_get(),
        "host tier: 40.00 GiB (42949672960 bytes) of memory are needed, available memory "
        "(MemAvailable) leaves 31.00 GiB: 9.00 GiB (9663676416 bytes) short; lower --host or free "
        "memory");
    assert_int_equal(t->bytes, 0);
    assert_int_equal(t->ops->reserve(t, MIB), 0); /* less than that it still has */
    t->ops->close(t);
    assert_int_equal(tier_open_host(&t, &(struct tier_host_options){.node = -1}), CKPT_EINVAL);
    assert_null(t);
}

/* ---- pins -------------------------------------------------------------------------------------
 */

/* The device's record of pinned bytes, checked at each call. */
struct device_memory {
    char *base;
    struct {
        int64_t from, bytes;
    } pins[8];
    int n, calls, fails_at;
};

static int record_pin(void *user, void *at, int64_t bytes)
{
    struct device_memory *d = user;
    int64_t from = (char *)at - d->base;
    if (++d->calls == d->fails_at)
        return CKPT_ENOMEM;
    assert_int_equal(from % TIER_PIN_CHUNK, 0);
    assert_true(bytes > 0 && bytes <= TIER_PIN_CHUNK && d->n < 8);
    for (int i = 0; i < d->n; i++)
        assert_int_not_equal(d->pins[i].from, from);
    ((char *)at)[bytes - 1] = 0; /* the bytes are there */
    d->pins[d->n].from = from;
    d->pins[d->n++].bytes = bytes;
    return 0;
}

static void record_unpin(void *user, void *at, int64_t bytes)
{
    struct device_memory *d = user;
    for (int i = 0; i < d->n; i++) {
        if (d->pins[i].from != (char *)at - d->base)
            continue;
        assert_int_equal(d->pins[i].bytes, bytes);
        d->pins[i] = d->pins[--d->n];
        return;
    }
    fail_msg("unpinned what was not pinned");
}

static int64_t pinned(const struct device_memory *d)
{
    int64_t all = 0;
    for (int i = 0; i < d->n; i++)
        all += d->pins[i].bytes;
    return all;
}

/* Growth in three steps, each pin failing in turn: what was pinned is pinned again, and the tier
 * says how much of it is pageable. */
static void test_pins(void **state)
{
    (void)state;
    const int64_t sizes[] = {100 * MIB, TIER_PIN_CHUNK, TIER_PIN_CHUNK + 8 * MIB};
    for (int fails_at = 0; fails_at <= 5; fails_at++) {
        struct device_memory d = {.fails_at = fails_at};
        struct tier_pin pin = {record_pin, record_unpin, &d};
        struct tier *t = open_tier(
            &(struct tier_host_options){.budget = GIB, .node = -1, .pin = &pin, .threads = 2});
        d.base = t->ops->base(t);
        for (int i = 0; i < 3; i++) {
            int64_t before = t->pageable ? pinned(&d) : 0;
            assert_int_equal(t->ops->reserve(t, sizes[i]), 0);
            memset(d.base, 1, (size_t)sizes[i]);
            assert_int_equal(pinned(&d) + t->pageable, sizes[i]);
            assert_true(pinned(&d) >= before);
            assert_int_equal(!!t->pageable, !!strstr(t->how, "only "));
        }
        /* the second step pins the first anew, the third one more piece: no fourth call */
        assert_int_equal(t->pageable, fails_at == 1   ? sizes[2]
                                      : fails_at == 2 ? sizes[2] - sizes[0]
                                      : fails_at == 3 ? sizes[2] - sizes[1]
                                                      : 0);
        t->ops->close(t);
        assert_int_equal(d.n, 0);
    }
}

/* ---- the system refuses -----------------------------------------------------------------------
 */

static struct tier_sys failing;
static int mappings, mapping_fails_at;

static void *failing_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (++mappings == mapping_fails_at) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return mmap(at, bytes, protection, flags, fd, offset);
}

static int no_advice(void *at, size_t bytes, int advice)
{
    (void)at, (void)bytes, (void)advice;
    errno = EINVAL;
    return -1;
}

static int no_bind(void *at, size_t bytes, int node)
{
    (void)at, (void)bytes, (void)node;
    errno = EPERM;
    return -1;
}

static void test_mmap_fails(void **state)
{
    (void)state;
    failing = tier_system;
    failing.mmap = failing_mmap;
    struct tier_host_options o = {.budget = 8 * MIB, .node = -1, .sys = &failing};
    for (mapping_fails_at = 1; mapping_fails_at <= 3; mapping_fails_at++) {
        struct tier *t;
        mappings = 0;
        int rc = tier_open_host(&t, &o);
        assert_int_equal(rc, mapping_fails_at == 1 ? CKPT_ENOMEM : 0);
        if (!rc) {
            rc = t->ops->reserve(t, MIB);
            assert_int_equal(rc, mapping_fails_at == 2 ? CKPT_ENOMEM : 0);
            int64_t bytes = t->bytes;
            assert_int_equal(t->ops->reserve(t, 2 * MIB), mapping_fails_at == 3 ? CKPT_ENOMEM : 0);
            assert_int_equal(t->bytes, mapping_fails_at == 3 ? bytes : 2 * MIB);
            t->ops->close(t);
        }
        assert_non_null(strstr(error_get(), "host tier: the system refused"));
        assert_non_null(strstr(error_get(), "Cannot allocate memory"));
    }
}

/* Placement is a preference: without it the tier works and reports so. */
static void test_no_placement(void **state)
{
    (void)state;
    failing = tier_system;
    failing.madvise = no_advice;
    failing.bind = no_bind;
    struct tier *t =
        open_tier(&(struct tier_host_options){.budget = 8 * MIB, .node = 0, .sys = &failing});
    assert_int_equal(t->ops->reserve(t, MIB), 0);
    assert_string_equal(t->how, "small pages, near node 0 was refused");
    t->ops->close(t);
}

int main(void)
{
#define WITH_MACHINE(f) cmocka_unit_test_setup_teardown(f, make_machine, remove_machine)
    const struct CMUnitTest tests[] = {
        WITH_MACHINE(test_available),
        WITH_MACHINE(test_group_of_version_2),
        WITH_MACHINE(test_group_of_version_1),
        WITH_MACHINE(test_cpu_quota),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_growth),
        WITH_MACHINE(test_refusal),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_mmap_fails),
        cmocka_unit_test(test_no_placement),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir) ? 1 : 0;
}
