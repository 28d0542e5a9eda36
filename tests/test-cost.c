/* SPDX-License-Identifier: Apache-2.0 */

/* Tests of recording, reading and timing: "ovstest test-cost". */

#include <config.h>
#undef NDEBUG
#include "cost.h"
#include "cost-span.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command-line.h"
#include "latch.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "ovstest.h"
#include "random.h"
#include "smap.h"
#include "timeval.h"
#include "util.h"

#define STAGES(COLUMN)                                                      \
    COLUMN(APART, "apart", NULL, COST_APART, "Before the event.")           \
    COLUMN(FIRST, "first", NULL, 0, "First part.")                          \
    COLUMN(SECOND, "second", NULL, 0, "Second part.")                       \
    COLUMN(NUMBER, "number", "things", 0, "Number.")                        \
    COLUMN(TOTAL, "total", NULL, 0, "All.")
#define COUNTERS(COLUMN)                                                    \
    COLUMN(GOOD, "good", "result", 0, "Good.")                              \
    COLUMN(BAD, "bad", "result", 0, "Bad.")                                 \
    COLUMN(SENT, "sent", "other", 0, "Sum of numbers.")

enum { STAGES(COST_ENUM) N_STAGES };
enum { COUNTERS(COST_ENUM) N_COUNTERS };
enum { N_CLASSES = 3 };
#define DETAILS_SUM 1000000000          /* Of the details of any event. */

static void
format_class(size_t class, struct ds *s)
{
    ds_put_format(s, "class%"PRIuSIZE, class);
}

static struct cost_config config
    = COST_CONFIG_INITIALIZER("test", COST_DEFAULT_SAMPLE_INTERVAL);

/* Of the event that the thread records. */
DEFINE_STATIC_PER_THREAD_DATA(uint64_t, number, 0);

static void
get_details(const struct cost_span *span OVS_UNUSED, uint64_t *details)
{
    details[0] = *number_get();
    details[1] = DETAILS_SUM - details[0];
}

/* What all kinds of events have in common. */
#define KIND(NAME, N_SLOWEST)                   \
    .event = NAME,                              \
    .config = &config,                          \
    COST_STAGES(STAGES),                        \
    COST_COUNTERS(COUNTERS),                    \
    .n_classes = N_CLASSES,                     \
    .format_class = format_class,               \
    .n_slowest = N_SLOWEST,                     \
    .n_details = 2,                             \
    .get_details = get_details

enum { N_KEYS = 7 };
static const struct cost_list list = { .name = "key", .max = 2 * N_KEYS };

static const struct cost_kind kind = {
    KIND("event", COST_MAX_SLOWEST), .typed_names = true,
    .lists = &list, .n_lists = 1,
};
static const struct cost_kind *const kinds[] = { &kind };

static const struct cost_kind other_kind = { KIND("other", 2) };
static const struct cost_kind *const other_kinds[] = { &other_kind };

/* Events that are not all timed. */
static const struct cost_kind reasons_kind = {
    KIND("reasons", 2), .n_reasons = 2
};
static const struct cost_kind *const reasons_kinds[] = { &reasons_kind };

static void
configure(bool enabled, int sample_interval)
{
    struct smap settings = SMAP_INITIALIZER(&settings);

    smap_add(&settings, "cost-accounting", enabled ? "true" : "false");
    smap_add_format(&settings, "cost-sample-interval", "%d", sample_interval);
    cost_configure(&settings);
    smap_destroy(&settings);
}

/* Records one event of 'class' that takes 'ns', of which nothing else is
 * known. */
static void
record_time(struct cost_recorder *recorder, uint32_t class, uint64_t ns)
{
    struct cost_entry entry = { .class = class, .counter = GOOD };

    cost_entry_add(&entry, TOTAL, ns);
    cost_record(recorder, &entry, NULL, NULL);
}

/* Records one event of 'class', the 'number'th. */
static void
record(struct cost_recorder *recorder, size_t class, uint64_t number)
{
    struct cost_span span;

    *number_get() = number;
    cost_span_begin(&span, recorder);
    cost_lap(recorder->kind, FIRST);
    cost_outcome(recorder->kind, number % 2 ? BAD : GOOD);
    if (span.recorder && span.sampled) {
        cost_entry_add(&span.entry, NUMBER, number);
        span.who[0] = (struct cost_who) {
            .id = 1 + number % N_KEYS, .name = "key",
        };
    }
    cost_span_end(&span, SECOND, class);
}

/* The only account of a kind, and the sum of its classes. */
struct read {
    struct cost_accounts all;
    struct cost_reading reading;
    struct cost_block *sum;
};

static struct read *
read_kind(const struct cost_kind *const of[])
{
    struct read *r = xmalloc(sizeof *r);

    cost_accounts_get(of, 1, NULL, 0, &r->all);
    ovs_assert(r->all.n == 1);
    ovs_assert(cost_account_read(r->all.accounts[0], &r->all.from,
                                 &r->reading));
    r->sum = cost_book_sum(&r->reading.total, COST_ALL_CLASSES);
    return r;
}

/* Makes readings of accounts of a kind have the slowest events. */
static void
take_slowest(const struct cost_kind *const of[])
{
    struct cost_accounts all;

    cost_accounts_get(of, 1, NULL, 0, &all);
    for (size_t i = 0; i < all.n; i++) {
        cost_account_take_slowest(all.accounts[i]);
    }
    cost_accounts_put(&all);
}

static struct read *
read_slowest(const struct cost_kind *const of[])
{
    take_slowest(of);
    return read_kind(of);
}

static void
read_free(struct read *r)
{
    cost_block_destroy(r->sum);
    cost_reading_uninit(&r->reading);
    cost_accounts_put(&r->all);
    free(r);
}

static uint64_t
read_count(void)
{
    struct read *r = read_kind(kinds);
    uint64_t n = cost_block_events(r->sum);

    read_free(r);
    return n;
}

/* All numbers agree when no thread records. */
static void
check_book(const struct cost_book *book)
{
    for (size_t class = 0; class < N_CLASSES; class++) {
        struct cost_block *block = cost_book_sum(book, class);
        uint64_t n = cost_block_events(block);
        uint64_t first = cost_load(&block->hists[FIRST].sum);
        uint64_t second = cost_load(&block->hists[SECOND].sum);
        uint64_t total = cost_load(&block->hists[TOTAL].sum);

        for (size_t i = FIRST; i < N_STAGES; i++) {
            ovs_assert(cost_hist_count(&block->hists[i]) == n);
        }
        ovs_assert(cost_load(&block->counters[GOOD])
                   + cost_load(&block->counters[BAD]) == n);

        /* Each conversion to nanoseconds rounds down. */
        ovs_assert(first + second <= total);
        ovs_assert(total - first - second <= 2 * n);
        cost_block_destroy(block);
    }
}

/* Each event is counted for its key. */
static void
check_keys(const struct cost_book *book)
{
    const struct cost_sketch *keys = &book->keys[0];
    uint64_t n = 0;

    ovs_assert(keys->n == N_KEYS);
    for (size_t i = 0; i < keys->n; i++) {
        n += keys->rows[i].events;
    }
    ovs_assert(n == cost_book_events(book, COST_ALL_CLASSES));
}

/* A slow event is what it was. */
static void
check_slow(const struct cost_reading *reading)
{
    for (size_t i = 0; i < reading->n_slowest; i++) {
        const struct cost_slow *slow = reading->slowest[i];
        const uint64_t *details = &slow->stages[N_STAGES];

        ovs_assert(details[0] + details[1] == DETAILS_SUM);
        ovs_assert(slow->known == (1 << FIRST | 1 << SECOND | 1 << NUMBER
                                   | 1 << TOTAL));
        ovs_assert(slow->stages[NUMBER] == details[0]);
        ovs_assert(slow->stages[TOTAL] == slow->total_ns);
        ovs_assert(slow->stages[FIRST] + slow->stages[SECOND]
                   <= slow->total_ns);
        ovs_assert(!i || reading->slowest[i - 1]->total_ns >= slow->total_ns);
    }
}

