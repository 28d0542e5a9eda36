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

#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "timeval.h"
#include "unixctl.h"
#include "util.h"

static const struct {
    const char *name;
    double percent;
} percentiles[] = {
    { "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "p99.9", 99.9 },
};

/* Options of PREFIX/cost-show. */
struct show_options {
    bool histograms;                    /* -hist */
    bool threads;                       /* -thread */
    size_t class;                       /* -class */
    const char *account;                /* Or NULL for all. */
};

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

/* Appends the bars of 'hist', what 'stage' of events of 'kind' took, to 's': a
 * line for each bucket, or for each two, four or eight of them, so that there
 * are not too many lines. */
static void
put_bars(struct ds *s, const struct cost_kind *kind, size_t stage,
         const struct cost_hist_snapshot *hist)
{
    enum { MAX_LINES = 24, MAX_BAR = 40 };
    size_t first, last, step;
    uint64_t max = 0;

    if (!hist->count) {
        return;
    }
    first = cost_hist_bucket(hist->min);
    last = cost_hist_bucket(hist->max);
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

            for (size_t i = b; i < MIN(end, COST_HIST_N_BUCKETS); i++) {
                n += hist->buckets[i];
            }
            if (pass == 0) {
                max = MAX(max, n);
            } else {
                size_t len = (max <= MAX_BAR ? n
                              : DIV_ROUND_UP(n * MAX_BAR, max));

                if (end <= COST_HIST_N_EDGES) {
                    ds_put_cstr(s, "   <=");
                    put_stage_cell(s, kind, stage, cost_hist_edges[end - 1]);
                } else {
                    ds_put_cstr(s, "    >");
                    put_stage_cell(s, kind, stage,
                                   cost_hist_edges[COST_HIST_N_EDGES - 1]);
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
          const struct show_options *options, bool numbers)
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
        cost_snapshot_stage(snap, options->class, stage, &hist);
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
           const struct show_options *options)
{
    const struct cost_kind *kind = snap->kind;

    put_table(s, snap, options, false);
    if (kind->values) {
        put_table(s, snap, options, true);
    }
    if (report->format_derived) {
        report->format_derived(snap, options->class, s);
    }
    for (size_t i = 0; options->histograms && i < kind->n_stages; i++) {
        struct cost_hist_snapshot hist;

        cost_snapshot_stage(snap, options->class, i, &hist);
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

static void
put_account(struct ds *s, const struct cost_report *report,
            const struct cost_account_snapshot *account,
            const struct show_options *options)
{
    uint64_t total = cost_snapshot_count(&account->total, options->class);
    double drift = cost_clock_drift_ppm();
    uint32_t interval;

    atomic_read_relaxed(&cost_config.split_interval, &interval);

    ds_put_format(s, "%s: ", account->name);
    put_plural(s, total, account->kind->name);
    if (options->class != COST_ALL_CLASSES) {
        ds_put_cstr(s, " of class ");
        account->kind->format_class(options->class, s);
    }
    ds_put_format(s, " in %.1f s", account->elapsed_ms / 1000.0);
    put_lost(s, report, &account->total, options->class);
    ds_put_format(s, "\n  accounting %s, clock %s",
                  cost_enabled() ? "on" : "off", cost_clock_name());
    if (fabs(drift) >= 1000) {
        ds_put_format(s, " (runs %.1f%% %s)", fabs(drift) / 1e4,
                      drift > 0 ? "fast" : "slow");
    }
    if (interval > 1 && !account->kind->always_split) {
        ds_put_format(s, ", stages of 1 in %"PRIu32" %ss", interval,
                      account->kind->name);
    } else {
        ds_put_format(s, ", stages of every %s", account->kind->name);
    }
    ds_put_char(s, '\n');

    if (snapshot_is_empty(&account->total)) {
        return;
    }

    put_stages(s, report, &account->total, options);
    if (options->class == COST_ALL_CLASSES) {
        put_classes(s, &account->total);
    }
    put_groups(s, report, &account->total, options->class);

    if (total) {
        put_threads(s, account, options->class, total);
    }
    for (size_t i = 0; options->threads && i < account->n_threads; i++) {
        const struct cost_snapshot *thread = &account->threads[i];
        uint64_t n = cost_snapshot_count(thread, options->class);

        if (!n && !n_lost(report, thread, options->class)) {
            continue;
        }
        ds_put_format(s, "%s, thread %s: ", account->name, thread->thread);
        put_plural(s, n, account->kind->name);
        put_lost(s, report, thread, options->class);
        ds_put_char(s, '\n');
        put_stages(s, report, thread, options);
        if (options->class == COST_ALL_CLASSES) {
            put_classes(s, thread);
        }
        put_groups(s, report, thread, options->class);
    }
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

/* Returns the histogram of numbers as a JSON object with the fields of OTLP's
 * HistogramDataPoint: bucket I is for numbers up to and including bound I, the
 * last one for those above all bounds. */
static struct json *
number_buckets_to_json(const struct cost_hist_snapshot *hist)
{
    struct json *json = json_object_create();
    struct json *bounds = json_array_create_empty();
    struct json *counts = json_array_create_empty();

    for (size_t i = 0; i < COST_HIST_N_EDGES; i++) {
        if (hist->buckets[i]) {
            json_array_add(bounds, json_u64(cost_hist_edges[i]));
            json_array_add(counts, json_u64(hist->buckets[i]));
        }
    }
    json_array_add(counts, json_u64(hist->buckets[COST_HIST_N_EDGES]));
    json_object_put(json, "explicit_bounds", bounds);
    json_object_put(json, "bucket_counts", counts);
    return json;
}

/* Adds to 'json' the member 'name', with the unit of what 'stage' of 'kind'
 * is. */
static void
put_stage_json(const struct cost_kind *kind, size_t stage, const char *name,
               struct json *value, struct json *json)
{
    char *member = xasprintf("%s%s", name,
                             stage_is_number(kind, stage) ? "" : "_ns");

    json_object_put(json, member, value);
    free(member);
}

/* Returns 'hist', of what 'stage' of 'kind' is. */
static struct json *
hist_to_json(const struct cost_kind *kind, size_t stage,
             const struct cost_hist_snapshot *hist,
             const struct show_options *options)
{
    struct json *json = json_object_create();

    json_object_put(json, "count", json_u64(hist->count));
    put_stage_json(kind, stage, "sum", json_u64(hist->sum), json);
    if (hist->count) {
        put_stage_json(kind, stage, "min", json_u64(hist->min), json);
        put_stage_json(kind, stage, "max", json_u64(hist->max), json);
        put_stage_json(kind, stage, "mean",
                       json_real_create(cost_hist_snapshot_mean(hist)), json);
        put_stage_json(kind, stage, "stddev",
                       json_real_create(cost_hist_snapshot_stddev(hist)),
                       json);
        for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
            double percent = percentiles[i].percent;

            put_stage_json(
                kind, stage, percentiles[i].name,
                (stage_is_number(kind, stage)
                 ? json_u64(cost_hist_snapshot_percentile_number(hist,
                                                                 percent))
                 : json_real_create(cost_hist_snapshot_percentile(
                     hist, percent))), json);
        }
    }
    if (options->histograms) {
        json_object_put(json, "histogram",
                        (stage_is_number(kind, stage)
                         ? number_buckets_to_json(hist)
                         : hist_buckets_to_json(hist)));
    }
    return json;
}

/* Adds to 'json' the number of events in 'snap', for 'class' or all. */
static void
put_count_json(const struct cost_snapshot *snap, size_t class,
               struct json *json)
{
    char *events = xasprintf("%ss", snap->kind->name);

    json_object_put(json, events, json_u64(cost_snapshot_count(snap, class)));
    free(events);
}

/* Adds to 'json' what is in the headline of 'account', for 'class' or all. */
static void
put_account_header_json(const struct cost_account_snapshot *account,
                        size_t class, struct json *json)
{
    json_object_put_string(json, "name", account->name);
    json_object_put(json, "elapsed_ms",
                    json_integer_create(account->elapsed_ms));
    if (class != COST_ALL_CLASSES) {
        struct ds name = DS_EMPTY_INITIALIZER;

        account->kind->format_class(class, &name);
        json_object_put_string(json, "class", ds_cstr(&name));
        ds_destroy(&name);
    }
    put_count_json(&account->total, class, json);
}

/* Adds to 'json' the stages and counters of 'snap', for 'class' or all. */
static void
snapshot_to_json(const struct cost_report *report,
                 const struct cost_snapshot *snap, size_t class,
                 const struct show_options *options, struct json *json)
{
    const struct cost_kind *kind = snap->kind;
    struct json *stages = json_object_create();

    for (size_t i = 0; i < kind->n_stages; i++) {
        struct cost_hist_snapshot hist;

        cost_snapshot_stage(snap, class, i, &hist);
        json_object_put(stages, kind->stages[i],
                        hist_to_json(kind, i, &hist, options));
    }
    json_object_put(json, "stages", stages);
    if (report->derived_to_json) {
        report->derived_to_json(snap, class, json);
    }

    for (size_t i = 0; i < report->n_groups; i++) {
        const struct cost_counter_group *group = &report->groups[i];
        struct json *counters = json_object_create();

        for (size_t j = group->first; j < group->end; j++) {
            json_object_put(counters, kind->counters[j],
                            json_u64(cost_snapshot_counter(snap, class, j)));
        }
        json_object_put(json, group->name, counters);
    }
}

static struct json *
classes_to_json(const struct cost_report *report,
                const struct cost_snapshot *snap,
                const struct show_options *options)
{
    struct json *classes = json_object_create();

    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->classes[i]
            && (options->class == COST_ALL_CLASSES || options->class == i)) {
            struct json *json = json_object_create();
            struct ds name = DS_EMPTY_INITIALIZER;

            snap->kind->format_class(i, &name);
            put_count_json(snap, i, json);
            snapshot_to_json(report, snap, i, options, json);
            json_object_put(classes, ds_cstr(&name), json);
            ds_destroy(&name);
        }
    }
    return classes;
}

static struct json *
account_to_json(const struct cost_report *report,
                const struct cost_account_snapshot *account,
                const struct show_options *options)
{
    struct json *json = json_object_create();
    struct json *threads = json_array_create_empty();

    put_account_header_json(account, options->class, json);
    snapshot_to_json(report, &account->total, options->class, options, json);
    json_object_put(json, "classes",
                    classes_to_json(report, &account->total, options));
    for (size_t i = 0; i < account->n_threads; i++) {
        const struct cost_snapshot *snap = &account->threads[i];

        if (!snapshot_is_empty(snap)) {
            struct json *thread = json_object_create();

            json_object_put_string(thread, "name", snap->thread);
            put_count_json(snap, options->class, thread);
            snapshot_to_json(report, snap, options->class, options, thread);
            json_object_put(thread, "classes",
                            classes_to_json(report, snap, options));
            json_array_add(threads, thread);
        }
    }
    json_object_put(json, "threads", threads);
    return json;
}

/* Replies to 'conn' with 'accounts', an array of them, and what holds for all
 * of them. */
static void
reply_json(struct unixctl_conn *conn, const struct cost_report *report,
           struct json *accounts)
{
    struct json *json = json_object_create();
    char *objects = xasprintf("%ss", report->object);
    uint32_t interval;

    atomic_read_relaxed(&cost_config.split_interval, &interval);
    json_object_put(json, "accounting", json_boolean_create(cost_enabled()));
    json_object_put(json, "split_interval", json_integer_create(interval));
    json_object_put_string(json, "clock", cost_clock_name());
    json_object_put(json, "clock_drift_ppm",
                    json_real_create(cost_clock_drift_ppm()));
    if (report->state_to_json) {
        report->state_to_json(json);
    }
    json_object_put(json, objects, accounts);
    unixctl_command_reply_json(conn, json);
    free(objects);
}

/* Replies to 'conn' with 's', which has what there is to say of each account,
 * and frees it. */
static void
reply_text(struct unixctl_conn *conn, const struct cost_report *report,
           struct ds *s)
{
    if (!s->length) {
        ds_put_format(s, "no %s\n", report->object);
    }
    unixctl_command_reply(conn, ds_cstr(s));
    ds_destroy(s);
}

/* Commands. */

/* Replies to 'conn' that there is no account 'name', if there are not, and
 * lists those that exist.  Returns false if it did so. */
static bool
check_account(struct unixctl_conn *conn, const struct cost_report *report,
              const char *name, size_t n)
{
    struct cost_account_snapshot *all;
    struct ds s = DS_EMPTY_INITIALIZER;

    if (n || !name) {
        return true;
    }

    n = cost_accounts_read(report->kinds, report->n_kinds, NULL, &all);
    ds_put_format(&s, "no %s named \"%s\" (there %s %"PRIuSIZE"%s",
                  report->object, name, n == 1 ? "is" : "are", n,
                  n ? ":" : "");
    for (size_t i = 0; i < n; i++) {
        ds_put_format(&s, "%s %s", i ? "," : "", all[i].name);
    }
    ds_put_char(&s, ')');
    cost_accounts_free(all, n);
    unixctl_command_reply_error(conn, ds_cstr(&s));
    ds_destroy(&s);
    return false;
}

/* Parses the arguments of PREFIX/cost-show.  Returns NULL if successful,
 * otherwise an error message that the caller must free. */
static char *
parse_show_options(const struct cost_report *report, int argc,
                   const char *argv[], struct show_options *options)
{
    *options = (struct show_options) { .class = COST_ALL_CLASSES };

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-hist")) {
            options->histograms = true;
        } else if (!strcmp(argv[i], "-thread")) {
            options->threads = true;
        } else if (!strcmp(argv[i], "-class")) {
            if (options->class != COST_ALL_CLASSES) {
                return xstrdup("only one -class may be given");
            }
            if (++i >= argc) {
                return xasprintf("-class needs an argument (%s)",
                                 report->class_help);
            }
            if (!report->class_from_string(argv[i], &options->class)) {
                return xasprintf("no class \"%s\" (a class is %s)", argv[i],
                                 report->class_help);
            }
        } else if (argv[i][0] == '-') {
            return xasprintf("unknown option \"%s\" (options are -hist, "
                             "-thread and -class CLASS)", argv[i]);
        } else if (options->account) {
            return xasprintf("only one %s may be named, not \"%s\" and "
                             "\"%s\"", report->object, options->account,
                             argv[i]);
        } else {
            options->account = argv[i];
        }
    }
    return NULL;
}

