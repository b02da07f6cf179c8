/*
 * Plan files, the reading half.  Strict: every line in its place, every number in its range, and
 * memory is taken only for lines that are there.  Whether the plan is right is plan_check's.
 */
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"
#include "plan/comm.h"

struct parser {
    const struct graph *g;
    struct plan *p;
    const char *path;
    char *message;
    FILE *f;
    char *line, *at; /* the running line, and what of it was not yet read */
    size_t line_size;
    int64_t n; /* its number */
    int rc;    /* the first error */
};

/* what is the expectation that was not met. */
static void fail(struct parser *k, int code, const char *what)
{
    if (k->rc)
        return;
    k->rc = code;
    snprintf(k->message, CKPT_MESSAGE, "plan file %.300s, line %" PRId64 ": %s", k->path, k->n,
             what);
}

static void expected(struct parser *k, const char *what)
{
    char text[128];
    snprintf(text, sizeof(text), "expected %s", what);
    fail(k, CKPT_EFORMAT, text);
}

static bool next_line(struct parser *k)
{
    if (k->rc)
        return false;
    k->n++;
    ssize_t length = getline(&k->line, &k->line_size, k->f);
    if (length <= 0 || k->line[length - 1] != '\n' || strlen(k->line) != (size_t)length) {
        fail(k, ferror(k->f) ? CKPT_EIO : CKPT_EFORMAT,
             length <= 0 ? "the file ends too early" : "expected a line of text");
        return false;
    }
    k->line[length - 1] = '\0';
    k->at = k->line;
    return true;
}

/* Takes a word that a blank follows. */
static bool take(struct parser *k, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(k->at, word, n) || k->at[n] != ' ')
        return false;
    k->at += n;
    return true;
}

/* Takes a blank and a number: decimal, no sign but one minus, no leading zeros. */
static int64_t take_number(struct parser *k, int64_t least, int64_t most)
{
    const char *c = k->at + (*k->at == ' ');
    bool negative = *c == '-';
    int64_t value = 0;
    c += negative;
    const char *digits = c;
    for (; *c >= '0' && *c <= '9' && value <= (INT64_MAX - 9) / 10; c++)
        value = value * 10 + (*c - '0');
    bool canonical = c > digits && (digits[0] != '0' || (c == digits + 1 && !negative));
    value = negative ? -value : value;
    if (!canonical || (*c != ' ' && *c != '\0') || value < least || value > most) {
        char text[96];
        snprintf(text, sizeof(text), "a number from %" PRId64 " to %" PRId64, least, most);
        expected(k, text);
        return least;
    }
    k->at += c - k->at;
    return value;
}

static void end_of_line(struct parser *k, bool comment)
{
    if (comment ? strncmp(k->at, "  # ", 4) != 0 : *k->at != '\0')
        expected(k, comment ? "\"  # \" and a name" : "the end of the line");
}

static int64_t get_number(struct parser *k, const char *key, int64_t least, int64_t most)
{
    if (!next_line(k))
        return least;
    if (!take(k, key)) {
        expected(k, key);
        return least;
    }
    int64_t value = take_number(k, least, most);
    end_of_line(k, false);
    return value;
}

/* Takes a blank and a time; -1 if there is none. */
static double take_seconds(struct parser *k)
{
    char *end = k->at;
    bool digits = k->at[0] == ' ' && k->at[1] >= '0' && k->at[1] <= '9';
    double value = digits ? strtod(k->at + 1, &end) : -1;
    if (end == k->at || (*end != ' ' && *end != '\0') || !(value >= 0) || isinf(value))
        return -1;
    k->at = end;
    return value;
}

static double get_seconds(struct parser *k, const char *key)
{
    if (!next_line(k))
        return 0;
    double value = take(k, key) ? take_seconds(k) : -1;
    if (*k->at != '\0' || value < 0) {
        char text[64];
        snprintf(text, sizeof(text), "%s and a time in seconds", key);
        expected(k, text);
    }
    return value;
}

