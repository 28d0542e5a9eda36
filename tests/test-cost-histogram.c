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
#include "cost-histogram.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command-line.h"
#include "cost-memory.h"
#include "latch.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

/* The bucket of 'ns', found without cleverness. */
static unsigned int
naive_bucket(uint64_t ns)
{
    unsigned int b;

    for (b = 0; b < COST_HIST_N_EDGES && ns > cost_hist_edges[b]; b++) {
        continue;
    }
    return b;
}

static void
check_buckets(void)
{
    /* Every edge and its neighbours. */
    for (size_t i = 0; i < COST_HIST_N_EDGES; i++) {
        uint64_t edge = cost_hist_edges[i];

        ovs_assert(!i || edge > cost_hist_edges[i - 1]
                   || naive_bucket(edge) < i);
        ovs_assert(cost_hist_bucket(edge) == naive_bucket(edge));
        ovs_assert(cost_hist_bucket(edge + 1) == naive_bucket(edge + 1));
        ovs_assert(!edge
                   || cost_hist_bucket(edge - 1) == naive_bucket(edge - 1));
    }

    /* Every small value, and random ones of every size. */
    for (uint64_t ns = 0; ns < 100000; ns++) {
        ovs_assert(cost_hist_bucket(ns) == naive_bucket(ns));
    }
    for (int i = 0; i < 1000000; i++) {
        uint64_t ns = random_uint64() >> random_range(64);

        ovs_assert(cost_hist_bucket(ns) == naive_bucket(ns));
    }

    ovs_assert(cost_hist_edges[COST_HIST_N_EDGES - 1] == COST_HIST_MAX_NS);
    ovs_assert(cost_hist_bucket(0) == 0);
    ovs_assert(cost_hist_bucket(1) == 1);
    ovs_assert(cost_hist_bucket(COST_HIST_MAX_NS) == COST_HIST_N_EDGES - 1);
    ovs_assert(cost_hist_bucket(COST_HIST_MAX_NS + 1) == COST_HIST_N_EDGES);
    ovs_assert(cost_hist_bucket(UINT64_MAX) == COST_HIST_N_EDGES);
}

static struct cost_hist *
hist_create(void)
{
    struct cost_hist *hist = xmalloc(sizeof *hist);

    cost_hist_init(hist);
    return hist;
}

static void
hist_destroy(struct cost_hist *hist)
{
    cost_hist_uninit(hist);
    free(hist);
}

static void
hist_clear(struct cost_hist *hist)
{
    cost_hist_uninit(hist);
    cost_hist_init(hist);
}

static void
check_statistics(void)
{
    struct cost_hist *hist = hist_create();
    struct cost_hist_snapshot snap;
    static const uint64_t huge = UINT64_C(0xfedcba9876543210);

    /* Empty. */
    cost_hist_read(hist, &snap);
    ovs_assert(snap.count == 0 && snap.sum == 0 && snap.max == 0);
    ovs_assert(snap.min == UINT64_MAX);
    ovs_assert(cost_hist_snapshot_mean(&snap) == 0);
    ovs_assert(cost_hist_snapshot_stddev(&snap) == 0);
    ovs_assert(cost_hist_snapshot_percentile(&snap, 50) == 0);

    /* A known population: 2, 4, 4, 4, 5, 5, 7, 9 has mean 5 and standard
     * deviation 2. */
    static const uint64_t values[] = { 2, 4, 4, 4, 5, 5, 7, 9 };
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        cost_hist_add(hist, values[i] * 1000000);
    }
    cost_hist_read(hist, &snap);
    ovs_assert(snap.count == 8 && snap.sum == 40000000);
    ovs_assert(snap.min == 2000000 && snap.max == 9000000);
    ovs_assert(snap.sum_sq.u64.hi == 0);
    ovs_assert(snap.sum_sq.u64.lo == UINT64_C(232000000000000));
    ovs_assert(cost_hist_snapshot_mean(&snap) == 5e6);
    ovs_assert(fabs(cost_hist_snapshot_stddev(&snap) - 2e6) < 0.001);

    /* Clear. */
    hist_clear(hist);
    cost_hist_read(hist, &snap);
    ovs_assert(snap.count == 0 && snap.sum == 0 && snap.min == UINT64_MAX);

    /* Squares that take 128 bits:
     * 0xfedcba9876543210**2 = 0xfdbac097c8dc5acc_deec6cd7a44a4100. */
    cost_hist_add(hist, huge);
    cost_hist_read(hist, &snap);
    ovs_assert(snap.sum_sq.u64.hi == UINT64_C(0xfdbac097c8dc5acc));
    ovs_assert(snap.sum_sq.u64.lo == UINT64_C(0xdeec6cd7a44a4100));
    ovs_assert(snap.buckets[COST_HIST_N_EDGES] == 1);
    ovs_assert(cost_hist_snapshot_percentile(&snap, 50) == (double) huge);

    /* Carry from the lower to the upper 64 bits. */
    hist_clear(hist);
    for (int i = 0; i < 4; i++) {
        cost_hist_add(hist, UINT64_C(1) << 31);
        cost_hist_add(hist, UINT64_C(1) << 32);
    }
    cost_hist_read(hist, &snap);
    ovs_assert(snap.sum_sq.u64.hi == 5 && snap.sum_sq.u64.lo == 0);

    hist_destroy(hist);
}

