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

#include "netlink-cost.h"

#include <errno.h>
#ifdef __linux__
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#endif
#include <net/if.h>

#include "cost-report.h"
#include "netlink.h"
#include "netlink-protocol.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/ofpbuf.h"
#include "ovs-thread.h"
#include "util.h"

/* Families of messages: of rtnetlink, those that messages are about; of
 * generic Netlink, those that the kernel gives a number. */
enum family {
    FAMILY_LINK,
    FAMILY_ADDR,
    FAMILY_ROUTE,
    FAMILY_RULE,
    FAMILY_NEIGH,
    FAMILY_TC,
    FAMILY_STATS,
    FAMILY_RTNETLINK,           /* Anything else, or nothing received. */

    FAMILY_NLCTRL,
    FAMILY_OVS_DATAPATH,
    FAMILY_OVS_VPORT,
    FAMILY_OVS_FLOW,
    FAMILY_OVS_PACKET,
    FAMILY_OVS_METER,
    FAMILY_OVS_CT_LIMIT,
    FAMILY_GENERIC,             /* Anything else. */

    FAMILY_NETFILTER,
    FAMILY_OTHER,
    N_FAMILIES
};

static const char *const family_names[N_FAMILIES] = {
    [FAMILY_LINK] = "link",
    [FAMILY_ADDR] = "addr",
    [FAMILY_ROUTE] = "route",
    [FAMILY_RULE] = "rule",
    [FAMILY_NEIGH] = "neigh",
    [FAMILY_TC] = "tc",
    [FAMILY_STATS] = "stats",
    [FAMILY_RTNETLINK] = "rtnetlink",
    [FAMILY_NLCTRL] = "nlctrl",
    [FAMILY_OVS_DATAPATH] = "ovs_datapath",
    [FAMILY_OVS_VPORT] = "ovs_vport",
    [FAMILY_OVS_FLOW] = "ovs_flow",
    [FAMILY_OVS_PACKET] = "ovs_packet",
    [FAMILY_OVS_METER] = "ovs_meter",
    [FAMILY_OVS_CT_LIMIT] = "ovs_ct_limit",
    [FAMILY_GENERIC] = "generic",
    [FAMILY_NETFILTER] = "netfilter",
    [FAMILY_OTHER] = "other",
};

static const char *const op_names[NL_COST_N_OPS] = {
    [NL_COST_DUMP] = "dump",
    [NL_COST_TRANSACT] = "transact",
    [NL_COST_NOTIFY] = "notify",
};

static const char *const stages[NL_COST_N_STAGES] = {
    [NL_COST_SEND] = "send",
    [NL_COST_RECEIVE] = "receive",
    [NL_COST_REQUESTS] = "requests",
    [NL_COST_BYTES] = "bytes",
    [NL_COST_TOTAL] = "total",
};

static const char *const counters[NL_COST_N_COUNTERS] = {
    [NL_COST_DONE] = "done",
    [NL_COST_NOTHING] = "nothing",
    [NL_COST_INTERRUPTED] = "interrupted",
    [NL_COST_ERROR] = "error",
    [NL_COST_OVERRUN] = "overrun",
};

/* Details of one of the slowest calls. */
struct details {
    uint16_t type;                      /* nlmsg_type. */
    uint8_t command;                    /* Of generic Netlink. */
    uint32_t ifindex;                   /* Of the device, or 0. */
    char name[IFNAMSIZ];                /* If there is no 'ifindex'. */
};
#define N_DETAILS DIV_ROUND_UP(sizeof(struct details), sizeof(uint64_t))

static void
format_class(size_t class, struct ds *s)
{
    ds_put_cstr(s, op_names[class]);
}

static struct cost_config config
    = COST_CONFIG_INITIALIZER("netlink", COST_DEFAULT_SPLIT_INTERVAL, NULL);

const struct cost_kind nl_cost_kind = {
    .name = "call",
    .config = &config,
    .stages = stages,
    .n_stages = NL_COST_N_STAGES,
    .values = 1u << NL_COST_REQUESTS | 1u << NL_COST_BYTES,
    .always_split = true,
    .counters = counters,
    .n_counters = NL_COST_N_COUNTERS,
    .n_classes = NL_COST_N_OPS,
    .format_class = format_class,
    .n_slowest = COST_MAX_SLOWEST,
    .n_details = N_DETAILS,
};

