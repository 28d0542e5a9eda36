/*
 * SPDX-License-Identifier: Apache-2.0
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>

#include "cost-report.h"

#include <ctype.h>
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
#define DEFAULT_SLOWEST 5
#define DEFAULT_TOP 10

/* A command for the worker. */
struct request {
    const struct cost_report *report;   /* Or NULL if of cost/show. */
    const struct cost_top *top;         /* If of PREFIX/cost-top. */
    const struct cost_report **reports;
    size_t n_reports;
    struct cost_view view;
    size_t n_accounts;                  /* -n, or SIZE_MAX for all. */
    bool empty_too;                     /* Those without events, in text? */
    size_t n_skip;                      /* -skip */
    char *name;                         /* Of the account, NULL for all. */
};

/* When this process began to account. */
static long long int start_us;

/* All that have been registered.  Used by the main thread only, and by the
 * worker once they are. */
static const struct cost_report **reports;
static size_t n_reports;

/* See cost_report_add_reply(). */
static cost_report_more_cb *more_reply;

/* Returns what every reply in JSON to PREFIX/COMMAND has, with the settings of
 * 'config' unless it is NULL. */
struct json *
cost_report_json_header(const char *prefix, const char *command,
                        struct cost_config *config)
{
    struct json *clock = json_object_create();
    struct json *json = json_object_create();

    cost_put_integer(json, "version", 1);
    json_object_put_string(json, "report", prefix);
    json_object_put_string(json, "command", command);
    cost_put_integer(json, "pid", getpid());
    cost_put_integer(json, "start_us", start_us);
    json_object_put_string(json, "ovs_version", VERSION VERSION_SUFFIX);
    cost_put_integer(json, "now_us", time_wall_usec());

    json_object_put_string(clock, "source", cost_clock_name());
    json_object_put(json, "clock", clock);

    if (config) {
        uint32_t interval = cost_sample_interval(config);
        struct json *settings = json_object_create();

        json_object_put(settings, "enabled",
                        json_boolean_create(interval != 0));
        cost_put_integer(settings, "sample_interval", interval);
        json_object_put(json, "settings", settings);
    }
    return json;
}

/* Makes '*seconds' what 'arg', the argument of -last or NULL, stands for.
 * Returns NULL if successful, otherwise an error message that the caller must
 * free. */
char *
cost_report_parse_last(const char *arg, int *seconds)
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
    return (arg ? xasprintf("-last \"%s\" is none of 10s, 1m, 5m and 15m", arg)
            : xstrdup("-last needs an argument (10s, 1m, 5m or 15m)"));
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
    struct cost_accounts all;
    struct ds s = DS_EMPTY_INITIALIZER;

    cost_accounts_get(report->kinds, report->n_kinds, NULL, 0, &all);
    ds_put_format(&s, "no %s named \"%s\" (there %s %"PRIuSIZE"%s",
                  report->object, name, all.n == 1 ? "is" : "are",
                  all.n, all.n ? ":" : "");
    for (size_t i = 0; i < MIN(all.n, DEFAULT_ACCOUNTS); i++) {
        ds_put_cstr(&s, i ? ", " : " ");
        cost_put_name(&s, cost_account_name(all.accounts[i]), false);
    }
    ds_put_cstr(&s, all.n > DEFAULT_ACCOUNTS ? ", ...)" : ")");
    cost_accounts_put(&all);
    return ds_steal_cstr(&s);
}

/* An account, and what it is sorted by. */
struct sorted_account {
    struct cost_account *account;
    uint64_t timed_ns;                  /* Sum of totals that are known. */
    uint64_t n_events;
    bool empty;                         /* No event, and none lost? */
};

static int
compare_accounts(const void *a_, const void *b_)
{
    const struct sorted_account *a = a_, *b = b_;

    return (a->timed_ns != b->timed_ns ? (a->timed_ns < b->timed_ns ? 1 : -1)
            : a->n_events != b->n_events
            ? (a->n_events < b->n_events ? 1 : -1)
            : a->empty != b->empty ? a->empty - b->empty
            : strcmp(cost_account_name(a->account),
                     cost_account_name(b->account)));
}

