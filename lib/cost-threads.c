/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "cost-clock.h"
#include "cost-flight.h"
#include "cost-report.h"
#include "hash.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/hmap.h"
#include "openvswitch/json.h"
#include "openvswitch/token-bucket.h"
#include "ovs-thread.h"
#include "util.h"

#define SAMPLE_NS INT64_C(500000000)    /* From one sample to the next. */
#define MARK_NS 5000000                 /* See cost_threads_mark(). */

/* What is read of a thread: its CPU time, run delay and turns on a CPU each
 * time, the others each 10 s and for a command.  The kernel's only grow;
 * read_thread() adds the part of a run delay that is not counted yet. */
enum {
    CPU_NS,
    DELAY_NS,
    TURNS,
    VOLUNTARY,                          /* Context switches. */
    INVOLUNTARY,
    FAULTS,                             /* Major ones. */
    N_VALUES
};
static const char *const names[N_VALUES] = {
    [CPU_NS] = "cpu_ns",
    [DELAY_NS] = "run_delay_ns",
    [VOLUNTARY] = "voluntary_switches",
    [INVOLUNTARY] = "involuntary_switches",
    [FAULTS] = "major_faults",
};

/* The same of the control group of the process, if any has a limit. */
enum { PERIODS, THROTTLED, THROTTLED_NS, N_CGROUP_VALUES };
static const char *const cgroup_names[N_VALUES] = {
    [PERIODS] = "periods",
    [THROTTLED] = "throttled_periods",
    [THROTTLED_NS] = "throttled_ns",
};

/* Values, and the times right before and after they were read, in nanoseconds
 * of CLOCK_MONOTONIC. */
struct reading {
    int64_t from_ns, to_ns;             /* 0 if it is unused. */
    uint64_t values[N_VALUES];
};

/* Each 'every' samples, one is kept, in one of 'n' places: those of 2 seconds,
 * of 2 minutes, and of 15 minutes. */
static const struct {
    unsigned int every, n;
} levels[] = { { 1, 4 }, { 20, 13 }, { 120, 16 } };
enum { FULL_EVERY = 20, N_PAST = 4 + 13 + 16 };

struct history {
    struct reading now;                 /* The latest one. */
    struct reading past[N_PAST];
};

struct thread {
    struct hmap_node node;              /* In 'threads', by 'tid'. */
    pid_t tid;
    int fd;                             /* Of "schedstat".  It stays that of
                                         * this thread, even if another one
                                         * gets the TID. */
    char name[16];
    int64_t waiting_ns;                 /* Since when it has been known to wait
                                         * for a CPU, or 0. */

    struct ovs_mutex mutex;             /* After 'threads_mutex'. */
    struct history history;             /* Both are held to write it. */

    /* What the thread reads itself: for its latest slow event, and where
     * the latest two events that are marked begin, the latest one first, and
     * where the latest one ends. */
    struct reading own OVS_GUARDED, begin[2] OVS_GUARDED, end OVS_GUARDED;
    struct token_bucket bucket OVS_GUARDED;
};

/* Held while all threads are read. */
static struct ovs_mutex threads_mutex = OVS_MUTEX_INITIALIZER;
static struct hmap threads OVS_GUARDED_BY(threads_mutex)
    = HMAP_INITIALIZER(&threads);
static struct history cgroup OVS_GUARDED_BY(threads_mutex);
static int cgroup_version OVS_GUARDED_BY(threads_mutex);  /* 1 or 2, 0 if there
                                                           * is no limit. */
static int read_error OVS_GUARDED_BY(threads_mutex);  /* Of any thread. */
static unsigned int n_samples OVS_GUARDED_BY(threads_mutex);

/* Where /proc and /sys are. */
const char *cost_threads_root = "";

/* The thread that runs. */
DEFINE_STATIC_PER_THREAD_DATA(struct thread *, self, NULL);

static struct cost_config config = COST_CONFIG_INITIALIZER("threads", 1);

/* Reading. */

/* Reads the file that the format and its arguments name, below
 * 'cost_threads_root', into 'buf', a string of at most 'size' bytes.  Returns
 * true if successful. */
bool
cost_read_file(char *buf, size_t size, const char *format, ...)
{
    char path[512];
    ssize_t n;
    va_list args;
    int fd;

    va_start(args, format);
    n = snprintf(path, sizeof path, "%s", cost_threads_root);
    vsnprintf(path + n, sizeof path - n, format, args);
    va_end(args);

    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, buf, size - 1);
    if (fd >= 0) {
        close(fd);
    }
    buf[MAX(n, 0)] = '\0';
    return n > 0;
}