struct writer {
    pthread_t thread;
    struct cost_account *account;
    unsigned int id;
    uint64_t n_events;
    struct latch *exit_latch;           /* If nonnull, wait for it to exit. */
};

static void *
writer_main(void *writer_)
{
    struct writer *writer = writer_;
    struct cost_recorder *recorder;
    char name[COST_NAME_MAX];

    snprintf(name, sizeof name, "writer%u", writer->id);
    recorder = cost_recorder_create(writer->account, name);
    for (uint64_t i = 0; i < writer->n_events; i++) {
        record(recorder, i % N_CLASSES, i);
        if (i % 1024 == 0) {
            ovsrcu_quiesce();
            if (writer->exit_latch && latch_is_set(writer->exit_latch)) {
                break;
            }
        }
    }
    if (writer->exit_latch && !latch_is_set(writer->exit_latch)) {
        latch_wait(writer->exit_latch);
        poll_block();
    }
    cost_recorder_destroy(recorder);
    return NULL;
}

static void
start_writers(struct writer *writers, size_t n, struct cost_account *account,
              uint64_t n_events, struct latch *exit_latch)
{
    for (size_t i = 0; i < n; i++) {
        writers[i].account = account;
        writers[i].id = i;
        writers[i].n_events = n_events;
        writers[i].exit_latch = exit_latch;
        writers[i].thread = ovs_thread_create("writer", writer_main,
                                              &writers[i]);
    }
}

static void
join_writers(struct writer *writers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        xpthread_join(writers[i].thread, NULL);
    }
}

/* Several threads write while one reads: counts never go back, and in the end
 * not one is missing. */
static void
check_concurrent_read(struct cost_account *account)
{
    enum { N_WRITERS = 4, N_EVENTS = 50000 };
    struct writer writers[N_WRITERS];
    uint64_t seen = 0;
    struct read *r;

    start_writers(writers, N_WRITERS, account, N_EVENTS, NULL);
    while (seen < N_WRITERS * N_EVENTS) {
        uint64_t n, sum = 0;

        r = read_kind(kinds);
        n = cost_block_events(r->sum);
        ovs_assert(n >= seen);
        seen = n;
        for (size_t i = 0; i < r->reading.n_threads; i++) {
            sum += cost_book_events(&r->reading.threads[i].book,
                                    COST_ALL_CLASSES);
        }
        ovs_assert(sum == n);
        check_slow(&r->reading);
        read_free(r);
        if (n % 2) {
            take_slowest(kinds);
        }
    }
    join_writers(writers, N_WRITERS);
    r = read_slowest(kinds);
    ovs_assert(cost_block_events(r->sum) == N_WRITERS * N_EVENTS);
    check_book(&r->reading.total);
    check_keys(&r->reading.total);
    ovs_assert(r->reading.n_slowest == COST_MAX_SLOWEST);
    check_slow(&r->reading);
    read_free(r);
}

/* Threads come and go, nothing gets lost, all end up as "exited". */
static void
check_thread_exit(struct cost_account *account)
{
    enum { N_ROUNDS = 50, N_WRITERS = 8, N_EVENTS = 100 };
    struct writer writers[N_WRITERS];
    struct read *r;

    for (int i = 0; i < N_ROUNDS; i++) {
        start_writers(writers, N_WRITERS, account, N_EVENTS, NULL);
        if (i % 3 == 0) {
            ovs_assert(read_count() <= (i + 1) * N_WRITERS * N_EVENTS);
        }
        join_writers(writers, N_WRITERS);
        if (i % 5 == 0) {
            ovs_assert(read_count() == (i + 1) * N_WRITERS * N_EVENTS);
        }
    }

    r = read_slowest(kinds);
    ovs_assert(r->reading.n_threads == 1);
    ovs_assert(!strcmp(r->reading.threads[0].name, "exited"));
    ovs_assert(r->reading.n_slowest == COST_MAX_SLOWEST);
    ovs_assert(cost_block_events(r->sum) == N_ROUNDS * N_WRITERS * N_EVENTS);
    check_book(&r->reading.total);
    check_keys(&r->reading.total);
    check_slow(&r->reading);
    read_free(r);
}

/* Two recorders of one name are two lines that add up. */
static void
check_same_name(struct cost_account *account)
{
    struct cost_recorder *recorders[2];
    struct read *r;

    for (int i = 0; i < 2; i++) {
        recorders[i] = cost_recorder_create(account, "same");
        for (int j = 0; j <= i; j++) {
            record(recorders[i], 0, j);
        }
    }
    r = read_kind(kinds);
    ovs_assert(r->reading.n_threads == 3);
    for (int i = 0; i < 2; i++) {
        ovs_assert(!strcmp(r->reading.threads[i].name, "same"));
        ovs_assert(cost_book_events(&r->reading.threads[i].book, 0) == i + 1);
    }
    ovs_assert(cost_block_events(r->sum) == 3);
    read_free(r);
}

/* Clearing while threads write: what is left is in order, and clearing after
 * they are done leaves nothing. */
static void
check_concurrent_clear(struct cost_account *account)
{
    enum { N_WRITERS = 4, N_EVENTS = 50000 };
    struct writer writers[N_WRITERS];
    struct read *r;

    start_writers(writers, N_WRITERS, account, N_EVENTS, NULL);
    for (int i = 0; i < 200; i++) {
        ovs_assert(cost_accounts_clear(kinds, 1, NULL) == 1);
        r = read_kind(kinds);
        ovs_assert(cost_block_events(r->sum) <= N_WRITERS * N_EVENTS);
        read_free(r);
    }
    join_writers(writers, N_WRITERS);
    cost_accounts_clear(kinds, 1, NULL);
    r = read_slowest(kinds);
    ovs_assert(!cost_block_events(r->sum) && !r->reading.n_slowest);
    read_free(r);
}

/* Moves the test clock by 'ns' whenever it is read for 'event'. */
static void
set_clock(const char *event, uint64_t ns)
{
    cost_clock_set_test(event, &ns, 1);
}

/* The time of an inner event is not part of the outer one. */
static void
check_nesting(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct cost_span outer, inner;
    struct cost_block *block;
    struct read *r;

    set_clock("event", 1000);
    cost_span_begin(&outer, recorder);
    cost_span_begin(&inner, recorder);
    cost_lap(&kind, FIRST);
    cost_span_end(&inner, SECOND, 1);
    cost_lap(&kind, FIRST);

    /* Cancelled ones do not count at all. */
    cost_span_begin(&inner, recorder);
    cost_span_cancel(&inner);
    ovs_assert(*cost_innermost_get() == &outer);
    cost_span_exclude(100);
    cost_span_end(&outer, SECOND, 0);
    ovs_assert(!*cost_innermost_get());

    r = read_slowest(kinds);
    ovs_assert(cost_block_events(r->sum) == 2);
    block = r->reading.total.classes[1];
    ovs_assert(cost_load(&block->hists[FIRST].sum) == 1000
               && cost_load(&block->hists[SECOND].sum) == 1000
               && cost_load(&block->hists[TOTAL].sum) == 2000);

    /* Seven readings after the first one, of which three are of the inner
     * events, in which 2000 and 1000 ns pass. */
    block = r->reading.total.classes[0];
    ovs_assert(cost_load(&block->hists[FIRST].sum) == 2000
               && cost_load(&block->hists[SECOND].sum) == 1900
               && cost_load(&block->hists[TOTAL].sum) == 3900);

    /* The slowest say how much that was. */
    ovs_assert(r->reading.n_slowest == 2);
    for (size_t i = 0; i < 2; i++) {
        const struct cost_slow *slow = r->reading.slowest[i];

        ovs_assert(slow->excluded_ns == (slow->class ? 0 : 3100));
    }
    read_free(r);
}

