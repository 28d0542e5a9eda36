/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "netlink-cost.h"

#ifdef __linux__

#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include "cost-report.h"
#include "netlink.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/ofpbuf.h"
#include "ovs-thread.h"
#include "util.h"

/* Linux 4.0 and 4.7 have added these. */
#ifndef RTM_NEWNSID
#define RTM_NEWNSID 88
#endif
#ifndef RTM_NEWSTATS
#define RTM_NEWSTATS 92
#endif

/* Families of messages, each of which has an account.  "rtnetlink" and
 * "generic" are for the rest of each protocol. */
#define FAMILIES(FAMILY)                                                      \
    FAMILY(RTNETLINK, "rtnetlink") FAMILY(LINK, "link") FAMILY(ADDR, "addr")  \
    FAMILY(ROUTE, "route") FAMILY(RULE, "rule") FAMILY(NEIGH, "neigh")        \
    FAMILY(TC, "tc") FAMILY(STATS, "stats")                                   \
    FAMILY(GENERIC, "generic") FAMILY(NLCTRL, "nlctrl")                       \
    FAMILY(OVS_DATAPATH, "ovs_datapath") FAMILY(OVS_VPORT, "ovs_vport")       \
    FAMILY(OVS_FLOW, "ovs_flow") FAMILY(OVS_PACKET, "ovs_packet")             \
    FAMILY(OVS_METER, "ovs_meter") FAMILY(OVS_CT_LIMIT, "ovs_ct_limit")       \
    FAMILY(NETFILTER, "netfilter") FAMILY(OTHER, "other")

#define FAMILY_ENUM(ID, NAME) FAMILY_##ID,
enum family { FAMILIES(FAMILY_ENUM) N_FAMILIES };

#define FAMILY_NAME(ID, NAME) NAME,
static const char *const family_names[] = { FAMILIES(FAMILY_NAME) };

