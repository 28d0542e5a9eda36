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
#include <math.h>
#include <unistd.h>

#include "cost-clock.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "sset.h"
#include "timeval.h"
#include "unixctl.h"
#include "unixctl-worker.h"
#include "util.h"

static const struct {
    const char *name;
    double percent;
} percentiles[] = {
    { "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "p99.9", 99.9 },
};

/* Accounts are added to a reply up to this length, for the sake of the main
 * thread, which has to send it.  Text, which it has to quote first, takes it
 * longer than JSON, which is ready to be sent. */
#define MAX_TEXT (256 * 1024)
#define MAX_JSON (2048 * 1024)

#define DEFAULT_ACCOUNTS 20             /* -n */
#define DEFAULT_SLOWEST 5

/* An account of which a thread does not end recording an event is tried again
 * after a while, this often in a reply, until it is named as missing. */
#define RETRY_NS 10000000
#define MAX_RETRIES 50

/* A command for the worker. */
struct request {
    const struct cost_report *report;   /* Or NULL if of cost/show. */
    const struct cost_report **reports;
    size_t n_reports;
    bool slowest;                       /* PREFIX/cost-slowest? */
    bool histograms;                    /* -hist */
    bool threads;                       /* -thread */
    size_t class;                       /* -class */
    size_t n_accounts;                  /* -n, or SIZE_MAX for all. */
    size_t n_skip;                      /* -skip */
    size_t n_slowest;
    char *name;                         /* Of the account, NULL for all. */
};

/* When this process began to account. */
static long long int start_us;

/* All that have been registered.  Used by the main thread only, and by the
 * worker once they are. */
static const struct cost_report **reports;
static size_t n_reports;

/* Formatting. */

/* The width of a column of times or numbers, unless one of them is longer. */
#define MIN_WIDTH 8

/* Appends 'n' to 's', with a comma after every three digits. */
static void
put_count(struct ds *s, uint64_t n)
{
    if (n >= 1000) {
        put_count(s, n / 1000);
        ds_put_format(s, ",%03"PRIu64, n % 1000);
    } else {
        ds_put_format(s, "%"PRIu64, n);
    }
}

/* Appends 'ns' nanoseconds to 's', in microseconds, with commas and as many
 * decimals as fit in MIN_WIDTH characters. */
static void
put_us(struct ds *s, double ns)
{
    double us = ns / 1000;
    unsigned int precision = us < 9999.995 ? 2 : us < 99999.95 ? 1 : 0;
    uint64_t scale = precision == 2 ? 100 : precision == 1 ? 10 : 1;
    uint64_t scaled = llround(us * scale);

    put_count(s, scaled / scale);
    if (precision) {
        ds_put_format(s, precision == 2 ? ".%02"PRIu64 : ".%"PRIu64,
                      scaled % scale);
    }
}

/* Appends 'value' to 's', and adds it to 'object' as 'name'. */
void
cost_report_put_derived(struct ds *s, struct json *object, const char *name,
                        double value)
{
    put_us(s, value * 1000);
    json_object_put(object, name, json_real_create(value));
}

/* Appends to 's' a column 'width' wide with 'value', ns or, if 'number', a
 * number. */
static void
put_cell(struct ds *s, int width, bool number, double value)
{
    struct ds cell = DS_EMPTY_INITIALIZER;

    if (number) {
        put_count(&cell, value);
    } else {
        put_us(&cell, value);
    }
    ds_put_format(s, " %*s", width, ds_cstr(&cell));
    ds_destroy(&cell);
}

/* Appends "NAME N (SHARE%)" to 's'. */
static void
put_share(struct ds *s, const char *name, uint64_t n, uint64_t total)
{
    ds_put_format(s, "  %s ", name);
    put_count(s, n);
    ds_put_format(s, " (%.1f%%)", total ? 100.0 * n / total : 0);
}

static void
put_plural(struct ds *s, uint64_t n, const char *noun)
{
    put_count(s, n);
    ds_put_format(s, " %s%s", noun, n == 1 ? "" : "s");
}

/* Returns the width of a column whose highest value is 'max'. */
static int
cell_width(bool number, uint64_t max)
{
    struct ds cell = DS_EMPTY_INITIALIZER;
    int width;

    put_cell(&cell, MIN_WIDTH, number, max);
    width = cell.length - 1;
    ds_destroy(&cell);
    return width;
}

/* Returns the name of 'class' of 'kind', which the caller must free. */
static char *
class_name(const struct cost_kind *kind, size_t class)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    kind->format_class(class, &s);
    return ds_steal_cstr(&s);
}

/* Returns the number of events in 'block' that were lost. */
static uint64_t
n_lost(const struct cost_block *block)
{
    uint64_t n = 0;

    for (size_t i = 0; i < block->kind->n_counters; i++) {
        if (block->kind->counters[i].flags & COST_LOST) {
            n += cost_block_counter(block, i);
        }
    }
    return n;
}

/* Appends the bars of 'hist', what 'stage' of events of 'kind' took, to 's': a
 * line for each bucket, or for each two, four or eight of them, so that there
 * are not too many lines. */