/* Returns how many seconds ago the first event of the log, the only one,
 * ended, as the log says. */
static int
log_age(void)
{
    int old_stderr = dup(STDERR_FILENO);
    FILE *stream = tmpfile();
    int hour, minute, second;
    char line[512];

    dup2(fileno(stream), STDERR_FILENO);
    cost_log();
    dup2(old_stderr, STDERR_FILENO);
    close(old_stderr);
    rewind(stream);
    ovs_assert(fgets(line, sizeof line, stream) && strstr(line, ", at "));
    fclose(stream);
    ovs_assert(sscanf(strstr(line, ", at "), ", at %d:%d:%d", &hour, &minute,
                      &second) == 3);
    return (time_wall() - (hour * 60 + minute) * 60 - second) % (24 * 3600);
}

/* Events whose points in time are given: one begins and one ends with a stage
 * that is not part of it, and one has no possible time. */
static void
check_points(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct smap settings = SMAP_INITIALIZER(&settings);
    const uint64_t hour_ns = UINT64_C(3600000000000);
    uint64_t counts[N_COUNTERS] = { [GOOD] = 3 };
    struct cost_span span;
    struct cost_block *block;
    uint64_t late_us;
    struct read *r;
    int late;

    smap_add(&settings, "cost-log-threshold-test", "1");
    cost_configure(&settings);
    smap_destroy(&settings);
    set_clock("event", 0);
    cost_span_open(&span, recorder, true, 1000);
    cost_span_lap(&span, APART, 1700);
    cost_span_lap(&span, FIRST, 1800);
    cost_span_lap(&span, SECOND, 2000);
    cost_span_lap(&span, FIRST, 2010);
    cost_entry_add(&span.entry, NUMBER, 7);
    cost_span_finish(&span, 2010, 2, counts);
    cost_span_open(&span, recorder, true, UINT64_C(1) << 62);
    cost_span_lap(&span, FIRST, 1800);
    cost_entry_add(&span.entry, NUMBER, 8);
    cost_span_finish(&span, 2000, 2, NULL);
    /* An hour passes between its end and this. */
    cost_span_open(&span, recorder, true, 1000);
    cost_span_lap(&span, SECOND, 3000);
    cost_span_lap(&span, APART, 3000 + hour_ns);
    cost_span_finish(&span, 3000 + hour_ns, 1, NULL);

    late = log_age();
    ovs_assert(late >= 3600 && late < 2 * 3600);
    r = read_slowest(kinds);
    block = r->reading.total.classes[1];
    ovs_assert(r->reading.n_slowest == 2);
    ovs_assert(r->reading.slowest[0]->total_ns == 2000);
    late_us = time_wall_usec() - r->reading.slowest[0]->when_us;
    ovs_assert(late_us >= hour_ns / 1000 && late_us < 2 * hour_ns / 1000);
    late_us = time_wall_usec() - cost_load(&block->max_us);
    ovs_assert(late_us >= hour_ns / 1000 && late_us < 2 * hour_ns / 1000);
    block = r->reading.total.classes[2];
    ovs_assert(cost_block_events(block) == 2);
    ovs_assert(cost_load(&block->counters[GOOD]) == 3);
    ovs_assert(cost_load(&block->hists[APART].sum) == 700
               && cost_load(&block->hists[FIRST].sum) == 110
               && cost_load(&block->hists[SECOND].sum) == 200
               && cost_load(&block->hists[NUMBER].sum) == 15
               && cost_load(&block->hists[TOTAL].sum) == 310
               && cost_hist_count(&block->hists[TOTAL]) == 1);
    read_free(r);
}


/* An event with a time, although what is excluded from it took longer than any
 * event does, as it seems when the clock changes. */
static void
check_excluded(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    const struct cost_slow *slow;
    struct cost_span span;
    struct read *r;

    set_clock("event", COST_CLOCK_MAX_NS + 1000);
    cost_span_begin(&span, recorder);
    cost_span_exclude(COST_CLOCK_MAX_NS + 1);
    cost_span_end(&span, SECOND, 0);

    r = read_slowest(kinds);
    slow = r->reading.slowest[0];
    ovs_assert(r->reading.n_slowest == 1);
    ovs_assert(slow->total_ns == 999 && slow->excluded_ns == 0);
    read_free(r);
}

/* Of the slowest events, none is missing, and there are no others. */
static void
check_slowest(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct read *r;

    for (uint64_t i = 0; i < 1000; i++) {
        record_time(recorder, i % N_CLASSES,
                    (i * 7919 % 1000 + 1) * 1000000);
    }
    r = read_slowest(kinds);
    ovs_assert(r->reading.n_slowest == COST_MAX_SLOWEST);
    for (size_t i = 0; i < COST_MAX_SLOWEST; i++) {
        ovs_assert(r->reading.slowest[i]->total_ns
                   == (1000 - i) * 1000000);
    }
    read_free(r);
}

/* Measures an event of 'recorder' whose stages take 'first' and 'second'.
 * Returns true if it was sampled. */
static bool
measure(struct cost_recorder *recorder, uint64_t first, uint64_t second)
{
    struct cost_span span;

    set_clock("other", first);
    cost_span_begin(&span, recorder);
    cost_lap(&other_kind, FIRST);
    set_clock("other", span.sampled ? second : first + second);
    cost_span_end(&span, SECOND, 0);
    return span.sampled && !span.entry.watched;
}

/* Of 16 events that follow one of the slowest, the stages are known if they
 * are among the slowest, too, and are not in the histograms. */
static void
check_watched(struct cost_account *unused OVS_UNUSED)
{
    struct cost_account *account = cost_account_create(&other_kind, "watched",
                                                       NULL);
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct cost_slow *const *slow;
    size_t n_sampled = 0;
    struct read *r;

    configure(true, COST_MAX_SAMPLE_INTERVAL);
    n_sampled += measure(recorder, 400, 600);
    n_sampled += measure(recorder, 400, 600);
    for (size_t i = 0; i < 15; i++) {
        n_sampled += measure(recorder, 1, 1);
    }
    n_sampled += measure(recorder, 3000, 4000);
    for (size_t i = 0; i < 20; i++) {
        n_sampled += measure(recorder, 1, 1);
    }
    n_sampled += measure(recorder, 2000, 3000);

    r = read_slowest(other_kinds);
    ovs_assert(cost_book_events(&r->reading.total, 0) == 39);
    ovs_assert(cost_hist_count(&r->sum->hists[TOTAL]) == 39);
    ovs_assert(cost_hist_count(&r->sum->hists[FIRST]) == n_sampled
               && cost_hist_count(&r->sum->hists[SECOND]) == n_sampled);
    slow = r->reading.slowest;
    ovs_assert(r->reading.n_slowest == 2);
    ovs_assert(slow[0]->total_ns == 7000 && slow[0]->stages[FIRST] == 3000
               && slow[0]->stages[SECOND] == 4000
               && slow[0]->known == (1u << FIRST | 1u << SECOND
                                     | 1u << TOTAL));
    ovs_assert(slow[1]->total_ns == 5000
               && (slow[1]->known == 1u << TOTAL || n_sampled));
    configure(true, COST_DEFAULT_SAMPLE_INTERVAL);
    read_free(r);
    cost_account_destroy(account);
}

/* All events are counted, whether they are timed or not, with their class and
 * what is counted of each, before and after a clear. */
