/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-render.h"

#include <math.h>

#include "cost-clock.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "svec.h"
#include "util.h"

static const struct {
    const char *name;
    double percent;
} percentiles[] = {
    { "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "p99.9", 99.9 },
};

/* Returns the name of 'class' of 'kind', which the caller must free. */
char *
cost_class_name(const struct cost_kind *kind, size_t class)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    kind->format_class(class, &s);
    return ds_steal_cstr(&s);
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

/* Adds a new object 'name' to 'object', and returns it. */
struct json *
cost_put_object(struct json *object, const char *name)
{
    struct json *member = json_object_create();

    json_object_put(object, name, member);
    return member;
}

/* Adds a new array 'name' to 'object', and returns it. */
struct json *
cost_put_array(struct json *object, const char *name)
{
    struct json *member = json_array_create_empty();

    json_object_put(object, name, member);
    return member;
}

/* Adds a new object to 'array', and returns it. */
struct json *
cost_add_object(struct json *array)
{
    struct json *element = json_object_create();

    json_array_add(array, element);
    return element;
}

/* Appends what comes before a value to 's': of a member 'name' of an object,
 * or, if that is NULL, of an element of an array. */
void
cost_json_begin(struct ds *s, const char *name)
{
    int last = ds_last(s);

    if (last != EOF && last != '{' && last != '[') {
        ds_put_char(s, ',');
    }
    if (name) {
        ds_put_char(s, '"');
        ds_put_cstr(s, name);
        ds_put_cstr(s, "\":");
    }
}

/* Appends a member, or an element if 'name' is NULL, to 's'.  ds_put_format()
 * would take several times as long, and so would a 'struct json'. */
void
cost_json_put(struct ds *s, const char *name, uint64_t n)
{
    char digits[20];
    size_t i = sizeof digits;

    cost_json_begin(s, name);
    n = MIN(n, LLONG_MAX);
    do {
        digits[--i] = '0' + n % 10;
        n /= 10;
    } while (n);
    ds_put_buffer(s, digits + i, sizeof digits - i);
}

static void
put_string(struct ds *s, const char *name, const char *string)
{
    cost_json_begin(s, name);
    json_string_escape(string, s);
}

static void
put_boolean(struct ds *s, const char *name, bool value)
{
    cost_json_begin(s, name);
    ds_put_cstr(s, value ? "true" : "false");
}

/* Appends an object or array, which 'bracket' opens. */
static void
open_json(struct ds *s, const char *name, char bracket)
{
    cost_json_begin(s, name);
    ds_put_char(s, bracket);
}

/* Appends the buckets of 'hist', with the fields of OTLP's
 * ExponentialHistogramDataPoint for values in seconds, except that what is
 * above the highest edge is in "overflow". */
static void
put_buckets(struct ds *s, const struct cost_hist *hist)
{
    unsigned int first = 0, last = 0, end;

    cost_hist_range(hist, &first, &last);
    first = MAX(first, 1);
    end = MIN(last + 1, COST_HIST_N_EDGES);
    open_json(s, "histogram", '{');
    cost_json_put(s, "scale", COST_HIST_SCALE);
    cost_json_begin(s, "offset");
    ds_put_format(s, "%d", first >= end ? 0 : (int) first - 1
                           + COST_HIST_MIN_EXP * (1 << COST_HIST_SCALE));
    open_json(s, "bucket_counts", '[');
    for (unsigned int i = first; i < end; i++) {
        cost_json_put(s, NULL, cost_hist_get(hist, i));
    }
    ds_put_char(s, ']');
    cost_json_put(s, "zero_count", cost_hist_get(hist, 0));
    cost_json_put(s, "overflow", cost_hist_get(hist, COST_HIST_N_EDGES));
    ds_put_char(s, '}');
}

static void
put_stage(struct ds *s, const struct cost_view *view,
          const struct cost_block *block, size_t stage)
{
    const struct cost_kind *kind = block->kind;
    const struct cost_hist *hist = &block->hists[stage];
    bool number = cost_stage_is_number(kind, stage);

    open_json(s, kind->stages[stage].name, '{');
    cost_json_put(s, "index", stage);
    put_string(s, "unit", number ? kind->stages[stage].unit : "ns");
    put_boolean(s, "sampled", cost_stage_is_sampled(kind, stage));
    put_boolean(s, "apart", kind->stages[stage].flags & COST_APART);
    cost_json_put(s, "count", cost_hist_count(hist));
    cost_json_put(s, "sum", cost_load(&hist->sum));
    if (cost_hist_count(hist)) {
        double sum = cost_load(&hist->sum);

        cost_json_put(s, "min", cost_load(&hist->min));
        cost_json_put(s, "max", cost_load(&hist->max));
        if (stage == cost_kind_total(kind) && cost_load(&block->max_us)) {
            cost_json_put(s, "max_time_us", cost_load(&block->max_us));
        }
        cost_json_begin(s, "mean");
        ds_put_format(s, "%.15g", sum / cost_hist_count(hist));
        for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++) {
            cost_json_put(s, percentiles[i].name, round(cost_hist_percentile(
                              hist, percentiles[i].percent, number)));
        }
    }
    if (view->histograms && view->json) {
        put_buckets(s, hist);
    }
    ds_put_char(s, '}');
}

