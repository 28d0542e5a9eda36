/* SPDX-License-Identifier: Apache-2.0 */

#ifndef RTNETLINK_ADDRS_H
#define RTNETLINK_ADDRS_H 1

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include "openvswitch/shash.h"

/* IP addresses of network devices, read with rtnetlink.
 * =====================================================
 *
 * getifaddrs() reads all that the kernel knows about all links, and then all
 * addresses.  Most of that time goes to the statistics of the links.  These
 * functions ask the kernel for the addresses alone.
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

/* The addresses of all devices, or nothing. */
struct rtnetlink_addrs_cache {
    struct shash devices;               /* Contains "struct
                                         * rtnetlink_addrs"s. */
    size_t n_addrs;                     /* Of all devices. */
    bool complete;                      /* Have addresses been read? */
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
