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

#include "cost-clock.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/vlog.h"
#include "ovs-thread.h"
#include "timeval.h"
#include "unixctl.h"

VLOG_DEFINE_THIS_MODULE(cost_clock);

/* A tick is a nanosecond. */
#define NS_PER_TICK (1u << COST_CLOCK_SHIFT)

struct cost_clock cost_clock = {
    COST_CLOCK_MONOTONIC,
    NS_PER_TICK,
    NS_PER_TICK
};

/* Where CLOCK_MONOTONIC, 'ns', took over from the counter, 'ticks'.  Set
 * before cost_clock.source is. */
static struct {
    atomic_uint64_t ticks;
    atomic_uint64_t ns;
} origin;

/* Why it did. */
enum fault {
    FAULT_NONE,
    FAULT_RATE,                         /* The kernel's clock disagrees. */
    FAULT_KERNEL,                       /* The kernel does not trust it. */
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;

/* The clock in use when there is no test. */
static enum cost_clock_source real_source OVS_GUARDED_BY(mutex)
    = COST_CLOCK_MONOTONIC;
static uint32_t real_mult OVS_GUARDED_BY(mutex) = NS_PER_TICK;
static uint32_t real_inverse OVS_GUARDED_BY(mutex) = NS_PER_TICK;

/* While it is the counter. */
static struct cost_clock_sample baseline OVS_GUARDED_BY(mutex);
static double drift_ppm OVS_GUARDED_BY(mutex);
static bool kernel_uses_counter OVS_GUARDED_BY(mutex);

/* Since it is no longer. */
static enum fault fault OVS_GUARDED_BY(mutex) = FAULT_NONE;
static long long int fault_when_us OVS_GUARDED_BY(mutex);
static double fault_gained_s OVS_GUARDED_BY(mutex);
static double fault_window_s OVS_GUARDED_BY(mutex);

/* The test clock.  Each reading, or each one for 'test_event' if that is
 * nonnull, advances the time by the next step. */
static uint64_t test_now OVS_GUARDED_BY(mutex) = 1;
static char *test_event OVS_GUARDED_BY(mutex);
static uint64_t *test_steps OVS_GUARDED_BY(mutex);
static size_t test_n_steps OVS_GUARDED_BY(mutex);
static size_t test_next OVS_GUARDED_BY(mutex);

/* How long cost_clock_init() waits at a time to learn the counter's rate, and
 * how often at most until it is known to one in CALIBRATION_ERROR.  On most
 * machines, once is good to some 20 ppm. */
#define CALIBRATION_NS 5000000
#define CALIBRATION_TRIES 10
#define CALIBRATION_ERROR 10000

/* How often cost_clock_run() looks after the counter. */
#define CHECK_MSEC 10000

/* The counter may gain or lose as much without being suspected: one in
 * MAX_DRIFT, which leaves room for the error of the calibration, and
 * MAX_GAIN_NS, for kernel's clocks that are coarse. */
#define MAX_DRIFT 2000
#define MAX_GAIN_NS 1e6

/* The time between two baselines is at least this long. */
#define MIN_WINDOW_NS INT64_C(1000000000)

static uint64_t
read_ns(clockid_t id)
{
    struct timespec ts;

    xclock_gettime(id, &ts);
    return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}

/* Reads CLOCK_MONOTONIC in ticks. */
static uint64_t
read_monotonic(void)
{
    uint64_t ticks, ns;

    atomic_read_relaxed(&origin.ticks, &ticks);
    atomic_read_relaxed(&origin.ns, &ns);
    return ticks + cost_clock_ticks(read_ns(CLOCK_MONOTONIC) - ns);
}

/* The machine that this runs on. */

static bool
is_invariant(void)
{
#if defined(__x86_64__)
    unsigned int eax, ebx, ecx, edx;

    /* "Invariant TSC", Intel SDM volume 3, 17.17.1. */
    return (__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx)
            && edx & (1u << 8));
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

/* Reads the counter together with the kernel's clock: one that NTP does not
 * make faster or slower, if there is one, because the counter's rate is not to
 * blame for that.  Of several tries takes the one with the least time between
 * its two readings of that clock, which excludes that the thread was
 * interrupted in between.  Tries no more when that is 'width' ns or less. */
void
cost_clock_read(struct cost_clock_sample *best, uint64_t width)
{
#ifdef CLOCK_MONOTONIC_RAW
    clockid_t id = CLOCK_MONOTONIC_RAW;
#else
    clockid_t id = CLOCK_MONOTONIC;
#endif

    best->width = UINT64_MAX;
    for (int i = 0; i < 16 && best->width > width; i++) {
        uint64_t before = read_ns(id);
        uint64_t ticks = cost_clock_tsc();
        uint64_t between = read_ns(id) - before;

        if (between < best->width) {
            best->ticks = ticks;
            best->ns = before + between / 2;
            best->width = between;
        }
    }
}

static const struct cost_clock_machine this_machine = {
    .is_invariant = is_invariant,
    .sample = cost_clock_read,
#ifdef __aarch64__
    .counter = "arch_sys_counter",
#else
    .counter = "tsc",
#endif
    .directory = "/sys/devices/system/clocksource/clocksource0",
};
static const struct cost_clock_machine *machine = &this_machine;

/* Makes 'machine_' what the clock is judged by.  Must be called before
 * cost_clock_init(). */
void
cost_clock_set_machine(const struct cost_clock_machine *machine_)
{
    machine = machine_;
}

/* Returns true if the counter is among the kernel's sources of time that are
 * in 'file'.  If that can't be read, returns 'otherwise'. */
static bool
kernel_lists_counter(const char *file, bool otherwise)
{
    char *path = xasprintf("%s/%s", machine->directory, file);
    FILE *stream = fopen(path, "r");
    char sources[256];
    bool found = false;

    free(path);
    if (!stream) {
        return otherwise;
    }
    if (!fgets(sources, sizeof sources, stream)) {
        sources[0] = '\0';
    }
    fclose(stream);

    for (char *save_ptr = NULL, *name = strtok_r(sources, " \n", &save_ptr);
         name && !found; name = strtok_r(NULL, " \n", &save_ptr)) {
        found = !strcmp(name, machine->counter);
    }
    return found;
}

/* Returns true unless the kernel has found the counter to be unstable, which
 * takes it off the list. */
static bool
kernel_offers_counter(void)
{
    return kernel_lists_counter("available_clocksource", true);
}

/* Returns true if the kernel's own time comes from the counter. */
static bool
kernel_prefers_counter(void)
{
    return kernel_lists_counter("current_clocksource", false);
}

/* Chooses the clock.  Takes some CALIBRATION_NS the first time, nothing
 * later. */
void
cost_clock_init(void)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    struct cost_clock_sample start, now;
    bool calibrated = false;
    double mult = 0;

