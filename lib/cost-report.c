/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-report.h"

#include <unistd.h>

#include "cost-clock.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "timeval.h"
#include "unixctl.h"
#include "unixctl-worker.h"
#include "util.h"

/* Accounts are added to a reply up to this length, for the sake of the main
 * thread, which has to send it.  Text, which it has to quote first, takes it
 * longer than JSON, which is ready to be sent. */
#define MAX_TEXT (256 * 1024)
#define MAX_JSON (2048 * 1024)

#define DEFAULT_ACCOUNTS 20             /* -n */
#define DEFAULT_ROWS 10                 /* -n with -top. */

#define OPTIONS "[-hist] [-thread] [-top] [-slowest N] [-packet] " \
                "[-last TIME] [-n N]"

/* A command for the worker. */
struct request {
    const struct cost_report *report;   /* Or NULL if of cost/show, ... */
    cost_report_more_cb *more;          /* ...or of another command. */
    const struct cost_report **reports;
    size_t n_reports;
    struct cost_view view;
    size_t n;                           /* -n, SIZE_MAX for all, or 0. */
    char *name;                         /* Of the account, NULL for all. */
};

/* When this process began to account. */
static long long int start_us;

/* All that the main thread has registered.  The worker reads them, too. */
static const struct cost_report *reports[16];
static ATOMIC(size_t) n_reports;

static cost_report_more_cb *more_reply;  /* Of a command 'in_show'. */

static size_t
count_reports(void)
{
    size_t n;

    atomic_read_explicit(&n_reports, &n, memory_order_acquire);
    return n;
}

/* Returns what every reply in JSON to PREFIX/COMMAND has, with the settings of
 * 'config' unless it is NULL. */
struct json *
cost_report_json_header(const char *prefix, const char *command,
                        struct cost_config *config)
{
    struct json *json = json_object_create();

    cost_put_integer(json, "version", 2);
    json_object_put_string(json, "report", prefix);
    json_object_put_string(json, "command", command);
    cost_put_integer(json, "pid", getpid());
    cost_put_integer(json, "start_us", start_us);
    json_object_put_string(json, "ovs_version", VERSION VERSION_SUFFIX);
    cost_put_integer(json, "now_us", time_wall_usec());

    json_object_put_string(cost_put_object(json, "clock"), "source",
                           cost_clock_name());

    if (config) {
        uint32_t interval = cost_sample_interval(config);
        struct json *settings = cost_put_object(json, "settings");

        json_object_put(settings, "enabled",
                        json_boolean_create(interval != 0));
        cost_put_integer(settings, "sample_interval", interval);
    }
    return json;
}

/* Makes '*seconds' what 'arg', the argument of -last or NULL, stands for.
 * Returns NULL if successful, otherwise an error message that the caller must
 * free. */
static char *
parse_last(const char *arg, int *seconds)
{
    static const struct {
        const char *name;
        int seconds;
    } windows[] = { { "10s", 10 }, { "1m", 60 }, { "5m", 300 },
                    { "15m", 900 } };

    for (size_t i = 0; arg && i < ARRAY_SIZE(windows); i++) {
        if (!strcmp(arg, windows[i].name)) {
            *seconds = windows[i].seconds;
            return NULL;
        }
    }
    return xstrdup("-last must be followed by 10s, 1m, 5m or 15m");
}

/* Commands, in the worker. */

static void
request_destroy(struct request *request)
{
    free(request->reports);
    free(request->name);
    free(request);
}

/* Returns an error message that 'report' has no account named 'name'. */
static char *
no_such_account(const struct cost_report *report, const char *name)
{
    return xasprintf("no %s named \"%s\"", report->object, name);
}

/* An account, and what it is sorted by. */
struct sorted_account {
    struct cost_account *account;
    uint64_t timed_ns;                  /* Sum of totals that are known. */
    uint64_t n_events;
    enum { UNKNOWN, EMPTY, ACTIVE } state;  /* Has it numbers of the time that
                                             * was asked for, and is any of
                                             * them not 0? */
};

static int
compare_accounts(const void *a_, const void *b_)
{
    const struct sorted_account *a = a_, *b = b_;

    return (a->timed_ns != b->timed_ns ? (a->timed_ns < b->timed_ns ? 1 : -1)
            : a->n_events != b->n_events
            ? (a->n_events < b->n_events ? 1 : -1)
            : a->state != b->state ? (a->state < b->state ? 1 : -1)
            : strcmp(cost_account_name(a->account),
                     cost_account_name(b->account)));
}