static void
check_untimed(struct cost_account *unused OVS_UNUSED)
{
    static const struct {
        uint32_t class;
        size_t reason;
        uint64_t number;
    } events[] = {
        { 0, GOOD, 1 }, { 0, BAD, 1 }, { 0, BAD, 20 }, { 0, BAD, 0 },
        { N_CLASSES - 1, BAD, 2 }, { N_CLASSES + 3, BAD, 2 },
        { N_CLASSES + 3, BAD, 3 }, { 0, GOOD, 1 },
    };
    struct cost_account *account = cost_account_create(&reasons_kind,
                                                       "untimed", NULL);
    struct cost_recorder *recorder = cost_recorder_create(account, "main");

    for (int i = 0; i < 3; i++) {
        uint64_t counts[N_COUNTERS] = { [SENT] = 100 };
        struct cost_entry entry = { .counter = GOOD };
        struct cost_block **blocks;
        struct read *r;

        for (size_t j = 0; j < ARRAY_SIZE(events); j++) {
            cost_count_event(recorder, events[j].class, events[j].reason,
                             SENT, events[j].number);
        }
        cost_entry_add(&entry, TOTAL, 1000);
        cost_entry_add(&entry, NUMBER, 100);
        cost_record(recorder, &entry, counts, NULL);
        r = read_slowest(reasons_kinds);
        blocks = r->reading.total.classes;
        ovs_assert(cost_load(&blocks[0]->counters[GOOD]) == 3);
        ovs_assert(cost_load(&blocks[0]->counters[BAD]) == 3);
        ovs_assert(!blocks[1]);
        ovs_assert(!cost_load(&blocks[N_CLASSES - 1]->counters[GOOD]));
        ovs_assert(cost_load(&blocks[N_CLASSES - 1]->counters[BAD]) == 3);
        ovs_assert(cost_load(&r->sum->counters[SENT]) == 130);
        ovs_assert(cost_block_events(r->sum) == 9);
        ovs_assert(cost_hist_count(&r->sum->hists[NUMBER]) == 1
                   && cost_hist_count(&r->sum->hists[TOTAL]) == 1);
        ovs_assert(r->reading.n_slowest == 1);
        read_free(r);

        cost_accounts_clear(reasons_kinds, 1, NULL);
        if (i) {
            ovsrcu_quiesce();
        }
    }
    cost_account_destroy(account);
}

/* An event that began while accounting was off counts if it is on when the
 * event ends, and the next one does not if it is off again. */
static void
check_untimed_off(struct cost_account *unused OVS_UNUSED)
{
    struct cost_account *account = cost_account_create(&reasons_kind,
                                                       "untimed", NULL);
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct read *r;

    for (int i = 0; i < 3; i++) {
        configure(false, 1);
        if (cost_sample(recorder, 0)) {
            cost_pause(recorder);
        }
        configure(true, 1);
        cost_count_event(recorder, 0, GOOD, SENT, 1);
        configure(false, 1);
        for (int j = 0; j < 10; j++) {
            if (cost_sample(recorder, 0)) {
                cost_pause(recorder);
            }
            cost_count_event(recorder, 0, GOOD, SENT, 1);
        }
    }

    r = read_kind(reasons_kinds);
    ovs_assert(cost_block_events(r->sum) == 3);
    read_free(r);
    cost_account_destroy(account);
}

/* What is for an event of another kind is ignored. */
static void
check_other_kind(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct cost_span span;
    struct read *r;

    cost_span_begin(&span, recorder);
    cost_lap(&other_kind, FIRST);
    cost_outcome(&other_kind, BAD);
    cost_outcome(&kind, GOOD);
    cost_span_end(&span, SECOND, 0);
    cost_lap(&other_kind, FIRST);
    cost_outcome(&other_kind, BAD);

    r = read_kind(kinds);
    ovs_assert(!cost_hist_count(&r->sum->hists[FIRST]));
    ovs_assert(cost_load(&r->sum->counters[GOOD]) == 1);
    ovs_assert(!cost_load(&r->sum->counters[BAD]));
    read_free(r);
}

/* Of events that follow each other, the end of one may be the start of the
 * next. */
static void
check_next(struct cost_account *account)
{
    enum { N_EVENTS = 1000 };
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct cost_span outer, span;
    const struct cost_hist *hist;
    uint64_t now = 0;
    struct read *r;

    set_clock("event", 1000);
    cost_span_begin(&outer, recorder);
    for (int i = 0; i < N_EVENTS; i++) {
        now = i % 4 ? now : cost_span_now(&outer);
        cost_span_begin__(&span, recorder, true, now);
        if (i % 4 == 3) {
            cost_span_cancel(&span);
        } else {
            now = cost_span_now(&outer);
            cost_span_end__(&span, now, SECOND, 1);
        }
        ovs_assert(*cost_innermost_get() == &outer);
    }
    cost_span_end(&outer, SECOND, 0);

    r = read_kind(kinds);
    ovs_assert(cost_book_events(&r->reading.total, 0) == 1);
    hist = &r->reading.total.classes[1]->hists[TOTAL];
    ovs_assert(cost_hist_count(hist) == N_EVENTS * 3 / 4);
    ovs_assert(cost_load(&hist->min) == 1000 && cost_load(&hist->max) == 1000);

    /* One reading before the first event, one before each event that follows a
     * cancelled one, and one at the end. */
    hist = &r->reading.total.classes[0]->hists[TOTAL];
    ovs_assert(cost_load(&hist->sum) == (N_EVENTS / 4 + 1) * 1000);
    read_free(r);
}

/* Turning accounting off and on, also in the middle of an event. */
static void
check_off(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct cost_span outer, inner;

    record(recorder, 0, 1);
    configure(false, 1);
    record(recorder, 0, 2);
    cost_count(recorder, 0, BAD, 5);
    ovs_assert(read_count() == 1);

    /* Off, then on: the outer event is not counted. */
    cost_span_begin(&outer, recorder);
    configure(true, 1);
    cost_span_begin(&inner, recorder);
    cost_span_end(&inner, SECOND, 0);
    cost_lap(&kind, FIRST);
    cost_span_end(&outer, SECOND, 0);
    ovs_assert(read_count() == 2);

    /* On, then off: the outer event is, and what happens in an inner one is
     * taken for its own. */
    cost_span_begin(&outer, recorder);
    configure(false, 1);
    cost_span_begin(&inner, recorder);
    cost_outcome(&kind, BAD);
    cost_span_end(&inner, SECOND, 0);
    cost_span_end(&outer, SECOND, 0);
    ovs_assert(read_count() == 3);
    ovs_assert(!*cost_innermost_get());

    struct read *r = read_kind(kinds);

    ovs_assert(cost_load(&r->sum->counters[BAD]) == 2);
    read_free(r);
    configure(true, 1);
}

/* Only one event in N is sampled, every event is counted. */
static void
check_sample(struct cost_account *account)
{
    enum { N_EVENTS = 64000, INTERVAL = 16 };
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    uint64_t n_sampled;
    struct read *r;

    configure(true, INTERVAL);
    for (int i = 0; i < N_EVENTS; i++) {
        record(recorder, 0, i);
    }
    r = read_kind(kinds);
    ovs_assert(cost_hist_count(&r->sum->hists[TOTAL]) == N_EVENTS);

    /* 4,000 are expected, with a standard deviation of some 35. */
    n_sampled = cost_hist_count(&r->sum->hists[FIRST]);
    ovs_assert(n_sampled > 3500 && n_sampled < 4500);
    read_free(r);

    /* The next event is sampled as soon as every one is to be. */
    configure(true, 1);
    for (int i = 0; i < 100; i++) {
        record(recorder, 1, i);
    }
    r = read_kind(kinds);
    ovs_assert(cost_hist_count(&r->reading.total.classes[1]->hists[FIRST])
               == 100);
    read_free(r);
}

/* Stores in 'total' what accounts named 'name', or all and those that are
 * deleted, add up to.  Returns the number of accounts. */