    if (!ovsthread_once_start(&once)) {
        return;
    }
    if (!machine->is_invariant() || !kernel_offers_counter()) {
        ovsthread_once_done(&once);
        return;
    }

    machine->sample(&start, 0);
    for (int i = 0; i < CALIBRATION_TRIES && !calibrated; i++) {
        xnanosleep(CALIBRATION_NS);
        machine->sample(&now, 0);
        if (now.ticks <= start.ticks || now.ns <= start.ns) {
            break;
        }
        mult = ((double) (now.ns - start.ns) / (now.ticks - start.ticks)
                * NS_PER_TICK);
        calibrated = ((start.width + now.width) / 2
                      <= (now.ns - start.ns) / CALIBRATION_ERROR);
    }

    /* 'mult' and its inverse have to fit in 32 bits. */
    if (calibrated && mult > 1u << 16 && mult < UINT32_MAX) {
        ovs_mutex_lock(&mutex);
        kernel_uses_counter = kernel_prefers_counter();
        baseline = now;
        real_source = COST_CLOCK_TSC;
        real_mult = round(mult);
        real_inverse = round((double) NS_PER_TICK / real_mult * NS_PER_TICK);
        atomic_store_relaxed(&cost_clock.mult, real_mult);
        atomic_store_relaxed(&cost_clock.inverse, real_inverse);
        atomic_store_relaxed(&cost_clock.source, (int) real_source);
        ovs_mutex_unlock(&mutex);
    } else {
        VLOG_WARN("time stamp counter is unusable, using CLOCK_MONOTONIC");
    }
    ovsthread_once_done(&once);
}

