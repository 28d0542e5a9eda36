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
#ifdef __linux__
#undef NDEBUG
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "coverage.h"
#include "netdev.h"
#include "ovstest.h"
#include "util.h"

extern struct coverage_counter counter_netlink_stats_dump;
extern struct coverage_counter counter_netlink_stats_found;

static void
run(const char *command)
{
    FILE *pipe = popen(command, "w");

    ovs_assert(pipe && !pclose(pipe));
}

/* Makes three passes over the statistics of devices DEV....  Command BEFORE
 * runs before the last pass, DURING after its first device.  Prints, for each
 * pass, the number of dumps, that of devices found in them, and the sum of
 * packets that the devices have sent. */
static void
test_if_stats(int argc, char *argv[])
{
    struct netdev **netdevs;
    size_t n = argc - 3;

    ovs_assert(argc > 3);
    netdevs = xmalloc(n * sizeof *netdevs);
    for (size_t i = 0; i < n; i++) {
        enum netdev_flags flags;

        ovs_assert(!netdev_open(argv[3 + i], "system", &netdevs[i])
                   && !netdev_get_flags(netdevs[i], &flags));
    }

    for (int pass = 0; pass < 3; pass++) {
        uint64_t tx_packets = 0;

        if (pass == 2) {
            run(argv[1]);
        }
        netdev_stats_begin();
        for (size_t i = 0; i < n; i++) {
            struct netdev_stats stats;

            if (netdev_get_stats(netdevs[i], &stats)) {
                printf("%s has no statistics\n", argv[3 + i]);
            } else {
                tx_packets += stats.tx_packets;
            }
            if (pass == 2 && !i) {
                run(argv[2]);
            }
        }
        netdev_stats_end();
        printf("%u dumps, %u found, %"PRIu64" packets\n",
               counter_netlink_stats_dump.count(),
               counter_netlink_stats_found.count(), tx_packets);
    }

    for (size_t i = 0; i < n; i++) {
        netdev_close(netdevs[i]);
    }
    free(netdevs);
}

OVSTEST_REGISTER("test-if-stats", test_if_stats);
#endif /* __linux__ */
