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
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fatal-signal.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "socket-util.h"
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

/* A reply is at most so many kB long, for the sake of the main thread, which
 * has to send it.  Text, which it has to quote first, takes it some 3 ms for
 * each MB, JSON, which is ready to be sent, 0.7 ms. */
#define MAX_TEXT_KB 256
#define MAX_JSON_KB 2048

#define DEFAULT_ACCOUNTS 20             /* -n */
#define DEFAULT_SLOWEST 5

/* A command for the worker. */
struct request {
    const struct cost_report *report;
    bool histograms;                    /* -hist */
    bool threads;                       /* -thread */
    size_t class;                       /* -class */
    size_t n_accounts;                  /* -n, or SIZE_MAX for all. */
    char *file;                         /* -o, or NULL. */
    size_t n_slowest;
    char *name;                         /* Of the account, NULL for all. */
};

/* When this process began to account. */
static long long int start_us;

/* Formatting. */

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

/* Appends 'ns' nanoseconds to 's', in microseconds, with as many decimals and
 * commas as fit in eight characters. */
static void
put_us(struct ds *s, double ns)
{
    double us = ns / 1000;

    if (us >= 999999.5) {
        ds_put_format(s, "%.0f", us);
        return;
    }

    unsigned int precision = us < 9999.995 ? 2 : us < 99999.95 ? 1 : 0;
    uint64_t scale = precision == 2 ? 100 : precision == 1 ? 10 : 1;
    uint64_t scaled = llround(us * scale);

    put_count(s, scaled / scale);
    if (precision) {
        ds_put_format(s, precision == 2 ? ".%02"PRIu64 : ".%"PRIu64,
                      scaled % scale);
    }
}

/* Appends 'value' to 's', in the same way. */
void
cost_report_put_real(struct ds *s, double value)
{
    put_us(s, value * 1000);
}

/* Appends to 's' a column 'width' wide and what was put into 'cell', which is
 * cleared. */
static void
put_cell(struct ds *s, int width, struct ds *cell)
{
    ds_put_format(s, " %*s", width, ds_cstr(cell));
    ds_clear(cell);
}

static void
put_us_cell(struct ds *s, double ns)
{
    struct ds cell = DS_EMPTY_INITIALIZER;

    put_us(&cell, ns);
    put_cell(s, 8, &cell);
    ds_destroy(&cell);
}

static void
put_count_cell(struct ds *s, int width, uint64_t n)
{
    struct ds cell = DS_EMPTY_INITIALIZER;

    put_count(&cell, n);
    put_cell(s, width, &cell);
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

/* What a stage's histogram is of: times, which are shown in us, or numbers,
 * such as packets in a burst. */
static bool
stage_is_number(const struct cost_kind *kind, size_t stage)
{
    return kind->values & (1u << stage);
}

/* Appends a cell with 'value', ns or a number, of what 'stage' of 'kind'
 * is. */
static void
put_stage_cell(struct ds *s, const struct cost_kind *kind, size_t stage,
               uint64_t value)
{
    if (stage_is_number(kind, stage)) {
        put_count_cell(s, 8, value);
    } else {
        put_us_cell(s, value);
    }
}

/* Returns the bucket of 'hist' that 'number' falls into. */
static size_t
hist_bucket(const struct cost_hist_snapshot *hist, uint64_t number)
{
    return (hist->layout->linear
            ? MIN(number, hist->layout->n_edges)
            : cost_hist_bucket(number));
}

/* Appends the bars of 'hist', what 'stage' of events of 'kind' took, to 's': a
 * line for each bucket, or for each two, four or eight of them, so that there
 * are not too many lines. */
static void
put_bars(struct ds *s, const struct cost_kind *kind, size_t stage,
         const struct cost_hist_snapshot *hist)
{
    enum { MAX_LINES = 24, MAX_BAR = 40 };
    const struct cost_hist_layout *layout = hist->layout;
    size_t first, last, step;
    uint64_t max = 0;

    if (!hist->count) {
        return;
    }
    first = hist_bucket(hist, hist->min);
    last = hist_bucket(hist, hist->max);
    for (step = 1; step < 8 && (last - first) / step >= MAX_LINES;) {
        step *= 2;
    }
    /* Bucket 0, for 0 ns, has a line of its own.  Lines of several buckets
     * start at an edge that does not depend on the data. */
    if (first) {
        first = ROUND_DOWN(first - 1, step) + 1;
    }

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            double unit = max > MAX_BAR ? (double) max / MAX_BAR : 1;

            ds_put_format(s, "  %s%s, each # is %.*f %s%s\n",
                          kind->stages[stage],
                          stage_is_number(kind, stage) ? "" : " (us)",
                          unit > 1 ? 1 : 0, unit, kind->name,
                          unit > 1 ? "s" : "");
        }
        for (size_t b = first; b <= last;) {
            size_t end = b == 0 ? 1 : b + step;
            uint64_t n = 0;

            for (size_t i = b; i < MIN(end, layout->n_edges + 1); i++) {
                n += hist->buckets[i];
            }
            if (pass == 0) {
                max = MAX(max, n);
            } else {
                size_t len = (max <= MAX_BAR ? n
                              : DIV_ROUND_UP(n * MAX_BAR, max));

                if (end <= layout->n_edges) {
                    ds_put_cstr(s, "   <=");
                    put_stage_cell(s, kind, stage, layout->edges[end - 1]);
                } else {
                    ds_put_cstr(s, "    >");
                    put_stage_cell(s, kind, stage,
                                   layout->edges[layout->n_edges - 1]);
                }
                put_count_cell(s, 11, n);
                ds_put_char(s, ' ');
                ds_put_char_multiple(s, '#', len);
                ds_chomp(s, ' ');
                ds_put_char(s, '\n');
            }
            b = end;
        }
    }
}

