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

#include "cost-clock.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command-line.h"
#include "latch.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/vlog.h"
#include "ovs-thread.h"
#include "ovstest.h"
#include "timeval.h"
#include "util.h"

#define SEC_NS UINT64_C(1000000000)
#define JUMP_NS (1000 * 3600 * SEC_NS)  /* Longer than any test takes. */

/* A machine whose counter has two ticks in a nanosecond, and whose clocks only
 * advance with pass(), and while they are related at first. */
#define TICKS_PER_NS 2
#define MULT ((1u << COST_CLOCK_SHIFT) / TICKS_PER_NS)
#define INVERSE ((1u << COST_CLOCK_SHIFT) * TICKS_PER_NS)
static struct cost_clock_sample clocks = { 1000 * SEC_NS, 100 * SEC_NS, 80 };
static bool invariant = true;
static uint64_t sampling_ns = 5000000;

/* Lets 'ns' pass, in which the counter gains 'ppm' parts per million. */
static void
pass(uint64_t ns, int ppm)
{
    clocks.ns += ns;
    clocks.ticks += ns * TICKS_PER_NS;
    clocks.ticks += (int64_t) (ns / 1000000) * ppm * TICKS_PER_NS;
}

static bool
fake_is_invariant(void)
{
    return invariant;
}

static void
fake_sample(struct cost_clock_sample *sample, uint64_t width OVS_UNUSED)
{
    pass(sampling_ns, 0);
    *sample = clocks;
}

/* The kernel offers these sources of time, and uses 'current'. */
static void
set_kernel(const char *available, const char *current)
{
    FILE *file = fopen("available_clocksource", "w");

    ovs_assert(file && fprintf(file, "%s \n", available) > 0);
    ovs_assert(!fclose(file));

    file = fopen("current_clocksource", "w");
    ovs_assert(file && fprintf(file, "%s\n", current) > 0);
    ovs_assert(!fclose(file));
}

/* Has the clock judged by what 'sample' reads, when the kernel offers the
 * sources of time 'available' and uses 'current'.  From now on, time_msec()
 * only advances with check_clock(). */
static void
init_with(void (*sample)(struct cost_clock_sample *, uint64_t width),
          const char *available, const char *current)
{
    static struct cost_clock_machine machine = {
        .is_invariant = fake_is_invariant,
        .counter = "tsc",
        .directory = ".",
    };

    machine.sample = sample;
    set_kernel(available, current);
    cost_clock_set_machine(&machine);
    cost_clock_init();
    sampling_ns = 0;
    time_msec();
    timeval_stop();
}

static void
init(void)
{
    init_with(fake_sample, "tsc kvm-clock", "tsc");
}

/* Prints what is known of the clock. */
static void
print_clock(void)
{
    struct json *json = json_object_create();
    struct ds s = DS_EMPTY_INITIALIZER;
    char *string;

    cost_clock_format(&s);
    cost_clock_to_json(json);
    string = json_to_string(json, JSSF_SORT);
    printf("%s\n%s\n", ds_cstr(&s), string);
    free(string);
    ds_destroy(&s);
    json_destroy(json);
}

/* Looks after the clock, as the main loop does every 10 seconds. */
static void
check_clock(void)
{
    timeval_warp(10000);
    cost_clock_run();
}

/* Lets ten seconds pass, in which the counter gains 'ppm' parts per million,
 * 'n' times. */
static void
run(int n, int ppm)
{
    for (int i = 0; i < n; i++) {
        pass(10 * SEC_NS, ppm);
        check_clock();
    }
}

static uint64_t
monotonic_ns(void)
{
    struct timespec ts;

    xclock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * SEC_NS + ts.tv_nsec;
}

/* Returns the nanoseconds from 'from' to 'to'. */
static uint64_t
ns_between(uint64_t from, uint64_t to)
{
    return cost_clock_ns(cost_clock_between(from, to));
}

/* cost_clock_judge(). */

