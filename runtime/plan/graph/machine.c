/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machine files: one JSON object.  Every member is required but "devices", "algorithms" and rows
 * marked as optional; unknown members are an error.  Most members are rows of one table that the
 * reader and the writer iterate over, so that files have one order.
 *
 * Units: bytes, seconds, bytes or operations a second.  The built-in machines are round figures for
 * plans without a file; they are marked as estimates, which every plan made with them says.  Costs
 * are sorted by key and, of one key, by time: the same file gives the same plan.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "core/file.h"
#include "core/json.h"
#include "core/number.h"
#include "plan/graph/lines.h"
#include "plan/graph/machine.h"

#define FORMAT       "libckpt-machine 1"
#define LINKS_FORMAT "libckpt-links 1"

const struct machine machine_cpu = {.name = "cpu",
                                    .estimate = true,
                                    .memory = INT64_C(16) << 30,
                                    .flops = 60e9,
                                    .bandwidth = 15e9,
                                    .overhead = 3e-6,
                                    .d2h = 8e9,
                                    .h2d = 8e9,
                                    .d2h_both = 5e9,
                                    .h2d_both = 5e9,
                                    .host_bandwidth = 15e9,
                                    .nvme_read = 2e9,
                                    .nvme_write = 1e9,
                                    .links = {.host = 4e9,
                                              .host_latency = 2e-5,
                                              .net = 1e9,
                                              .net_latency = 5e-5,
                                              .ranks_per_host = 4,
                                              .contention = 0.05},
                                    .source = "a plain computer with a few cores"};

/* Ops are timed where they run; only the links are estimates. */
const struct machine machine_cuda = {.name = "a GPU",
                                     .estimate = true,
                                     .backend = CKPT_ON_CUDA,
                                     .memory = INT64_C(80) << 30,
                                     .process = INT64_C(600) << 20,
                                     .flops = 3e14,
                                     .attention = 0.55,
                                     .bandwidth = 1.5e12,
                                     .overhead = 2e-6,
                                     .d2h = 2.5e10,
                                     .h2d = 2.5e10,
                                     .d2h_both = 2e10,
                                     .h2d_both = 2e10,
                                     .host_bandwidth = 1e11,
                                     .nvme_read = 3e9,
                                     .nvme_write = 2e9,
                                     .links = {.host = 2e10,
                                               .host_latency = 5e-6,
                                               .net = 1e10,
                                               .net_latency = 1.5e-5,
                                               .ranks_per_host = 8,
                                               .overhead = 8e-5,
                                               .contention = 0.45},
                                     .source = "figures any data centre GPU reaches"};

enum member_type {
    MEMBER_BYTES,
    MEMBER_OPTIONAL_BYTES, /* 0 stands for none, as of the rate below */
    MEMBER_RATE,           /* a second, of bytes or operations */
    MEMBER_OPTIONAL_RATE,
    MEMBER_TIME,  /* seconds */
    MEMBER_SHARE, /* seconds lost for each second of something else */
    MEMBER_PART,  /* of the rate of matrix products */
    MEMBER_COUNT
};