/* Appends the table of those stages of 'snap' that are numbers, or of those
 * that are times, to 's'. */
static void
put_table(struct ds *s, const struct cost_snapshot *snap,
          const struct request *request, bool numbers)
{
    const struct cost_kind *kind = snap->kind;

    ds_put_format(s, "  %-10s %11s %8s", numbers ? "number" : "stage (us)",
                  "count", "mean");
    for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
        ds_put_format(s, " %8s", percentiles[i].name);
    }
    ds_put_format(s, " %8s\n", "max");

    for (size_t stage = 0; stage < kind->n_stages; stage++) {
        int width = MAX(10, strlen(kind->stages[stage]));
        struct cost_hist_snapshot hist;

        if (stage_is_number(kind, stage) != numbers) {
            continue;
        }
        cost_snapshot_stage(snap, request->class, stage, &hist);
        if (!hist.count && kind->optional & (1u << stage)) {
            continue;
        }
        ds_put_format(s, "  %-10s", kind->stages[stage]);
        put_count_cell(s, 21 - width, hist.count);
        put_us_cell(s, (cost_hist_snapshot_mean(&hist)
                        * (numbers ? 1000 : 1)));
        for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
            double percent = percentiles[i].percent;

            if (numbers) {
                put_count_cell(s, 8, cost_hist_snapshot_percentile_number(
                                   &hist, percent));
            } else {
                put_us_cell(s, cost_hist_snapshot_percentile(&hist, percent));
            }
        }
        put_stage_cell(s, kind, stage, hist.max);
        ds_put_char(s, '\n');
    }
}

/* Appends what is known of the stages of 'snap' to 's'. */
static void
put_stages(struct ds *s, const struct cost_report *report,
           const struct cost_snapshot *snap,
           const struct request *request)
{
    const struct cost_kind *kind = snap->kind;

    put_table(s, snap, request, false);
    if (kind->values) {
        put_table(s, snap, request, true);
    }
    if (report->format_derived) {
        report->format_derived(snap, request->class, s);
    }
    for (size_t i = 0; request->histograms && i < kind->n_stages; i++) {
        struct cost_hist_snapshot hist;

        cost_snapshot_stage(snap, request->class, i, &hist);
        put_bars(s, kind, i, &hist);
    }
}

/* Returns the sum of the group's counters in 'snap'. */
static uint64_t
group_sum(const struct cost_snapshot *snap, size_t class,
          const struct cost_counter_group *group)
{
    uint64_t n = 0;

    for (size_t i = group->first; i < group->end; i++) {
        n += cost_snapshot_counter(snap, class, i);
    }
    return n;
}

static void
put_groups(struct ds *s, const struct cost_report *report,
           const struct cost_snapshot *snap, size_t class)
{
    for (size_t i = 0; i < report->n_groups; i++) {
        const struct cost_counter_group *group = &report->groups[i];
        uint64_t sum = group_sum(snap, class, group);

        if (sum) {
            ds_put_format(s, "  %s:", group->name);
            for (size_t j = group->first; j < group->end; j++) {
                uint64_t n = cost_snapshot_counter(snap, class, j);

                if (n) {
                    put_share(s, snap->kind->counters[j], n, sum);
                }
            }
            ds_put_char(s, '\n');
        }
    }
}

static void
put_classes(struct ds *s, const struct cost_snapshot *snap)
{
    uint64_t total = cost_snapshot_count(snap, COST_ALL_CLASSES);

    if (!total) {
        return;
    }
    ds_put_cstr(s, "  class:");
    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        uint64_t n = cost_snapshot_count(snap, i);

        if (n) {
            struct ds name = DS_EMPTY_INITIALIZER;

            snap->kind->format_class(i, &name);
            put_share(s, ds_cstr(&name), n, total);
            ds_destroy(&name);
        }
    }
    ds_put_char(s, '\n');
}

static void
put_threads(struct ds *s, const struct cost_account_snapshot *account,
            size_t class, uint64_t total)
{
    ds_put_cstr(s, "  thread:");
    for (size_t i = 0; i < account->n_threads; i++) {
        uint64_t n = cost_snapshot_count(&account->threads[i], class);

        if (n) {
            put_share(s, account->threads[i].thread, n, total);
        }
    }
    ds_put_char(s, '\n');
}

static bool
snapshot_is_empty(const struct cost_snapshot *snap)
{
    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->classes[i]) {
            return false;
        }
    }
    return true;
}

/* Returns the number of events of 'class', or all, in 'snap' that were
 * lost. */
static uint64_t
n_lost(const struct cost_report *report, const struct cost_snapshot *snap,
       size_t class)
{
    uint64_t n = 0;

    for (size_t i = 0; i < report->n_groups; i++) {
        if (report->groups[i].lost) {
            n += group_sum(snap, class, &report->groups[i]);
        }
    }
    return n;
}

/* Appends to 's' how many events of 'class', or of all, in 'snap' were lost,
 * if any can be. */
static void
put_lost(struct ds *s, const struct cost_report *report,
         const struct cost_snapshot *snap, size_t class)
{
    for (size_t i = 0; i < report->n_groups; i++) {
        if (report->groups[i].lost) {
            ds_put_cstr(s, ", ");
            put_count(s, n_lost(report, snap, class));
            ds_put_cstr(s, " lost");
            return;
        }
    }
}

