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

#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command-line.h"
#include "coverage.h"
#include "netdev.h"
#include "ovs-thread.h"
#include "ovstest.h"
#include "packets.h"
#include "random.h"
#include "socket-util.h"
#include "sset.h"
#include "timeval.h"
#include "util.h"

#ifdef __linux__

#include <linux/rtnetlink.h>

#include "netlink.h"
#include "netlink-socket.h"
#include "openvswitch/ofpbuf.h"

extern struct coverage_counter counter_rtnetlink_addrs_device;
extern struct coverage_counter counter_rtnetlink_addrs_all;
extern struct coverage_counter counter_rtnetlink_addrs_interrupted;
extern struct coverage_counter counter_rtnetlink_addrs_inconsistent;

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
check(struct ovs_cmdl_context *ctx)
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
    for (int i = 1; i < ctx->argc; i++) {
        sset_add(&names, ctx->argv[i]);
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

/* Gets the addresses of each of the devices in the arguments in turn, three
 * times: after a flush, again, and after another flush.  Prints how many were
 * read each time, and how.  A Netlink socket that is used for the first time
 * has room for fewer addresses in a message. */
static void
reads(struct ovs_cmdl_context *ctx)
{
    for (int round = 0; round < 3; round++) {
        int n = 0;

        if (round != 1) {
            netdev_get_addrs_list_flush();
        }
        for (int i = 1; i < ctx->argc; i++) {
            struct addrs a;

            addrs_get(ctx->argv[i], &a);
            n += a.n;
            addrs_destroy(&a);
        }
        printf("%d addresses, %u of one device, %u of all\n", n,
               counter_rtnetlink_addrs_device.count(),
               counter_rtnetlink_addrs_all.count());
    }
}

/* Adding and removing addresses. */

static int
change_addr(int ifindex, const struct in6_addr *addr, bool add)
{
    ovs_be32 ip = in6_addr_get_mapped_ipv4(addr);
    struct ofpbuf request;
    struct ifaddrmsg *ifa;
    int error;

    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, 0, add ? RTM_NEWADDR : RTM_DELADDR,
                        NLM_F_REQUEST | NLM_F_ACK
                        | (add ? NLM_F_CREATE | NLM_F_EXCL : 0));
    ifa = ofpbuf_put_zeros(&request, sizeof *ifa);
    ifa->ifa_index = ifindex;
    if (ip) {
        ifa->ifa_family = AF_INET;
        ifa->ifa_prefixlen = 32;
        nl_msg_put_be32(&request, IFA_LOCAL, ip);
    } else {
        ifa->ifa_family = AF_INET6;
        ifa->ifa_prefixlen = 128;
        ifa->ifa_flags = IFA_F_NODAD;
        nl_msg_put_in6_addr(&request, IFA_LOCAL, addr);
    }
    error = nl_transact(NETLINK_ROUTE, &request, NULL);
    ofpbuf_uninit(&request);
    return error;
}

/* 198.18.X.X, or 2001:db8::X. */
static struct in6_addr
make_addr(bool ipv6, unsigned int i)
{
    struct in6_addr addr = in6addr_any;

    if (!ipv6) {
        return in6_addr_mapped_ipv4(htonl(0xc6120000 + i));
    }
    addr.s6_addr[0] = 0x20;
    addr.s6_addr[1] = 0x01;
    addr.s6_addr[2] = 0x0d;
    addr.s6_addr[3] = 0xb8;
    addr.s6_addr[14] = i >> 8;
    addr.s6_addr[15] = i;
    return addr;
}

static int
get_ifindex(const char *dev)
{
    int ifindex = if_nametoindex(dev);

    if (!ifindex) {
        ovs_fatal(errno, "%s", dev);
    }
    return ifindex;
}

/* Adds N addresses to DEV, half of them IPv4. */
static void
add(struct ovs_cmdl_context *ctx)
{
    int ifindex = get_ifindex(ctx->argv[1]);
    int n = atoi(ctx->argv[2]);

    for (int i = 0; i < n; i++) {
        struct in6_addr addr = make_addr(i & 1, 1 + i);
        int error = change_addr(ifindex, &addr, true);

        if (error) {
            ovs_fatal(error, "%s: cannot add address %d", ctx->argv[1], i);
        }
    }
}

/* How long a test goes on at most, until it has seen everything. */
#define EXTRA_MSECS 60000

struct changer {
    int ifindex;
    int n;
    atomic_bool stop;
    atomic_uint pause_us;               /* After each change. */
    atomic_uint n_changes;
};

/* Removes every other one of the addresses that "add" has added, and adds it
 * again, in any order. */
static void *
changer_main(void *changer_)
{
    struct changer *changer = changer_;
    bool *absent = xcalloc(changer->n, sizeof *absent);
    unsigned int pause_us;
    bool stop = false;

    while (!stop) {
        /* IPv4 and IPv6 alternate: 0 and 1 change, 2 and 3 stay. */
        unsigned int i = random_range(changer->n) & ~2u;
        struct in6_addr addr = make_addr(i & 1, 1 + i);

        if (!change_addr(changer->ifindex, &addr, absent[i])) {
            unsigned int n;

            absent[i] = !absent[i];
            atomic_add(&changer->n_changes, 1, &n);
        }
        atomic_read(&changer->pause_us, &pause_us);
        if (pause_us) {
            xnanosleep(pause_us * 1000ULL);
        }
        atomic_read(&changer->stop, &stop);
    }
    free(absent);
    return NULL;
}

static int
compare_addrs(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct in6_addr));
}

/* While addresses of CHANGING, to which "add" must have added N, come and go,
 * reads those of DEV for MSECS.  Whichever addresses of DEV do not change must
 * be there each time, and none twice, unless they could not be read without
 * being interrupted.  On a slow machine, that may be so each time: then goes
 * on with ever fewer changes, until it is not. */