/* rtnetlink's messages come in groups of four types. */
static const struct rtm_group {
    const char *name;
    enum family family;
    bool has_ifindex;                   /* At 'ifi_index' of ifinfomsg. */
} rtm_groups[] = {
#define RTM_GROUP(NAME, FAMILY, HAS_IFINDEX)                        \
    [RTM_NEW##NAME / 4] = { #NAME, FAMILY_##FAMILY, HAS_IFINDEX },
    RTM_GROUP(LINK, LINK, true)     RTM_GROUP(ADDR, ADDR, true)
    RTM_GROUP(ROUTE, ROUTE, false)  RTM_GROUP(NEIGH, NEIGH, true)
    RTM_GROUP(RULE, RULE, false)    RTM_GROUP(QDISC, TC, true)
    RTM_GROUP(TCLASS, TC, true)     RTM_GROUP(TFILTER, TC, true)
    RTM_GROUP(ACTION, TC, false)    RTM_GROUP(NSID, RTNETLINK, false)
    RTM_GROUP(STATS, STATS, true)
};

/* Details of one of the slowest calls. */
struct details {
    uint16_t type;                      /* nlmsg_type. */
    uint8_t command;                    /* Of generic Netlink. */
    uint8_t family;
    uint32_t ifindex;                   /* Of the device, or 0. */
    char name[IFNAMSIZ];                /* In the message, or empty. */
};

static void get_details(const struct cost_span *, uint64_t *words);

static void
format_class(size_t class, struct ds *s)
{
    static const char *const names[NL_COST_N_OPS] = {
        [NL_COST_DUMP] = "dump",
        [NL_COST_TRANSACT] = "transact",
        [NL_COST_NOTIFY] = "notify",
    };

    ds_put_cstr(s, names[class]);
}

static struct cost_config config
    = COST_CONFIG_INITIALIZER("netlink", COST_DEFAULT_SAMPLE_INTERVAL);

const struct cost_kind nl_cost_kind = {
    .event = "call",
    .config = &config,
    COST_STAGES(NL_COST_STAGES),
    COST_COUNTERS(NL_COST_COUNTERS),
    .exact = true,
    .n_classes = NL_COST_N_OPS,
    .format_class = format_class,
    .n_slowest = COST_MAX_SLOWEST,
    .n_details = DIV_ROUND_UP(sizeof(struct details), sizeof(uint64_t)),
    .get_details = get_details,
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct cost_account *accounts[N_FAMILIES] OVS_GUARDED_BY(mutex);

/* The family of each nlmsg_type of generic Netlink, or 0 if it is unknown. */
static atomic_uint8_t generic_types[GENL_MAX_ID + 1] = {
    [GENL_ID_CTRL] = FAMILY_NLCTRL,
};

/* A thread's recorders, one for each family, each NULL until it is used.  The
 * key is NULL before nl_cost_init(). */
static ovsthread_key_t recorders_key;

/* Makes 'type' the nlmsg_type of the generic Netlink family 'name'. */
void
nl_cost_define_family(uint16_t type, const char *name)
{
    for (uint8_t i = FAMILY_OVS_DATAPATH; i <= FAMILY_OVS_CT_LIMIT; i++) {
        if (type <= GENL_MAX_ID && !strcmp(name, family_names[i])) {
            atomic_store_relaxed(&generic_types[type], i);
        }
    }
}

/* Returns the group of 'type', an nlmsg_type of rtnetlink.  The group has no
 * name if 'type' is not known. */
static const struct rtm_group *
get_rtm_group(uint16_t type)
{
    return &rtm_groups[type / 4 < ARRAY_SIZE(rtm_groups) ? type / 4 : 0];
}

static enum family
get_family(int protocol, uint16_t type)
{
    uint8_t family = 0;

    if (protocol == NETLINK_ROUTE) {
        return get_rtm_group(type)->family;
    } else if (protocol != NETLINK_GENERIC) {
        return (protocol == NETLINK_NETFILTER
                ? FAMILY_NETFILTER : FAMILY_OTHER);
    }
    if (type <= GENL_MAX_ID) {
        atomic_read_relaxed(&generic_types[type], &family);
    }
    return family ? family : FAMILY_GENERIC;
}

static void
destroy_recorders(void *recorders_)
{
    struct cost_recorder **recorders = recorders_;

    for (size_t i = 0; i < N_FAMILIES; i++) {
        cost_recorder_destroy(recorders[i]);
    }
    free(recorders);
}

/* Returns the calling thread's recorder for 'family'. */
static struct cost_recorder *
get_recorder(enum family family)
{
    struct cost_recorder **recorders = ovsthread_getspecific(recorders_key);

    if (OVS_UNLIKELY(!recorders)) {
        recorders = xcalloc(N_FAMILIES, sizeof *recorders);
        ovsthread_setspecific(recorders_key, recorders);
    }
    if (OVS_UNLIKELY(!recorders[family])) {
        /* "pmd-c01" instead of "pmd-c01/id:9".  The main thread has no name
         * or, after the monitor has restarted the daemon, the program's. */
        const char *name = get_subprogram_name();
        char thread[COST_NAME_MAX] = "main";

        if (name[0] && strcmp(name, program_name)) {
            ovs_strlcpy(thread, name, MIN(strcspn(name, "/") + 1,
                                          sizeof thread));
        }
        ovs_mutex_lock(&mutex);
        if (!accounts[family]) {
            accounts[family] = cost_account_create(
                &nl_cost_kind, family_names[family], NULL);
        }
        recorders[family] = cost_recorder_create(accounts[family], thread);
        ovs_mutex_unlock(&mutex);
    }
    return recorders[family];
}

/* Recording. */

/* Sets the message of 'call' to 'msg', which may be NULL, of 'type'. */
static void
set_message(struct nl_cost *call, uint16_t type, const struct ofpbuf *msg)
{
    call->type = type;
    call->msg = msg;
    call->span.recorder = get_recorder(get_family(call->protocol, type));
}

/* Starts 'call' of kind 'op', on a socket of 'protocol', for 'request', the
 * first one if there are several, which the caller keeps until nl_cost_stop().
 * Without one, 'type' is the nlmsg_type.  In case of NL_COST_NOTIFY, the
 * message is yet to be seen.
 *
 * Notifications of generic Netlink, such as upcalls, are not accounted for. */
void
nl_cost_start(struct nl_cost *call, enum nl_cost_op op, int protocol,
              uint16_t type, const struct ofpbuf *request)
{
    if (!recorders_key || !cost_enabled(&config)
        || (op == NL_COST_NOTIFY && protocol == NETLINK_GENERIC)) {
        call->span.recorder = NULL;
        return;
    }

    call->op = op;
    call->protocol = protocol;
    set_message(call, request ? nl_msg_nlmsghdr(request)->nlmsg_type : type,
                request);
    cost_span_open(&call->span, call->span.recorder, true,
                   cost_span_now(&call->span));
    call->span.entry.counter = NL_COST_DONE;
}

/* Ends sending 'n_requests' in 'call', whether that has worked or not. */
void
nl_cost_sent(struct nl_cost *call, size_t n_requests)
{
    if (call->span.recorder) {
        cost_span_lap(&call->span, NL_COST_SEND, cost_span_now(&call->span));
        cost_entry_add(&call->span.entry, NL_COST_REQUESTS, n_requests);
    }
}

/* Ends receiving 'buf', or 'error' if that is not 0, in 'call', which may have
 * more to receive.  In case of NL_COST_NOTIFY, the caller keeps 'buf' until
 * nl_cost_stop(). */
void
nl_cost_received(struct nl_cost *call, int error, const struct ofpbuf *buf)
{
    if (!call->span.recorder) {
        return;
    }

    cost_entry_add(&call->span.entry, NL_COST_BYTES, error ? 0 : buf->size);
    if (!error) {
        const struct nlmsghdr *nlmsg = nl_msg_nlmsghdr(buf);

        if (call->op == NL_COST_NOTIFY) {
            set_message(call, nlmsg->nlmsg_type, buf);
        } else if (call->op == NL_COST_DUMP
                   && nlmsg->nlmsg_flags & NLM_F_DUMP_INTR) {
            call->span.entry.counter = NL_COST_INTERRUPTED;
        }
    }
}

static void
get_details(const struct cost_span *span, uint64_t *words)
{
    const struct nl_cost *call = CONTAINER_OF(span, struct nl_cost, span);
    const struct ofpbuf *msg = call->msg;
    struct details d = {
        .type = call->type,
        .family = get_family(call->protocol, call->type),
    };

    if (msg && call->protocol == NETLINK_GENERIC) {
        const struct genlmsghdr *genl = ofpbuf_at(msg, NLMSG_HDRLEN,
                                                  sizeof *genl);

        d.command = genl ? genl->cmd : 0;
    } else if (msg && call->protocol == NETLINK_ROUTE
               && get_rtm_group(d.type)->has_ifindex) {
        const struct ifinfomsg *ifi = ofpbuf_at(
            msg, NLMSG_HDRLEN, offsetof(struct ifinfomsg, ifi_flags));
        size_t attrs = NLMSG_HDRLEN + sizeof *ifi;
        const struct nlattr *name
            = (d.family == FAMILY_LINK && msg->size >= attrs
               ? nl_attr_find(msg, attrs, IFLA_IFNAME) : NULL);

        d.ifindex = ifi ? ifi->ifi_index : 0;
        if (name) {
            ovs_strlcpy(d.name, nl_attr_get(name),
                        MIN(nl_attr_get_size(name), sizeof d.name));
        }
    }
    memcpy(words, &d, sizeof d);
}

/* Ends 'call' with 'error', or 0, and records it. */
void
nl_cost_stop(struct nl_cost *call, int error)
{
    struct cost_span *span = &call->span;

    if (!span->recorder) {
        return;
    }

    if (span->entry.known & (1u << NL_COST_BYTES)) {
        cost_span_lap(span, NL_COST_RECEIVE, cost_span_now(span));
    }
    if (error) {
        span->entry.counter = (error == EAGAIN ? NL_COST_NOTHING
                               : error == ENOBUFS ? NL_COST_OVERRUN
                               : NL_COST_ERROR);
    }
    cost_span_finish(span, span->last, call->op, NULL);
}

/* Reporting. */

/* Returns the name of the message that 'd' is about, which the caller
 * must free, or NULL if it is not known. */
static char *
get_message(const struct details *d)
{
    static const char *const verbs[] = { "NEW", "DEL", "GET", "SET" };
    const char *rtm = get_rtm_group(d->type)->name;
    const char *ovs = (d->family == FAMILY_OVS_DATAPATH ? "DP"
                       : d->family == FAMILY_OVS_VPORT ? "VPORT"
                       : d->family == FAMILY_OVS_FLOW ? "FLOW"
                       : NULL);
    size_t command = d->command - 1;

    return (d->family < FAMILY_GENERIC && rtm
            ? xasprintf("RTM_%s%s", verbs[d->type % 4], rtm)
            : ovs && command < ARRAY_SIZE(verbs)
            ? xasprintf("OVS_%s_CMD_%s", ovs, verbs[command])
            : NULL);
}

/* Adds to 'json' what a slow call was about. */
void
nl_cost_put_details(const char *account OVS_UNUSED, const uint64_t *words,
                    bool packet OVS_UNUSED, struct json *json)
{
    const struct details *d = (const void *) words;
    char *message = get_message(d);
    char buf[IFNAMSIZ];
    /* NULL if there is none, or none any more. */
    const char *device = (d->name[0] ? d->name
                          : d->ifindex ? if_indextoname(d->ifindex, buf)
                          : NULL);

    cost_put_integer(json, "nlmsg_type", d->type);
    if (d->command) {
        cost_put_integer(json, "command", d->command);
    }
    if (message) {
        cost_put_string(json, "message", message);
    }
    if (d->ifindex) {
        cost_put_integer(json, "ifindex", d->ifindex);
    }
    if (device) {
        struct ds s = DS_EMPTY_INITIALIZER;

        ds_put_printable(&s, device, strlen(device));
        cost_put_string(json, "device", ds_steal_cstr(&s));
    }
}

/* Starts accounting and registers the netlink/cost-* commands, before other
 * threads make any calls. */
void
nl_cost_init(void)
{
    static const struct cost_kind *const kinds[] = { &nl_cost_kind };
    static const struct cost_report report = {
        .prefix = "netlink",
        .object = "account",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .class_help = "dump, transact or notify",
        .put_details = nl_cost_put_details,
    };

    cost_report_register(&report);
    ovsthread_key_create(&recorders_key, destroy_recorders);
}

#else /* No Netlink calls, no report. */

void
nl_cost_init(void)
{
}

#endif
