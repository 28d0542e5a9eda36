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

#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
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

/* A command for the worker. */
struct request {
    const struct cost_report *report;   /* Or NULL for those in 'reports'. */
    const struct cost_report **reports; /* Of cost/show. */
    size_t n_reports;
    bool histograms;                    /* -hist */
    bool threads;                       /* -thread */
    bool brief;                         /* -brief */
    size_t class;                       /* -class */
    size_t n_accounts;                  /* -n, or SIZE_MAX for all. */
    size_t n_skip;                      /* -skip */
    size_t n_slowest;
    char *name;                         /* Of the account, NULL for all. */
};

/* When this process began to account. */
static long long int start_us;

/* All that have been registered.  Used by the main thread only. */
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
put_us_cell(struct ds *s, int width, double ns)
{
    struct ds cell = DS_EMPTY_INITIALIZER;

    put_us(&cell, ns);
    put_cell(s, width, &cell);
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
put_stage_cell(struct ds *s, int width, const struct cost_kind *kind,
               size_t stage, uint64_t value)
{
    if (stage_is_number(kind, stage)) {
        put_count_cell(s, width, value);
    } else {
        put_us_cell(s, width, value);
    }
}

/* Returns the width of a column whose highest value is 'max'. */
static int
stage_width(const struct cost_kind *kind, size_t stage, uint64_t max)
{
    struct ds cell = DS_EMPTY_INITIALIZER;
    int width;

    put_stage_cell(&cell, MIN_WIDTH, kind, stage, max);
    width = cell.length - 1;
    ds_destroy(&cell);
    return width;
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
    int width;

    if (!hist->count) {
        return;
    }
    first = cost_hist_snapshot_bucket(hist, hist->min);
    last = cost_hist_snapshot_bucket(hist, hist->max);
    for (step = 1; step < 8 && (last - first) / step >= MAX_LINES;) {
        step *= 2;
    }
    /* Bucket 0, for 0 ns, has a line of its own.  Lines of several buckets
     * start at an edge that does not depend on the data. */
    if (first) {
        first = ROUND_DOWN(first - 1, step) + 1;
    }
    width = stage_width(kind, stage, layout->edges[MIN(last + step,
                                                       layout->n_edges) - 1]);

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
                    put_stage_cell(s, width, kind, stage,
                                   layout->edges[end - 1]);
                } else {
                    ds_put_cstr(s, "    >");
                    put_stage_cell(s, width, kind, stage,
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
    int width = MIN_WIDTH;

    for (size_t stage = 0; stage < kind->n_stages; stage++) {
        if (stage_is_number(kind, stage) == numbers) {
            struct cost_hist_snapshot hist;

            cost_snapshot_stage(snap, request->class, stage, &hist);
            width = MAX(width, stage_width(kind, stage, hist.max));
        }
    }
    ds_put_format(s, "  %-10s %11s %*s", numbers ? "number" : "stage (us)",
                  "count", width, "mean");
    for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
        ds_put_format(s, " %*s", width, percentiles[i].name);
    }
    ds_put_format(s, " %*s\n", width, "max");

    for (size_t stage = 0; stage < kind->n_stages; stage++) {
        int name_width = MAX(10, strlen(kind->stages[stage]));
        struct cost_hist_snapshot hist;

        if (stage_is_number(kind, stage) != numbers) {
            continue;
        }
        cost_snapshot_stage(snap, request->class, stage, &hist);
        if (!hist.count && kind->optional & (1u << stage)) {
            continue;
        }
        ds_put_format(s, "  %-10s", kind->stages[stage]);
        put_count_cell(s, 21 - name_width, hist.count);
        put_us_cell(s, width, (cost_hist_snapshot_mean(&hist)
                               * (numbers ? 1000 : 1)));
        for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
            double percent = percentiles[i].percent;

            if (numbers) {
                put_count_cell(s, width, cost_hist_snapshot_percentile_number(
                                   &hist, percent));
            } else {
                put_us_cell(s, width,
                            cost_hist_snapshot_percentile(&hist, percent));
            }
        }
        put_stage_cell(s, width, kind, stage, hist.max);
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
put_account(struct ds *s, const struct cost_report *report,
            const struct request *request,
            const struct cost_account_snapshot *account)
{
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

    if (cost_snapshot_is_empty(&account->total)) {
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
put_deleted(struct ds *s, const struct cost_report *report,
            const struct request *request, const struct cost_sum *deleted)
{
    if (cost_snapshot_is_empty(&deleted->total)) {
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

/* What there can be thousands of in a reply is appended to its text.  A
 * 'struct json' takes one or two allocations for each number, and ten times
 * as long. */

/* Appends 'json' to 's', and destroys it. */
static void
put_json(struct ds *s, struct json *json)
{
    json_to_ds(json, JSSF_SORT, s);
    json_destroy(json);
}

/* The most digits of a uint64_t. */
enum { DECIMAL_LEN = 20 };

/* Stores 'n' at 'p', which has room for DECIMAL_LEN digits, and returns the
 * end of it. */
static char *
store_decimal(char *p, uint64_t n)
{
    char *end = p + 1;

    if (n < 10) {
        /* Most counts of buckets. */
        *p = '0' + n;
        return end;
    }
    for (uint64_t rest = n; rest >= 10; rest /= 10) {
        end++;
    }
    for (p = end; n; n /= 10) {
        *--p = '0' + n % 10;
    }
    return end;
}

static void
put_decimal(struct ds *s, uint64_t n)
{
    ds_reserve(s, s->length + DECIMAL_LEN);
    s->length = store_decimal(&s->string[s->length], n) - s->string;
}

/* Appends an integer.  In JSON, it has 63 bits. */
static void
put_json_u64(struct ds *s, uint64_t n)
{
    put_decimal(s, MIN(n, LLONG_MAX));
}

/* Appends an array of 'n' integers. */
static void
put_json_array(struct ds *s, const uint64_t *array, size_t n)
{
    char *p;

    ds_reserve(s, s->length + 2 + n * (1 + DECIMAL_LEN));
    p = &s->string[s->length];
    *p++ = '[';
    for (size_t i = 0; i < n; i++) {
        if (i) {
            *p++ = ',';
        }
        p = store_decimal(p, MIN(array[i], LLONG_MAX));
    }
    *p++ = ']';
    s->length = p - s->string;
}

/* Appends a number that is not negative, with up to six decimals unless it is
 * very large. */
static void
put_json_real(struct ds *s, double value)
{
    enum { SCALE = 1000000 };

    if (value < 1e9) {
        uint64_t scaled = llround(value * SCALE);
        uint64_t fraction = scaled % SCALE;

        put_decimal(s, scaled / SCALE);
        if (fraction) {
            ds_put_char(s, '.');
            for (uint64_t unit = SCALE / 10; fraction; unit /= 10) {
                ds_put_char(s, '0' + fraction / unit);
                fraction %= unit;
            }
        }
    } else {
        ds_put_format(s, "%.15g", value);
    }
}

/* Appends 'n' as a string of decimal digits. */
static void
put_json_u128(struct ds *s, ovs_u128 n)
{
    enum { BASE = 1000000000, N_DIGITS = 9 };
    uint32_t limbs[] = { n.u64.hi >> 32, n.u64.hi, n.u64.lo >> 32, n.u64.lo };
    char digits[5 * N_DIGITS];
    char *p = &digits[sizeof digits];

    do {
        uint64_t rest = 0;

        for (size_t i = 0; i < ARRAY_SIZE(limbs); i++) {
            rest = rest << 32 | limbs[i];
            limbs[i] = rest / BASE;
            rest %= BASE;
        }
        for (size_t i = 0; i < N_DIGITS; i++) {
            *--p = '0' + rest % 10;
            rest /= 10;
        }
    } while (limbs[0] || limbs[1] || limbs[2] || limbs[3]);
    while (p < &digits[sizeof digits - 1] && *p == '0') {
        p++;
    }

    ds_put_char(s, '"');
    ds_put_buffer(s, p, &digits[sizeof digits] - p);
    ds_put_char(s, '"');
}

/* Separates what comes next from what there is of an object or array, at whose
 * end 's' is. */
static void
put_comma(struct ds *s)
{
    int last = ds_last(s);

    if (last != '{' && last != '[') {
        ds_put_char(s, ',');
    }
}

/* Appends the name of a member, which needs no quoting, whose value is to be
 * appended next, to the object at whose end 's' is. */
static void
put_name(struct ds *s, const char *name)
{
    size_t n = strlen(name);
    char *p;

    put_comma(s);
    p = ds_put_uninit(s, n + 3);
    p[0] = '"';
    memcpy(p + 1, name, n);
    p[n + 1] = '"';
    p[n + 2] = ':';
}

/* Appends the member 'name', which is 'n'. */
static void
put_member(struct ds *s, const char *name, uint64_t n)
{
    put_name(s, name);
    put_json_u64(s, n);
}

/* Appends the member 'name', which is 'string'. */
static void
put_string_member(struct ds *s, const char *name, const char *string)
{
    put_name(s, name);
    json_string_escape(string, s);
}

/* Appends the member 'name', which is 'n', unless that is 0, its default, and
 * 'request' is for a brief reply, which has no defaults. */
static void
put_brief_member(struct ds *s, const struct request *request,
                 const char *name, uint64_t n)
{
    if (n || !request->brief) {
        put_member(s, name, n);
    }
}

/* Appends the histogram as a JSON object with the fields of OTLP's
 * ExponentialHistogramDataPoint, in its form for positive values, in seconds,
 * except that what is above the highest edge is in "overflow". */
static void
put_json_buckets(struct ds *s, const struct request *request,
                 const struct cost_hist_snapshot *hist)
{
    size_t first = 1, end = 1;
    int offset = 0;

    if (hist->count) {
        first = MAX(cost_hist_snapshot_bucket(hist, hist->min), 1);
        end = MIN(cost_hist_snapshot_bucket(hist, hist->max) + 1,
                  COST_HIST_N_EDGES);
        while (first < end && !hist->buckets[first]) {
            first++;
        }
        while (end > first && !hist->buckets[end - 1]) {
            end--;
        }
    }
    if (first < end) {
        offset = COST_HIST_OTLP_OFFSET + (int) first - 1;
    }

    ds_put_char(s, '{');
    if (!request->brief) {
        /* The threshold is the lowest edge, 2**-30 s, rounded down to as many
         * digits as a number in JSON has. */
        BUILD_ASSERT_DECL(COST_HIST_SCALE == 3 && COST_HIST_MIN_EXP == -30);
        ds_put_cstr(s, "\"scale\":3,\"unit\":\"s\","
                    "\"zero_threshold\":9.31322574615478e-10");
    }
    put_brief_member(s, request, "zero_count", hist->buckets[0]);
    if (offset || !request->brief) {
        put_name(s, "offset");
        if (offset < 0) {
            ds_put_char(s, '-');
        }
        put_decimal(s, abs(offset));
    }
    if (first < end || !request->brief) {
        put_name(s, "bucket_counts");
        put_json_array(s, &hist->buckets[first], end - first);
    }
    put_brief_member(s, request, "overflow",
                     hist->buckets[COST_HIST_N_EDGES]);
    ds_put_char(s, '}');
}

/* Appends the histogram of numbers as a JSON object: bucket I is for numbers
 * up to and including bound I, the last one for those above all bounds.  The
 * bounds are the layout's, from the lowest to that of the highest number. */
static void
put_json_bounds(struct ds *s, const struct cost_hist_snapshot *hist)
{
    const struct cost_hist_layout *layout = hist->layout;
    size_t end = layout->linear ? layout->n_edges : 1;
    uint64_t bounds[COST_HIST_N_BUCKETS], counts[COST_HIST_N_BUCKETS];
    size_t n = 0;

    if (hist->count && !layout->linear) {
        end = MIN(cost_hist_snapshot_bucket(hist, hist->max) + 1,
                  layout->n_edges);
    }
    for (size_t i = 0; i < end; i++) {
        /* Several buckets below 12 are too narrow for any whole number. */
        if (!i || layout->edges[i] != layout->edges[i - 1]) {
            bounds[n] = layout->edges[i];
            counts[n++] = hist->buckets[i];
        }
    }
    counts[n] = hist->buckets[layout->n_edges];
    ds_put_cstr(s, "{\"bounds\":");
    put_json_array(s, bounds, n);
    ds_put_cstr(s, ",\"counts\":");
    put_json_array(s, counts, n + 1);
    ds_put_char(s, '}');
}

/* Appends members that follow from the buckets of 'hist', whose sums are
 * exact: mean, standard deviation and percentiles. */
static void
put_json_statistics(struct ds *s, const struct cost_hist_snapshot *hist,
                    bool number)
{
    put_name(s, "mean");
    put_json_real(s, cost_hist_snapshot_mean(hist));
    put_name(s, "stddev");
    put_json_real(s, cost_hist_snapshot_stddev(hist));
    for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
        double percent = percentiles[i].percent;

        put_name(s, percentiles[i].name);
        if (number) {
            put_json_u64(s, cost_hist_snapshot_percentile_number(hist,
                                                                 percent));
        } else {
            put_json_real(s, cost_hist_snapshot_percentile(hist, percent));
        }
    }
}

/* Appends 'hist', of what 'stage' of 'kind' is. */
static void
put_json_stage(struct ds *s, const struct request *request,
               const struct cost_kind *kind, size_t stage,
               const struct cost_hist_snapshot *hist)
{
    bool number = stage_is_number(kind, stage);
    bool sampled = stage_is_sampled(kind, stage);

    ds_put_char(s, '{');
    if (number || !request->brief) {
        put_string_member(s, "unit", (!number ? "ns"
                                      : kind->units && kind->units[stage]
                                      ? kind->units[stage]
                                      : kind->stages[stage]));
    }
    if (sampled || !request->brief) {
        put_name(s, "sampled");
        ds_put_cstr(s, sampled ? "true" : "false");
    }
    put_brief_member(s, request, "count", hist->count);
    put_brief_member(s, request, "sum", hist->sum);
    if (hist->sum || !request->brief) {
        put_name(s, "sum_sq");
        put_json_u128(s, hist->sum_sq);
    }
    if (hist->count) {
        put_member(s, "min", hist->min);
        put_member(s, "max", hist->max);
        if (!request->brief || !request->histograms) {
            put_json_statistics(s, hist, number);
        }
    }
    if (request->histograms) {
        put_name(s, "histogram");
        if (number) {
            put_json_bounds(s, hist);
        } else {
            put_json_buckets(s, request, hist);
        }
    }
    ds_put_char(s, '}');
}

/* Appends members, of which there are none before them, with what there is in
 * 'snap', for 'class' or all. */
static void
put_json_snapshot(struct ds *s, const struct cost_report *report,
                  const struct request *request,
                  const struct cost_snapshot *snap, size_t class)
{
    const struct cost_kind *kind = snap->kind;

    ds_put_cstr(s, "\"events\":");
    put_json_u64(s, cost_snapshot_count(snap, class));
    put_name(s, "stages");
    ds_put_char(s, '{');
    for (size_t i = 0; i < kind->n_stages; i++) {
        struct cost_hist_snapshot hist;

        cost_snapshot_stage(snap, class, i, &hist);
        if (hist.count || !(kind->optional & (1u << i))) {
            put_name(s, kind->stages[i]);
            put_json_stage(s, request, kind, i, &hist);
        }
    }
    ds_put_char(s, '}');

    put_name(s, "counters");
    ds_put_char(s, '{');
    for (size_t i = 0; i < report->n_groups; i++) {
        const struct cost_counter_group *group = &report->groups[i];

        put_name(s, group->name);
        ds_put_char(s, '{');
        for (size_t j = group->first; j < group->end; j++) {
            put_member(s, kind->counters[j],
                       cost_snapshot_counter(snap, class, j));
        }
        ds_put_char(s, '}');
    }
    ds_put_char(s, '}');

    if (report->derived_to_json) {
        struct json *derived = json_object_create();

        report->derived_to_json(snap, class, derived);
        put_name(s, "derived");
        put_json(s, derived);
    }
}

/* A part of a text that may be wanted again: there is often a single class, a
 * single thread or a single account, with the same numbers as all together. */
struct part {
    size_t start;
    size_t n;
};

/* Appends the members that are 'part' of 's' to it once more, unless that is
 * not wanted. */
static void
put_part(struct ds *s, const struct request *request, const struct part *part)
{
    if (!request->brief) {
        char *p;

        ds_put_char(s, ',');
        p = ds_put_uninit(s, part->n);
        memcpy(p, &s->string[part->start], part->n);
    }
}

/* Returns the part of 's' from 'start' on. */
static struct part
get_part(const struct ds *s, size_t start)
{
    return (struct part) { start, s->length - start };
}

/* Returns the number of classes that 'snap' has anything of. */
static size_t
count_classes(const struct cost_snapshot *snap)
{
    size_t n = 0;

    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        n += snap->classes[i] != NULL;
    }
    return n;
}

/* Appends members with what there is in 'snap', and with its classes, and
 * returns that part.  The part of it that put_json_snapshot() has made of
 * 'snap' is stored in '*allp'. */
static struct part
put_json_total(struct ds *s, const struct cost_report *report,
               const struct request *request,
               const struct cost_snapshot *snap, struct part *allp)
{
    bool one_class = (request->class != COST_ALL_CLASSES
                      || count_classes(snap) == 1);
    struct part all;

    /* Nothing may depend on what comes before it. */
    put_comma(s);
    all.start = s->length;
    put_json_snapshot(s, report, request, snap, request->class);
    all = get_part(s, all.start);

    put_name(s, "classes");
    ds_put_char(s, '[');
    for (size_t i = 0; i < snap->kind->n_classes; i++) {
        if (snap->classes[i]
            && (request->class == COST_ALL_CLASSES || request->class == i)) {
            struct ds name = DS_EMPTY_INITIALIZER;

            snap->kind->format_class(i, &name);
            put_comma(s);
            ds_put_char(s, '{');
            put_string_member(s, "name", ds_cstr(&name));
            if (one_class) {
                put_part(s, request, &all);
            } else {
                ds_put_char(s, ',');
                put_json_snapshot(s, report, request, snap, i);
            }
            ds_put_char(s, '}');
            ds_destroy(&name);
        }
    }
    ds_put_char(s, ']');
    *allp = all;
    return get_part(s, all.start);
}

/* Appends members with what identifies 'account'. */
static void
put_json_account_header(struct ds *s,
                        const struct cost_account_snapshot *account)
{
    put_string_member(s, "name", account->name);
    put_string_member(s, "kind", account->kind->name);
    if (account->datapath) {
        put_string_member(s, "datapath", account->datapath);
    }
    put_member(s, "since_us", account->since_us);
}

/* Appends 'account'.  Returns the part that put_json_total() has made of its
 * total. */
static struct part
put_json_account(struct ds *s, const struct cost_report *report,
                 const struct request *request,
                 const struct cost_account_snapshot *account)
{
    struct part total, all;

    ds_put_char(s, '{');
    put_json_account_header(s, account);
    total = put_json_total(s, report, request, &account->total, &all);
    if (request->threads) {
        put_name(s, "threads");
        ds_put_char(s, '[');
        for (size_t i = 0; i < account->n_threads; i++) {
            const struct cost_snapshot *snap = &account->threads[i];

            if (!cost_snapshot_is_empty(snap)) {
                put_comma(s);
                ds_put_char(s, '{');
                put_string_member(s, "name", snap->thread);
                if (account->shared) {
                    put_part(s, request, &all);
                } else {
                    ds_put_char(s, ',');
                    put_json_snapshot(s, report, request, snap,
                                      request->class);
                }
                ds_put_char(s, '}');
            }
        }
        ds_put_char(s, ']');
    }
    ds_put_char(s, '}');
    return total;
}

/* An account that is the only one of its kind, so that their sum is its
 * total. */
struct only {
    struct part total;
    size_t idx;                         /* Of those in the reply. */
};

/* Appends 'sum', of accounts.  'only', unless it is NULL or empty, is the only
 * one. */
static void
put_json_sum(struct ds *s, const struct cost_report *report,
             const struct request *request, const struct cost_sum *sum,
             const struct only *only)
{
    struct part all;

    put_comma(s);
    ds_put_char(s, '{');
    put_string_member(s, "kind", sum->kind->name);
    put_member(s, "accounts", sum->n_accounts);
    put_member(s, "since_us", sum->since_us);
    if (only && only->total.n) {
        if (request->brief) {
            put_member(s, "same_as", only->idx);
        }
        put_part(s, request, &only->total);
    } else {
        put_json_total(s, report, request, &sum->total, &all);
    }
    ds_put_char(s, '}');
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

static void
put_json_slow_event(struct ds *s, const struct cost_report *report,
                    const struct cost_account_snapshot *account,
                    const struct cost_slow_event *event)
{
    const struct cost_kind *kind = account->kind;
    struct json *details = json_object_create();
    struct ds class = DS_EMPTY_INITIALIZER;

    kind->format_class(event->class, &class);
    ds_put_char(s, '{');
    put_member(s, "total_ns", event->total_ns);
    put_member(s, "excluded_ns", event->excluded_ns);
    put_member(s, "time_us", event->when_us);
    put_string_member(s, "thread", event->thread);
    put_string_member(s, "class", ds_cstr(&class));
    ds_destroy(&class);

    for (int numbers = 0; numbers < 2; numbers++) {
        put_name(s, numbers ? "numbers" : "stages_ns");
        ds_put_char(s, '{');
        for (size_t i = 0; i < kind->n_stages - 1; i++) {
            if (event->marked & (1u << i)
                && stage_is_number(kind, i) == numbers) {
                put_member(s, kind->stages[i], event->stages[i]);
            }
        }
        ds_put_char(s, '}');
    }
    report->details_to_json(account->name, event->details, details);
    put_name(s, "details");
    put_json(s, details);
    ds_put_char(s, '}');
}

/* Appends the slowest events of 'account' to 's'. */
static void
put_slowest(struct ds *s, const struct cost_report *report,
            const struct request *request,
            const struct cost_account_snapshot *account)
{
    size_t n = MIN(request->n_slowest, account->total.n_slowest);

    ds_put_format(s, "%s: slowest %"PRIuSIZE" of ", account->name, n);
    put_plural(s, cost_snapshot_count(&account->total, COST_ALL_CLASSES),
               account->kind->name);
    ds_put_format(s, " in %.1f s\n", account->elapsed_ms / 1000.0);
    for (size_t i = 0; i < n; i++) {
        ds_put_format(s, "%3"PRIuSIZE". ", i + 1);
        put_slow_event(s, report, account,
                       &account->total.slowest[i]);
    }
}

/* Appends the slowest events of 'account' in JSON. */
static void
put_json_slowest(struct ds *s, const struct cost_report *report,
                 const struct request *request,
                 const struct cost_account_snapshot *account)
{
    size_t n = MIN(request->n_slowest, account->total.n_slowest);

    ds_put_char(s, '{');
    put_json_account_header(s, account);
    put_member(s, "events",
               cost_snapshot_count(&account->total, COST_ALL_CLASSES));
    put_name(s, "slowest");
    ds_put_char(s, '[');
    for (size_t i = 0; i < n; i++) {
        put_comma(s);
        put_json_slow_event(s, report, account,
                            &account->total.slowest[i]);
    }
    ds_put_cstr(s, "]}");
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

/* Appends the 'n' 'sums' to 's', as the member 'name' of an object, except
 * those of no account if 'skip_empty'.  'only' is for each of them, or NULL,
 * see put_json_sum(). */
static void
put_sums(struct ds *s, const struct cost_report *report,
         const struct request *request, const char *name,
         const struct cost_sum *sums, const struct only *only, size_t n,
         bool skip_empty)
{
    put_name(s, name);
    ds_put_char(s, '[');
    for (size_t i = 0; i < n; i++) {
        if (sums[i].n_accounts || !skip_empty) {
            put_json_sum(s, report, request, &sums[i],
                         only ? &only[i] : NULL);
        }
    }
    ds_put_char(s, ']');
}

/* Returns which of the 'n' 'sums' is for 'kind'. */
static size_t
find_sum(const struct cost_sum *sums, size_t n, const struct cost_kind *kind)
{
    for (size_t i = 0; i < n; i++) {
        if (sums[i].kind == kind) {
            return i;
        }
    }
    OVS_NOT_REACHED();
}

/* Adds 'account' to 'sum', unless it is the only one and 'in_reply', so that
 * its total need not be added up again.  Returns true in that case. */
static bool
add_to_sum(struct cost_sum *sum, const struct cost_account_snapshot *account,
           bool in_reply)
{
    if (account->cleared) {
        sum->since_us = MAX(sum->since_us, account->since_us);
    }
    if (in_reply && sum->n_accounts == 1) {
        return true;
    }
    cost_snapshot_merge(&sum->total, &account->total);
    return false;
}

/* Appends to 's' what comes before the accounts in JSON. */
static void
put_json_start(struct ds *s, const struct cost_report *report,
               const struct request *request, const char *command)
{
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
    put_name(s, "accounts");
    ds_put_char(s, '[');
}

/* Appends to 's' those of the 'n' accounts in 'sorted' that a longer reply
 * would have, in JSON as an array. */
static void
put_left_out(struct ds *s, const struct sorted_account *sorted, size_t n,
             bool json)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = cost_account_name(sorted[i].account);

        ds_put_cstr(s, !i ? "" : json ? "," : ", ");
        if (json) {
            json_string_escape(name, s);
        } else {
            ds_put_cstr(s, name);
        }
    }
}

/* Appends to 'reply' what 'report' has for 'request': PREFIX/cost-slowest if
 * 'slowest', otherwise PREFIX/cost-show. */
static void
put_report(struct unixctl_worker_reply *reply,
           const struct cost_report *report, const struct request *request,
           bool slowest)
{
    size_t max_length = reply->json ? MAX_JSON : MAX_TEXT;
    struct sorted_account *sorted;
    struct ds *s = &reply->body;
    struct cost_accounts all;
    size_t start, end, wanted_end;      /* Of accounts in the reply. */
    struct only *only;
    size_t n_totals;

    cost_accounts_get(report->kinds, report->n_kinds, request->name, &all);
    if (!all.n && request->name) {
        reply->error = no_such_account(report, request->name);
        cost_accounts_put(&all);
        return;
    }

    n_totals = reply->json && !slowest ? all.n_kinds : 0;
    only = xcalloc(n_totals, sizeof *only);
    for (size_t i = 0; i < n_totals; i++) {
        all.totals[i].n_accounts = all.deleted[i].n_accounts;
        cost_snapshot_merge(&all.totals[i].total, &all.deleted[i].total);
    }
    for (size_t i = 0; n_totals && i < all.n; i++) {
        const struct cost_kind *kind = cost_account_kind(all.accounts[i]);

        all.totals[find_sum(all.totals, n_totals, kind)].n_accounts++;
    }

    sorted = sort_accounts(&all);
    start = MIN(all.n, request->n_skip);
    end = wanted_end = start + MIN(all.n - start, request->n_accounts);
    if (reply->json) {
        put_json_start(s, report, request,
                       slowest ? "cost-slowest" : "cost-show");
    }
    for (size_t i = n_totals ? 0 : start; i < (n_totals ? all.n : end); i++) {
        struct cost_account_snapshot account;
        struct part total = { 0, 0 };
        size_t length = s->length;

        cost_account_read(sorted[i].account, slowest, &account);
        if (i >= start && i < end && reply->json) {
            if (i > start) {
                ds_put_char(s, ',');
            }
            if (slowest) {
                put_json_slowest(s, report, request, &account);
            } else {
                total = put_json_account(s, report, request, &account);
            }
        } else if (i >= start && i < end) {
            if (slowest) {
                put_slowest(s, report, request, &account);
            } else {
                put_account(s, report, request, &account);
            }
        }
        /* There is one account at least, so that a client gets ahead. */
        if (i > start && i < end && s->length > max_length) {
            ds_truncate(s, length);
            total.n = 0;
            end = i;
        }
        if (n_totals) {
            size_t kind = find_sum(all.totals, n_totals, account.kind);

            if (add_to_sum(&all.totals[kind], &account, total.n)) {
                only[kind] = (struct only) { total, i - start };
            }
        }
        cost_account_snapshot_uninit(&account);
        ovsrcu_quiesce();
    }

    if (reply->json) {
        ds_put_char(s, ']');
        put_member(s, "omitted", all.n - (end - start));
        if (end < wanted_end) {
            put_name(s, "left_out");
            ds_put_char(s, '[');
            put_left_out(s, &sorted[end], wanted_end - end, true);
            ds_put_char(s, ']');
        }
        if (n_totals) {
            put_sums(s, report, request, "deleted", all.deleted, NULL,
                     n_totals, true);
            put_sums(s, report, request, "total", all.totals, only, n_totals,
                     false);
        }
        ds_put_char(s, '}');
    } else {
        size_t length;

        if (end < wanted_end) {
            ds_put_cstr(s, "no room for ");
            put_plural(s, wanted_end - end, report->object);
            ds_put_format(s, " (use -skip %"PRIuSIZE" to see them): ", end);
            put_left_out(s, &sorted[end], wanted_end - end, false);
            ds_put_char(s, '\n');
        }
        if (wanted_end < all.n) {
            ds_put_cstr(s, "and ");
            put_count(s, all.n - wanted_end);
            ds_put_format(s, " more %s%s (use -n or -skip to see more of "
                          "them)\n", report->object,
                          all.n - wanted_end == 1 ? "" : "s");
        }
        length = s->length;
        for (size_t i = 0; !slowest && i < all.n_kinds; i++) {
            put_deleted(s, report, request, &all.deleted[i]);
        }
        if (start == all.n && s->length == length) {
            ds_put_format(s, "no %s%s\n", all.n ? "more " : "",
                          report->object);
        }
    }

    free(only);
    free(sorted);
    cost_accounts_put(&all);
}

static void
do_show(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;

    put_report(reply, request->report, request, false);
    request_destroy(request);
}

static void
do_slowest(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;

    put_report(reply, request->report, request, true);
    request_destroy(request);
}

static void
do_show_all(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;
    struct ds *s = &reply->body;

    if (reply->json) {
        ds_put_cstr(s, "{\"version\":1,\"replies\":[");
    }
    for (size_t i = 0; i < request->n_reports; i++) {
        const struct cost_report *report = request->reports[i];

        if (reply->json && i) {
            ds_put_char(s, ',');
        }
        put_report(reply, report, request, false);
        if (reply->json && report->more_to_json) {
            ds_put_char(s, ',');
            put_json(s, report->more_to_json());
        } else if (!reply->json && report->format_more) {
            report->format_more(s);
        }
    }
    if (reply->json) {
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
 * may be any option of PREFIX/cost-show, or of cost/show if 'request' is for
 * no report alone.  Returns NULL if successful, otherwise an error message
 * that the caller must free. */
static char *
parse_option(struct request *request, bool show, const char *option,
             const char *arg, bool *uses_arg)
{
    const struct cost_report *report = request->report;
    bool class = show && report;

    *uses_arg = true;
    if (show && !strcmp(option, "-hist")) {
        request->histograms = true;
        *uses_arg = false;
    } else if (show && !strcmp(option, "-thread")) {
        request->threads = true;
        *uses_arg = false;
    } else if (show && !strcmp(option, "-brief")) {
        request->brief = true;
        *uses_arg = false;
    } else if (class && !strcmp(option, "-class")) {
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
    } else if (!strcmp(option, "-skip")) {
        unsigned int value;

        if (!arg || !str_to_uint(arg, 10, &value)) {
            return xstrdup("-skip needs a number as its argument");
        }
        request->n_skip = value;
    } else {
        return xasprintf("unknown option \"%s\" (options are %s%s-n N and "
                         "-skip N)", option,
                         show ? "-hist, -thread, -brief, " : "",
                         class ? "-class CLASS, " : "");
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

/* Parses the arguments of cost/show.  Returns NULL if successful, otherwise an
 * error message that the caller must free. */
static char *
parse_request_for_all(struct request *request, int argc, const char *argv[])
{
    char *error = NULL;

    request->reports = xmalloc((argc + n_reports) * sizeof *reports);
    for (int i = 1; i < argc && !error; i++) {
        if (argv[i][0] == '-') {
            const char *arg = i + 1 < argc ? argv[i + 1] : NULL;
            bool uses_arg;

            error = parse_option(request, true, argv[i], arg, &uses_arg);
            i += uses_arg;
        } else {
            error = parse_report(request, argv[i]);
        }
    }
    if (!request->n_reports) {
        memcpy(request->reports, reports, n_reports * sizeof *reports);
        request->n_reports = n_reports;
    }
    return error;
}

/* Creates and returns a new request for 'report', or NULL, of everything. */
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
    if (!error && request->brief
        && (unixctl_command_get_output_format(conn)
            != UNIXCTL_OUTPUT_FMT_JSON)) {
        error = xstrdup("-brief is for JSON only, see --format in "
                        "ovs-appctl(8)");
    }
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
cost_show_all(struct unixctl_conn *conn, int argc, const char *argv[],
              void *aux OVS_UNUSED)
{
    struct request *request = request_create(NULL);

    submit(conn, request, parse_request_for_all(request, argc, argv),
           do_show_all);
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

/* Makes the settings apply to 'report', and registers its commands, whose
 * arguments are documented in lib/cost-unixctl.man. */
void
cost_report_register(const struct cost_report *report)
{
    if (!start_us) {
        start_us = time_wall_usec();
        unixctl_command_register("cost/show",
                                 "[-hist] [-thread] [-brief] [-n N] "
                                 "[-skip N] [REPORT...]", 0, INT_MAX,
                                 cost_show_all, NULL);
    }
    for (size_t i = 0; i < n_reports; i++) {
        if (reports[i] == report) {
            return;
        }
    }
    reports = xrealloc(reports, (n_reports + 1) * sizeof *reports);
    reports[n_reports++] = report;
    for (size_t i = 0; i < report->n_kinds; i++) {
        cost_config_register(report->kinds[i]->config);
    }
    register_command(report, "cost-show",
                     "[-hist] [-thread] [-brief] [-class CLASS] [-n N] "
                     "[-skip N] [--] [NAME]", INT_MAX, cost_show);
    register_command(report, "cost-clear", "[--] [NAME]", 2, cost_clear);
    register_command(report, "cost-slowest",
                     "[-n N] [-skip N] [COUNT] [--] [NAME]", INT_MAX,
                     cost_slowest);
}
