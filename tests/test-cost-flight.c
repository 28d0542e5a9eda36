/* SPDX-License-Identifier: Apache-2.0 */

/* Tests of the flight recorder: "ovstest test-cost-flight". */

#include <config.h>
#undef NDEBUG
#include "cost-flight.h"

#include <stdio.h>
#include <stdlib.h>

#include "cost-clock.h"
#include "cost-span.h"
#include "cost.h"
#include "latch.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "ovstest.h"
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
    COLUMN(GOOD, "good", "result", 0, "Good.")

enum { STAGES(COST_ENUM) N_STAGES };
enum { COUNTERS(COST_ENUM) N_COUNTERS };
enum { MAX_EVENTS = 256 };              /* Of a thread. */
#define START (UINT64_C(1) << 62)       /* Of the test clock. */

static struct cost_config config = COST_CONFIG_INITIALIZER("test", 1);

static void
format_class(size_t class, struct ds *s)
{
    ds_put_format(s, "class%"PRIuSIZE, class);
}

/* What both kinds of events have in common. */
#define KIND(NAME)                              \
    .event = NAME,                              \
    .config = &config,                          \
    COST_STAGES(STAGES),                        \
    COST_COUNTERS(COUNTERS),                    \
    .n_classes = 3,                             \
    .format_class = format_class

static const struct cost_kind kind = { KIND("event") };
static const struct cost_kind exact_kind = { KIND("exact"), .exact = true };

static void
configure(bool flight, int log_us)
{
    struct smap settings = SMAP_INITIALIZER(&settings);

    smap_add(&settings, "cost-flight", flight ? "true" : "false");
    smap_add_format(&settings, "cost-log-threshold-test", "%d", log_us);
    cost_configure(&settings);
    smap_destroy(&settings);
}

/* Records an event that begins at 'begin' ns of the test clock: 7 ns apart,
 * 'first' ns, 20 ns of another event, and as many ns as its 'number'. */
static void
record(struct cost_recorder *recorder, uint64_t begin, uint64_t first,
       uint64_t number, bool sampled)
{
    struct cost_span span;

    begin += START;
    cost_span_open(&span, recorder, sampled, begin - 7);
    if (sampled) {
        cost_span_lap(&span, APART, begin);
        cost_span_lap(&span, FIRST, begin + first);
    } else {
        span.start = begin;
    }
    span.entry.counter = number % 2 ? COST_NO_COUNTER : GOOD;
    cost_entry_add(&span.entry, NUMBER, number);
    span.excluded += 20;
    span.start += 20;
    span.last += 20;
    if (sampled) {
        cost_span_lap(&span, SECOND, begin + first + 20 + number);
    }
    cost_span_finish(&span, begin + first + 20 + number, number % 3, NULL);
}

/* Makes the test clock's present reading 'ns'. */
static void
set_clock(uint64_t ns)
{
    static uint64_t now = START;
    uint64_t step = START + ns - now;

    cost_clock_set_test("event", &step, 1);
    now = cost_clock_now("event", 0);
    ovs_assert(now == START + ns);
}

/* Returns the member 'name' of 'json', an object. */
static const struct json *
member(const struct json *json, const char *name)
{
    const struct json *found = shash_find_data(json_object(json), name);

    ovs_assert(found);
    return found;
}

static long long int
number_of(const struct json *json, const char *name)
{
    return json_integer(member(json, name));
}

/* Returns the events of 'thread' in 'json', or NULL if it has none. */
static const struct json *
events_of(const struct json *json, const char *thread)
{
    const struct json *threads = member(json, "threads");

    for (size_t i = 0; i < json_array_size(threads); i++) {
        const struct json *object = json_array_at(threads, i);

        if (!strcmp(json_string(member(object, "thread")), thread)) {
            return member(object, "events");
        }
    }
    return NULL;
}

/* Returns the 'n'th latest event of the main thread in 'json'. */
static const struct json *
latest(const struct json *json, size_t n)
{
    const struct json *events = events_of(json, "main");

    return json_array_at(events, json_array_size(events) - n);
}

/* Checks that 'json' is what record() has recorded, and returns its
 * number. */
static long long int
check_event(const struct json *json)
{
    long long int number = number_of(member(json, "numbers"), "number");
    const struct json *stages = member(json, "stages");
    long long int length = number_of(json, "end_ns") - number_of(json,
                                                                 "begin_ns");
    char *class = xasprintf("class%lld", number % 3);

    ovs_assert(!strcmp(json_string(member(json, "class")), class));
    ovs_assert(number_of(json, "excluded_ns") == 20);
    ovs_assert(number % 2 || shash_find(json_object(json), "outcome"));
    if (!shash_is_empty(json_object(stages))) {
        ovs_assert(number_of(member(json, "apart"), "apart") == 7);
        ovs_assert(number_of(stages, "second") == number);
        ovs_assert(length == 20 + number + number_of(stages, "first"));
    }
    free(class);
    return number;
}

/* Checks that 'json' has the events 'first' to 'last' of the main thread,
 * each beginning 1,000 ns after the one before. */