/* Appends the numbers of 'class' of 'book', or of all classes, and 'name'
 * unless it is NULL.  'brief' is for the number of events only. */
static void
put_numbers(struct ds *s, const char *name, const struct cost_view *view,
            const struct cost_book *book, size_t class, bool brief)
{
    const struct cost_kind *kind = book->kind;
    struct cost_block *block;

    if (name) {
        put_string(s, "name", name);
    }
    cost_json_put(s, "events", cost_book_events(book, class));
    if (brief) {
        return;
    }
    block = cost_book_sum(book, class);
    if (cost_load(&block->n_slow)) {
        cost_json_put(s, "slow", cost_load(&block->n_slow));
    }
    open_json(s, "stages", '{');
    for (size_t i = 0; i < kind->n_stages; i++) {
        if (cost_hist_count(&block->hists[i])
            || !(kind->stages[i].flags & COST_OPTIONAL)) {
            put_stage(s, view, block, i);
        }
    }
    ds_put_char(s, '}');
    open_json(s, "counters", '{');
    for (size_t i = 0; i < kind->n_counters; i++) {
        const char *group = kind->counters[i].unit;

        if (!i || strcmp(group, kind->counters[i - 1].unit)) {
            ds_put_cstr(s, i ? "}" : "");
            open_json(s, group, '{');
        }
        cost_json_put(s, kind->counters[i].name,
                      cost_load(&block->counters[i]));
    }
    ds_put_cstr(s, kind->n_counters ? "}}" : "}");
    cost_block_destroy(block);
}

/* Appends the numbers of 'book', and of its classes. */
static void
put_book(struct ds *s, const struct cost_view *view,
         const struct cost_book *book)
{
    put_numbers(s, NULL, view, book, view->class, false);
    open_json(s, "classes", '[');
    for (size_t i = 0; i < book->n_classes; i++) {
        if (book->classes[i] && view->class == COST_ALL_CLASSES) {
            char *name = cost_class_name(book->kind, i);

            open_json(s, NULL, '{');
            put_numbers(s, name, view, book, i, !view->json);
            ds_put_char(s, '}');
            free(name);
        }
    }
    ds_put_char(s, ']');
}