/* Set by nl_cost_init(). */
static atomic_bool initialized;

/* The account of each family, or NULL so far. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static ATOMIC(struct cost_account *) accounts[N_FAMILIES];

/* The family of each nlmsg_type of generic Netlink, plus 1, or 0 if it is not
 * known. */
#define N_GENERIC_TYPES 1024
static atomic_uint8_t generic_types[N_GENERIC_TYPES];

/* A thread's recorders, or NULL so far. */
struct nl_cost_thread {
    struct cost_recorder *recorders[N_FAMILIES];
};

/* Its destructor releases them when the thread exits. */
static ovsthread_key_t thread_key;

/* Families. */

/* Tells that 'type' is the nlmsg_type of the generic Netlink family named
 * 'name'. */
void
nl_cost_define_family(uint16_t type, const char *name)
{
    for (size_t i = FAMILY_NLCTRL; i < FAMILY_GENERIC; i++) {
        if (type < N_GENERIC_TYPES && !strcmp(name, family_names[i])) {
            atomic_store_relaxed(&generic_types[type], (uint8_t) (i + 1));
        }
    }
}

#ifdef __linux__
static enum family
rtnetlink_family(uint16_t type)
{
    switch (type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
    case RTM_GETLINK:
    case RTM_SETLINK:
        return FAMILY_LINK;

    case RTM_NEWADDR:
    case RTM_DELADDR:
    case RTM_GETADDR:
        return FAMILY_ADDR;

    case RTM_NEWROUTE:
    case RTM_DELROUTE:
    case RTM_GETROUTE:
        return FAMILY_ROUTE;

    case RTM_NEWRULE:
    case RTM_DELRULE:
    case RTM_GETRULE:
        return FAMILY_RULE;

    case RTM_NEWNEIGH:
    case RTM_DELNEIGH:
    case RTM_GETNEIGH:
        return FAMILY_NEIGH;

    case RTM_NEWQDISC:
    case RTM_DELQDISC:
    case RTM_GETQDISC:
    case RTM_NEWTCLASS:
    case RTM_DELTCLASS:
    case RTM_GETTCLASS:
    case RTM_NEWTFILTER:
    case RTM_DELTFILTER:
    case RTM_GETTFILTER:
    case RTM_NEWACTION:
    case RTM_DELACTION:
    case RTM_GETACTION:
        return FAMILY_TC;

    case RTM_NEWSTATS:
    case RTM_GETSTATS:
        return FAMILY_STATS;

    default:
        return FAMILY_RTNETLINK;
    }
}

static enum family
get_family(int protocol, uint16_t type)
{
    uint8_t family = 0;

    switch (protocol) {
    case NETLINK_ROUTE:
        return rtnetlink_family(type);

    case NETLINK_GENERIC:
        if (type == GENL_ID_CTRL) {
            return FAMILY_NLCTRL;
        } else if (type < N_GENERIC_TYPES) {
            atomic_read_relaxed(&generic_types[type], &family);
        }
        return family ? family - 1 : FAMILY_GENERIC;

    case NETLINK_NETFILTER:
        return FAMILY_NETFILTER;

    default:
        return FAMILY_OTHER;
    }
}

static bool
is_upcall_socket(enum nl_cost_op op, int protocol)
{
    return op == NL_COST_NOTIFY && protocol == NETLINK_GENERIC;
}

static bool
dump_is_interrupted(const struct ofpbuf *buf)
{
    return nl_msg_nlmsghdr(buf)->nlmsg_flags & NLM_F_DUMP_INTR;
}