static void
test_judge(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static const struct {
        const char *what;
        int64_t ticks;
        int64_t ns;
        uint64_t width;
        bool good;
        double gained_ns;
    } tests[] = {
        { "nothing", 0, 0, 0, true, 0 },
        { "exact", 20000000000, 10000000000, 0, true, 0 },
        { "100 ppm fast", 20002000000, 10000000000, 0, true, 1e6 },
        { "100 ppm slow", 19998000000, 10000000000, 0, true, -1e6 },
        { "100 ppm for a day", 172817280000000, 86400000000000, 0,
          true, 8640e6 },
        { "0.1% fast", 20020000000, 10000000000, 0, false, 10e6 },
        { "0.1% slow", 19980000000, 10000000000, 0, false, -10e6 },
        { "0.1% fast, coarse", 20020000000, 10000000000, 4000000,
          true, 10e6 },
        { "5% fast", 21000000000, 10000000000, 0, false, 500e6 },
        { "5% slow", 19000000000, 10000000000, 0, false, -500e6 },
        { "5% fast, too short to tell", 2100000, 1000000, 0, true, 50e3 },
        { "at the limit", 20012000000, 10000000000, 0, true, 6e6 },
        { "above it", 20012000002, 10000000000, 0, false, 6000001 },
        { "stands still", 0, 10000000000, 0, false, -10e9 },
        { "jumps forward", 20000000000000, 10000000000, 0, false, 9990e9 },
        { "jumps backward", -20000000000000, 10000000000, 0,
          false, -10010e9 },
        { "kernel's clock jumps forward", 20000000000, 10000000000000, 0,
          false, -9990e9 },
        { "kernel's clock jumps backward", 20000000000, -10000000000000, 0,
          false, 10010e9 },
        { "both jump", 20000000000000, 10000000000000, 0, true, 0 },
        { "both jump backward", -20000000000000, -10000000000000, 0, true, 0 },
        { "reset", INT64_MIN, 10000000000, 0, false, -0x1p62 - 10e9 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        struct cost_clock_sample from = {
            UINT64_C(1) << 63, UINT64_C(1) << 62, tests[i].width
        };
        struct cost_clock_sample to = {
            from.ticks + tests[i].ticks, from.ns + tests[i].ns, tests[i].width
        };
        double gained_ns;
        bool good = cost_clock_judge(&from, &to, MULT, &gained_ns);

        if (good != tests[i].good || gained_ns != tests[i].gained_ns) {
            printf("%s: %s, gained %.17g ns\n", tests[i].what,
                   good ? "good" : "bad", gained_ns);
        }
    }
    printf("ok\n");
}

/* cost_clock_continue(). */

static void
test_continue(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static const struct {
        const char *what;
        int64_t ticks;                  /* Of the counter. */
        int64_t ns;
        int64_t expected;               /* Ticks, plus COST_CLOCK_LONG. */
    } tests[] = {
        { "exact", 20000, 10000, 20000 },
        { "no time", 0, 0, 0 },
        { "fast", 21000, 10000, 20000 },
        { "slow", 19000, 10000, 19000 },
        { "jumps forward", 20000000000000, 10000, 20000 },
        { "jumps backward", -20000000000000, 10000, -20000000000000 },
        { "kernel's clock jumps forward", 20000, 10000000000000, 20000 },
        { "kernel's clock jumps backward", 20000, -10000000000000, 20000 },
    };
    struct cost_clock_sample zero = { 0, 0, 0 }, one = { 1, 1, 0 };

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
        struct cost_clock_sample from = {
            UINT64_C(1) << 50, UINT64_C(1) << 49, 0
        };
        struct cost_clock_sample to = {
            from.ticks + tests[i].ticks, from.ns + tests[i].ns, 0
        };
        int64_t ticks = cost_clock_continue(&from, &to, INVERSE) - from.ticks;

        if (ticks != tests[i].expected - (int64_t) COST_CLOCK_LONG) {
            printf("%s: %"PRId64"\n", tests[i].what, ticks);
        }
    }

    /* Never below zero. */
    ovs_assert(!cost_clock_continue(&zero, &one, INVERSE));
    printf("ok\n");
}

/* Choice of the clock. */

static void
test_choice(struct ovs_cmdl_context *ctx)
{
    invariant = atoi(ctx->argv[1]);
    clocks.width = atoi(ctx->argv[3]);
    init_with(fake_sample, ctx->argv[2], "tsc");
    print_clock();
}

