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

#ifndef BRIDGE_COST_H
#define BRIDGE_COST_H 1

#include <stdbool.h>
#include <stdint.h>
#include "cost.h"

/* What the main loop costs.
 * =========================
 *
 * The main thread does one thing after the other, so whatever takes long keeps
 * everything else waiting.  There are three accounts:
 *
 *   - "main-loop": each event is an iteration of the loop.  The loop is in
 *     exactly one stage at any time: bridge_cost_enter() ends one and begins
 *     another, so that the stages add up to the whole.
 *
 *   - "interfaces": each event is an update of one interface's statistics,
 *     and each type of interface is a class.
 *
 *   - "commands": each event is an ovs-appctl command, and each command is a
 *     class.
 *
 * Nothing is taken off a stage for being in another account, too: the
 * statistics stage has the time of the interfaces in it, the datapath stage
 * that of the upcalls that the main thread handles.
 *
 * "ovs-appctl bridge/cost-show" shows it.  Each stage is defined in
 * Documentation/topics/bridge-cost.rst.
 *
 *
 * Thread-safety
 * =============
 *
 * These functions are for the main thread only.  Before bridge_cost_init()
 * they do nothing. */

/* Stages of an iteration of the main loop. */
enum bridge_cost_stage {
    BRIDGE_COST_POLL,           /* In poll_block(), which 'run' excludes. */
    BRIDGE_COST_IDL,            /* Changes from the database. */
    BRIDGE_COST_DATAPATH,       /* ofproto_type_run() of all types. */
    BRIDGE_COST_OPENFLOW,       /* ofproto_run() of all bridges. */
    BRIDGE_COST_CONFIGURE,      /* bridge_reconfigure(). */
    BRIDGE_COST_STATS,          /* Statistics of all interfaces. */
    BRIDGE_COST_STATUS,         /* Status of all bridges and interfaces. */
    BRIDGE_COST_COMMIT,         /* Changes to the database. */
    BRIDGE_COST_APPCTL,         /* Commands. */
    BRIDGE_COST_ROUTES,         /* Changed routes and tunnel addresses. */
    BRIDGE_COST_NETDEV,         /* netdev_run(), notifications of links. */
    BRIDGE_COST_WAIT,           /* Finding out what to wait for. */
    BRIDGE_COST_OTHER,
    BRIDGE_COST_RUN,            /* All but 'poll'. */
    BRIDGE_COST_N_STAGES
};

void bridge_cost_next(void);
enum bridge_cost_stage bridge_cost_enter(enum bridge_cost_stage);

/* Stages of an update of an interface's statistics. */
enum bridge_cost_iface_stage {
    BRIDGE_COST_IFACE_CUSTOM,   /* netdev_get_custom_stats(). */
    BRIDGE_COST_IFACE_STATS,    /* netdev_get_stats(). */
    BRIDGE_COST_IFACE_ROW,      /* Into the row of the database. */
    BRIDGE_COST_IFACE_TOTAL,
    BRIDGE_COST_IFACE_N_STAGES
};

extern const struct cost_kind bridge_cost_iface_kind;

void bridge_cost_iface_start(struct cost_timer *);
void bridge_cost_iface_stop(struct cost_timer *, const char *name,
                            const char *type);

void bridge_cost_trace_command(int argc, const char *argv[], bool done);
void bridge_cost_trace_addresses(bool done);

void bridge_cost_init(void);

#endif /* bridge-cost.h */
