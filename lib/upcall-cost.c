/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "upcall-cost.h"

#include "hash.h"
#include "netlink.h"
#include "odp-util.h"
#include "openvswitch/dynamic-string.h"
#include "cost-report.h"
#include "openvswitch/json.h"
#include "packets.h"
#include "smap.h"
#include "util.h"

static const char *const type_names[UPCALL_COST_N_TYPES] = {
    [UPCALL_COST_MISS] = "miss",
    [UPCALL_COST_SLOW_PATH] = "slow-path",
    [UPCALL_COST_CONTROLLER] = "controller",
    [UPCALL_COST_SFLOW] = "sflow",
    [UPCALL_COST_IPFIX] = "ipfix",
    [UPCALL_COST_SAMPLE] = "sample",
    [UPCALL_COST_BAD] = "bad",
    [UPCALL_COST_UNKNOWN] = "unknown",
};

static const char *const feature_names[UPCALL_COST_N_FEATURES] = {
    "ct", "nat", "recirc", "tunnel",
};

/* Details of one of the slowest upcalls. */
struct upcall_cost_details {
    struct flow flow;
    char port_name[COST_TEXT_MAX];      /* Empty if it is not known. */
    uint32_t packet_len;
    uint32_t n_kept;                    /* Bytes in 'packet'. */
    uint8_t packet[UPCALL_COST_PACKET_MAX];
};

static void get_details(const struct cost_span *, uint64_t *words);
static void upcall_cost_format_class(size_t class, struct ds *);
static void format_rule(const uint64_t numbers[2], struct ds *);
static void format_features(const uint64_t numbers[2], struct ds *);

static const struct cost_list lists[UPCALL_COST_N_LISTS] = {
    [UPCALL_COST_PORT] = { .name = "port", .max = 1024 },
    [UPCALL_COST_RULE] = { .name = "rule", .max = 128,
                           .format = format_rule },
    [UPCALL_COST_FEATURES] = { .name = "class", .max = 128,
                               .classes = true, .format = format_features },
};

struct cost_config upcall_cost_config = {
    .name = "upcall",
    .default_interval = COST_DEFAULT_SAMPLE_INTERVAL,
    .sample_interval = COST_DEFAULT_SAMPLE_INTERVAL,
    .apply = upcall_cost_apply,
};

atomic_bool upcall_cost_packets = false;

/* What an upcall is, in both datapaths, to laps and outcomes. */
static const char upcall_event[] = "upcall";

#define NO_COUNTERS(COLUMN)
#define UPCALL_COST_KIND(STAGES, MORE_COUNTERS)                             \
    .event = upcall_event,                                                  \
    .config = &upcall_cost_config,                                          \
    COST_STAGES(STAGES),                                                    \
    .counters = (const struct cost_column[]) {                              \
        UPCALL_COST_COUNTERS(COST_COLUMN) MORE_COUNTERS(COST_COLUMN)        \
    },                                                                      \
    .n_counters = UPCALL_COST_COUNTERS(COST_ONE) MORE_COUNTERS(COST_ONE),   \
    .n_classes = UPCALL_COST_N_TYPES,                                       \
    .format_class = upcall_cost_format_class,                               \
    .lists = lists,                                                         \
    .n_lists = UPCALL_COST_N_LISTS,                                         \
    .n_slowest = COST_MAX_SLOWEST,                                          \
    .n_details = DIV_ROUND_UP(sizeof(struct upcall_cost_details),           \
                              sizeof(uint64_t)),                            \
    .get_details = get_details,                                             \
    .typed_names = true

const struct cost_kind upcall_cost_netdev_kind = {
    UPCALL_COST_KIND(UPCALL_COST_STAGES, NO_COUNTERS)
};
const struct cost_kind upcall_cost_kernel_kind = {
    UPCALL_COST_KIND(UPCALL_COST_K_STAGES, UPCALL_COST_K_COUNTERS)
};

/* Classes. */

enum upcall_cost_type
upcall_cost_type(enum dpif_upcall_type type, const struct nlattr *userdata)
{
    struct user_action_cookie cookie;

    if (type == DPIF_UC_MISS) {
        return UPCALL_COST_MISS;
    } else if (!userdata || nl_attr_get_size(userdata) != sizeof cookie) {
        return UPCALL_COST_BAD;
    }

    memcpy(&cookie, nl_attr_get(userdata), sizeof cookie);
    switch (cookie.type) {
    case USER_ACTION_COOKIE_SFLOW:
        return UPCALL_COST_SFLOW;
    case USER_ACTION_COOKIE_FLOW_SAMPLE:
        return UPCALL_COST_SAMPLE;
    case USER_ACTION_COOKIE_IPFIX:
        return UPCALL_COST_IPFIX;
    case USER_ACTION_COOKIE_CONTROLLER:
        return UPCALL_COST_CONTROLLER;
    case USER_ACTION_COOKIE_SLOW_PATH:
        return UPCALL_COST_SLOW_PATH;
    default:
        return UPCALL_COST_BAD;
    }
}