/* Sorts 'all', those that most time was spent on first.  Stores in 'n' how
 * many have which state or a better one, and returns the longest time that any
 * has numbers of. */
static long long int
sort_accounts(struct cost_accounts *all, size_t n[ACTIVE + 1])
{
    struct sorted_account *sorted = xcalloc(all->n, sizeof *sorted);
    long long int have_ms = 0;

    for (size_t i = 0; i < all->n; i++) {
        struct sorted_account *account = &sorted[i];
        struct cost_reading reading;

        account->account = all->accounts[i];
        if (cost_account_read(account->account, &all->from, &reading)) {
            account->state = EMPTY;
            for (size_t j = 0; j < reading.total.n_classes; j++) {
                const struct cost_block *block = reading.total.classes[j];

                if (block) {
                    account->n_events += cost_block_events(block);
                    account->timed_ns += cost_load(&block->total->sum);
                    account->state = ACTIVE;
                }
            }
            have_ms = MAX(have_ms, reading.elapsed_ms);
            cost_reading_uninit(&reading);
        }
        ovsrcu_quiesce();
    }
    qsort(sorted, all->n, sizeof *sorted, compare_accounts);
    memset(n, 0, (ACTIVE + 1) * sizeof n[0]);
    for (size_t i = 0; i < all->n; i++) {
        all->accounts[i] = sorted[i].account;
        for (int state = UNKNOWN; state <= sorted[i].state; state++) {
            n[state]++;
        }
    }
    free(sorted);
    return have_ms;
}

/* Appends 'sums', one for each kind of 'report', to 's', an object, as 'name',
 * those of no account only if 'all'. */
static void
put_sums(struct ds *s, const char *name, const struct cost_report *report,
         const struct cost_view *view, const struct cost_sum *sums,
         long long int have_ms, bool all)
{
    cost_json_begin(s, name);
    ds_put_char(s, '[');
    for (size_t i = 0; i < report->n_kinds; i++) {
        if (sums[i].n_accounts || all) {
            cost_put_sum(s, view, &sums[i], have_ms);
        }
    }
    ds_put_char(s, ']');
}

/* Appends what is below the accounts of a text: 'n' of the 'n_in' that have
 * numbers, 'wanted' at most, of 'all' accounts. */
static void
put_end(struct ds *s, const struct cost_report *report,
        const struct request *request, const struct cost_accounts *all,
        size_t n, size_t n_in, size_t wanted, long long int have_ms)
{
    const struct cost_view *view = &request->view;

    if (!view->top && n_in < all->n) {
        ds_put_format(s, "%"PRIuSIZE" %s%s without numbers of that time\n",
                      all->n - n_in, report->object,
                      all->n - n_in == 1 ? "" : "s");
    }
    if (!view->top && n < n_in) {
        ds_put_format(s, "and %"PRIuSIZE" more %s%s (%s)\n", n_in - n,
                      report->object, n_in - n == 1 ? "" : "s",
                      n < wanted ? "there is no room for them"
                      : "use -n to see more of them");
    }
    for (size_t i = 0; i < all->n_kinds; i++) {
        const struct cost_sum *sum = view->top ? &all->totals[i]
                                               : &all->deleted[i];
        struct ds text = DS_EMPTY_INITIALIZER;
        struct json *json;

        if (!view->top && (view->n_slowest || !sum->n_accounts)) {
            continue;
        }
        cost_put_sum(&text, view, sum, have_ms);
        json = json_from_string(ds_cstr(&text));
        ds_destroy(&text);
        if (view->top) {
            cost_render_top(s, sum->book.kind, json,
                            request->n ? request->n : DEFAULT_ROWS);
        } else {
            cost_render_deleted(s, report->object, sum->book.kind, json);
        }
        json_destroy(json);
    }
}