/* Appends the slowest events of 'account'. */
static void
put_slowest(struct ds *s, const struct cost_report *report,
            const struct cost_view *view, const struct cost_reading *account)
{
    const struct cost_kind *kind = account->kind;

    open_json(s, "slowest", '[');
    for (size_t i = 0, n = 0;
         i < account->n_slowest && n < view->n_slowest; i++) {
        const struct cost_slow *slow = account->slowest[i];
        struct json *details;
        char *class;

        if (view->class != COST_ALL_CLASSES && slow->class != view->class) {
            continue;
        }
        n++;
        class = cost_class_name(kind, slow->class);
        details = json_object_create();
        open_json(s, NULL, '{');
        cost_json_put(s, "total_ns", slow->total_ns);
        cost_json_put(s, "excluded_ns", slow->excluded_ns);
        cost_json_put(s, "time_us", slow->when_us);
        put_string(s, "thread", slow->thread);
        put_string(s, "class", class);
        put_string(s, "cause", cost_cause_names[slow->cause]);
        open_json(s, "stages", '{');
        for (size_t j = 0; j < cost_kind_total(kind); j++) {
            if (slow->known & (1u << j)) {
                cost_json_put(s, kind->stages[j].name, slow->stages[j]);
            }
        }
        ds_put_char(s, '}');
        report->put_details(account->name, &slow->stages[kind->n_stages],
                            view->packets, details);
        cost_json_begin(s, "details");
        json_to_ds(details, 0, s);
        ds_put_char(s, '}');
        json_destroy(details);
        free(class);
    }
    ds_put_char(s, ']');
}

/* Appends 'account', an element of an array. */
void
cost_put_account(struct ds *s, const struct cost_report *report,
                 const struct cost_view *view,
                 const struct cost_reading *account)
{
    open_json(s, NULL, '{');
    put_string(s, "name", account->name);
    put_string(s, "kind", account->kind->event);
    if (account->datapath) {
        put_string(s, "datapath", account->datapath);
    }
    cost_json_put(s, "since_us", account->since_us);
    cost_json_put(s, "elapsed_ms", account->elapsed_ms);
    put_book(s, view, &account->total);
    open_json(s, "threads", '[');
    for (size_t i = 0; i < account->n_threads; i++) {
        const struct cost_thread_book *thread = &account->threads[i];

        if (!cost_book_is_empty(&thread->book)) {
            open_json(s, NULL, '{');
            put_numbers(s, thread->name, view, &thread->book, view->class,
                        !view->threads);
            ds_put_char(s, '}');
        }
    }
    ds_put_char(s, ']');
    if (view->n_slowest) {
        put_slowest(s, report, view, account);
    }
    ds_put_char(s, '}');
}

/* Most time first. */
static int
compare_rows(const void *a_, const void *b_)
{
    const struct cost_row *a = a_, *b = b_;

    return (a->time_ns != b->time_ns ? (a->time_ns < b->time_ns ? 1 : -1)
            : a->events != b->events ? (a->events < b->events ? 1 : -1)
            : a->lost != b->lost ? (a->lost < b->lost ? 1 : -1)
            : strcmp(a->name, b->name) ? strcmp(a->name, b->name)
            : strcmp(a->group, b->group));
}

/* Appends who the events of 'list' of 'book' are for. */
static void
put_list(struct ds *s, const struct cost_book *book, size_t list)
{
    const struct cost_sketch *keys = &book->keys[list];
    struct cost_row *rows = xmemdup(keys->rows, keys->n * sizeof *rows);
    double time_ns = keys->other_ns;
    uint64_t n_events = 0;

    qsort(rows, keys->n, sizeof *rows, compare_rows);
    for (size_t i = 0; i < keys->n; i++) {
        n_events += rows[i].events;
        time_ns += rows[i].time_ns;
    }
    open_json(s, NULL, '{');
    put_string(s, "what", book->kind->lists[list].name);
    put_boolean(s, "sampled", !book->kind->exact);
    cost_json_put(s, "events", n_events);
    open_json(s, "rows", '[');
    for (size_t i = 0; i < keys->n; i++) {
        const struct cost_row *row = &rows[i];
        double events = row->events - row->error;

        open_json(s, NULL, '{');
        put_string(s, "name", row->name);
        if (row->group[0]) {
            put_string(s, "group", row->group);
        }
        cost_json_begin(s, "share");
        ds_put_format(s, "%.4f", time_ns ? row->time_ns / time_ns : 0);
        cost_json_put(s, "events", row->events);
        cost_json_put(s, "samples", row->n_samples);
        /* Half of the 95% confidence interval. */
        cost_json_put(s, "sampling_error", 1.96 * sqrt(
                          events > row->n_samples && row->n_samples
                          ? events * (events / row->n_samples - 1) : 0));
        cost_json_put(s, "error", row->error);
        cost_json_put(s, "mean_ns", events ? row->time_ns / events : 0);
        if (row->max_ns != UINT64_MAX) {
            cost_json_put(s, "max_ns", row->max_ns);
        }
        cost_json_put(s, "lost", row->lost);
        ds_put_char(s, '}');
    }
    ds_put_cstr(s, "]}");
    free(rows);
}

