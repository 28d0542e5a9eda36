/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the time of one hdr_record_value() of HdrHistogram_c, as "ovstest
 * test-cost-histogram benchmark" does of cost_hist_record(): the median of
 * several rounds of N each, with values like those that a stage of an upcall
 * takes, in nanoseconds. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <hdr/hdr_histogram.h>

enum { N_ROUNDS = 21, N_VALUES = 4096 };

static double
seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec / 1e9;
}

static int
compare(const void *a_, const void *b_)
{
    const double *a = a_, *b = b_;

    return *a < *b ? -1 : *a > *b;
}

int
main(int argc, char *argv[])
{
    int n = argc > 1 ? atoi(argv[1]) : 10000000;
    static int64_t values[N_VALUES];
    struct hdr_histogram *hist;
    double ns[N_ROUNDS];

    /* 1 ns to 64 s, with two digits: an error of at most 1%. */
    if (n < 1 || hdr_init(1, INT64_C(64000000000), 2, &hist)) {
        return EXIT_FAILURE;
    }
    for (int i = 0; i < N_VALUES; i++) {
        values[i] = 1000 + rand() % 8000;
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        double start = seconds();

        for (int i = 0; i < n; i++) {
            hdr_record_value(hist, values[i % N_VALUES]);
        }
        ns[round] = (seconds() - start) / n * 1e9;
    }
    qsort(ns, N_ROUNDS, sizeof ns[0], compare);
    printf("record: %.2f ns (min %.2f, max %.2f, %d rounds of %d)\n",
           ns[N_ROUNDS / 2], ns[0], ns[N_ROUNDS - 1], N_ROUNDS, n);
    hdr_close(hist);
    return EXIT_SUCCESS;
}