static void
check_main(const struct json *json, long long int first, long long int last)
{
    const struct json *events = events_of(json, "main");
    long long int begin = 0;

    ovs_assert(json_array_size(events) == last - first + 1);
    for (long long int i = first; i <= last; i++) {
        const struct json *event = json_array_at(events, i - first);

        ovs_assert(check_event(event) == i);
        ovs_assert(i == first
                   || number_of(event, "begin_ns") == begin + 1000);
        begin = number_of(event, "begin_ns");
    }
}

static void
check_reply(long long int first, long long int last, size_t n_kept)
{
    struct json *json = cost_flight_to_json(0, 0, SIZE_MAX);

    check_main(json, first, last);
    ovs_assert(json_array_size(member(json, "kept_us")) == n_kept);
    json_destroy(json);
}

/* Nothing is kept while it is off, nor shown of an earlier time. */
static void
check_off(struct cost_recorder *recorder, bool before)
{
    struct json *json;

    configure(false, 0);
    record(recorder, 1000, 10, 0, true);
    json = cost_flight_to_json(0, 0, SIZE_MAX);
    ovs_assert(!json_boolean(member(json, "recording")));
    ovs_assert(!json_array_size(member(json, "threads")));
    ovs_assert(!json_array_size(member(json, "kept_us")));
    json_destroy(json);
    ovs_assert(!cost_flight_to_json(0, 1, SIZE_MAX));
    if (before) {
        configure(true, 0);
        json = cost_flight_to_json(0, 0, SIZE_MAX);
        ovs_assert(!json_array_size(events_of(json, "main")));
        json_destroy(json);
    }
}

/* The latest events are kept, in order, those that are sampled. */
static void
check_ring(struct cost_recorder *recorder)
{
    struct json *json;

    configure(true, 0);
    for (int i = 0; i < 100; i++) {
        record(recorder, 1000 * i + 1000, i, i, true);
        record(recorder, 1000 * i + 1500, i, 4711, false);
    }
    set_clock(1000000);
    check_reply(0, 99, 0);
    for (int i = 100; i < 500; i++) {
        record(recorder, 1000 * i + 1000, i, i, true);
    }
    check_reply(500 - MAX_EVENTS, 499, 0);

    /* Those of the last seconds. */
    set_clock(UINT64_C(10000000000) + 499500);
    json = cost_flight_to_json(10, 0, SIZE_MAX);
    check_main(json, 498, 499);
    json_destroy(json);
    set_clock(1000000);

    /* The latest ones. */
    json = cost_flight_to_json(0, 0, 10);
    check_main(json, 490, 499);
    json_destroy(json);
}

/* After an event that is slow, sampled or not, and others that have begun
 * before, all rings are kept as they are, once in a while. */
static void
check_stopped(struct cost_recorder *recorder)
{
    const struct json *event;
    struct json *json;

    configure(true, 2);
    record(recorder, 501000, 1000, 500, true);
    record(recorder, 502000, 2100, 501, false);
    record(recorder, 503000, 1, 502, true);
    record(recorder, 504700, 1, 4711, true);
    cost_flight_run();
    check_reply(503 - MAX_EVENTS, 502, 0);
    timeval_warp(101);
    cost_flight_run();
    record(recorder, 504000, 1, 503, true);
    record(recorder, 505000, 2100, 504, true);
    record(recorder, 506000, 1, 505, true);
    timeval_warp(101);
    cost_flight_run();

    check_reply(506 - MAX_EVENTS, 505, 1);
    ovs_assert(!cost_flight_to_json(0, 2, SIZE_MAX));
    json = cost_flight_to_json(0, 1, SIZE_MAX);
    ovs_assert(number_of(json, "time_us") > 0);
    check_main(json, 503 - MAX_EVENTS, 502);
    for (int i = 0; i < MAX_EVENTS; i++) {
        event = json_array_at(events_of(json, "main"), i);
        ovs_assert(!shash_find(json_object(event), "stopped")
                   == (i != MAX_EVENTS - 2));
    }
    json_destroy(json);

    /* Not again so soon; three of them at most are kept. */
    for (int i = 0; i < 4; i++) {
        timeval_warp(10001);
        record(recorder, 507000 + i, 2100, 600, true);
        timeval_warp(101);
        cost_flight_run();
    }
    json = cost_flight_to_json(0, 3, SIZE_MAX);
    ovs_assert(json_array_size(member(json, "kept_us")) == 3);
    json_destroy(json);
    configure(true, 0);
}

/* A stage that is not part of the event may be the last one. */
static void
check_trailing(struct cost_recorder *recorder)
{
    const struct json *last, *before;
    struct cost_span span;
    struct json *json;

    record(recorder, 520000, 1, 1, true);
    cost_span_open(&span, recorder, true, START + 530000);
    cost_span_lap(&span, FIRST, START + 530100);
    cost_span_lap(&span, APART, START + 539000);
    cost_span_finish(&span, START + 539000, 0, NULL);
    json = cost_flight_to_json(0, 0, SIZE_MAX);
    last = latest(json, 1);
    before = latest(json, 2);
    ovs_assert(number_of(last, "begin_ns")
               == number_of(before, "begin_ns") + 10000);
    ovs_assert(number_of(last, "end_ns")
               == number_of(last, "begin_ns") + 100);
    ovs_assert(number_of(member(last, "apart"), "apart") == 8900);
    json_destroy(json);
}