static int
compare_u64(const void *a_, const void *b_)
{
    const uint64_t *a = a_, *b = b_;

    return *a < *b ? -1 : *a > *b;
}

/* Percentiles of random values are off by at most half of a bucket. */
static void
check_percentiles(void)
{
    enum { N = 20000 };
    static const double percents[] = { 0.001, 1, 50, 90, 99, 99.9, 100 };
    double max_error = exp2(1.0 / 16) - 1;
    struct cost_hist *hist = hist_create();
    uint64_t *values = xmalloc(N * sizeof *values);
    struct cost_hist_snapshot snap;

    for (int round = 0; round < 15; round++) {
        hist_clear(hist);
        for (int i = 0; i < N; i++) {
            values[i] = (random_uint64() >> (64 - 6 - 2 * round)) + 1;
            cost_hist_add(hist, values[i]);
        }
        qsort(values, N, sizeof *values, compare_u64);
        cost_hist_read(hist, &snap);
        for (size_t i = 0; i < ARRAY_SIZE(percents); i++) {
            size_t rank = MAX(ceil(percents[i] * N / 100 - 0.000001), 1);
            double exact = values[rank - 1];
            double got = cost_hist_snapshot_percentile(&snap, percents[i]);
            uint64_t number
                = cost_hist_snapshot_percentile_number(&snap, percents[i]);

            ovs_assert(fabs(got - exact) <= exact * max_error + 0.000001);
            ovs_assert(number >= exact && number <= exact * exp2(1.0 / 8)
                       && (exact > 11 || number == exact));
        }
    }

    /* Of two values, the median is the lower one. */
    hist_clear(hist);
    cost_hist_add(hist, 10);
    cost_hist_add(hist, 1000);
    cost_hist_read(hist, &snap);
    ovs_assert(cost_hist_snapshot_percentile(&snap, 50) == 10);
    ovs_assert(cost_hist_snapshot_percentile(&snap, 50.1) == 1000);

    /* Only zeros. */
    hist_clear(hist);
    cost_hist_add(hist, 0);
    cost_hist_read(hist, &snap);
    ovs_assert(snap.buckets[0] == 1 && snap.min == 0 && snap.max == 0);
    ovs_assert(cost_hist_snapshot_percentile(&snap, 99) == 0);
    ovs_assert(cost_hist_snapshot_percentile_number(&snap, 50) == 0);

    free(values);
    hist_destroy(hist);
}