static unsigned int actions_features(const struct nlattr *, size_t);

/* Returns the features of the actions nested in 'a' as 'type', if any. */
static unsigned int
nested_features(const struct nlattr *a, uint16_t type)
{
    const struct nlattr *nested = nl_attr_find_nested(a, type);

    return nested ? actions_features(nl_attr_get(nested),
                                     nl_attr_get_size(nested)) : 0;
}

/* Returns the UPCALL_COST_* features that 'actions' use. */
static unsigned int
actions_features(const struct nlattr *actions, size_t actions_len)
{
    unsigned int features = 0;
    const struct nlattr *a;
    size_t left;

    NL_ATTR_FOR_EACH_UNSAFE (a, left, actions, actions_len) {
        /* There is one for each port in a flood. */
        if (a->nla_type == OVS_ACTION_ATTR_OUTPUT) {
            continue;
        }

        switch (nl_attr_type(a)) {
        case OVS_ACTION_ATTR_CT:
            features |= UPCALL_COST_CT;
            if (nl_attr_find_nested(a, OVS_CT_ATTR_NAT)) {
                features |= UPCALL_COST_NAT;
            }
            break;

        case OVS_ACTION_ATTR_TUNNEL_PUSH:
        case OVS_ACTION_ATTR_TUNNEL_POP:
            features |= UPCALL_COST_TUNNEL;
            break;

        case OVS_ACTION_ATTR_SET:
            if (nl_attr_type(nl_attr_get(a)) == OVS_KEY_ATTR_TUNNEL) {
                features |= UPCALL_COST_TUNNEL;
            }
            break;

        case OVS_ACTION_ATTR_CLONE:
            features |= actions_features(nl_attr_get(a), nl_attr_get_size(a));
            break;

        case OVS_ACTION_ATTR_SAMPLE:
            features |= nested_features(a, OVS_SAMPLE_ATTR_ACTIONS);
            break;

        case OVS_ACTION_ATTR_CHECK_PKT_LEN:
            features |= nested_features(
                a, OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_GREATER);
            features |= nested_features(
                a, OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_LESS_EQUAL);
            break;
        }
    }
    return features;
}

/* Makes the features of the upcall of 'span' and 'type', which is sampled,
 * those of a packet of 'flow' that led to 'actions'. */
void
upcall_cost_set_features(struct cost_span *span, enum upcall_cost_type type,
                         const struct flow *flow, const struct ofpbuf *actions)
{
    unsigned int features = actions_features(actions->data, actions->size);

    if (flow->ct_state) {
        features |= UPCALL_COST_CT;
        if (flow->ct_state & (CS_SRC_NAT | CS_DST_NAT)) {
            features |= UPCALL_COST_NAT;
        }
    }
    if (flow->recirc_id) {
        features |= UPCALL_COST_RECIRC;
    }
    if (flow_tnl_dst_is_set(&flow->tunnel)) {
        features |= UPCALL_COST_TUNNEL;
    }
    span->who[UPCALL_COST_FEATURES] = (struct cost_who) {
        .id = 1 + ((uint64_t) type << UPCALL_COST_N_FEATURES | features),
        .numbers = { type, features },
    };
}

/* Appends the name of 'class', a type, to 's'. */
static void
upcall_cost_format_class(size_t class, struct ds *s)
{
    ds_put_cstr(s, type_names[class]);
}

/* Appends the name of a type with features to 's', such as "miss+ct+nat". */
static void
format_features(const uint64_t numbers[2], struct ds *s)
{
    ds_put_cstr(s, type_names[numbers[0]]);
    for (size_t i = 0; i < UPCALL_COST_N_FEATURES; i++) {
        if (numbers[1] & (1u << i)) {
            ds_put_format(s, "+%s", feature_names[i]);
        }
    }
}

/* Recording. */

