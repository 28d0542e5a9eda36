/* SPDX-License-Identifier: Apache-2.0 */

/* Tests of what the scheduler does: "ovstest test-cost-threads". */

#include <config.h>
#undef NDEBUG
#include "cost-threads.h"

#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "command-line.h"
#include "cost-render.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "ovs-thread.h"
#include "ovstest.h"
#include "smap.h"
#include "timeval.h"
#include "util.h"

#define OWN_SCHEDSTAT "/proc/thread-self/schedstat"
#define TASKS "/proc/self/task"
#define FDS "/proc/self/fd"
#define LAST_PID "/proc/sys/kernel/ns_last_pid"

#define MS INT64_C(1000000)
#define N_BURNERS 6
#define MAX_TRIES 100

static const char *const causes[] = { "unknown", "on CPU", "starved",
                                      "blocked" };

/* What a thread has done, in nanoseconds. */
struct usage {
    int64_t time, cpu, delay;
};

static int64_t
get_clock(clockid_t clock)
{
    struct timespec ts;

    xclock_gettime(clock, &ts);
    return ts.tv_sec * 1000 * MS + ts.tv_nsec;
}

/* Reads the usage of the calling thread, in a way of its own, all at once. */
static struct usage
get_usage(void)
{
    struct usage u;

    do {
        FILE *stream = fopen(OWN_SCHEDSTAT, "r");

        u.time = get_clock(CLOCK_MONOTONIC);
        ovs_assert(stream);
        ovs_assert(fscanf(stream, "%*u %"SCNd64, &u.delay) == 1);
        fclose(stream);
        u.cpu = get_clock(CLOCK_THREAD_CPUTIME_ID);
    } while (get_clock(CLOCK_MONOTONIC) - u.time > MS);
    return u;
}

static struct usage
since(const struct usage *start)
{
    struct usage u = get_usage();

    return (struct usage) { u.time - start->time, u.cpu - start->cpu,
                            u.delay - start->delay };
}

/* Burns until 'enough' of what has been used since 'start' is. */
static struct usage
burn(const struct usage *start, bool (*enough)(const struct usage *))
{
    for (;;) {
        struct usage u = since(start);

        if (enough(&u)) {
            return u;
        }
        for (volatile int i = 0; i < 10000; i++) {
            continue;
        }
    }
}

static bool
has_burnt(const struct usage *u)
{
    return u->cpu >= 20 * MS;
}

static bool
has_starved(const struct usage *u)
{
    return u->time >= 20 * MS && u->delay >= u->time * 3 / 4;
}

/* Does 20 ms or more of what leads to 'cause'. */
static struct usage
do_event(enum cost_cause cause, const struct usage *start)
{
    if (cause == COST_CAUSE_BLOCKED) {
        xnanosleep(30 * MS);
        return since(start);
    }
    return burn(start, cause == COST_CAUSE_ON_CPU ? has_burnt : has_starved);
}

/* Returns true if 'u' has been spent on 'cause', at least 'percent' of it. */
static bool
is_cause(const struct usage *u, enum cost_cause cause, int percent)
{
    int64_t part = (cause == COST_CAUSE_ON_CPU ? u->cpu
                    : cause == COST_CAUSE_STARVED ? u->delay
                    : u->time - u->cpu - u->delay);

    return part >= u->time * percent / 100;
}

/* Checks that events of 'cause' are found to be so, right after a reading.
 * The machine may be busy, so what else happened is looked at, too. */
static void
check_cause(enum cost_cause cause)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        enum cost_cause found;
        struct usage start, u;

        /* Make it read, which it does ten times a second. */
        xnanosleep(110 * MS);
        cost_threads_cause(3600 * 1000 * MS, 0);
        start = get_usage();
        u = do_event(cause, &start);
        found = cost_threads_cause(u.time, u.time);

        /* Never a wrong one. */
        ovs_assert(found == COST_CAUSE_UNKNOWN || is_cause(&u, found, 45));
        if (found == cause) {
            printf("%s\n", causes[cause]);
            return;
        }
    }
    ovs_fatal(0, "no event was found to be %s", causes[cause]);
}

/* An event whose begin and end are marked is known to be on a CPU, although
 * the thread is blocked before and after it, and the next one has begun. */