static size_t
read_sum(const char *name, uint64_t *total, uint64_t *n_deleted)
{
    struct cost_accounts all;
    size_t n;

    *total = *n_deleted = 0;
    cost_accounts_get(kinds, 1, name, 0, &all);
    for (size_t i = 0; i < all.n; i++) {
        struct cost_reading reading;

        ovs_assert(cost_account_read(all.accounts[i], &all.from, &reading));
        *total += cost_book_events(&reading.total, COST_ALL_CLASSES);
        cost_reading_uninit(&reading);
    }
    for (size_t i = 0; i < all.n_kinds; i++) {
        *n_deleted += all.deleted[i].n_accounts;
        *total += cost_book_events(&all.deleted[i].book, COST_ALL_CLASSES);
    }
    n = all.n;
    cost_accounts_put(&all);
    return n;
}

/* Stores since when a sum of all accounts, and that of deleted ones, has
 * counted. */
static void
get_since(const struct cost_kind *const of[], long long int *total,
          long long int *deleted)
{
    struct cost_accounts all;

    cost_accounts_get(of, 1, NULL, 0, &all);
    *total = all.totals[0].since_us;
    *deleted = all.deleted[0].since_us;
    cost_accounts_put(&all);
}

/* Accounts that come and go while a thread stays: what they add up to never
 * falls. */
static void
check_accounts(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    long long int total, deleted, total_later, deleted_later;
    uint64_t sum, n_deleted;

    cost_accounts_clear(kinds, 1, NULL);
    for (unsigned int i = 0; i < 100; i++) {
        struct cost_account *other = cost_account_create(&kind, "x@other",
                                                         NULL);
        struct cost_recorder *other_recorder = cost_recorder_create(other,
                                                                    "main");

        record(other_recorder, 0, 0);
        record(recorder, 0, 0);
        record(other_recorder, 1, 0);
        ovs_assert(read_sum("other", &sum, &n_deleted) == 1);
        ovs_assert(sum == 2 && !n_deleted);
        ovs_assert(read_sum("x@other", &sum, &n_deleted) == 1);
        ovs_assert(read_sum("nobody", &sum, &n_deleted) == 0);
        ovs_assert(read_sum(NULL, &sum, &n_deleted) == 2);
        ovs_assert(sum == 3 * (i + 1) && n_deleted == i);
        cost_account_destroy(other);
        ovs_assert(read_sum(NULL, &sum, &n_deleted) == 1);
        ovs_assert(sum == 3 * (i + 1) && n_deleted == i + 1);
    }
    cost_account_destroy(NULL);
    ovs_assert(read_count() == 100);

    /* Clearing one leaves deleted ones alone, clearing all does not. */
    get_since(kinds, &total, &deleted);
    cost_accounts_clear(kinds, 1, "nobody");
    get_since(kinds, &total_later, &deleted_later);
    ovs_assert(total_later == total && deleted_later == deleted);
    cost_accounts_clear(kinds, 1, "test");
    read_sum(NULL, &sum, &n_deleted);
    ovs_assert(sum == 200 && n_deleted == 100);
    get_since(kinds, &total_later, &deleted_later);
    ovs_assert(total_later > total && deleted_later == deleted);
    cost_accounts_clear(kinds, 1, NULL);
    read_sum(NULL, &sum, &n_deleted);
    ovs_assert(sum == 0 && n_deleted == 0);
    get_since(kinds, &total, &deleted_later);
    ovs_assert(total > total_later && deleted_later > deleted);

    /* Clearing does so, too, when there are deleted ones only. */
    cost_account_destroy(cost_account_create(&other_kind, "other", NULL));
    get_since(other_kinds, &total, &deleted);
    ovs_assert(cost_accounts_clear(other_kinds, 1, NULL) == 0);
    get_since(other_kinds, &total_later, &deleted_later);
    ovs_assert(total_later > total && deleted_later > deleted);
}

/* Each clear is later than the one before it, even by less than the clock's
 * microsecond. */
static void
check_clears(struct cost_account *account OVS_UNUSED)
{
    enum { N_CLEARS = 10000 };
    long long int since_us[2];

    for (int i = 0; i < 2; i++) {
        struct read *r;

        for (int j = 0; j < N_CLEARS; j++) {
            cost_accounts_clear(kinds, 1, NULL);
        }
        r = read_kind(kinds);
        since_us[i] = r->reading.since_us;
        read_free(r);
    }
    ovs_assert(since_us[1] - since_us[0] >= N_CLEARS);
}

/* Returns true if what is recorded takes 'bytes' as soon as what is free has
 * been given back. */
static bool
memory_becomes(uint64_t bytes)
{
    for (int i = 0; i < 10000 && cost_memory_used() != bytes; i++) {
        xnanosleep(1000000);
    }
    return cost_memory_used() == bytes;
}

/* Returns what is recorded takes when what is free has been given back. */
static uint64_t
memory_settles(void)
{
    uint64_t used = 0;

    ovsrcu_synchronize();
    for (int i = 0; i < 100; i++) {
        if (used != cost_memory_used()) {
            used = cost_memory_used();
            i = 0;
        }
        xnanosleep(1000000);
    }
    return used;
}

/* What has not happened takes no memory, and what is gone gives it back. */
static void
check_memory(struct cost_account *account)
{
    struct cost_recorder *recorder;
    uint64_t empty, idle, busy;

    empty = memory_settles();   /* Of other tests, too. */
    recorder = cost_recorder_create(account, "main");
    idle = cost_memory_used();
    for (int i = 0; i < 1000; i++) {
        record(recorder, 0, i);
    }
    busy = cost_memory_used();
    ovs_assert(busy > idle);
    cost_accounts_clear(kinds, 1, NULL);
    ovs_assert(memory_becomes(idle));

    /* What exited threads have recorded takes some, too. */
    record(recorder, 0, 0);
    cost_recorder_destroy(recorder);
    ovs_assert(cost_memory_used() > empty);
    ovs_assert(read_count() == 1);
    cost_accounts_clear(kinds, 1, NULL);
    ovs_assert(memory_becomes(empty));
}

