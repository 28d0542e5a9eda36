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
#include <math.h>
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

struct cost_clock cost_clock = {
    COST_CLOCK_MONOTONIC,
    1u << COST_CLOCK_SHIFT
};

/* What cost_clock_init() chose. */
static enum cost_clock_source real_source = COST_CLOCK_MONOTONIC;
static uint32_t real_mult = 1u << COST_CLOCK_SHIFT;

/* A reading of the time stamp counter and the CLOCK_MONOTONIC time, in ns, at
 * which it was made. */
struct calibration {
    uint64_t ticks;
    uint64_t ns;
};
static struct calibration calibration;

/* How long cost_clock_init() waits to learn the rate of the time stamp
 * counter: two readings, each good to some 50 ns, give 20 ppm. */
#define CALIBRATION_NS 5000000

/* The test clock.  Each reading, or each one for 'test_event' if that is
 * nonnull, advances the time by the next step. */
static struct ovs_mutex test_mutex = OVS_MUTEX_INITIALIZER;
static uint64_t test_now OVS_GUARDED_BY(test_mutex) = 1;
static char *test_event OVS_GUARDED_BY(test_mutex);
static uint64_t *test_steps OVS_GUARDED_BY(test_mutex);
static size_t test_n_steps OVS_GUARDED_BY(test_mutex);
static size_t test_next OVS_GUARDED_BY(test_mutex);

static uint64_t
monotonic_ns(void)
{
    struct timespec ts;

    xclock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}

#if defined(__x86_64__)
#define AVAILABLE_CLOCKSOURCE \
    "/sys/devices/system/clocksource/clocksource0/available_clocksource"

/* Returns true if the time stamp counter's rate never changes and the kernel
 * has not given up on it. */
static bool
tsc_is_reliable(void)
{
    unsigned int eax, ebx, ecx, edx;
    char sources[128] = "";
    FILE *stream;

    /* "Invariant TSC", Intel SDM volume 3, 17.17.1. */
    if (!__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx)
        || !(edx & (1u << 8))) {
        return false;
    }

    /* The kernel takes the TSC off this list when it proves unstable. */
    stream = fopen(AVAILABLE_CLOCKSOURCE, "r");
    if (!stream) {
        return true;
    }
    if (!fgets(sources, sizeof sources, stream)) {
        sources[0] = '\0';
    }
    fclose(stream);

    for (char *save_ptr = NULL, *name = strtok_r(sources, " \n", &save_ptr);
         name; name = strtok_r(NULL, " \n", &save_ptr)) {
        if (!strcmp(name, "tsc")) {
            return true;
        }
    }
    return false;
}
#elif defined(__aarch64__)
static bool
tsc_is_reliable(void)
{
    return true;
}
#else
static bool
tsc_is_reliable(void)
{
    return false;
}
#endif

/* Reads the time stamp counter together with CLOCK_MONOTONIC.  Of several
 * tries takes the one with the least time between its two CLOCK_MONOTONIC
 * readings, which excludes that the thread was interrupted in between. */
static struct calibration
calibrate(void)
{
    struct calibration best = { 0, 0 };
    uint64_t best_width = UINT64_MAX;

    for (int i = 0; i < 16; i++) {
        uint64_t before = monotonic_ns();
        uint64_t ticks = cost_clock_tsc();
        uint64_t after = monotonic_ns();

        if (after - before < best_width) {
            best_width = after - before;
            best.ticks = ticks;
            best.ns = before + best_width / 2;
        }
    }
    return best;
}

/* Chooses the clock.  Takes CALIBRATION_NS the first time, nothing later. */
void
cost_clock_init(void)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;

    if (!ovsthread_once_start(&once)) {
        return;
    }

    if (tsc_is_reliable()) {
        struct calibration now;
        double mult;

        calibration = calibrate();
        xnanosleep(CALIBRATION_NS);
        now = calibrate();

        mult = ((double) (now.ns - calibration.ns)
                / (now.ticks - calibration.ticks)
                * (1 << COST_CLOCK_SHIFT));
        if (now.ticks > calibration.ticks && mult >= 1 && mult < UINT32_MAX) {
            real_source = COST_CLOCK_TSC;
            real_mult = round(mult);
            atomic_store_relaxed(&cost_clock.mult, real_mult);
            atomic_store_relaxed(&cost_clock.source, (int) real_source);
        } else {
            VLOG_WARN("time stamp counter is unusable, using CLOCK_MONOTONIC");
        }
    }
    ovsthread_once_done(&once);
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

/* Returns by how many parts per million the time stamp counter, as calibrated
 * by cost_clock_init(), has run ahead of CLOCK_MONOTONIC since (negative if
 * behind).  Returns 0 if it is not in use. */
double
cost_clock_drift_ppm(void)
{
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    if (source != COST_CLOCK_TSC) {
        return 0;
    }

    struct calibration now = calibrate();
    double elapsed = now.ns - calibration.ns;
    double measured = cost_clock_ns(now.ticks - calibration.ticks);

    return (measured - elapsed) / elapsed * 1e6;
}

/* Reads the clock 'source', out of line, for 'event'. */
uint64_t
cost_clock_now__(int source, const char *event)
{
    uint64_t now = 0;

    switch ((enum cost_clock_source) source) {
    case COST_CLOCK_TSC:
        now = cost_clock_tsc();
        break;

    case COST_CLOCK_TEST:
        ovs_mutex_lock(&test_mutex);
        if (test_n_steps && (!test_event || !strcmp(event, test_event))) {
            test_now += test_steps[test_next];
            if (++test_next >= test_n_steps) {
                test_next = 0;
            }
        }
        now = test_now;
        ovs_mutex_unlock(&test_mutex);
        break;

    case COST_CLOCK_MONOTONIC:
    default:
        now = monotonic_ns();
        break;
    }
    return now;
}

/* Makes each reading of the clock for 'event', or each one if that is NULL,
 * advance it by the next of the 'n_steps' nanoseconds in 'steps', over and
 * over again.  With 'n_steps' 0, goes back to real time.
 *
 * Must not be called while anything is being measured. */
static void
cost_clock_set_test(const char *event, const uint64_t *steps, size_t n_steps)
{
    ovs_mutex_lock(&test_mutex);
    free(test_event);
    test_event = nullable_xstrdup(event);
    free(test_steps);
    test_steps = n_steps ? xmemdup(steps, n_steps * sizeof *steps) : NULL;
    test_n_steps = n_steps;
    test_next = 0;
    atomic_store_relaxed(&cost_clock.mult,
                         n_steps ? 1u << COST_CLOCK_SHIFT : real_mult);
    atomic_store_relaxed(&cost_clock.source,
                         n_steps ? COST_CLOCK_TEST : (int) real_source);
    ovs_mutex_unlock(&test_mutex);
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