/* Makes '*value' the number that follows 'key' in 'text', if it is there. */
static bool
get_value(const char *text, const char *key, uint64_t *value)
{
    const char *p = strstr(text, key);

    return p && sscanf(p + strlen(key), "%"SCNu64, value) == 1;
}

/* Reads CPU time, run delay and turns of 'thread' into 'reading'.  Returns 0,
 * or a positive errno value, ESRCH if 'thread' is gone. */
static int
read_schedstat(const struct thread *thread, struct reading *reading)
{
    uint64_t *v = reading->values;
    char buf[128];
    ssize_t n;

    reading->from_ns = cost_clock_monotonic();
    n = pread(thread->fd, buf, sizeof buf - 1, 0);
    if (n < 0) {
        return errno;
    }
    buf[n] = '\0';
    if (sscanf(buf, "%"SCNu64" %"SCNu64" %"SCNu64, &v[CPU_NS], &v[DELAY_NS],
               &v[TURNS]) != 3) {
        return EPROTO;
    }
#ifdef __linux__
    /* The CPU time in "schedstat" lacks the time since the last tick, which on
     * a CPU without ticks is up to a second.  This clock, which is made as
     * pthread_getcpuclockid() does, has it. */
    clockid_t id = ~(unsigned int) thread->tid << 3 | 6;
    struct timespec ts;

    if (!clock_gettime(id, &ts)) {
        v[CPU_NS] = ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
    }
#endif
    reading->to_ns = cost_clock_monotonic();
    return 0;
}

/* Reads the name, and what is not in "schedstat", of 'thread'. */
static void
read_rest(struct thread *thread)
{
    struct reading *now = &thread->history.now;
    uint64_t *v = now->values;
    char state = '\0';
    char buf[8192];

    if (cost_read_file(buf, sizeof buf, "/proc/self/task/%d/stat",
                       (int) thread->tid)) {
        char *begin = strchr(buf, '('), *end = strrchr(buf, ')');

        if (begin && end && begin < end) {
            *end = '\0';
            ovs_strlcpy(thread->name, begin + 1, sizeof thread->name);
            if (sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %"SCNu64,
                       &state, &v[FAULTS]) != 2) {
                state = '\0';
            }
        }
    }
    if (cost_read_file(buf, sizeof buf, "/proc/self/task/%d/status",
                       (int) thread->tid)) {
        get_value(buf, "\nvoluntary_ctxt_switches:", &v[VOLUNTARY]);
        get_value(buf, "\nnonvoluntary_ctxt_switches:", &v[INVOLUNTARY]);
    }
    if (state != 'R') {
        thread->waiting_ns = 0;
    } else if (!thread->waiting_ns) {
        thread->waiting_ns = now->from_ns;
    }
}

/* Makes a sample of 'history''s latest reading. */
static void
keep(struct history *history)
    OVS_REQUIRES(threads_mutex)
{
    struct reading *past = history->past;

    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        if (n_samples % levels[i].every == 0) {
            past[n_samples / levels[i].every % levels[i].n] = history->now;
        }
        past += levels[i].n;
    }
}

/* Reads all of 'thread', or only what is in "schedstat" unless 'full'.
 * Returns 0, or a positive errno value as read_schedstat(). */
static int
read_thread(struct thread *thread, bool full)
    OVS_REQUIRES(threads_mutex, thread->mutex)
{
    struct history *history = &thread->history;
    struct reading reading = history->now;
    int error = read_schedstat(thread, &reading);

    if (!error) {
        if (reading.values[CPU_NS] != history->now.values[CPU_NS]
            || reading.values[TURNS] != history->now.values[TURNS]) {
            thread->waiting_ns = 0;
        } else if (thread->waiting_ns) {
            /* It has not run since, so it still waits.  The kernel counts that
             * when it is over, which may be never. */
            reading.values[DELAY_NS] += reading.from_ns - thread->waiting_ns;
        }
        history->now = reading;
        if (full) {
            read_rest(thread);
        }
    }
    return error;
}

static struct thread *
find_thread(pid_t tid)
    OVS_REQUIRES(threads_mutex)
{
    struct thread *thread;

    HMAP_FOR_EACH_WITH_HASH (thread, node, hash_int(tid, 0), &threads) {
        if (thread->tid == tid) {
            return thread;
        }
    }
    return NULL;
}