static void
check_marks(void)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        enum cost_cause found;
        struct usage start, u;

        xnanosleep(30 * MS);
        cost_threads_mark(false);
        start = get_usage();
        u = do_event(COST_CAUSE_ON_CPU, &start);
        cost_threads_mark(true);
        xnanosleep(30 * MS);
        cost_threads_mark(false);
        found = cost_threads_cause(u.time, since(&start).time);

        ovs_assert(found == COST_CAUSE_UNKNOWN || is_cause(&u, found, 45));
        if (found == COST_CAUSE_ON_CPU) {
            return;
        }
    }
    ovs_fatal(0, "no marked event was found to be on a CPU");
}

static bool stop_burning;

static void *
burner_main(void *aux OVS_UNUSED)
{
    volatile bool *stop = &stop_burning;

    while (!*stop) {
        continue;
    }
    return NULL;
}

/* Has the calling thread, and those that it creates, run on one CPU only. */
static void
use_one_cpu(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    ovs_assert(!sched_setaffinity(0, sizeof set, &set));
}

static void *
causes_main(void *aux OVS_UNUSED)
{
    pthread_t burners[N_BURNERS];

    /* What else runs is not to starve it all the time.  Only root may. */
    setpriority(PRIO_PROCESS, 0, -20);
    check_cause(COST_CAUSE_ON_CPU);
    check_cause(COST_CAUSE_BLOCKED);
    check_marks();
    use_one_cpu();
    for (size_t i = 0; i < N_BURNERS; i++) {
        burners[i] = ovs_thread_create("burner", burner_main, NULL);
    }
    check_cause(COST_CAUSE_STARVED);
    stop_burning = true;
    for (size_t i = 0; i < N_BURNERS; i++) {
        xpthread_join(burners[i], NULL);
    }
    return NULL;
}

static void
test_causes(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    /* Without samples. */
    ovs_assert(cost_threads_cause(MS, MS) == COST_CAUSE_UNKNOWN);
    cost_threads_init();
    xpthread_join(ovs_thread_create("causes", causes_main, NULL), NULL);
}

/* Events that began before there was any reading, and how often a thread
 * reads. */
static void *
bounds_main(void *aux OVS_UNUSED)
{
    struct smap settings = SMAP_INITIALIZER(&settings);
    int n = 0;

    ovs_assert(cost_threads_cause(3600 * 1000 * MS, 3600 * 1000 * MS)
               == COST_CAUSE_UNKNOWN);

    /* At most ten readings, and as many more as the time allows. */
    int64_t start = get_clock(CLOCK_MONOTONIC);
    while (get_clock(CLOCK_MONOTONIC) - start < 1500 * MS) {
        /* It has begun after any reading. */
        n += cost_threads_cause(3600 * 1000 * MS, 0) != COST_CAUSE_UNKNOWN;
    }
    ovs_assert(n <= 10 + (get_clock(CLOCK_MONOTONIC) - start) / (100 * MS));

    /* Off, it does not read. */
    smap_add(&settings, "cost-accounting", "false");
    cost_configure(&settings);
    smap_destroy(&settings);
    xnanosleep(110 * MS);
    ovs_assert(cost_threads_cause(3600 * 1000 * MS, 0) == COST_CAUSE_UNKNOWN);
    return NULL;
}

static void
test_bounds(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    cost_threads_init();
    xpthread_join(ovs_thread_create("bounds", bounds_main, NULL), NULL);
    printf("ok\n");
}

/* Returns "cost/threads" in text and JSON, which the caller must free. */
static char *
get_report(void)
{
    const struct cost_view view = { .last_s = 60 };
    struct ds s = DS_EMPTY_INITIALIZER;
    struct json *json = cost_threads_to_json(&view, &s);

    json_to_ds(json, JSSF_SORT, &s);
    json_destroy(json);
    return ds_steal_cstr(&s);
}

/* Prints "cost/threads" in text and JSON, for the root in the first argument,
 * and again each time after writing to the file in a further argument what is
 * in the one after it. */