static void get_header(struct parser *k)
{
    if (next_line(k) && strcmp(k->line, "libckpt-plan 3"))
        fail(k, CKPT_EFORMAT, "this is no plan file of version 3, which begins \"libckpt-plan 3\"");
    if (!next_line(k))
        return;
    if (!take(k, "signature") || strlen(k->at) != 17 ||
        strspn(k->at + 1, "0123456789abcdef") != 16) {
        expected(k, "signature and 16 hex digits");
        return;
    }
    k->p->signature = strtoull(k->at, NULL, 16);
    if (k->p->signature != graph_signature(k->g))
        fail(k, CKPT_EPLAN,
             "the plan was made for another program, batch or version; make it "
             "again with --plan-out");
}

static void get_budget(struct parser *k)
{
    if (!next_line(k))
        return;
    if (!strcmp(k->line, "budget none")) {
        k->p->budgets.device = INT64_MAX;
    } else if (take(k, "budget")) {
        k->p->budgets.device = take_number(k, 0, INT64_MAX - 1);
        end_of_line(k, false);
    } else {
        expected(k, "budget");
    }
}

static void get_totals(struct parser *k)
{
    struct plan *p = k->p;
    get_header(k);
    get_budget(k);
    p->budgets.host = get_number(k, "host", 0, INT64_MAX - 1);
    p->budgets.nvme = get_number(k, "nvme", 0, INT64_MAX - 1);
    p->budgets.tier_base[TIER_HOST] = get_number(k, "host_base", 0, INT64_MAX / 4);
    p->budgets.tier_base[TIER_NVME] = get_number(k, "nvme_base", 0, INT64_MAX / 4);
    p->persistent = get_number(k, "persistent", 0, INT64_MAX / 4);
    p->transient = get_number(k, "transient", 0, INT64_MAX / 4);
    p->load = get_number(k, "load", 0, INT64_MAX / 4);
    p->peak_step = (int32_t)get_number(k, "peak_step", 0, INT32_MAX - 1);
    p->min_budget = get_number(k, "min_budget", 0, INT64_MAX - 1);
    p->min_peak_op = (int32_t)get_number(k, "min_peak_op", -1, k->g->n_ops - 1);
    p->host_bytes = get_number(k, "host_bytes", 0, INT64_MAX / 4);
    p->nvme_bytes = get_number(k, "nvme_bytes", 0, INT64_MAX / 4);
    p->staging_bytes = get_number(k, "staging_bytes", 0, INT64_MAX / 4);
    p->seconds = get_seconds(k, "seconds");
    p->recompute_seconds = get_seconds(k, "recompute_seconds");
    p->exposed_seconds = get_seconds(k, "exposed_seconds");
    if (graph_has_collectives(k->g)) {
        p->exposed_comm = get_seconds(k, "exposed_comm");
        p->comm_seconds = get_seconds(k, "comm_seconds");
    }
    p->bound_seconds = get_seconds(k, "bound_seconds");
    p->next_budget = get_number(k, "next_budget", 0, INT64_MAX - 1);
    p->next_seconds = get_seconds(k, "next_seconds");
}

static void get_steps(struct parser *k, int32_t count)
{
    struct {
        struct plan_step *data;
        int64_t capacity;
    } steps = {0};
    for (int32_t i = 0; i < count && next_line(k); i++) {
        bool again = take(k, "again"), on_host = !again && take(k, "host");
        if (!again && !on_host && !take(k, "run"))
            expected(k, "run, again or host");
        int32_t op = (int32_t)take_number(k, 0, k->g->n_ops - 1);
        end_of_line(k, true);
        if (ARRAY_RESERVE(&steps, i)) {
            fail(k, CKPT_ENOMEM, "out of host memory");
            break;
        }
        steps.data[i] = (struct plan_step){op, again, on_host};
    }
    k->p->steps = steps.data;
}

