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

static const struct cost_kind kind = {
    .name = "event",
    .stages = stages,
    .n_stages = N_STAGES,
    .values = 1 << NUMBER,
    .counters = counters,
    .n_counters = N_COUNTERS,
    .n_classes = N_CLASSES,
    .format_class = format_class,
    .n_details = 2,
};
static const struct cost_kind *const kinds[] = { &kind };

static void
configure(bool enabled, int split_interval)
{
    struct smap config = SMAP_INITIALIZER(&config);

    smap_add(&config, "cost-accounting", enabled ? "true" : "false");
    smap_add_format(&config, "cost-split-interval", "%d", split_interval);
    cost_configure(&config);
    smap_destroy(&config);
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
record(struct cost_account *account, size_t class, uint64_t number)
{
    struct cost_timer timer;

    cost_timer_start(&timer, account, 0);
    cost_timer_mark(FIRST);
    cost_timer_count(number % 2 ? BAD : GOOD);
    cost_timer_value(NUMBER, number);
    cost_timer_stop(&timer, SECOND, class, get_details, &number, DETAILS_SUM);
}

/* Reads the only account. */
static struct cost_account_snapshot *
read_account(void)
{
    struct cost_account_snapshot *snap;

    ovs_assert(cost_accounts_read(kinds, 1, NULL, &snap) == 1);
    return snap;
}

static uint64_t
read_count(void)
{
    struct cost_account_snapshot *snap = read_account();
    uint64_t n = cost_snapshot_count(&snap->total, COST_ALL_CLASSES);

    cost_accounts_free(snap, 1);
    return n;
}

static size_t
read_n_threads(void)
{
    struct cost_account_snapshot *snap = read_account();
    size_t n = snap->n_threads - 1;     /* Without "exited". */

    cost_accounts_free(snap, 1);
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
    uint64_t n_events;
    struct latch *exit_latch;           /* If nonnull, wait for it to exit. */
};

static void *
writer_main(void *writer_)
{
    struct writer *writer = writer_;

    for (uint64_t i = 0; i < writer->n_events; i++) {
        record(writer->account, i % N_CLASSES, i);
        if (writer->exit_latch && i % 1024 == 0
            && latch_is_set(writer->exit_latch)) {
            return NULL;
        }
    }
    if (writer->exit_latch) {
        latch_wait(writer->exit_latch);
        poll_block();
    }
    return NULL;
}

static void
start_writers(struct writer *writers, size_t n, struct cost_account *account,
              uint64_t n_events)
{
    for (size_t i = 0; i < n; i++) {
        writers[i].account = account;
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
        cost_accounts_free(snap, 1);
    }
    join_writers(writers, N_WRITERS);
    ovs_assert(read_count() == N_WRITERS * N_EVENTS);
}

/* Threads come and go, nothing gets lost, all end up as "exited". */
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
    ovs_assert(snap->total.n_slowest == COST_N_SLOWEST);
    ovs_assert(cost_snapshot_count(&snap->total, COST_ALL_CLASSES)
               == N_ROUNDS * N_WRITERS * N_EVENTS);
    check_snapshot(&snap->total);
    cost_accounts_free(snap, 1);
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
        cost_accounts_free(snap, 1);
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
    struct cost_timer outer, inner;
    const uint64_t inner_ns = 20000000;

    all = cost_clock_now("event");
    cost_timer_start(&outer, account, 0);
    cost_timer_start(&inner, account, 0);
    xnanosleep(inner_ns);
    cost_timer_mark(FIRST);
    cost_timer_stop(&inner, SECOND, 1, NULL, NULL, 0);
    cost_timer_mark(FIRST);

    /* Cancelled ones do not count at all. */
    cost_timer_start(&inner, account, 0);
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
    cost_accounts_free(snap, 1);
}

/* Records an event in 'account' that was measured without a timer. */
static void
record_event(struct cost_account *account, struct cost_recorder **keep)
{
    struct cost_event event = {
        .total = 1000,
        .marked = 1 << SECOND | 1 << NUMBER,
        .counter = BAD,
        .stages = { [SECOND] = 250, [NUMBER] = 250 },
    };
    uint64_t number = 250;
    struct cost_details details = { get_details, &number, DETAILS_SUM };

    cost_record(account, keep, 2, &event, &details);
}

/* Events that were measured without a timer are recorded as they are, but that
 * only some of them are split. */
static void
check_record(struct cost_account *account)
{
    struct cost_recorder *keep = NULL;
    struct cost_account_snapshot *snap;
    struct cost_hist_snapshot hist;

    for (int i = 0; i < 1000; i++) {
        record_event(account, i % 2 ? &keep : NULL);
    }
    ovs_assert(keep == cost_recorder_get(account));
    snap = read_account();
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
    ovs_assert(cost_snapshot_counter(&snap->total, 2, BAD) == 1000);
    ovs_assert(snap->total.n_slowest == COST_N_SLOWEST);
    for (size_t i = 0; i < snap->total.n_slowest; i++) {
        const struct cost_slow_event *slow = &snap->total.slowest[i];

        ovs_assert(slow->marked == (1 << SECOND | 1 << NUMBER)
                   && slow->stages[SECOND] == cost_clock_ns(250)
                   && slow->stages[NUMBER] == 250
                   && slow->details[0] == 250);
    }
    cost_accounts_free(snap, 1);

    configure(true, 16);
    for (int i = 0; i < 1000; i++) {
        record_event(account, &keep);
    }
    snap = read_account();
    ovs_assert(cost_snapshot_count(&snap->total, 2) == 2000);
    cost_snapshot_stage(&snap->total, 2, NUMBER, &hist);
    ovs_assert(hist.count == 2000);
    cost_snapshot_stage(&snap->total, 2, SECOND, &hist);
    ovs_assert(hist.count > 1000 + 1000 / 31 && hist.count < 1200);
    cost_accounts_free(snap, 1);
}