/* Returns the accounts in 'all', those that most time was spent on first. */
static struct sorted_account *
sort_accounts(const struct cost_accounts *all)
{
    struct sorted_account *sorted = xcalloc(all->n, sizeof *sorted);

    for (size_t i = 0; i < all->n; i++) {
        struct cost_reading reading;

        sorted[i].account = all->accounts[i];
        if (cost_account_read(all->accounts[i], &all->from, &reading)) {
            struct cost_block *block = cost_book_sum(&reading.total,
                                                     COST_ALL_CLASSES);

            sorted[i].n_events = cost_block_events(block);
            sorted[i].empty = cost_book_is_empty(&reading.total);
            sorted[i].timed_ns
                = cost_hist_sum(&block->hists[cost_kind_total(reading.kind)]);
            cost_block_destroy(block);
            cost_reading_uninit(&reading);
        }
        ovsrcu_quiesce();
    }
    if (all->n) {
        qsort(sorted, all->n, sizeof *sorted, compare_accounts);
    }
    return sorted;
}

/* Takes the slowest events of the 'n' accounts in 'sorted', see
 * cost_accounts_take_slowest(). */
static bool
take_slowest(const struct sorted_account *sorted, size_t n)
{
    struct cost_account **accounts = xmalloc(n * sizeof *accounts);
    bool all;

    for (size_t i = 0; i < n; i++) {
        accounts[i] = sorted[i].account;
    }
    all = cost_accounts_take_slowest(accounts, n);
    free(accounts);
    return all;
}

/* Returns the object that the reply in JSON to 'request' is, but the
 * accounts. */
static struct json *
report_to_json(const struct cost_report *report,
               const struct request *request)
{
    struct json *json = cost_report_json_header(
        report->prefix, request->view.slowest ? "cost-slowest" : "cost-show",
        report->kinds[0]->config);

    json_object_put(json, "kinds", cost_render_kinds(report));
    if (request->view.class != COST_ALL_CLASSES) {
        cost_put_string(json, "class",
                        cost_class_name(report->kinds[0],
                                        request->view.class));
    }
    return json;
}

/* Appends to 's' what comes after the accounts from 'start' to 'end', up to
 * 'wanted_end' of which there was no room for. */
static void
put_rest(struct ds *s, const struct cost_report *report,
         const struct request *request, const struct cost_accounts *all,
         const struct sorted_account *sorted, size_t start, size_t end,
         size_t wanted_end)
{
    size_t length;

    if (end < wanted_end) {
        ds_put_cstr(s, "no room for ");
        cost_put_plural(s, wanted_end - end, report->object);
        ds_put_format(s, " (use -skip %"PRIuSIZE" to see them): ", end);
        for (size_t i = end; i < wanted_end; i++) {
            cost_put_name(s, cost_account_name(sorted[i].account), false);
            ds_put_cstr(s, i + 1 < wanted_end ? ", " : "\n");
        }
    }
    if (wanted_end < all->n) {
        ds_put_cstr(s, "and ");
        cost_put_count(s, all->n - wanted_end);
        ds_put_format(s, " more %s%s (use -n or -skip to see more of them)\n",
                      report->object, all->n - wanted_end == 1 ? "" : "s");
    }
    length = s->length;
    for (size_t i = 0; !request->view.slowest && i < all->n_kinds; i++) {
        cost_render_deleted(s, report, &request->view, &all->deleted[i]);
    }
    if (start == all->n && s->length == length) {
        ds_put_format(s, "no %s%s\n", all->n ? "more " : "", report->object);
    }
}

/* Adds to 'json', the reply to 'request', how long the window is that it is
 * about, if any. */
static void
put_last(struct json *json, const struct request *request,
         long long int have_ms)
{
    if (request->view.last_s) {
        struct json *last = json_object_create();

        cost_put_integer(last, "wanted_ms", request->view.last_s * 1000ULL);
        cost_put_integer(last, "have_ms", have_ms);
        json_object_put(json, "last", last);
    }
}

