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

#include "netlink-stats.h"

#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>

#include "coverage.h"
#include "hash.h"
#include "netlink.h"
#include "netlink-socket.h"
#include "openvswitch/hmap.h"
#include "openvswitch/ofpbuf.h"
#include "ovs-thread.h"
#include "rtnetlink.h"
#include "socket-util.h"
#include "util.h"

COVERAGE_DEFINE(netlink_stats_dump);
COVERAGE_DEFINE(netlink_stats_found);

/* A pass over fewer devices has no dump. */
#define MIN_DEVICES 32

/* A dump is made if the kernel has at most this many devices for each one that
 * is asked for: a device in a dump takes 0.5 to 0.8 us, a request for one
 * about 4 us. */
#define MAX_RATIO 4

struct netlink_stats {
    struct hmap_node node;              /* In 'devices'. */
    int ifindex;
    struct rtnl_link_stats64 stats;
};

struct netlink_stats_pass {
    bool active;
    size_t n_asked;                     /* In this pass, and in the one */
    size_t n_asked_before;              /* before. */

    /* How many devices the kernel has.  Decreases slowly, from the number that
     * the latest dump had, so that a dump is tried again at some time. */
    size_t n_kernel;

    /* The dump. */
    struct hmap devices;
    struct netlink_stats *stats;
    size_t n, allocated;

    /* The generation of ifindexes.  A new one begins when rtnetlink_run()
     * calls 'notifier' because a link has changed.  Never 0. */
    unsigned int generation;
    struct nln_notifier *notifier;
};

DEFINE_STATIC_PER_THREAD_DATA(struct netlink_stats_pass, pass, { .n = 0 });

static void
netlink_stats_dump(struct netlink_stats_pass *p OVS_UNUSED)
{
#ifdef RTM_GETSTATS
    struct ofpbuf request, reply, buf;
    struct if_stats_msg *ifsm;
    struct nl_dump dump;

    COVERAGE_INC(netlink_stats_dump);
    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof *ifsm, RTM_GETSTATS, NLM_F_REQUEST);
    ifsm = ofpbuf_put_zeros(&request, sizeof *ifsm);
    ifsm->filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
    nl_dump_start(&dump, NETLINK_ROUTE, &request);
    ofpbuf_uninit(&request);

    /* As large as the kernel makes a message of a dump, to save copying. */
    ofpbuf_init(&buf, 32768);
    while (nl_dump_next(&dump, &reply, &buf)) {
        struct netlink_stats *s;
        const struct nlattr *a;

        ifsm = ofpbuf_at(&reply, NLMSG_HDRLEN, sizeof *ifsm);
        a = (ifsm && nl_msg_nlmsghdr(&reply)->nlmsg_type == RTM_NEWSTATS
             ? nl_attr_find(&reply, NLMSG_HDRLEN + sizeof *ifsm,
                            IFLA_STATS_LINK_64)
             : NULL);
        if (!a || nl_attr_get_size(a) < sizeof s->stats) {
            continue;
        }
        if (p->n >= p->allocated) {
            p->stats = x2nrealloc(p->stats, &p->allocated, sizeof *p->stats);
        }
        s = &p->stats[p->n++];
        s->ifindex = ifsm->ifindex;
        memcpy(&s->stats, nl_attr_get(a), sizeof s->stats);
    }
    ofpbuf_uninit(&buf);

    /* What has been read is right in any case, even if it is not all. */
    nl_dump_done(&dump);

    hmap_reserve(&p->devices, p->n);
    for (size_t i = 0; i < p->n; i++) {
        hmap_insert_fast(&p->devices, &p->stats[i].node,
                         hash_int(p->stats[i].ifindex, 0));
    }
    p->n_kernel = p->n;
#endif
}

static void
netlink_stats_link_changed(const struct rtnetlink_change *c OVS_UNUSED,
                           void *p_)
{
    struct netlink_stats_pass *p = p_;

    p->generation += p->generation == UINT_MAX ? 2 : 1;
}

/* Returns the ifindex of device 'name', or 0 if there is none. */
static int
netlink_stats_get_ifindex(const struct netlink_stats_pass *p, const char *name,
                          struct netlink_stats_device *device)
{
    struct ifreq ifr;

    if (!p->notifier || device->generation != p->generation) {
        device->ifindex = 0;
        if (strlen(name) < IFNAMSIZ
            && !af_inet_ifreq_ioctl(name, &ifr, SIOCGIFINDEX,
                                    "SIOCGIFINDEX")) {
            device->ifindex = ifr.ifr_ifindex;
        }
        device->generation = p->generation;
    }
    return device->ifindex;
}

/* Begins a pass of this thread. */
void
netlink_stats_begin(void)
{
    struct netlink_stats_pass *p = pass_get();

    ovs_assert(!p->active);
    if (!p->notifier) {
        p->generation++;
        p->notifier = rtnetlink_notifier_create(netlink_stats_link_changed,
                                                p);
    }
    p->active = true;
    p->n_asked = 0;
    hmap_init(&p->devices);
}

/* Ends a pass of this thread. */
void
netlink_stats_end(void)
{
    struct netlink_stats_pass *p = pass_get();

    if (!p->n) {
        p->n_kernel -= DIV_ROUND_UP(p->n_kernel, 64);
    }
    p->n_asked_before = p->n_asked;
    p->active = false;
    hmap_destroy(&p->devices);
    free(p->stats);
    p->stats = NULL;
    p->n = p->allocated = 0;
}

/* Returns the "struct rtnl_link_stats64" of device 'name' that was read in
 * this pass, which is valid until the end of the pass.  Returns NULL if the
 * kernel has to be asked, also if no pass has begun.  'device' is what passes
 * remember about that device. */
const void *
netlink_stats_find(const char *name, struct netlink_stats_device *device)
{
    struct netlink_stats_pass *p = pass_get();
    const struct netlink_stats *s;
    int ifindex;

    if (!p->active) {
        return NULL;
    }
    if (!p->n_asked++ && p->n_asked_before >= MIN_DEVICES
        && p->n_kernel / MAX_RATIO <= p->n_asked_before) {
        netlink_stats_dump(p);
    }

    if (!p->n) {
        return NULL;
    }

    ifindex = netlink_stats_get_ifindex(p, name, device);
    HMAP_FOR_EACH_WITH_HASH (s, node, hash_int(ifindex, 0), &p->devices) {
        if (s->ifindex == ifindex) {
            COVERAGE_INC(netlink_stats_found);
            return &s->stats;
        }
    }
    return NULL;
}
