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

#ifndef NETLINK_COST_H
#define NETLINK_COST_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost.h"

struct ofpbuf;

/* What Netlink calls cost.
 * ========================
 *
 * Each event is a call on a Netlink socket: a batch of requests and their
 * replies, a dump's request, one buffer full of a dump's replies, or one
 * notification.  There is an account for each family of messages, such as
 * "link" or "ovs_flow", which is created when it is first used, and a class
 * for each kind of call.
 *
 * "ovs-appctl netlink/cost-show" shows it.  Each stage is defined in
 * Documentation/topics/netlink-cost.rst.
 *
 *
 * Thread-safety
 * =============
 *
 * As lib/cost.h.  In a program that does not call nl_cost_init() these
 * functions do nothing. */

/* Stages of a call. */
enum nl_cost_stage {
    NL_COST_SEND,               /* Requests.  The kernel executes them now,
                                 * except for dumps. */
    NL_COST_RECEIVE,            /* Replies or notifications. */
    NL_COST_REQUESTS,           /* Number of requests. */
    NL_COST_BYTES,              /* Number of bytes received. */
    NL_COST_TOTAL,
    NL_COST_N_STAGES
};

/* What became of a call. */
enum nl_cost_counter {
    NL_COST_DONE,
    NL_COST_NOTHING,            /* Nothing there to be received. */
    NL_COST_INTERRUPTED,        /* What is dumped has changed meanwhile. */
    NL_COST_ERROR,              /* The socket failed. */
    NL_COST_OVERRUN,            /* Socket's buffer was full. */
    NL_COST_N_COUNTERS
};

/* Kinds of calls. */
enum nl_cost_op {
    NL_COST_DUMP,
    NL_COST_TRANSACT,
    NL_COST_NOTIFY,             /* Receiving notifications. */
    NL_COST_N_OPS
};

extern const struct cost_kind nl_cost_kind;

/* A call in progress. */
struct nl_cost {
    uint64_t last;              /* Ticks, end of the latest stage, 0 if not
                                 * accounted for. */
    struct cost_clock_stepper stepper;
    enum nl_cost_op op;
    int protocol;
    uint16_t type;              /* nlmsg_type. */
    const struct ofpbuf *msg;   /* Or NULL. */
    struct cost_event event;
};

void nl_cost_start(struct nl_cost *, enum nl_cost_op, int protocol,
                   uint16_t type, const struct ofpbuf *request);
void nl_cost_sent(struct nl_cost *, size_t n_requests);
void nl_cost_received(struct nl_cost *, int error, const struct ofpbuf *);
void nl_cost_stop(struct nl_cost *, int error);

void nl_cost_format_details(const char *account, const uint64_t *words,
                            struct ds *);
void nl_cost_define_family(uint16_t type, const char *name);

void nl_cost_init(void);

#endif /* netlink-cost.h */