static struct plan_instance get_instance(struct parser *k)
{
    struct plan_instance i = {0};
    int32_t last = k->p->n_steps - 1;
    if (take(k, "workspace")) {
        i.first = i.last = (int32_t)take_number(k, 0, last);
        i.storage = -1 - i.first;
        i.offset = take_number(k, 0, INT64_MAX / 4);
        end_of_line(k, false);
    } else if (take(k, "storage")) {
        i.storage = (int32_t)take_number(k, 0, k->g->n_storages - 1);
        i.first = (int32_t)take_number(k, 0, last);
        i.last = (int32_t)take_number(k, i.first, last);
        i.offset = take_number(k, 0, INT64_MAX / 4);
        end_of_line(k, true);
    } else {
        expected(k, "storage or workspace");
    }
    return i;
}

static void get_instances(struct parser *k, int32_t count)
{
    struct {
        struct plan_instance *data;
        int64_t capacity;
    } all = {0};
    for (int32_t n = 0; n < count && next_line(k); n++) {
        struct plan_instance i = get_instance(k);
        if (ARRAY_RESERVE(&all, n)) {
            fail(k, CKPT_ENOMEM, "out of host memory");
            break;
        }
        all.data[n] = i;
    }
    k->p->instances = all.data;
}

static void get_times(struct parser *k, double *out_start, double *out_end, double *in_start,
                      double *in_end)
{
    double *times[] = {out_start, out_end, in_start, in_end};
    bool good = next_line(k) && take(k, "times");
    for (int i = 0; i < 4 && good; i++) {
        *times[i] = take_seconds(k);
        good = *times[i] >= 0;
    }
    if (!good || *k->at != '\0')
        expected(k, "times and four times in seconds");
}

static struct plan_park get_park(struct parser *k)
{
    struct plan_park park = {0};
    int32_t last = k->p->n_steps - 1;
    bool nvme = false;
    park.clean = take(k, "clean");
    if ((!park.clean && !take(k, "park")) || k->at++[0] != ' ' ||
        (!(nvme = take(k, "nvme")) && !take(k, "host"))) {
        expected(k, "park or clean, and host or nvme");
        return park;
    }
    park.tier = nvme ? FATE_PARK_NVME : FATE_PARK_HOST;
    park.storage = (int32_t)take_number(k, 0, k->g->n_storages - 1);
    park.out_step = (int32_t)take_number(k, 0, last);
    park.free_step = (int32_t)take_number(k, 0, last);
    park.in_step = (int32_t)take_number(k, 0, last);
    park.use_step = (int32_t)take_number(k, 0, last);
    park.tier_offset = take_number(k, 0, INT64_MAX / 4);
    end_of_line(k, true);
    get_times(k, &park.out_start, &park.out_end, &park.in_start, &park.in_end);
    return park;
}

static void get_parks(struct parser *k, int32_t count)
{
    struct {
        struct plan_park *data;
        int64_t capacity;
    } all = {0};
    for (int32_t n = 0; n < count && next_line(k); n++) {
        struct plan_park park = get_park(k);
        if (ARRAY_RESERVE(&all, n)) {
            fail(k, CKPT_ENOMEM, "out of host memory");
            break;
        }
        all.data[n] = park;
    }
    k->p->parks = all.data;
}

/* Takes the running line, and the one behind it, if it is a lodging. */
static bool get_lodging(struct parser *k, int64_t *capacity)
{
    struct plan *p = k->p;
    struct plan_lodging l = {0};
    if (!take(k, "lodging"))
        return false;
    l.storage = (int32_t)take_number(k, 0, k->g->n_storages - 1);
    l.out_step = (int32_t)take_number(k, -1, p->n_steps - 1);
    l.in_step = (int32_t)take_number(k, -1, p->n_steps);
    l.tier_offset = take_number(k, 0, INT64_MAX / 4);
    end_of_line(k, true);
    get_times(k, &l.out_start, &l.out_end, &l.in_start, &l.in_end);
    if (array_reserve((void **)&p->lodgings, capacity, p->n_lodgings, sizeof l))
        fail(k, CKPT_ENOMEM, "out of host memory");
    else
        p->lodgings[p->n_lodgings++] = l;
    return true;
}