static void
cost_show(struct unixctl_conn *conn, int argc, const char *argv[],
          void *report_)
{
    const struct cost_report *report = report_;
    struct cost_account_snapshot *accounts;
    struct show_options options;
    char *error;
    size_t n;

    error = parse_show_options(report, argc, argv, &options);
    if (error) {
        unixctl_command_reply_error(conn, error);
        free(error);
        return;
    }

    n = cost_accounts_read(report->kinds, report->n_kinds, options.account,
                           &accounts);
    if (!check_account(conn, report, options.account, n)) {
        return;
    }

    if (unixctl_command_get_output_format(conn) == UNIXCTL_OUTPUT_FMT_JSON) {
        struct json *array = json_array_create_empty();

        for (size_t i = 0; i < n; i++) {
            json_array_add(array,
                           account_to_json(report, &accounts[i], &options));
        }
        reply_json(conn, report, array);
    } else {
        struct ds s = DS_EMPTY_INITIALIZER;

        for (size_t i = 0; i < n; i++) {
            put_account(&s, report, &accounts[i], &options);
        }
        reply_text(conn, report, &s);
    }
    cost_accounts_free(accounts, n);
}

static void
cost_clear(struct unixctl_conn *conn, int argc, const char *argv[],
           void *report_)
{
    const struct cost_report *report = report_;
    const char *name = argc > 1 ? argv[1] : NULL;
    size_t n;

    n = cost_accounts_clear(report->kinds, report->n_kinds, name);
    if (check_account(conn, report, name, n)) {
        unixctl_command_reply(conn, NULL);
    }
}

