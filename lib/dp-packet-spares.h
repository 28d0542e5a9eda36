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

#ifndef DP_PACKET_SPARES_H
#define DP_PACKET_SPARES_H 1

#include <stddef.h>
#include "dp-packet.h"

/* Packets to receive into.
 * ========================
 *
 * Whoever asks the kernel for a burst of packets needs a buffer for each of
 * the packets that there might be, and most often gets fewer, or none.  Each
 * thread keeps those buffers that it has not used for the next time.
 *
 *
 * Thread-safety
 * =============
 *
 * Each thread has packets of its own, which are freed when it exits. */

void dp_packet_spares_get(struct dp_packet *packets[NETDEV_MAX_BURST],
                          size_t size, size_t headroom);
void dp_packet_spares_take(size_t n);

#endif /* dp-packet-spares.h */