static void
get_details(const struct cost_span *span, uint64_t *words)
{
    const struct upcall_cost *upcall
        = CONTAINER_OF(span, struct upcall_cost, span);
    const struct cost_who *port = &span->who[UPCALL_COST_PORT];
    struct upcall_cost_details *details = (void *) words;

    if (upcall->miniflow) {
        miniflow_expand(upcall->miniflow, &details->flow);
    } else {
        details->flow = *upcall->flow;
    }
    /* Options that are not in the datapath's format refer to the table of
     * their bridge, which might not outlive the upcall by long. */
    if (!(details->flow.tunnel.flags & FLOW_TNL_F_UDPIF)) {
        memset(&details->flow.tunnel.metadata, 0,
               sizeof details->flow.tunnel.metadata);
    }
    cost_copy_text(details->port_name, sizeof details->port_name,
                   port->id ? port->name : "");
    details->packet_len = upcall->packet_len;
    details->n_kept = upcall->n_kept;
    memcpy(details->packet, upcall->packet, upcall->n_kept);
}

/* Counts the upcall of 'span' and 'type' as lost because of 'error'. */
void
upcall_cost_count_lost(const struct cost_span *span,
                       enum upcall_cost_type type, int error)
{
    if (!cost_enabled(&upcall_cost_config)) {
        return;
    }
    cost_count(span->recorder, type,
               (error == ENODEV ? UPCALL_COST_LOST_BRIDGE
                : UPCALL_COST_LOST_ERROR), 1);
    if (span->who[UPCALL_COST_PORT].id) {
        cost_count_who(span->recorder, UPCALL_COST_PORT,
                       &span->who[UPCALL_COST_PORT], 0, 1);
    }
}

/* Ends the upcall of 'span' and 'type', which failed with 'error'. */
void
upcall_cost_fail(struct cost_span *span, enum upcall_cost_type type, int error)
{
    cost_span_cancel(span);
    upcall_cost_count_lost(span, type, error);
}

/* Returns what the port 'name' of 'bridge' is known by, which is nonzero. */
uint64_t
upcall_cost_port_id(const char *name, const char *bridge)
{
    return ((uint64_t) hash_string(name, hash_string(bridge, 0)) << 32
            | hash_string(name, 1) | 1);
}

/* Makes the rule with 'cookie' in 'table' of 'bridge', of all rules with the
 * same the one, that of the upcall of 'span'. */
void
upcall_cost_set_rule(struct cost_span *span, const char *bridge, uint8_t table,
                     uint64_t cookie)
{
    uint32_t hash = hash_string(bridge, table);

    span->who[UPCALL_COST_RULE] = (struct cost_who) {
        .id = (cookie ^ ((uint64_t) hash << 32 | hash_finish(hash, table))),
        .name = bridge,
        .numbers = { table, cookie },
    };
}

static void
format_rule(const uint64_t numbers[2], struct ds *s)
{
    ds_put_format(s, "table=%"PRIu64" cookie=0x%"PRIx64, numbers[0],
                  numbers[1]);
}

/* Copies the first bytes of 'packet' to 'upcall'. */
void COST_COLD
upcall_cost_keep_packet(struct upcall_cost *upcall,
                        const struct dp_packet *packet)
{
    upcall->n_kept = MIN(dp_packet_size(packet), UPCALL_COST_PACKET_MAX);
    memcpy(upcall->packet, dp_packet_data(packet), upcall->n_kept);
}

/* Ends the flow miss of 'upcall', which upcall_cost_miss_stop() has left, at
 * 'now', in ticks. */
void
upcall_cost_end(struct upcall_cost *upcall, uint64_t now)
{
    upcall->left = false;
    cost_span_end__(&upcall->span, now, UPCALL_COST_INSTALL, UPCALL_COST_MISS);
}

/* Begins an upcall of 'recorder' for an action on 'packet'. */
void
upcall_cost_action_begin(struct upcall_cost *upcall,
                         struct cost_recorder *recorder,
                         const struct dp_packet *packet)
{
    cost_span_begin(&upcall->span, recorder);
    upcall_cost_set_packet(upcall, packet);
}

/* Stops the upcall for an action with 'userdata' that the userspace datapath
 * started with upcall_cost_action_begin() on 'upcall'.  It was for a packet of
 * 'flow' and led to 'actions'.  'error' is what the upcall callback returned:
 * 0, ENOSPC or, unless the type is UPCALL_COST_BAD, EAGAIN if there is nothing
 * to be done with the packet, or another value if the upcall failed.
 *
 * The time since the latest lap belongs to executing actions. */