/* Appends to 'reply' what 'report' has for 'request'. */
static void
put_report(struct unixctl_worker_reply *reply,
           const struct cost_report *report, const struct request *request)
{
    struct json *json = reply->json ? report_to_json(report, request) : NULL;
    struct json *accounts = json ? json_array_create_empty() : NULL;
    size_t max_length = json ? MAX_JSON : MAX_TEXT;
    size_t start, end, wanted_end;      /* Of accounts in the reply. */
    struct sorted_account *sorted;
    struct ds *s = &reply->body;
    struct cost_accounts all;
    long long int have_ms = 0;
    size_t length = 0;
    bool late = false;
    bool sums;

    cost_accounts_get(report->kinds, report->n_kinds, request->name,
                      request->view.last_s * 1000LL, &all);
    if (!all.n && request->name) {
        reply->error = no_such_account(report, request->name);
        cost_accounts_put(&all);
        json_destroy(json);
        json_destroy(accounts);
        return;
    }
    sums = json && !request->view.slowest && all.n_kinds;
    for (size_t i = 0; sums && i < all.n_kinds; i++) {
        all.totals[i].n_accounts = all.deleted[i].n_accounts;
        cost_book_add(&all.totals[i].book, &all.deleted[i].book);
    }

    sorted = sort_accounts(&all);
    start = MIN(all.n, request->n_skip);
    end = wanted_end = start + MIN(all.n - start, request->n_accounts);
    while (!json && !request->empty_too && end > start + 1
           && sorted[end - 1].empty) {
        wanted_end = --end;
    }
    if (request->view.slowest) {
        late = !take_slowest(&sorted[start], end - start);
    }
    for (size_t i = sums ? 0 : start; i < (sums ? all.n : end); i++) {
        struct cost_reading reading;

        if (!cost_account_read(sorted[i].account, &all.from, &reading)) {
            continue;
        }
        have_ms = MAX(have_ms, reading.elapsed_ms);
        if (i >= start && i < end) {
            struct ds account = DS_EMPTY_INITIALIZER;

            cost_render_account(&account, reply->json, report,
                                &request->view, &reading);
            length += account.length;
            /* There is one account at least, so that a client gets ahead. */
            if (i > start && length > max_length) {
                end = i;
            } else if (json) {
                json_array_add(accounts, cost_serialized(&account));
            } else {
                ds_put_buffer(s, account.string, account.length);
            }
            ds_destroy(&account);
        }
        if (sums) {
            struct cost_sum *total = all.totals;

            while (total->book.kind != reading.kind) {
                total++;
            }
            total->n_accounts++;
            if (reading.cleared) {
                total->since_us = MAX(total->since_us, reading.since_us);
            }
            cost_book_add(&total->book, &reading.total);
        }
        cost_reading_uninit(&reading);
        ovsrcu_quiesce();
    }

    if (json) {
        put_last(json, request, have_ms);
        if (late) {
            json_object_put(json, "late", json_boolean_create(true));
        }
        json_object_put(json, "accounts", accounts);
        cost_put_integer(json, "omitted", all.n - (end - start));
        if (end < wanted_end) {
            struct json *names = json_array_create_empty();

            for (size_t i = end; i < wanted_end; i++) {
                json_array_add(names, json_string_create(
                                   cost_account_name(sorted[i].account)));
            }
            json_object_put(json, "left_out", names);
        }
        if (sums) {
            json_object_put(json, "deleted",
                            cost_render_sums(report, &request->view,
                                             all.deleted, all.n_kinds,
                                             false));
            json_object_put(json, "total",
                            cost_render_sums(report, &request->view,
                                             all.totals, all.n_kinds, true));
        }
        json_to_ds(json, 0, s);
        json_destroy(json);
    } else {
        if (late) {
            ds_put_cstr(s, "the latest events are missing, as a thread does "
                        "not rest: try again\n");
        }
        put_rest(s, report, request, &all, sorted, start, end, wanted_end);
    }

    free(sorted);
    cost_accounts_put(&all);
}