/* Faults. */

/* The counter is 'ppm' parts per million too fast, checked 'n' times. */
static void
test_drift(struct ovs_cmdl_context *ctx)
{
    init();
    run(10, 0);
    run(atoi(ctx->argv[2]), atoi(ctx->argv[1]));
    print_clock();
}

/* The counter gains, for ever, a multiple of JUMP_NS, and the kernel's clock
 * another one.  Meanwhile, there are events that began before that, between
 * that and when it is found out, and after. */
static void
test_jump(struct ovs_cmdl_context *ctx)
{
    int counter = atoi(ctx->argv[1]), kernel = atoi(ctx->argv[2]);
    uint64_t before, jumped, last, after, later, real_ns;
    bool recorded = ctx->argc > 3;

    /* Make room for jumps backwards. */
    pass(10 * JUMP_NS, 0);
    init();
    run(10, 0);

    before = clocks.ticks;
    pass(1000 * SEC_NS, 0);
    ovs_assert(ns_between(before, clocks.ticks) == 1000 * SEC_NS);
    ovs_assert(!strcmp(cost_clock_name(), "tsc"));

    clocks.ticks += counter * (int64_t) JUMP_NS * TICKS_PER_NS;
    clocks.ns += kernel * (int64_t) JUMP_NS;
    jumped = clocks.ticks;
    pass(1000 * SEC_NS, 0);
    last = clocks.ticks;

    real_ns = monotonic_ns();
    if (recorded) {
        /* An event ends before cost_clock_run() notices. */
        ovs_assert(!ns_between(before, clocks.ticks));
    } else {
        check_clock();
    }
    print_clock();
    if (!strcmp(cost_clock_name(), "tsc")) {
        return;
    }

    /* Events that have begun.  All of what the latest may have is real. */
    after = cost_clock_now("event");
    real_ns = monotonic_ns() - real_ns;
    ovs_assert(!ns_between(before, after));
    ovs_assert(!ns_between(jumped, after));
    ovs_assert(ns_between(last, after) <= real_ns);

    /* If the counter is ahead, it is not followed. */
    ovs_assert(counter <= 0 || counter < kernel
               || after < last - JUMP_NS / 2 * TICKS_PER_NS);

    /* A reading of another CPU's counter that differs even more. */
    ovs_assert(!ns_between(after - JUMP_NS * TICKS_PER_NS, after));
    ovs_assert(!ns_between(after + JUMP_NS * TICKS_PER_NS, after));

    /* A long event that begins afterwards. */
    xnanosleep(20000000);
    later = cost_clock_now("event");
    ovs_assert(cost_clock_between(after, later) >= COST_CLOCK_LONG);
    ovs_assert(ns_between(after, later) >= 20000000 - 1);
    ovs_assert(ns_between(after, later) < JUMP_NS);

    /* Nothing else is said or done about it, ever. */
    run(2, 50000);
    set_kernel("hpet", "hpet");
    run(2, 0);
    ovs_assert(!strcmp(cost_clock_name(), "monotonic"));
}

/* The kernel's sources of time become others. */
static void
test_kernel(struct ovs_cmdl_context *ctx)
{
    init_with(fake_sample, "tsc hpet acpi_pm", ctx->argv[1]);
    run(2, 0);
    ovs_assert(!strcmp(cost_clock_name(), "tsc"));

    set_kernel(ctx->argv[2], ctx->argv[3]);
    run(2, 0);
    print_clock();
}

/* Readings of a test clock, before and after the counter has failed. */
static void
test_test(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static const uint64_t steps[] = { 1000, JUMP_NS };
    uint64_t start;

    init();
    for (int i = 0; i < 2; i++) {
        ovs_assert(!strcmp(cost_clock_name(), i ? "monotonic" : "tsc"));
        cost_clock_set_test("event", steps, 2);

        start = cost_clock_now("other");
        ovs_assert(cost_clock_now("other") == start);
        ovs_assert(ns_between(start, cost_clock_now("event")) == 1000);
        ovs_assert(ns_between(start, cost_clock_now("event"))
                   == 1000 + JUMP_NS);
        ovs_assert(cost_clock_ticks(JUMP_NS) == JUMP_NS);

        /* Meanwhile, the counter is not in use. */
        run(1, 0);
        pass(JUMP_NS, 50000);
        run(2, 0);
        print_clock();

        cost_clock_set_test(NULL, NULL, 0);
        ovs_assert(cost_clock_ticks(SEC_NS) == SEC_NS * TICKS_PER_NS);
        check_clock();
    }
    print_clock();
}