/* Appends to 'reply' what 'report' has for 'request'. */
static void
put_report(struct unixctl_worker_reply *reply,
           const struct cost_report *report, const struct request *request)
{
    const struct cost_view *view = &request->view;
    bool text = !reply->json;
    struct ds *s = &reply->body;
    size_t begin = s->length;
    struct cost_accounts all;
    long long int have_ms;
    size_t n_in[ACTIVE + 1];            /* Each state. */
    size_t n = 0, wanted;               /* Accounts in the reply. */

    cost_accounts_get(report->kinds, report->n_kinds, request->name,
                      view->last_s * 1000LL, &all);
    if (!all.n && request->name) {
        reply->error = no_such_account(report, request->name);
        cost_accounts_put(&all);
        return;
    }
    have_ms = sort_accounts(&all, n_in);
    wanted = (request->n ? request->n
              : MIN(MAX(n_in[text ? ACTIVE : EMPTY], 1), DEFAULT_ACCOUNTS));
    wanted = text && view->top ? 0 : MIN(wanted, n_in[EMPTY]);

    if (!text) {
        struct json *json = cost_report_json_header(
            report->prefix, "cost-show", report->kinds[0]->config);

        cost_json_begin(s, NULL);
        json_to_ds(json, 0, s);
        json_destroy(json);
        ds_truncate(s, s->length - 1);
        cost_json_begin(s, "accounts");
        ds_put_char(s, '[');
    }
    for (size_t i = 0; i < (all.n_kinds ? all.n : wanted); i++) {
        struct cost_reading reading;

        if (view->n_slowest && i < wanted) {
            cost_account_take_slowest(all.accounts[i]);
        }
        if (!cost_account_read(all.accounts[i], &all.from, &reading)) {
            continue;
        }
        if (i < wanted && s->length - begin <= (text ? MAX_TEXT : MAX_JSON)) {
            struct ds json = DS_EMPTY_INITIALIZER;

            cost_put_account(text ? &json : s, report, view, &reading);
            if (text) {
                struct json *account = json_from_string(ds_cstr(&json));

                ds_destroy(&json);
                cost_render_account(s, view, reading.kind, account);
                json_destroy(account);
            }
            n++;
        }
        /* The sum has what the account was shown with. */
        for (size_t j = 0; j < all.n_kinds; j++) {
            struct cost_sum *total = &all.totals[j];

            if (total->book.kind == reading.kind) {
                total->n_accounts++;
                cost_book_add(&total->book, &reading.total);
            }
        }
        cost_reading_uninit(&reading);
        ovsrcu_quiesce();
    }
    if (text) {
        put_end(s, report, request, &all, n, n_in[EMPTY], wanted, have_ms);
        if (s->length == begin) {
            ds_put_format(s, "no %s\n", report->object);
        }
    } else {
        ds_put_char(s, ']');
        cost_json_put(s, "omitted", all.n - n);
        cost_json_put(s, "elapsed_ms", have_ms);
        if (all.n_kinds) {
            put_sums(s, "deleted", report, view, all.deleted, have_ms, false);
            put_sums(s, "total", report, view, all.totals, have_ms, true);
        }
        ds_put_char(s, '}');
    }
    cost_accounts_put(&all);
}

/* Appends what 'cb' returns to 'reply', or its text if that is to be one. */
static void
put_more(struct unixctl_worker_reply *reply, cost_report_more_cb *cb,
         const struct cost_view *view)
{
    struct ds text = DS_EMPTY_INITIALIZER;
    struct json *json = cb(view, &text);

    if (!json) {
        reply->error = ds_steal_cstr(&text);
    } else if (reply->json) {
        cost_json_begin(&reply->body, NULL);
        json_to_ds(json, 0, &reply->body);
    } else {
        ds_put_buffer(&reply->body, text.string, text.length);
    }
    json_destroy(json);
    ds_destroy(&text);
}

static void
do_show(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;
    struct cost_view *view = &request->view;
    bool several = !request->report && !request->more;
    bool wrap = several && reply->json;
    cost_report_more_cb *more = wrap ? more_reply : request->more;

    view->json = reply->json;
    ds_put_cstr(&reply->body, wrap ? "{\"version\":2,\"replies\":[" : "");
    for (size_t i = 0; i < request->n_reports; i++) {
        const struct cost_report *report = request->reports[i];

        put_report(reply, report, request);
        if (several && report->more) {
            put_more(reply, report->more, view);
        }
    }
    if (more) {
        put_more(reply, more, view);
    }
    ds_put_cstr(&reply->body, wrap ? "]}" : "");
    request_destroy(request);
}

static void
do_clear(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;
    const struct cost_report *report = request->report;

    if (!cost_accounts_clear(report->kinds, report->n_kinds, request->name)
        && request->name) {
        reply->error = no_such_account(report, request->name);
    }
    request_destroy(request);
}

/* Adds the definitions of 'n' 'columns', whose units have the name 'unit'. */
static void
put_columns(struct json *json, const char *name,
            const struct cost_column *columns, size_t n, const char *unit)
{
    struct json *array = cost_put_array(json, name);

    for (size_t i = 0; i < n; i++) {
        struct json *column = cost_add_object(array);

        json_object_put_string(column, "name", columns[i].name);
        json_object_put_string(column, unit,
                               columns[i].unit ? columns[i].unit : "ns");
        json_object_put_string(column, "help", columns[i].help);
    }
}