/* Appends what 'cb' returns to 'reply'. */
static void
put_more(struct unixctl_worker_reply *reply, cost_report_more_cb *cb)
{
    struct ds text = DS_EMPTY_INITIALIZER;
    struct json *json = cb(reply->json ? &text : &reply->body);

    if (reply->json) {
        ds_put_char(&reply->body, ',');
        json_to_ds(json, 0, &reply->body);
    }
    json_destroy(json);
    ds_destroy(&text);
}

static void
do_show(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;
    struct ds *s = &reply->body;
    bool all = !request->report;

    if (reply->json && all) {
        ds_put_cstr(s, "{\"version\":1,\"replies\":[");
    }
    for (size_t i = 0; i < request->n_reports; i++) {
        const struct cost_report *report = request->reports[i];

        if (reply->json && i) {
            ds_put_char(s, ',');
        }
        put_report(reply, report, request);
        if (report->more && all) {
            put_more(reply, report->more);
        }
    }
    if (reply->json && all) {
        if (more_reply) {
            put_more(reply, more_reply);
        }
        ds_put_cstr(s, "]}");
    }
    request_destroy(request);
}

static void
do_top(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;
    const struct cost_report *report = request->report;
    const struct cost_top *top = request->top;
    const struct cost_kind *const *kinds = top->kind ? &top->kind
                                           : report->kinds;
    const struct cost_kind *kind = kinds[0];
    bool sampled = (top->by <= COST_BY_GROUP ? !kind->exact
                    : kind->n_reasons != 0);
    struct cost_sketch sum = { .n = 0 };
    long long int elapsed_ms = 0;
    struct cost_accounts all;

    cost_accounts_get(kinds, top->kind ? 1 : report->n_kinds, NULL,
                      request->view.last_s * 1000LL, &all);
    for (size_t i = 0; i < all.n_kinds; i++) {
        cost_top_add(&sum, top, &all.deleted[i].book, "deleted");
    }
    for (size_t i = 0; i < all.n; i++) {
        const char *name = cost_account_name(all.accounts[i]);
        struct cost_reading reading;

        if (!cost_account_read(all.accounts[i], &all.from, &reading)) {
            continue;
        }
        elapsed_ms = MAX(elapsed_ms, reading.elapsed_ms);
        if (top->by != COST_BY_THREAD) {
            cost_top_add(&sum, top, &reading.total, name);
        }
        for (size_t j = 0; (top->by == COST_BY_THREAD
                            && j < reading.n_threads); j++) {
            const struct cost_thread_book *thread = &reading.threads[j];

            cost_top_add(&sum, top, &thread->book, thread->name);
        }
        cost_reading_uninit(&reading);
        ovsrcu_quiesce();
    }

    if (reply->json) {
        struct json *json = cost_report_json_header(report->prefix, "cost-top",
                                                    kind->config);
        struct ds text = DS_EMPTY_INITIALIZER;

        json_object_put_string(json, "what", top->what);
        if (sampled) {
            json_object_put(json, "sampled", json_boolean_create(true));
        }
        cost_put_integer(json, "elapsed_ms", elapsed_ms);
        put_last(json, request, elapsed_ms);
        cost_render_top(&text, json, top, &sum, request->n_skip,
                        request->n_accounts);
        json_to_ds(json, 0, &reply->body);
        json_destroy(json);
        ds_destroy(&text);
    } else {
        cost_put_name(&reply->body, (all.n == 1
                                     ? cost_account_name(all.accounts[0])
                                     : "all"), false);
        ds_put_format(&reply->body, ": %ss by %s in %.1f s%s\n",
                      kind->event, top->what, elapsed_ms / 1000.0,
                      sampled ? ", from samples" : "");
        cost_render_top(&reply->body, NULL, top, &sum, request->n_skip,
                        request->n_accounts);
    }
    cost_sketch_uninit(&sum);
    cost_accounts_put(&all);
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
    bool show = !request->view.slowest;
    bool class = show && report;
    bool packet = !show && !request->top && report->put_packet;
    unsigned int value;

    *uses_arg = true;
    if (show && !strcmp(option, "-a")) {
        request->view.all = request->empty_too = true;
        *uses_arg = false;
    } else if (show && !strcmp(option, "-hist")) {
        request->view.histograms = true;
        *uses_arg = false;
    } else if (show && !strcmp(option, "-thread")) {
        request->view.threads = true;
        *uses_arg = false;
    } else if (class && !strcmp(option, "-class")) {
        if (request->view.class != COST_ALL_CLASSES) {
            return xstrdup("only one -class may be given");
        } else if (!arg) {
            return xasprintf("-class needs an argument (%s)",
                             report->class_help);
        } else if (!class_from_string(report->kinds[0], arg,
                                      &request->view.class)) {
            return xasprintf("no class \"%s\" (a class is %s)", arg,
                             report->class_help);
        }
    } else if (packet && !strcmp(option, "-packet")) {
        request->view.packets = true;
        *uses_arg = false;
    } else if (!strcmp(option, "-last")) {
        return cost_report_parse_last(arg, &request->view.last_s);
    } else if (!strcmp(option, "-n")) {
        request->empty_too = true;
        if (!arg) {
            return xstrdup("-n needs an argument (a number, or \"all\")");
        } else if (!strcmp(arg, "all")) {
            request->n_accounts = SIZE_MAX;
        } else if (str_to_uint(arg, 10, &value) && value) {
            request->n_accounts = value;
        } else {
            return xasprintf("\"%s\" is neither a positive number nor "
                             "\"all\"", arg);
        }
    } else if (!strcmp(option, "-skip")) {
        if (!arg || !str_to_uint(arg, 10, &value)) {
            return xstrdup("-skip needs a number as its argument");
        }
        request->n_skip = value;
    } else {
        return xasprintf("unknown option \"%s\" (options are %s%s%s-last "
                         "TIME, -n N and -skip N)", option,
                         show ? "-a, -hist, -thread, " : "",
                         class ? "-class CLASS, " : "",
                         packet ? "-packet, " : "");
    }
    return NULL;
}