static void
remove_thread(struct thread *thread)
    OVS_REQUIRES(threads_mutex)
{
    hmap_remove(&threads, &thread->node);
    close(thread->fd);
    ovs_mutex_destroy(&thread->mutex);
    cost_free(thread, sizeof *thread);
}

/* Adds thread 'tid', unless it can't be read. */
static void
add_thread(pid_t tid)
    OVS_REQUIRES(threads_mutex)
{
    struct thread *thread;
    char path[512];
    int fd, error;

    snprintf(path, sizeof path, "%s/proc/self/task/%d/schedstat",
             cost_threads_root, (int) tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        error = errno;
        *strrchr(path, '/') = '\0';
        if (error != ENOENT || !access(path, F_OK)) {   /* It is not gone. */
            read_error = error;
        }
        return;
    }

    thread = cost_alloc(sizeof *thread);
    thread->tid = tid;
    thread->fd = fd;
    ovs_mutex_init(&thread->mutex);
    hmap_insert(&threads, &thread->node, hash_int(tid, 0));
    ovs_mutex_lock(&thread->mutex);
    token_bucket_init(&thread->bucket, 10, 10000);
    error = read_thread(thread, true);
    thread->history.past[levels[0].n + n_samples / FULL_EVERY % levels[1].n]
        = thread->history.now;
    ovs_mutex_unlock(&thread->mutex);
    if (error) {
        read_error = error == ESRCH ? read_error : error;
        remove_thread(thread);
    }
}

/* Adds the threads that are new. */
static void
add_threads(void)
    OVS_REQUIRES(threads_mutex)
{
    char path[512];
    DIR *dir;

    snprintf(path, sizeof path, "%s/proc/self/task", cost_threads_root);
    dir = opendir(path);
    if (!dir) {
        read_error = errno;
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        pid_t tid = atoi(entry->d_name);

        if (tid > 0 && !find_thread(tid)) {
            add_thread(tid);
        }
    }
    closedir(dir);
}

/* Reads the counters of the control group at 'path' in 'mount' or, if it has
 * no limit of CPU time, of the nearest one above it that has.  Returns false
 * if there is none. */
static bool
read_throttling(const char *mount, const char *path_, uint64_t values[])
{
    char path[256], buf[2048];

    ovs_strlcpy(path, path_, sizeof path);
    for (;;) {
        size_t len = strlen(path);

        if (cost_read_file(buf, sizeof buf, "/sys/fs/cgroup%s%s/cpu.stat",
                           mount, path)
            && get_value(buf, "nr_periods ", &values[PERIODS])
            && values[PERIODS]
            && get_value(buf, "nr_throttled ", &values[THROTTLED])) {
            if (get_value(buf, "throttled_usec ", &values[THROTTLED_NS])) {
                values[THROTTLED_NS] *= 1000;
                return true;
            }
            return get_value(buf, "throttled_time ", &values[THROTTLED_NS]);
        }
        while (len && path[len - 1] != '/') {
            len--;
        }
        if (!len) {
            return false;
        }
        path[len - 1] = '\0';
    }
}

/* Reads how much the process has been throttled. */
static void
read_cgroup(void)
    OVS_REQUIRES(threads_mutex)
{
    static const struct {
        const char *controllers;        /* In /proc/self/cgroup. */
        const char *mount;
    } places[] = {
        { ":cpu,cpuacct:", "/cpu,cpuacct" },
        { ":cpu:", "/cpu" },
        { "0::", "" },
        { "0::", "/unified" },
    };
    uint64_t values[N_CGROUP_VALUES] = { 0 };
    char buf[4096];
    int version = 0;

    cost_read_file(buf, sizeof buf, "/proc/self/cgroup");
    for (size_t i = 0; i < ARRAY_SIZE(places) && !version; i++) {
        const char *p = strstr(buf, places[i].controllers);
        char path[256];

        if (p && sscanf(p + strlen(places[i].controllers), "%255[^\n]",
                        path) == 1
            && read_throttling(places[i].mount, path, values)) {
            version = places[i].controllers[0] == '0' ? 2 : 1;
        }
    }

    if (version != cgroup_version
        || values[PERIODS] < cgroup.now.values[PERIODS]) {
        /* It is another one. */
        memset(&cgroup, 0, sizeof cgroup);
        cgroup_version = version;
    }
    if (version) {
        cgroup.now.from_ns = cgroup.now.to_ns = cost_clock_monotonic();
        memcpy(cgroup.now.values, values, sizeof values);
    }
}

/* Reads all threads, all of each and the control group if 'full', and keeps
 * that as a sample if 'sample'. */