/* A list of reports that are on, and sample intervals of their own. */
static void
check_config(struct cost_account *account OVS_UNUSED)
{
    static const struct {
        const char *key;
        const char *value;
        uint32_t interval;
    } cases[] = {
        { "cost-accounting", "false", 0 },
        { "cost-accounting", "TRUE", 16 },
        { "cost-accounting", "", 0 },
        { "cost-accounting", "other", 0 },
        { "cost-accounting", "other, test", 16 },
        { "cost-accounting", "test", 16 },
        { "cost-sample-interval", "5", 5 },
        { "cost-sample-interval", "0", 16 },
        { "cost-sample-interval", "65537", 16 },
        { "cost-sample-interval-test", "7", 7 },
        { "cost-sample-interval-other", "7", 16 },
        { "cost-sample-interval-test", "x", 16 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct smap smap = SMAP_INITIALIZER(&smap);

        smap_add(&smap, cases[i].key, cases[i].value);
        cost_configure(&smap);
        ovs_assert(cost_sample_interval(&config) == cases[i].interval);
        smap_destroy(&smap);
    }

    struct smap smap = SMAP_INITIALIZER(&smap);

    smap_add(&smap, "cost-sample-interval", "1");
    smap_add(&smap, "cost-sample-interval-test", "8");
    cost_configure(&smap);
    ovs_assert(cost_sample_interval(&config) == 8);
    smap_destroy(&smap);
}

/* An event of check_windows(). */
struct event {
    uint64_t tick;                      /* The latest one before it. */
    uint64_t ns;
    bool stays;                         /* Its account is not destroyed. */
};

/* Checks that the numbers since 'tick', or all numbers if that is 0, which are
 * those of the last 'last_ms' milliseconds, are right. */
static void
check_window(const struct event *events, size_t n, long long int last_ms,
             uint64_t tick)
{
    uint64_t count = 0, sum = 0, min = UINT64_MAX, max = 0;
    struct cost_reading slow = { .n_slowest = 0 };
    const struct cost_hist *hist;
    struct cost_accounts all;
    struct cost_block *block;
    struct cost_book book;

    cost_accounts_get(kinds, 1, NULL, last_ms, &all);
    ovs_assert(all.from.number == tick);
    take_slowest(kinds);
    cost_book_init(&book, &kind);
    for (size_t i = 0; i < all.n; i++) {
        struct cost_reading reading;
        uint64_t n_events = 0;

        ovs_assert(cost_account_read(all.accounts[i], &all.from, &reading));
        ovs_assert(!tick || reading.elapsed_ms >= 0);
        for (size_t j = 0; j < reading.n_threads; j++) {
            n_events += cost_book_events(&reading.threads[j].book, 0);
        }
        ovs_assert(cost_book_events(&reading.total, 0) == n_events);
        cost_book_add(&book, &reading.total);
        if (!strcmp(reading.name, "test")) {
            slow = reading;
        } else {
            cost_reading_uninit(&reading);
        }
    }
    cost_book_add(&book, &all.deleted[0].book);

    for (size_t i = 0; i < n; i++) {
        size_t rank = 0;

        if (events[i].tick < tick) {
            continue;
        }
        count++;
        sum += events[i].ns;
        min = MIN(min, events[i].ns);
        max = MAX(max, events[i].ns);
        for (size_t j = 0; j < n && rank < COST_MAX_SLOWEST; j++) {
            rank += (events[j].stays && events[j].tick >= tick
                     && events[j].ns > events[i].ns);
        }
        if (events[i].stays && rank < COST_MAX_SLOWEST) {
            ovs_assert(rank < slow.n_slowest
                       && slow.slowest[rank]->total_ns == events[i].ns);
        }
    }
    block = cost_book_sum(&book, COST_ALL_CLASSES);
    hist = &block->hists[TOTAL];
    ovs_assert(cost_block_events(block) == count);
    ovs_assert(cost_load(&block->counters[GOOD]) == count);
    ovs_assert(cost_hist_count(hist) == count && cost_load(&hist->sum) == sum);
    if (count) {
        ovs_assert(cost_load(&hist->max) >= max
                   && cost_load(&hist->min) <= min);
        ovs_assert(cost_hist_bucket(cost_load(&hist->max))
                   == cost_hist_bucket(max));
        ovs_assert(cost_hist_bucket(cost_load(&hist->min))
                   == cost_hist_bucket(min));
    } else {
        ovs_assert(cost_book_is_empty(&book) && !slow.n_slowest);
    }
    cost_block_destroy(block);
    cost_book_uninit(&book);
    cost_reading_uninit(&slow);
    cost_accounts_put(&all);
}

/* The numbers of the last seconds or minutes are right while threads, accounts
 * and clears come and go, and so are the slowest events. */
static void
check_windows(struct cost_account *account)
{
    enum { N_STEPS = 2000, N_RECORDERS = 4 };
    static const int windows[] = { 1, 10, 60, 300, 900 };
    struct event *events = xmalloc(N_STEPS * 3 * sizeof *events);
    long long int ticks[N_STEPS + 1] = { 0 };
    struct cost_recorder *recorders[N_RECORDERS] = { NULL };
    struct cost_account *other = NULL;
    uint64_t latest = 0;
    size_t n = 0;

    timeval_stop();
    cost_accounts_clear(kinds, 1, NULL);
    for (unsigned int i = 0; i < N_STEPS; i++) {
        size_t r = random_range(N_RECORDERS);
        bool stays = r < N_RECORDERS / 2;

        timeval_warp(random_range(200) ? 3000 + random_range(2) * 7000
                     : 1000000);
        if (!latest || time_msec() - ticks[latest] >= 10000) {
            ticks[++latest] = time_msec();
        }
        cost_accounts_copy();
        if (random_range(200) == 0) {
            cost_accounts_clear(kinds, 1, NULL);
            n = 0;
        }

        if (!other) {
            other = cost_account_create(&kind, "x@other", NULL);
        }
        if (!recorders[r]) {
            recorders[r] = cost_recorder_create(stays ? account : other,
                                                "main");
        }
        /* Sometimes none for minutes. */
        for (unsigned int j = i % 500 < 400 ? random_range(4) : 0; j; j--) {
            events[n].tick = latest;
            events[n].ns = (1 + random_range(1000000)) * UINT64_C(8192) + n;
            events[n].stays = stays;
            record_time(recorders[r], 0, events[n++].ns);
        }
        if (random_range(3) == 0) {
            cost_recorder_destroy(recorders[r]);
            recorders[r] = NULL;
        }
        if (random_range(10) == 0) {
            cost_account_destroy(other);
            other = NULL;
            recorders[2] = recorders[3] = NULL;
        }

        if (i % 10 == 0) {
            check_window(events, n, 0, 0);
        }
        if (i % 3 == 0) {
            size_t w = random_range(ARRAY_SIZE(windows));
            uint64_t tick;

            for (tick = latest; tick; tick--) {
                if ((latest - tick < 8
                     || (tick % 6 == 0 && latest - tick < 102))
                    && time_msec() - ticks[tick] >= windows[w] * 1000) {
                    break;
                }
            }
            check_window(events, n, windows[w] * 1000, tick);
        }
        ovsrcu_quiesce();
    }
    cost_account_destroy(other);
    free(events);
}

/* If copies take too much, those of the oldest ticks are gone: the numbers of
 * the last minutes are right, but of fewer minutes. */
static void
check_window_limit(struct cost_account *unused OVS_UNUSED)
{
    enum { N_RECORDERS = 256, N_TICKS = 110 };
    struct cost_account *account = cost_account_create(&other_kind, "limit",
                                                       NULL);
    struct cost_recorder *recorders[N_RECORDERS];
    long long int least_ms = LLONG_MAX;
    uint64_t before;

    for (size_t i = 0; i < N_RECORDERS; i++) {
        recorders[i] = cost_recorder_create(account, "thread");
        for (uint64_t ns = 1; ns < COST_HIST_MAX_NS; ns += ns / 16 + 1) {
            struct cost_entry entry = { .counter = COST_NO_COUNTER };

            for (size_t k = FIRST; k < N_STAGES; k++) {
                cost_entry_add(&entry, k, ns);
            }
            cost_record(recorders[i], &entry, NULL, NULL);
        }
    }
    ovsrcu_quiesce();
    before = cost_memory_used();
    for (int tick = 0; tick < N_TICKS; tick++) {
        struct cost_reading reading;
        struct cost_accounts all;

        for (size_t i = 0; i < N_RECORDERS; i++) {
            record(recorders[i], 0, 0);
        }
        timeval_warp(COST_TICK_MS);
        cost_accounts_copy();
        ovs_assert(cost_memory_used() < before + COST_WINDOW_MAX * 5 / 4);

        cost_accounts_get(other_kinds, 1, "limit", 900000, &all);
        ovs_assert(cost_account_read(all.accounts[0], &all.from, &reading));
        if (all.from.number && reading.since_us == all.from.us) {
            ovs_assert(cost_book_events(&reading.total, 0) * COST_TICK_MS
                       == N_RECORDERS * reading.elapsed_ms);
            least_ms = MIN(least_ms, reading.elapsed_ms);
        }
        cost_reading_uninit(&reading);
        cost_accounts_put(&all);
        ovsrcu_quiesce();
    }
    ovs_assert(least_ms >= 10000 && least_ms < 900000);
    cost_account_destroy(account);
}

/* Of more accounts than are copied, those that are active have windows.  One
 * that becomes active has a window since it was copied first, and one that was
 * deleted is in no window that it was not copied for. */
static void
check_window_accounts(struct cost_account *unused OVS_UNUSED)
{
    enum { N_ACCOUNTS = 400, N_ACTIVE = 256 };
    struct cost_account *accounts[N_ACCOUNTS];
    struct cost_recorder *recorders[N_ACCOUNTS];
    struct cost_reading reading;
    struct cost_accounts all;

    set_clock("other", 1000);   /* Their times say which are active. */
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        char name[16];

        snprintf(name, sizeof name, "port%03"PRIuSIZE, i);
        accounts[i] = cost_account_create(&other_kind, name, NULL);
        recorders[i] = cost_recorder_create(accounts[i], "thread");
    }
    for (int tick = 0; tick < 4; tick++) {
        for (size_t i = 0; i < N_ACCOUNTS; i++) {
            size_t n = (i < N_ACTIVE ? 200
                        : tick == 3 && i == N_ACCOUNTS - 1 ? 1000 : 1);

            for (size_t j = 0; j < n; j++) {
                record(recorders[i], 0, 0);
            }
        }
        timeval_warp(COST_TICK_MS);
        cost_accounts_copy();
    }
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        record(recorders[i], 0, 0);
    }

    /* Since two ticks ago: one tick's events, and one more. */
    cost_accounts_get(other_kinds, 1, NULL, COST_TICK_MS, &all);
    ovs_assert(all.n == N_ACCOUNTS && all.from.number);
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        bool known = cost_account_read(all.accounts[i], &all.from, &reading);

        ovs_assert(known || (i >= N_ACTIVE && i != N_ACCOUNTS - 1));
        if (i < N_ACTIVE) {
            ovs_assert(cost_book_events(&reading.total, 0) == 201);
            ovs_assert(reading.since_us == all.from.us);
        } else if (i == N_ACCOUNTS - 1) {
            ovs_assert(cost_book_events(&reading.total, 0) == 1);
            ovs_assert(reading.since_us > all.from.us);
            ovs_assert(reading.n_threads == 2);
        }
        if (known) {
            cost_reading_uninit(&reading);
        }
    }
    cost_accounts_put(&all);

    /* One that is deleted can still be read by who has it already. */
    cost_accounts_get(other_kinds, 1, NULL, COST_TICK_MS, &all);
    cost_account_destroy(accounts[0]);
    ovs_assert(cost_account_read(all.accounts[0], &all.from, &reading));
    ovs_assert(cost_book_events(&reading.total, 0) == 201);
    ovs_assert(reading.n_threads == 1);
    ovs_assert(cost_book_events(&reading.threads[0].book, 0) == 201);
    cost_reading_uninit(&reading);
    cost_accounts_put(&all);
    cost_account_destroy(accounts[N_ACCOUNTS - 1]);
    cost_account_destroy(accounts[N_ACTIVE]);
    cost_accounts_get(other_kinds, 1, NULL, COST_TICK_MS, &all);
    ovs_assert(cost_book_events(&all.deleted[0].book, 0) >= 201);
    ovs_assert(cost_book_events(&all.deleted[0].book, 0) <= 204);
    cost_accounts_put(&all);
    for (size_t i = 1; i < N_ACCOUNTS - 1; i++) {
        if (i != N_ACTIVE) {
            cost_account_destroy(accounts[i]);
        }
    }
}