/* The watch. */

/* Sets '*gained_ns' to how much time a counter, whose ticks are 'mult' /
 * 2**COST_CLOCK_SHIFT nanoseconds, has gained on the kernel's clock between
 * the samples 'from' and 'to'.  That is negative if it has lost time.  Returns
 * true if it is no more than what a good counter and the samples' width may
 * amount to. */
bool
cost_clock_judge(const struct cost_clock_sample *from,
                 const struct cost_clock_sample *to, uint32_t mult,
                 double *gained_ns)
{
    /* Either clock may have gone backwards. */
    double elapsed = (int64_t) (to->ns - from->ns);
    double counted = (double) (int64_t) (to->ticks - from->ticks) * mult
                     / NS_PER_TICK;

    *gained_ns = counted - elapsed;
    return fabs(*gained_ns) <= (fabs(elapsed) / MAX_DRIFT + MAX_GAIN_NS
                                + from->width / 2.0 + to->width / 2.0);
}

/* Returns the ticks that CLOCK_MONOTONIC is to continue with at 'to', when a
 * counter that had 'inverse' / 2**COST_CLOCK_SHIFT ticks in a nanosecond, and
 * was good until 'from', has failed since. */
uint64_t
cost_clock_continue(const struct cost_clock_sample *from,
                    const struct cost_clock_sample *to, uint32_t inverse)
{
    uint64_t ticks = to->ticks;

    /* Continue where the counter should be or, if it has lost time, where it
     * is, so that no event that has begun gets longer than it is.  Put the
     * clock back a bit, for it is not known that exactly where the counter
     * should be: such an event ends before it began, unless it is long. */
    if (to->ns > from->ns) {
        ticks = MIN(ticks,
                    from->ticks + cost_clock_scale(to->ns - from->ns,
                                                   inverse));
    }
    return ticks - MIN(ticks, COST_CLOCK_LONG);
}

/* Appends to 's' what is wrong with the counter. */
static void
format_fault(struct ds *s)
    OVS_REQUIRES(mutex)
{
    if (fault == FAULT_KERNEL) {
        ds_put_cstr(s, "the kernel no longer trusts the time stamp counter");
    } else {
        ds_put_format(s, "the time stamp counter %s %.3f s in %.3f s",
                      fault_gained_s > 0 ? "gained" : "lost",
                      fabs(fault_gained_s), fault_window_s);
    }
}

/* Stops using the counter, which was found at 'now' to have 'new_fault' and
 * 'gained_ns' since the baseline. */
static void
fall_back(enum fault new_fault, const struct cost_clock_sample *now,
          double gained_ns)
    OVS_REQUIRES(mutex)
{
    double window_ns = (int64_t) (now->ns - baseline.ns);

    atomic_store_relaxed(&origin.ticks,
                         cost_clock_continue(&baseline, now, real_inverse));
    atomic_store_relaxed(&origin.ns, read_ns(CLOCK_MONOTONIC));

    real_source = COST_CLOCK_MONOTONIC;
    atomic_store_explicit(&cost_clock.source, (int) real_source,
                          memory_order_release);

    fault = new_fault;
    fault_when_us = time_wall_usec();
    fault_gained_s = gained_ns / 1e9;
    fault_window_s = window_ns / 1e9;

    struct ds s = DS_EMPTY_INITIALIZER;

    format_fault(&s);
    VLOG_WARN("using CLOCK_MONOTONIC from now on: %s", ds_cstr(&s));
    ds_destroy(&s);
}

