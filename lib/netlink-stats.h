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

#ifndef NETLINK_STATS_H
#define NETLINK_STATS_H 1

/* Statistics of network devices, read with RTM_GETSTATS.
 * ======================================================
 *
 * The answer to RTM_GETLINK has everything that the kernel knows about a
 * device; the answer to RTM_GETSTATS has the statistics alone.
 *
 * A thread that needs the statistics of many devices calls
 * netlink_stats_begin(), netlink_stats_get() for each device, and
 * netlink_stats_end().  This is a pass.  The first netlink_stats_get() of a
 * pass reads the statistics of all devices with one dump, unless the pass
 * before asked for few devices, or for few of those that the kernel has.  A
 * device that is not in the dump is asked for alone.  The dump is forgotten at
 * the end of the pass.
 *
 * These functions are Linux specific.
 *
 *
 * Thread-safety
 * =============
 *
 * Thread-safe.  A pass belongs to the thread that begins it. */

#include <stddef.h>

int netlink_stats_get(int ifindex, void *stats, size_t size);
void netlink_stats_begin(void);
void netlink_stats_end(void);

#endif /* netlink-stats.h */