/* Returns true if 'stage' of an event of 'kind' is only known of those that
 * are split. */
static bool
stage_is_sampled(const struct cost_kind *kind, size_t stage)
{
    return (kind->n_tally_rows ? stage != kind->tally_stage
            : !kind->always_split && stage != kind->n_stages - 1);
}

/* Appends to 's' the line that says how events of 'kind' are accounted for. */
static void
put_settings(struct ds *s, const struct cost_kind *kind)
{
    uint32_t interval = cost_split_interval(kind->config);

    ds_put_format(s, "  accounting %s, clock ", interval ? "on" : "off");
    cost_clock_format(s);
    if (interval == 1 || (interval && kind->always_split)) {
        ds_put_cstr(s, ", counts and times exact");
    } else if (interval) {
        ds_put_format(s, ", counts %sexact, %s of 1 in %"PRIu32" %ss",
                      kind->n_tally_rows ? "" : "and totals ",
                      kind->n_tally_rows ? "times" : "stages",
                      interval, kind->name);
    }
    ds_put_char(s, '\n');
}

/* Appends 'account' to 's'. */
static void
put_account(struct ds *s, const struct request *request,
            const struct cost_account_snapshot *account)
{
    const struct cost_report *report = request->report;
    uint64_t total = cost_snapshot_count(&account->total, request->class);

    ds_put_format(s, "%s: ", account->name);
    put_plural(s, total, account->kind->name);
    if (request->class != COST_ALL_CLASSES) {
        ds_put_cstr(s, " of class ");
        account->kind->format_class(request->class, s);
    }
    ds_put_format(s, " in %.1f s", account->elapsed_ms / 1000.0);
    put_lost(s, report, &account->total, request->class);
    ds_put_char(s, '\n');
    put_settings(s, account->kind);

    if (snapshot_is_empty(&account->total)) {
        return;
    }

    put_stages(s, report, &account->total, request);
    if (request->class == COST_ALL_CLASSES) {
        put_classes(s, &account->total);
    }
    put_groups(s, report, &account->total, request->class);

    if (total) {
        put_threads(s, account, request->class, total);
    }
    for (size_t i = 0; request->threads && i < account->n_threads; i++) {
        const struct cost_snapshot *thread = &account->threads[i];
        uint64_t n = cost_snapshot_count(thread, request->class);

        if (!n && !n_lost(report, thread, request->class)) {
            continue;
        }
        ds_put_format(s, "%s, thread %s: ", account->name, thread->thread);
        put_plural(s, n, account->kind->name);
        put_lost(s, report, thread, request->class);
        ds_put_char(s, '\n');
        put_stages(s, report, thread, request);
        if (request->class == COST_ALL_CLASSES) {
            put_classes(s, thread);
        }
        put_groups(s, report, thread, request->class);
    }
}

/* Appends to 's' what there was of accounts that are deleted. */
static void
put_deleted(struct ds *s, const struct request *request,
            const struct cost_sum *deleted)
{
    const struct cost_report *report = request->report;

    if (snapshot_is_empty(&deleted->total)) {
        return;
    }
    ds_put_cstr(s, "deleted: ");
    put_plural(s, deleted->n_accounts, report->object);
    ds_put_cstr(s, ", ");
    put_plural(s, cost_snapshot_count(&deleted->total, request->class),
               deleted->kind->name);
    put_lost(s, report, &deleted->total, request->class);
    ds_put_char(s, '\n');
}

/* JSON. */

/* JSON integers have 63 bits. */
static struct json *
json_u64(uint64_t n)
{
    return json_integer_create(MIN(n, LLONG_MAX));
}

/* Returns the histogram as a JSON object with the fields of OTLP's
 * ExponentialHistogramDataPoint, in its form for positive values, in seconds,
 * except that what is above the highest edge is in "overflow". */
static struct json *
hist_buckets_to_json(const struct cost_hist_snapshot *hist)
{
    struct json *json = json_object_create();
    struct json *counts = json_array_create_empty();
    size_t first = 1, end = COST_HIST_N_EDGES;

    while (first < end && !hist->buckets[first]) {
        first++;
    }
    while (end > first && !hist->buckets[end - 1]) {
        end--;
    }
    for (size_t i = first; i < end; i++) {
        json_array_add(counts, json_u64(hist->buckets[i]));
    }
    json_object_put(json, "scale", json_integer_create(COST_HIST_SCALE));
    json_object_put_string(json, "unit", "s");
    /* The lowest edge, 2**-30 s, rounded down to as many digits as a number in
     * JSON has. */
    json_object_put(json, "zero_threshold",
                    json_real_create(931322574615478 / 1e24));
    json_object_put(json, "zero_count", json_u64(hist->buckets[0]));
    json_object_put(json, "offset",
                    json_integer_create(first < end
                                        ? COST_HIST_OTLP_OFFSET
                                          + (int) first - 1
                                        : 0));
    json_object_put(json, "bucket_counts", counts);
    json_object_put(json, "overflow",
                    json_u64(hist->buckets[COST_HIST_N_EDGES]));
    return json;
}

/* Returns the histogram of numbers as a JSON object: bucket I is for numbers
 * up to and including bound I, the last one for those above all bounds.  The
 * bounds are the layout's, from the lowest to that of the highest number. */
