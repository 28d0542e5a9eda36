/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-clock.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "openvswitch/vlog.h"
#include "ovs-thread.h"
#include "timeval.h"
#include "unixctl.h"

VLOG_DEFINE_THIS_MODULE(cost_clock);

/* A tick is a nanosecond. */
#define NS_PER_TICK (1u << COST_CLOCK_SHIFT)

struct cost_clock cost_clock = { COST_CLOCK_MONOTONIC, NS_PER_TICK };

/* How long cost_clock_init() waits to learn the counter's rate, and in how
 * many tries the two clocks are read together without an interruption.  If
 * they are read within 100 ns, the rate is right to 20 ppm. */
#define CALIBRATION_NS 5000000
#define CALIBRATION_TRIES 16

/* How often cost_clock_run() looks at what the kernel uses. */
#define CHECK_MSEC 10000

/* What the kernel's own clock is made of. */
const char *cost_clock_kernel_file
    = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/* The test clock, far from all others.  Each reading, or each one for
 * 'test_event' if that is nonnull, advances the time by the next step. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static enum cost_clock_source real_source OVS_GUARDED_BY(mutex)
    = COST_CLOCK_MONOTONIC;
static uint32_t real_mult OVS_GUARDED_BY(mutex) = NS_PER_TICK;
static uint64_t test_now OVS_GUARDED_BY(mutex) = UINT64_C(1) << 62;
static char *test_event OVS_GUARDED_BY(mutex);
static uint64_t *test_steps OVS_GUARDED_BY(mutex);
static size_t test_n_steps OVS_GUARDED_BY(mutex);
static size_t test_next OVS_GUARDED_BY(mutex);

/* Returns CLOCK_MONOTONIC, in nanoseconds. */
uint64_t
cost_clock_monotonic(void)
{
    struct timespec ts;

    xclock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}

/* Returns true if the counter runs at a constant rate in all power states. */
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

/* Returns true if the kernel's own clock is the counter, or made of it, as it
 * is in guests of KVM and Hyper-V. */
static bool
kernel_uses_counter(void)
{
    static const char *const sources[] = {
        "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter",
    };
    FILE *stream = fopen(cost_clock_kernel_file, "r");
    char name[64];

    if (!stream) {
        return false;
    }
    if (fscanf(stream, "%63s", name) != 1) {
        name[0] = '\0';
    }
    fclose(stream);
    for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
        if (!strcmp(name, sources[i])) {
            return true;
        }
    }
    return false;
}

/* Reads both clocks at the same time: of several tries, takes the one that
 * took the least time. */
static void
read_both(uint64_t *ticks, uint64_t *ns)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < CALIBRATION_TRIES; i++) {
        uint64_t before = cost_clock_monotonic();
        uint64_t counter = cost_clock_tsc();
        uint64_t took = cost_clock_monotonic() - before;

        if (took < least) {
            least = took;
            *ticks = counter;
            *ns = before + took / 2;
        }
    }
}

static void
set_source(enum cost_clock_source source, uint32_t mult)
    OVS_REQUIRES(mutex)
{
    real_source = source;
    real_mult = mult;
    if (!test_n_steps) {
        atomic_store_relaxed(&cost_clock.mult, mult);
        atomic_store_relaxed(&cost_clock.source, (int) source);
    }
}

/* Chooses the clock.  Takes CALIBRATION_NS the first time, nothing later. */
void
cost_clock_init(void)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;

    if (!ovsthread_once_start(&once)) {
        return;
    }
    if (is_invariant() && kernel_uses_counter()) {
        uint64_t start_ticks, start_ns, ticks, ns;
        double mult;

        read_both(&start_ticks, &start_ns);
        xnanosleep_no_quiesce(CALIBRATION_NS);
        read_both(&ticks, &ns);
        mult = ((double) (ns - start_ns) * NS_PER_TICK
                / (int64_t) (ticks - start_ticks));

        ovs_mutex_lock(&mutex);
        if (mult >= 1 && mult < UINT32_MAX) {
            set_source(COST_CLOCK_TSC, mult + 0.5);
        }
        ovs_mutex_unlock(&mutex);
    }
    ovsthread_once_done(&once);
}

/* Stops using the counter if the kernel has.  Looks every CHECK_MSEC. */
void
cost_clock_run(void)
{
    static long long int next_ms = LLONG_MIN;

    if (time_msec() < next_ms) {
        return;
    }
    next_ms = time_msec() + CHECK_MSEC;

    ovs_mutex_lock(&mutex);
    if (real_source == COST_CLOCK_TSC && !kernel_uses_counter()) {
        VLOG_WARN("the kernel no longer uses the time stamp counter, using "
                  "CLOCK_MONOTONIC from now on");
        set_source(COST_CLOCK_MONOTONIC, NS_PER_TICK);
    }
    ovs_mutex_unlock(&mutex);
}

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

/* Reads a clock that is not the counter, for 'event'. */
uint64_t
cost_clock_now__(const char *event)
{
    uint64_t now;
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    if (source != COST_CLOCK_TEST) {
        /* It is far from whatever the counter had before a change. */
        return cost_clock_monotonic() | UINT64_C(1) << 63;
    }
    ovs_mutex_lock(&mutex);
    if (test_n_steps && (!test_event || !strcmp(event, test_event))) {
        test_now += test_steps[test_next];
        if (++test_next >= test_n_steps) {
            test_next = 0;
        }
    }
    now = test_now;
    ovs_mutex_unlock(&mutex);
    return now;
}

/* Makes each reading of the clock for 'event', or each one if that is NULL,
 * advance it by the next of the 'n_steps' nanoseconds in 'steps', over and
 * over again.  With 'n_steps' 0, goes back to real time. */
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
    atomic_store_relaxed(&cost_clock.mult, n_steps ? NS_PER_TICK : real_mult);
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
    char *error = NULL;
    size_t n = 0;

    for (int i = 1; i < argc && !error; i++) {
        long long int step;

        if (i == 1 && isalpha((unsigned char) argv[i][0])) {
            event = argv[i];
        } else if (str_to_llong(argv[i], 10, &step) && step >= 0) {
            steps[n++] = step;
        } else {
            error = xasprintf("\"%s\" is not a number of nanoseconds",
                              argv[i]);
        }
    }
    if (error) {
        unixctl_command_reply_error(conn, error);
    } else {
        cost_clock_set_test(event, steps, n);
        unixctl_command_reply(conn, NULL);
    }
    free(error);
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
