/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "rtnetlink-addrs.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>

#include "coverage.h"
#include "netlink.h"
#include "netlink-socket.h"
#include "openvswitch/ofpbuf.h"
#include "packets.h"
#include "socket-util.h"
#include "util.h"

COVERAGE_DEFINE(rtnetlink_addrs_dump);

static const struct rtnetlink_addrs no_addrs;

/* An address that the kernel has sent. */
struct rtnetlink_addr {
    int ifindex;
    const char *label;                  /* NULL if there is none. */
    struct in6_addr addr;
    struct in6_addr mask;
};

/* Forgets everything in 'cache'. */
void
rtnetlink_addrs_flush(struct rtnetlink_addrs_cache *cache)
{
    struct shash_node *node;

    SHASH_FOR_EACH_SAFE (node, &cache->devices) {
        struct rtnetlink_addrs *addrs = node->data;

        shash_delete(&cache->devices, node);
        free(addrs->addrs);
        free(addrs->masks);
        free(addrs);
    }
    cache->n_addrs = 0;
    cache->complete = false;
}

/* Returns the addresses of 'dev' in 'cache', or NULL if they have to be read.
 * They may be used until 'cache' is flushed. */
const struct rtnetlink_addrs *
rtnetlink_addrs_find(const struct rtnetlink_addrs_cache *cache,
                     const char *dev)
{
    const struct rtnetlink_addrs *addrs;

    addrs = shash_find_data(&cache->devices, dev);
    return !addrs && cache->complete ? &no_addrs : addrs;
}

/* Returns the number of addresses in 'cache', of all devices. */
size_t
rtnetlink_addrs_count(const struct rtnetlink_addrs_cache *cache)
{
    return cache->n_addrs;
}

static void
rtnetlink_addrs_add(struct rtnetlink_addrs_cache *cache,
                    const struct rtnetlink_addr *addr)
{
    struct rtnetlink_addrs *addrs;

    addrs = shash_find_data(&cache->devices, addr->label);
    if (!addrs) {
        addrs = xzalloc(sizeof *addrs);
        shash_add(&cache->devices, addr->label, addrs);
    }
    if (addrs->n >= addrs->allocated) {
        size_t allocated = addrs->allocated;

        addrs->addrs = x2nrealloc(addrs->addrs, &allocated,
                                  sizeof *addrs->addrs);
        addrs->masks = x2nrealloc(addrs->masks, &addrs->allocated,
                                  sizeof *addrs->masks);
    }
    addrs->addrs[addrs->n] = addr->addr;
    addrs->masks[addrs->n] = addr->mask;
    addrs->n++;
    cache->n_addrs++;
}

/* Parses 'msg' into 'addr'.  Returns false if it is not an IP address. */
static bool
rtnetlink_addr_parse(const struct ofpbuf *msg, struct rtnetlink_addr *addr)
{
    static const struct nl_policy policy4[] = {
        [IFA_ADDRESS] = { .type = NL_A_BE32, .optional = true },
        [IFA_LOCAL] = { .type = NL_A_BE32, .optional = true },
        [IFA_LABEL] = { .type = NL_A_STRING, .optional = true },
    };
    static const struct nl_policy policy6[] = {
        [IFA_ADDRESS] = { .type = NL_A_IPV6, .optional = true },
        [IFA_LOCAL] = { .type = NL_A_IPV6, .optional = true },
        [IFA_LABEL] = { .type = NL_A_STRING, .optional = true },
    };
    struct nlattr *attrs[ARRAY_SIZE(policy4)];
    const struct nlattr *local;
    const struct ifaddrmsg *ifa;

    ifa = ofpbuf_at(msg, NLMSG_HDRLEN, sizeof *ifa);
    if (!ifa || nl_msg_nlmsghdr(msg)->nlmsg_type != RTM_NEWADDR
        || (ifa->ifa_family != AF_INET && ifa->ifa_family != AF_INET6)
        || !nl_policy_parse(msg, NLMSG_HDRLEN + sizeof *ifa,
                            ifa->ifa_family == AF_INET ? policy4 : policy6,
                            attrs, ARRAY_SIZE(policy4))) {
        return false;
    }

    /* If there is a peer, then IFA_ADDRESS is the peer's. */
    local = attrs[IFA_LOCAL] ? attrs[IFA_LOCAL] : attrs[IFA_ADDRESS];
    if (!local) {
        return false;
    }

    addr->ifindex = ifa->ifa_index;
    addr->label = (attrs[IFA_LABEL]
                   ? nl_attr_get_string(attrs[IFA_LABEL]) : NULL);
    if (ifa->ifa_family == AF_INET) {
        addr->addr = in6_addr_mapped_ipv4(nl_attr_get_be32(local));
        addr->mask = in6_addr_mapped_ipv4(
            be32_prefix_mask(MIN(ifa->ifa_prefixlen, 32)));
    } else {
        addr->addr = nl_attr_get_in6_addr(local);
        addr->mask = ipv6_create_mask(MIN(ifa->ifa_prefixlen, 128));
    }
    return true;
}