static struct json *
number_buckets_to_json(const struct cost_hist_snapshot *hist)
{
    const struct cost_hist_layout *layout = hist->layout;
    struct json *json = json_object_create();
    struct json *bounds = json_array_create_empty();
    struct json *counts = json_array_create_empty();
    size_t end = layout->linear ? layout->n_edges : 1;

    if (hist->count && !layout->linear) {
        end = MIN(hist_bucket(hist, hist->max) + 1, layout->n_edges);
    }
    for (size_t i = 0; i < end; i++) {
        /* Several buckets below 12 are too narrow for any whole number. */
        if (!i || layout->edges[i] != layout->edges[i - 1]) {
            json_array_add(bounds, json_u64(layout->edges[i]));
            json_array_add(counts, json_u64(hist->buckets[i]));
        }
    }
    json_array_add(counts, json_u64(hist->buckets[layout->n_edges]));
    json_object_put(json, "bounds", bounds);
    json_object_put(json, "counts", counts);
    return json;
}

/* Returns 'n' as a string of decimal digits. */
static struct json *
json_u128(ovs_u128 n)
{
    uint32_t limbs[] = { n.u64.hi >> 32, n.u64.hi, n.u64.lo >> 32, n.u64.lo };
    char digits[40];
    char *p = &digits[sizeof digits - 1];

    *p = '\0';
    do {
        uint64_t rest = 0;

        for (size_t i = 0; i < ARRAY_SIZE(limbs); i++) {
            rest = rest << 32 | limbs[i];
            limbs[i] = rest / 10;
            rest %= 10;
        }
        *--p = '0' + rest;
    } while (limbs[0] || limbs[1] || limbs[2] || limbs[3]);
    return json_string_create(p);
}

/* Returns 'hist', of what 'stage' of 'kind' is. */
static struct json *
hist_to_json(const struct cost_kind *kind, size_t stage,
             const struct cost_hist_snapshot *hist, bool buckets)
{
    bool number = stage_is_number(kind, stage);
    struct json *json = json_object_create();

    json_object_put_string(json, "unit", (!number ? "ns"
                                          : kind->units && kind->units[stage]
                                          ? kind->units[stage]
                                          : kind->stages[stage]));
    json_object_put(json, "sampled",
                    json_boolean_create(stage_is_sampled(kind, stage)));
    json_object_put(json, "count", json_u64(hist->count));
    json_object_put(json, "sum", json_u64(hist->sum));
    json_object_put(json, "sum_sq", json_u128(hist->sum_sq));
    if (hist->count) {
        json_object_put(json, "min", json_u64(hist->min));
        json_object_put(json, "max", json_u64(hist->max));
        json_object_put(json, "mean",
                        json_real_create(cost_hist_snapshot_mean(hist)));
        json_object_put(json, "stddev",
                        json_real_create(cost_hist_snapshot_stddev(hist)));
        for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
            double percent = percentiles[i].percent;

            json_object_put(
                json, percentiles[i].name,
                (number
                 ? json_u64(cost_hist_snapshot_percentile_number(hist,
                                                                 percent))
                 : json_real_create(cost_hist_snapshot_percentile(hist,
                                                                  percent))));
        }
    }
    if (buckets) {
        json_object_put(json, "histogram",
                        (number ? number_buckets_to_json(hist)
                         : hist_buckets_to_json(hist)));
    }
    return json;
}

/* Adds to 'json' what there is in 'snap', for 'class' or all. */
static void
snapshot_to_json(const struct request *request,
                 const struct cost_snapshot *snap, size_t class,
                 struct json *json)
{
    const struct cost_report *report = request->report;
    const struct cost_kind *kind = snap->kind;
    struct json *stages = json_object_create();
    struct json *counters = json_object_create();

    json_object_put(json, "events",
                    json_u64(cost_snapshot_count(snap, class)));
    for (size_t i = 0; i < kind->n_stages; i++) {
        struct cost_hist_snapshot hist;

        cost_snapshot_stage(snap, class, i, &hist);
        if (hist.count || !(kind->optional & (1u << i))) {
            json_object_put(stages, kind->stages[i],
                            hist_to_json(kind, i, &hist,
                                         request->histograms));
        }
    }
    json_object_put(json, "stages", stages);

    for (size_t i = 0; i < report->n_groups; i++) {
        const struct cost_counter_group *group = &report->groups[i];
        struct json *members = json_object_create();

        for (size_t j = group->first; j < group->end; j++) {
            json_object_put(members, kind->counters[j],
                            json_u64(cost_snapshot_counter(snap, class, j)));
        }
        json_object_put(counters, group->name, members);
    }
    json_object_put(json, "counters", counters);

    if (report->derived_to_json) {
        struct json *derived = json_object_create();

        report->derived_to_json(snap, class, derived);
        json_object_put(json, "derived", derived);
    }
}

/* Adds to 'json' what there is in 'snap', with its classes. */
static void
total_to_json(const struct request *request, const struct cost_snapshot *snap,
              struct json *json)
{
    struct json *classes = json_array_create_empty();

    snapshot_to_json(request, snap, request->class, json);
    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->classes[i]
            && (request->class == COST_ALL_CLASSES || request->class == i)) {
            struct json *class = json_object_create();
            struct ds name = DS_EMPTY_INITIALIZER;

            snap->kind->format_class(i, &name);
            json_object_put_string(class, "name", ds_cstr(&name));
            snapshot_to_json(request, snap, i, class);
            json_array_add(classes, class);
            ds_destroy(&name);
        }
    }
    json_object_put(json, "classes", classes);
}