static void
put_bars(struct ds *s, const struct cost_kind *kind, size_t stage,
         const struct cost_hist *hist)
{
    enum { MAX_LINES = 24, MAX_BAR = 40 };
    size_t n_edges = cost_hist_n_buckets(hist) - 1;
    bool number = cost_stage_is_number(kind, stage);
    size_t first, last, step;
    uint64_t max = 0;
    int width;

    if (!cost_hist_count(hist)) {
        return;
    }
    first = cost_hist_bucket_of(hist, cost_hist_min(hist));
    last = cost_hist_bucket_of(hist, cost_hist_max(hist));
    for (step = 1; step < 8 && (last - first) / step >= MAX_LINES;) {
        step *= 2;
    }
    /* Bucket 0, for 0 ns, has a line of its own.  Lines of several buckets
     * start at an edge that does not depend on the data. */
    if (first) {
        first = ROUND_DOWN(first - 1, step) + 1;
    }
    width = cell_width(number,
                       cost_hist_edge(hist, MIN(last + step, n_edges) - 1));

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            double unit = max > MAX_BAR ? (double) max / MAX_BAR : 1;

            ds_put_format(s, "  %s%s, each # is %.*f %s%s\n",
                          kind->stages[stage].name,
                          number ? "" : " (us)",
                          unit > 1 ? 1 : 0, unit, kind->event,
                          unit > 1 ? "s" : "");
        }
        for (size_t b = first; b <= last;) {
            size_t end = b == 0 ? 1 : b + step;
            uint64_t n = 0;

            for (size_t i = b; i < MIN(end, n_edges + 1); i++) {
                n += cost_hist_get(hist, i);
            }
            if (pass == 0) {
                max = MAX(max, n);
            } else {
                size_t len = (max <= MAX_BAR ? n
                              : DIV_ROUND_UP(n * MAX_BAR, max));

                ds_put_cstr(s, end <= n_edges ? "   <=" : "    >");
                put_cell(s, width, number,
                         cost_hist_edge(hist, MIN(end, n_edges) - 1));
                put_cell(s, 11, true, n);
                ds_put_char(s, ' ');
                ds_put_char_multiple(s, '#', len);
                ds_chomp(s, ' ');
                ds_put_char(s, '\n');
            }
            b = end;
        }
    }
}

/* Appends the table of those stages of 'block' that are numbers, or of those
 * that are times, to 's'. */
static void
put_table(struct ds *s, const struct cost_block *block, bool numbers)
{
    const struct cost_kind *kind = block->kind;
    int width = MIN_WIDTH;
    bool any = false;

    for (size_t i = 0; i < kind->n_stages; i++) {
        if (cost_stage_is_number(kind, i) == numbers) {
            width = MAX(width, cell_width(numbers,
                                          cost_hist_max(&block->hists[i])));
            any = true;
        }
    }
    if (!any) {
        return;
    }
    ds_put_format(s, "  %-10s %11s %*s", numbers ? "number" : "stage (us)",
                  "count", width, "mean");
    for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
        ds_put_format(s, " %*s", width, percentiles[i].name);
    }
    ds_put_format(s, " %*s\n", width, "max");

    for (size_t i = 0; i < kind->n_stages; i++) {
        const struct cost_column *stage = &kind->stages[i];
        const struct cost_hist *hist = &block->hists[i];
        uint64_t count = cost_hist_count(hist);

        if (cost_stage_is_number(kind, i) != numbers
            || (!count && stage->flags & COST_OPTIONAL)) {
            continue;
        }
        ds_put_format(s, "  %-10s", stage->name);
        put_cell(s, 21 - MAX(10, strlen(stage->name)), true, count);
        put_cell(s, width, false, cost_hist_mean(hist) * (numbers ? 1000 : 1));
        for (size_t j = 0; j < ARRAY_SIZE(percentiles); j++) {
            put_cell(s, width, numbers,
                     cost_hist_percentile(hist, percentiles[j].percent,
                                          numbers));
        }
        put_cell(s, width, numbers, cost_hist_max(hist));
        ds_put_char(s, '\n');
    }
}

/* Appends the groups of counters of 'block' to 's'. */
static void
put_counters(struct ds *s, const struct cost_block *block)
{
    const struct cost_kind *kind = block->kind;

    for (size_t first = 0, end; first < kind->n_counters; first = end) {
        const char *group = kind->counters[first].unit;
        uint64_t sum = 0;

        for (end = first; (end < kind->n_counters
                           && !strcmp(kind->counters[end].unit, group));
             end++) {
            if (!(kind->counters[end].flags & COST_HIDDEN)) {
                sum += cost_block_counter(block, end);
            }
        }
        if (!sum) {
            continue;
        }
        ds_put_format(s, "  %s:", group);
        for (size_t i = first; i < end; i++) {
            uint64_t n = cost_block_counter(block, i);

            if (n && !(kind->counters[i].flags & COST_HIDDEN)) {
                put_share(s, kind->counters[i].name, n, sum);
            }
        }
        ds_put_char(s, '\n');
    }
}

