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

#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "coverage.h"
#include "hash.h"
#include "netlink.h"
#include "netlink-socket.h"
#include "openvswitch/hmap.h"
#include "openvswitch/ofpbuf.h"
#include "ovs-atomic.h"
#include "ovs-thread.h"
#include "util.h"

COVERAGE_DEFINE(netlink_stats_dump);
COVERAGE_DEFINE(netlink_stats_found);

/* A pass has a dump if the pass before asked for at least MIN_DEVICES devices
 * and for one in MAX_RATIO of those that the kernel has: a device in a dump
 * takes 0.5 to 0.8 us, a request about 4 us.  Otherwise the kernel's devices
 * are counted again, by a dump, after SKIP_PASSES passes. */
#define MIN_DEVICES 32
#define MAX_RATIO 4
#define SKIP_PASSES 64

struct netlink_stats {
    struct hmap_node node;              /* In 'devices'. */
    int ifindex;
    struct rtnl_link_stats64 stats;
};

struct netlink_stats_pass {
    bool active;
    size_t n_asked;                     /* In this pass, and in the one */
    size_t n_asked_before;              /* before. */
    unsigned int n_skip;                /* Passes without a dump. */

    /* The dump. */
    struct hmap devices;
    struct netlink_stats *stats;
    size_t n, allocated;
};

DEFINE_STATIC_PER_THREAD_DATA(struct netlink_stats_pass, pass, { .n = 0 });

#ifdef RTM_GETSTATS
/* Does the kernel not know RTM_GETSTATS, as before Linux 4.7? */
static atomic_bool unsupported = false;

static void
netlink_stats_put_request(struct ofpbuf *request, int ifindex)
{
    struct if_stats_msg *ifsm;

    nl_msg_put_nlmsghdr(request, sizeof *ifsm, RTM_GETSTATS, NLM_F_REQUEST);
    ifsm = ofpbuf_put_zeros(request, sizeof *ifsm);
    ifsm->ifindex = ifindex;
    ifsm->filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
}

/* Returns true and sets '*ifindex' and the 'size' bytes of 'stats' if 'msg'
 * has them.  Members of 'stats' that the kernel is too old for are 0. */
static bool
netlink_stats_parse(const struct ofpbuf *msg, int *ifindex, void *stats,
                    size_t size)
{
    const struct if_stats_msg *ifsm = ofpbuf_at(msg, NLMSG_HDRLEN,
                                                sizeof *ifsm);
    const struct nlattr *a
        = (ifsm && nl_msg_nlmsghdr(msg)->nlmsg_type == RTM_NEWSTATS
           ? nl_attr_find(msg, NLMSG_HDRLEN + sizeof *ifsm,
                          IFLA_STATS_LINK_64)
           : NULL);

    if (!a) {
        return false;
    }
    *ifindex = ifsm->ifindex;
    memset(stats, 0, size);
    memcpy(stats, nl_attr_get(a), MIN(nl_attr_get_size(a), size));
    return true;
}

static void
netlink_stats_dump(struct netlink_stats_pass *p)
{
    struct ofpbuf request, reply, buf;
    struct nl_dump dump;

    COVERAGE_INC(netlink_stats_dump);
    ofpbuf_init(&request, 0);
    netlink_stats_put_request(&request, 0);
    nl_dump_start(&dump, NETLINK_ROUTE, &request);
    ofpbuf_uninit(&request);

    /* As large as the kernel makes a message of a dump, to save copying. */
    ofpbuf_init(&buf, 32768);
    while (nl_dump_next(&dump, &reply, &buf)) {
        struct netlink_stats *s;

        if (p->n >= p->allocated) {
            p->stats = x2nrealloc(p->stats, &p->allocated, sizeof *p->stats);
        }
        s = &p->stats[p->n];
        p->n += netlink_stats_parse(&reply, &s->ifindex, &s->stats,
                                    sizeof s->stats);
    }
    ofpbuf_uninit(&buf);

    /* The statistics that have been read are right in any case, even if some
     * devices were skipped. */
    if (nl_dump_done(&dump) == EOPNOTSUPP) {
        atomic_store_relaxed(&unsupported, true);
    }

    hmap_reserve(&p->devices, p->n);
    for (size_t i = 0; i < p->n; i++) {
        hmap_insert_fast(&p->devices, &p->stats[i].node,
                         hash_int(p->stats[i].ifindex, 0));
    }
    if (p->n / MAX_RATIO > p->n_asked_before) {
        p->n_skip = SKIP_PASSES;
    }
}

static const struct rtnl_link_stats64 *
netlink_stats_find(struct netlink_stats_pass *p, int ifindex)
{
    const struct netlink_stats *s;

    if (!p->active) {
        return NULL;
    }
    if (!p->n_asked++ && p->n_asked_before >= MIN_DEVICES) {
        if (!p->n_skip) {
            netlink_stats_dump(p);
        } else {
            p->n_skip--;
        }
    }
    HMAP_FOR_EACH_WITH_HASH (s, node, hash_int(ifindex, 0), &p->devices) {
        if (s->ifindex == ifindex) {
            COVERAGE_INC(netlink_stats_found);
            return &s->stats;
        }
    }
    return NULL;
}

/* Reads the statistics of device 'ifindex' into 'stats', which has the first
 * 'size' bytes of a "struct rtnl_link_stats64".  Returns 0 or a positive errno
 * value: EOPNOTSUPP if the kernel has no such request. */
int
netlink_stats_get(int ifindex, void *stats, size_t size)
{
    const struct rtnl_link_stats64 *found;
    struct ofpbuf request, *reply;
    uint64_t stub[128 / 8];
    bool skip;
    int error;

    atomic_read_relaxed(&unsupported, &skip);
    if (skip) {
        return EOPNOTSUPP;
    }

    found = netlink_stats_find(pass_get(), ifindex);
    if (found) {
        ovs_assert(size <= sizeof *found);
        memcpy(stats, found, size);
        return 0;
    }

    ofpbuf_use_stub(&request, stub, sizeof stub);
    netlink_stats_put_request(&request, ifindex);
    error = nl_transact(NETLINK_ROUTE, &request, &reply);
    ofpbuf_uninit(&request);
    if (!error && !netlink_stats_parse(reply, &ifindex, stats, size)) {
        error = EPROTO;
    }
    if (error == EOPNOTSUPP) {
        atomic_store_relaxed(&unsupported, true);
    }
    ofpbuf_delete(reply);
    return error;
}
#else
int
netlink_stats_get(int ifindex OVS_UNUSED, void *stats OVS_UNUSED,
                  size_t size OVS_UNUSED)
{
    return EOPNOTSUPP;
}
#endif /* RTM_GETSTATS */

/* Begins a pass of this thread. */
void
netlink_stats_begin(void)
{
    struct netlink_stats_pass *p = pass_get();

    ovs_assert(!p->active);
    p->active = true;
    p->n_asked = 0;
    hmap_init(&p->devices);
}

/* Ends a pass of this thread. */
void
netlink_stats_end(void)
{
    struct netlink_stats_pass *p = pass_get();

    p->n_asked_before = p->n_asked;
    p->active = false;
    hmap_destroy(&p->devices);
    free(p->stats);
    p->stats = NULL;
    p->n = p->allocated = 0;
}