static void
read_all(bool full, bool sample)
    OVS_REQUIRES(threads_mutex)
{
    struct thread *thread;

    read_error = 0;
    add_threads();
    HMAP_FOR_EACH_SAFE (thread, node, &threads) {
        int error;

        ovs_mutex_lock(&thread->mutex);
        error = read_thread(thread, full);
        if (sample) {
            keep(&thread->history);
        }
        ovs_mutex_unlock(&thread->mutex);
        if (error == ESRCH) {
            remove_thread(thread);
        } else if (error) {
            read_error = error;
        }
    }
    if (full) {
        read_cgroup();
        if (sample) {
            keep(&cgroup);
        }
    }
}

/* Causes. */

static uint64_t
difference(const struct reading *a, const struct reading *b, size_t i)
{
    return b->values[i] > a->values[i] ? b->values[i] - a->values[i] : 0;
}

/* Returns what a thread did for at least half of an event that took 'event_ns'
 * and was within the time from 'before' to 'after'. */
static enum cost_cause
judge(const struct reading *before, const struct reading *after,
      uint64_t event_ns)
{
    int64_t interval = after->to_ns - before->from_ns;
    int64_t cpu = difference(before, after, CPU_NS);
    int64_t delay = difference(before, after, DELAY_NS);

    /* The time that may have been spent otherwise.  The scheduler's clock and
     * CLOCK_MONOTONIC differ by at most 500 ppm. */
    int64_t spare = (int64_t) (event_ns / 2) - interval / 1000;

    /* A thread that has had no other turn has not been blocked, whatever an
     * interrupt or a hypervisor did. */
    return (interval - cpu <= spare ? COST_CAUSE_ON_CPU
            : interval - delay <= spare ? COST_CAUSE_STARVED
            : cpu + delay <= spare && difference(before, after, TURNS)
            ? COST_CAUSE_BLOCKED
            : COST_CAUSE_UNKNOWN);
}

/* Makes '*latest' 'reading' if it is a later one, before 'limit_ns'. */
static void
choose(const struct reading **latest, const struct reading *reading,
       int64_t limit_ns)
{
    if (reading->to_ns && reading->to_ns <= limit_ns
        && (!*latest || reading->from_ns > (*latest)->from_ns)) {
        *latest = reading;
    }
}

static enum cost_cause
get_cause(struct thread *thread, uint64_t event_ns, uint64_t age_ns)
    OVS_REQUIRES(thread->mutex)
{
    enum cost_cause cause = COST_CAUSE_UNKNOWN;
    const struct reading *before = NULL;
    int64_t now = cost_clock_monotonic();
    struct reading after;

    choose(&before, &thread->own, now - age_ns);
    choose(&before, &thread->begin[0], now - age_ns);
    choose(&before, &thread->begin[1], now - age_ns);
    for (size_t i = 0; i < N_PAST; i++) {
        choose(&before, &thread->history.past[i], now - age_ns);
    }
    if (before && event_ns / 2 <= (now - before->from_ns) / 1000) {
        /* Too short for judge(). */
        return cause;
    }
    if (before && age_ns > event_ns && thread->end.from_ns > before->to_ns
        && llabs(thread->end.from_ns - (int64_t) (now - age_ns + event_ns))
           <= event_ns / 16) {
        return judge(before, &thread->end, event_ns);
    }
    if (token_bucket_withdraw(&thread->bucket, 1000)
        && !read_schedstat(thread, &after)) {
        if (before) {
            cause = judge(before, &after, event_ns);
        }
        thread->own = after;
    }
    return cause;
}

/* Returns the calling thread, with its mutex held, or NULL if it has not been
 * found yet, somebody else holds the mutex, or the report is off. */
static struct thread *
lock_self(void)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct thread **me = self_get();
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    if (source == COST_CLOCK_TEST || !cost_enabled(&config)) {
        return NULL;
    }
#ifdef __linux__
    if (!*me && !ovs_mutex_trylock(&threads_mutex)) {
        struct reading reading;

        *me = find_thread(syscall(SYS_gettid));
        if (*me && read_schedstat(*me, &reading)) {
            /* It is another thread, which had the same TID. */
            *me = NULL;
        }
        ovs_mutex_unlock(&threads_mutex);
    }
#endif
    return *me && !ovs_mutex_trylock(&(*me)->mutex) ? *me : NULL;
}

/* Returns why the event that ends in the calling thread was slow, see
 * cost_get_cause.  Takes some microseconds, in each thread at most ten
 * times in a burst, and then ten a second. */