/* Appends to 's' how many events of 'block' were lost, if any can be. */
static void
put_lost(struct ds *s, const struct cost_block *block)
{
    for (size_t i = 0; i < block->kind->n_counters; i++) {
        if (block->kind->counters[i].flags & COST_LOST) {
            ds_put_cstr(s, ", ");
            put_count(s, n_lost(block));
            ds_put_cstr(s, " lost");
            return;
        }
    }
}

/* Appends to 's' the classes of 'book'. */
static void
put_classes(struct ds *s, const struct cost_book *book)
{
    uint64_t total = cost_book_events(book, COST_ALL_CLASSES);

    if (!total) {
        return;
    }
    ds_put_cstr(s, "  class:");
    for (size_t i = 0; i < book->kind->n_classes; i++) {
        uint64_t n = cost_book_events(book, i);

        if (n) {
            char *name = class_name(book->kind, i);

            put_share(s, name, n, total);
            free(name);
        }
    }
    ds_put_char(s, '\n');
}

/* Appends to 's' the line that says how events of 'kind' are accounted for. */
static void
put_settings(struct ds *s, const struct cost_kind *kind)
{
    uint32_t interval = cost_sample_interval(kind->config);

    ds_put_format(s, "  accounting %s, clock %s", interval ? "on" : "off",
                  cost_clock_name());
    if (interval == 1 || (interval && kind->exact)) {
        ds_put_cstr(s, ", counts and times exact");
    } else if (interval) {
        ds_put_format(s, ", counts %sexact, %s of 1 in %"PRIu32" %ss",
                      kind->n_rows ? "" : "and totals ",
                      kind->n_rows ? "times" : "stages", interval,
                      kind->event);
    }
    ds_put_char(s, '\n');
}

/* Appends to 's' the numbers of 'book', which 'block' is the sum of, as far as
 * 'request' wants them. */
static void
put_book(struct ds *s, const struct cost_report *report,
         const struct request *request, const struct cost_book *book,
         const struct cost_block *block)
{
    const struct cost_kind *kind = book->kind;

    put_table(s, block, false);
    put_table(s, block, true);
    if (report->put_derived) {
        struct json *json = json_object_create();

        report->put_derived(block, book->name, s, json);
        json_destroy(json);
    }
    for (size_t i = 0; request->histograms && i < kind->n_stages; i++) {
        put_bars(s, kind, i, &block->hists[i]);
    }
    if (request->class == COST_ALL_CLASSES) {
        put_classes(s, book);
    }
    put_counters(s, block);
}

/* Appends 'account' to 's'. */
static void
put_account(struct ds *s, const struct cost_report *report,
            const struct request *request, const struct cost_reading *account)
{
    struct cost_block *block = cost_book_sum(&account->total, request->class);
    uint64_t total = cost_block_events(block);

    ds_put_format(s, "%s: ", account->name);
    put_plural(s, total, account->kind->event);
    if (request->class != COST_ALL_CLASSES) {
        ds_put_cstr(s, " of class ");
        account->kind->format_class(request->class, s);
    }
    ds_put_format(s, " in %.1f s", account->elapsed_ms / 1000.0);
    put_lost(s, block);
    ds_put_char(s, '\n');
    put_settings(s, account->kind);
    if (!cost_book_is_empty(&account->total)) {
        put_book(s, report, request, &account->total, block);
    }
    cost_block_destroy(block);
    if (total) {
        ds_put_cstr(s, "  thread:");
        for (size_t i = 0; i < account->n_threads; i++) {
            const struct cost_book *thread = &account->threads[i];
            uint64_t n = cost_book_events(thread, request->class);

            if (n) {
                put_share(s, thread->name, n, total);
            }
        }
        ds_put_char(s, '\n');
    }
    for (size_t i = 0; request->threads && i < account->n_threads; i++) {
        const struct cost_book *thread = &account->threads[i];

        block = cost_book_sum(thread, request->class);
        if (cost_block_events(block) || n_lost(block)) {
            ds_put_format(s, "%s, thread %s: ", account->name, thread->name);
            put_plural(s, cost_block_events(block), account->kind->event);
            put_lost(s, block);
            ds_put_char(s, '\n');
            put_book(s, report, request, thread, block);
        }
        cost_block_destroy(block);
    }
}

/* JSON. */

/* Integers in JSON have 63 bits. */
void
cost_report_put_integer(struct json *object, const char *name, uint64_t n)
{
    json_object_put(object, name, json_integer_create(MIN(n, LLONG_MAX)));
}

/* Adds 'string', which this frees. */
static void
put_string(struct json *object, const char *name, char *string)
{
    json_object_put(object, name, json_string_create_nocopy(string));
}

/* There can be thousands of buckets in a reply: they are text at once.  A
 * 'struct json' takes one or two allocations for each number. */
static struct json *
serialized(struct ds *s)
{
    struct json *json = json_string_create_nocopy(ds_steal_cstr(s));

    json->type = JSON_SERIALIZED_OBJECT;
    return json;
}

/* Returns the counts of 'hist' as a JSON object with the fields of OTLP's
 * ExponentialHistogramDataPoint, in its form for positive values, in seconds,
 * except that what is above the highest edge is in "overflow". */