/* Threads that measure while the counter seems to jump. */

struct measurer {
    pthread_t thread;
    atomic_uint64_t n_events;
};

static struct latch exit_latch;
static atomic_uint64_t seeming_ticks;

static void
seeming_sample(struct cost_clock_sample *sample, uint64_t width)
{
    uint64_t ticks;

    cost_clock_read(sample, width);
    atomic_read(&seeming_ticks, &ticks);
    sample->ticks += ticks;
}

static void *
measure(void *measurer_)
{
    struct measurer *measurer = measurer_;

    while (!latch_is_set(&exit_latch)) {
        for (int i = 0; i < 100; i++) {
            uint64_t start = cost_clock_now("event");
            uint64_t ns = ns_between(start, cost_clock_now("event"));
            uint64_t n;

            ovs_assert(ns < JUMP_NS);
            atomic_add(&measurer->n_events, 1, &n);
        }
    }
    return NULL;
}

/* Waits until each of 'measurers' has measured some more events. */
static void
wait_for_events(struct measurer *measurers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t start, now;

        atomic_read(&measurers[i].n_events, &start);
        do {
            xnanosleep(1000000);
            atomic_read(&measurers[i].n_events, &now);
        } while (now < start + 1000);
    }
}

static void
test_threads(struct ovs_cmdl_context *ctx)
{
    struct measurer measurers[4];

    init_with(seeming_sample, "tsc kvm-clock", "tsc");
    if (strcmp(cost_clock_name(), "tsc")) {
        exit(77);
    }

    latch_init(&exit_latch);
    for (size_t i = 0; i < ARRAY_SIZE(measurers); i++) {
        atomic_init(&measurers[i].n_events, 0);
        measurers[i].thread = ovs_thread_create("measurer", measure,
                                                &measurers[i]);
    }
    wait_for_events(measurers, ARRAY_SIZE(measurers));

    atomic_store(&seeming_ticks, atoi(ctx->argv[1]) * (uint64_t) JUMP_NS);
    check_clock();
    ovs_assert(!strcmp(cost_clock_name(), "monotonic"));
    wait_for_events(measurers, ARRAY_SIZE(measurers));

    latch_set(&exit_latch);
    for (size_t i = 0; i < ARRAY_SIZE(measurers); i++) {
        xpthread_join(measurers[i].thread, NULL);
    }
    latch_destroy(&exit_latch);
    printf("ok\n");
}

/* Conversions there and back. */
static void
test_convert(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static const uint64_t limits[] = {
        0, COST_CLOCK_LONG, UINT32_MAX, 3600 * SEC_NS, UINT64_C(1) << 60
    };

    init();
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        for (uint64_t ticks = limits[i] - MIN(limits[i], 10);
             ticks < limits[i] + 10; ticks++) {
            uint64_t ns = cost_clock_ns(ticks);

            ovs_assert(ns == ticks / TICKS_PER_NS);
            ovs_assert(cost_clock_ticks(ns) == ns * TICKS_PER_NS);
        }
    }
    ovs_assert(!cost_clock_between(2, 1) && cost_clock_between(1, 2) == 1);
    ovs_assert(!strcmp(cost_clock_name(), "tsc"));
    printf("ok\n");
}

