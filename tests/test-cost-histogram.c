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

/* Tests of histograms: "ovstest test-cost-histogram". */

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
#include "ovstest.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

/* A histogram that has all buckets. */
struct whole {
    struct cost_hist hist;
    uint64_t buckets[COST_HIST_N_BUCKETS];
};

/* Makes 'w' empty, linear up to 'limit' unless that is 0, with buckets of 64
 * bits each other time. */
static struct cost_hist *
whole_init(struct whole *w, uint16_t limit)
{
    static bool wide;

    cost_hist_init(&w->hist, limit);
    cost_hist_extend(&w->hist, 0);
    cost_hist_extend(&w->hist, cost_hist_n_buckets(&w->hist) - 1);
    w->hist.wide = wide = !wide;
    w->hist.buckets = memset(w->buckets, 0, sizeof w->buckets);
    return &w->hist;
}

static void
add(struct cost_hist *hist, uint64_t value)
{
    cost_hist_record(hist, cost_hist_bucket_of(hist, value), value);
}

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
        for (uint64_t ns = edge ? edge - 1 : 0; ns <= edge + 1; ns++) {
            ovs_assert(cost_hist_bucket(ns) == naive_bucket(ns));
        }
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

static void
check_statistics(void)
{
    static const uint64_t values[] = { 2, 4, 4, 4, 5, 5, 7, 9 };
    struct whole w;
    struct cost_hist *hist = whole_init(&w, 0);
    struct cost_hist none;

    cost_hist_init(&none, 0);
    ovs_assert(!cost_hist_count(&none) && !cost_hist_max(&none)
               && !cost_hist_sum(&none) && !cost_hist_mean(&none)
               && cost_hist_min(&none) == UINT64_MAX
               && !cost_hist_percentile(&none, 50, false));
    ovs_assert(!cost_hist_count(hist) && !cost_hist_mean(hist)
               && cost_hist_min(hist) == UINT64_MAX
               && !cost_hist_percentile(hist, 50, false));
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        add(hist, values[i] * 1000000);
    }
    ovs_assert(cost_hist_count(hist) == 8 && cost_hist_sum(hist) == 40000000
               && cost_hist_min(hist) == 2000000
               && cost_hist_max(hist) == 9000000
               && cost_hist_mean(hist) == 5e6);

    /* Above all edges. */
    add(hist, UINT64_MAX);
    ovs_assert(cost_hist_get(hist, COST_HIST_N_EDGES) == 1);
    ovs_assert(cost_hist_percentile(hist, 100, false) == (double) UINT64_MAX);
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
    uint64_t *values = xmalloc(N * sizeof *values);
    struct cost_hist *hist;
    struct whole w;

    for (int round = 0; round < 15; round++) {
        hist = whole_init(&w, 0);
        for (int i = 0; i < N; i++) {
            values[i] = (random_uint64() >> (64 - 6 - 2 * round)) + 1;
            add(hist, values[i]);
        }
        qsort(values, N, sizeof *values, compare_u64);
        for (size_t i = 0; i < ARRAY_SIZE(percents); i++) {
            size_t rank = MAX(ceil(percents[i] * N / 100 - 0.000001), 1);
            double exact = values[rank - 1];
            double got = cost_hist_percentile(hist, percents[i], false);
            double number = cost_hist_percentile(hist, percents[i], true);

            ovs_assert(fabs(got - exact) <= exact * max_error + 0.000001);
            ovs_assert(number >= exact && number <= exact * exp2(1.0 / 8)
                       && (exact > 11 || number == exact));
        }
    }

    /* Of two values, the median is the lower one. */
    hist = whole_init(&w, 0);
    add(hist, 10);
    add(hist, 1000);
    ovs_assert(cost_hist_percentile(hist, 50, false) == 10);
    ovs_assert(cost_hist_percentile(hist, 50.1, false) == 1000);

    /* Only zeros. */
    hist = whole_init(&w, 0);
    add(hist, 0);
    ovs_assert(cost_hist_get(hist, 0) == 1 && !cost_hist_min(hist)
               && !cost_hist_max(hist));
    ovs_assert(cost_hist_percentile(hist, 99, false) == 0);
    ovs_assert(cost_hist_percentile(hist, 50, true) == 0);
    free(values);
}

/* The time of a maximum is that of the first event that took so long, or
 * unknown. */
static void
check_max_time(void)
{
    struct cost_hist *a, *b;
    struct whole w, x;
    uint64_t us;

    a = whole_init(&w, 0);
    b = whole_init(&x, 0);
    ovs_assert(!cost_load(&a->max_us));
    add(a, 1000);
    us = cost_load(&a->max_us);
    ovs_assert(us && us <= time_wall_usec());
    xnanosleep_no_quiesce(2000000);
    add(a, 1000);
    add(a, 10);
    ovs_assert(cost_load(&a->max_us) == us);
    add(b, 1001);
    ovs_assert(cost_load(&b->max_us) > us);
    cost_hist_add(b, a);
    ovs_assert(cost_hist_max(b) == 1001 && cost_load(&b->max_us) > us);
    cost_hist_add(a, b);
    ovs_assert(cost_hist_max(a) == 1001
               && cost_load(&a->max_us) == cost_load(&b->max_us));

    /* It may have been before those that are left. */
    cost_hist_fit_extremes(a, cost_load(&b->max_us));
    ovs_assert(cost_load(&a->max_us) == cost_load(&b->max_us));
    cost_hist_fit_extremes(a, cost_load(&b->max_us) + 1);
    ovs_assert(!cost_load(&a->max_us) && cost_hist_max(a) == 1001);
}