static struct json *
buckets_to_json(const struct cost_hist *hist)
{
    unsigned int end = MIN(hist->first + hist->n, COST_HIST_N_EDGES);
    unsigned int first = MAX(hist->first, 1);
    struct ds s = DS_EMPTY_INITIALIZER;

    while (first < end && !cost_hist_get(hist, first)) {
        first++;
    }
    while (end > first && !cost_hist_get(hist, end - 1)) {
        end--;
    }

    /* The threshold is the lowest edge, 2**-30 s, rounded down to as many
     * digits as a number in JSON has. */
    BUILD_ASSERT_DECL(COST_HIST_SCALE == 3 && COST_HIST_MIN_EXP == -30);
    ds_put_format(&s, "{\"scale\":3,\"unit\":\"s\","
                  "\"zero_threshold\":9.31322574615478e-10,"
                  "\"zero_count\":%"PRIu64",\"offset\":%d,"
                  "\"bucket_counts\":[",
                  cost_hist_get(hist, 0),
                  first < end ? COST_HIST_OTLP_OFFSET + (int) first - 1 : 0);
    for (unsigned int i = first; i < end; i++) {
        ds_put_format(&s, "%s%"PRIu64, i > first ? "," : "",
                      cost_hist_get(hist, i));
    }
    ds_put_format(&s, "],\"overflow\":%"PRIu64"}",
                  cost_hist_get(hist, COST_HIST_N_EDGES));
    return serialized(&s);
}

/* Returns the counts of 'hist', of numbers, as a JSON object: bucket I is for
 * numbers up to and including bound I, the last one for those above all
 * bounds.  The bounds are from the lowest to that of the highest number. */
static struct json *
bounds_to_json(const struct cost_hist *hist)
{
    unsigned int n_edges = cost_hist_n_buckets(hist) - 1;
    unsigned int end = hist->limit ? n_edges : 1;
    struct ds bounds = DS_EMPTY_INITIALIZER;
    struct ds counts = DS_EMPTY_INITIALIZER;

    if (!hist->limit && cost_hist_count(hist)) {
        end = MIN(cost_hist_bucket_of(hist, cost_hist_max(hist)) + 1,
                  n_edges);
    }
    for (unsigned int i = 0; i < end; i++) {
        uint64_t edge = cost_hist_edge(hist, i);

        /* Several buckets below 12 are too narrow for any whole number. */
        if (!i || edge != cost_hist_edge(hist, i - 1)) {
            ds_put_format(&bounds, "%s%"PRIu64, i ? "," : "", edge);
            ds_put_format(&counts, "%"PRIu64",", cost_hist_get(hist, i));
        }
    }
    ds_put_format(&counts, "%"PRIu64, cost_hist_get(hist, n_edges));

    struct ds s = DS_EMPTY_INITIALIZER;

    ds_put_format(&s, "{\"bounds\":[%s],\"counts\":[%s]}", ds_cstr(&bounds),
                  ds_cstr(&counts));
    ds_destroy(&bounds);
    ds_destroy(&counts);
    return serialized(&s);
}

static struct json *
stage_to_json(const struct request *request, const struct cost_block *block,
              size_t stage)
{
    const struct cost_kind *kind = block->kind;
    const struct cost_hist *hist = &block->hists[stage];
    bool number = cost_stage_is_number(kind, stage);
    struct json *json = json_object_create();

    json_object_put_string(json, "unit",
                           number ? kind->stages[stage].unit : "ns");
    json_object_put(json, "sampled",
                    json_boolean_create(cost_stage_is_sampled(kind, stage)));
    cost_report_put_integer(json, "count", cost_hist_count(hist));
    cost_report_put_integer(json, "sum", cost_hist_sum(hist));
    if (cost_hist_count(hist)) {
        cost_report_put_integer(json, "min", cost_hist_min(hist));
        cost_report_put_integer(json, "max", cost_hist_max(hist));
        json_object_put(json, "mean", json_real_create(cost_hist_mean(hist)));
        for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
            double value = cost_hist_percentile(hist, percentiles[i].percent,
                                                number);

            json_object_put(json, percentiles[i].name,
                            json_real_create(value));
        }
    }
    if (request->histograms) {
        json_object_put(json, "histogram", (number ? bounds_to_json(hist)
                                            : buckets_to_json(hist)));
    }
    return json;
}

/* Adds the numbers of 'class' of 'book', or of all, to 'json'. */
static void
put_json_numbers(struct json *json, const struct cost_report *report,
                 const struct request *request, const struct cost_book *book,
                 size_t class)
{
    struct cost_block *block = cost_book_sum(book, class);
    const struct cost_kind *kind = book->kind;
    struct json *counters = json_object_create();
    struct json *stages = json_object_create();
    struct json *group = NULL;

    cost_report_put_integer(json, "events", cost_block_events(block));
    for (size_t i = 0; i < kind->n_stages; i++) {
        if (block->hists[i].n || !(kind->stages[i].flags & COST_OPTIONAL)) {
            json_object_put(stages, kind->stages[i].name,
                            stage_to_json(request, block, i));
        }
    }
    json_object_put(json, "stages", stages);
    for (size_t i = 0; i < kind->n_counters; i++) {
        const struct cost_column *counter = &kind->counters[i];

        if (counter->flags & COST_HIDDEN) {
            continue;
        }
        if (!i || strcmp(counter->unit, kind->counters[i - 1].unit)) {
            group = json_object_create();
            json_object_put(counters, counter->unit, group);
        }
        cost_report_put_integer(group, counter->name,
                                cost_block_counter(block, i));
    }
    json_object_put(json, "counters", counters);
    if (report->put_derived) {
        struct json *derived = json_object_create();
        struct ds s = DS_EMPTY_INITIALIZER;

        report->put_derived(block, "", &s, derived);
        json_object_put(json, "derived", derived);
        ds_destroy(&s);
    }
    cost_block_destroy(block);
}