/* Appends 'sum', of the latest 'elapsed_ms' if that is a window, an element of
 * an array. */
void
cost_put_sum(struct ds *s, const struct cost_view *view,
             const struct cost_sum *sum, uint64_t elapsed_ms)
{
    const struct cost_kind *kind = sum->book.kind;

    open_json(s, NULL, '{');
    put_string(s, "kind", kind->event);
    cost_json_put(s, "accounts", sum->n_accounts);
    cost_json_put(s, "since_us", sum->since_us);
    if (view->last_s) {
        cost_json_put(s, "elapsed_ms", elapsed_ms);
    }
    put_book(s, view, &sum->book);
    open_json(s, "top", '[');
    for (size_t i = 0; view->top && i < kind->n_lists; i++) {
        if (sum->book.keys[i].n) {
            put_list(s, &sum->book, i);
        }
    }
    ds_put_cstr(s, "]}");
}

/* Text. */

/* Of a maximum that is not shorter, the time of day is shown. */
#define MIN_DATED_NS 1000000

/* Returns the member 'name' of 'object', or NULL. */
static const struct json *
get(const struct json *object, const char *name)
{
    return object ? shash_find_data(json_object(object), name) : NULL;
}

/* Returns the same, a number, 0 if there is none. */
static double
get_number(const struct json *object, const char *name)
{
    const struct json *json = get(object, name);

    return (!json ? 0 : json->type == JSON_REAL ? json_real(json)
            : json_integer(json));
}

static const char *
get_string(const struct json *object, const char *name)
{
    return json_string(get(object, name));
}

static size_t
count(const struct json *array)
{
    return array ? json_array_size(array) : 0;
}

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

/* Appends 'value' to 's', with commas and as many decimals as fit in eight
 * characters. */
static void
put_decimal(struct ds *s, double value)
{
    uint64_t scale = value < 9999.995 ? 100 : value < 99999.95 ? 10 : 1;
    uint64_t scaled = llround(value * scale);

    put_count(s, scaled / scale);
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
    bool seconds = ns >= 999.9995e6;

    put_decimal(s, ns / (seconds ? 1e9 : 1000));
    ds_put_cstr(s, seconds ? " s" : unit);
}

/* Appends "NAME N (SHARE%)" to 's'. */
static void
put_share(struct ds *s, const char *name, double n, double total)
{
    ds_put_format(s, "  %s ", name);
    put_count(s, n);
    ds_put_format(s, " (%.1f%%)", 100 * n / total);
}

static void
put_date(struct ds *s, const struct json *object, const char *name)
{
    ds_put_strftime_msec(s, " at %Y-%m-%d %H:%M:%S.###Z",
                         get_number(object, name) / 1000, true);
}

/* A column of a table, after the names of its rows. */
struct column {
    const char *title;
    const char *member;                 /* Of a row in JSON. */
    enum { COUNT, REAL, TIME, PERCENT } form;
    int width;                          /* At least. */
};
enum { N_COLUMNS = 7 };                 /* Of each table. */

/* Adds the cells of 'row', or of the head if that is NULL. */
static void
add_row(struct svec *cells, const char *name, const struct json *row,
        const struct column columns[N_COLUMNS])
{
    svec_add(cells, name);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        double value = get_number(row, columns[i].member);
        struct ds s = DS_EMPTY_INITIALIZER;

        if (!get(row, columns[i].member)) {
            ds_put_cstr(&s, row ? "-" : columns[i].title);
        } else if (columns[i].form == COUNT) {
            put_count(&s, value);
        } else if (columns[i].form == REAL) {
            put_decimal(&s, value);
        } else if (columns[i].form == TIME) {
            put_time(&s, value, "");
        } else {
            ds_put_format(&s, "%.1f%%", 100 * value);
        }
        svec_add_nocopy(cells, ds_steal_cstr(&s));
    }
}