/* Adds the report that is called 'name' to those of 'request'. */
static char *
parse_report(struct request *request, const char *name)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    for (size_t i = 0; i < n_reports; i++) {
        if (!strcmp(name, reports[i]->prefix)) {
            request->reports[request->n_reports++] = reports[i];
            return NULL;
        }
    }
    ds_put_format(&s, "no report \"%s\" (there are", name);
    for (size_t i = 0; i < n_reports; i++) {
        ds_put_format(&s, "%s %s", i ? "," : "", reports[i]->prefix);
    }
    ds_put_char(&s, ')');
    return ds_steal_cstr(&s);
}

/* Parses the arguments of PREFIX/cost-show or PREFIX/cost-slowest, which may
 * have a number first, or, if 'request' is for no report alone, of cost/show.
 * Returns NULL if successful, otherwise an error message that the caller must
 * free. */
static char *
parse_request(struct request *request, int argc, const char *argv[])
{
    size_t n_names = 0, n_max = request->view.slowest ? 2 : 1;
    const char *names[2];
    bool options = true;
    bool number = false;

    request->reports = xmalloc((argc + n_reports) * sizeof *reports);
    for (int i = 1; i < argc; i++) {
        if (options && request->report && !strcmp(argv[i], "--")) {
            options = false;
            /* Only a name may follow. */
            n_max = MIN(n_max, n_names + 1);
        } else if (options && argv[i][0] == '-') {
            const char *arg = i + 1 < argc ? argv[i + 1] : NULL;
            bool uses_arg;
            char *error = parse_option(request, argv[i], arg, &uses_arg);

            if (error) {
                return error;
            }
            i += uses_arg;
        } else if (!request->report) {
            char *error = parse_report(request, argv[i]);

            if (error) {
                return error;
            }
        } else if (n_names >= n_max) {
            return xasprintf("only one %s may be named, not \"%s\" and "
                             "\"%s\"", request->report->object,
                             names[n_names - 1], argv[i]);
        } else {
            if (request->view.slowest && options && !n_names) {
                number = isdigit((unsigned char) argv[i][0]);
            }
            names[n_names++] = argv[i];
        }
    }

    if (number || n_names == 2) {
        unsigned int n;

        if (!str_to_uint(names[0], 10, &n) || n < 1 || n > COST_MAX_SLOWEST) {
            return xasprintf("\"%s\" is not a number between 1 and %d",
                             names[0], COST_MAX_SLOWEST);
        }
        request->view.n_slowest = n;
        request->name = n_names == 2 ? xstrdup(names[1]) : NULL;
    } else {
        request->name = n_names ? xstrdup(names[0]) : NULL;
    }
    if (request->report) {
        request->reports[request->n_reports++] = request->report;
    } else if (!request->n_reports) {
        memcpy(request->reports, reports, n_reports * sizeof *reports);
        request->n_reports = n_reports;
    }
    return NULL;
}