/* Adds the numbers of 'book', and of its classes, to 'json'. */
static void
put_json_book(struct json *json, const struct cost_report *report,
              const struct request *request, const struct cost_book *book)
{
    struct json *classes = json_array_create_empty();

    put_json_numbers(json, report, request, book, request->class);
    for (size_t i = 0; i < book->kind->n_classes; i++) {
        if (book->classes[i]
            && (request->class == COST_ALL_CLASSES || request->class == i)) {
            struct json *class = json_object_create();

            put_string(class, "name", class_name(book->kind, i));
            put_json_numbers(class, report, request, book, i);
            json_array_add(classes, class);
        }
    }
    json_object_put(json, "classes", classes);
}

/* Returns what identifies 'account', an object. */
static struct json *
account_to_json(const struct cost_reading *account)
{
    struct json *json = json_object_create();

    json_object_put_string(json, "name", account->name);
    json_object_put_string(json, "kind", account->kind->event);
    if (account->datapath) {
        json_object_put_string(json, "datapath", account->datapath);
    }
    cost_report_put_integer(json, "since_us", account->since_us);
    return json;
}

/* Returns the numbers of 'account'. */
static struct json *
numbers_to_json(const struct cost_report *report,
                const struct request *request,
                const struct cost_reading *account)
{
    struct json *json = account_to_json(account);
    struct json *threads;

    put_json_book(json, report, request, &account->total);
    if (!request->threads) {
        return json;
    }
    threads = json_array_create_empty();
    for (size_t i = 0; i < account->n_threads; i++) {
        const struct cost_book *book = &account->threads[i];

        if (!cost_book_is_empty(book)) {
            struct json *thread = json_object_create();

            json_object_put_string(thread, "name", book->name);
            put_json_numbers(thread, report, request, book, request->class);
            json_array_add(threads, thread);
        }
    }
    json_object_put(json, "threads", threads);
    return json;
}

/* Returns the slowest events of 'account' in JSON, and appends the same to the
 * text 's'. */
static struct json *
report_slowest(const struct cost_report *report, const struct request *request,
               const struct cost_reading *account, struct ds *s)
{
    uint64_t n_events = cost_book_events(&account->total, COST_ALL_CLASSES);
    size_t n = MIN(request->n_slowest, account->total.n_slowest);
    struct json *array = json_array_create_empty();
    const struct cost_kind *kind = account->kind;
    struct json *json = account_to_json(account);

    ds_put_format(s, "%s: slowest %"PRIuSIZE" of ", account->name, n);
    put_plural(s, n_events, kind->event);
    ds_put_format(s, " in %.1f s\n", account->elapsed_ms / 1000.0);
    cost_report_put_integer(json, "events", n_events);
    for (size_t i = 0; i < n; i++) {
        const struct cost_slow *slow = &account->total.slowest[i];
        char *class = class_name(kind, slow->entry.class);
        struct json *details = json_object_create();
        struct json *numbers = json_object_create();
        struct json *stages = json_object_create();
        struct json *event = json_object_create();
        bool split = false;

        cost_report_put_integer(event, "total_ns", slow->total_ns);
        cost_report_put_integer(event, "excluded_ns", slow->entry.excluded_ns);
        cost_report_put_integer(event, "time_us", slow->entry.when_us);
        json_object_put_string(event, "thread", slow->thread);
        ds_put_format(s, "%3"PRIuSIZE". ", i + 1);
        put_us(s, slow->total_ns);
        ds_put_cstr(s, " us");
        if (slow->entry.excluded_ns) {
            ds_put_cstr(s, ", without ");
            put_us(s, slow->entry.excluded_ns);
            ds_put_cstr(s, " us of events within it,");
        }
        ds_put_strftime_msec(s, " at %Y-%m-%d %H:%M:%S.###Z",
                             slow->entry.when_us / 1000, true);
        ds_put_format(s, ", thread %s, class %s, ", slow->thread, class);
        put_string(event, "class", class);
        report->put_details(account->name, slow->details, s, details);
        ds_put_cstr(s, "\n    ");
        for (int number = 0; number < 2; number++) {
            for (size_t j = 0; j < cost_kind_total(kind); j++) {
                const char *name = kind->stages[j].name;
                uint64_t value = slow->entry.stages[j];

                if (!(slow->entry.known & (1u << j))
                    || cost_stage_is_number(kind, j) != number) {
                    continue;
                }
                ds_put_cstr(s, number ? ", " : " ");
                ds_put_cstr(s, name);
                put_cell(s, 0, number, value);
                cost_report_put_integer(number ? numbers : stages, name,
                                        value);
                split |= !number;
            }
            if (!number) {
                ds_put_cstr(s, split ? " us" : " stages unknown");
            }
        }
        ds_put_char(s, '\n');
        json_object_put(event, "stages_ns", stages);
        json_object_put(event, "numbers", numbers);
        json_object_put(event, "details", details);
        json_array_add(array, event);
    }
    json_object_put(json, "slowest", array);
    return json;
}