/* Stores in 'details' what 'msg', of 'family', is about. */
static void
get_subject(struct details *details, enum family family,
            const struct ofpbuf *msg)
{
    const struct genlmsghdr *genl;
    const struct ifinfomsg *ifi;
    const struct nlattr *name;

    if (family >= FAMILY_NLCTRL) {
        genl = ofpbuf_at(msg, NLMSG_HDRLEN, sizeof *genl);
        details->command = genl && family < FAMILY_NETFILTER ? genl->cmd : 0;
        return;
    }

    /* All of these have it at the same offset. */
    ifi = ofpbuf_at(msg, NLMSG_HDRLEN, offsetof(struct ifinfomsg, ifi_flags));
    if (ifi && (family == FAMILY_LINK || family == FAMILY_ADDR
                || family == FAMILY_NEIGH || family == FAMILY_STATS
                || (family == FAMILY_TC && details->type < RTM_NEWACTION))) {
        details->ifindex = ifi->ifi_index;
    }
    if (!details->ifindex && family == FAMILY_LINK
        && msg->size >= NLMSG_HDRLEN + sizeof *ifi) {
        name = nl_attr_find(msg, NLMSG_HDRLEN + sizeof *ifi, IFLA_IFNAME);
        if (name) {
            ovs_strlcpy(details->name, nl_attr_get(name),
                        MIN(nl_attr_get_size(name), sizeof details->name));
        }
    }
}

/* Appends the name of the message to 's'.  Returns false if it has none. */
static bool
format_message(enum family family, const struct details *details,
               struct ds *s)
{
#define RTM_GROUP(NAME) [(RTM_NEW##NAME - RTM_BASE) / 4] = #NAME
    static const char *const rtm_groups[] = {
        RTM_GROUP(LINK), RTM_GROUP(ADDR), RTM_GROUP(ROUTE), RTM_GROUP(NEIGH),
        RTM_GROUP(RULE), RTM_GROUP(QDISC), RTM_GROUP(TCLASS),
        RTM_GROUP(TFILTER), RTM_GROUP(ACTION), RTM_GROUP(NSID),
        RTM_GROUP(STATS),
    };
#undef RTM_GROUP
    static const char *const verbs[] = { "NEW", "DEL", "GET", "SET" };
    size_t n = details->type - RTM_BASE;

    if (family <= FAMILY_RTNETLINK) {
        if (details->type < RTM_BASE || n / 4 >= ARRAY_SIZE(rtm_groups)
            || !rtm_groups[n / 4]) {
            return false;
        }
        ds_put_format(s, "RTM_%s%s", verbs[n % 4], rtm_groups[n / 4]);
    } else {
        n = details->command - 1;
        if ((family != FAMILY_OVS_DATAPATH && family != FAMILY_OVS_VPORT
             && family != FAMILY_OVS_FLOW) || n >= ARRAY_SIZE(verbs)) {
            return false;
        }
        ds_put_format(s, "OVS_%s_CMD_%s",
                      (family == FAMILY_OVS_DATAPATH ? "DP"
                       : family == FAMILY_OVS_VPORT ? "VPORT" : "FLOW"),
                      verbs[n]);
    }
    return true;
}
#else /* !__linux__ */
static enum family
get_family(int protocol OVS_UNUSED, uint16_t type OVS_UNUSED)
{
    return FAMILY_OTHER;
}

static bool
is_upcall_socket(enum nl_cost_op op OVS_UNUSED, int protocol OVS_UNUSED)
{
    return false;
}

static bool
dump_is_interrupted(const struct ofpbuf *buf OVS_UNUSED)
{
    return false;
}

static void
get_subject(struct details *details OVS_UNUSED, enum family family OVS_UNUSED,
            const struct ofpbuf *msg OVS_UNUSED)
{
}

static bool
format_message(enum family family OVS_UNUSED,
               const struct details *details OVS_UNUSED,
               struct ds *s OVS_UNUSED)
{
    return false;
}
#endif

/* Returns the account of 'family', which it creates if necessary. */
static struct cost_account *
get_account(enum family family)
{
    struct cost_account *account;

    atomic_read_explicit(&accounts[family], &account, memory_order_acquire);
    if (OVS_LIKELY(account)) {
        return account;
    }

    ovs_mutex_lock(&mutex);
    atomic_read_relaxed(&accounts[family], &account);
    if (!account) {
        account = cost_account_create(&nl_cost_kind, family_names[family],
                                      NULL);
        atomic_store_explicit(&accounts[family], account,
                              memory_order_release);
    }
    ovs_mutex_unlock(&mutex);
    return account;
}

