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
#undef NDEBUG
#include "cost.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "command-line.h"
#include "cost-memory.h"
#include "coverage.h"
#include "latch.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "ovstest.h"
#include "smap.h"
#include "timeval.h"
#include "util.h"

enum { FIRST, SECOND, NUMBER, TOTAL, N_STAGES };
enum { GOOD, BAD, N_COUNTERS };
enum { N_CLASSES = 3 };
#define DETAILS_SUM 1000000000          /* Of the details of any event. */

static const char *const stages[] = { "first", "second", "number", "total" };
static const char *const counters[] = { "good", "bad" };

static void
format_class(size_t class, struct ds *s)
{
    ds_put_format(s, "class%"PRIuSIZE, class);
}

static struct cost_config config
    = COST_CONFIG_INITIALIZER("test", COST_DEFAULT_SPLIT_INTERVAL, NULL);

/* What all kinds of events have in common. */
#define KIND(NAME, N_SLOWEST)                   \
    .name = NAME,                               \
    .config = &config,                          \
    .stages = stages,                           \
    .n_stages = N_STAGES,                       \
    .values = 1 << NUMBER,                      \
    .counters = counters,                       \
    .n_counters = N_COUNTERS,                   \
    .n_classes = N_CLASSES,                     \
    .format_class = format_class,               \
    .n_slowest = N_SLOWEST,                     \
    .n_details = 2

static const struct cost_kind kind = {
    KIND("event", COST_MAX_SLOWEST),
    .n_pending = 128,
    .typed_names = true,
};
static const struct cost_kind *const kinds[] = { &kind };

/* Every event is added to the histograms at once. */
static const struct cost_kind direct_kind = {
    KIND("direct", COST_MAX_SLOWEST),
};
static const struct cost_kind *const direct_kinds[] = { &direct_kind };

/* Events with a tally. */
static const uint64_t tally_edges[] = { 0, 1, 2, 3 };
static const struct cost_hist_layout tally_layout = {
    .edges = tally_edges,
    .n_edges = ARRAY_SIZE(tally_edges),
    .linear = true,
};
static const struct cost_kind tally_kind = {
    KIND("tally", 2),
    .n_tally_rows = 1,
    .tally_stage = NUMBER,
    .tally_layout = &tally_layout,
};
static const struct cost_kind *const tally_kinds[] = { &tally_kind };

static const struct cost_kind rows_kind = {
    KIND("rows", 2),
    .n_tally_rows = 2,
    .tally_stage = NUMBER,
    .tally_layout = &tally_layout,
};
static const struct cost_kind *const rows_kinds[] = { &rows_kind };

static void
configure(bool enabled, int split_interval)
{
    struct smap settings = SMAP_INITIALIZER(&settings);

    smap_add(&settings, "cost-accounting", enabled ? "true" : "false");
    smap_add_format(&settings, "cost-split-interval", "%d", split_interval);
    cost_configure(&settings);
    smap_destroy(&settings);
}

static void
get_details(uint64_t *details, const void *aux, size_t n)
{
    const uint64_t *number = aux;

    details[0] = *number;
    details[1] = n - *number;
}

/* Records one event of 'class', the 'number'th. */
static void
record(struct cost_recorder *recorder, size_t class, uint64_t number)
{
    struct cost_timer timer;

    cost_timer_init(&timer);
    cost_timer_start(&timer, recorder, 0);
    cost_timer_mark(recorder->kind, FIRST);
    cost_timer_count(recorder->kind, number % 2 ? BAD : GOOD);
    cost_event_add(&timer.event, NUMBER, number);
    cost_timer_stop(&timer, SECOND, class, get_details, &number, DETAILS_SUM);
}

/* Reads the only account of 'kinds_'. */
static struct cost_account_snapshot *
read_kind(const struct cost_kind *const kinds_[])
{
    struct cost_account_snapshot *snap = xmalloc(sizeof *snap);
    struct cost_accounts all;

    cost_accounts_get(kinds_, 1, NULL, &all);
    ovs_assert(all.n == 1);
    cost_account_read(all.accounts[0], true, snap);
    cost_accounts_put(&all);
    return snap;
}

static struct cost_account_snapshot *
read_account(void)
{
    return read_kind(kinds);
}

static void
snapshot_free(struct cost_account_snapshot *snap)
{
    cost_account_snapshot_uninit(snap);
    free(snap);
}

