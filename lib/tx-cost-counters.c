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

#include "tx-cost-counters.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__) && defined(HAVE_LINUX_PERF_EVENT_H) && !__CHECKER__
#include <linux/perf_event.h>
#include <sys/syscall.h>
#define HAVE_COUNTERS 1
#endif

#include "cost-report.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/vlog.h"
#include "ovs-thread.h"
#include "smap.h"
#include "tx-cost.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(tx_cost_counters);

#define STAGES(COLUMN)                                                      \
    COLUMN(CYCLES, "cycles", "cycles", COST_OPTIONAL,                       \
           "Cycles of the core while sending, by hardware counters.")       \
    COLUMN(INSTRUCTIONS, "instructions", "instructions", COST_OPTIONAL,     \
           "Executed while sending, by hardware counters.")

#define COUNTERS(COLUMN)                                                    \
    COLUMN(UNCOUNTED, "uncounted", "other", 0,                              \
           "The kernel lent a hardware counter to another user meanwhile.") \
    COLUMN(COUNTED_PACKETS, "counted-packets", "other", COST_HIDDEN,        \
           "Packets of bursts that have 'cycles'.")

enum { STAGES(COST_ENUM) };
enum { COUNTERS(COST_ENUM) };
static const struct cost_column stages[] = { STAGES(COST_COLUMN) };
static const struct cost_column counters[] = { COUNTERS(COST_COLUMN) };
static struct cost_extension extension = {
    stages, ARRAY_SIZE(stages), counters, ARRAY_SIZE(counters), 0, 0
};

/* Pairs of readings from which a thread learns what a reading takes. */
#define N_CALIBRATE 16

/* What has been counted, in the form of a group's leader, see
 * perf_event_open(2). */
struct counts {
    uint64_t n;
    uint64_t enabled_ns;                /* Time that they should have counted,
                                         * and did. */
    uint64_t running_ns;
    uint64_t cycles;
    uint64_t instructions;
};

/* Counters of a thread. */
struct group {
    int cycles_fd;                      /* Leads the group. */
    int instructions_fd;
    struct counts idle;                 /* What is counted of nothing. */
};

/* State of a thread. */
struct thread {
    unsigned int idle_seq;              /* 'config_seq' with which there is
                                         * nothing to do. */
    unsigned int seq;                   /* With which it opened 'group'. */
    struct group *group;                /* Its counters, or NULL. */
    struct counts begin;                /* When the burst began. */
};
DEFINE_STATIC_PER_THREAD_DATA(struct thread, thread, { 0 });

/* Whether the counters are wanted, in bit 0, and how often that has changed,
 * in the others. */
static ATOMIC(unsigned int) config_seq = 0;

/* What became of it, since it was wanted last. */
static struct ovs_mutex status_mutex = OVS_MUTEX_INITIALIZER;
static int latest_error OVS_GUARDED_BY(status_mutex);
static bool user_space_only OVS_GUARDED_BY(status_mutex);

/* Its destructor closes the counters of a thread that exits. */
static ovsthread_key_t exit_key;

static unsigned int
get_seq(void)
{
    unsigned int seq;

    atomic_read_relaxed(&config_seq, &seq);
    return seq;
}

/* Appends to 's' why there are no counters, because of 'error'. */
static void
format_error(int error, struct ds *s)
{
    ds_put_format(s, "not here%s (%s)",
                  (error == ENOENT ? ", this machine has none"
                   : error == EACCES || error == EPERM
                   ? ", see kernel.perf_event_paranoid" : ""),
                  ovs_strerror(error));
}

/* Counters. */

#if HAVE_COUNTERS
/* Opens a counter of the calling thread for 'event' in the group of 'leader',
 * or -1.  Returns its file descriptor, or a negative errno value. */