/* An account that has been destroyed still has its name. */
static void
check_names(void)
{
    struct cost_account *account = cost_account_create(&kind, "gone", NULL);
    struct cost_recorder *recorder = cost_recorder_create(account, "main");

    record(recorder, 600000, 1, 1, true);
    for (int i = 0; i < 2; i++) {
        struct json *json = cost_flight_to_json(0, 0, SIZE_MAX);

        ovs_assert(!strcmp("gone", json_string(
            member(latest(json, 1), "account"))));
        ovs_assert(!strcmp("stays", json_string(
            member(json_array_at(events_of(json, "main"), 0), "account"))));
        json_destroy(json);
        if (!i) {
            cost_recorder_destroy(recorder);
            cost_account_destroy(account);
        }
    }
}

/* Of events that are all split, short ones are left out. */
static void
check_exact(void)
{
    struct cost_account *account = cost_account_create(&exact_kind, "exact",
                                                       NULL);
    struct cost_recorder *recorder = cost_recorder_create(account, "main");
    struct json *json;

    record(recorder, 700000, 9990, 9, true);
    record(recorder, 720000, 9990, 10, true);
    record(recorder, 740000, 10, 10, true);
    json = cost_flight_to_json(0, 0, SIZE_MAX);
    for (int i = 1; i <= 2; i++) {
        ovs_assert(!strcmp(json_string(member(latest(json, i), "event")),
                           i == 1 ? "exact" : "event"));
    }
    json_destroy(json);
    cost_recorder_destroy(recorder);
    cost_account_destroy(account);
}

struct writer {
    struct cost_account *account;
    struct latch exit;
    pthread_t thread;
};

static void *
writer_main(void *writer_)
{
    struct writer *writer = writer_;
    struct cost_recorder *recorder = cost_recorder_create(writer->account,
                                                          "writer");

    for (uint64_t i = 0; !latch_is_set(&writer->exit); i++) {
        record(recorder, i % 900000 + 2000000, i % 1000, i % 4711, true);
        ovsrcu_quiesce();
    }
    cost_recorder_destroy(recorder);
    return NULL;
}

/* Readers get whole events while others are written, rings stop, and it is
 * switched off and on.  The memory of threads that exit is freed. */
static void
check_concurrent(struct cost_account *account)
{
    uint64_t memory;
    struct writer writers[4];
    size_t n_read = 0, n_kept = 0;

    configure(false, 0);
    memory = cost_memory_used();
    for (size_t i = 0; i < ARRAY_SIZE(writers); i++) {
        writers[i].account = account;
        latch_init(&writers[i].exit);
        writers[i].thread = ovs_thread_create("writer", writer_main,
                                              &writers[i]);
    }
    for (int i = 0; i < 200 || n_read < 1000 || !n_kept; i++) {
        const struct json *threads;
        struct json *json;

        configure(i % 16, 1);
        timeval_warp(10001);
        cost_flight_run();
        json = cost_flight_to_json(0, i % 2, SIZE_MAX);
        if (!json) {
            continue;
        }
        n_kept += i % 2;
        threads = member(json, "threads");
        for (size_t j = 0; j < json_array_size(threads); j++) {
            const struct json *events = member(json_array_at(threads, j),
                                               "events");

            for (size_t k = 0; k < json_array_size(events); k++) {
                check_event(json_array_at(events, k));
                n_read++;
            }
        }
        json_destroy(json);
        ovsrcu_quiesce();
    }
    for (size_t i = 0; i < ARRAY_SIZE(writers); i++) {
        latch_set(&writers[i].exit);
        xpthread_join(writers[i].thread, NULL);
        latch_destroy(&writers[i].exit);
    }
    configure(false, 0);

    /* Recorders are freed by RCU, later. */
    for (int i = 0; i < 10000 && cost_memory_used() >= memory + 40000; i++) {
        ovsrcu_quiesce();
        xnanosleep(1000000);
    }
    ovs_assert(cost_memory_used() < memory + 40000);
}

static void
test_cost_flight(int argc OVS_UNUSED, char *argv[])
{
    struct cost_account *account;
    struct cost_recorder *recorder;

    set_program_name(argv[0]);
    config.apply = cost_flight_apply;
    set_clock(1);
    account = cost_account_create(&kind, "stays", NULL);
    recorder = cost_recorder_create(account, "main");
    cost_flight_init();
    check_off(recorder, false);
    check_ring(recorder);
    check_stopped(recorder);
    check_trailing(recorder);
    check_names();
    check_exact();
    check_off(recorder, true);
    check_concurrent(account);
    cost_recorder_destroy(recorder);
    cost_account_destroy(account);
    printf("ok\n");
}

OVSTEST_REGISTER("test-cost-flight", test_cost_flight);