/* struct cost_clock_stepper. */
static void
test_stepper(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    struct cost_clock_stepper one = { 0 }, other = { 0 };
    static const uint64_t steps[] = { 7 };
    uint64_t now, end;

    init();

    /* In real time, begun before a test and after one. */
    now = cost_clock_stepper_start(&one, "event");
    ovs_assert(!cost_clock_stepper_is_stale(&one));
    ovs_assert(one.now == 0 && one.n == 0);

    cost_clock_set_test(NULL, steps, 1);
    ovs_assert(cost_clock_stepper_is_stale(&one));
    end = cost_clock_stepper_now(&one, "event");
    ovs_assert(end == cost_clock_now("event") - 7);

    /* In a test, on its own. */
    for (int i = 0; i < 2; i++) {
        now = cost_clock_stepper_start(&one, "event");
        ovs_assert(now == 1000 + i * 6000);
        ovs_assert(!cost_clock_stepper_is_stale(&one));
        ovs_assert(cost_clock_stepper_start(&other, "event")
                   == 1000 + i * 1000);
        ovs_assert(cost_clock_stepper_now(&one, "event") == now + 2000);
        ovs_assert(cost_clock_stepper_now(&one, "event") == now + 5000);
    }
    ovs_assert(cost_clock_now("event") == end + 14);

    /* Ends after the test as it began. */
    cost_clock_set_test(NULL, NULL, 0);
    ovs_assert(cost_clock_stepper_is_stale(&one));
    ovs_assert(cost_clock_stepper_now(&one, "event") == now + 9000);
    cost_clock_stepper_start(&one, "event");
    ovs_assert(!cost_clock_stepper_is_stale(&one));
    ovs_assert(one.now == now + 9000);
    printf("ok\n");
}

/* Prints what 'n' calls of 'call' take on average. */
static void
print_average(const char *what, void (*call)(void), int n)
{
    uint64_t start = monotonic_ns();

    for (int i = 0; i < n; i++) {
        call();
    }
    printf("%s: %.1f ns\n", what, (double) (monotonic_ns() - start) / n);
}

static volatile uint64_t sink;

static void
call_now(void)
{
    sink = cost_clock_now("event");
}

static void
call_convert(void)
{
    sink = cost_clock_ns(sink & (COST_CLOCK_LONG - 1));
}

static void
call_convert_long(void)
{
    sink = cost_clock_ns(COST_CLOCK_LONG);
}

static void
run_benchmark(struct ovs_cmdl_context *ctx)
{
    int n = ctx->argc > 1 ? atoi(ctx->argv[1]) : 10000000;

    if (n < 100) {
        ovs_fatal(0, "\"%s\" is not a number of at least 100", ctx->argv[1]);
    }

    cost_clock_init();
    printf("clock: %s\n", cost_clock_name());
    print_average("reading the clock", call_now, n);
    print_average("converting a short time", call_convert, n);
    print_average("converting a long one", call_convert_long, n / 10);
    print_average("looking after it, not yet due", cost_clock_run, n);
    time_msec();
    timeval_stop();
    print_average("looking after it", check_clock, n / 100);
}

static const struct ovs_cmdl_command commands[] = {
    { "benchmark", "[n]", 0, 1, run_benchmark, OVS_RO },
    { "judge", NULL, 0, 0, test_judge, OVS_RO },
    { "continue", NULL, 0, 0, test_continue, OVS_RO },
    { "choice", "invariant available width", 3, 3, test_choice, OVS_RO },
    { "drift", "ppm n", 2, 2, test_drift, OVS_RO },
    { "jump", "counter kernel [recorded]", 2, 3, test_jump, OVS_RO },
    { "kernel", "first available current", 3, 3, test_kernel, OVS_RO },
    { "test", NULL, 0, 0, test_test, OVS_RO },
    { "threads", "jump", 1, 1, test_threads, OVS_RO },
    { "convert", NULL, 0, 0, test_convert, OVS_RO },
    { "stepper", NULL, 0, 0, test_stepper, OVS_RO },
    { NULL, NULL, 0, 0, NULL, OVS_RO },
};

static void
test_cost_clock_main(int argc, char *argv[])
{
    struct ovs_cmdl_context ctx = {
        .argc = argc - optind,
        .argv = argv + optind,
    };

    set_program_name(argv[0]);
    vlog_set_pattern(VLF_CONSOLE, "%c|%p|%m");
    ovs_cmdl_run_command(&ctx, commands);
}

OVSTEST_REGISTER("test-cost-clock", test_cost_clock_main);