static void
put_slow_event(struct ds *s, const struct cost_report *report,
               const struct cost_account_snapshot *account,
               const struct cost_slow_event *event)
{
    const struct cost_kind *kind = account->kind;
    char *when = xastrftime_msec("%Y-%m-%d %H:%M:%S.###Z",
                                 event->when_us / 1000, true);

    put_us(s, event->total_ns);
    ds_put_format(s, " us at %s, thread %s, class ", when, event->thread);
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
    struct json *json = json_object_create();
    struct ds class = DS_EMPTY_INITIALIZER;

    kind->format_class(event->class, &class);
    json_object_put(json, "total_ns", json_u64(event->total_ns));
    json_object_put(json, "time_us", json_integer_create(event->when_us));
    json_object_put_string(json, "thread", event->thread);
    json_object_put_string(json, "class", ds_cstr(&class));
    ds_destroy(&class);
    if (event->marked) {
        struct json *stages = json_object_create();
        struct json *numbers = json_object_create();

        for (size_t i = 0; i < kind->n_stages - 1; i++) {
            if (event->marked & (1u << i)) {
                json_object_put(stage_is_number(kind, i) ? numbers : stages,
                                kind->stages[i], json_u64(event->stages[i]));
            }
        }
        json_object_put(json, "stages_ns", stages);
        if (kind->values) {
            json_object_put(json, "numbers", numbers);
        } else {
            json_destroy(numbers);
        }
    }
    report->details_to_json(account->name, event->details, json);
    return json;
}