static const struct member {
    const char *name;
    enum member_type type;
    size_t offset;
    bool optional; /* if missing, the value of the built-in machine holds */
    bool of_links;
} members[] = {
#define AT(member) offsetof(struct machine, member)
    {"capability", MEMBER_COUNT, AT(capability), true, false},
    {"memory", MEMBER_BYTES, AT(memory), false, false},
    {"process", MEMBER_OPTIONAL_BYTES, AT(process), false, false},
    {"flops", MEMBER_RATE, AT(flops), false, false},
    {"attention", MEMBER_PART, AT(attention), true, false},
    {"bandwidth", MEMBER_RATE, AT(bandwidth), false, false},
    {"overhead", MEMBER_TIME, AT(overhead), false, false},
    {"d2h", MEMBER_RATE, AT(d2h), false, false},
    {"h2d", MEMBER_RATE, AT(h2d), false, false},
    {"d2h_both", MEMBER_RATE, AT(d2h_both), false, false},
    {"h2d_both", MEMBER_RATE, AT(h2d_both), false, false},
    {"copy_overhead", MEMBER_TIME, AT(copy_overhead), true, false},
    {"host_copies", MEMBER_OPTIONAL_RATE, AT(host_copies), true, false},
    {"host_bandwidth", MEMBER_RATE, AT(host_bandwidth), false, false},
    {"host_update", MEMBER_OPTIONAL_RATE, AT(host_update), true, false},
    {"nvme_read", MEMBER_OPTIONAL_RATE, AT(nvme_read), false, false},
    {"nvme_write", MEMBER_OPTIONAL_RATE, AT(nvme_write), false, false},
    {"nvme_both", MEMBER_OPTIONAL_RATE, AT(nvme_both), true, false},
    {"nvme_endurance", MEMBER_OPTIONAL_RATE, AT(nvme_endurance), false, false},
    {"link_host", MEMBER_RATE, AT(links.host), true, true},
    {"link_host_latency", MEMBER_TIME, AT(links.host_latency), true, true},
    {"link_net", MEMBER_RATE, AT(links.net), true, true},
    {"link_net_latency", MEMBER_TIME, AT(links.net_latency), true, true},
    {"ranks_per_host", MEMBER_COUNT, AT(links.ranks_per_host), true, true},
    {"link_overhead", MEMBER_TIME, AT(links.overhead), true, true},
    {"link_drag", MEMBER_SHARE, AT(links.contention), true, true},
#undef AT
};
#define N_MEMBERS (sizeof(members) / sizeof(members[0]))

struct reader {
    const char *what, *path;
    int rc; /* the first error */
};

static void CKPT_PRINTF(3, 4) fail(struct reader *r, int code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (r->rc)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r->rc = code;
    error_set(code, "%s %.300s: %s", r->what, r->path, text);
}

static json_t *get(struct reader *r, const json_t *root, const char *name)
{
    json_t *value = json_object_get(root, name);
    if (!value)
        fail(r, CKPT_EFORMAT, "\"%s\" is missing", name);
    return r->rc ? NULL : value;
}

/* Reads a text that is not empty, fits in dst and has no control characters. */
static void take_text(struct reader *r, const json_t *value, const char *name, char *dst,
                      size_t size)
{
    const char *text = json_string_value(value);
    bool plain = text && strlen(text) == json_string_length(value);
    for (const char *c = text; plain && *c; c++)
        plain = (unsigned char)*c >= 0x20 && *c != 0x7f;
    if (!plain || !*text || strlen(text) >= size)
        fail(r, CKPT_EFORMAT, "\"%s\" must be a text of 1 to %zu plain characters", name, size - 1);
    else
        memcpy(dst, text, strlen(text) + 1);
}

static void get_text(struct reader *r, const json_t *root, const char *name, char *dst, size_t size)
{
    const json_t *value = get(r, root, name);
    if (value)
        take_text(r, value, name, dst, size);
}

/* ["NVIDIA H200", ...]; without this member the file is found only by its name. */
static void get_devices(struct reader *r, const json_t *root, struct machine *m)
{
    const json_t *devices = json_object_get(root, "devices");
    if (!devices)
        return;
    if (!json_is_array(devices) || json_array_size(devices) > MACHINE_DEVICES) {
        fail(r, CKPT_EFORMAT, "\"devices\" must be a list of at most %d names", MACHINE_DEVICES);
        return;
    }
    for (size_t i = 0; i < json_array_size(devices) && !r->rc; i++)
        take_text(r, json_array_get(devices, i), "devices", m->devices[m->n_devices++],
                  sizeof(m->devices[0]));
}

static bool is_whole(const struct member *row)
{
    return row->type == MEMBER_BYTES || row->type == MEMBER_OPTIONAL_BYTES ||
           row->type == MEMBER_COUNT;
}

static void get_whole(struct reader *r, const struct member *row, const json_t *value, int64_t *dst)
{
    int64_t least = row->type != MEMBER_OPTIONAL_BYTES;
    int64_t most = row->type == MEMBER_COUNT ? 1 << 20 : INT64_MAX / 4;
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most)
        fail(r, CKPT_EFORMAT, "\"%s\" must be a whole number%s from %" PRId64 " to %" PRId64,
             row->name, row->type == MEMBER_COUNT ? "" : " of bytes", least, most);
    else
        *dst = json_integer_value(value);
}