static void
change(struct ovs_cmdl_context *ctx)
{
    const char *dev = ctx->argv[1];
    struct changer changer = {
        .ifindex = get_ifindex(ctx->argv[2]),
        .n = atoi(ctx->argv[3]),
    };
    long long int deadline = time_msec() + atoi(ctx->argv[4]);
    size_t n_reads = 0, n_missing = 0, n_twice = 0;
    unsigned int n_interrupted = 0, n_inconsistent = 0;
    unsigned int n_changes, pause_us = 0;
    struct addrs all;
    pthread_t thread;
    bool *stays;
    bool seen;

    /* Find out which stay. */
    addrs_get(dev, &all);
    ovs_assert(!all.error);
    qsort(all.addrs, all.n, sizeof *all.addrs, compare_addrs);
    stays = xmalloc(all.n * sizeof *stays);
    memset(stays, 1, all.n * sizeof *stays);
    for (int i = 0; i < changer.n; i++) {
        if (!(i & 2)) {
            struct in6_addr addr = make_addr(i & 1, 1 + i);
            struct in6_addr *p = bsearch(&addr, all.addrs, all.n, sizeof addr,
                                         compare_addrs);
            if (p) {
                stays[p - all.addrs] = false;
            }
        }
    }

    atomic_init(&changer.stop, false);
    atomic_init(&changer.pause_us, 0);
    atomic_init(&changer.n_changes, 0);
    thread = ovs_thread_create("changer", changer_main, &changer);
    do {
        bool inconsistent;
        struct addrs a;
        int i = 0;

        if (ctx->argc > 5) {
            struct ifaddrs *list;

            get_list(&list);
            addrs_expect(list, dev, &a);
            freeifaddrs(list);
        } else {
            netdev_get_addrs_list_flush();
            addrs_get(dev, &a);
        }
        n_interrupted += counter_rtnetlink_addrs_interrupted.count();
        inconsistent = counter_rtnetlink_addrs_inconsistent.count();
        ovs_assert(!a.error || (a.error == EADDRNOTAVAIL && !a.n));
        qsort(a.addrs, a.n, sizeof *a.addrs, compare_addrs);
        for (int j = 0; j < all.n && !inconsistent; j++) {
            int n = 0;

            while (i < a.n && compare_addrs(&a.addrs[i], &all.addrs[j]) < 0) {
                i++;
            }
            while (i < a.n && !compare_addrs(&a.addrs[i], &all.addrs[j])) {
                i++;
                n++;
            }
            n_missing += !n && stays[j];
            n_twice += n > 1 && stays[j];
        }
        addrs_destroy(&a);
        n_inconsistent += inconsistent;
        n_reads++;
        if (time_msec() >= deadline) {
            pause_us = MIN(MAX(pause_us * 2, 100), 1000000);
            atomic_store(&changer.pause_us, pause_us);
        }
        atomic_read(&changer.n_changes, &n_changes);
        seen = n_reads > n_inconsistent && n_changes;
    } while (time_msec() < deadline + (seen ? 0 : EXTRA_MSECS));
    atomic_store(&changer.stop, true);
    xpthread_join(thread, NULL);
    atomic_read(&changer.n_changes, &n_changes);

    fprintf(stderr, "%"PRIuSIZE" reads, %u changes, %u interruptions, "
            "%u inconsistent\n",
            n_reads, n_changes, n_interrupted, n_inconsistent);
    ovs_assert(n_reads > n_inconsistent && n_changes);
    printf("%"PRIuSIZE" missing, %"PRIuSIZE" twice\n", n_missing, n_twice);
    free(stays);
    addrs_destroy(&all);
    if (n_missing || n_twice) {
        exit(1);
    }
}

/* Reads the addresses of DEV, which comes and goes, for MSECS, and until it
 * has been both there and gone. */
static void
come_and_go(struct ovs_cmdl_context *ctx)
{
    long long int deadline = time_msec() + atoi(ctx->argv[2]);
    size_t n_there = 0, n_gone = 0;
    bool seen;

    do {
        struct addrs a;

        netdev_get_addrs_list_flush();
        addrs_get(ctx->argv[1], &a);
        if (!a.error) {
            ovs_assert(a.n > 0);
            n_there++;
        } else {
            ovs_assert(a.error == EADDRNOTAVAIL && !a.n && !a.addrs);
            n_gone++;
        }
        addrs_destroy(&a);
        seen = n_there && n_gone;
    } while (time_msec() < deadline + (seen ? 0 : EXTRA_MSECS));
    fprintf(stderr, "%"PRIuSIZE" times there, %"PRIuSIZE" times gone\n",
            n_there, n_gone);
    if (!seen) {
        exit(1);
    }
}

static void
test_netdev_addrs(int argc, char *argv[])
{
    static const struct ovs_cmdl_command commands[] = {
        {"check", "[NAME...]", 0, INT_MAX, check, OVS_RO},
        {"reads", "DEV...", 1, INT_MAX, reads, OVS_RO},
        {"add", "DEV N", 2, 2, add, OVS_RW},
        {"change", "DEV CHANGING N MSECS [getifaddrs]", 4, 5, change, OVS_RW},
        {"come-and-go", "DEV MSECS", 2, 2, come_and_go, OVS_RO},
        {NULL, NULL, 0, 0, NULL, OVS_RO},
    };
    struct ovs_cmdl_context ctx = { .argc = argc - 1, .argv = argv + 1 };

    ovs_cmdl_run_command(&ctx, commands);
}

#else /* !__linux__ */

static void
test_netdev_addrs(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    exit(77);
}

#endif

OVSTEST_REGISTER("test-netdev-addrs", test_netdev_addrs);