static int
counter_open(uint64_t event, int leader, bool exclude_kernel)
{
    struct perf_event_attr attr;
    int fd;

    memset(&attr, 0, sizeof attr);
    attr.type = PERF_TYPE_HARDWARE;
    attr.size = sizeof attr;
    attr.config = event;
    attr.exclude_kernel = exclude_kernel;
    attr.exclude_hv = 1;
    attr.read_format = (PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED
                        | PERF_FORMAT_TOTAL_TIME_RUNNING);

    fd = syscall(__NR_perf_event_open, &attr, 0, -1, leader,
                 PERF_FLAG_FD_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

/* Opens the counters of 'group'.  Returns 0 or a positive errno value. */
static int
group_open__(struct group *group, bool exclude_kernel)
{
    int fd = counter_open(PERF_COUNT_HW_CPU_CYCLES, -1, exclude_kernel);

    if (fd < 0) {
        return -fd;
    }
    group->cycles_fd = fd;

    fd = counter_open(PERF_COUNT_HW_INSTRUCTIONS, group->cycles_fd,
                      exclude_kernel);
    if (fd < 0) {
        close(group->cycles_fd);
        return -fd;
    }
    group->instructions_fd = fd;
    return 0;
}
#else
static int
group_open__(struct group *group OVS_UNUSED,
             bool exclude_kernel OVS_UNUSED)
{
    return EOPNOTSUPP;
}
#endif

/* Stores the readings of 'group' in 'counts'.  Returns false if there are
 * none. */
static bool
group_read(const struct group *group, struct counts *counts)
{
    return read(group->cycles_fd, counts, sizeof *counts) == sizeof *counts;
}

/* Stores in 'counts', the readings at the start, what 'group' has counted
 * since.  Returns false if that is not known: the kernel may lend a counter to
 * somebody else meanwhile. */
static bool
group_stop(const struct group *group, struct counts *counts)
{
    struct counts now;

    if (!group_read(group, &now)) {
        return false;
    }
    counts->cycles = now.cycles - counts->cycles;
    counts->instructions = now.instructions - counts->instructions;
    counts->enabled_ns = now.enabled_ns - counts->enabled_ns;
    counts->running_ns = now.running_ns - counts->running_ns;
    return counts->enabled_ns == counts->running_ns;
}

/* Learns what 'group' counts of nothing, because of the readings alone. */
static void
group_calibrate(struct group *group)
{
    struct counts counts, idle = {
        .cycles = UINT64_MAX, .instructions = UINT64_MAX
    };

    for (int i = 0; i < N_CALIBRATE; i++) {
        if (group_read(group, &counts) && group_stop(group, &counts)) {
            idle.cycles = MIN(idle.cycles, counts.cycles);
            idle.instructions = MIN(idle.instructions, counts.instructions);
        }
    }
    if (idle.cycles == UINT64_MAX) {
        idle.cycles = idle.instructions = 0;
    }
    group->idle = idle;
}

static void
group_close(void *group_)
{
    struct group *group = group_;

    if (group) {
        close(group->instructions_fd);
        close(group->cycles_fd);
        free(group);
    }
}

/* Opens and returns counters of the calling thread, or returns NULL.  'seq'
 * is 'config_seq' that asked for them. */
static struct group *
group_open(unsigned int seq)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    struct group *group = xzalloc(sizeof *group);
    bool exclude_kernel = false;
    int error;

    if (ovsthread_once_start(&once)) {
        ovsthread_key_create(&exit_key, group_close);
        ovsthread_once_done(&once);
    }

    error = group_open__(group, exclude_kernel);
    if (error == EACCES || error == EPERM) {
        exclude_kernel = true;
        error = group_open__(group, exclude_kernel);
    }

    ovs_mutex_lock(&status_mutex);
    if (seq == get_seq()) {
        if (error) {
            if (error != latest_error) {
                VLOG_INFO("hardware counters: %s", ovs_strerror(error));
            }
            latest_error = error;
        } else {
            user_space_only |= exclude_kernel;
        }
    }
    ovs_mutex_unlock(&status_mutex);

    if (error) {
        free(group);
        return NULL;
    }
    ovsthread_setspecific(exit_key, group);
    group_calibrate(group);
    return group;
}

/* Closes the calling thread's counters, if it has any. */
static void
thread_close(struct thread *thread)
{
    if (thread->group) {
        ovsthread_setspecific(exit_key, NULL);
        group_close(thread->group);
        thread->group = NULL;
    }
}

/* Opens or closes the calling thread's counters if that is configured now, and
 * was not when this was last called. */
static void
thread_apply_config(struct thread *thread, unsigned int seq)
{
    if (seq != thread->seq) {
        thread_close(thread);
        thread->seq = seq;
        thread->group = seq & 1 ? group_open(seq) : NULL;
    }
    if (!thread->group) {
        thread->idle_seq = seq;
    }
}

/* Bursts. */

static bool
counters_begin(void)
{
    struct thread *thread = thread_get();
    unsigned int seq = get_seq();

    if (OVS_LIKELY(seq == thread->idle_seq)) {
        return false;
    }
    thread_apply_config(thread, seq);
    return thread->group && group_read(thread->group, &thread->begin);
}

static void
counters_end(struct cost_entry *entry, uint64_t *counts, size_t n_packets)
{
    struct thread *thread = thread_get();
    const struct counts *idle = &thread->group->idle;
    struct counts *n = &thread->begin;

    if (group_stop(thread->group, n)) {
        cost_entry_add(entry, extension.first_stage + CYCLES,
                       n->cycles - MIN(n->cycles, idle->cycles));
        cost_entry_add(entry, extension.first_stage + INSTRUCTIONS,
                       n->instructions
                       - MIN(n->instructions, idle->instructions));
        counts[extension.first_counter + COUNTED_PACKETS] = n_packets;
    } else {
        counts[extension.first_counter + UNCOUNTED] = 1;
    }
}

static void
counters_idle(void)
{
    thread_apply_config(thread_get(), get_seq());
}

/* Reports. */

static void
put_derived(const struct cost_block *block, const char *thread_name,
            struct ds *s, struct json *json)
{
    const struct cost_hist *hists = &block->hists[extension.first_stage];
    uint64_t packets = cost_block_counter(
        block, extension.first_counter + COUNTED_PACKETS);
    double cycles = cost_hist_sum(&hists[CYCLES]);
    double instructions = cost_hist_sum(&hists[INSTRUCTIONS]);
    bool counted = packets && cycles && instructions;

    ovs_mutex_lock(&status_mutex);
    if (counted) {
        ds_put_cstr(s, "  hardware counters:  CPI ");
        cost_put_derived(s, json, "cycles_per_instruction",
                                cycles / instructions);
        ds_put_cstr(s, "  ");
        cost_put_derived(s, json, "cycles_per_packet",
                                cycles / packets);
        ds_put_cstr(s, " cycles, ");
        cost_put_derived(s, json, "instructions_per_packet",
                                instructions / packets);
        ds_put_format(s, " instructions per packet%s\n",
                      user_space_only ? " (user space only)" : "");
    }
    if (!thread_name[0] && get_seq() & 1 && (latest_error || !counted)) {
        ds_put_cstr(s, "  hardware counters:  ");
        if (latest_error) {
            format_error(latest_error, s);
        } else {
            ds_put_cstr(s, "no burst counted yet");
        }
        ds_put_char(s, '\n');
    }
    ovs_mutex_unlock(&status_mutex);
}

static void
state_to_json(struct json *json)
{
    struct json *state = json_object_create();
    bool on = get_seq() & 1;

    ovs_mutex_lock(&status_mutex);
    json_object_put(state, "on", json_boolean_create(on));
    json_object_put(state, "user_space_only",
                    json_boolean_create(user_space_only));
    if (on && latest_error) {
        struct ds s = DS_EMPTY_INITIALIZER;

        format_error(latest_error, &s);
        json_object_put(state, "error",
                        json_string_create_nocopy(ds_steal_cstr(&s)));
    }
    ovs_mutex_unlock(&status_mutex);
    json_object_put(json, "hardware_counters", state);
}

/* Applies "cost-hardware-counters" from 'other_config', the column in the
 * Open_vSwitch table (see ovs-vswitchd.conf.db(5)): takes effect for a thread
 * with the next burst that it times.  One that has failed to open its counters
 * only tries again after they were not wanted for a while. */
static void
apply_config(const struct smap *other_config, bool enabled)
{
    bool wanted = enabled && smap_get_bool(other_config,
                                           "cost-hardware-counters", false);
    unsigned int seq = get_seq();

    if (wanted != (seq & 1)) {
        ovs_mutex_lock(&status_mutex);
        if (wanted) {
            latest_error = 0;
            user_space_only = false;
        }
        atomic_store_relaxed(&config_seq, seq + 1);
        ovs_mutex_unlock(&status_mutex);
    }
}

/* Makes the processor's counters part of what bursts cost, if it is so
 * configured.  To be called before a burst is sent. */
void
tx_cost_counters_init(void)
{
    static const struct tx_cost_observer observer = {
        .begin = counters_begin,
        .end = counters_end,
        .idle = counters_idle,
        .put_derived = put_derived,
        .state_to_json = state_to_json,
    };

    cost_kind_extend(&tx_cost_kind, &extension);
    tx_cost_observe(&observer);
    tx_cost_config.apply = apply_config;
}
