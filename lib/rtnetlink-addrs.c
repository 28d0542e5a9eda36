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
#include "openvswitch/vlog.h"
#include "packets.h"
#include "socket-util.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(rtnetlink_addrs);

COVERAGE_DEFINE(rtnetlink_addrs_device);
COVERAGE_DEFINE(rtnetlink_addrs_all);
COVERAGE_DEFINE(rtnetlink_addrs_interrupted);
COVERAGE_DEFINE(rtnetlink_addrs_inconsistent);

/* How many devices are asked for one by one after a flush.  For the next one,
 * the addresses of all devices are read, because each device that is asked for
 * costs about as much (7 us) as five devices in the answer for all. */
#define MAX_DEVICES 8

/* How often to read the addresses of all devices if they keep changing. */
#define MAX_TRIES 10

static const struct rtnetlink_addrs no_addrs;

/* An address that the kernel has sent. */
struct rtnetlink_addr {
    int family;                         /* AF_INET or AF_INET6. */
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
 * They may be used until 'cache' is changed or flushed. */
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

static struct rtnetlink_addrs *
rtnetlink_addrs_get(struct rtnetlink_addrs_cache *cache, const char *dev)
{
    struct rtnetlink_addrs *addrs;

    addrs = shash_find_data(&cache->devices, dev);
    if (!addrs) {
        addrs = xzalloc(sizeof *addrs);
        shash_add(&cache->devices, dev, addrs);
    }
    return addrs;
}

static void
rtnetlink_addrs_add(struct rtnetlink_addrs_cache *cache,
                    const struct rtnetlink_addr *addr)
{
    struct rtnetlink_addrs *addrs = rtnetlink_addrs_get(cache, addr->label);

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

    addr->family = ifa->ifa_family;
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

/* Reads the addresses of the device with the given 'ifindex', as far as they
 * are called 'dev', or of all devices if 'ifindex' is 0, into 'cache'.
 *
 * Returns 0 if successful, EINTR if the addresses have changed meanwhile,
 * EAGAIN if 'ifindex' must be 0 because the kernel has not selected a device,
 * or because it would not have told about a change, or another positive errno
 * value. */
static int
rtnetlink_addrs_dump(struct rtnetlink_addrs_cache *cache, int ifindex,
                     const char *dev)
{
    uint64_t stub[NL_DUMP_BUFSIZE / 8];
    struct ofpbuf request, reply, buf;
    struct rtnetlink_addr addr;
    int family = AF_UNSPEC;
    bool interrupted = false;
    bool need_all = false;
    char name[IFNAMSIZ];
    struct ifaddrmsg *ifa;
    size_t family_buf = 0;
    struct nl_dump dump;
    size_t n_bufs = 0;
    int name_of = 0;
    int error;

    /* Ask for IPv4 and IPv6 at once: since Linux 6.9, the kernel dumps a
     * single family without the lock that changes take, and then does not tell
     * about changes that happen while it fills the last message. */
    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof *ifa, RTM_GETADDR, NLM_F_REQUEST);
    ifa = ofpbuf_put_zeros(&request, sizeof *ifa);
    ifa->ifa_family = AF_UNSPEC;
    ifa->ifa_index = ifindex;
    nl_dump_start(&dump, NETLINK_ROUTE, &request);
    ofpbuf_uninit(&request);

    ofpbuf_use_stub(&buf, stub, sizeof stub);
    for (;;) {
        bool new_buf = !buf.size;

        if (!nl_dump_next(&dump, &reply, &buf)) {
            break;
        }
        n_bufs += new_buf;
        interrupted |= (nl_msg_nlmsghdr(&reply)->nlmsg_flags
                        & NLM_F_DUMP_INTR) != 0;
        if (!rtnetlink_addr_parse(&reply, &addr)) {
            continue;
        }

        /* The kernel holds the lock that changes take while it fills a
         * message, but not between two messages.  For one device, a change
         * between them goes unnoticed: in_dev_dump_addr() and in6_dump_addrs()
         * go on after as many addresses as they have dumped, and a dump of one
         * device has no sequence number for nl_dump_check_consistent().  That
         * matters only if both messages have addresses of the same family.
         * Linux 4.20 to 6.8 always begins a message with the first IPv6
         * address, because inet_dump_ifaddr() returns the length of the
         * message, not 0, when it is done, and rtnl_dump_all() stops there.
         *
         * One case is left: an address is removed just after the others have
         * filled a message to the end, so that no message with the last one
         * follows.  Then it is missing until the kernel's notification of the
         * removal makes the caller read them again. */
        if (addr.family != family) {
            family = addr.family;
            family_buf = n_bufs;
        }
        if (ifindex && (addr.ifindex != ifindex || family_buf != n_bufs)) {
            need_all = true;
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
        if (ifindex ? !strcmp(addr.label, dev) : addr.label[0] != '\0') {
            rtnetlink_addrs_add(cache, &addr);
        }
    }
    ofpbuf_uninit(&buf);
    error = nl_dump_done(&dump);

    return need_all ? EAGAIN : interrupted && !error ? EINTR : error;
}

/* Reads the addresses of 'dev' into 'cache'.
 *
 * Returns 0 if successful, EAGAIN or EINTR if those of all devices must be
 * read, or another positive errno value. */
static int
rtnetlink_addrs_read_device(struct rtnetlink_addrs_cache *cache,
                            const char *dev)
{
    struct ifreq ifr;
    int error;

    memset(&ifr, 0, sizeof ifr);
    error = af_inet_ifreq_ioctl(dev, &ifr, SIOCGIFINDEX, "SIOCGIFINDEX");
    if (!error) {
        COVERAGE_INC(rtnetlink_addrs_device);
        error = rtnetlink_addrs_dump(cache, ifr.ifr_ifindex, dev);
    } else if (error == ENODEV) {
        error = 0;
    }
    if (!error) {
        rtnetlink_addrs_get(cache, dev);    /* Even if it has none. */
    }
    return error;
}

/* Reads the addresses of all devices into 'cache', in place of what it has.
 * Returns 0 if successful, otherwise a positive errno value. */
static int
rtnetlink_addrs_read_all(struct rtnetlink_addrs_cache *cache)
{
    static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

    for (int i = 0; i < MAX_TRIES; i++) {
        int error;

        rtnetlink_addrs_flush(cache);
        COVERAGE_INC(rtnetlink_addrs_all);
        error = rtnetlink_addrs_dump(cache, 0, NULL);
        cache->complete = true;
        if (error != EINTR) {
            return error;
        }
        COVERAGE_INC(rtnetlink_addrs_interrupted);
    }

    /* The kernel will tell about the latest change, which makes the caller
     * read them again. */
    COVERAGE_INC(rtnetlink_addrs_inconsistent);
    VLOG_WARN_RL(&rl, "addresses changed each time they were read; some of "
                 "them may be missing for now");
    return 0;
}

/* Reads the addresses of 'dev', which rtnetlink_addrs_find() did not find in
 * 'cache', from the kernel into 'cache', and makes '*addrsp' point to them.
 * There are none if there is no such device.
 *
 * Returns 0 if successful, otherwise a positive errno value, flushes 'cache',
 * and makes '*addrsp' point to no addresses. */
int
rtnetlink_addrs_read(struct rtnetlink_addrs_cache *cache, const char *dev,
                     const struct rtnetlink_addrs **addrsp)
{
    int error = EAGAIN;

    *addrsp = &no_addrs;

    /* A longer name, which no device has, would be cut off. */
    if (strlen(dev) >= IFNAMSIZ) {
        return 0;
    }
    if (shash_count(&cache->devices) < MAX_DEVICES) {
        error = rtnetlink_addrs_read_device(cache, dev);
    }
    if (error == EAGAIN || error == EINTR) {
        error = rtnetlink_addrs_read_all(cache);
    }
    if (error) {
        rtnetlink_addrs_flush(cache);
    } else {
        *addrsp = rtnetlink_addrs_find(cache, dev);
    }
    return error;
}