void
upcall_cost_action_stop(struct upcall_cost *upcall,
                        const struct nlattr *userdata, const struct flow *flow,
                        const struct ofpbuf *actions, int error)
{
    struct cost_span *span = &upcall->span;
    enum upcall_cost_type type;

    if (!span->recorder) {
        return;
    }

    type = upcall_cost_type(DPIF_UC_ACTION, userdata);
    if (!error || error == ENOSPC
        || (error == EAGAIN && type != UPCALL_COST_BAD)) {
        upcall->miniflow = NULL;
        upcall->flow = flow;
        if (span->sampled) {
            upcall_cost_set_features(span, type, flow, actions);
        }
        cost_span_end(span, UPCALL_COST_EXECUTE, type);
    } else {
        upcall_cost_fail(span, type, error);
    }
}

/* Counts 'n' upcalls of 'type' that were lost because the datapath's upcalls
 * were disabled, as they are while ofproto is being reconfigured. */
void
upcall_cost_lost_lock(struct cost_recorder *recorder,
                      enum dpif_upcall_type type,
                      const struct nlattr *userdata, size_t n)
{
    cost_count(recorder, upcall_cost_type(type, userdata),
               UPCALL_COST_LOST_LOCK, n);
}

/* Reporting. */

/* Appends 'flow' to 's' in the notation of "ovs-appctl dpctl/dump-flows" and
 * "ofproto/trace". */
static void
format_flow(const struct flow *flow, struct ds *s)
{
    struct flow_wildcards wc;
    struct odp_flow_key_parms parms = {
        .flow = flow,
        .mask = &wc.masks,
        .support = {
            .max_vlan_headers = SIZE_MAX,
            .max_mpls_depth = SIZE_MAX,
            .recirc = true,
            .ct_state = true,
            .ct_zone = true,
            .ct_mark = true,
            .ct_label = true,
            .ct_state_nat = true,
        },
    };
    struct ofpbuf key, mask;

    /* Leave out metadata that the packet does not have. */
    flow_wildcards_init_for_packet(&wc, flow);
    if (!flow->skb_priority) {
        wc.masks.skb_priority = 0;
    }
    if (!flow->pkt_mark) {
        wc.masks.pkt_mark = 0;
    }
    if (!flow->dp_hash) {
        wc.masks.dp_hash = 0;
    }
    if (!flow->ct_state) {
        flow_clear_conntrack(&wc.masks);
    }

    ofpbuf_init(&key, 0);
    ofpbuf_init(&mask, 0);
    odp_flow_key_from_flow(&parms, &key);
    parms.key_buf = &key;
    odp_flow_key_from_mask(&parms, &mask);
    odp_flow_format(key.data, key.size, mask.data, mask.size, NULL, s,
                    false, false);
    ofpbuf_uninit(&key);
    ofpbuf_uninit(&mask);
}

static void
put_details(const char *account OVS_UNUSED, const uint64_t *words,
            bool packet, struct json *json)
{
    const struct upcall_cost_details *details = (const void *) words;
    struct ds s = DS_EMPTY_INITIALIZER;
    bool keep;

    cost_put_integer(json, "dp_port",
                     odp_to_u32(details->flow.in_port.odp_port));
    if (details->port_name[0]) {
        json_object_put_string(json, "port_name", details->port_name);
    }
    cost_put_integer(json, "packet_bytes", details->packet_len);
    format_flow(&details->flow, &s);
    cost_put_string(json, "flow", ds_steal_cstr(&s));

    atomic_read_relaxed(&upcall_cost_packets, &keep);
    if (packet && keep && details->n_kept) {
        for (size_t i = 0; i < details->n_kept; i++) {
            ds_put_format(&s, "%02x", details->packet[i]);
        }
        cost_put_string(json, "packet", ds_steal_cstr(&s));
        json_object_put(json, "ethernet", json_boolean_create(
                            details->flow.packet_type == htonl(PT_ETH)));
    }
}

/* Applies "cost-packets" from 'other_config', the column in the Open_vSwitch
 * table (see ovs-vswitchd.conf.db(5)). */
void
upcall_cost_apply(const struct smap *other_config)
{
    atomic_store_relaxed(&upcall_cost_packets,
                         smap_get_bool(other_config, "cost-packets", false));
}

/* Registers the upcall/cost-* commands. */
void
upcall_cost_init(void)
{
    static const struct cost_kind *const kinds[] = {
        &upcall_cost_netdev_kind,
        &upcall_cost_kernel_kind,
    };
    static const struct cost_report report = {
        .prefix = "upcall",
        .object = "datapath",
        .kinds = kinds,
        .n_kinds = ARRAY_SIZE(kinds),
        .class_help = "miss, slow-path, controller, sflow, ipfix, sample, bad "
                      "or unknown",
        .put_details = put_details,
    };

    cost_report_register(&report);
}