/* Recorders. */

static void
thread_exit(void *thread_)
{
    struct nl_cost_thread *thread = thread_;

    for (size_t i = 0; i < N_FAMILIES; i++) {
        cost_recorder_release(thread->recorders[i]);
    }
    free(thread);
}

/* Returns the calling thread's recorder for 'family'. */
static struct cost_recorder *
get_recorder(enum family family)
{
    struct nl_cost_thread *thread = ovsthread_getspecific(thread_key);

    if (OVS_UNLIKELY(!thread)) {
        thread = xzalloc(sizeof *thread);
        ovsthread_setspecific(thread_key, thread);
    }
    if (OVS_UNLIKELY(!thread->recorders[family])) {
        /* "pmd-c01" instead of "pmd-c01/id:9".  The main thread has no name
         * or, after the monitor has restarted the daemon, the program's. */
        const char *subprogram = get_subprogram_name();
        char *name = (subprogram[0] && strcmp(subprogram, program_name)
                      ? xmemdup0(subprogram, strcspn(subprogram, "/"))
                      : xstrdup("main"));

        thread->recorders[family] = cost_recorder_get(get_account(family),
                                                      name);
        free(name);
    }
    return thread->recorders[family];
}

/* Recording. */

/* Ends 'stage' of 'call'. */
static void
end_stage(struct nl_cost *call, enum nl_cost_stage stage)
{
    uint64_t now = cost_clock_stepper_now(&call->stepper, nl_cost_kind.name);
    uint64_t ticks = cost_clock_between(call->last, now);

    call->last = now;
    call->event.stages[stage] = ticks;
    call->event.marked |= 1u << stage;
    call->event.total += ticks;
}

/* Starts 'call' of kind 'op', on a socket of 'protocol', for 'request', the
 * first one if there are several, which the caller keeps until nl_cost_stop().
 * Without one, 'type' is the nlmsg_type.  In case of NL_COST_NOTIFY, the
 * message is yet to be seen.
 *
 * Sockets that receive upcalls are not accounted for. */
void
nl_cost_start(struct nl_cost *call, enum nl_cost_op op, int protocol,
              uint16_t type, const struct ofpbuf *request)
{
    bool ready;

    atomic_read_explicit(&initialized, &ready, memory_order_acquire);
    if (!ready || !cost_enabled(&config) || is_upcall_socket(op, protocol)) {
        call->last = 0;
        return;
    }

    call->op = op;
    call->protocol = protocol;
    call->type = request ? nl_msg_nlmsghdr(request)->nlmsg_type : type;
    call->msg = request;
    cost_event_init(&call->event);
    call->event.counter = NL_COST_DONE;

    /* In a test, the first stage takes 2 us, the next one 3 us. */
    memset(&call->stepper, 0, sizeof call->stepper);
    call->last = cost_clock_stepper_start(&call->stepper, nl_cost_kind.name);
}

/* Tells that 'n_requests' have been sent, or could not be sent. */
void
nl_cost_sent(struct nl_cost *call, size_t n_requests)
{
    if (call->last) {
        end_stage(call, NL_COST_SEND);
        call->event.stages[NL_COST_REQUESTS] = n_requests;
        call->event.marked |= 1u << NL_COST_REQUESTS;
    }
}

/* Tells that 'buf' has been received, or 'error' if that is not 0.  There may
 * be more to be received in the same call.  In case of NL_COST_NOTIFY, the
 * caller keeps 'buf' until nl_cost_stop(). */
void
nl_cost_received(struct nl_cost *call, int error, const struct ofpbuf *buf)
{
    if (!call->last) {
        return;
    }

    if (!(call->event.marked & (1u << NL_COST_BYTES))) {
        call->event.stages[NL_COST_BYTES] = 0;
        call->event.marked |= 1u << NL_COST_BYTES;
    }
    if (!error) {
        call->event.stages[NL_COST_BYTES] += buf->size;
        if (call->op == NL_COST_NOTIFY) {
            call->type = nl_msg_nlmsghdr(buf)->nlmsg_type;
            call->msg = buf;
        } else if (call->op == NL_COST_DUMP && dump_is_interrupted(buf)) {
            call->event.counter = NL_COST_INTERRUPTED;
        }
    }
}