static bool
hists_equal(const struct cost_hist *a, const struct cost_hist *b)
{
    bool equal = (cost_hist_sum(a) == cost_hist_sum(b)
                  && cost_hist_min(a) == cost_hist_min(b)
                  && cost_hist_max(a) == cost_hist_max(b));

    for (unsigned int i = 0; i < cost_hist_n_buckets(a); i++) {
        equal = equal && cost_hist_get(a, i) == cost_hist_get(b, i);
    }
    return equal;
}

/* (a + b) + c == a + (b + c) == everything in one histogram. */
static void
check_add(void)
{
    struct cost_hist *hists[3], *expected, *left, *right;
    struct whole w[6];

    for (int i = 0; i < 3; i++) {
        hists[i] = whole_init(&w[i], 0);
    }
    expected = whole_init(&w[3], 0);
    left = whole_init(&w[4], 0);
    right = whole_init(&w[5], 0);
    for (int i = 0; i < 3000; i++) {
        uint64_t ns = random_uint64() >> random_range(64);

        add(hists[i % 3], ns);
        add(expected, ns);
    }
    for (int i = 0; i < 3; i++) {
        cost_hist_add(left, hists[i]);
        cost_hist_add(right, hists[2 - i]);
    }
    ovs_assert(hists_equal(left, expected) && hists_equal(right, expected));

    /* An empty one changes nothing. */
    cost_hist_add(left, whole_init(&w[0], 0));
    ovs_assert(hists_equal(left, expected));
}

/* The range of buckets grows by doublings, or has all buckets. */
static void
check_range(void)
{
    struct cost_hist hist;

    cost_hist_init(&hist, 0);
    for (int i = 0; i < 2; i++) {
        cost_hist_extend(&hist, 17);
        ovs_assert(hist.first == 16 && hist.n == 8);
        ovs_assert(cost_hist_size(&hist) == 8 * sizeof(uint32_t));
    }
    cost_hist_extend(&hist, 40);
    ovs_assert(hist.first == 16 && hist.n == 32);
    cost_hist_extend(&hist, 0);
    ovs_assert(hist.first == 0 && hist.n == 48);
    cost_hist_extend(&hist, COST_HIST_N_EDGES);
    ovs_assert(hist.first == 0 && hist.n == COST_HIST_N_BUCKETS);
    hist.wide = true;
    ovs_assert(cost_hist_size(&hist) == hist.n * sizeof(uint64_t));

    cost_hist_init(&hist, 4);
    cost_hist_extend(&hist, 3);
    ovs_assert(hist.first == 0 && hist.n == 6);
    ovs_assert(!cost_hist_has(&hist, 6) && cost_hist_has(&hist, 5));
}

/* Numbers that have a bucket each. */
static void
check_linear(void)
{
    static const uint64_t numbers[] = { 0, 0, 0, 0, 0, 4, 4, 4, 9, 9 };
    struct whole w;
    struct cost_hist *hist = whole_init(&w, 4);

    for (size_t i = 0; i < ARRAY_SIZE(numbers) - 2; i++) {
        add(hist, numbers[i]);
    }
    cost_hist_add_number(hist, 9, 2);
    cost_hist_add_number(hist, 7, 0);
    ovs_assert(cost_hist_count(hist) == 10 && cost_hist_sum(hist) == 30
               && !cost_hist_min(hist) && cost_hist_max(hist) == 9);
    ovs_assert(cost_hist_get(hist, 0) == 5 && cost_hist_get(hist, 4) == 3
               && cost_hist_get(hist, 5) == 2 && !cost_hist_get(hist, 3));
    ovs_assert(cost_hist_percentile(hist, 50, true) == 0);
    ovs_assert(cost_hist_percentile(hist, 51, true) == 4);
    ovs_assert(cost_hist_percentile(hist, 90, true) == 9);
}

static void
run_check(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    check_buckets();
    check_statistics();
    check_percentiles();
    check_max_time();
    check_add();
    check_range();
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

static int
compare_doubles(const void *a_, const void *b_)
{
    const double *a = a_, *b = b_;

    return *a < *b ? -1 : *a > *b;
}

/* Prints the time that adding one value takes, in nanoseconds: the median of
 * several rounds of 'n' values each, which are as the times of an upcall's
 * stage. */
static void
run_benchmark(struct ovs_cmdl_context *ctx)
{
    enum { N_ROUNDS = 21, N_VALUES = 4096 };
    int n = ctx->argc > 1 ? atoi(ctx->argv[1]) : 10000000;
    struct whole whole;
    struct cost_hist *hist = whole_init(&whole, 0);
    static uint64_t values[N_VALUES];
    double ns[N_ROUNDS];

    if (n < 1) {
        ovs_fatal(0, "\"%s\" is not a positive number", ctx->argv[1]);
    }
    hist->wide = false;
    for (size_t i = 0; i < N_VALUES; i++) {
        values[i] = 1000 + random_range(8000);
    }
    for (size_t round = 0; round < N_ROUNDS; round++) {
        double start = seconds();

        for (int i = 0; i < n; i++) {
            add(hist, values[i % N_VALUES]);
        }
        ns[round] = (seconds() - start) / n * 1e9;
    }
    qsort(ns, N_ROUNDS, sizeof *ns, compare_doubles);
    printf("record: %.2f ns (min %.2f, max %.2f, %d rounds of %d)\n",
           ns[N_ROUNDS / 2], ns[0], ns[N_ROUNDS - 1], N_ROUNDS, n);
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
