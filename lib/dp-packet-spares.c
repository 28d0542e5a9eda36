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

#include "dp-packet-spares.h"

#include "ovs-thread.h"
#include "util.h"

/* The packets of a thread. */
struct dp_packet_spares {
    struct dp_packet *packets[NETDEV_MAX_BURST];  /* NULL if taken. */
    size_t size;
    size_t headroom;
};

static ovsthread_key_t spares_key;

static void
dp_packet_spares_clear(struct dp_packet_spares *spares)
{
    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        dp_packet_delete(spares->packets[i]);
        spares->packets[i] = NULL;
    }
}

static void
dp_packet_spares_destroy(void *spares)
{
    dp_packet_spares_clear(spares);
    free(spares);
}

/* Returns the packets of this thread. */
static struct dp_packet_spares *
dp_packet_spares(void)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    struct dp_packet_spares *spares;

    if (ovsthread_once_start(&once)) {
        ovsthread_key_create(&spares_key, dp_packet_spares_destroy);
        ovsthread_once_done(&once);
    }

    spares = ovsthread_getspecific(spares_key);
    if (!spares) {
        spares = xzalloc(sizeof *spares);
        ovsthread_setspecific(spares_key, spares);
    }
    return spares;
}

/* Fills 'packets' with packets as dp_packet_new_with_headroom(size, headroom)
 * makes them.  They belong to this thread, which may write to what is behind
 * their headroom, but must not change or keep them otherwise, unless it takes
 * them with dp_packet_spares_take() before it calls this function again.
 *
 * It is cheap if 'size' and 'headroom' are the same as the last time and
 * no packet has been taken since. */
void
dp_packet_spares_get(struct dp_packet *packets[NETDEV_MAX_BURST],
                     size_t size, size_t headroom)
{
    struct dp_packet_spares *spares = dp_packet_spares();

    if (spares->size != size || spares->headroom != headroom) {
        dp_packet_spares_clear(spares);
        spares->size = size;
        spares->headroom = headroom;
    }
    for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
        if (!spares->packets[i]) {
            spares->packets[i] = dp_packet_new_with_headroom(size, headroom);
        }
        packets[i] = spares->packets[i];
    }
}

/* Gives the first 'n' packets from the latest dp_packet_spares_get() of this
 * thread to the caller. */
void
dp_packet_spares_take(size_t n)
{
    struct dp_packet_spares *spares = dp_packet_spares();

    ovs_assert(n <= NETDEV_MAX_BURST);
    for (size_t i = 0; i < n; i++) {
        spares->packets[i] = NULL;
    }
}