/* Of events that follow each other, the end of one is the start of the
 * next. */
static void
check_next(struct cost_account *account)
{
    enum { N_EVENTS = 1000, FACTOR = 7 };
    struct cost_account_snapshot *snap;
    struct cost_hist_snapshot hist;
    struct cost_timer outer, timer;
    uint64_t tsc = cost_clock_tsc();
    uint64_t start;

    cost_timer_start(&outer, account, 0);
    cost_timer_init(&timer);
    cost_timer_end(&timer);
    start = outer.start;
    for (int i = 0; i < N_EVENTS; i++) {
        tsc += FACTOR;
        cost_timer_next(&timer, account, tsc);
        cost_timer_mark(FIRST);
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
    cost_accounts_free(snap, 1);

    /* An event that was left open ends even if accounting is turned off. */
    cost_timer_next(&timer, account, 0);
    cost_timer_leave(&timer, SECOND, 2, NULL, NULL, 0);
    configure(false, 1);
    cost_timer_next(&timer, account, 0);
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
    struct cost_timer outer, inner;

    record(account, 0, 1);
    configure(false, 1);
    record(account, 0, 2);
    cost_count(account, 0, BAD, 5);
    ovs_assert(read_count() == 1);

    /* Off, then on: the outer event is not counted. */
    cost_timer_start(&outer, account, 0);
    configure(true, 1);
    cost_timer_start(&inner, account, 0);
    cost_timer_stop(&inner, SECOND, 0, NULL, NULL, 0);
    cost_timer_mark(FIRST);
    cost_timer_stop(&outer, SECOND, 0, NULL, NULL, 0);
    ovs_assert(read_count() == 2);

    /* On, then off: the outer event is. */
    cost_timer_start(&outer, account, 0);
    configure(false, 1);
    cost_timer_start(&inner, account, 0);
    cost_timer_mark(FIRST);
    cost_timer_count(BAD);
    cost_timer_stop(&inner, SECOND, 0, NULL, NULL, 0);
    cost_timer_stop(&outer, SECOND, 0, NULL, NULL, 0);
    ovs_assert(read_count() == 3);
    ovs_assert(!cost_thread_get()->timer);

    struct cost_account_snapshot *snap = read_account();

    ovs_assert(cost_snapshot_counter(&snap->total, COST_ALL_CLASSES, BAD)
               == 1);
    cost_accounts_free(snap, 1);
    configure(true, 1);
}

/* Only one event in N is split, every event is counted. */
static void
check_split(struct cost_account *account)
{
    enum { N_EVENTS = 64000, INTERVAL = 16 };
    struct cost_account_snapshot *snap;
    struct cost_hist_snapshot first, total;

    configure(true, INTERVAL);
    for (int i = 0; i < N_EVENTS; i++) {
        record(account, 0, i);
    }

    snap = read_account();
    cost_snapshot_stage(&snap->total, 0, FIRST, &first);
    cost_snapshot_stage(&snap->total, 0, TOTAL, &total);
    ovs_assert(total.count == N_EVENTS);

    /* 4,000 are expected, with a standard deviation of some 35. */
    ovs_assert(first.count > 3500 && first.count < 4500);
    cost_accounts_free(snap, 1);

    /* The next event is split as soon as every one is to be. */
    configure(true, 1);
    for (int i = 0; i < 100; i++) {
        record(account, 1, i);
    }
    snap = read_account();
    cost_snapshot_stage(&snap->total, 1, FIRST, &first);
    ovs_assert(first.count == 100);
    cost_accounts_free(snap, 1);
}

/* Accounts that come and go while a thread stays. */
static void
check_accounts(struct cost_account *account)
{
    struct cost_account_snapshot *snap;

    for (int i = 0; i < 100; i++) {
        struct cost_account *other = cost_account_create(&kind, "x@other");

        record(other, 0, 0);
        record(account, 0, 0);
        record(other, 1, 0);
        ovs_assert(cost_accounts_read(kinds, 1, "other", &snap) == 1);
        ovs_assert(!strcmp(snap->name, "x@other"));
        ovs_assert(cost_snapshot_count(&snap->total, COST_ALL_CLASSES) == 2);
        cost_accounts_free(snap, 1);
        ovs_assert(cost_accounts_read(kinds, 1, NULL, &snap) == 2);
        cost_accounts_free(snap, 2);
        ovs_assert(cost_accounts_read(kinds, 1, "nobody", &snap) == 0);
        cost_accounts_free(snap, 0);
        cost_account_destroy(other);
    }
    cost_account_destroy(NULL);
    ovs_assert(read_count() == 100);
}

static void
run_check(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static void (*const checks[])(struct cost_account *) = {
        check_concurrent_read, check_thread_exit, check_concurrent_clear,
        check_nesting, check_record, check_next, check_off, check_split,
        check_accounts,
    };

    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        struct cost_account *account = cost_account_create(&kind, "test");

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
    struct cost_account *account = cost_account_create(&kind, "test");
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
            record(account, 0, j);
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