static void
get_details(uint64_t *words, const void *call_, size_t n OVS_UNUSED)
{
    const struct nl_cost *call = call_;
    struct details details = { .type = call->type };

    if (call->msg) {
        get_subject(&details, get_family(call->protocol, call->type),
                    call->msg);
    }
    memcpy(words, &details, sizeof details);
}

/* Ends 'call' with 'error', or 0, and records it. */
void
nl_cost_stop(struct nl_cost *call, int error)
{
    const struct cost_details details = { get_details, call, 0 };
    enum family family;

    if (!call->last) {
        return;
    }

    if (call->event.marked & (1u << NL_COST_BYTES)) {
        end_stage(call, NL_COST_RECEIVE);
    }
    if (error) {
        call->event.counter = (error == EAGAIN ? NL_COST_NOTHING
                               : error == ENOBUFS ? NL_COST_OVERRUN
                               : NL_COST_ERROR);
    }
    family = get_family(call->protocol, call->type);
    cost_record(get_recorder(family), call->op, &call->event, &details);
}

/* Reporting. */

/* Stores in 'device' the name of the device that 'details' are about.  Returns
 * false if it has none, or none any more. */
static bool
get_device(const struct details *details, char device[IFNAMSIZ])
{
    if (details->ifindex) {
        return if_indextoname(details->ifindex, device) != NULL;
    }
    ovs_strlcpy(device, details->name, IFNAMSIZ);
    return device[0] != '\0';
}

/* Appends the name of the message that 'words' of the family 'account' are
 * about to 's'.  Returns false if it is not known. */
static bool
put_message(const char *account, const struct details *details, struct ds *s)
{
    enum family family = 0;

    while (strcmp(account, family_names[family])) {
        family++;
    }
    return format_message(family, details, s);
}

/* Appends to 's' what a slow call of the family 'account' was about. */
void
nl_cost_format_details(const char *account, const uint64_t *words,
                       struct ds *s)
{
    const struct details *details = (const void *) words;
    char device[IFNAMSIZ];

    if (!put_message(account, details, s)) {
        ds_put_format(s, "nlmsg_type %"PRIu16, details->type);
        if (details->command) {
            ds_put_format(s, ", command %"PRIu8, details->command);
        }
    }
    if (get_device(details, device)) {
        ds_put_format(s, ", device %s", device);
    } else if (details->ifindex) {
        ds_put_format(s, ", ifindex %"PRIu32, details->ifindex);
    }
}

static void
details_to_json(const char *account, const uint64_t *words,
                struct json *json)
{
    const struct details *details = (const void *) words;
    struct ds s = DS_EMPTY_INITIALIZER;
    char device[IFNAMSIZ];

    json_object_put(json, "nlmsg_type", json_integer_create(details->type));
    if (details->command) {
        json_object_put(json, "command",
                        json_integer_create(details->command));
    }
    if (put_message(account, details, &s)) {
        json_object_put_string(json, "message", ds_cstr(&s));
    }
    if (details->ifindex) {
        json_object_put(json, "ifindex",
                        json_integer_create(details->ifindex));
    }
    if (get_device(details, device)) {
        json_object_put_string(json, "device", device);
    }
    ds_destroy(&s);
}

/* Starts accounting and registers the netlink/cost-* commands. */
void
nl_cost_init(void)
{
    static const struct cost_kind *const kinds[] = { &nl_cost_kind };
    static const struct cost_counter_group groups[] = {
        { "result", NL_COST_DONE, NL_COST_OVERRUN, false },
        { "lost", NL_COST_OVERRUN, NL_COST_N_COUNTERS, true },
    };
    static const struct cost_report report = {
        .prefix = "netlink",
        .object = "account",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .groups = groups,
        .n_groups = ARRAY_SIZE(groups),
        .class_help = "dump, transact or notify",
        .format_details = nl_cost_format_details,
        .details_to_json = details_to_json,
    };

    cost_report_register(&report);
    ovsthread_key_create(&thread_key, thread_exit);
    cost_clock_init();
    atomic_store_explicit(&initialized, true, memory_order_release);
}