/* Returns the 'n' 'sums', those of no account only if 'all'. */
static struct json *
sums_to_json(const struct cost_report *report, const struct request *request,
             const struct cost_sum *sums, size_t n, bool all)
{
    struct json *array = json_array_create_empty();

    for (size_t i = 0; i < n; i++) {
        if (sums[i].n_accounts || all) {
            struct json *json = json_object_create();

            json_object_put_string(json, "kind", sums[i].book.kind->event);
            cost_report_put_integer(json, "accounts", sums[i].n_accounts);
            cost_report_put_integer(json, "since_us", sums[i].since_us);
            put_json_book(json, report, request, &sums[i].book);
            json_array_add(array, json);
        }
    }
    return array;
}

/* Returns what every reply in JSON to PREFIX/COMMAND has. */
struct json *
cost_report_json_header(const char *prefix, const char *command,
                        struct cost_config *config)
{
    uint32_t interval = cost_sample_interval(config);
    struct json *settings = json_object_create();
    struct json *clock = json_object_create();
    struct json *json = json_object_create();

    cost_report_put_integer(json, "version", 1);
    json_object_put_string(json, "report", prefix);
    json_object_put_string(json, "command", command);
    cost_report_put_integer(json, "pid", getpid());
    cost_report_put_integer(json, "start_us", start_us);
    json_object_put_string(json, "ovs_version", VERSION VERSION_SUFFIX);
    cost_report_put_integer(json, "now_us", time_wall_usec());

    json_object_put_string(clock, "source", cost_clock_name());
    json_object_put(json, "clock", clock);

    json_object_put(settings, "enabled", json_boolean_create(interval != 0));
    cost_report_put_integer(settings, "sample_interval", interval);
    json_object_put(json, "settings", settings);
    return json;
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

    cost_accounts_get(report->kinds, report->n_kinds, NULL, &all);
    ds_put_format(&s, "no %s named \"%s\" (there %s %"PRIuSIZE"%s",
                  report->object, name, all.n == 1 ? "is" : "are",
                  all.n, all.n ? ":" : "");
    for (size_t i = 0; i < MIN(all.n, DEFAULT_ACCOUNTS); i++) {
        ds_put_format(&s, "%s %s", i ? "," : "",
                      cost_account_name(all.accounts[i]));
    }
    ds_put_cstr(&s, all.n > DEFAULT_ACCOUNTS ? ", ...)" : ")");
    cost_accounts_put(&all);
    return ds_steal_cstr(&s);
}

/* Reads 'account' as cost_account_read() does.  If that can't be had now,
 * sleeps and tries again, '*n_retries' times more at most. */
static bool
read_account(struct cost_account *account, bool slowest, int *n_retries,
             struct cost_reading *reading)
{
    while (!cost_account_read(account, slowest, reading)) {
        *n_retries -= 1;
        if (*n_retries < 0) {
            return false;
        }
        xnanosleep(RETRY_NS);
    }
    return true;
}

/* An account, and what it is sorted by. */
struct sorted_account {
    struct cost_account *account;
    uint64_t timed_ns;                  /* Sum of totals that are known. */
    uint64_t n_events;
};

static int
compare_accounts(const void *a_, const void *b_)
{
    const struct sorted_account *a = a_, *b = b_;

    return (a->timed_ns != b->timed_ns ? (a->timed_ns < b->timed_ns ? 1 : -1)
            : a->n_events != b->n_events
            ? (a->n_events < b->n_events ? 1 : -1)
            : strcmp(cost_account_name(a->account),
                     cost_account_name(b->account)));
}

