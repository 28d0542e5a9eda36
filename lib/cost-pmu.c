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

#include "cost-pmu.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__) && defined(HAVE_LINUX_PERF_EVENT_H) && !__CHECKER__
#include <linux/perf_event.h>
#include <sys/syscall.h>
#define COST_PMU_LINUX 1
#endif

#include "openvswitch/dynamic-string.h"
#include "openvswitch/vlog.h"

VLOG_DEFINE_THIS_MODULE(cost_pmu);

/* Pairs of readings from which a thread learns what a reading takes. */
#define N_CALIBRATE 16

/* Counters of a thread. */
struct cost_pmu_group {
    int cycles_fd;                      /* Leads the group. */
    int instructions_fd;
    struct cost_pmu_counts idle;        /* What is counted of nothing. */
};

ATOMIC(unsigned int) cost_pmu_seq = 0;
DEFINE_EXTERN_PER_THREAD_DATA(cost_pmu_thread, { 0, 0, NULL });

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

    atomic_read_relaxed(&cost_pmu_seq, &seq);
    return seq;
}

/* Configuration. */

/* Makes threads count if 'wanted', from the next time that they call
 * cost_pmu_start() on.  A thread that has failed to open its counters only
 * tries again after they were not 'wanted' for a while. */
void
cost_pmu_configure(bool wanted)
{
    unsigned int seq = get_seq();

    if (wanted != (seq & 1)) {
        ovs_mutex_lock(&status_mutex);
        if (wanted) {
            latest_error = 0;
            user_space_only = false;
        }
        atomic_store_relaxed(&cost_pmu_seq, seq + 1);
        ovs_mutex_unlock(&status_mutex);
    }
}

void
cost_pmu_get_status(struct cost_pmu_status *status)
{
    ovs_mutex_lock(&status_mutex);
    status->wanted = get_seq() & 1;
    status->error = latest_error;
    status->user_space_only = user_space_only;
    ovs_mutex_unlock(&status_mutex);
}

/* Appends to 's' why there are no counters, from cost_pmu_status's 'error'. */
void
cost_pmu_format_error(int error, struct ds *s)
{
    ds_put_format(s, "not here%s (%s)",
                  (error == ENOENT ? ", this machine has none"
                   : error == EACCES || error == EPERM
                   ? ", see kernel.perf_event_paranoid" : ""),
                  ovs_strerror(error));
}

/* Counters. */

#if COST_PMU_LINUX
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
group_open__(struct cost_pmu_group *group, bool exclude_kernel)
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
group_open__(struct cost_pmu_group *group OVS_UNUSED,
             bool exclude_kernel OVS_UNUSED)
{
    return EOPNOTSUPP;
}
#endif

/* Stores the readings of 'group' in 'counts'.  Returns false if there are
 * none. */
static bool
group_read(const struct cost_pmu_group *group, struct cost_pmu_counts *counts)
{
    return read(group->cycles_fd, counts, sizeof *counts) == sizeof *counts;
}

/* Stores in 'counts', the readings at the start, what 'group' has counted
 * since.  Returns false if that is not known: the kernel may lend a counter to
 * somebody else meanwhile. */
static bool
group_stop(const struct cost_pmu_group *group, struct cost_pmu_counts *counts)
{
    struct cost_pmu_counts now;

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
group_calibrate(struct cost_pmu_group *group)
{
    struct cost_pmu_counts counts, idle = {
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
    struct cost_pmu_group *group = group_;

    if (group) {
        close(group->instructions_fd);
        close(group->cycles_fd);
        free(group);
    }
}

/* Opens and returns counters of the calling thread, or returns NULL.  'seq'
 * is 'cost_pmu_seq' that asked for them. */
static struct cost_pmu_group *
group_open(unsigned int seq)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    struct cost_pmu_group *group = xzalloc(sizeof *group);
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
thread_close(struct cost_pmu_thread *thread)
{
    if (thread->group) {
        ovsthread_setspecific(exit_key, NULL);
        group_close(thread->group);
        thread->group = NULL;
    }
}

/* Does what cost_pmu_start() does when there is something to do. */
bool
cost_pmu_start__(struct cost_pmu_counts *counts)
{
    struct cost_pmu_thread *thread = cost_pmu_thread_get();
    unsigned int seq = get_seq();

    if (seq != thread->seq) {
        thread_close(thread);
        thread->seq = seq;
        thread->group = seq & 1 ? group_open(seq) : NULL;
    }
    if (!thread->group) {
        thread->idle_seq = seq;
        return false;
    }

    return group_read(thread->group, counts);
}

/* Stores in 'counts' what the calling thread has counted since
 * cost_pmu_start() returned true.  Returns false if that is not known. */
bool
cost_pmu_stop(struct cost_pmu_counts *counts)
{
    const struct cost_pmu_group *group = cost_pmu_thread_get()->group;

    if (!group_stop(group, counts)) {
        return false;
    }
    counts->cycles -= MIN(counts->cycles, group->idle.cycles);
    counts->instructions -= MIN(counts->instructions,
                                group->idle.instructions);
    return true;
}
