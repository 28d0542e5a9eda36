/* SPDX-License-Identifier: Apache-2.0 */

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

/* Returns an empty histogram, the one that was number 'i' before. */
static struct cost_hist *
empty(size_t i)
{
    static struct cost_hist hists[6];
    static bool used[6];

    if (used[i]) {
        cost_hist_uninit(&hists[i]);
    }
    used[i] = true;
    cost_hist_init(&hists[i]);
    return &hists[i];
}

static bool
add(struct cost_hist *hist, uint64_t value)
{
    bool highest;

    while (!cost_hist_record(hist, value, &highest)) {
        cost_hist_grow(hist, value);
    }
    return highest;
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
    struct cost_hist *hist = empty(0);

    ovs_assert(!cost_hist_count(hist) && !cost_load(&hist->sum)
               && !cost_load(&hist->max)
               && cost_load(&hist->min) == UINT64_MAX
               && !cost_hist_percentile(hist, 50, false));
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        add(hist, values[i] * 1000000);
    }
    ovs_assert(cost_hist_count(hist) == 8 && cost_load(&hist->sum) == 40000000
               && cost_load(&hist->min) == 2000000
               && cost_load(&hist->max) == 9000000);

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

    for (int round = 0; round < 15; round++) {
        hist = empty(0);
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
    hist = empty(0);
    add(hist, 10);
    add(hist, 1000);
    ovs_assert(cost_hist_percentile(hist, 50, false) == 10);
    ovs_assert(cost_hist_percentile(hist, 50.1, false) == 1000);

    /* Only zeros. */
    hist = empty(0);
    add(hist, 0);
    ovs_assert(cost_hist_get(hist, 0) == 1 && !cost_load(&hist->min)
               && !cost_load(&hist->max));
    ovs_assert(cost_hist_percentile(hist, 99, false) == 0);
    ovs_assert(cost_hist_percentile(hist, 50, true) == 0);
    free(values);
}

/* A value that is higher than all before it is told apart. */
static void
check_highest(void)
{
    struct cost_hist *hist = empty(0);

    ovs_assert(add(hist, 1000) && !add(hist, 1000) && !add(hist, 10)
               && add(hist, 1001));
    ovs_assert(cost_load(&hist->max) == 1001 && cost_load(&hist->min) == 10);
    hist = empty(0);
    ovs_assert(!add(hist, 0) && !cost_load(&hist->min));
}

static bool
hists_equal(const struct cost_hist *a, const struct cost_hist *b)
{
    bool equal = (cost_load(&a->sum) == cost_load(&b->sum)
                  && cost_load(&a->min) == cost_load(&b->min)
                  && cost_load(&a->max) == cost_load(&b->max));

    for (unsigned int i = 0; i < COST_HIST_N_BUCKETS; i++) {
        equal = equal && cost_hist_get(a, i) == cost_hist_get(b, i);
    }
    return equal;
}

/* (a + b) + c == a + (b + c) == everything in one histogram. */
static void
check_add(void)
{
    struct cost_hist *hists[3], *expected, *left, *right;

    for (int i = 0; i < 3; i++) {
        hists[i] = empty(i);
    }
    expected = empty(3);
    left = empty(4);
    right = empty(5);
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
    cost_hist_add(left, empty(0));
    ovs_assert(hists_equal(left, expected));
}

/* What is left when what was there before is taken away.  Minimum and maximum
 * are those of what is left, or edges of its buckets, or those of all. */