/* Appends the 'max' slowest events of 'account' to 's'. */
static void
put_slowest(struct ds *s, const struct cost_report *report,
            const struct cost_account_snapshot *account, size_t max)
{
    size_t n = MIN(max, account->total.n_slowest);

    ds_put_format(s, "%s: slowest %"PRIuSIZE" of ", account->name, n);
    put_plural(s, cost_snapshot_count(&account->total, COST_ALL_CLASSES),
               account->kind->name);
    ds_put_format(s, " in %.1f s\n", account->elapsed_ms / 1000.0);
    for (size_t i = 0; i < n; i++) {
        ds_put_format(s, "%3"PRIuSIZE". ", i + 1);
        put_slow_event(s, report, account, &account->total.slowest[i]);
    }
}

/* Returns the 'max' slowest events of 'account' as JSON. */
static struct json *
slowest_to_json(const struct cost_report *report,
                const struct cost_account_snapshot *account, size_t max)
{
    struct json *json = json_object_create();
    struct json *array = json_array_create_empty();
    size_t n = MIN(max, account->total.n_slowest);

    for (size_t i = 0; i < n; i++) {
        json_array_add(array, slow_event_to_json(report, account,
                                                 &account->total.slowest[i]));
    }
    put_account_header_json(account, COST_ALL_CLASSES, json);
    json_object_put(json, "slowest", array);
    return json;
}