enum { N_COPIED = 100000 };

static void *
copied_main(void *recorder)
{
    for (uint64_t i = 0; i < N_COPIED; i++) {
        record_time(recorder, i % N_CLASSES, i * 7919 % N_COPIED);
        if (i % 128 == 0) {
            ovsrcu_quiesce();
        }
    }
    return NULL;
}

/* Copying while threads write loses nothing, in particular none of the
 * slowest. */
static void
check_concurrent_copy(struct cost_account *account)
{
    enum { N_WRITERS = 3 };
    pthread_t threads[N_WRITERS];
    uint64_t n = 0;
    struct read *r;

    cost_accounts_clear(kinds, 1, NULL);
    for (size_t i = 0; i < N_WRITERS; i++) {
        threads[i] = ovs_thread_create(
            "writer", copied_main, cost_recorder_create(account, "writer"));
    }
    while (n < N_WRITERS * N_COPIED) {
        struct cost_accounts all;

        timeval_warp(COST_TICK_MS);
        cost_accounts_copy();
        r = read_kind(kinds);
        n = cost_block_events(r->sum);
        read_free(r);

        cost_accounts_get(kinds, 1, NULL, 1, &all);
        for (size_t i = 0; i < all.n; i++) {
            struct cost_reading reading;

            ovs_assert(cost_account_read(all.accounts[i], &all.from,
                                         &reading));
            ovs_assert(cost_book_events(&reading.total, COST_ALL_CLASSES)
                       <= N_WRITERS * N_COPIED);
            cost_reading_uninit(&reading);
        }
        cost_accounts_put(&all);
        ovsrcu_quiesce();
    }
    for (size_t i = 0; i < N_WRITERS; i++) {
        xpthread_join(threads[i], NULL);
    }
    r = read_slowest(kinds);
    ovs_assert(r->reading.n_slowest == COST_MAX_SLOWEST);
    for (size_t i = 0; i < COST_MAX_SLOWEST; i++) {
        ovs_assert(r->reading.slowest[i]->total_ns
                   == N_COPIED - 1 - i / N_WRITERS);
    }
    read_free(r);
}

/* Numbers that a thread has had are subtracted from those that it has. */
static void
check_old_numbers(struct cost_account *account)
{
    static const uint64_t ns[] = { 5000, 1000000, 70 };
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct cost_book books[ARRAY_SIZE(ns)];
    struct cost_block *block;

    /* A reading after each event, which is of a class of its own, too. */
    for (size_t i = 0; i < ARRAY_SIZE(ns); i++) {
        for (size_t class = 0; class <= 1; class++) {
            struct cost_entry entry = { .class = class * i, .counter = GOOD };

            cost_entry_add(&entry, TOTAL, ns[i]);
            cost_entry_add(&entry, NUMBER, i * 4);
            cost_record(recorder, &entry, NULL, NULL);
        }
        cost_book_init(&books[i], &kind);
        cost_recorder_read(recorder, &books[i]);
    }

    /* The highest time has not changed since the second one: it is known to
     * the bucket.  The lowest one has changed. */
    cost_book_subtract(&books[2], &books[1], 0);
    ovs_assert(!books[2].classes[1]);
    ovs_assert(cost_book_events(&books[2], 0) == 1);
    ovs_assert(cost_book_events(&books[2], 2) == 1);
    block = books[2].classes[0];
    ovs_assert(cost_load(&block->hists[TOTAL].sum) == 70);
    ovs_assert(cost_load(&block->hists[TOTAL].min) == 70);
    ovs_assert(cost_load(&block->hists[TOTAL].max)
               == cost_hist_edges[cost_hist_bucket(70)]);
    ovs_assert(cost_load(&block->hists[NUMBER].sum) == 8
               && cost_load(&block->hists[NUMBER].max) == 8);
    ovs_assert(cost_load(&block->counters[GOOD]) == 1);
    ovs_assert(cost_load(&block->max_us));
    cost_book_subtract(&books[1], &books[1], UINT64_MAX);
    ovs_assert(cost_book_is_empty(&books[1]));
    for (size_t i = 0; i < ARRAY_SIZE(ns); i++) {
        cost_book_uninit(&books[i]);
    }
}

/* What a thread or account leaves while a tick is made counts once.  Must be
 * the last test, as it makes ticks of its own. */