/* Makes 'name' that of the device with the given 'ifindex', or "" if there is
 * none. */
static void
rtnetlink_addrs_get_name(int ifindex, char name[IFNAMSIZ])
{
    struct ifreq ifr = { .ifr_ifindex = ifindex };

    if (af_inet_ioctl(SIOCGIFNAME, &ifr)) {
        name[0] = '\0';
    } else {
        ovs_strzcpy(name, ifr.ifr_name, IFNAMSIZ);
    }
}

/* Reads the addresses of all devices into 'cache'.  Returns 0 if successful,
 * otherwise a positive errno value. */
static int
rtnetlink_addrs_dump(struct rtnetlink_addrs_cache *cache)
{
    uint64_t stub[NL_DUMP_BUFSIZE / 8];
    struct ofpbuf request, reply, buf;
    struct rtnetlink_addr addr;
    struct ifaddrmsg *ifa;
    char name[IFNAMSIZ];
    struct nl_dump dump;
    int name_of = 0;

    COVERAGE_INC(rtnetlink_addrs_dump);
    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof *ifa, RTM_GETADDR, NLM_F_REQUEST);
    ifa = ofpbuf_put_zeros(&request, sizeof *ifa);
    ifa->ifa_family = AF_UNSPEC;
    nl_dump_start(&dump, NETLINK_ROUTE, &request);
    ofpbuf_uninit(&request);

    ofpbuf_use_stub(&buf, stub, sizeof stub);
    while (nl_dump_next(&dump, &reply, &buf)) {
        if (!rtnetlink_addr_parse(&reply, &addr)) {
            continue;
        }
        /* An address is called like its label, as in getifaddrs(). */
        if (!addr.label) {
            if (name_of != addr.ifindex) {
                name_of = addr.ifindex;
                rtnetlink_addrs_get_name(name_of, name);
            }
            addr.label = name;
        }
        if (addr.label[0]) {
            rtnetlink_addrs_add(cache, &addr);
        }
    }
    ofpbuf_uninit(&buf);
    return nl_dump_done(&dump);
}

/* Reads the addresses of all devices into 'cache', and makes '*addrsp' point
 * to the addresses of 'dev', which are none if there is no such device.
 *
 * Returns 0 if successful, otherwise a positive errno value, flushes 'cache',
 * and makes '*addrsp' point to no addresses. */
int
rtnetlink_addrs_read(struct rtnetlink_addrs_cache *cache, const char *dev,
                     const struct rtnetlink_addrs **addrsp)
{
    int error;

    rtnetlink_addrs_flush(cache);
    error = rtnetlink_addrs_dump(cache);
    if (error) {
        rtnetlink_addrs_flush(cache);
        *addrsp = &no_addrs;
    } else {
        cache->complete = true;
        *addrsp = rtnetlink_addrs_find(cache, dev);
    }
    return error;
}