static void
cost_slowest(struct unixctl_conn *conn, int argc, const char *argv[],
             void *report_)
{
    const struct cost_report *report = report_;
    struct cost_account_snapshot *accounts;
    const char *name = NULL;
    int max = 5;
    size_t n;

    for (int i = 1; i < argc; i++) {
        if (i == 1 && (argc > 2 || argv[i][0] == '-'
                       || isdigit((unsigned char) argv[i][0]))) {
            if (!str_to_int(argv[i], 10, &max)
                || max < 1 || max > COST_N_SLOWEST) {
                char *error = xasprintf("\"%s\" is not a number between 1 "
                                        "and %d", argv[i], COST_N_SLOWEST);

                unixctl_command_reply_error(conn, error);
                free(error);
                return;
            }
        } else {
            name = argv[i];
        }
    }

    n = cost_accounts_read(report->kinds, report->n_kinds, name, &accounts);
    if (!check_account(conn, report, name, n)) {
        return;
    }

    if (unixctl_command_get_output_format(conn) == UNIXCTL_OUTPUT_FMT_JSON) {
        struct json *array = json_array_create_empty();

        for (size_t i = 0; i < n; i++) {
            json_array_add(array, slowest_to_json(report, &accounts[i], max));
        }
        reply_json(conn, report, array);
    } else {
        struct ds s = DS_EMPTY_INITIALIZER;

        for (size_t i = 0; i < n; i++) {
            put_slowest(&s, report, &accounts[i], max);
        }
        reply_text(conn, report, &s);
    }
    cost_accounts_free(accounts, n);
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
    register_command(report, "cost-show",
                     "[-hist] [-thread] [-class CLASS] [DP]", INT_MAX,
                     cost_show);
    register_command(report, "cost-clear", "[DP]", 1, cost_clear);
    register_command(report, "cost-slowest", "[N] [DP]", 2, cost_slowest);
}