/* Appends the table of 'cells' to 's', and frees them. */
static void
put_table(struct ds *s, struct svec *cells,
          const struct column columns[N_COLUMNS])
{
    int width[N_COLUMNS + 1];

    for (size_t c = 0; c <= N_COLUMNS; c++) {
        width[c] = c ? columns[c - 1].width : 10;
        for (size_t i = c; i < cells->n; i += N_COLUMNS + 1) {
            width[c] = MAX(width[c], (int) strlen(cells->names[i]));
        }
    }
    for (size_t i = 0; i < cells->n; i++) {
        size_t c = i % (N_COLUMNS + 1);

        ds_put_format(s, c ? " %*s" : "  %-*s", width[c], cells->names[i]);
        ds_put_cstr(s, c == N_COLUMNS ? "\n" : "");
    }
    svec_destroy(cells);
}

#define STAGE_COLUMNS(MEAN, OTHERS)                                         \
    { { "count", "count", COUNT, 11 }, { "mean", "mean", MEAN, 8 },         \
      { "p50", "p50", OTHERS, 8 }, { "p90", "p90", OTHERS, 8 },             \
      { "p99", "p99", OTHERS, 8 }, { "p99.9", "p99.9", OTHERS, 8 },         \
      { "max", "max", OTHERS, 8 } }

/* Appends the stages in 'numbers', which are of 'kind', to 's'. */
static void
put_stages(struct ds *s, const struct cost_kind *kind,
           const struct json *numbers)
{
    static const struct column columns[2][N_COLUMNS] = {
        STAGE_COLUMNS(TIME, TIME), STAGE_COLUMNS(REAL, COUNT)
    };
    struct svec cells = SVEC_EMPTY_INITIALIZER;
    const struct json *stage = NULL;

    for (int number = 0; number < 2; number++) {
        const struct column *c = columns[number];
        bool head = false;

        for (size_t i = 0; i < kind->n_stages; i++) {
            stage = get(get(numbers, "stages"), kind->stages[i].name);
            if (cost_stage_is_number(kind, i) == number
                && get_number(stage, "count")) {
                if (!head) {
                    add_row(&cells, number ? "number" : "stage (us)", NULL, c);
                    head = true;
                }
                add_row(&cells, kind->stages[i].name, stage, c);
            }
        }
    }
    put_table(s, &cells, columns[0]);
    if (get(stage, "max_time_us")
        && get_number(stage, "max") >= MIN_DATED_NS) {
        ds_put_format(s, "  max of %s",
                      kind->stages[cost_kind_total(kind)].name);
        put_date(s, stage, "max_time_us");
        ds_put_char(s, '\n');
    }
}

/* Appends to 's' how many events each of 'parts' has. */
static void
put_parts(struct ds *s, const char *title, const struct json *parts)
{
    double total = 0;

    for (size_t i = 0; i < count(parts); i++) {
        total += get_number(json_array_at(parts, i), "events");
    }
    if (total) {
        ds_put_format(s, "  %s:", title);
        for (size_t i = 0; i < count(parts); i++) {
            const struct json *part = json_array_at(parts, i);
            double n = get_number(part, "events");

            if (n) {
                put_share(s, get_string(part, "name"), n, total);
            }
        }
        ds_put_char(s, '\n');
    }
}

/* Returns the sum of the counters in 'group' of 'numbers'. */
static double
sum_of(const struct json *numbers, const char *group)
{
    const struct json *counters = get(get(numbers, "counters"), group);
    struct shash_node *node;
    double sum = 0;

    SHASH_FOR_EACH (node, json_object(counters)) {
        sum += json_integer(node->data);
    }
    return sum;
}

/* Appends to 's' how many events 'numbers' has, and lost ones, if any can
 * be. */