static const struct range {
    double least, most;
    const char *what;
} ranges[] = {
    [MEMBER_RATE] = {1, 1e21, "a number from 1 to 1e21"},
    [MEMBER_OPTIONAL_RATE] = {0, 1e21, "a number from 0 to 1e21; 0 stands for none"},
    [MEMBER_TIME] = {0, 1e9, "a time from 0 to 1e9 seconds"},
    [MEMBER_SHARE] = {0, 100, "a number from 0 to 100"},
    [MEMBER_PART] = {0.01, 10, "a share from 0.01 to 10"},
};

static void get_member(struct reader *r, const json_t *root, const struct member *row, void *m)
{
    bool left_out = row->optional && !json_object_get(root, row->name);
    const json_t *value = left_out ? NULL : get(r, root, row->name);
    void *field = (char *)m + row->offset;
    if (!value)
        return;
    if (is_whole(row)) {
        get_whole(r, row, value, field);
        return;
    }
    const struct range *range = &ranges[row->type];
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= range->least && number <= range->most))
        fail(r, CKPT_EFORMAT, "\"%s\" must be %s", row->name, range->what);
    else
        *(double *)field = number;
}

static int compare_keys(const void *a, const void *b)
{
    const struct machine_cost *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static int compare_costs(const void *a, const void *b)
{
    const struct machine_cost *x = a, *y = b;
    int order = compare_keys(a, b);
    return order ? order : (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

void machine_sort_costs(struct machine_cost *costs, int32_t n)
{
    qsort(costs, (size_t)n, sizeof(*costs), compare_costs);
}

/* Sixteen hexadecimal digits, of the member `of`. */
static uint64_t get_key(struct reader *r, const char *of, const char *key)
{
    char text[64];
    if (strlen(key) != 16 || strspn(key, "0123456789abcdef") != 16)
        fail(r, CKPT_EFORMAT, "\"%s\" has the key \"%s\", expected 16 hex digits", of,
             text_shown(key, text, sizeof text));
    return strtoull(key, NULL, 16);
}

/* {"00f1...": "cublaslt 130100 ...", ...}; optional. */
static void get_algorithms(struct reader *r, const json_t *root, struct machine *m)
{
    json_t *all = json_object_get(root, "algorithms");
    char choice[MACHINE_CHOICE];
    if (all && !json_is_object(all))
        fail(r, CKPT_EFORMAT, "\"algorithms\" must be an object of keys of products and texts");
    for (void *at = json_object_iter(all); at && !r->rc; at = json_object_iter_next(all, at)) {
        uint64_t key = get_key(r, "algorithms", json_object_iter_key(at));
        if (!r->rc)
            take_text(r, json_object_iter_value(at), "algorithms", choice, sizeof choice);
        if (!r->rc && algorithms_set(&m->algorithms, key, choice))
            fail(r, CKPT_ENOMEM, "out of host memory");
    }
}

/* {"00f1...": seconds, ...} */
static void get_costs(struct reader *r, const json_t *root, struct machine *m)
{
    json_t *costs = get(r, root, "costs");
    if (!costs)
        return;
    if (!json_is_object(costs)) {
        fail(r, CKPT_EFORMAT, "\"costs\" must be an object of op keys and seconds");
        return;
    }
    m->costs = calloc(json_object_size(costs) + 1, sizeof(*m->costs));
    if (!m->costs)
        fail(r, CKPT_ENOMEM, "out of host memory");
    for (void *at = json_object_iter(costs); at && !r->rc; at = json_object_iter_next(costs, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        double seconds = json_is_number(value) ? json_number_value(value) : NAN;
        uint64_t key = get_key(r, "costs", name);
        if (!(seconds >= 0 && seconds <= 1e9))
            fail(r, CKPT_EFORMAT, "the cost of op %s must be a time from 0 to 1e9 seconds", name);
        else
            m->costs[m->n_costs++] = (struct machine_cost){key, seconds};
    }
    if (m->costs)
        machine_sort_costs(m->costs, m->n_costs);
}

static const char *const backends[] = {[CKPT_ON_CPU] = "cpu", [CKPT_ON_CUDA] = "cuda"};

static void get_backend(struct reader *r, const json_t *root, struct machine *m)
{
    const json_t *value = get(r, root, "backend");
    const char *text = json_string_value(value);
    if (!value)
        return;
    m->backend = text && !strcmp(text, backends[CKPT_ON_CUDA]) ? CKPT_ON_CUDA : CKPT_ON_CPU;
    if (!text || strcmp(text, backends[m->backend]))
        fail(r, CKPT_EFORMAT, "\"backend\" must be \"cpu\" or \"cuda\"");
}

/* Rejects another format, and members of other names than `others` and those of the table, or of
 * its links. */
static void check_members(struct reader *r, json_t *root, const char *format,
                          const char *const *others, int n, bool links)
{
    const char *own = json_string_value(json_object_get(root, "format"));
    char text[64];
    if (!own || strcmp(own, format))
        fail(r, CKPT_EFORMAT, "this is no %s of version 1: \"format\" must be \"%s\"", r->what,
             format);
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *name = json_object_iter_key(at);
        bool known = false;
        for (int i = 0; i < n; i++)
            known |= !strcmp(name, others[i]);
        for (size_t i = 0; i < N_MEMBERS; i++)
            known |= (members[i].of_links || !links) && !strcmp(name, members[i].name);
        if (!known)
            fail(r, CKPT_EFORMAT, "unknown member \"%s\"", text_shown(name, text, sizeof text));
    }
}

static void get_machine(struct reader *r, json_t *root, struct machine *m)
{
    static const char *const others[] = {"format",  "name",    "estimate",   "source",
                                         "backend", "devices", "algorithms", "costs"};
    check_members(r, root, FORMAT, others, 8, false);
    get_text(r, root, "name", m->name, sizeof(m->name));
    get_text(r, root, "source", m->source, sizeof(m->source));
    const json_t *estimate = get(r, root, "estimate");
    if (estimate && !json_is_boolean(estimate))
        fail(r, CKPT_EFORMAT, "\"estimate\" must be true or false");
    m->estimate = json_is_true(estimate);
    get_backend(r, root, m);
    get_devices(r, root, m);
    const struct machine *builtin = m->backend == CKPT_ON_CUDA ? &machine_cuda : &machine_cpu;
    m->links = builtin->links;
    m->attention = builtin->attention;
    for (size_t i = 0; i < N_MEMBERS; i++)
        get_member(r, root, &members[i], m);
    get_algorithms(r, root, m);
    get_costs(r, root, m);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void get_links(struct reader *r, json_t *root, struct machine *m)
{
    static const char *const others[] = {"format", "source"};
    check_members(r, root, LINKS_FORMAT, others, 2, true);
    for (size_t i = 0; i < N_MEMBERS; i++)
        if (members[i].of_links)
            get_member(r, root, &members[i], m);
}

static json_t *load(struct reader *r)
{
    json_error_t error;
    char text[JSON_ERROR_TEXT_LENGTH];
    const char *why;
    FILE *f = file_open_input(r->path, &why);
    if (!f) {
        fail(r, CKPT_EIO, "cannot be opened: %s", why);
        return NULL;
    }
    json_t *root = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
    fclose(f);
    if (!root)
        fail(r, CKPT_EFORMAT, "line %d is not JSON: %s", error.line,
             text_shown(error.text, text, sizeof text));
    return root;
}

int machine_read_links(const char *path, struct machine *m)
{
    struct reader r = {.what = "link file", .path = path};
    struct machine read = *m;
    json_t *root = load(&r);
    if (root)
        get_links(&r, root, &read);
    json_decref(root);
    if (!r.rc)
        m->links = read.links;
    return r.rc;
}

int machine_take(const char *what, struct json_t *root, struct machine *m)
{
    struct reader r = {.what = "machine file", .path = what};
    const char *slash = strrchr(what, '/');
    *m = (struct machine){.n_costs = 0};
    get_machine(&r, root, m);
    if (r.rc)
        machine_free(m);
    else
        snprintf(m->file, sizeof(m->file), "%.63s", slash ? slash + 1 : what);
    return r.rc;
}

int machine_read_file(const char *path, struct machine *m)
{
    struct reader r = {.what = "machine file", .path = path};
    json_t *root = load(&r);
    int rc = root ? machine_take(path, root, m) : r.rc;
    json_decref(root);
    return rc;
}

void machine_free(struct machine *m)
{
    free(m->costs);
    algorithms_free(&m->algorithms);
    *m = (struct machine){.n_costs = 0};
}

static void put_text(FILE *f, const char *name, const char *text)
{
    fprintf(f, "  \"%s\": ", name);
    json_write_string(f, text);
    fputs(",\n", f);
}

static void put_devices(FILE *f, const struct machine *m)
{
    fputs("  \"devices\": [", f);
    for (int32_t i = 0; i < m->n_devices; i++) {
        fputs(i ? ", " : "", f);
        json_write_string(f, m->devices[i]);
    }
    fputs("],\n", f);
}

static void put_algorithms(FILE *f, const struct algorithms *p)
{
    if (p->n)
        fputs("  \"algorithms\": {", f);
    for (int64_t i = 0; i < p->n; i++) {
        fprintf(f, "%s\n    \"%016" PRIx64 "\": ", i ? "," : "", p->data[i].key);
        json_write_string(f, p->data[i].choice);
    }
    if (p->n)
        fputs("\n  },\n", f);
}

static void put_machine(FILE *f, const void *user)
{
    const struct machine *m = user;
    char text[NUMBER_TEXT];
    fputs("{\n", f);
    put_text(f, "format", FORMAT);
    put_text(f, "name", m->name);
    fprintf(f, "  \"estimate\": %s,\n", m->estimate ? "true" : "false");
    put_text(f, "source", m->source);
    put_text(f, "backend", backends[m->backend]);
    put_devices(f, m);
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const void *field = (const char *)m + members[i].offset;
        if (members[i].of_links ? !m->links.ranks_per_host
                                : members[i].optional && *(const double *)field == 0)
            continue; /* not measured */
        if (is_whole(&members[i]))
            snprintf(text, sizeof(text), "%" PRId64, *(const int64_t *)field);
        else
            number_format(text, *(const double *)field);
        fprintf(f, "  \"%s\": %s,\n", members[i].name, text);
    }
    put_algorithms(f, &m->algorithms);
    fputs("  \"costs\": {", f);
    for (int32_t i = 0; i < m->n_costs; i++) {
        number_format(text, m->costs[i].seconds);
        fprintf(f, "%s\n    \"%016" PRIx64 "\": %s", i ? "," : "", m->costs[i].key, text);
    }
    fputs(m->n_costs ? "\n  }\n}\n" : "}\n}\n", f);
}

int machine_write(const struct machine *m, const char *path)
{
    return lines_write("machine file", path, put_machine, m);
}

struct machine machine_for_rank(const struct machine *m, int64_t ranks)
{
    struct machine own = *m;
    int64_t beside = links_beside(&m->links, ranks);
    double share = m->host_copies / (double)beside;
    if (share > 0 && beside > 1) {
        own.d2h_both = fmin(m->d2h_both, share);
        own.h2d_both = fmin(m->h2d_both, share);
    }
    return own;
}

/* Drivers copy pageable memory through a pinned buffer of their own, with one thread: an estimate
 * of the rate as a share of the pinned one. */
#define PAGEABLE_RATE .4

struct machine machine_pageable(const struct machine *m, double share)
{
    struct machine own = *m;
    double rate = 1 / (1 - share + share / PAGEABLE_RATE);
    own.d2h *= rate;
    own.h2d *= rate;
    own.d2h_both *= rate;
    own.h2d_both *= rate;
    return own;
}

bool machine_cost(const struct machine *m, uint64_t key, double *seconds)
{
    const struct machine_cost wanted = {key, 0}, *c = NULL;
    if (m->n_costs)
        c = bsearch(&wanted, m->costs, (size_t)m->n_costs, sizeof(wanted), compare_keys);
    *seconds = c ? c->seconds : *seconds;
    return c != NULL;
}