static void
test_show(struct ovs_cmdl_context *ctx)
{
    cost_threads_root = ctx->argv[1];
    for (int i = 2;; i += 2) {
        char *report = get_report();
        FILE *stream;

        puts(report);
        free(report);
        if (i + 1 >= ctx->argc) {
            break;
        }
        stream = fopen(ctx->argv[i], "w");
        ovs_assert(stream);
        fputs(ctx->argv[i + 1], stream);
        fclose(stream);
    }
}

static void *
short_main(void *aux OVS_UNUSED)
{
    cost_threads_cause(3600 * 1000 * MS, 0);
    return NULL;
}

/* Returns the number of entries of directory 'name'. */
static size_t
count_entries(const char *name)
{
    DIR *dir = opendir(name);
    size_t n = 0;

    ovs_assert(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}


/* Returns the number of threads in the report. */
static size_t
count_threads(void)
{
    char *text = get_report();
    size_t n = 0;

    for (const char *p = text; (p = strstr(p, "\"tid\":")); p++) {
        n++;
    }
    free(text);
    return n;
}

/* Threads that come and go leave nothing behind.  The sampler may have a file
 * open, or more memory than at first, but not for each thread. */
static void
test_churn(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    enum { N_THREADS = 300 };
    uint64_t used = cost_memory_used();
    size_t n_fds = count_entries(FDS);

    cost_threads_init();
    for (int i = 0; i < N_THREADS; i++) {
        pthread_t thread = ovs_thread_create("short", short_main, NULL);

        count_threads();
        xpthread_join(thread, NULL);

        /* The kernel may still be about to remove it. */
        while (count_threads() != count_entries(TASKS)) {
            continue;
        }
    }
    ovs_assert(cost_memory_used() < used + N_THREADS * 512);
    ovs_assert(count_entries(FDS) < n_fds + N_THREADS / 10);
    printf("ok\n");
}

/* Has a TID that has been that of another thread, which has burnt. */
static void *
reuse_main(void *tid)
{
    struct usage start = get_usage();

    if (!*(pid_t *) tid) {
        *(pid_t *) tid = gettid();
        burn(&start, has_burnt);
        count_threads();
    } else if (gettid() == *(pid_t *) tid) {
        /* Without a new sample, this must not take it for the other one. */
        cost_threads_cause(3600 * 1000 * MS, 0);
        *(pid_t *) tid = 0;

        count_threads();
        char *text = get_report(), *key = xasprintf("\"tid\":%d", gettid());
        char *p = strstr(text, key);

        if (p) {
            static const char cpu_ns[] = "\"cpu_ns\":";

            while (strncmp(p, cpu_ns, strlen(cpu_ns))) {
                p--;
            }
            ovs_assert(atoll(p + strlen(cpu_ns))
                       <= get_clock(CLOCK_THREAD_CPUTIME_ID));
            printf("ok\n");
        }
        free(text);
        free(key);
    }
    return NULL;
}

/* Prints "ok" if a thread that gets the TID of another one has numbers of its
 * own, and nothing if none gets one. */
static void
test_reuse(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    pid_t tid = 0;

    cost_threads_init();
    xpthread_join(ovs_thread_create("first", reuse_main, &tid), NULL);
    for (int i = 0; i < MAX_TRIES && tid; i++) {
        FILE *stream = fopen(LAST_PID, "w");

        if (stream) {
            fprintf(stream, "%d", tid - 1);
            fclose(stream);
        }
        xpthread_join(ovs_thread_create("second", reuse_main, &tid), NULL);
    }
}


static const struct ovs_cmdl_command commands[] = {

    { "causes", NULL, 0, 0, test_causes, OVS_RO },
    { "bounds", NULL, 0, 0, test_bounds, OVS_RO },
    { "churn", NULL, 0, 0, test_churn, OVS_RO },
    { "reuse", NULL, 0, 0, test_reuse, OVS_RO },
    { "show", "ROOT [FILE TEXT]...", 1, INT_MAX, test_show, OVS_RO },
    { NULL, NULL, 0, 0, NULL, OVS_RO },
};

static void
test_cost_threads_main(int argc, char *argv[])
{
    struct ovs_cmdl_context ctx = { .argc = argc - optind,
                                    .argv = argv + optind };

    set_program_name(argv[0]);
    ovs_cmdl_run_command(&ctx, commands);
}

OVSTEST_REGISTER("test-cost-threads", test_cost_threads_main);
