/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what netdev_get_addrs() takes, in nanoseconds, when the addresses
 * have to be read: for each round, for one device, and per device for all the
 * devices in the arguments in turn, as when routes are read again. */

#include <config.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "netdev.h"

static double
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static void
get(const char *dev)
{
    struct in6_addr *addrs, *masks;
    int n;

    if (netdev_get_addrs(dev, &addrs, &masks, &n)) {
        fprintf(stderr, "%s: no addresses\n", dev);
        exit(EXIT_FAILURE);
    }
    free(addrs);
    free(masks);
}

int
main(int argc, char *argv[])
{
    int n_rounds = argc > 2 ? atoi(argv[1]) : 0;
    int n_devs = argc - 2;

    if (n_rounds < 1) {
        fprintf(stderr, "usage: %s ROUNDS DEVICE...\n", argv[0]);
        return EXIT_FAILURE;
    }
    for (int i = 0; i < n_rounds; i++) {
        double start, one, all;

        netdev_get_addrs_list_flush();
        start = now_ns();
        get(argv[2 + i % n_devs]);
        one = now_ns() - start;

        netdev_get_addrs_list_flush();
        start = now_ns();
        for (int j = 0; j < n_devs; j++) {
            get(argv[2 + j]);
        }
        all = (now_ns() - start) / n_devs;
        printf("%.0f %.0f\n", one, all);
    }
    return EXIT_SUCCESS;
}