/* Takes the running line if it is a pin. */
static bool get_pin(struct parser *k)
{
    bool is_pin;
    int rc = pins_read(&k->p->pins, k->line, &is_pin);
    if (rc == CKPT_ENOMEM)
        fail(k, rc, "out of host memory");
    else if (rc)
        expected(k, "pin, a key of 16 hex digits and a choice");
    return is_pin;
}

static void get_plan(struct parser *k)
{
    get_totals(k);
    k->p->n_steps = (int32_t)get_number(k, "steps", 0, INT32_MAX / 4);
    k->p->n_body = (int32_t)get_number(k, "body", 0, k->p->n_steps);
    k->p->n_instances = (int32_t)get_number(k, "instances", 0, INT32_MAX / 4);
    k->p->n_parks = (int32_t)get_number(k, "parks", 0, INT32_MAX / 4);
    if (!k->rc)
        get_steps(k, k->p->n_steps);
    if (!k->rc)
        get_instances(k, k->p->n_instances);
    if (!k->rc)
        get_parks(k, k->p->n_parks);
    for (int64_t capacity = 0; next_line(k) && get_lodging(k, &capacity);)
        ;
    while (!k->rc && get_pin(k))
        next_line(k);
    if (!k->rc && strcmp(k->line, "end"))
        expected(k, "end");
    if (!k->rc && fgetc(k->f) != EOF)
        fail(k, CKPT_EFORMAT, "something follows the end");
}

/* Numbers are written with a point whatever the user's language is. */
static int parse_plainly(struct parser *k)
{
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!plain) {
        fail(k, CKPT_ENOMEM, "out of host memory");
        return k->rc;
    }
    locale_t before = uselocale(plain);
    get_plan(k);
    uselocale(before);
    freelocale(plain);
    return k->rc;
}

/* Opens the file and parses it into a plan of its own.  Returns k->rc. */
static int parse_file(struct parser *k, int (*parse)(struct parser *k))
{
    k->message[0] = '\0';
    const char *why;
    k->f = file_open_input(k->path, &why);
    if (!k->f) {
        snprintf(k->message, CKPT_MESSAGE, "plan file %.300s cannot be opened: %s", k->path, why);
        return CKPT_EIO;
    }
    k->p = calloc(1, sizeof(*k->p));
    if (!k->p)
        fail(k, CKPT_ENOMEM, "out of host memory");
    else
        parse(k);
    fclose(k->f);
    free(k->line);
    return k->rc;
}

int plan_read(const struct graph *g, const char *path, struct plan **p, char message[CKPT_MESSAGE])
{
    struct parser k = {.g = g, .path = path, .message = message};
    int rc = parse_file(&k, parse_plainly);
    *p = rc ? NULL : k.p;
    if (rc)
        plan_free(k.p);
    return rc;
}

/* What is not a pin is left to who reads the whole plan. */
static int parse_pins(struct parser *k)
{
    while (next_line(k) && strcmp(k->line, "end"))
        get_pin(k);
    return k->rc;
}

int plan_read_pins(const char *path, struct pins *pins, char message[CKPT_MESSAGE])
{
    struct parser k = {.path = path, .message = message};
    int rc = parse_file(&k, parse_pins);
    if (!rc && pins_add(pins, &k.p->pins)) {
        rc = CKPT_ENOMEM;
        snprintf(message, CKPT_MESSAGE, "out of host memory");
    }
    plan_free(k.p);
    return rc;
}