enum cost_cause
cost_threads_cause(uint64_t event_ns, uint64_t age_ns)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    enum cost_cause cause = COST_CAUSE_UNKNOWN;
    struct thread *me = lock_self();

    if (me) {
        cause = get_cause(me, event_ns, age_ns);
        ovs_mutex_unlock(&me->mutex);
    }
    return cause;
}

/* An event begins in the calling thread, or ends if 'end', and is recorded
 * later.  This makes its cause known in any case, and is for events that are
 * no shorter than iterations of the main loop: it takes 0.1 us, and each 5 ms
 * some microseconds. */
void
cost_threads_mark(bool end)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct thread *me = lock_self();

    if (me) {
        struct reading reading;

        if (cost_clock_monotonic() - me->begin[0].from_ns >= MARK_NS
            && !read_schedstat(me, &reading)) {
            if (end) {
                me->end = reading;
            } else {
                me->begin[1] = me->begin[0];
                me->begin[0] = reading;
            }
        }
        ovs_mutex_unlock(&me->mutex);
    }
}

/* "cost/threads". */

/* Returns the reading of 'history' whose age is nearest to 'window_ns', or
 * NULL if there is none. */
static const struct reading *
window_start(const struct history *history, int64_t window_ns)
{
    int64_t start = history->now.from_ns - window_ns;
    const struct reading *best = NULL;

    for (size_t i = levels[0].n; i < N_PAST; i++) {
        const struct reading *past = &history->past[i];

        if (past->to_ns && past->from_ns < history->now.from_ns
            && (!best || (llabs(past->from_ns - start)
                          < llabs(best->from_ns - start)))) {
            best = past;
        }
    }
    return best;
}

/* What is shown of a thread. */
struct row {
    const struct thread *thread;
    const struct reading *start;
    int64_t ns;                         /* Since then, 0 if it is too short for
                                         * a rate. */
    double percent[2];                  /* CPU_NS and DELAY_NS, of that. */
};

static void
init_row(struct row *row, const struct thread *thread, int64_t window_ns)
{
    const struct history *history = &thread->history;

    row->thread = thread;
    row->start = window_start(history, window_ns);
    row->ns = row->start ? history->now.from_ns - row->start->from_ns : 0;
    row->ns = row->ns >= SAMPLE_NS ? row->ns : 0;
    for (size_t i = 0; i < ARRAY_SIZE(row->percent); i++) {
        row->percent[i] = (row->ns ? 100.0 * difference(row->start,
                                                        &history->now, i)
                                     / row->ns
                           : 0);
    }
}

static int
compare_rows(const void *a_, const void *b_)
{
    const struct row *a = a_, *b = b_;

    for (size_t i = ARRAY_SIZE(a->percent); i-- > 0;) {
        if (a->percent[i] != b->percent[i]) {
            return a->percent[i] < b->percent[i] ? 1 : -1;
        }
    }
    return a->thread->tid < b->thread->tid ? -1 : 1;
}

/* Adds the values of 'now', and in "last" what they grew by since 'start',
 * unless that is NULL, to 'json'. */
static void
put_values(struct json *json, const char *const value_names[],
           const struct reading *start, const struct reading *now)
{
    struct json *last = start ? cost_put_object(json, "last") : NULL;

    for (size_t i = 0; i < N_VALUES; i++) {
        if (value_names[i]) {
            cost_put_integer(json, value_names[i], now->values[i]);
            if (start) {
                cost_put_integer(last, value_names[i],
                                 difference(start, now, i));
            }
        }
    }
    if (start) {
        cost_put_integer(last, "ns", now->from_ns - start->from_ns);
    }
}

/* Appends the first line to 's', and adds its numbers to 'json'. */
static void
put_process(const struct row *rows, size_t n, int window_s, struct ds *s,
            struct json *json)
    OVS_REQUIRES(threads_mutex)
{
    double percent[2] = { 0, 0 };
    int64_t ns = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < ARRAY_SIZE(percent); j++) {
            percent[j] += rows[i].percent[j];
        }
        ns = MAX(ns, rows[i].ns);
    }
    ds_put_format(s, "%"PRIuSIZE" threads in %.1f s", n, ns / 1e9);
    ds_put_format(s, ": CPU %.1f%%, run delay %.1f%%", percent[CPU_NS],
                  percent[DELAY_NS]);
    cost_put_integer(json, "window_ns", window_s * UINT64_C(1000000000));
    cost_put_integer(json, "have_ns", ns);

    if (cgroup_version) {
        const struct reading *start
            = window_start(&cgroup, window_s * INT64_C(1000000000));
        struct json *object = cost_put_object(json, "cgroup");

        if (start) {
            ds_put_format(s, ", throttled %.1f%% (%"PRIu64" of %"PRIu64
                          " periods)",
                          100.0 * difference(start, &cgroup.now, THROTTLED_NS)
                          / (cgroup.now.from_ns - start->from_ns),
                          difference(start, &cgroup.now, THROTTLED),
                          difference(start, &cgroup.now, PERIODS));
        }
        cost_put_integer(object, "version", cgroup_version);
        put_values(object, cgroup_names, start, &cgroup.now);
    }
    ds_put_char(s, '\n');
}