static void
check_window_pass(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct cost_tick ticks[] = {
        { .number = 1000000 }, { .number = 1000001 },
    };
    struct cost_book books[ARRAY_SIZE(ticks)];
    const int owner = 0, heir = 0;

    for (size_t i = 0; i < ARRAY_SIZE(ticks); i++) {
        record(recorder, 0, i);
        cost_book_init(&books[i], &kind);
        cost_recorder_read(recorder, &books[i]);
        cost_tick_begin(&ticks[i]);
        if (!i) {
            cost_window_copy(&owner, &books[i]);
        }
    }
    cost_window_pass(&owner, &heir, 0, &books[1]);
    cost_window_copy(&heir, &books[1]);
    for (size_t i = 0; i < ARRAY_SIZE(ticks); i++) {
        struct cost_book window;

        cost_book_init(&window, &kind);
        cost_book_add(&window, &books[1]);
        ovs_assert(cost_window_subtract(&heir, false, &ticks[i], &window));
        ovs_assert(cost_book_events(&window, COST_ALL_CLASSES) == 1 - i);
        cost_book_uninit(&window);
    }
    cost_window_forget(&owner);
    ovs_assert(!cost_window_subtract(&owner, true, &ticks[0], &books[0]));

    /* Numbers that are repeated replace those that were passed meanwhile. */
    ovs_assert(cost_window_repeat(&heir));
    cost_window_forget(&heir);
    ovs_assert(!cost_window_subtract(&heir, true, &ticks[0], &books[0]));
    for (size_t i = 0; i < ARRAY_SIZE(ticks); i++) {
        cost_book_uninit(&books[i]);
    }
}

static struct cost_account *exiting;

static void
take_exiting(void)
{
    cost_account_take_slowest(exiting);
}

/* What a thread that exits has of the slowest events while a tick begins is
 * kept, also if all events before were slower. */
static void
check_exit_in_tick(struct cost_account *unused OVS_UNUSED)
{
    static const uint64_t times[] = { 9000, 8000, 0, 0, 0, 5000 };
    struct cost_recorder *recorder;
    struct cost_reading reading;
    struct cost_accounts all;

    exiting = cost_account_create(&other_kind, "exiting", NULL);
    recorder = cost_recorder_create(exiting, "main");
    timeval_stop();
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        if (times[i]) {
            record_time(recorder, 0, times[i] << 20);
        }
        timeval_warp(i ? COST_TICK_MS : 0);
        config.refresh = i == ARRAY_SIZE(times) - 1 ? take_exiting : NULL;
        cost_accounts_copy();
    }
    config.refresh = NULL;

    cost_accounts_get(other_kinds, 1, NULL, COST_TICK_MS * 3 / 2, &all);
    ovs_assert(cost_account_read(all.accounts[0], &all.from, &reading));
    ovs_assert(reading.n_slowest == 1
               && reading.slowest[0]->total_ns == times[5] << 20);
    cost_reading_uninit(&reading);
    cost_accounts_put(&all);
    cost_account_destroy(exiting);
}

/* A threshold of the log applies after a tick, also to accounts that are not
 * copied and have slower events. */
static void
check_log_threshold(struct cost_account *unused OVS_UNUSED)
{
    enum { N_ACCOUNTS = 300 };
    struct smap settings = SMAP_INITIALIZER(&settings);
    struct cost_account *accounts[N_ACCOUNTS];
    struct cost_recorder *recorders[N_ACCOUNTS];
    uint64_t n_slow = 0;
    struct cost_accounts all;

    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        accounts[i] = cost_account_create(&other_kind, "account", NULL);
        recorders[i] = cost_recorder_create(accounts[i], "thread");
    }
    for (int step = 0; step < 2; step++) {
        for (size_t i = 0; i < N_ACCOUNTS; i++) {
            for (int j = 0; j < 2; j++) {
                record_time(recorders[i], 0, step ? 20000 : 100000);
            }
        }
        smap_replace(&settings, "cost-log-threshold-test", "10");
        cost_configure(&settings);
        timeval_warp(COST_TICK_MS);
        cost_accounts_copy();
        ovsrcu_quiesce();
    }
    cost_accounts_get(other_kinds, 1, NULL, 0, &all);
    for (size_t i = 0; i < all.n; i++) {
        struct cost_reading reading;

        ovs_assert(cost_account_read(all.accounts[i], &all.from, &reading));
        n_slow += cost_load(&reading.total.classes[0]->n_slow);
        cost_reading_uninit(&reading);
    }
    cost_accounts_put(&all);
    ovs_assert(n_slow == 2 * N_ACCOUNTS);
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        cost_account_destroy(accounts[i]);
    }
    smap_destroy(&settings);
}

/* Of a sum, the time of day is that of the highest maximum, if it is known. */
static void
check_max_time(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct cost_book books[2], sum;

    for (size_t i = 0; i < ARRAY_SIZE(books); i++) {
        record_time(recorder, 0, 2000 - 1000 * i);
        cost_book_init(&books[i], &kind);
        cost_recorder_read(recorder, &books[i]);
        cost_accounts_clear(kinds, 1, NULL);
    }
    cost_store(&books[0].classes[0]->max_us, 0);
    cost_book_init(&sum, &kind);
    cost_book_add(&sum, &books[0]);
    cost_book_add(&sum, &books[1]);
    ovs_assert(cost_load(&sum.classes[0]->total->max) == 2000);
    ovs_assert(!cost_load(&sum.classes[0]->max_us));
    cost_book_uninit(&sum);
    for (size_t i = 0; i < ARRAY_SIZE(books); i++) {
        cost_book_uninit(&books[i]);
    }
}

static void
run_check(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static void (*const checks[])(struct cost_account *) = {
        check_concurrent_read, check_thread_exit, check_same_name,
        check_concurrent_clear, check_nesting, check_points, check_excluded,
        check_slowest, check_watched, check_untimed, check_untimed_off,
        check_other_kind, check_next, check_off, check_sample,
        check_accounts, check_clears, check_memory, check_config,
        check_old_numbers, check_windows, check_concurrent_copy,
        check_window_limit, check_window_accounts, check_log_threshold,
        check_exit_in_tick, check_max_time, check_window_pass,
    };

    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        struct cost_account *account
            = cost_account_create(&kind, "test", NULL);

        configure(true, 1);
        checks[i](account);
        cost_clock_set_test(NULL, NULL, 0);
        cost_account_destroy(account);
    }
    printf("ok\n");
}


/* Prints what accounting for one event takes, in nanoseconds, the clock
 * included, and what reading the clock takes. */
static void
run_benchmark(struct ovs_cmdl_context *ctx)
{
    int n = ctx->argc > 1 ? atoi(ctx->argv[1]) : 10000000;
    struct cost_account *account = cost_account_create(&kind, "test", NULL);
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    static const struct {
        const char *name;
        bool enabled;
        int sample_interval;
    } modes[] = {
        { "off", false, 1 },
        { "on, default sample", true, COST_DEFAULT_SAMPLE_INTERVAL },
        { "on, every sample", true, 1 },
    };
    volatile uint64_t sink;
    long long int start;

    if (n < 1) {
        ovs_fatal(0, "\"%s\" is not a positive number", ctx->argv[1]);
    }

    start = time_usec();
    for (int i = 0; i < n; i++) {
        sink = cost_clock_now("event", 0);
    }
    (void) sink;
    printf("clock (%s): %.2f ns\n", cost_clock_name(),
           (time_usec() - start) * 1e3 / n);

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        configure(modes[i].enabled, modes[i].sample_interval);
        start = time_usec();
        for (int j = 0; j < n; j++) {
            record(recorder, 0, j);
        }
        printf("event of 2 stages, %s: %.2f ns\n", modes[i].name,
               (time_usec() - start) * 1e3 / n);
    }

    cost_account_destroy(account);
}

static const struct ovs_cmdl_command commands[] = {
    { "check", NULL, 0, 0, run_check, OVS_RO },
    { "benchmark", "[n]", 0, 1, run_benchmark, OVS_RO },
    { NULL, NULL, 0, 0, NULL, OVS_RO },
};

static void
test_cost_main(int argc, char *argv[])
{
    struct ovs_cmdl_context ctx = {
        .argc = argc - optind,
        .argv = argv + optind,
    };

    set_program_name(argv[0]);
    ovs_cmdl_run_command(&ctx, commands);
}

OVSTEST_REGISTER("test-cost", test_cost_main);