/* Returns what identifies 'account', as a JSON object. */
static struct json *
account_header_to_json(const struct cost_account_snapshot *account)
{
    struct json *json = json_object_create();

    json_object_put_string(json, "name", account->name);
    json_object_put_string(json, "kind", account->kind->name);
    if (account->datapath) {
        json_object_put_string(json, "datapath", account->datapath);
    }
    json_object_put(json, "since_us", json_integer_create(account->since_us));
    return json;
}

static struct json *
account_to_json(const struct request *request,
                const struct cost_account_snapshot *account)
{
    struct json *json = account_header_to_json(account);

    total_to_json(request, &account->total, json);
    if (request->threads) {
        struct json *threads = json_array_create_empty();

        for (size_t i = 0; i < account->n_threads; i++) {
            const struct cost_snapshot *snap = &account->threads[i];

            if (!snapshot_is_empty(snap)) {
                struct json *thread = json_object_create();

                json_object_put_string(thread, "name", snap->thread);
                snapshot_to_json(request, snap, request->class, thread);
                json_array_add(threads, thread);
            }
        }
        json_object_put(json, "threads", threads);
    }
    return json;
}

/* Returns 'sum', of accounts, as JSON. */
static struct json *
sum_to_json(const struct request *request, const struct cost_sum *sum)
{
    struct json *json = json_object_create();

    json_object_put_string(json, "kind", sum->kind->name);
    json_object_put(json, "accounts", json_u64(sum->n_accounts));
    json_object_put(json, "since_us", json_integer_create(sum->since_us));
    total_to_json(request, &sum->total, json);
    return json;
}

/* Returns what every reply in JSON to PREFIX/COMMAND has. */
struct json *
cost_report_json_header(const char *prefix, const char *command,
                        struct cost_config *config)
{
    uint32_t interval = cost_split_interval(config);
    struct json *settings = json_object_create();
    struct json *clock = json_object_create();
    struct json *json = json_object_create();

    json_object_put(json, "version", json_integer_create(1));
    json_object_put_string(json, "report", prefix);
    json_object_put_string(json, "command", command);
    json_object_put(json, "pid", json_integer_create(getpid()));
    json_object_put(json, "start_us", json_integer_create(start_us));
    json_object_put_string(json, "ovs_version", VERSION VERSION_SUFFIX);
    json_object_put(json, "now_us", json_integer_create(time_wall_usec()));

    cost_clock_to_json(clock);
    json_object_put(json, "clock", clock);

    json_object_put(settings, "enabled", json_boolean_create(interval != 0));
    json_object_put(settings, "split_interval", json_integer_create(interval));
    json_object_put(json, "settings", settings);
    return json;
}

/* The slowest events. */

static void
put_slow_event(struct ds *s, const struct cost_report *report,
               const struct cost_account_snapshot *account,
               const struct cost_slow_event *event)
{
    const struct cost_kind *kind = account->kind;
    char *when = xastrftime_msec("%Y-%m-%d %H:%M:%S.###Z",
                                 event->when_us / 1000, true);

    put_us(s, event->total_ns);
    ds_put_cstr(s, " us");
    if (event->excluded_ns) {
        ds_put_cstr(s, ", without ");
        put_us(s, event->excluded_ns);
        ds_put_cstr(s, " us of events within it,");
    }
    ds_put_format(s, " at %s, thread %s, class ", when, event->thread);
    kind->format_class(event->class, s);
    ds_put_cstr(s, ", ");
    report->format_details(account->name, event->details, s);
    ds_put_cstr(s, "\n    ");
    for (size_t i = 0; i < kind->n_stages - 1; i++) {
        if (event->marked & ~kind->values & (1u << i)) {
            ds_put_format(s, " %s ", kind->stages[i]);
            put_us(s, event->stages[i]);
        }
    }
    ds_put_cstr(s, event->marked & ~kind->values ? " us" : " stages unknown");
    for (size_t i = 0; i < kind->n_stages - 1; i++) {
        if (event->marked & kind->values & (1u << i)) {
            ds_put_format(s, ", %s ", kind->stages[i]);
            put_count(s, event->stages[i]);
        }
    }
    ds_put_char(s, '\n');
    free(when);
}

static struct json *
slow_event_to_json(const struct cost_report *report,
                   const struct cost_account_snapshot *account,
                   const struct cost_slow_event *event)
{
    const struct cost_kind *kind = account->kind;
    struct json *details = json_object_create();
    struct json *numbers = json_object_create();
    struct json *stages = json_object_create();
    struct json *json = json_object_create();
    struct ds class = DS_EMPTY_INITIALIZER;

    kind->format_class(event->class, &class);
    json_object_put(json, "total_ns", json_u64(event->total_ns));
    json_object_put(json, "excluded_ns", json_u64(event->excluded_ns));
    json_object_put(json, "time_us", json_integer_create(event->when_us));
    json_object_put_string(json, "thread", event->thread);
    json_object_put_string(json, "class", ds_cstr(&class));
    ds_destroy(&class);

    for (size_t i = 0; i < kind->n_stages - 1; i++) {
        if (event->marked & (1u << i)) {
            json_object_put(stage_is_number(kind, i) ? numbers : stages,
                            kind->stages[i], json_u64(event->stages[i]));
        }
    }
    json_object_put(json, "stages_ns", stages);
    json_object_put(json, "numbers", numbers);
    report->details_to_json(account->name, event->details, details);
    json_object_put(json, "details", details);
    return json;
}