/* Returns what is known of all threads, of the last seconds and altogether, in
 * JSON, and appends it to the text 's'. */
struct json *
cost_threads_to_json(const struct cost_view *view, struct ds *s)
{
    int window_s = view->last_s ? view->last_s : 60;
    struct json *json = cost_report_json_header("cost", "threads", &config);
    struct json *array = cost_put_array(json, "threads");
    struct thread *thread;
    struct row *rows;
    size_t n = 0;

    ovs_mutex_lock(&threads_mutex);
    read_all(true, false);
    rows = xmalloc(hmap_count(&threads) * sizeof *rows);
    HMAP_FOR_EACH (thread, node, &threads) {
        init_row(&rows[n++], thread, window_s * INT64_C(1000000000));
    }
    qsort(rows, n, sizeof *rows, compare_rows);
    put_process(rows, n, window_s, s, json);
    if (read_error) {
        ds_put_format(s, "%s threads cannot be read: "
                      "/proc/self/task/TID/schedstat: %s\n",
                      n ? "some" : "the", ovs_strerror(read_error));
        json_object_put_string(json, "error", ovs_strerror(read_error));
    }
    if (n) {
        ds_put_format(s, "  %-15s %7s %7s %11s %13s %6s\n", "thread",
                      "CPU %", "delay %", "voluntary/s", "involuntary/s",
                      "faults");
    }
    for (size_t i = 0; i < n; i++) {
        const struct row *row = &rows[i];
        const struct reading *now = &row->thread->history.now;
        struct json *object = cost_add_object(array);

        json_object_put_string(object, "name", row->thread->name);
        cost_put_integer(object, "tid", row->thread->tid);
        put_values(object, names, row->start, now);

        ds_put_format(s, "  %-15s %7.1f %7.1f", row->thread->name,
                      row->percent[CPU_NS], row->percent[DELAY_NS]);
        if (row->ns) {
            ds_put_format(s, " %11.1f %13.1f %6"PRIu64"\n",
                          difference(row->start, now, VOLUNTARY) * 1e9
                          / row->ns,
                          difference(row->start, now, INVOLUNTARY) * 1e9
                          / row->ns,
                          difference(row->start, now, FAULTS));
        } else {
            ds_put_cstr(s, "  new\n");
        }
    }
    ovs_mutex_unlock(&threads_mutex);
    free(rows);
    return json;
}

/* The sampler, see lib/cost-threads.h. */
static void *
sampler_main(void *aux OVS_UNUSED)
{
    ovsrcu_quiesce_start();
    for (unsigned int i = 0;; i++) {
        if (cost_enabled(&config)) {
            ovs_mutex_lock(&threads_mutex);
            read_all(n_samples % FULL_EVERY == 0, true);
            n_samples++;
            ovs_mutex_unlock(&threads_mutex);
        }
        ovsrcu_quiesce_end();
        cost_accounts_copy();
        ovsrcu_quiesce_start();
        cost_flight_run();
        if (i % 2) {
            cost_log();
        }
        xnanosleep_no_quiesce(SAMPLE_NS);
    }
    return NULL;
}

/* Starts the sampler, and what needs it: causes of slow events, the command
 * "cost/threads", and the flight recorder.  The main thread calls this once,
 * before any other one records. */
void
cost_threads_init(void)
{
    static const struct cost_command command = {
        .name = "cost/threads",
        .usage = "[-last 10s|1m|5m|15m]",
        .in_show = true,
        .cb = cost_threads_to_json,
    };

    cost_flight_init();
    cost_get_cause = cost_threads_cause;
    config.apply = cost_flight_apply;
    cost_config_register(&config);
    cost_report_register_command(&command);
    ovs_thread_create("cost_threads", sampler_main, NULL);
}