/* Returns the accounts in 'all', those that most time was spent on first. */
static struct sorted_account *
sort_accounts(const struct cost_accounts *all, int *n_retries)
{
    struct sorted_account *sorted = xcalloc(all->n, sizeof *sorted);

    for (size_t i = 0; i < all->n; i++) {
        struct cost_reading reading;

        sorted[i].account = all->accounts[i];
        if (read_account(all->accounts[i], false, n_retries, &reading)) {
            struct cost_block *block = cost_book_sum(&reading.total,
                                                     COST_ALL_CLASSES);

            sorted[i].n_events = cost_block_events(block);
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

/* Returns the names of those of the 'n' 'columns' that are shown and have all
 * of 'flags'. */
static struct json *
column_names_to_json(const struct cost_column *columns, size_t n,
                     unsigned int flags)
{
    struct json *array = json_array_create_empty();

    for (size_t i = 0; i < n; i++) {
        if ((columns[i].flags & (flags | COST_HIDDEN)) == flags) {
            json_array_add(array, json_string_create(columns[i].name));
        }
    }
    return array;
}

/* Returns the order of stages and counters, as members of JSON objects have
 * none. */
static struct json *
kinds_to_json(const struct cost_report *report)
{
    struct json *array = json_array_create_empty();

    for (size_t i = 0; i < report->n_kinds; i++) {
        const struct cost_kind *kind = report->kinds[i];
        struct json *json = json_object_create();

        json_object_put_string(json, "kind", kind->event);
        json_object_put(json, "stages", column_names_to_json(
                            kind->stages, kind->n_stages, 0));
        json_object_put(json, "apart", column_names_to_json(
                            kind->stages, kind->n_stages, COST_APART));
        json_object_put(json, "counters", column_names_to_json(
                            kind->counters, kind->n_counters, 0));
        json_array_add(array, json);
    }
    return array;
}

/* Returns the object that the reply in JSON to 'request' is, but the
 * accounts. */
static struct json *
report_to_json(const struct cost_report *report,
               const struct request *request)
{
    struct json *json = cost_report_json_header(
        report->prefix, request->slowest ? "cost-slowest" : "cost-show",
        report->kinds[0]->config);

    json_object_put(json, "kinds", kinds_to_json(report));
    if (report->state_to_json) {
        report->state_to_json(json);
    }
    if (request->class != COST_ALL_CLASSES) {
        put_string(json, "class", class_name(report->kinds[0],
                                             request->class));
    }
    return json;
}

/* Makes 's', which is empty, what the reply to 'request' has of 'account', in
 * JSON if 'json'. */
static void
format_account(struct ds *s, bool json, const struct cost_report *report,
               const struct request *request,
               const struct cost_reading *account)
{
    struct json *object = NULL;

    if (request->slowest) {
        object = report_slowest(report, request, account, s);
    } else if (json) {
        object = numbers_to_json(report, request, account);
    } else {
        put_account(s, report, request, account);
    }
    if (json) {
        ds_clear(s);
        json_to_ds(object, 0, s);
    }
    json_destroy(object);
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
        put_plural(s, wanted_end - end, report->object);
        ds_put_format(s, " (use -skip %"PRIuSIZE" to see them): ", end);
        for (size_t i = end; i < wanted_end; i++) {
            ds_put_format(s, "%s%s", cost_account_name(sorted[i].account),
                          i + 1 < wanted_end ? ", " : "\n");
        }
    }
    if (wanted_end < all->n) {
        ds_put_cstr(s, "and ");
        put_count(s, all->n - wanted_end);
        ds_put_format(s, " more %s%s (use -n or -skip to see more of them)\n",
                      report->object, all->n - wanted_end == 1 ? "" : "s");
    }
    length = s->length;
    for (size_t i = 0; !request->slowest && i < all->n_kinds; i++) {
        const struct cost_sum *deleted = &all->deleted[i];

        if (!cost_book_is_empty(&deleted->book)) {
            struct cost_block *block = cost_book_sum(&deleted->book,
                                                     request->class);

            ds_put_cstr(s, "deleted: ");
            put_plural(s, deleted->n_accounts, report->object);
            ds_put_cstr(s, ", ");
            put_plural(s, cost_block_events(block), block->kind->event);
            put_lost(s, block);
            ds_put_char(s, '\n');
            cost_block_destroy(block);
        }
    }
    if (start == all->n && s->length == length) {
        ds_put_format(s, "no %s%s\n", all->n ? "more " : "", report->object);
    }
}

/* Appends to 'reply' what 'report' has for 'request'. */
static void
put_report(struct unixctl_worker_reply *reply,
           const struct cost_report *report, const struct request *request)
{
    struct json *json = reply->json ? report_to_json(report, request) : NULL;
    struct json *accounts = json ? json_array_create_empty() : NULL;
    struct json *missing = NULL;
    size_t max_length = json ? MAX_JSON : MAX_TEXT;
    size_t start, end, wanted_end;      /* Of accounts in the reply. */
    int n_retries = MAX_RETRIES;
    struct sorted_account *sorted;
    struct ds *s = &reply->body;
    struct cost_accounts all;
    size_t length = 0;
    bool sums;

    cost_accounts_get(report->kinds, report->n_kinds, request->name, &all);
    if (!all.n && request->name) {
        reply->error = no_such_account(report, request->name);
        cost_accounts_put(&all);
        json_destroy(json);
        json_destroy(accounts);
        return;
    }
    sums = json && !request->slowest && all.n_kinds;
    for (size_t i = 0; sums && i < all.n_kinds; i++) {
        all.totals[i].n_accounts = all.deleted[i].n_accounts;
        cost_book_add(&all.totals[i].book, &all.deleted[i].book);
    }

    sorted = sort_accounts(&all, &n_retries);
    start = MIN(all.n, request->n_skip);
    end = wanted_end = start + MIN(all.n - start, request->n_accounts);
    for (size_t i = sums ? 0 : start; i < (sums ? all.n : end); i++) {
        struct cost_reading reading;

        if (!read_account(sorted[i].account, request->slowest, &n_retries,
                          &reading)) {
            const char *name = cost_account_name(sorted[i].account);

            if (json) {
                if (!missing) {
                    missing = json_array_create_empty();
                }
                json_array_add(missing, json_string_create(name));
            } else {
                ds_put_format(s, "%s: missing, as a thread does not end "
                              "recording an event\n", name);
            }
            continue;
        }
        if (i >= start && i < end) {
            struct ds account = DS_EMPTY_INITIALIZER;

            format_account(&account, reply->json, report, request, &reading);
            length += account.length;
            /* There is one account at least, so that a client gets ahead. */
            if (i > start && length > max_length) {
                end = i;
            } else if (json) {
                json_array_add(accounts, serialized(&account));
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
        json_object_put(json, "accounts", accounts);
        cost_report_put_integer(json, "omitted", all.n - (end - start));
        if (end < wanted_end) {
            struct json *names = json_array_create_empty();

            for (size_t i = end; i < wanted_end; i++) {
                json_array_add(names, json_string_create(
                                   cost_account_name(sorted[i].account)));
            }
            json_object_put(json, "left_out", names);
        }
        if (missing) {
            json_object_put(json, "missing", missing);
        }
        if (sums) {
            json_object_put(json, "deleted",
                            sums_to_json(report, request, all.deleted,
                                         all.n_kinds, false));
            json_object_put(json, "total",
                            sums_to_json(report, request, all.totals,
                                         all.n_kinds, true));
        }
        json_to_ds(json, 0, s);
        json_destroy(json);
    } else {
        put_rest(s, report, request, &all, sorted, start, end, wanted_end);
    }

    free(sorted);
    cost_accounts_put(&all);
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
            struct ds unused = DS_EMPTY_INITIALIZER;
            struct json *json = report->more(reply->json ? &unused : s);

            if (reply->json) {
                ds_put_char(s, ',');
                json_to_ds(json, 0, s);
            }
            json_destroy(json);
            ds_destroy(&unused);
        }
    }
    if (reply->json && all) {
        ds_put_cstr(s, "]}");
    }
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

/* Returns true if 'a' and 'b' are names of the same class, such as "A+B+C" and
 * "A+C+B": what follows the first part may be in any order. */
static bool
same_class(const char *a, const char *b)
{
    struct sset parts_a, parts_b;
    bool same;

    sset_from_delimited_string(&parts_a, a, "+");
    sset_from_delimited_string(&parts_b, b, "+");
    same = (strlen(a) == strlen(b) && !strncmp(a, b, strcspn(a, "+"))
            && sset_equals(&parts_a, &parts_b));
    sset_destroy(&parts_a);
    sset_destroy(&parts_b);
    return same;
}

/* Sets '*class' to that of 'kind' named 's'.  Returns false if there is no
 * such class. */
static bool
class_from_string(const struct cost_kind *kind, const char *s, size_t *class)
{
    for (size_t i = 0; s[0] && i < kind->n_classes; i++) {
        char *name = class_name(kind, i);
        bool found = same_class(name, s);

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
    bool show = !request->slowest;
    bool class = show && report;
    unsigned int value;

    *uses_arg = true;
    if (show && !strcmp(option, "-hist")) {
        request->histograms = true;
        *uses_arg = false;
    } else if (show && !strcmp(option, "-thread")) {
        request->threads = true;
        *uses_arg = false;
    } else if (class && !strcmp(option, "-class")) {
        if (request->class != COST_ALL_CLASSES) {
            return xstrdup("only one -class may be given");
        } else if (!arg) {
            return xasprintf("-class needs an argument (%s)",
                             report->class_help);
        } else if (!class_from_string(report->kinds[0], arg,
                                      &request->class)) {
            return xasprintf("no class \"%s\" (a class is %s)", arg,
                             report->class_help);
        }
    } else if (!strcmp(option, "-n")) {
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
        return xasprintf("unknown option \"%s\" (options are %s%s-n N and "
                         "-skip N)", option,
                         show ? "-hist, -thread, " : "",
                         class ? "-class CLASS, " : "");
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
    size_t n_names = 0, n_max = request->slowest ? 2 : 1;
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
            if (request->slowest && options && !n_names) {
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
        request->n_slowest = n;
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
    request->slowest = slowest;
    request->class = COST_ALL_CLASSES;
    request->n_accounts = DEFAULT_ACCOUNTS;
    request->n_slowest = DEFAULT_SLOWEST;
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

        if (column->flags & COST_HIDDEN) {
            continue;
        }
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
    cost_report_put_integer(json, "version", 1);
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
                                 "[-hist] [-thread] [-n N] [-skip N] "
                                 "[REPORT...]", 0, INT_MAX, cost_show, NULL);
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
                     "[-hist] [-thread] [-class CLASS] [-n N] [-skip N] "
                     "[--] [NAME]", INT_MAX, cost_show);
    register_command(report, "cost-clear", "[--] [NAME]", 2, cost_clear);
    register_command(report, "cost-slowest",
                     "[-n N] [-skip N] [COUNT] [--] [NAME]", INT_MAX,
                     cost_slowest);
}
