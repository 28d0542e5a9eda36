/* SPDX-License-Identifier: Apache-2.0 */

#ifndef BRIDGE_COST_H
#define BRIDGE_COST_H 1

#include "cost-span.h"

/* What the main loop costs.
 * =========================
 *
 * The main thread does one thing after the other, so a slow step delays
 * everything else.  main() calls bridge_cost_next() to begin an iteration, and
 * its steps call bridge_cost_enter(); lib/work-observer.h tells of commands,
 * messages, routes and RCU.  The report bridge/cost-show has four accounts:
 *
 *   - "main-loop": each event is an iteration of the loop.  The loop is in
 *     exactly one stage at any time, so all but 'poll' add up to 'run'.
 *     'poll' is the last stage of an iteration, although it is listed first.
 *
 *   - "interfaces": each event is an update of one interface's statistics,
 *     and each type of interface is a class.
 *
 *   - "commands": each event is an ovs-appctl command, and each command is a
 *     class.
 *
 *   - "openflow": each event is the handling of an OpenFlow message, and each
 *     type of message is a class.
 *
 * A type, command or message that finds no class left is in class "other".
 * All events are split.  For -top, "interfaces" counts by interface, and
 * "openflow" by message and peer.  The recorders live as long as the process.
 * A command or message is recorded if accounting was on when its iteration
 * began, an update of an interface if it is on when the update begins.
 *
 * Other accounts have part of a stage's time, too: 'stats' includes the
 * updates of interfaces, 'datapath' the upcalls that the main thread handles.
 *
 *
 * Thread-safety
 * =============
 *
 * These functions are for the main thread only, after bridge_cost_init(). */

/* Stages of an iteration of the main loop. */
#define BRIDGE_COST_STAGES(COLUMN)                                            \
    COLUMN(BRIDGE_COST_POLL, "poll", NULL, COST_APART,                        \
           "poll_block(), mostly asleep.  It is not part of 'run': otherwise "\
           "the longest sleeps would be the slowest iterations.")             \
    COLUMN(BRIDGE_COST_IDL, "idl", NULL, 0, "Receiving database changes.")    \
    COLUMN(BRIDGE_COST_DATAPATH, "datapath", NULL, 0,                         \
           "ofproto_type_run(): revalidation after changes of ports and the " \
           "like, and packets of ports that no PMD thread polls.")            \
    COLUMN(BRIDGE_COST_OPENFLOW, "openflow", NULL, 0,                         \
           "ofproto_run(): connections to controllers, expiration of flows, " \
           "and protocols such as LACP and STP.")                             \
    COLUMN(BRIDGE_COST_CONFIGURE, "configure", NULL, 0,                       \
           "bridge_reconfigure(), when the configuration or an interface has "\
           "changed, with what it runs of 'datapath' and 'openflow'.")        \
    COLUMN(BRIDGE_COST_STATS, "stats", NULL, 0,                               \
           "Updating the statistics of all interfaces.")                      \
    COLUMN(BRIDGE_COST_STATUS, "status", NULL, 0,                             \
           "Updating the status of bridges and interfaces if a link changed.")\
    COLUMN(BRIDGE_COST_COMMIT, "commit", NULL, 0,                             \
           "Sending the changes by 'stats', 'status' and 'configure'.")       \
    COLUMN(BRIDGE_COST_APPCTL, "appctl", NULL, 0, "Commands.")                \
    COLUMN(BRIDGE_COST_ROUTES, "routes", NULL, 0,                             \
           "Changes of the kernel's routes, and reading all of them again; "  \
           "and addresses of devices that tunnels use.")                      \
    COLUMN(BRIDGE_COST_NETDEV, "netdev", NULL, 0,                             \
           "Changes of the kernel's links and addresses, and periodic work "  \
           "of some types of devices.")                                       \
    COLUMN(BRIDGE_COST_RCU, "rcu", NULL, 0,                                   \
           "ovsrcu_synchronize(): waiting until no thread uses what has "     \
           "been replaced, such as the configuration of bridges and ports.")  \
    COLUMN(BRIDGE_COST_REGISTER, "register", NULL, 0,                         \
           "Registering the events that poll_block() waits for.")             \
    COLUMN(BRIDGE_COST_OTHER, "other", NULL, 0, "Anything else.")             \
    COLUMN(BRIDGE_COST_RUN, "run", NULL, 0, "All but 'poll'.")

enum bridge_cost_stage { BRIDGE_COST_STAGES(COST_ENUM) };

void bridge_cost_next(void);
enum bridge_cost_stage bridge_cost_enter(enum bridge_cost_stage);

/* Stages of an update of an interface's statistics. */
#define BRIDGE_COST_IFACE_STAGES(COLUMN)                                      \
    COLUMN(BRIDGE_COST_IFACE_CUSTOM, "custom", NULL, 0,                       \
           "netdev_get_custom_stats(), such as extended ones of DPDK ports.") \
    COLUMN(BRIDGE_COST_IFACE_STATS, "stats", NULL, 0, "netdev_get_stats().")  \
    COLUMN(BRIDGE_COST_IFACE_ROW, "row", NULL, 0,                             \
           "Storing both in the row of the database that is to be committed.")\
    COLUMN(BRIDGE_COST_IFACE_TOTAL, "total", NULL, 0, "The whole update.")

enum bridge_cost_iface_stage { BRIDGE_COST_IFACE_STAGES(COST_ENUM) };

extern const struct cost_kind bridge_cost_iface_kind;

void bridge_cost_iface_start(struct cost_span *);
void bridge_cost_iface_stop(struct cost_span *, const char *name,
                            const char *type);

void bridge_cost_init(void);

#endif /* bridge-cost.h */