static bool
snapshots_equal(const struct cost_hist_snapshot *a,
                const struct cost_hist_snapshot *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* (a + b) + c == a + (b + c) == everything in one histogram. */
static void
check_merge(void)
{
    struct cost_hist *hists[3], *all = hist_create();
    struct cost_hist_snapshot snaps[3], expected, left, right, tmp;

    for (int i = 0; i < 3; i++) {
        hists[i] = hist_create();
        for (int j = 0; j < 1000; j++) {
            uint64_t ns = random_uint64() >> random_range(64);

            cost_hist_add(hists[i], ns);
            cost_hist_add(all, ns);
        }
        cost_hist_read(hists[i], &snaps[i]);
    }
    cost_hist_read(all, &expected);

    left = snaps[0];
    cost_hist_snapshot_merge(&left, &snaps[1]);
    cost_hist_snapshot_merge(&left, &snaps[2]);

    tmp = snaps[1];
    cost_hist_snapshot_merge(&tmp, &snaps[2]);
    right = snaps[0];
    cost_hist_snapshot_merge(&right, &tmp);

    ovs_assert(snapshots_equal(&left, &right));
    ovs_assert(snapshots_equal(&left, &expected));

    /* An empty one changes nothing. */
    cost_hist_snapshot_init(&tmp, &cost_hist_exponential);
    cost_hist_snapshot_merge(&left, &tmp);
    ovs_assert(snapshots_equal(&left, &expected));
    cost_hist_snapshot_merge(&tmp, &expected);
    ovs_assert(snapshots_equal(&tmp, &expected));

    for (int i = 0; i < 3; i++) {
        hist_destroy(hists[i]);
    }
    hist_destroy(all);
}

/* Makes what bucket 'b' of 'hist' has in windows[idx] 'n'. */
static void
set_bucket(struct cost_hist *hist, size_t idx, unsigned int b, uint32_t n)
{
    struct cost_hist_window *window
        = ovsrcu_get(struct cost_hist_window *, &hist->windows[idx]);

    atomic_store_relaxed(&window->buckets[b - window->first], n);
}

/* Returns what recording takes, after waiting until what is free has been
 * given back. */
static uint64_t
memory_used(void)
{
    struct latch given_back;

    latch_init(&given_back);
    ovsrcu_postpone(latch_set, &given_back);
    while (!latch_is_set(&given_back)) {
        xnanosleep(1000000);
    }
    latch_destroy(&given_back);
    return cost_memory_used();
}

/* Buckets count further than the 32 bits that each has at first. */
static void
check_carry(void)
{
    struct cost_hist *hist = hist_create();
    unsigned int b = cost_hist_bucket(1000);
    uint64_t before = memory_used(), some, count, sum;
    struct cost_hist_snapshot snap;

    cost_hist_add(hist, 1000);
    some = memory_used();
    set_bucket(hist, COST_HIST_LOW, b, UINT32_MAX);
    cost_hist_read(hist, &snap);
    ovs_assert(snap.buckets[b] == UINT32_MAX && snap.count == UINT32_MAX);

    cost_hist_add(hist, 1000);
    ovs_assert(memory_used() == some + (some - before));
    cost_hist_add(hist, 1000);
    cost_hist_add(hist, 1);
    cost_hist_read(hist, &snap);
    ovs_assert(snap.buckets[b] == (UINT64_C(1) << 32) + 1);
    ovs_assert(snap.buckets[1] == 1 && snap.count == (UINT64_C(1) << 32) + 2);

    set_bucket(hist, COST_HIST_LOW, b, UINT32_MAX);
    cost_hist_add(hist, 1000);
    cost_hist_read(hist, &snap);
    cost_hist_read_sum(hist, &count, &sum);
    ovs_assert(snap.buckets[b] == UINT64_C(2) << 32);
    ovs_assert(snap.count == (UINT64_C(2) << 32) + 1 && count == snap.count);
    ovs_assert(sum == snap.sum && sum == 4001);

    hist_destroy(hist);
    ovs_assert(memory_used() == before);
}

/* Only buckets around those in use take memory, which is given back. */
static void
check_memory(void)
{
    struct cost_hist *hist = hist_create();
    uint64_t chunk = COST_HIST_CHUNK * sizeof(uint32_t);
    struct cost_hist_snapshot snap;
    uint64_t before = memory_used(), some;

    cost_hist_read(hist, &snap);
    ovs_assert(!snap.count && memory_used() == before);
    cost_hist_add(hist, 1000);
    some = memory_used();
    ovs_assert(some > before && some <= before + chunk + 16);
    cost_hist_add(hist, 1000);
    ovs_assert(memory_used() == some);

    /* Downwards, upwards, and what is above all edges. */
    cost_hist_add(hist, 0);
    ovs_assert(memory_used() == some + (ROUND_DOWN(cost_hist_bucket(1000),
                                                   COST_HIST_CHUNK)
                                        * sizeof(uint32_t)));
    cost_hist_add(hist, UINT64_MAX);
    ovs_assert(memory_used()
               <= before + COST_HIST_N_BUCKETS * sizeof(uint32_t) + 16);
    cost_hist_read(hist, &snap);
    ovs_assert(snap.count == 4 && snap.buckets[0] == 1
               && snap.buckets[cost_hist_bucket(1000)] == 2
               && snap.buckets[COST_HIST_N_EDGES] == 1);
    hist_destroy(hist);
    ovs_assert(memory_used() == before);
}

/* Numbers that have a bucket each. */
static void
check_linear(void)
{
    static const uint64_t edges[] = { 0, 1, 2, 3, 4 };
    static const struct cost_hist_layout layout = {
        .edges = edges,
        .n_edges = ARRAY_SIZE(edges),
        .linear = true,
    };
    struct cost_hist_snapshot snap, other;

    cost_hist_snapshot_init(&snap, &layout);
    cost_hist_snapshot_init(&other, &layout);
    cost_hist_snapshot_add(&snap, 0, 5);
    cost_hist_snapshot_add(&snap, 3, 0);
    cost_hist_snapshot_add(&snap, 4, 3);
    cost_hist_snapshot_add(&other, 9, 2);
    cost_hist_snapshot_merge(&snap, &other);
    ovs_assert(snap.count == 10 && snap.sum == 30 && snap.min == 0
               && snap.max == 9 && snap.sum_sq.u64.lo == 48 + 162
               && !snap.sum_sq.u64.hi);
    ovs_assert(snap.buckets[0] == 5 && snap.buckets[4] == 3
               && snap.buckets[5] == 2 && !snap.buckets[3]);
    ovs_assert(cost_hist_snapshot_percentile_number(&snap, 50) == 0);
    ovs_assert(cost_hist_snapshot_percentile_number(&snap, 51) == 4);
    ovs_assert(cost_hist_snapshot_percentile_number(&snap, 90) == 9);
}

static void
run_check(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    check_buckets();
    check_statistics();
    check_percentiles();
    check_merge();
    check_carry();
    check_memory();
    check_linear();
    printf("ok\n");
}

/* Prints each bucket's upper edge, so that a program which calculates them in
 * another way can compare. */
static void
run_edges(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    for (size_t i = 0; i < COST_HIST_N_EDGES; i++) {
        printf("%"PRIuSIZE" %"PRIu64"\n", i, cost_hist_edges[i]);
    }
}

static double
seconds(void)
{
    struct timespec ts;

    xclock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Prints what one cost_hist_add() takes, in nanoseconds: the median of several
 * rounds of 'n' each, with values like those that an upcall's stage takes. */
static void
run_benchmark(struct ovs_cmdl_context *ctx)
{
    enum { N_ROUNDS = 21, N_VALUES = 4096 };
    int n = ctx->argc > 1 ? atoi(ctx->argv[1]) : 10000000;
    struct cost_hist *hist = hist_create();
    uint64_t *values = xmalloc(N_VALUES * sizeof *values);
    double ns[N_ROUNDS];

    if (n < 1) {
        ovs_fatal(0, "\"%s\" is not a positive number", ctx->argv[1]);
    }
    for (int i = 0; i < N_VALUES; i++) {
        values[i] = 1000 + random_range(8000);
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        double start = seconds();

        for (int i = 0; i < n; i++) {
            cost_hist_add(hist, values[i % N_VALUES]);
        }
        ns[round] = (seconds() - start) / n * 1e9;

        /* Keep sorted. */
        for (int i = round; i && ns[i] < ns[i - 1]; i--) {
            double tmp = ns[i];

            ns[i] = ns[i - 1];
            ns[i - 1] = tmp;
        }
    }
    printf("record: %.2f ns (min %.2f, max %.2f, %d rounds of %d)\n",
           ns[N_ROUNDS / 2], ns[0], ns[N_ROUNDS - 1], N_ROUNDS, n);
    free(values);
    hist_destroy(hist);
}

static const struct ovs_cmdl_command commands[] = {
    { "check", NULL, 0, 0, run_check, OVS_RO },
    { "edges", NULL, 0, 0, run_edges, OVS_RO },
    { "benchmark", "[n]", 0, 1, run_benchmark, OVS_RO },
    { NULL, NULL, 0, 0, NULL, OVS_RO },
};

static void
test_cost_histogram_main(int argc, char *argv[])
{
    struct ovs_cmdl_context ctx = {
        .argc = argc - optind,
        .argv = argv + optind,
    };

    set_program_name(argv[0]);
    ovs_cmdl_run_command(&ctx, commands);
}

OVSTEST_REGISTER("test-cost-histogram", test_cost_histogram_main);