static void
check_subtract(void)
{
    struct cost_hist *now, *old, *left;

    for (int round = 0; round < 100; round++) {
        unsigned int first = COST_HIST_N_BUCKETS, last = 0;

        now = empty(0);
        old = empty(1);
        left = empty(2);
        for (int i = 0; i < 200; i++) {
            uint64_t ns = random_uint64() >> random_range(64);

            add(now, ns);
            if (i < 2 * round) {
                add(old, ns);
            } else {
                unsigned int b = cost_hist_bucket(ns);

                add(left, ns);
                first = MIN(first, b);
                last = MAX(last, b);
            }
        }
        cost_hist_subtract(now, old);
        ovs_assert(cost_load(&now->sum) == cost_load(&left->sum)
                   && cost_hist_count(now) == cost_hist_count(left));
        for (unsigned int i = 0; i < COST_HIST_N_BUCKETS; i++) {
            ovs_assert(cost_hist_get(now, i) == cost_hist_get(left, i));
        }
        ovs_assert(cost_load(&now->min) <= cost_load(&left->min)
                   && cost_load(&now->max) >= cost_load(&left->max));
        ovs_assert(cost_hist_bucket(cost_load(&now->min)) == first
                   && cost_hist_bucket(cost_load(&now->max)) == last);
    }

    /* Extremes that were not there before stay exact. */
    now = empty(0);
    old = empty(1);
    add(old, 1000);
    cost_hist_add(now, old);
    add(now, 10);
    add(now, 70000);
    cost_hist_subtract(now, old);
    ovs_assert(cost_load(&now->min) == 10 && cost_load(&now->max) == 70000);

    /* Nothing is left. */
    cost_hist_subtract(old, old);
    ovs_assert(hists_equal(old, empty(2)));

    /* The old one may have had fewer buckets, or none. */
    cost_hist_subtract(now, empty(1));
    ovs_assert(cost_hist_count(now) == 2 && cost_load(&now->min) == 10);
}

/* The range of buckets grows by half doublings, and keeps the counts. */
static void
check_range(void)
{
    static const struct {
        unsigned int bucket;
        size_t n;
    } ranges[] = {
        { 17, 4 }, { 40, 28 }, { 0, 44 },
        { COST_HIST_N_EDGES - 1, COST_HIST_N_BUCKETS },
    };
    struct cost_hist *hist = empty(0);
    unsigned int first, last;

    ovs_assert(!cost_hist_size(hist) && !cost_hist_get(hist, 17));
    ovs_assert(!cost_hist_range(hist, &first, &last));
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        cost_hist_grow(hist, cost_hist_edges[ranges[i].bucket]);
        ovs_assert(cost_hist_size(hist) == (ranges[i].n + 2) * 4);
        add(hist, cost_hist_edges[17]);
        ovs_assert(cost_hist_get(hist, 17) == i + 1);
    }
    add(hist, UINT64_MAX);
    ovs_assert(cost_hist_range(hist, &first, &last));
    ovs_assert(first == 17 && last == COST_HIST_N_EDGES);
    ovs_assert(cost_hist_count(hist) == ARRAY_SIZE(ranges) + 1);
}

/* Counts exceed the 32 bits that they have at first. */
static void
check_width(void)
{
    struct cost_hist *hist = empty(0), *sum = empty(1);
    struct cost_buckets *buckets;
    size_t size;
    bool highest;

    /* As if so many values had been recorded. */
    add(hist, 1000);
    size = cost_hist_size(hist);
    buckets = ovsrcu_get(struct cost_buckets *, &hist->buckets);
    ovs_assert(!buckets->wide);
    atomic_store_relaxed((atomic_uint32_t *) buckets->counts
                         + (cost_hist_bucket(1000) - buckets->first),
                         UINT32_MAX - 1);
    cost_hist_add(sum, hist);
    ovs_assert(!cost_hist_record(hist, 1000, &highest));
    for (int i = 0; i < 3; i++) {
        add(hist, 1000);
    }
    ovs_assert(cost_hist_size(hist) > size);
    ovs_assert(cost_hist_count(hist) == UINT32_MAX + UINT64_C(2));
    cost_hist_add(sum, hist);
    ovs_assert(cost_hist_count(sum) == 2 * (uint64_t) UINT32_MAX + 1);
    cost_hist_subtract(sum, hist);
    ovs_assert(cost_hist_count(sum) == UINT32_MAX - 1);
}

static void
run_check(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    check_buckets();
    check_statistics();
    check_percentiles();
    check_highest();
    check_add();
    check_subtract();
    check_range();
    check_width();
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
    struct cost_hist *hist = empty(0);
    static uint64_t values[N_VALUES];
    double ns[N_ROUNDS];

    if (n < 1) {
        ovs_fatal(0, "\"%s\" is not a positive number", ctx->argv[1]);
    }
    for (size_t i = 0; i < N_VALUES; i++) {
        values[i] = 1000 + random_range(8000);
    }
    for (size_t round = 0; round < N_ROUNDS; round++) {
        long long int start = time_usec();

        for (int i = 0; i < n; i++) {
            add(hist, values[i % N_VALUES]);
        }
        ns[round] = (time_usec() - start) * 1e3 / n;
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