/* "cost/describe": the definition of each number, in JSON whatever the
 * format. */
static struct json *
describe(const struct cost_view *view, struct ds *s)
{
    struct json *json = json_object_create();
    struct json *array;

    cost_put_integer(json, "version", 2);
    array = cost_put_array(json, "reports");
    for (size_t i = 0; i < count_reports(); i++) {
        const struct cost_report *report = reports[i];
        struct json *object = cost_add_object(array);
        struct json *kinds = cost_put_array(object, "kinds");

        json_object_put_string(object, "report", report->prefix);
        json_object_put_string(object, "object", report->object);
        json_object_put_string(object, "classes", report->class_help);
        for (size_t j = 0; j < report->n_kinds; j++) {
            const struct cost_kind *kind = report->kinds[j];
            struct json *member = cost_add_object(kinds);

            json_object_put_string(member, "event", kind->event);
            put_columns(member, "stages", kind->stages, kind->n_stages,
                        "unit");
            put_columns(member, "counters", kind->counters, kind->n_counters,
                        "group");
        }
    }
    if (!view->json) {
        json_to_ds(json, 0, s);
    }
    return json;
}

/* Commands, in the main thread. */

/* Sets '*class' to that of 'kind' named 's'.  Returns false if there is no
 * such class. */
static bool
class_from_string(const struct cost_kind *kind, const char *s, size_t *class)
{
    for (size_t i = 0; s[0] && i < kind->n_classes; i++) {
        char *name = cost_class_name(kind, i);
        bool found = !strcmp(name, s);

        free(name);
        if (found) {
            *class = i;
            return true;
        }
    }
    return false;
}

/* Parses 'option' into 'request'.  'arg' is what follows, or NULL, and
 * '*uses_arg' becomes true if that is its argument.  Returns NULL if
 * successful, otherwise an error message that the caller must free. */
static char *
parse_option(struct request *request, const char *option, const char *arg,
             bool *uses_arg)
{
    const struct cost_report *report = request->report;
    struct cost_view *view = &request->view;
    unsigned int value = 0;

    *uses_arg = false;
    if (!strcmp(option, "-hist")) {
        view->histograms = true;
    } else if (!strcmp(option, "-thread")) {
        view->threads = true;
    } else if (!strcmp(option, "-top")) {
        view->top = true;
    } else if (!strcmp(option, "-packet")) {
        view->packets = true;
    } else {
        *uses_arg = true;
        if (arg) {
            str_to_uint(arg, 10, &value);
        }
        if (report && !strcmp(option, "-class")) {
            return (arg && class_from_string(report->kinds[0], arg,
                                             &view->class) ? NULL
                    : xasprintf("no class \"%s\" (a class is %s)",
                                arg ? arg : "", report->class_help));
        } else if (!strcmp(option, "-last")) {
            return parse_last(arg, &view->last_s);
        } else if (!strcmp(option, "-slowest")) {
            view->n_slowest = value;
            return (value && value <= COST_MAX_SLOWEST ? NULL
                    : xasprintf("-slowest needs a number between 1 and %d",
                                COST_MAX_SLOWEST));
        } else if (!strcmp(option, "-n")) {
            request->n = arg && !strcmp(arg, "all") ? SIZE_MAX : value;
            return (request->n ? NULL
                    : xstrdup("-n needs a positive number or \"all\""));
        }
        return xasprintf("unknown option \"%s\" (options are %s%s)", option,
                         report ? "[-class CLASS] " : "", OPTIONS);
    }
    return NULL;
}

/* Adds the report that is called 'name' to those of 'request'. */
static char *
parse_report(struct request *request, const char *name)
{
    for (size_t i = 0; i < count_reports(); i++) {
        if (!strcmp(name, reports[i]->prefix)) {
            request->reports[request->n_reports++] = reports[i];
            return NULL;
        }
    }
    return xasprintf("no report \"%s\"", name);
}

/* Parses the arguments of PREFIX/cost-show, or of cost-clear unless 'options'
 * are allowed, or, if 'request' is for no report alone, of cost/show.  Returns
 * NULL if successful, otherwise an error message that the caller must free. */