/* Creates and returns a new request for 'report', or NULL, of everything. */
static struct request *
request_create(const struct cost_report *report, bool slowest)
{
    struct request *request = xzalloc(sizeof *request);

    request->report = report;
    request->view.slowest = slowest;
    request->view.class = COST_ALL_CLASSES;
    request->n_accounts = DEFAULT_ACCOUNTS;
    request->view.n_slowest = DEFAULT_SLOWEST;
    return request;
}

/* Has the worker do 'request', unless there is an 'error' in it. */
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
    struct request *request = request_create(report, false);

    submit(conn, request, parse_request(request, argc, argv), do_show);
}

static void
cost_slowest(struct unixctl_conn *conn, int argc, const char *argv[],
             void *report)
{
    struct request *request = request_create(report, true);

    submit(conn, request, parse_request(request, argc, argv), do_show);
}

static void
cost_top(struct unixctl_conn *conn, int argc, const char *argv[],
         void *report_)
{
    const struct cost_report *report = report_;
    struct request *request = request_create(report, true);
    char *error = NULL;
    bool uses_arg;

    request->top = report->tops;
    request->n_accounts = DEFAULT_TOP;
    for (int i = 1; i < argc && !error; i++) {
        if (argv[i][0] == '-') {
            error = parse_option(request, argv[i],
                                 i + 1 < argc ? argv[i + 1] : NULL, &uses_arg);
            i += uses_arg;
            continue;
        }
        request->top = report->tops;
        while (request->top < report->tops + report->n_tops
               && strcmp(argv[i], request->top->what)) {
            request->top++;
        }
        if (request->top == report->tops + report->n_tops) {
            struct ds s = DS_EMPTY_INITIALIZER;

            ds_put_format(&s, "no list \"%s\" (there are", argv[i]);
            for (size_t j = 0; j < report->n_tops; j++) {
                ds_put_format(&s, "%s %s", j ? "," : "", report->tops[j].what);
            }
            ds_put_char(&s, ')');
            error = ds_steal_cstr(&s);
        }
    }
    submit(conn, request, error, do_top);
}

static void
cost_clear(struct unixctl_conn *conn, int argc, const char *argv[],
           void *report)
{
    struct request *request = request_create(report, false);
    char *error = NULL;

    if (argc > 1 && !strcmp(argv[1], "--")) {
        argc--;
        argv++;
    }
    if (argc > 2) {
        error = xasprintf("only one %s may be named, not \"%s\" and \"%s\"",
                          request->report->object, argv[1], argv[2]);
    } else if (argc > 1) {
        request->name = xstrdup(argv[1]);
    }
    submit(conn, request, error, do_clear);
}

/* Returns 'n' 'columns' of 'kind', which are stages or counters, as a JSON
 * array. */