static uint64_t
read_count(void)
{
    struct cost_account_snapshot *snap = read_account();
    uint64_t n = cost_snapshot_count(&snap->total, COST_ALL_CLASSES);

    snapshot_free(snap);
    return n;
}

static size_t
read_n_threads(void)
{
    struct cost_account_snapshot *snap = read_account();
    size_t n = snap->n_threads - 1;     /* Without "exited". */

    snapshot_free(snap);
    return n;
}

/* Whatever a reader sees at any time must be in order. */
static void
check_snapshot(const struct cost_snapshot *snap)
{
    for (size_t class = 0; class < N_CLASSES; class++) {
        struct cost_hist_snapshot first, second, number, total;
        uint64_t n = cost_snapshot_count(snap, class);

        cost_snapshot_stage(snap, class, FIRST, &first);
        cost_snapshot_stage(snap, class, SECOND, &second);
        cost_snapshot_stage(snap, class, NUMBER, &number);
        cost_snapshot_stage(snap, class, TOTAL, &total);
        ovs_assert(first.count == n && second.count == n && number.count == n
                   && total.count == n);
        ovs_assert(cost_snapshot_counter(snap, class, GOOD)
                   + cost_snapshot_counter(snap, class, BAD) == n);

        /* Each conversion to nanoseconds rounds down. */
        ovs_assert(first.sum + second.sum <= total.sum);
        ovs_assert(total.sum - first.sum - second.sum <= 2 * n);
    }
    for (size_t i = 0; i < snap->n_slowest; i++) {
        const struct cost_slow_event *event = &snap->slowest[i];

        ovs_assert(event->details[0] + event->details[1] == DETAILS_SUM);
        ovs_assert(event->marked == (1 << FIRST | 1 << SECOND | 1 << NUMBER));
        ovs_assert(event->stages[NUMBER] == event->details[0]);
        ovs_assert(event->stages[FIRST] + event->stages[SECOND]
                   <= event->total_ns);
        ovs_assert(!i || snap->slowest[i - 1].total_ns >= event->total_ns);
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
    char name[COST_THREAD_NAME_MAX];

    snprintf(name, sizeof name, "writer%u", writer->id);
    recorder = cost_recorder_get(writer->account, name);
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
    cost_recorder_release(recorder);
    return NULL;
}

static void
start_writers(struct writer *writers, size_t n, struct cost_account *account,
              uint64_t n_events)
{
    for (size_t i = 0; i < n; i++) {
        writers[i].account = account;
        writers[i].id = i;
        writers[i].n_events = n_events;
        writers[i].exit_latch = NULL;
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

/* Several threads write while one reads: every reading is in order, counts
 * never go back, and in the end not one is missing. */
static void
check_concurrent_read(struct cost_account *account)
{
    enum { N_WRITERS = 4, N_EVENTS = 50000 };
    struct writer writers[N_WRITERS];
    uint64_t seen = 0;

    start_writers(writers, N_WRITERS, account, N_EVENTS);
    while (seen < N_WRITERS * N_EVENTS) {
        struct cost_account_snapshot *snap = read_account();
        uint64_t n = cost_snapshot_count(&snap->total, COST_ALL_CLASSES);
        uint64_t sum = 0;

        ovs_assert(n >= seen);
        seen = n;
        for (size_t i = 0; i < snap->n_threads; i++) {
            check_snapshot(&snap->threads[i]);
            sum += cost_snapshot_count(&snap->threads[i], COST_ALL_CLASSES);
        }
        ovs_assert(sum == n);
        check_snapshot(&snap->total);
        snapshot_free(snap);
    }
    join_writers(writers, N_WRITERS);
    ovs_assert(read_count() == N_WRITERS * N_EVENTS);
}

/* Threads come and go, nothing gets lost, all end up as "exited", unless they
 * are there again under the same name. */
static void
check_thread_exit(struct cost_account *account)
{
    enum { N_ROUNDS = 50, N_WRITERS = 8, N_EVENTS = 100 };
    struct writer writers[N_WRITERS];

    for (int i = 0; i < N_ROUNDS; i++) {
        start_writers(writers, N_WRITERS, account, N_EVENTS);
        if (i % 3 == 0) {
            ovs_assert(read_count() <= (i + 1) * N_WRITERS * N_EVENTS);
        }
        join_writers(writers, N_WRITERS);
        if (i % 5 == 0) {
            ovs_assert(read_count() == (i + 1) * N_WRITERS * N_EVENTS);
        }
    }

    struct cost_account_snapshot *snap = read_account();

    ovs_assert(snap->n_threads == 1);
    ovs_assert(!strcmp(snap->threads[0].thread, "exited"));
    ovs_assert(snap->total.n_slowest == COST_MAX_SLOWEST);
    ovs_assert(cost_snapshot_count(&snap->total, COST_ALL_CLASSES)
               == N_ROUNDS * N_WRITERS * N_EVENTS);
    check_snapshot(&snap->total);
    snapshot_free(snap);
}

/* Clearing while threads write: what is left is in order, and clearing after
 * they are done leaves nothing. */
static void
check_concurrent_clear(struct cost_account *account)
{
    enum { N_WRITERS = 4, N_EVENTS = 50000 };
    struct writer writers[N_WRITERS];

    start_writers(writers, N_WRITERS, account, N_EVENTS);
    for (int i = 0; i < 200; i++) {
        struct cost_account_snapshot *snap;

        ovs_assert(cost_accounts_clear(kinds, 1, NULL) == 1);
        snap = read_account();
        check_snapshot(&snap->total);
        snapshot_free(snap);
    }
    join_writers(writers, N_WRITERS);
    cost_accounts_clear(kinds, 1, NULL);
    ovs_assert(read_count() == 0);
}

/* The time of an inner event is not part of the outer one: whatever else the
 * machine does meanwhile, there is no more of it than of all of them. */
static void
check_nesting(struct cost_account *account)
{
    uint64_t all, all_ns, cancelled, inner_total_ns;
    struct cost_account_snapshot *snap;
    struct cost_hist_snapshot hist;
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    struct cost_timer outer, inner;
    const uint64_t inner_ns = 20000000;

    all = cost_clock_now("event");
    cost_timer_init(&outer);
    cost_timer_init(&inner);
    cost_timer_start(&outer, recorder, 0);
    cost_timer_start(&inner, recorder, 0);
    xnanosleep(inner_ns);
    cost_timer_mark(&kind, FIRST);
    cost_timer_stop(&inner, SECOND, 1, NULL, NULL, 0);
    cost_timer_mark(&kind, FIRST);

    /* Cancelled ones do not count at all. */
    cost_timer_start(&inner, recorder, 0);
    cancelled = cost_clock_now("event");
    xnanosleep(inner_ns);
    cancelled = cost_clock_now("event") - cancelled;
    cost_timer_cancel(&inner);
    cost_timer_stop(&outer, SECOND, 0, NULL, NULL, 0);
    ovs_assert(!cost_thread_get()->timer);
    all = cost_clock_now("event") - all;

    /* The clock may have been calibrated since. */
    all_ns = cost_clock_ns(all - cancelled) + inner_ns / 10;

    snap = read_account();
    ovs_assert(cost_snapshot_count(&snap->total, 0) == 1);
    ovs_assert(cost_snapshot_count(&snap->total, 1) == 1);
    cost_snapshot_stage(&snap->total, 1, TOTAL, &hist);
    ovs_assert(hist.min >= inner_ns * 99 / 100);
    inner_total_ns = hist.sum;
    cost_snapshot_stage(&snap->total, 0, TOTAL, &hist);
    ovs_assert(hist.sum + inner_total_ns <= all_ns);
    cost_snapshot_stage(&snap->total, 0, FIRST, &hist);
    ovs_assert(hist.sum + inner_total_ns <= all_ns);

    /* The slowest say how much that was. */
    ovs_assert(snap->total.n_slowest == 2);
    for (size_t i = 0; i < 2; i++) {
        const struct cost_slow_event *event = &snap->total.slowest[i];

        ovs_assert(event->class == 0 ? event->excluded_ns >= 2 * inner_ns
                   : !event->excluded_ns);
    }
    snapshot_free(snap);
}

/* Records an event that was measured without a timer. */
static void
record_event(struct cost_recorder *recorder, const uint64_t *counts)
{
    struct cost_event event = {
        .total = 1000,
        .marked = 1 << SECOND | 1 << NUMBER,
        .counter = BAD,
        .counts = counts,
        .stages = { [SECOND] = 250, [NUMBER] = 250 },
    };
    uint64_t number = 250;
    struct cost_details details = { get_details, &number, DETAILS_SUM };

    cost_record(recorder, 2, &event, &details);
}

/* Events that were measured without a timer are recorded as they are, whether
 * they are kept back at first or not. */
static void
check_record(struct cost_account *account)
{
    struct cost_account *direct = cost_account_create(&direct_kind, "direct",
                                                      NULL);
    struct cost_recorder *recorders[] = {
        cost_recorder_get(account, "main"),
        cost_recorder_get(direct, "main"),
    };
    const uint64_t counts[N_COUNTERS] = { [GOOD] = 3 };

    for (size_t i = 0; i < ARRAY_SIZE(recorders); i++) {
        struct cost_account_snapshot *snap;
        struct cost_hist_snapshot hist;

        for (int j = 0; j < 1000; j++) {
            record_event(recorders[i], j == 500 ? counts : NULL);
        }
        snap = read_kind(i ? direct_kinds : kinds);
        cost_snapshot_stage(&snap->total, 2, TOTAL, &hist);
        ovs_assert(hist.count == 1000 && hist.min == cost_clock_ns(1000)
                   && hist.max == hist.min && hist.sum == 1000 * hist.min
                   && hist.sum_sq.u64.lo == hist.sum * hist.min
                   && !hist.sum_sq.u64.hi);
        cost_snapshot_stage(&snap->total, 2, FIRST, &hist);
        ovs_assert(!hist.count);
        cost_snapshot_stage(&snap->total, 2, SECOND, &hist);
        ovs_assert(hist.count == 1000 && hist.min == cost_clock_ns(250)
                   && hist.max == hist.min && hist.sum == 1000 * hist.min);
        cost_snapshot_stage(&snap->total, 2, NUMBER, &hist);
        ovs_assert(hist.count == 1000 && hist.min == 250 && hist.max == 250
                   && hist.sum == 250000);
        ovs_assert(cost_snapshot_count(&snap->total, 2) == 1000);
        ovs_assert(cost_snapshot_counter(&snap->total, 2, BAD) == 1000);
        ovs_assert(cost_snapshot_counter(&snap->total, 2, GOOD) == 3);
        ovs_assert(snap->total.n_slowest == COST_MAX_SLOWEST);
        for (size_t j = 0; j < snap->total.n_slowest; j++) {
            const struct cost_slow_event *slow = &snap->total.slowest[j];

            ovs_assert(slow->marked == (1 << SECOND | 1 << NUMBER)
                       && slow->stages[SECOND] == cost_clock_ns(250)
                       && slow->stages[NUMBER] == 250
                       && slow->details[0] == 250);
        }
        snapshot_free(snap);
    }
    cost_account_destroy(direct);
}

/* Of the slowest events, none is missing, and there are no others. */
static void
check_slowest(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    struct cost_account_snapshot *snap;

    for (uint64_t i = 0; i < 1000; i++) {
        struct cost_event event;

        cost_event_init(&event);
        event.total = (i * 7919 % 1000 + 1) * 1000000;
        cost_record(recorder, i % N_CLASSES, &event, NULL);
    }
    snap = read_account();
    ovs_assert(snap->total.n_slowest == COST_MAX_SLOWEST);
    for (size_t i = 0; i < COST_MAX_SLOWEST; i++) {
        ovs_assert(snap->total.slowest[i].total_ns
                   == cost_clock_ns((1000 - i) * 1000000));
    }
    snapshot_free(snap);
}

/* Tallies are exact, whether an event is timed or not. */
static void
check_tally(struct cost_account *unused OVS_UNUSED)
{
    static const uint64_t numbers[] = { 3, 0, 3, 4, 1, 100 };
    struct cost_account *account = cost_account_create(&tally_kind, "tally",
                                                       NULL);
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    struct cost_account_snapshot *snap;
    struct cost_hist_snapshot hist;

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        struct cost_event event;

        for (int j = 0; j < 10; j++) {
            cost_recorder_tally(recorder, i % 2, GOOD, numbers[i], 3);
        }
        cost_event_init(&event);
        event.counter = GOOD;
        cost_event_add(&event, NUMBER, numbers[i]);
        if (i >= 3) {
            event.total = 1000 * i;
        } else {
            event.total = COST_NOT_TIMED;
        }
        cost_record(recorder, i % 2, &event, NULL);
    }
    cost_count(recorder, 0, BAD, 7);

    snap = read_kind(tally_kinds);
    ovs_assert(cost_snapshot_count(&snap->total, COST_ALL_CLASSES) == 66);
    ovs_assert(cost_snapshot_count(&snap->total, 0) == 33);
    ovs_assert(cost_snapshot_counter(&snap->total, 1, GOOD) == 33);
    ovs_assert(cost_snapshot_counter(&snap->total, 0, BAD) == 7);
    cost_snapshot_stage(&snap->total, COST_ALL_CLASSES, NUMBER, &hist);
    ovs_assert(hist.layout == &tally_layout && hist.count == 66
               && hist.sum == 11 * 111 && hist.min == 0 && hist.max == 100
               && hist.sum_sq.u64.lo == 11 * (9 + 9 + 16 + 1 + 10000));
    ovs_assert(hist.buckets[0] == 11 && hist.buckets[1] == 11
               && !hist.buckets[2] && hist.buckets[3] == 22
               && hist.buckets[4] == 22);
    cost_snapshot_stage(&snap->total, COST_ALL_CLASSES, TOTAL, &hist);
    ovs_assert(hist.count == 3 && hist.sum == (cost_clock_ns(3000)
                                               + cost_clock_ns(4000)
                                               + cost_clock_ns(5000)));
    ovs_assert(snap->total.n_slowest == 2);
    snapshot_free(snap);
    cost_account_destroy(account);
}

/* A tally belongs to its row and class, and to what has not been cleared:
 * where the one before it was counted does not matter. */
static void
check_tally_rows(struct cost_account *unused OVS_UNUSED)
{
    static const struct {
        uint32_t key;
        size_t row;
        uint64_t number;
    } events[] = {
        { 0, GOOD, 1 }, { 0, BAD, 1 }, { 0, BAD, 2 }, { 0, BAD, 3 },
        { N_CLASSES - 1, BAD, 2 }, { N_CLASSES + 3, BAD, 2 },
        { N_CLASSES + 3, BAD, 3 }, { 0, GOOD, 1 },
    };
    struct cost_account *account = cost_account_create(&rows_kind, "rows",
                                                       NULL);
    struct cost_recorder *recorder = cost_recorder_get(account, "main");

    for (int i = 0; i < 3; i++) {
        struct cost_account_snapshot *snap;
        struct cost_hist_snapshot hist;

        for (size_t j = 0; j < ARRAY_SIZE(events); j++) {
            cost_recorder_tally(recorder, events[j].key, events[j].row,
                                events[j].number, 3);
        }
        snap = read_kind(rows_kinds);
        ovs_assert(cost_snapshot_counter(&snap->total, 0, GOOD) == 2);
        ovs_assert(cost_snapshot_counter(&snap->total, 0, BAD) == 3);
        ovs_assert(cost_snapshot_counter(&snap->total, N_CLASSES - 1,
                                         GOOD) == 0);
        ovs_assert(cost_snapshot_counter(&snap->total, N_CLASSES - 1,
                                         BAD) == 3);
        cost_snapshot_stage(&snap->total, COST_ALL_CLASSES, NUMBER, &hist);
        ovs_assert(hist.count == 8 && hist.sum == 15);
        snapshot_free(snap);

        cost_accounts_clear(rows_kinds, 1, NULL);
        if (i) {
            ovsrcu_quiesce();
        }
    }
    cost_account_destroy(account);
}

/* An event that began while accounting was off counts if it is on when the
 * event ends, and the next one does not if it is off again. */
static void
check_tally_off(struct cost_account *unused OVS_UNUSED)
{
    struct cost_account *account = cost_account_create(&tally_kind, "tally",
                                                       NULL);
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    struct cost_account_snapshot *snap;

    for (int i = 0; i < 3; i++) {
        configure(false, 1);
        if (cost_recorder_split(recorder, 0)) {
            cost_recorder_idle(recorder);
        }
        configure(true, 1);
        cost_recorder_tally(recorder, 0, GOOD, 1, 3);
        configure(false, 1);
        for (int j = 0; j < 10; j++) {
            if (cost_recorder_split(recorder, 0)) {
                cost_recorder_idle(recorder);
            }
            cost_recorder_tally(recorder, 0, GOOD, 1, 3);
        }
    }

    snap = read_kind(tally_kinds);
    ovs_assert(cost_snapshot_count(&snap->total, COST_ALL_CLASSES) == 3);
    snapshot_free(snap);
    cost_account_destroy(account);
}

/* In lib/cost.c. */
extern struct coverage_counter counter_cost_refused;

/* Returns how many marks and counts of the calling thread have been refused
 * since this was last called. */
static unsigned int
n_refused(void)
{
    return counter_cost_refused.count();
}

/* What is for an event of another kind is refused. */
static void
check_refused(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    struct cost_account_snapshot *snap;
    struct cost_hist_snapshot hist;
    struct cost_timer timer;

    n_refused();
    cost_timer_init(&timer);
    cost_timer_start(&timer, recorder, 0);
    cost_timer_mark(&direct_kind, FIRST);
    cost_timer_count(&direct_kind, BAD);
    ovs_assert(n_refused() == 2);
    cost_timer_count(&kind, GOOD);
    cost_timer_stop(&timer, SECOND, 0, NULL, NULL, 0);
    ovs_assert(n_refused() == 0);

    /* Without a timer there is nothing to be refused. */
    cost_timer_mark(&direct_kind, FIRST);
    cost_timer_count(&direct_kind, BAD);
    ovs_assert(n_refused() == 0);

    snap = read_account();
    cost_snapshot_stage(&snap->total, 0, FIRST, &hist);
    ovs_assert(!hist.count);
    ovs_assert(cost_snapshot_counter(&snap->total, 0, GOOD) == 1);
    ovs_assert(!cost_snapshot_counter(&snap->total, 0, BAD));
    snapshot_free(snap);
}

/* Of events that follow each other, the end of one is the start of the
 * next. */
static void
check_next(struct cost_account *account)
{
    enum { N_EVENTS = 1000, FACTOR = 7 };
    struct cost_account_snapshot *snap;
    struct cost_hist_snapshot hist;
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    struct cost_timer outer, timer;
    uint64_t tsc = cost_clock_tsc();
    uint64_t start;

    cost_timer_init(&outer);
    cost_timer_start(&outer, recorder, 0);
    cost_timer_init(&timer);
    cost_timer_end(&timer);
    start = outer.start;
    for (int i = 0; i < N_EVENTS; i++) {
        tsc += FACTOR;
        cost_timer_start(&timer, recorder, tsc);
        cost_timer_mark(&kind, FIRST);
        if (i % 4 == 3) {
            cost_timer_cancel(&timer);
            cost_timer_end(&timer);
        } else {
            cost_timer_leave(&timer, SECOND, 1, NULL, NULL, 0);
            ovs_assert(cost_thread_get()->timer == &outer);
        }
    }
    cost_timer_end(&timer);
    cost_timer_end(&timer);
    ovs_assert(cost_thread_get()->timer == &outer);
    ovs_assert(outer.start >= start + N_EVENTS * FACTOR * 3 / 4
               || strcmp(cost_clock_name(), "tsc"));
    cost_timer_stop(&outer, SECOND, 0, NULL, NULL, 0);

    snap = read_account();
    ovs_assert(cost_snapshot_count(&snap->total, 0) == 1);
    cost_snapshot_stage(&snap->total, 1, TOTAL, &hist);
    ovs_assert(hist.count == N_EVENTS * 3 / 4);
    if (!strcmp(cost_clock_name(), "tsc")) {
        ovs_assert(hist.max == cost_clock_ns(FACTOR));
    }
    snapshot_free(snap);

    /* An event that was left open ends even if accounting is turned off. */
    cost_timer_start(&timer, recorder, 0);
    cost_timer_leave(&timer, SECOND, 2, NULL, NULL, 0);
    configure(false, 1);
    cost_timer_start(&timer, recorder, 0);
    cost_timer_leave(&timer, SECOND, 2, NULL, NULL, 0);
    cost_timer_end(&timer);
    configure(true, 1);
    ovs_assert(!cost_thread_get()->timer);
    ovs_assert(read_count() == N_EVENTS * 3 / 4 + 2);
}

/* Turning accounting off and on, also in the middle of an event. */
static void
check_off(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    struct cost_timer outer, inner;

    cost_timer_init(&outer);
    cost_timer_init(&inner);
    record(recorder, 0, 1);
    configure(false, 1);
    record(recorder, 0, 2);
    cost_count(recorder, 0, BAD, 5);
    ovs_assert(read_count() == 1);

    /* Off, then on: the outer event is not counted. */
    cost_timer_start(&outer, recorder, 0);
    configure(true, 1);
    cost_timer_start(&inner, recorder, 0);
    cost_timer_stop(&inner, SECOND, 0, NULL, NULL, 0);
    cost_timer_mark(&kind, FIRST);
    cost_timer_stop(&outer, SECOND, 0, NULL, NULL, 0);
    ovs_assert(read_count() == 2);

    /* On, then off: the outer event is. */
    cost_timer_start(&outer, recorder, 0);
    configure(false, 1);
    cost_timer_start(&inner, recorder, 0);
    cost_timer_mark(&kind, FIRST);
    cost_timer_count(&kind, BAD);
    cost_timer_stop(&inner, SECOND, 0, NULL, NULL, 0);
    cost_timer_stop(&outer, SECOND, 0, NULL, NULL, 0);
    ovs_assert(read_count() == 3);
    ovs_assert(!cost_thread_get()->timer);

    struct cost_account_snapshot *snap = read_account();

    ovs_assert(cost_snapshot_counter(&snap->total, COST_ALL_CLASSES, BAD)
               == 1);
    snapshot_free(snap);
    configure(true, 1);
}

/* Only one event in N is split, every event is counted. */
static void
check_split(struct cost_account *account)
{
    enum { N_EVENTS = 64000, INTERVAL = 16 };
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    struct cost_account_snapshot *snap;
    struct cost_hist_snapshot first, total;

    configure(true, INTERVAL);
    for (int i = 0; i < N_EVENTS; i++) {
        record(recorder, 0, i);
    }

    snap = read_account();
    cost_snapshot_stage(&snap->total, 0, FIRST, &first);
    cost_snapshot_stage(&snap->total, 0, TOTAL, &total);
    ovs_assert(total.count == N_EVENTS);

    /* 4,000 are expected, with a standard deviation of some 35. */
    ovs_assert(first.count > 3500 && first.count < 4500);
    snapshot_free(snap);

    /* The next event is split as soon as every one is to be. */
    configure(true, 1);
    for (int i = 0; i < 100; i++) {
        record(recorder, 1, i);
    }
    snap = read_account();
    cost_snapshot_stage(&snap->total, 1, FIRST, &first);
    ovs_assert(first.count == 100);
    snapshot_free(snap);
}

/* Stores in 'total' what accounts named 'name', or all and those that are
 * deleted, add up to.  Returns the number of accounts. */
static size_t
read_sum(const char *name, uint64_t *total, uint64_t *n_deleted)
{
    struct cost_accounts all;
    size_t n;

    *total = *n_deleted = 0;
    cost_accounts_get(kinds, 1, name, &all);
    for (size_t i = 0; i < all.n; i++) {
        struct cost_summary summary;

        cost_account_summarize(all.accounts[i], &summary);
        *total += summary.n_events;
    }
    for (size_t i = 0; i < all.n_kinds; i++) {
        *n_deleted += all.deleted[i].n_accounts;
        *total += cost_snapshot_count(&all.deleted[i].total,
                                      COST_ALL_CLASSES);
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

    cost_accounts_get(of, 1, NULL, &all);
    *total = all.totals[0].since_us;
    *deleted = all.deleted[0].since_us;
    cost_accounts_put(&all);
}

/* Accounts that come and go while a thread stays: what they add up to never
 * falls. */
static void
check_accounts(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    long long int total, deleted, total_later, deleted_later;
    uint64_t sum, n_deleted;

    cost_accounts_clear(kinds, 1, NULL);
    for (unsigned int i = 0; i < 100; i++) {
        struct cost_account *other = cost_account_create(&kind, "x@other",
                                                         NULL);
        struct cost_recorder *other_recorder
            = cost_recorder_get(other, "main");

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
    get_since(direct_kinds, &total, &deleted);
    ovs_assert(cost_accounts_clear(direct_kinds, 1, NULL) == 0);
    get_since(direct_kinds, &total_later, &deleted_later);
    ovs_assert(total_later > total && deleted_later > deleted);
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

/* What has not happened takes no memory, and what is gone gives it back. */
static void
check_memory(struct cost_account *account)
{
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    uint64_t idle, busy;

    /* Only the account and its recorder are there. */
    idle = cost_memory_used();
    for (int i = 0; i < 100; i++) {
        xnanosleep(1000000);
        idle = MIN(idle, cost_memory_used());
    }
    for (int i = 0; i < 1000; i++) {
        record(recorder, 0, i);
    }
    busy = cost_memory_used();
    ovs_assert(busy > idle);
    cost_accounts_clear(kinds, 1, NULL);
    ovs_assert(memory_becomes(idle));

    record(recorder, 0, 0);
    ovs_assert(cost_memory_used() > idle);
    cost_recorder_release(recorder);
    ovs_assert(memory_becomes(idle - ROUND_UP(sizeof *recorder,
                                              CACHE_LINE_SIZE)));
    ovs_assert(read_count() == 1);
    recorder = cost_recorder_get(account, "main");
    ovs_assert(cost_memory_used() == idle);
}

/* A list of reports that are on, and split intervals of their own. */
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
        { "cost-split-interval", "5", 5 },
        { "cost-split-interval", "0", 16 },
        { "cost-split-interval", "65537", 16 },
        { "cost-split-interval-test", "7", 7 },
        { "cost-split-interval-other", "7", 16 },
        { "cost-split-interval-test", "x", 16 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct smap smap = SMAP_INITIALIZER(&smap);

        smap_add(&smap, cases[i].key, cases[i].value);
        cost_configure(&smap);
        ovs_assert(cost_split_interval(&config) == cases[i].interval);
        smap_destroy(&smap);
    }

    struct smap smap = SMAP_INITIALIZER(&smap);

    smap_add(&smap, "cost-split-interval", "1");
    smap_add(&smap, "cost-split-interval-test", "8");
    cost_configure(&smap);
    ovs_assert(cost_split_interval(&config) == 8);
    smap_destroy(&smap);
}

static void
run_check(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static void (*const checks[])(struct cost_account *) = {
        check_concurrent_read, check_thread_exit, check_concurrent_clear,
        check_nesting, check_record, check_slowest, check_tally,
        check_tally_rows, check_tally_off, check_refused, check_next,
        check_off, check_split, check_accounts, check_memory, check_config,
    };

    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        struct cost_account *account
            = cost_account_create(&kind, "test", NULL);

        configure(true, 1);
        checks[i](account);
        cost_account_destroy(account);
    }
    printf("ok\n");
}

static double
seconds(void)
{
    struct timespec ts;

    xclock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Prints what accounting for one event takes, in nanoseconds, the clock
 * included, and what reading the clock takes. */
static void
run_benchmark(struct ovs_cmdl_context *ctx)
{
    int n = ctx->argc > 1 ? atoi(ctx->argv[1]) : 10000000;
    struct cost_account *account = cost_account_create(&kind, "test", NULL);
    struct cost_recorder *recorder = cost_recorder_get(account, "main");
    static const struct {
        const char *name;
        bool enabled;
        int split_interval;
    } modes[] = {
        { "off", false, 1 },
        { "on, default split", true, COST_DEFAULT_SPLIT_INTERVAL },
        { "on, every split", true, 1 },
    };
    volatile uint64_t sink;
    double start;

    if (n < 1) {
        ovs_fatal(0, "\"%s\" is not a positive number", ctx->argv[1]);
    }

    start = seconds();
    for (int i = 0; i < n; i++) {
        sink = cost_clock_now("event");
    }
    (void) sink;
    printf("clock (%s): %.2f ns\n", cost_clock_name(),
           (seconds() - start) / n * 1e9);

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        configure(modes[i].enabled, modes[i].split_interval);
        start = seconds();
        for (int j = 0; j < n; j++) {
            record(recorder, 0, j);
        }
        printf("event of 2 stages, %s: %.2f ns\n", modes[i].name,
               (seconds() - start) / n * 1e9);
    }

    /* Many threads, two of which are busy. */
    enum { N_THREADS = 128, N_BUSY = 2, N_READS = 20 };
    struct writer writers[N_THREADS];
    struct latch latch;

    latch_init(&latch);
    for (int i = 0; i < N_THREADS; i++) {
        writers[i].account = account;
        writers[i].id = i;
        writers[i].n_events = i < N_BUSY ? UINT64_MAX : 100;
        writers[i].exit_latch = &latch;
        writers[i].thread = ovs_thread_create("writer", writer_main,
                                              &writers[i]);
    }
    while (read_n_threads() < N_THREADS + 1) {
        xnanosleep(1000000);
    }
    start = seconds();
    for (int i = 0; i < N_READS; i++) {
        read_count();
    }
    printf("read %d threads with %d classes each, %d of them busy: %.2f ms\n",
           N_THREADS, N_CLASSES, N_BUSY, (seconds() - start) / N_READS * 1e3);
    latch_set(&latch);
    join_writers(writers, N_THREADS);
    latch_destroy(&latch);

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