static char *
parse_request(struct request *request, int argc, const char *argv[],
              bool options)
{
    bool only_name = false;
    char *error = NULL;

    request->reports = xmalloc((argc + ARRAY_SIZE(reports))
                               * sizeof *reports);
    for (int i = 1; i < argc && !error; i++) {
        if (request->report && !only_name && !strcmp(argv[i], "--")) {
            only_name = true;
        } else if (options && !only_name && argv[i][0] == '-') {
            bool uses_arg;

            error = parse_option(request, argv[i],
                                 i + 1 < argc ? argv[i + 1] : NULL, &uses_arg);
            i += uses_arg;
        } else if (!request->report) {
            error = parse_report(request, argv[i]);
        } else if (request->name) {
            error = xasprintf("only one %s may be named, not \"%s\" and "
                              "\"%s\"", request->report->object,
                              request->name, argv[i]);
        } else {
            request->name = xstrdup(argv[i]);
        }
    }
    if (request->report) {
        request->reports[request->n_reports++] = request->report;
    } else if (!request->n_reports) {
        request->n_reports = count_reports();
        memcpy(request->reports, reports, sizeof reports);
    }
    if (!error && request->view.top
        && (request->name || request->view.class != COST_ALL_CLASSES)) {
        error = xasprintf("-top takes no %s", request->name
                          ? request->report->object : "class");
    }
    return error;
}

static struct request *
request_create(const struct cost_report *report)
{
    struct request *request = xzalloc(sizeof *request);

    request->report = report;
    request->view.class = COST_ALL_CLASSES;
    return request;
}

/* Has the worker do 'request', or replies 'error' if that is not NULL. */
static void
submit(struct unixctl_conn *conn, struct request *request, char *error,
       unixctl_worker_cb *cb)
{
    if (error) {
        unixctl_command_reply_error(conn, error);
        free(error);
        request_destroy(request);
    } else if (!unixctl_worker_do(conn, cb, request)) {
        request_destroy(request);
    }
}

static void
cost_show(struct unixctl_conn *conn, int argc, const char *argv[],
          void *report)
{
    struct request *request = request_create(report);

    submit(conn, request, parse_request(request, argc, argv, true), do_show);
}

static void
cost_clear(struct unixctl_conn *conn, int argc, const char *argv[],
           void *report)
{
    struct request *request = request_create(report);

    submit(conn, request, parse_request(request, argc, argv, false), do_clear);
}

static void
cost_more(struct unixctl_conn *conn, int argc, const char *argv[],
          void *command_)
{
    const struct cost_command *command = command_;
    struct request *request = request_create(NULL);
    struct cost_view *view = &request->view;
    char *error = NULL;

    request->more = command->cb;
    if (argc == 3 && !strcmp(argv[1], "-last")) {
        error = parse_last(argv[2], &view->last_s);
    } else if (argc > 1
               && (argc != 3 || !command->kept || strcmp(argv[1], "-kept")
                   || !str_to_uint(argv[2], 10, &view->kept)
                   || !view->kept)) {
        error = xasprintf("usage: %s %s", command->name, command->usage);
    }
    submit(conn, request, error, do_show);
}

/* Registers 'command', which must stay. */
void
cost_report_register_command(const struct cost_command *command)
{
    if (command->in_show) {
        more_reply = command->cb;
    }
    unixctl_command_register(command->name, command->usage, 0,
                             command->usage[0] ? 2 : 0, cost_more,
                             CONST_CAST(struct cost_command *, command));
}

static void
register_command(const struct cost_report *report, const char *name,
                 const char *usage, int max_args, unixctl_cb_func *cb)
{
    char *command = xasprintf("%s/%s", report->prefix, name);

    unixctl_command_register(command, usage, 0, max_args, cb,
                             CONST_CAST(struct cost_report *, report));
    free(command);
}

/* Makes the settings apply to 'report', and registers its commands, whose
 * arguments are documented in lib/cost-unixctl.man. */
void
cost_report_register(const struct cost_report *report)
{
    static const struct cost_command describe_command = {
        .name = "cost/describe",
        .usage = "",
        .cb = describe,
    };
    size_t n;

    if (!start_us) {
        start_us = time_wall_usec();
        unixctl_command_register("cost/show", OPTIONS " [REPORT...]", 0,
                                 INT_MAX, cost_show, NULL);
        cost_report_register_command(&describe_command);
    }
    n = count_reports();
    for (size_t i = 0; i < n; i++) {
        if (reports[i] == report) {
            return;
        }
    }
    ovs_assert(n < ARRAY_SIZE(reports));
    reports[n] = report;
    atomic_store_explicit(&n_reports, n + 1, memory_order_release);
    cost_config_register(report->kinds[0]->config);
    register_command(report, "cost-show",
                     "[-class CLASS] " OPTIONS " [--] [NAME]", INT_MAX,
                     cost_show);
    register_command(report, "cost-clear", "[--] [NAME]", 2, cost_clear);
}