/* Appends the slowest events of 'account' to 's'. */
static void
put_slowest(struct ds *s, const struct request *request,
            const struct cost_account_snapshot *account)
{
    size_t n = MIN(request->n_slowest, account->total.n_slowest);

    ds_put_format(s, "%s: slowest %"PRIuSIZE" of ", account->name, n);
    put_plural(s, cost_snapshot_count(&account->total, COST_ALL_CLASSES),
               account->kind->name);
    ds_put_format(s, " in %.1f s\n", account->elapsed_ms / 1000.0);
    for (size_t i = 0; i < n; i++) {
        ds_put_format(s, "%3"PRIuSIZE". ", i + 1);
        put_slow_event(s, request->report, account,
                       &account->total.slowest[i]);
    }
}

/* Returns the slowest events of 'account' as JSON. */
static struct json *
slowest_to_json(const struct request *request,
                const struct cost_account_snapshot *account)
{
    struct json *json = account_header_to_json(account);
    struct json *array = json_array_create_empty();
    size_t n = MIN(request->n_slowest, account->total.n_slowest);

    json_object_put(json, "events",
                    json_u64(cost_snapshot_count(&account->total,
                                                 COST_ALL_CLASSES)));
    for (size_t i = 0; i < n; i++) {
        json_array_add(array, slow_event_to_json(request->report, account,
                                                 &account->total.slowest[i]));
    }
    json_object_put(json, "slowest", array);
    return json;
}

/* Output. */

/* Where a report goes: to the reply, or to a file. */
struct output {
    struct unixctl_worker_reply *reply;
    const char *file;                   /* Or NULL. */
    char *temporary;                    /* Its name until it is complete. */
    int fd;                             /* Or -1. */
};

/* Fails 'output' for 'error', of 'action' with its file. */
static void
output_fail(struct output *output, const char *action, int error)
{
    output->reply->error = xasprintf("%s: cannot %s (%s)", output->file,
                                     action, ovs_strerror(error));
}

/* Starts 'output' of 'request' to 'reply'. */
static void
output_start(struct output *output, const struct request *request,
             struct unixctl_worker_reply *reply)
{
    struct stat st;

    output->reply = reply;
    output->file = request->file;
    output->temporary = NULL;
    output->fd = -1;
    if (!output->file) {
        return;
    }

    if (!lstat(output->file, &st)) {
        if (!S_ISREG(st.st_mode)) {
            reply->error = xasprintf("%s: is not a regular file",
                                     output->file);
            return;
        }
    } else if (errno != ENOENT) {
        output_fail(output, "write", errno);
        return;
    }

    output->temporary = xasprintf("%s.%ld.tmp", output->file,
                                  (long int) getpid());
    output->fd = open(output->temporary,
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                      0644);
    if (output->fd < 0) {
        output_fail(output, "create a temporary file beside it", errno);
    } else {
        fatal_signal_add_file_to_unlink(output->temporary);
    }
}

/* Takes what has been appended to the reply's body of 'output'.  Returns false
 * if nothing else is wanted. */
static bool
output_flush(struct output *output)
{
    struct ds *body = &output->reply->body;

    if (output->reply->error) {
        return false;
    } else if (!output->file) {
        unsigned int max_kb = output->reply->json ? MAX_JSON_KB : MAX_TEXT_KB;

        if (body->length > max_kb * 1024) {
            output->reply->error = xasprintf(
                "the reply would be longer than %u kB, use -n to have fewer "
                "accounts, or -o to have it in a file", max_kb);
        }
    } else {
        size_t bytes_written;
        int error = write_fully(output->fd, body->string, body->length,
                                &bytes_written);

        if (error) {
            output_fail(output, "write", error);
        }
        ds_clear(body);
    }
    return !output->reply->error;
}

/* Ends 'output', of which everything has been flushed. */
static void
output_finish(struct output *output)
{
    if (output->fd >= 0) {
        if (close(output->fd) && !output->reply->error) {
            output_fail(output, "write", errno);
        }
        if (!output->reply->error
            && rename(output->temporary, output->file)) {
            output_fail(output, "rename a temporary file to it", errno);
        }
        if (output->reply->error) {
            unlink(output->temporary);
        }
        fatal_signal_remove_file_to_unlink(output->temporary);
    }
    free(output->temporary);
}

/* Commands, in the worker. */

