/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>
#undef NDEBUG

#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "netdev.h"
#include "ovstest.h"
#include "packets.h"
#include "socket-util.h"
#include "sset.h"
#include "util.h"

#ifdef __linux__

struct addrs {
    int error;
    struct in6_addr *addrs;
    struct in6_addr *masks;
    int n;
};

static void
addrs_destroy(struct addrs *a)
{
    free(a->addrs);
    free(a->masks);
}

/* What is to be tested. */
static void
addrs_get(const char *dev, struct addrs *a)
{
    memset(a, 0, sizeof *a);
    a->error = netdev_get_addrs(dev, &a->addrs, &a->masks, &a->n);
}

/* The same with getifaddrs(), which must have returned 'list'. */
static void
addrs_expect(const struct ifaddrs *list, const char *dev, struct addrs *a)
{
    size_t allocated = 0;

    memset(a, 0, sizeof *a);
    for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
        if (ifa->ifa_addr && ifa->ifa_netmask && sa_is_ip(ifa->ifa_addr)
            && !strncmp(ifa->ifa_name, dev, IFNAMSIZ)) {
            if (a->n >= allocated) {
                allocated = allocated ? allocated * 2 : 1;
                a->addrs = xrealloc(a->addrs, allocated * sizeof *a->addrs);
                a->masks = xrealloc(a->masks, allocated * sizeof *a->masks);
            }
            a->addrs[a->n] = sa_get_address(ifa->ifa_addr);
            a->masks[a->n] = sa_get_address(ifa->ifa_netmask);
            a->n++;
        }
    }
    a->error = a->n ? 0 : EADDRNOTAVAIL;
}

static bool
addrs_equal(const struct addrs *a, const struct addrs *b)
{
    return a->error == b->error && a->n == b->n
           && (!a->n
               || (!memcmp(a->addrs, b->addrs, a->n * sizeof *a->addrs)
                   && !memcmp(a->masks, b->masks, a->n * sizeof *a->masks)));
}

static void
addrs_print(const char *title, const struct addrs *a)
{
    printf("  %s: %s, %d addresses\n", title, ovs_strerror(a->error), a->n);
    for (int i = 0; i < MIN(a->n, 20); i++) {
        char addr[INET6_ADDRSTRLEN], mask[INET6_ADDRSTRLEN];

        inet_ntop(AF_INET6, &a->addrs[i], addr, sizeof addr);
        inet_ntop(AF_INET6, &a->masks[i], mask, sizeof mask);
        printf("    %s %s\n", addr, mask);
    }
}

static void
get_list(struct ifaddrs **list)
{
    if (getifaddrs(list)) {
        ovs_fatal(errno, "getifaddrs failed");
    }
}

/* Compares what is found of 'name' with 'list', which getifaddrs() must have
 * returned.  Returns false if they differ, and says so.  Adds the number of
 * addresses to '*n_addrs'. */
static bool
check_name(const struct ifaddrs *list, const char *name, size_t *n_addrs)
{
    struct addrs expected, found, found2;
    bool ok = true;

    addrs_expect(list, name, &expected);
    addrs_get(name, &found);
    addrs_get(name, &found2);
    if (!addrs_equal(&found, &found2)) {
        printf("%s: differs from itself\n", name);
        ok = false;
    }
    if (!addrs_equal(&found, &expected)) {
        struct ifaddrs *again;
        struct addrs now;

        /* Have they changed? */
        get_list(&again);
        addrs_expect(again, name, &now);
        if (addrs_equal(&now, &expected)) {
            printf("%s: differs from getifaddrs()\n", name);
            addrs_print("expected", &expected);
            addrs_print("found", &found);
            ok = false;
        }
        addrs_destroy(&now);
        freeifaddrs(again);
    }
    *n_addrs += found.n;
    addrs_destroy(&found);
    addrs_destroy(&found2);
    addrs_destroy(&expected);
    return ok;
}

/* Compares the addresses of all devices, of whatever else addresses are called
 * (such as "eth0:1"), and of the names in the arguments, with getifaddrs():
 * each after a flush of its own, then all after one.  Each is got twice, for
 * the second time without reading it. */
static void
test_netdev_addrs(int argc, char *argv[])
{
    struct if_nameindex *devs = if_nameindex();
    struct sset names = SSET_INITIALIZER(&names);
    size_t n_addrs = 0;
    struct ifaddrs *list;
    size_t n_wrong = 0;
    const char *name;

    ovs_assert(devs);
    for (const struct if_nameindex *dev = devs; dev->if_name; dev++) {
        sset_add(&names, dev->if_name);
    }
    if_freenameindex(devs);
    for (int i = 1; i < argc; i++) {
        sset_add(&names, argv[i]);
    }
    get_list(&list);
    for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
        sset_add(&names, ifa->ifa_name);
    }

    SSET_FOR_EACH (name, &names) {
        netdev_get_addrs_list_flush();
        n_wrong += !check_name(list, name, &n_addrs);
    }
    n_addrs = 0;
    netdev_get_addrs_list_flush();
    SSET_FOR_EACH (name, &names) {
        n_wrong += !check_name(list, name, &n_addrs);
    }
    freeifaddrs(list);
    printf("%"PRIuSIZE" names, %"PRIuSIZE" addresses: %s\n",
           sset_count(&names), n_addrs, n_wrong ? "wrong" : "ok");
    sset_destroy(&names);
    if (n_wrong) {
        exit(1);
    }
}

#else /* !__linux__ */

static void
test_netdev_addrs(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    exit(77);
}

#endif

OVSTEST_REGISTER("test-netdev-addrs", test_netdev_addrs);
