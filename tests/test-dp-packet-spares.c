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

#include "dp-packet-spares.h"

#include <string.h>

#include "ovs-thread.h"
#include "ovstest.h"
#include "util.h"

enum { SIZE = 1518, HEADROOM = 128 };

/* Gets packets and checks that they are distinct and as new. */
static void
get(struct dp_packet *packets[NETDEV_MAX_BURST], size_t size)
{
    dp_packet_spares_get(packets, size, HEADROOM);
    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        ovs_assert(!dp_packet_size(packets[i]));
        ovs_assert(dp_packet_headroom(packets[i]) == HEADROOM);
        ovs_assert(dp_packet_tailroom(packets[i]) == size);
        for (size_t j = 0; j < i; j++) {
            ovs_assert(packets[i] != packets[j]);
        }
        /* What is received into a packet that is not taken may stay there. */
        memset(dp_packet_data(packets[i]), 0xff, size);
    }
}

static bool
is_among(const struct dp_packet *packet,
         struct dp_packet *packets[NETDEV_MAX_BURST])
{
    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        if (packets[i] == packet) {
            return true;
        }
    }
    return false;
}

/* Another thread gets none of 'theirs_', and has some when it exits. */
static void *
thread_main(void *theirs_)
{
    struct dp_packet **theirs = theirs_;
    struct dp_packet *packets[NETDEV_MAX_BURST];

    get(packets, SIZE);
    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        ovs_assert(!is_among(packets[i], theirs));
    }
    dp_packet_spares_take(1);
    dp_packet_delete(packets[0]);
    return NULL;
}

static void
test_dp_packet_spares(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    struct dp_packet *first[NETDEV_MAX_BURST];
    struct dp_packet *second[NETDEV_MAX_BURST];

    /* The same packets again. */
    get(first, SIZE);
    get(second, SIZE);
    ovs_assert(!memcmp(first, second, sizeof first));
    dp_packet_spares_take(0);
    get(second, SIZE);
    ovs_assert(!memcmp(first, second, sizeof first));

    /* Other ones for those that have been taken. */
    dp_packet_spares_take(3);
    get(second, SIZE);
    for (size_t i = 0; i < 3; i++) {
        ovs_assert(!is_among(first[i], second));
        dp_packet_set_size(first[i], SIZE);
        dp_packet_delete(first[i]);
    }
    for (size_t i = 3; i < NETDEV_MAX_BURST; i++) {
        ovs_assert(first[i] == second[i]);
    }

    /* Those of another thread. */
    xpthread_join(ovs_thread_create("spares", thread_main, second), NULL);
    get(first, SIZE);
    ovs_assert(!memcmp(first, second, sizeof first));

    /* Of other sizes; all taken. */
    get(first, 2 * SIZE);
    get(first, SIZE);
    dp_packet_spares_take(NETDEV_MAX_BURST);
    get(second, SIZE);
    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        ovs_assert(!is_among(first[i], second));
        dp_packet_delete(first[i]);
    }
}

OVSTEST_REGISTER("test-dp-packet-spares", test_dp_packet_spares);
