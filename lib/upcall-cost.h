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

#ifndef UPCALL_COST_H
#define UPCALL_COST_H 1

#include <errno.h>

#include "cost.h"
#include "dpif.h"
#include "flow.h"

struct miniflow;
struct nlattr;
struct ofpbuf;

/* What upcalls cost.
 * ==================
 *
 * The hooks that the datapaths and ofproto-dpif-upcall call, on top of
 * lib/cost.h.  Each stage, class and counter is defined in
 * Documentation/topics/upcall-cost.rst.
 */

/* Stages of an upcall in the userspace datapath. */
enum upcall_cost_stage {
    UPCALL_COST_PARSE,          /* Until ofproto knows what the upcall is. */
    UPCALL_COST_TRANSLATE,      /* OpenFlow lookup and translation. */
    UPCALL_COST_INSTALL,        /* Ukey and datapath flow. */
    UPCALL_COST_EXECUTE,        /* Actions on the packet. */
    UPCALL_COST_TOTAL,
    UPCALL_COST_N_STAGES
};

/* Stages of an upcall from the kernel datapath. */
enum upcall_cost_kernel_stage {
    UPCALL_COST_K_QUEUE,        /* In the socket's queue. */
    UPCALL_COST_K_PARSE,        /* Received, until ofproto knows what it is. */
    UPCALL_COST_K_TRANSLATE,    /* OpenFlow lookup and translation. */
    UPCALL_COST_K_WAIT,         /* For the rest of the batch. */
    UPCALL_COST_K_INSTALL,      /* Ukeys, and preparing operations. */
    UPCALL_COST_K_OPERATE,      /* Kernel installs flows, executes actions. */
    UPCALL_COST_K_OVERHEAD,     /* 'queue' and 'operate'. */
    UPCALL_COST_K_BATCH,        /* A number: upcalls in the batch. */
    UPCALL_COST_K_TOTAL,
    UPCALL_COST_K_N_STAGES
};

/* What became of the flow of an upcall, or why an upcall was lost. */
enum upcall_cost_counter {
    /* Flow installed, or the reason why not. */
    UPCALL_COST_INSTALLED,
    UPCALL_COST_FLOW_LIMIT,     /* Datapath flow limit reached. */
    UPCALL_COST_NO_RECIRC,      /* Recirculation context is being freed. */
    UPCALL_COST_DUPLICATE,      /* Flow exists or is just being changed. */
    UPCALL_COST_REFUSED,        /* The kernel did not add it. */

    /* Upcall lost, with the reason. */
    UPCALL_COST_LOST_LOCK,      /* Upcalls disabled for reconfiguration. */
    UPCALL_COST_LOST_BRIDGE,    /* No bridge has the port, or it is gone. */
    UPCALL_COST_LOST_ERROR,     /* Anything else. */
    UPCALL_COST_LOST_OVERRUN,   /* Socket's buffer was full. */

    /* Of sockets whose queues are watched. */
    UPCALL_COST_QUEUE_UNKNOWN,  /* Upcall whose time in it is not known. */
    UPCALL_COST_QUEUE_ORPHAN,   /* Record of an upcall that was dropped. */

    UPCALL_COST_N_COUNTERS
};

/* Why the datapath asks. */
enum upcall_cost_type {
    UPCALL_COST_MISS,
    UPCALL_COST_SLOW_PATH,
    UPCALL_COST_CONTROLLER,
    UPCALL_COST_SFLOW,
    UPCALL_COST_IPFIX,
    UPCALL_COST_SAMPLE,
    UPCALL_COST_BAD,            /* Datapath's request makes no sense. */
    UPCALL_COST_UNKNOWN,        /* Lost before anybody looked at it. */
    UPCALL_COST_N_TYPES
};

/* A class is a type together with any of these. */
enum upcall_cost_feature {
    UPCALL_COST_CT = 1 << 0,
    UPCALL_COST_NAT = 1 << 1,
    UPCALL_COST_RECIRC = 1 << 2,
    UPCALL_COST_TUNNEL = 1 << 3,
    UPCALL_COST_N_FEATURES = 4
};