static struct json *
columns_to_json(const struct cost_kind *kind,
                const struct cost_column *columns, size_t n)
{
    struct json *array = json_array_create_empty();
    bool stages = columns == kind->stages;

    for (size_t i = 0; i < n; i++) {
        const struct cost_column *column = &columns[i];
        struct json *json;

        json = json_object_create();
        json_object_put_string(json, "name", column->name);
        json_object_put_string(json, "help", column->help);
        if (stages) {
            json_object_put_string(json, "unit",
                                   column->unit ? column->unit : "ns");
            json_object_put(json, "sampled", json_boolean_create(
                                cost_stage_is_sampled(kind, i)));
            json_object_put(json, "apart", json_boolean_create(
                                (column->flags & COST_APART) != 0));
            json_object_put(json, "optional", json_boolean_create(
                                (column->flags & COST_OPTIONAL) != 0));
        } else {
            json_object_put_string(json, "group", column->unit);
            json_object_put(json, "lost", json_boolean_create(
                                (column->flags & COST_LOST) != 0));
        }
        json_array_add(array, json);
    }
    return array;
}

/* "cost/describe": what all reports have, in JSON whatever the format. */
static void
cost_describe(struct unixctl_conn *conn, int argc OVS_UNUSED,
              const char *argv[] OVS_UNUSED, void *aux OVS_UNUSED)
{
    struct json *array = json_array_create_empty();
    struct json *json = json_object_create();

    for (size_t i = 0; i < n_reports; i++) {
        const struct cost_report *report = reports[i];
        struct json *kinds = json_array_create_empty();
        struct json *object = json_object_create();

        for (size_t j = 0; j < report->n_kinds; j++) {
            const struct cost_kind *kind = report->kinds[j];
            struct json *member = json_object_create();

            json_object_put_string(member, "event", kind->event);
            json_object_put(member, "stages", columns_to_json(
                                kind, kind->stages, kind->n_stages));
            json_object_put(member, "counters", columns_to_json(
                                kind, kind->counters, kind->n_counters));
            json_array_add(kinds, member);
        }
        json_object_put_string(object, "report", report->prefix);
        json_object_put_string(object, "object", report->object);
        json_object_put_string(object, "classes", report->class_help);
        json_object_put(object, "kinds", kinds);
        json_array_add(array, object);
    }
    cost_put_integer(json, "version", 1);
    json_object_put(json, "reports", array);
    if (unixctl_command_get_output_format(conn) == UNIXCTL_OUTPUT_FMT_JSON) {
        unixctl_command_reply_json(conn, json);
    } else {
        char *text = json_to_string(json, JSSF_PRETTY);

        unixctl_command_reply(conn, text);
        free(text);
        json_destroy(json);
    }
}

/* See lib/cost-report.h. */
void
cost_report_add_reply(cost_report_more_cb *cb)
{
    more_reply = cb;
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
    if (!start_us) {
        start_us = time_wall_usec();
        unixctl_command_register("cost/show",
                                 "[-a] [-hist] [-thread] [-last TIME] "
                                 "[-n N] [-skip N] [REPORT...]", 0, INT_MAX,
                                 cost_show, NULL);
        unixctl_command_register("cost/describe", "", 0, 0, cost_describe,
                                 NULL);
    }
    for (size_t i = 0; i < n_reports; i++) {
        if (reports[i] == report) {
            return;
        }
    }
    reports = xrealloc(reports, (n_reports + 1) * sizeof *reports);
    reports[n_reports++] = report;
    cost_config_register(report->kinds[0]->config);
    register_command(report, "cost-show",
                     "[-a] [-hist] [-thread] [-class CLASS] [-last TIME] "
                     "[-n N] [-skip N] [--] [NAME]", INT_MAX, cost_show);
    register_command(report, "cost-clear", "[--] [NAME]", 2, cost_clear);
    register_command(report, "cost-slowest",
                     report->put_packet
                     ? "[-packet] [-last TIME] [-n N] [-skip N] [COUNT] [--] "
                       "[NAME]"
                     : "[-last TIME] [-n N] [-skip N] [COUNT] [--] [NAME]",
                     INT_MAX, cost_slowest);
    if (report->n_tops) {
        register_command(report, "cost-top",
                         "[-last TIME] [-n N] [-skip N] [WHAT]", INT_MAX,
                         cost_top);
    }
}