static void
request_destroy(struct request *request)
{
    free(request->file);
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

/* An account, and what it is sorted by. */
struct sorted_account {
    struct cost_account *account;
    struct cost_summary summary;
};

static int
compare_accounts(const void *a_, const void *b_)
{
    const struct sorted_account *a = a_, *b = b_;

    return (a->summary.timed_ns != b->summary.timed_ns
            ? (a->summary.timed_ns < b->summary.timed_ns ? 1 : -1)
            : a->summary.n_events != b->summary.n_events
            ? (a->summary.n_events < b->summary.n_events ? 1 : -1)
            : strcmp(cost_account_name(a->account),
                     cost_account_name(b->account)));
}

/* Returns the accounts in 'all', those that most time was spent on first. */
static struct sorted_account *
sort_accounts(const struct cost_accounts *all)
{
    struct sorted_account *sorted = xmalloc(all->n * sizeof *sorted);

    for (size_t i = 0; i < all->n; i++) {
        sorted[i].account = all->accounts[i];
        cost_account_summarize(sorted[i].account, &sorted[i].summary);
        ovsrcu_quiesce();
    }
    if (all->n) {
        qsort(sorted, all->n, sizeof *sorted, compare_accounts);
    }
    return sorted;
}

/* Appends 'json' to 's', and destroys it. */
static void
put_json(struct ds *s, struct json *json)
{
    json_to_ds(json, JSSF_SORT, s);
    json_destroy(json);
}

/* Appends the 'n' 'sums' to 's', as the member 'name' of an object, except
 * those of no account if 'skip_empty'. */
static void
put_sums(struct ds *s, const struct request *request, const char *name,
         const struct cost_sum *sums, size_t n, bool skip_empty)
{
    bool first = true;

    ds_put_format(s, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        if (sums[i].n_accounts || !skip_empty) {
            if (!first) {
                ds_put_char(s, ',');
            }
            put_json(s, sum_to_json(request, &sums[i]));
            first = false;
        }
    }
    ds_put_char(s, ']');
}

/* Adds 'account' to the one of the 'n' 'sums' that is for its kind. */
static void
add_to_sum(struct cost_sum *sums, size_t n,
           const struct cost_account_snapshot *account)
{
    for (size_t i = 0; i < n; i++) {
        if (sums[i].kind == account->kind) {
            sums[i].n_accounts++;
            if (account->cleared) {
                sums[i].since_us = MAX(sums[i].since_us, account->since_us);
            }
            cost_snapshot_merge(&sums[i].total, &account->total);
        }
    }
}

/* Appends to 's' what comes before the accounts in JSON. */
static void
put_json_start(struct ds *s, const struct request *request,
               const char *command)
{
    const struct cost_report *report = request->report;
    struct json *json = cost_report_json_header(report->prefix, command,
                                                report->kinds[0]->config);

    if (report->state_to_json) {
        report->state_to_json(json);
    }
    if (request->class != COST_ALL_CLASSES) {
        struct ds class = DS_EMPTY_INITIALIZER;

        report->kinds[0]->format_class(request->class, &class);
        json_object_put_string(json, "class", ds_cstr(&class));
        ds_destroy(&class);
    }
    put_json(s, json);
    ds_chomp(s, '}');
    ds_put_cstr(s, ",\"accounts\":[");
}

/* Makes the 'reply' to 'request', for PREFIX/COMMAND.  'put_text' and
 * 'to_json' are for one account.  'sums' says whether there are sums of
 * accounts as well. */
static void
report_accounts(const struct request *request, const char *command, bool sums,
                void (*put_text)(struct ds *, const struct request *,
                                 const struct cost_account_snapshot *),
                struct json *(*to_json)(const struct request *,
                                        const struct cost_account_snapshot *),
                struct unixctl_worker_reply *reply)
{
    const struct cost_report *report = request->report;
    struct sorted_account *sorted;
    struct ds *s = &reply->body;
    struct cost_accounts all;
    struct output output;
    size_t n_totals;
    size_t n_shown;

    cost_accounts_get(report->kinds, report->n_kinds, request->name, &all);
    if (!all.n && request->name) {
        reply->error = no_such_account(report, request->name);
        cost_accounts_put(&all);
        return;
    }

    n_totals = reply->json && sums ? all.n_kinds : 0;
    for (size_t i = 0; i < n_totals; i++) {
        all.totals[i].n_accounts = all.deleted[i].n_accounts;
        cost_snapshot_merge(&all.totals[i].total, &all.deleted[i].total);
    }

    output_start(&output, request, reply);
    sorted = sort_accounts(&all);
    n_shown = MIN(all.n, request->n_accounts);
    if (reply->json) {
        put_json_start(s, request, command);
    }
    for (size_t i = 0; (i < (n_totals ? all.n : n_shown)
                        && output_flush(&output)); i++) {
        struct cost_account_snapshot account;

        cost_account_read(sorted[i].account, &account);
        if (i < n_shown) {
            if (reply->json) {
                if (i) {
                    ds_put_char(s, ',');
                }
                put_json(s, to_json(request, &account));
            } else {
                put_text(s, request, &account);
            }
        }
        add_to_sum(all.totals, n_totals, &account);
        cost_account_snapshot_uninit(&account);
        ovsrcu_quiesce();
    }

    if (reply->json) {
        ds_put_format(s, "],\"omitted\":%"PRIuSIZE, all.n - n_shown);
        if (n_totals) {
            put_sums(s, request, "deleted", all.deleted, n_totals, true);
            put_sums(s, request, "total", all.totals, n_totals, false);
        }
        ds_put_char(s, '}');
    } else {
        if (n_shown < all.n) {
            ds_put_cstr(s, "and ");
            put_count(s, all.n - n_shown);
            ds_put_format(s, " more %s%s (use -n to see more of them)\n",
                          report->object, all.n - n_shown == 1 ? "" : "s");
        }
        for (size_t i = 0; sums && i < all.n_kinds; i++) {
            put_deleted(s, request, &all.deleted[i]);
        }
        if (!all.n && !s->length) {
            ds_put_format(s, "no %s\n", report->object);
        }
    }
    output_flush(&output);
    output_finish(&output);

    free(sorted);
    cost_accounts_put(&all);
}

static void
do_show(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;

    report_accounts(request, "cost-show", true, put_account, account_to_json,
                    reply);
    request_destroy(request);
}

static void
do_slowest(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;

    report_accounts(request, "cost-slowest", false, put_slowest,
                    slowest_to_json, reply);
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

/* Parses 'arg', the argument of -n, into '*n'. */
static char *
parse_n(const char *arg, size_t *n)
{
    unsigned int value;

    if (!strcmp(arg, "all")) {
        *n = SIZE_MAX;
    } else if (str_to_uint(arg, 10, &value) && value) {
        *n = value;
    } else {
        return xasprintf("\"%s\" is neither a positive number nor \"all\"",
                         arg);
    }
    return NULL;
}

/* Sets '*class' to that of 'report' named 's'.  Returns false if there is no
 * such class. */
static bool
class_from_string(const struct cost_report *report, const char *s,
                  size_t *class)
{
    const struct cost_kind *kind = report->kinds[0];
    struct ds name = DS_EMPTY_INITIALIZER;
    bool found = false;

    if (report->class_from_string) {
        return report->class_from_string(s, class);
    }
    for (size_t i = 0; i < kind->n_classes && !found; i++) {
        ds_clear(&name);
        kind->format_class(i, &name);
        found = name.length && !strcmp(s, ds_cstr(&name));
        *class = found ? i : *class;
    }
    ds_destroy(&name);
    return found;
}

/* Parses 'option' into 'request'.  'arg' is what follows, or NULL, and
 * '*uses_arg' becomes true if that is its argument.  'show' says whether it
 * may be any option of PREFIX/cost-show.  Returns NULL if successful,
 * otherwise an error message that the caller must free. */
static char *
parse_option(struct request *request, bool show, const char *option,
             const char *arg, bool *uses_arg)
{
    const struct cost_report *report = request->report;

    *uses_arg = true;
    if (show && !strcmp(option, "-hist")) {
        request->histograms = true;
        *uses_arg = false;
    } else if (show && !strcmp(option, "-thread")) {
        request->threads = true;
        *uses_arg = false;
    } else if (show && !strcmp(option, "-class")) {
        if (request->class != COST_ALL_CLASSES) {
            return xstrdup("only one -class may be given");
        } else if (!arg) {
            return xasprintf("-class needs an argument (%s)",
                             report->class_help);
        } else if (!class_from_string(report, arg, &request->class)) {
            return xasprintf("no class \"%s\" (a class is %s)", arg,
                             report->class_help);
        }
    } else if (!strcmp(option, "-n")) {
        if (!arg) {
            return xstrdup("-n needs an argument (a number, or \"all\")");
        }
        return parse_n(arg, &request->n_accounts);
    } else if (!strcmp(option, "-o")) {
        if (!arg || arg[0] != '/') {
            return xstrdup("-o needs the absolute name of a file as its "
                           "argument");
        }
        free(request->file);
        request->file = xstrdup(arg);
    } else {
        return xasprintf("unknown option \"%s\" (options are %s-n N and "
                         "-o FILE)", option,
                         show ? "-hist, -thread, -class CLASS, " : "");
    }
    return NULL;
}

/* Parses the arguments of PREFIX/cost-show or, if 'show' is false, of
 * PREFIX/cost-slowest, which may have a number first.  Returns NULL if
 * successful, otherwise an error message that the caller must free. */
static char *
parse_request(struct request *request, bool show, int argc,
              const char *argv[])
{
    const char *names[2];
    size_t n_names = 0, n_max = show ? 1 : 2;
    bool options = true;
    bool number = false;

    for (int i = 1; i < argc; i++) {
        if (options && !strcmp(argv[i], "--")) {
            options = false;
            /* Only a name may follow. */
            n_max = MIN(n_max, n_names + 1);
        } else if (options && argv[i][0] == '-') {
            const char *arg = i + 1 < argc ? argv[i + 1] : NULL;
            bool uses_arg;
            char *error = parse_option(request, show, argv[i], arg, &uses_arg);

            if (error) {
                return error;
            }
            i += uses_arg;
        } else if (n_names >= n_max) {
            return xasprintf("only one %s may be named, not \"%s\" and "
                             "\"%s\"", request->report->object,
                             names[n_names - 1], argv[i]);
        } else {
            if (!show && options && !n_names) {
                number = isdigit((unsigned char) argv[i][0]);
            }
            names[n_names++] = argv[i];
        }
    }

    if (!show && (number || n_names == 2)) {
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
    return NULL;
}

/* Creates and returns a new request for 'report', of everything. */
static struct request *
request_create(const struct cost_report *report)
{
    struct request *request = xzalloc(sizeof *request);

    request->report = report;
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
    struct request *request = request_create(report);

    submit(conn, request, parse_request(request, true, argc, argv), do_show);
}

static void
cost_slowest(struct unixctl_conn *conn, int argc, const char *argv[],
             void *report)
{
    struct request *request = request_create(report);

    submit(conn, request, parse_request(request, false, argc, argv),
           do_slowest);
}

static void
cost_clear(struct unixctl_conn *conn, int argc, const char *argv[],
           void *report)
{
    struct request *request = request_create(report);
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

static void
register_command(const struct cost_report *report, const char *name,
                 const char *usage, int max_args, unixctl_cb_func *cb)
{
    char *command = xasprintf("%s/%s", report->prefix, name);

    unixctl_command_register(command, usage, 0, max_args, cb,
                             CONST_CAST(struct cost_report *, report));
    free(command);
}

/* Registers the commands for 'report', whose arguments are documented in
 * lib/upcall-cost-unixctl.man. */
void
cost_report_register(const struct cost_report *report)
{
    if (!start_us) {
        start_us = time_wall_usec();
    }
    register_command(report, "cost-show",
                     "[-hist] [-thread] [-class CLASS] [-n N] [-o FILE] "
                     "[--] [NAME]", INT_MAX, cost_show);
    register_command(report, "cost-clear", "[--] [NAME]", 2, cost_clear);
    register_command(report, "cost-slowest",
                     "[-n N] [-o FILE] [COUNT] [--] [NAME]", INT_MAX,
                     cost_slowest);
}
