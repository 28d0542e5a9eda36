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

#include "cost-render.h"

#include <math.h>

#include "cost-clock.h"
#include "hash.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "timeval.h"
#include "util.h"

static const struct {
    const char *name;
    double percent;
} percentiles[] = {
    { "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "p99.9", 99.9 },
};

/* Formatting. */

/* The width of a column of times or numbers, unless one of them is longer. */
#define MIN_WIDTH 8

/* Of a maximum that is not shorter, the time of day is shown. */
#define MIN_DATED_NS 1000000

/* Appends 'n' to 's', with a comma after every three digits. */
void
cost_put_count(struct ds *s, uint64_t n)
{
    if (n >= 1000) {
        cost_put_count(s, n / 1000);
        ds_put_format(s, ",%03"PRIu64, n % 1000);
    } else {
        ds_put_format(s, "%"PRIu64, n);
    }
}

/* Appends 'value' to 's', with commas and as many decimals as fit in MIN_WIDTH
 * characters. */
static void
put_decimal(struct ds *s, double value)
{
    uint64_t scale = value < 9999.995 ? 100 : value < 99999.95 ? 10 : 1;
    uint64_t scaled = llround(value * scale);

    cost_put_count(s, scaled / scale);
    if (scale > 1) {
        ds_put_format(s, scale == 100 ? ".%02"PRIu64 : ".%"PRIu64,
                      scaled % scale);
    }
}

/* Appends 'ns' nanoseconds to 's': in microseconds, followed by 'unit', or, a
 * second and more, in seconds. */
static void
put_time(struct ds *s, double ns, const char *unit)
{
    if (ns < 999.9995e6) {
        put_decimal(s, ns / 1000);
        ds_put_cstr(s, unit);
    } else {
        put_decimal(s, ns / 1e9);
        ds_put_cstr(s, " s");
    }
}

/* Appends 'value' to 's', and adds it to 'object' as 'name'. */
void
cost_put_derived(struct ds *s, struct json *object, const char *name,
                 double value)
{
    put_decimal(s, value);
    json_object_put(object, name, json_real_create(value));
}

/* What is in a column. */
enum form { TIME, NUMBER, DECIMAL };

/* Appends to 's' a column 'width' wide with 'value', a time in ns or a
 * number. */
static void
put_cell(struct ds *s, int width, enum form form, double value)
{
    struct ds cell = DS_EMPTY_INITIALIZER;

    if (form == TIME) {
        put_time(&cell, value, "");
    } else if (form == NUMBER) {
        cost_put_count(&cell, value);
    } else {
        put_decimal(&cell, value);
    }
    ds_put_format(s, " %*s", width, ds_cstr(&cell));
    ds_destroy(&cell);
}

/* Appends "NAME N (SHARE%)" to 's'. */
static void
put_share(struct ds *s, const char *name, uint64_t n, uint64_t total)
{
    ds_put_format(s, "  %s ", name);
    cost_put_count(s, n);
    ds_put_format(s, " (%.1f%%)", total ? 100.0 * n / total : 0);
}

void
cost_put_plural(struct ds *s, uint64_t n, const char *noun)
{
    cost_put_count(s, n);
    ds_put_format(s, " %s%s", noun, n == 1 ? "" : "s");
}

/* Returns the width of a column whose highest value is 'max'. */
static int
cell_width(enum form form, uint64_t max)
{
    struct ds cell = DS_EMPTY_INITIALIZER;
    int width;

    put_cell(&cell, MIN_WIDTH, form, max);
    width = cell.length - 1;
    ds_destroy(&cell);
    return width;
}

/* Returns the name of 'class' of 'kind', which the caller must free. */
char *
cost_class_name(const struct cost_kind *kind, size_t class)
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
    size_t n_edges = COST_HIST_N_EDGES;
    enum form form = cost_stage_is_number(kind, stage) ? NUMBER : TIME;
    size_t first, last, step;
    uint64_t max = 0;
    int width;

    if (!cost_hist_count(hist)) {
        return;
    }
    first = cost_hist_bucket(cost_hist_min(hist));
    last = cost_hist_bucket(cost_hist_max(hist));
    for (step = 1; step < 8 && (last - first) / step >= MAX_LINES;) {
        step *= 2;
    }
    /* Bucket 0, for 0 ns, has a line of its own.  Lines of several buckets
     * start at an edge that does not depend on the data. */
    if (first) {
        first = ROUND_DOWN(first - 1, step) + 1;
    }
    width = cell_width(form, cost_hist_edges[MIN(last + step, n_edges) - 1]);

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            double unit = max > MAX_BAR ? (double) max / MAX_BAR : 1;

            ds_put_format(s, "  %s%s, each # is %.*f %s%s\n",
                          kind->stages[stage].name,
                          form == TIME ? " (us)" : "",
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
                put_cell(s, width, form,
                         cost_hist_edges[MIN(end, n_edges) - 1]);
                put_cell(s, 11, NUMBER, n);
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
 * that are times, to 's', without stages that were never timed unless 'all'
 * are wanted. */
static void
put_table(struct ds *s, const struct cost_block *block, bool numbers, bool all)
{
    enum form form = numbers ? NUMBER : TIME;
    const struct cost_kind *kind = block->kind;
    int width = MIN_WIDTH;
    uint16_t shown = 0;

    for (size_t i = 0; i < kind->n_stages; i++) {
        const struct cost_hist *hist = &block->hists[i];

        if (cost_stage_is_number(kind, i) == numbers
            && (cost_hist_count(hist)
                || (all && !(kind->stages[i].flags & COST_OPTIONAL)))) {
            width = MAX(width, cell_width(form, cost_hist_max(hist)));
            shown |= 1u << i;
        }
    }
    if (!shown) {
        return;
    }
    ds_put_format(s, "  %-10s %11s %*s", numbers ? "number" : "stage (us)",
                  "count", width, "mean");
    for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
        ds_put_format(s, " %*s", width, percentiles[i].name);
    }
    ds_put_format(s, " %*s\n", width, "max");

    for (; shown; shown = zero_rightmost_1bit(shown)) {
        size_t i = raw_ctz(shown);
        const struct cost_hist *hist = &block->hists[i];
        const char *name = kind->stages[i].name;

        ds_put_format(s, "  %-10s", name);
        put_cell(s, 21 - MAX(10, strlen(name)), NUMBER, cost_hist_count(hist));
        put_cell(s, width, numbers ? DECIMAL : TIME, cost_hist_mean(hist));
        for (size_t j = 0; j < ARRAY_SIZE(percentiles); j++) {
            put_cell(s, width, form,
                     cost_hist_percentile(hist, percentiles[j].percent,
                                          numbers));
        }
        put_cell(s, width, form, cost_hist_max(hist));
        ds_put_char(s, '\n');
    }
}

/* Appends to 's' when the longest event of 'block' ended, if that is known. */
static void
put_max_time(struct ds *s, const struct cost_block *block)
{
    size_t total = cost_kind_total(block->kind);
    const struct cost_hist *hist = &block->hists[total];
    uint64_t max_us = cost_load(&block->max_us);

    if (max_us && cost_hist_max(hist) >= MIN_DATED_NS) {
        ds_put_format(s, "  max of %s at", block->kind->stages[total].name);
        ds_put_strftime_msec(s, " %Y-%m-%d %H:%M:%S.###Z\n", max_us / 1000,
                             true);
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
            sum += cost_block_counter(block, end);
        }
        if (!sum) {
            continue;
        }
        ds_put_format(s, "  %s:", group);
        for (size_t i = first; i < end; i++) {
            uint64_t n = cost_block_counter(block, i);

            if (n) {
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
            cost_put_count(s, n_lost(block));
            ds_put_cstr(s, " lost");
            return;
        }
    }
}

/* Appends to 's' how many events of 'block' were slow, if any. */
static void
put_slow(struct ds *s, const struct cost_block *block)
{
    uint64_t n = cost_load(&block->n_slow);

    if (n) {
        ds_put_cstr(s, "  slow (over ");
        cost_put_count(s, cost_load(&block->kind->config->log_ns) / 1000);
        ds_put_cstr(s, " us): ");
        cost_put_count(s, n);
        ds_put_char(s, '\n');
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
    for (size_t i = 0; i < book->n_classes; i++) {
        uint64_t n = cost_book_events(book, i);

        if (n) {
            char *name = cost_class_name(book->kind, i);

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
                      kind->n_reasons ? "" : "and totals ",
                      kind->n_reasons ? "times" : "stages", interval,
                      kind->event);
    }
    ds_put_char(s, '\n');
}

/* Appends to 's' the numbers of 'book', which 'block' is the sum of, as far as
 * 'view' wants them. */
static void
put_book(struct ds *s, const struct cost_report *report,
         const struct cost_view *view, const struct cost_book *book,
         const struct cost_block *block)
{
    const struct cost_kind *kind = book->kind;

    put_table(s, block, false, view->all);
    put_max_time(s, block);
    put_table(s, block, true, view->all);
    if (report->put_derived) {
        struct json *json = json_object_create();

        report->put_derived(block, s, json);
        json_destroy(json);
    }
    for (size_t i = 0; view->histograms && i < kind->n_stages; i++) {
        put_bars(s, kind, i, &block->hists[i]);
    }
    if (view->class == COST_ALL_CLASSES) {
        put_classes(s, book);
    }
    put_counters(s, block);
    put_slow(s, block);
}

/* Appends to 's' the line that says what part of the time 'view' is of. */
static void
put_last(struct ds *s, const struct cost_view *view,
         const struct cost_reading *account)
{
    bool minutes = view->last_s >= 60;

    if (view->last_s) {
        ds_put_format(s, "  last %d %s: ", view->last_s / (minutes ? 60 : 1),
                      minutes ? "min" : "s");
        ds_put_format(s, (account->elapsed_ms < view->last_s * 1000LL
                          ? "have %.0f s\n" : "%.1f s\n"),
                      account->elapsed_ms / 1000.0);
    }
}

/* Appends 'account' to 's'. */
static void
put_account(struct ds *s, const struct cost_report *report,
            const struct cost_view *view, const struct cost_reading *account)
{
    struct cost_block *block = cost_book_sum(&account->total, view->class);
    uint64_t total = cost_block_events(block);

    cost_put_name(s, account->name, false);
    ds_put_cstr(s, ": ");
    cost_put_plural(s, total, account->kind->event);
    if (view->class != COST_ALL_CLASSES) {
        ds_put_cstr(s, " of class ");
        account->kind->format_class(view->class, s);
    }
    ds_put_format(s, " in %.1f s", account->elapsed_ms / 1000.0);
    put_lost(s, block);
    ds_put_char(s, '\n');
    put_last(s, view, account);
    put_settings(s, account->kind);
    if (!cost_book_is_empty(&account->total)) {
        put_book(s, report, view, &account->total, block);
    }
    cost_block_destroy(block);
    if (total) {
        ds_put_cstr(s, "  thread:");
        for (size_t i = 0; i < account->n_threads; i++) {
            const struct cost_thread_book *thread = &account->threads[i];
            uint64_t n = cost_book_events(&thread->book, view->class);

            if (n) {
                put_share(s, thread->name, n, total);
            }
        }
        ds_put_char(s, '\n');
    }
    for (size_t i = 0; view->threads && i < account->n_threads; i++) {
        const struct cost_thread_book *thread = &account->threads[i];

        block = cost_book_sum(&thread->book, view->class);
        if (cost_block_events(block) || n_lost(block)) {
            cost_put_name(s, account->name, false);
            ds_put_format(s, ", thread %s: ", thread->name);
            cost_put_plural(s, cost_block_events(block), account->kind->event);
            put_lost(s, block);
            ds_put_char(s, '\n');
            put_book(s, report, view, &thread->book, block);
        }
        cost_block_destroy(block);
    }
}

/* JSON. */

/* Integers in JSON have 63 bits. */
void
cost_put_integer(struct json *object, const char *name, uint64_t n)
{
    json_object_put(object, name, json_integer_create(MIN(n, LLONG_MAX)));
}

/* Adds 'string', which this frees. */
void
cost_put_string(struct json *object, const char *name, char *string)
{
    json_object_put(object, name, json_string_create_nocopy(string));
}

/* Returns 's', which becomes empty, as a JSON value.  There can be thousands
 * of stages and buckets in a reply: they are text at once.  A 'struct json'
 * takes one or two allocations for each number. */
struct json *
cost_serialized(struct ds *s)
{
    struct json *json = json_string_create_nocopy(ds_steal_cstr(s));

    json->type = JSON_SERIALIZED_OBJECT;
    return json;
}

/* Adds 'n' to 's'.  A reply can have tens of thousands of numbers, for which
 * ds_put_format() would take several times as long. */
static void
put_digits(struct ds *s, uint64_t n)
{
    char digits[20];
    size_t i = sizeof digits;

    do {
        digits[--i] = '0' + n % 10;
        n /= 10;
    } while (n);
    ds_put_buffer(s, digits + i, sizeof digits - i);
}

static void
put_member(struct ds *s, const char *name, uint64_t n)
{
    ds_put_cstr(s, ",\"");
    ds_put_cstr(s, name);
    ds_put_cstr(s, "\":");
    put_digits(s, n);
}

/* Adds the counts of 'hist' to 's' as a JSON object with the fields of OTLP's
 * ExponentialHistogramDataPoint, in its form for positive values, in seconds,
 * except that what is above the highest edge is in "overflow". */
static void
put_buckets(struct ds *s, const struct cost_hist *hist)
{
    unsigned int end = MIN(hist->first + hist->n, COST_HIST_N_EDGES);
    unsigned int first = MAX(hist->first, 1);

    while (first < end && !cost_hist_get(hist, first)) {
        first++;
    }
    while (end > first && !cost_hist_get(hist, end - 1)) {
        end--;
    }

    /* The threshold is the lowest edge, 2**-30 s, rounded down to as many
     * digits as a number in JSON has. */
    BUILD_ASSERT_DECL(COST_HIST_SCALE == 3 && COST_HIST_MIN_EXP == -30);
    ds_put_format(s, "{\"scale\":3,\"unit\":\"s\","
                  "\"zero_threshold\":9.31322574615478e-10,"
                  "\"offset\":%d,\"bucket_counts\":[",
                  first < end ? COST_HIST_OTLP_OFFSET + (int) first - 1 : 0);
    for (unsigned int i = first; i < end; i++) {
        if (i > first) {
            ds_put_char(s, ',');
        }
        put_digits(s, cost_hist_get(hist, i));
    }
    ds_put_char(s, ']');
    put_member(s, "zero_count", cost_hist_get(hist, 0));
    put_member(s, "overflow", cost_hist_get(hist, COST_HIST_N_EDGES));
    ds_put_char(s, '}');
}

/* Adds the counts of 'hist', of numbers, to 's' as a JSON object: bucket I is
 * for numbers up to and including bound I, the last one for those above all
 * bounds.  The bounds are from the lowest to that of the highest number. */
static void
put_bounds(struct ds *s, const struct cost_hist *hist)
{
    unsigned int end = 1;
    struct ds counts = DS_EMPTY_INITIALIZER;

    if (cost_hist_count(hist)) {
        end = MIN(cost_hist_bucket(cost_hist_max(hist)) + 1,
                  COST_HIST_N_EDGES);
    }
    ds_put_cstr(s, "{\"bounds\":[");
    for (unsigned int i = 0; i < end; i++) {
        uint64_t edge = cost_hist_edges[i];

        /* Several buckets below 12 are too narrow for any whole number. */
        if (!i || edge != cost_hist_edges[i - 1]) {
            if (i) {
                ds_put_char(s, ',');
            }
            put_digits(s, edge);
            put_digits(&counts, cost_hist_get(hist, i));
            ds_put_char(&counts, ',');
        }
    }
    put_digits(&counts, cost_hist_get(hist, COST_HIST_N_EDGES));
    ds_put_format(s, "],\"counts\":[%s]}", ds_cstr(&counts));
    ds_destroy(&counts);
}

static struct json *
stage_to_json(const struct cost_view *view, const struct cost_block *block,
              size_t stage)
{
    const struct cost_kind *kind = block->kind;
    const struct cost_hist *hist = &block->hists[stage];
    bool number = cost_stage_is_number(kind, stage);
    struct ds s = DS_EMPTY_INITIALIZER;

    ds_put_cstr(&s, "{\"unit\":\"");
    ds_put_cstr(&s, number ? kind->stages[stage].unit : "ns");
    ds_put_cstr(&s, cost_stage_is_sampled(kind, stage)
                    ? "\",\"sampled\":true" : "\",\"sampled\":false");
    put_member(&s, "count", cost_hist_count(hist));
    put_member(&s, "sum", cost_hist_sum(hist));
    if (cost_hist_count(hist)) {
        put_member(&s, "min", cost_hist_min(hist));
        put_member(&s, "max", cost_hist_max(hist));
        if (stage == cost_kind_total(kind) && cost_load(&block->max_us)) {
            put_member(&s, "max_time_us", cost_load(&block->max_us));
        }
        ds_put_format(&s, ",\"mean\":%.15g", cost_hist_mean(hist));
        for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
            put_member(&s, percentiles[i].name,
                       round(cost_hist_percentile(
                           hist, percentiles[i].percent, number)));
        }
    }
    if (view->histograms) {
        ds_put_cstr(&s, ",\"histogram\":");
        if (number) {
            put_bounds(&s, hist);
        } else {
            put_buckets(&s, hist);
        }
    }
    ds_put_char(&s, '}');
    return cost_serialized(&s);
}

/* Adds the numbers of 'class' of 'book', or of all, to 'json'. */
static void
put_json_numbers(struct json *json, const struct cost_report *report,
                 const struct cost_view *view, const struct cost_book *book,
                 size_t class)
{
    struct cost_block *block = cost_book_sum(book, class);
    const struct cost_kind *kind = book->kind;
    struct json *counters = json_object_create();
    struct json *stages = json_object_create();
    struct json *group = NULL;

    cost_put_integer(json, "events", cost_block_events(block));
    if (cost_load(&block->n_slow)) {
        cost_put_integer(json, "slow", cost_load(&block->n_slow));
    }
    for (size_t i = 0; i < kind->n_stages; i++) {
        if (block->hists[i].n || !(kind->stages[i].flags & COST_OPTIONAL)) {
            json_object_put(stages, kind->stages[i].name,
                            stage_to_json(view, block, i));
        }
    }
    json_object_put(json, "stages", stages);
    for (size_t i = 0; i < kind->n_counters; i++) {
        const struct cost_column *counter = &kind->counters[i];

        if (!i || strcmp(counter->unit, kind->counters[i - 1].unit)) {
            group = json_object_create();
            json_object_put(counters, counter->unit, group);
        }
        cost_put_integer(group, counter->name,
                                cost_block_counter(block, i));
    }
    json_object_put(json, "counters", counters);
    if (report->put_derived) {
        struct json *derived = json_object_create();
        struct ds s = DS_EMPTY_INITIALIZER;

        report->put_derived(block, &s, derived);
        json_object_put(json, "derived", derived);
        ds_destroy(&s);
    }
    cost_block_destroy(block);
}

/* Adds the numbers of 'book', and of its classes, to 'json'. */
static void
put_json_book(struct json *json, const struct cost_report *report,
              const struct cost_view *view, const struct cost_book *book)
{
    struct json *classes = json_array_create_empty();

    put_json_numbers(json, report, view, book, view->class);
    for (size_t i = 0; i < book->n_classes; i++) {
        if (book->classes[i]
            && (view->class == COST_ALL_CLASSES || view->class == i)) {
            struct json *class = json_object_create();

            cost_put_string(class, "name", cost_class_name(book->kind, i));
            put_json_numbers(class, report, view, book, i);
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
    cost_put_integer(json, "since_us", account->since_us);
    return json;
}

/* Returns the numbers of 'account'. */
static struct json *
numbers_to_json(const struct cost_report *report,
                const struct cost_view *view,
                const struct cost_reading *account)
{
    struct json *json = account_to_json(account);
    struct json *threads;

    put_json_book(json, report, view, &account->total);
    if (!view->threads) {
        return json;
    }
    threads = json_array_create_empty();
    for (size_t i = 0; i < account->n_threads; i++) {
        const struct cost_thread_book *book = &account->threads[i];

        if (!cost_book_is_empty(&book->book)) {
            struct json *thread = json_object_create();

            json_object_put_string(thread, "name", book->name);
            put_json_numbers(thread, report, view, &book->book,
                             view->class);
            json_array_add(threads, thread);
        }
    }
    json_object_put(json, "threads", threads);
    return json;
}

/* Returns the slowest events of 'account' in JSON, and appends the same to the
 * text 's'. */
static struct json *
report_slowest(const struct cost_report *report, const struct cost_view *view,
               const struct cost_reading *account, struct ds *s)
{
    uint64_t n_events = cost_book_events(&account->total, COST_ALL_CLASSES);
    size_t n = MIN(view->n_slowest, account->n_slowest);
    struct json *array = json_array_create_empty();
    const struct cost_kind *kind = account->kind;
    struct json *json = account_to_json(account);

    cost_put_name(s, account->name, false);
    ds_put_format(s, ": slowest %"PRIuSIZE" of ", n);
    cost_put_plural(s, n_events, kind->event);
    ds_put_format(s, " in %.1f s\n", account->elapsed_ms / 1000.0);
    put_last(s, view, account);
    cost_put_integer(json, "events", n_events);
    for (size_t i = 0; i < n; i++) {
        const struct cost_slow *slow = account->slowest[i];
        const uint64_t *words = &slow->stages[kind->n_stages];
        char *class = cost_class_name(kind, slow->class);
        struct json *details = json_object_create();
        struct json *numbers = json_object_create();
        struct json *stages = json_object_create();
        struct json *event = json_object_create();
        bool split = false;

        cost_put_integer(event, "total_ns", slow->total_ns);
        cost_put_integer(event, "excluded_ns", slow->excluded_ns);
        cost_put_integer(event, "time_us", slow->when_us);
        json_object_put_string(event, "thread", slow->thread);
        ds_put_format(s, "%3"PRIuSIZE". ", i + 1);
        put_time(s, slow->total_ns, " us");
        if (slow->excluded_ns) {
            ds_put_cstr(s, ", without ");
            put_time(s, slow->excluded_ns, " us");
            ds_put_cstr(s, " of events within it,");
        }
        ds_put_strftime_msec(s, " at %Y-%m-%d %H:%M:%S.###Z",
                             slow->when_us / 1000, true);
        ds_put_format(s, ", thread %s, class %s, ", slow->thread, class);
        cost_put_string(event, "class", class);
        if (slow->cause != COST_CAUSE_UNKNOWN) {
            ds_put_format(s, "%s, ", cost_cause_names[slow->cause]);
        }
        json_object_put_string(event, "cause", cost_cause_names[slow->cause]);
        report->put_details(account->name, words, s, details);
        if (view->packets) {
            report->put_packet(words, s, details);
        }
        ds_put_cstr(s, "\n    ");
        for (int number = 0; number < 2; number++) {
            for (size_t j = 0; j < cost_kind_total(kind); j++) {
                const char *name = kind->stages[j].name;
                uint64_t value = slow->stages[j];

                if (!(slow->known & (1u << j))
                    || cost_stage_is_number(kind, j) != number) {
                    continue;
                }
                ds_put_cstr(s, number ? ", " : " ");
                ds_put_cstr(s, name);
                put_cell(s, 0, number ? NUMBER : TIME, value);
                cost_put_integer(number ? numbers : stages, name,
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

/* Appends to 's' what is left of accounts that have been deleted, if any. */
void
cost_render_deleted(struct ds *s, const struct cost_report *report,
                    const struct cost_view *view,
                    const struct cost_sum *deleted)
{
    struct cost_block *block = cost_book_sum(&deleted->book, view->class);

    if (!cost_book_is_empty(&deleted->book)) {
        ds_put_cstr(s, "deleted: ");
        cost_put_plural(s, deleted->n_accounts, report->object);
        ds_put_cstr(s, ", ");
        cost_put_plural(s, cost_block_events(block), block->kind->event);
        put_lost(s, block);
        ds_put_char(s, '\n');
    }
    cost_block_destroy(block);
}

/* Returns the 'n' 'sums', those of no account only if 'all'. */
struct json *
cost_render_sums(const struct cost_report *report,
                 const struct cost_view *view, const struct cost_sum *sums,
                 size_t n, bool all)
{
    struct json *array = json_array_create_empty();

    for (size_t i = 0; i < n; i++) {
        if (sums[i].n_accounts || all) {
            struct json *json = json_object_create();

            json_object_put_string(json, "kind", sums[i].book.kind->event);
            cost_put_integer(json, "accounts", sums[i].n_accounts);
            cost_put_integer(json, "since_us", sums[i].since_us);
            put_json_book(json, report, view, &sums[i].book);
            json_array_add(array, json);
        }
    }
    return array;
}

/* Returns the names of those of the 'n' 'columns' that have all of 'flags'. */
static struct json *
column_names_to_json(const struct cost_column *columns, size_t n,
                     unsigned int flags)
{
    struct json *array = json_array_create_empty();

    for (size_t i = 0; i < n; i++) {
        if ((columns[i].flags & flags) == flags) {
            json_array_add(array, json_string_create(columns[i].name));
        }
    }
    return array;
}

/* Returns the order of stages and counters, as members of JSON objects have
 * none. */
struct json *
cost_render_kinds(const struct cost_report *report)
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

/* Makes 's', which is empty, what the reply to 'view' has of 'account', in
 * JSON if 'json'. */
void
cost_render_account(struct ds *s, bool json, const struct cost_report *report,
               const struct cost_view *view,
               const struct cost_reading *account)
{
    struct json *object = NULL;

    if (view->slowest) {
        object = report_slowest(report, view, account, s);
    } else if (json) {
        object = numbers_to_json(report, view, account);
    } else {
        put_account(s, report, view, account);
    }
    if (json) {
        ds_clear(s);
        json_to_ds(object, 0, s);
    }
    json_destroy(object);
}

/* Top lists. */

/* Adds 'row', with 'name' for a name, to 'top'. */
static void
top_put(struct cost_sketch *top, const char *name, struct cost_row row)
{
    const struct cost_sketch one = { .rows = &row, .n = 1 };

    row.id = (uint64_t) hash_string(name, 0) << 32 | hash_string(name, 1);
    cost_copy_text(row.name, name);
    row.group[0] = '\0';
    cost_sketch_add(top, &one, SIZE_MAX);
}

/* Adds what 'book' has of 'class', or of all classes, to 'top' as 'name'. */
static void
top_put_class(struct cost_sketch *top, const char *name,
              const struct cost_book *book, size_t class)
{
    struct cost_block *block = cost_book_sum(book, class);
    const struct cost_hist *hist = &block->hists[cost_kind_total(book->kind)];
    struct cost_row row = {
        .events = cost_block_events(block),
        .lost = n_lost(block),
    };

    if (row.events || row.lost) {
        /* Not all events may be timed. */
        row.time_ns = cost_hist_mean(hist) * row.events;
        row.max_ns = cost_hist_count(hist) ? cost_hist_max(hist) : 0;
        top_put(top, name, row);
    }
    cost_block_destroy(block);
}

/* Adds 'book', of the thread or account 'name', to 'top', for 'spec'. */
void
cost_top_add(struct cost_sketch *top, const struct cost_top *spec,
             const struct cost_book *book, const char *name)
{
    const struct cost_kind *kind = book->kind;

    if (spec->by == COST_BY_KEY) {
        cost_sketch_add(top, &book->keys[spec->list],
                        kind->lists[spec->list].max);
    } else if (spec->by == COST_BY_GROUP) {
        const struct cost_sketch *keys = &book->keys[spec->list];

        for (size_t i = 0; i < keys->n; i++) {
            top_put(top, keys->rows[i].group, keys->rows[i]);
        }
    } else if (spec->by == COST_BY_CLASS) {
        for (size_t i = 0; i < book->n_classes; i++) {
            if (book->classes[i]) {
                char *class = cost_class_name(kind, i);

                top_put_class(top, class, book, i);
                free(class);
            }
        }
    } else {
        top_put_class(top, name, book, COST_ALL_CLASSES);
    }
}

/* Makes 's' the name of 'row' in a text. */
static void
put_row_name(struct ds *s, const struct cost_top *spec,
             const struct cost_row *row)
{
    ds_clear(s);
    cost_put_name(s, row->name, spec->own_name);
    if (row->group[0] && !spec->group) {
        ds_put_char(s, ' ');
        cost_put_name(s, row->group, !spec->own_name);
    }
}

/* Returns half of the width of the 95% confidence interval of the events of
 * 'row', which samples stand for. */
static double
sampling_error(const struct cost_row *row)
{
    double events = row->events - row->error;

    return (row->n_samples
            ? 1.96 * sqrt(events * (events / row->n_samples - 1)) : 0);
}

/* Most time first. */
static int
compare_rows(const void *a_, const void *b_)
{
    const struct cost_row *a = a_, *b = b_;

    return (a->time_ns != b->time_ns ? (a->time_ns < b->time_ns ? 1 : -1)
            : a->events != b->events ? (a->events < b->events ? 1 : -1)
            : a->lost != b->lost ? (a->lost < b->lost ? 1 : -1)
            : strcmp(a->name, b->name));
}

/* Adds the rows of 'top', 'n' at most after 'skip', to 'json' if it is
 * nonnull, otherwise appends them to 's'.  Sorts 'top'. */
void
cost_render_top(struct ds *s, struct json *json, const struct cost_top *spec,
                const struct cost_sketch *top, size_t skip, size_t n)
{
    struct json *rows = json_array_create_empty();
    uint64_t time_ns = top->other_ns, events = 0;
    size_t end = MIN(top->n - MIN(skip, top->n), n) + MIN(skip, top->n);
    struct ds name = DS_EMPTY_INITIALIZER;
    int width = strlen(spec->what);

    if (top->n) {
        qsort(top->rows, top->n, sizeof *top->rows, compare_rows);
    }
    for (size_t i = 0; i < top->n; i++) {
        events += top->rows[i].events;
        time_ns += top->rows[i].time_ns;
        if (i >= skip && i < end) {
            put_row_name(&name, spec, &top->rows[i]);
            width = MAX(width, name.length);
        }
    }
    if (skip < end) {
        ds_put_format(s, "  %-*s", width, spec->what);
        ds_put_cstr(s, "  time%       count     mean      max  lost\n");
    }
    for (size_t i = skip; i < end; i++) {
        const struct cost_row *row = &top->rows[i];
        uint64_t n_timed = row->events - row->error;
        double share = time_ns ? 1.0 * row->time_ns / time_ns : 0;
        double mean = n_timed ? 1.0 * row->time_ns / n_timed : 0;
        struct json *object = json_object_create();

        put_row_name(&name, spec, row);
        ds_put_format(s, "  %-*s %5.1f%%", width, ds_cstr(&name), 100 * share);
        put_cell(s, 11, NUMBER, row->events);
        put_cell(s, MIN_WIDTH, TIME, mean);
        put_cell(s, MIN_WIDTH, TIME, row->max_ns);
        put_cell(s, 5, NUMBER, row->lost);
        if (sampling_error(row) >= 1) {
            ds_put_format(s, "  (count +/- %.0f%%)",
                          100 * sampling_error(row)
                          / (row->events - row->error));
        }
        if (row->error) {
            ds_put_cstr(s, "  (count at most ");
            cost_put_count(s, row->error);
            ds_put_cstr(s, " too high)");
        }
        ds_put_char(s, '\n');

        cost_put_string(object, "name", (row->group[0] && !spec->group
                                         ? xasprintf("%s %s", row->name,
                                                     row->group)
                                         : xstrdup(row->name)));
        if (spec->group && row->group[0]) {
            json_object_put_string(object, spec->group, row->group);
        }
        cost_put_integer(object, "events", row->events);
        json_object_put(object, "share", json_real_create(share));
        cost_put_integer(object, "mean_ns", mean);
        cost_put_integer(object, "max_ns", row->max_ns);
        cost_put_integer(object, "lost", row->lost);
        cost_put_integer(object, "error", row->error);
        cost_put_integer(object, "samples", row->n_samples);
        cost_put_integer(object, "sampling_error", sampling_error(row));
        json_array_add(rows, object);
    }
    if (json) {
        struct json *all = json_object_create();

        cost_put_integer(all, "events", events);
        cost_put_integer(all, "time_ns", time_ns);
        json_object_put(json, "rows", rows);
        json_object_put(json, "all", all);
    } else {
        json_destroy(rows);
    }
    ds_destroy(&name);
}