static void
put_events(struct ds *s, const struct cost_kind *kind,
           const struct json *numbers)
{
    double n = get_number(numbers, "events");

    put_count(s, n);
    ds_put_format(s, " %s%s", kind->event, n == 1 ? "" : "s");
    if (get(numbers, "elapsed_ms")) {
        ds_put_format(s, " in %.1f s",
                      get_number(numbers, "elapsed_ms") / 1000);
    }
    if (get(get(numbers, "counters"), "lost")) {
        ds_put_cstr(s, ", ");
        put_count(s, sum_of(numbers, "lost"));
        ds_put_cstr(s, " lost");
    }
    ds_put_char(s, '\n');
}

/* Appends the members of 'object', in alphabetical order, to 's'.  A longer
 * string begins a new line. */
static void
put_members(struct ds *s, const struct json *object)
{
    const struct shash_node **nodes = shash_sort(json_object(object));

    for (size_t i = 0; i < shash_count(json_object(object)); i++) {
        const struct json *value = nodes[i]->data;
        bool string = value->type == JSON_STRING;

        ds_put_format(s, "%s%s ", string && strlen(json_string(value)) > 64
                                  ? "\n      " : ", ", nodes[i]->name);
        if (string) {
            cost_put_name(s, json_string(value), true);
        } else {
            json_to_ds(value, 0, s);
        }
    }
    free(nodes);
}

/* Appends 'numbers', of events of 'kind', to 's'. */
static void
put_body(struct ds *s, const struct cost_kind *kind,
         const struct json *numbers)
{
    const char *shown = "";

    put_stages(s, kind, numbers);
    put_parts(s, "class", get(numbers, "classes"));
    for (size_t i = 0; i < kind->n_counters; i++) {
        const char *group = kind->counters[i].unit;
        const char *name = kind->counters[i].name;
        double n = get_number(get(get(numbers, "counters"), group), name);

        if (n) {
            if (strcmp(shown, group)) {
                ds_put_format(s, "%s  %s:", shown[0] ? "\n" : "", group);
                shown = group;
            }
            put_share(s, name, n, sum_of(numbers, group));
        }
    }
    ds_put_cstr(s, shown[0] ? "\n" : "");
    if (get(numbers, "slow")) {
        uint64_t log_ns = cost_load(&kind->config->log_ns);

        ds_put_cstr(s, "  slow");
        if (log_ns) {
            ds_put_cstr(s, " (over ");
            put_count(s, log_ns / 1000);
            ds_put_cstr(s, " us)");
        }
        ds_put_cstr(s, ": ");
        put_count(s, get_number(numbers, "slow"));
        ds_put_char(s, '\n');
    }
}

/* Appends to 's' how events of 'kind' are accounted for. */
static void
put_settings(struct ds *s, const struct cost_kind *kind)
{
    uint32_t interval = cost_sample_interval(kind->config);

    ds_put_format(s, "  accounting %s, clock %s", interval ? "on" : "off",
                  cost_clock_name());
    if (interval == 1 || (interval && kind->exact)) {
        ds_put_cstr(s, ", counts and times exact");
    } else if (interval) {
        ds_put_format(s, ", counts %s of 1 in %"PRIu32" %ss",
                      kind->n_reasons ? "exact, times"
                      : "and totals exact, stages", interval, kind->event);
    }
    ds_put_char(s, '\n');
}

/* Appends 'event', a slow one of 'kind', to 's'. */
static void
put_slow(struct ds *s, const struct cost_kind *kind, const struct json *event)
{
    const struct json *stages = get(event, "stages");
    const char *cause = get_string(event, "cause");
    const char *separator = "\n     ";

    put_time(s, get_number(event, "total_ns"), " us");
    if (get_number(event, "excluded_ns")) {
        ds_put_cstr(s, ", without ");
        put_time(s, get_number(event, "excluded_ns"), " us");
        ds_put_cstr(s, " of events within it,");
    }
    put_date(s, event, "time_us");
    ds_put_format(s, ", thread %s, class %s", get_string(event, "thread"),
                  get_string(event, "class"));
    if (strcmp(cause, "unknown")) {
        ds_put_format(s, ", %s", cause);
    }
    put_members(s, get(event, "details"));
    for (size_t i = 0; i < kind->n_stages; i++) {
        const char *name = kind->stages[i].name;

        if (get(stages, name)) {
            ds_put_format(s, "%s%s ", separator, name);
            if (cost_stage_is_number(kind, i)) {
                put_count(s, get_number(stages, name));
            } else {
                put_time(s, get_number(stages, name), " us");
            }
            separator = ", ";
        }
    }
    ds_put_cstr(s, separator[0] == '\n' ? "\n     stages unknown\n" : "\n");
}

