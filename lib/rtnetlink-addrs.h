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

#ifndef RTNETLINK_ADDRS_H
#define RTNETLINK_ADDRS_H 1

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include "openvswitch/shash.h"

/* IP addresses of network devices, read with rtnetlink.
 * =====================================================
 *
 * getifaddrs() reads everything that the kernel knows of all links and all
 * addresses, to find the addresses of one device.  Here, the kernel is asked
 * for one device's addresses only, so that the cost does not depend on how
 * many other devices there are.  After a few devices, the kernel is asked for
 * the addresses of all devices, but not for their links, so that the number of
 * Netlink requests does not grow with the number of devices.
 *
 * The kernel answers in messages of at most 32 kB.  If a device has so many
 * IPv4 or IPv6 addresses that one message does not hold them, and they change
 * while they are being read, then the kernel may skip an address that is there
 * all the time; and it does not say so if it was asked for one device.  Then,
 * and if the kernel can't select a device (Linux before 4.20), the addresses
 * of all devices are read, again if the kernel says that they have changed
 * meanwhile, and kept for all of them.
 *
 * These functions are Linux specific.
 *
 *
 * Thread-safety
 * =============
 *
 * None: one thread at a time may use a cache. */

/* The addresses of a device, IPv4 before IPv6, each in the kernel's order. */
struct rtnetlink_addrs {
    struct in6_addr *addrs;             /* IPv4 addresses are mapped. */
    struct in6_addr *masks;
    size_t n;
    size_t allocated;
};

/* What has been read. */
struct rtnetlink_addrs_cache {
    struct shash devices;               /* Contains "struct
                                         * rtnetlink_addrs"s. */
    size_t n_addrs;                     /* Of all devices. */
    bool complete;                      /* Do devices that are not there have
                                         * no addresses? */
};

#define RTNETLINK_ADDRS_CACHE_INITIALIZER(CACHE) \
    { .devices = SHASH_INITIALIZER(&(CACHE)->devices) }

const struct rtnetlink_addrs *rtnetlink_addrs_find(
    const struct rtnetlink_addrs_cache *, const char *dev);
int rtnetlink_addrs_read(struct rtnetlink_addrs_cache *, const char *dev,
                         const struct rtnetlink_addrs **);
size_t rtnetlink_addrs_count(const struct rtnetlink_addrs_cache *);
void rtnetlink_addrs_flush(struct rtnetlink_addrs_cache *);

#endif /* rtnetlink-addrs.h */