/* If the clock is the counter, compares it with the kernel's clock since the
 * baseline, and stops using it if they disagree, or if 'trusted' is false.
 * Otherwise, makes this the new baseline if 'rebase' is true. */
static void
check(bool trusted, bool rebase)
    OVS_REQUIRES(mutex)
{
    struct cost_clock_sample now;
    double gained_ns;
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    if (source != COST_CLOCK_TSC) {
        return;
    }

    machine->sample(&now, rebase ? 0 : MAX_GAIN_NS / 100);
    if (!cost_clock_judge(&baseline, &now, real_mult, &gained_ns)) {
        fall_back(FAULT_RATE, &now, gained_ns);
    } else if (!trusted) {
        fall_back(FAULT_KERNEL, &now, gained_ns);
    } else if (rebase && (int64_t) (now.ns - baseline.ns) >= MIN_WINDOW_NS) {
        drift_ppm = gained_ns / (now.ns - baseline.ns) * 1e6;
        baseline = now;
    }
}

/* Looks after the clock, if it is time to do so again. */
void
cost_clock_run(void)
{
    static long long int next_ms = LLONG_MIN;
    bool trusted;
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    if (source != COST_CLOCK_TSC || time_msec() < next_ms) {
        return;
    }
    next_ms = time_msec() + CHECK_MSEC;

    trusted = kernel_offers_counter();
    ovs_mutex_lock(&mutex);
    if (kernel_uses_counter) {
        trusted = trusted && kernel_prefers_counter();
    }
    check(trusted, true);
    ovs_mutex_unlock(&mutex);
}

/* Does what cost_clock_ns() does with COST_CLOCK_LONG ticks or more. */
uint64_t
cost_clock_ns__(uint64_t ticks)
{
    uint64_t origin_ticks, origin_ns;
    uint32_t mult;
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    if (source == COST_CLOCK_TSC) {
        ovs_mutex_lock(&mutex);
        check(true, false);
        ovs_mutex_unlock(&mutex);
    }

    /* Nobody knows how long an event from before the change took. */
    atomic_read_explicit(&cost_clock.source, &source, memory_order_acquire);
    atomic_read_relaxed(&origin.ticks, &origin_ticks);
    atomic_read_relaxed(&origin.ns, &origin_ns);
    if (source == COST_CLOCK_MONOTONIC && origin_ns
        && ticks > read_monotonic() - origin_ticks) {
        return 0;
    }

    atomic_read_relaxed(&cost_clock.mult, &mult);
    return cost_clock_scale(ticks, mult);
}

/* Reporting. */

/* Returns the clock's name for reports: "tsc", "monotonic" or "test". */
const char *
cost_clock_name(void)
{
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    return (source == COST_CLOCK_TSC ? "tsc"
            : source == COST_CLOCK_TEST ? "test"
            : "monotonic");
}

/* Returns by how many parts per million the counter was faster than the
 * kernel's clock (negative if slower) when cost_clock_run() last compared
 * them, for the time since it had done so before.  Returns 0 if the clock is
 * not the counter, or they have not been compared yet. */
double
cost_clock_drift_ppm(void)
{
    double drift;
    int source;

    ovs_mutex_lock(&mutex);
    atomic_read_relaxed(&cost_clock.source, &source);
    drift = source == COST_CLOCK_TSC ? drift_ppm : 0;
    ovs_mutex_unlock(&mutex);
    return drift;
}

/* Appends the clock's name to 's' and, if it had to be changed, since when and
 * why. */
void
cost_clock_format(struct ds *s)
{
    ds_put_cstr(s, cost_clock_name());

    ovs_mutex_lock(&mutex);
    if (fault && !cost_clock_is_test()) {
        char *when = xastrftime_msec("%Y-%m-%d %H:%M:%S.###Z",
                                     fault_when_us / 1000, true);

        ds_put_format(s, " since %s (", when);
        format_fault(s);
        ds_put_char(s, ')');
        free(when);
    }
    ovs_mutex_unlock(&mutex);
}