/* Appends 'account', of 'kind', from cost_put_account(), to 's'. */
void
cost_render_account(struct ds *s, const struct cost_view *view,
                    const struct cost_kind *kind, const struct json *account)
{
    const struct json *slowest = get(account, "slowest");
    const struct json *threads = get(account, "threads");

    cost_put_name(s, get_string(account, "name"), false);
    if (view->class != COST_ALL_CLASSES) {
        ds_put_cstr(s, ", class ");
        kind->format_class(view->class, s);
    }
    ds_put_cstr(s, ": ");
    if (slowest) {
        ds_put_format(s, "slowest %"PRIuSIZE" of ", count(slowest));
    }
    put_events(s, kind, account);
    for (size_t i = 0; i < count(slowest); i++) {
        ds_put_format(s, "%3"PRIuSIZE". ", i + 1);
        put_slow(s, kind, json_array_at(slowest, i));
    }
    if (!slowest) {
        put_settings(s, kind);
        put_body(s, kind, account);
        put_parts(s, "thread", threads);
    }
    for (size_t i = 0; !slowest && view->threads && i < count(threads); i++) {
        const struct json *thread = json_array_at(threads, i);

        cost_put_name(s, get_string(account, "name"), false);
        ds_put_format(s, ", thread %s: ", get_string(thread, "name"));
        put_events(s, kind, thread);
        put_body(s, kind, thread);
    }
}

/* Appends to 's' who the events of 'sum', of 'kind', from cost_put_sum(),
 * are for, 'n' at most of each list. */
void
cost_render_top(struct ds *s, const struct cost_kind *kind,
                const struct json *sum, size_t n)
{
    static const struct column columns[N_COLUMNS] = {
        { "time%", "share", PERCENT, 6 }, { "count", "events", COUNT, 11 },
        { "+/-", "sampling_error", COUNT, 6 }, { "error", "error", COUNT, 7 },
        { "mean", "mean_ns", TIME, 8 }, { "max", "max_ns", TIME, 8 },
        { "lost", "lost", COUNT, 5 },
    };
    const struct json *top = get(sum, "top");

    if (get_number(sum, "accounts")) {
        put_events(s, kind, sum);
    }
    for (size_t i = 0; i < count(top); i++) {
        const struct json *list = json_array_at(top, i);
        const struct json *rows = get(list, "rows");
        struct svec cells = SVEC_EMPTY_INITIALIZER;

        add_row(&cells, get_string(list, "what"), NULL, columns);
        for (size_t j = 0; j < MIN(count(rows), n); j++) {
            const struct json *row = json_array_at(rows, j);
            struct ds name = DS_EMPTY_INITIALIZER;

            cost_put_name(&name, get_string(row, "name"), true);
            if (get(row, "group")) {
                ds_put_char(&name, ' ');
                cost_put_name(&name, get_string(row, "group"), true);
            }
            add_row(&cells, ds_cstr(&name), row, columns);
            ds_destroy(&name);
        }
        put_table(s, &cells, columns);
    }
}

/* Appends 'sum', of deleted accounts of 'kind', each of which stood for an
 * 'object', from cost_put_sum(), to 's'. */
void
cost_render_deleted(struct ds *s, const char *object,
                    const struct cost_kind *kind, const struct json *sum)
{
    double n = get_number(sum, "accounts");

    ds_put_cstr(s, "deleted: ");
    put_count(s, n);
    ds_put_format(s, " %s%s, ", object, n == 1 ? "" : "s");
    put_events(s, kind, sum);
}
