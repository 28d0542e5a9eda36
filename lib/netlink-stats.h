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

/* Statistics of many network devices, read with rtnetlink.
 * ========================================================
 *
 * To ask the kernel for the statistics of one device after the other takes
 * several times as long as one dump of those of all devices.  A thread that
 * needs the statistics of many devices calls netlink_stats_begin(), asks for
 * each device, and calls netlink_stats_end().  This is a pass.  The dump is
 * made when the first device of a pass is asked for, and forgotten at its end.
 *
 * There is no dump if the pass before asked for few devices, or for few of
 * those that the kernel has.  A device that is not in the dump has to be asked
 * for alone: one that is newer, any device if the kernel knows no such dump
 * (Linux before 4.7), and one that was skipped because devices have changed
 * during the dump.
 *
 * These functions are Linux specific.
 *
 *
 * Thread-safety
 * =============
 *
 * Only the thread that calls rtnetlink_run(), which tells of devices that were
 * renamed or made again, may use passes.  Other threads may call
 * netlink_stats_find(), which finds nothing. */

/* What passes remember about a device.  All zeros at first. */
struct netlink_stats_device {
    int ifindex;                /* 0 if there is none. */
    unsigned int generation;    /* Of 'ifindex'. */
};

void netlink_stats_begin(void);
void netlink_stats_end(void);
const void *netlink_stats_find(const char *name,
                               struct netlink_stats_device *);

#endif /* netlink-stats.h */
