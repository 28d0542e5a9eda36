/* SPDX-License-Identifier: Apache-2.0 */

/* Tests of the clock: "ovstest test-cost-clock". */

#include <config.h>
#undef NDEBUG
#include "cost-clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command-line.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "timeval.h"
#include "util.h"

#define SEC_NS UINT64_C(1000000000)

/* Makes 'name' what the kernel's clock seems to be made of, in the file
 * "clocksource". */
static void
set_kernel(const char *name)
{
    FILE *stream = fopen("clocksource", "w");

    ovs_assert(stream);
    fprintf(stream, "%s\n", name);
    fclose(stream);
    cost_clock_kernel_file = "clocksource";
}

static void
set_true(bool *flag)
{
    *flag = true;
}

/* Prints which clock is used if the kernel's is made of the argument, or if
 * there is no such file.  Choosing it does not make the thread quiescent. */
static void
test_choice(struct ovs_cmdl_context *ctx)
{
    static bool quiesced;

    if (ctx->argc > 1) {
        set_kernel(ctx->argv[1]);
    } else {
        cost_clock_kernel_file = "no such file";
    }
    ovsrcu_postpone(set_true, &quiesced);
    cost_clock_init();
    ovs_assert(!quiesced);
    ovsrcu_quiesce();
    ovs_assert(quiesced);
    printf("%s\n", cost_clock_name());
}

static uint64_t
ns_between(uint64_t from, uint64_t to)
{
    return cost_clock_ns(cost_clock_ticks(from, to));
}

/* The kernel stops using the counter while events go on: what began before has
 * no time, in whatever direction, and what begins afterwards has. */
static void
test_change(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    uint64_t before, after, end;

    set_kernel("tsc");
    cost_clock_init();
    if (strcmp(cost_clock_name(), "tsc")) {
        exit(77);
    }
    before = cost_clock_now("event", 0);
    xnanosleep(1000000);
    end = ns_between(before, cost_clock_now("event", 0));
    ovs_assert(end >= 990000 && end < 3600 * SEC_NS);

    /* It looks now and then. */
    time_msec();
    timeval_stop();
    cost_clock_run();
    set_kernel("hpet");
    cost_clock_run();
    ovs_assert(!strcmp(cost_clock_name(), "tsc"));
    timeval_warp(60000);
    cost_clock_run();
    ovs_assert(!strcmp(cost_clock_name(), "monotonic"));

    after = cost_clock_now("event", 0);
    ovs_assert(ns_between(before, after) == COST_CLOCK_UNKNOWN);
    ovs_assert(ns_between(after, before) == COST_CLOCK_UNKNOWN);
    xnanosleep(1000000);
    end = ns_between(after, cost_clock_now("event", cost_clock_tsc()));
    ovs_assert(end >= 1000000 && end < 3600 * SEC_NS);
    printf("ok\n");
}

/* Differences, and their conversion to nanoseconds. */
static void
test_convert(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static const uint64_t limits[] = {
        0, 1 << 24, UINT32_MAX, SEC_NS, COST_CLOCK_MAX_NS
    };
    static const uint32_t mults[] = { 1 << 24, 3 << 22, (1 << 24) / 3 };

    for (size_t i = 0; i < ARRAY_SIZE(mults); i++) {
        atomic_store_relaxed(&cost_clock.mult, mults[i]);
        for (size_t j = 0; j < ARRAY_SIZE(limits); j++) {
            for (uint64_t ticks = limits[j] - MIN(limits[j], 10);
                 ticks < limits[j] + 10; ticks++) {
                long double exact = (long double) ticks * mults[i] / (1 << 24);
                uint64_t ns = cost_clock_ns(ticks);

                if (exact >= COST_CLOCK_MAX_NS + 1) {
                    ovs_assert(ns == COST_CLOCK_UNKNOWN);
                } else {
                    ovs_assert(ns <= exact && ns + 2 > exact);
                }
            }
        }
    }
    ovs_assert(cost_clock_ns(UINT64_MAX) == COST_CLOCK_UNKNOWN);
    ovs_assert(cost_clock_ns(UINT64_C(1) << 54) == COST_CLOCK_UNKNOWN);

    ovs_assert(cost_clock_ticks(1, 3) == 2);
    ovs_assert(cost_clock_ticks(3, 1) == 0);
    ovs_assert(cost_clock_ns(cost_clock_ticks(UINT64_C(1) << 40, 1))
               == COST_CLOCK_UNKNOWN);
    printf("ok\n");
}

/* A clock that a test sets. */
static void
test_test(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    static const uint64_t steps[] = { 1000, 5 * SEC_NS };
    uint64_t start;

    cost_clock_init();
    cost_clock_set_test("event", steps, 2);
    ovs_assert(!strcmp(cost_clock_name(), "test"));
    start = cost_clock_now("other", 12345);
    ovs_assert(cost_clock_now("other", 0) == start);
    ovs_assert(ns_between(start, cost_clock_now("event", 12345)) == 1000);
    ovs_assert(ns_between(start, cost_clock_now("event", 0))
               == 1000 + 5 * SEC_NS);
    ovs_assert(ns_between(start, cost_clock_now("event", 0))
               == 2000 + 5 * SEC_NS);
    cost_clock_set_test(NULL, steps, 1);
    start = cost_clock_now("other", 0);
    ovs_assert(ns_between(start, cost_clock_now("another", 0)) == 1000);
    cost_clock_set_test(NULL, NULL, 0);
    ovs_assert(strcmp(cost_clock_name(), "test"));
    printf("ok\n");
}

static const struct ovs_cmdl_command commands[] = {
    { "choice", "[clocksource]", 0, 1, test_choice, OVS_RO },
    { "change", NULL, 0, 0, test_change, OVS_RO },
    { "convert", NULL, 0, 0, test_convert, OVS_RO },
    { "test", NULL, 0, 0, test_test, OVS_RO },
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