#define UPCALL_COST_N_CLASSES (UPCALL_COST_N_TYPES << UPCALL_COST_N_FEATURES)

extern struct cost_config upcall_cost_config;
extern const struct cost_kind upcall_cost_netdev_kind;
extern const struct cost_kind upcall_cost_kernel_kind;

/* Hooks for the datapaths. */
static inline void upcall_cost_miss_stop(struct cost_timer *,
                                         const struct flow *,
                                         const struct miniflow *,
                                         uint32_t packet_len,
                                         const struct ofpbuf *actions,
                                         int error);
static inline void upcall_cost_action_stop(struct cost_timer *,
                                           const struct nlattr *userdata,
                                           const struct flow *,
                                           uint32_t packet_len,
                                           const struct ofpbuf *actions,
                                           int error);
void upcall_cost_lost_lock(struct cost_recorder *, enum dpif_upcall_type,
                           const struct nlattr *userdata, size_t n);

/* For lib/upcall-cost-kernel.c. */
enum upcall_cost_type upcall_cost_type(enum dpif_upcall_type,
                                       const struct nlattr *userdata);
size_t upcall_cost_class(enum upcall_cost_type, const struct flow *,
                         const struct ofpbuf *actions);
void upcall_cost_get_details(uint64_t *details, const void *flow,
                             size_t packet_len);

/* Commands. */
void upcall_cost_init(void);

void upcall_cost_miss_stop__(struct cost_timer *, const struct flow *,
                             const struct miniflow *, uint32_t packet_len,
                             const struct ofpbuf *actions);
void upcall_cost_action_stop__(struct cost_timer *,
                               const struct nlattr *userdata,
                               const struct flow *, uint32_t packet_len,
                               const struct ofpbuf *actions, int error);
void upcall_cost_fail__(struct cost_timer *, enum upcall_cost_type, int error);

/* Stops the upcall for a flow miss that the userspace datapath started with
 * cost_timer_start() on 'timer', and leaves it open when it ends.  It was for
 * a packet of 'flow', of which 'miniflow' is a copy that stays valid until
 * then, that was 'packet_len' bytes long, and led to 'actions'.  'error' is
 * what the upcall callback returned: 0, ENOSPC if no flow is to be installed,
 * or another value if the upcall failed.
 *
 * The time since the latest mark belongs to installing the flow. */
static inline void
upcall_cost_miss_stop(struct cost_timer *timer, const struct flow *flow,
                      const struct miniflow *miniflow, uint32_t packet_len,
                      const struct ofpbuf *actions, int error)
{
    if (!timer->recorder) {
        cost_timer_cancel(timer);
    } else if (OVS_LIKELY(!error || error == ENOSPC)) {
        upcall_cost_miss_stop__(timer, flow, miniflow, packet_len, actions);
    } else {
        upcall_cost_fail__(timer, UPCALL_COST_MISS, error);
    }
}

/* Stops the upcall for an action with 'userdata' that the userspace datapath
 * started with cost_timer_start() on 'timer'.  It was for a packet of 'flow'
 * that was 'packet_len' bytes long, and led to 'actions'.  'error' is what the
 * upcall callback returned: 0, ENOSPC or EAGAIN if there is nothing to be done
 * with the packet, or another value if the upcall failed.
 *
 * The time since the latest mark belongs to executing actions. */
static inline void
upcall_cost_action_stop(struct cost_timer *timer,
                        const struct nlattr *userdata, const struct flow *flow,
                        uint32_t packet_len, const struct ofpbuf *actions,
                        int error)
{
    if (!timer->recorder) {
        cost_timer_cancel(timer);
    } else {
        upcall_cost_action_stop__(timer, userdata, flow, packet_len, actions,
                                  error);
    }
}

#endif /* upcall-cost.h */