/* Adds what is known of the clock to 'json', an object. */
void
cost_clock_to_json(struct json *json)
{
    json_object_put_string(json, "source", cost_clock_name());
    json_object_put(json, "drift_ppm",
                    json_real_create(cost_clock_drift_ppm()));

    ovs_mutex_lock(&mutex);
    if (fault && !cost_clock_is_test()) {
        struct json *change = json_object_create();

        json_object_put(change, "time_us", json_integer_create(fault_when_us));
        json_object_put_string(change, "reason",
                               (fault == FAULT_KERNEL ? "kernel"
                                : fault_gained_s > 0 ? "gained"
                                : "lost"));
        json_object_put(change, "gained_s", json_real_create(fault_gained_s));
        json_object_put(change, "in_s", json_real_create(fault_window_s));
        json_object_put(json, "change", change);
    }
    ovs_mutex_unlock(&mutex);
}

/* Reads the clock, out of line, for 'event'. */
uint64_t
cost_clock_now__(const char *event)
{
    uint64_t now = 0;
    int source;

    atomic_read_explicit(&cost_clock.source, &source, memory_order_acquire);
    switch ((enum cost_clock_source) source) {
    case COST_CLOCK_TSC:
        now = cost_clock_tsc();
        break;

    case COST_CLOCK_TEST:
        ovs_mutex_lock(&mutex);
        if (test_n_steps && (!test_event || !strcmp(event, test_event))) {
            test_now += test_steps[test_next];
            if (++test_next >= test_n_steps) {
                test_next = 0;
            }
        }
        now = test_now;
        ovs_mutex_unlock(&mutex);
        break;

    case COST_CLOCK_MONOTONIC:
    default:
        now = read_monotonic();
        break;
    }
    return now;
}

/* Makes each reading of the clock for 'event', or each one if that is NULL,
 * advance it by the next of the 'n_steps' nanoseconds in 'steps', over and
 * over again.  With 'n_steps' 0, goes back to real time.
 *
 * Must not be called while anything is being measured. */
void
cost_clock_set_test(const char *event, const uint64_t *steps, size_t n_steps)
{
    ovs_mutex_lock(&mutex);
    free(test_event);
    test_event = nullable_xstrdup(event);
    free(test_steps);
    test_steps = n_steps ? xmemdup(steps, n_steps * sizeof *steps) : NULL;
    test_n_steps = n_steps;
    test_next = 0;
    atomic_store_relaxed(&cost_clock.mult,
                         n_steps ? NS_PER_TICK : real_mult);
    atomic_store_relaxed(&cost_clock.inverse,
                         n_steps ? NS_PER_TICK : real_inverse);
    atomic_store_relaxed(&cost_clock.source,
                         n_steps ? COST_CLOCK_TEST : (int) real_source);
    ovs_mutex_unlock(&mutex);
}

static void
cost_clock_unixctl_set(struct unixctl_conn *conn, int argc, const char *argv[],
                       void *aux OVS_UNUSED)
{
    uint64_t *steps = xmalloc(argc * sizeof *steps);
    const char *event = NULL;
    size_t n = 0;

    for (int i = 1; i < argc; i++) {
        long long int step;

        if (i == 1 && isalpha((unsigned char) argv[i][0])) {
            event = argv[i];
            continue;
        }
        if (!str_to_llong(argv[i], 10, &step) || step < 0) {
            char *error = xasprintf("\"%s\" is not a number of nanoseconds",
                                    argv[i]);

            unixctl_command_reply_error(conn, error);
            free(error);
            free(steps);
            return;
        }
        steps[n++] = step;
    }
    cost_clock_set_test(event, steps, n);
    unixctl_command_reply(conn, NULL);
    free(steps);
}

/* Registers the command that tests use to set the clock, which a program
 * should have only if it was started with --enable-dummy. */
void
cost_clock_dummy_register(void)
{
    unixctl_command_register("cost/set-test-clock", "[EVENT] [STEP...]", 0,
                             INT_MAX, cost_clock_unixctl_set, NULL);
}
