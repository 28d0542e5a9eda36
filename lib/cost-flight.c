/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-flight.h"

#include "cost-render.h"
#include "cost-report.h"
#include "cost-span.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/list.h"
#include "smap.h"
#include "timeval.h"
#include "util.h"

#define N_EVENTS 256                    /* Of a thread. */
#define N_KEPT 3                        /* Copies. */

/* A reply has the latest events, so many of all threads, for the sake of the
 * main thread: see lib/cost-report.c. */
#define MAX_TEXT_EVENTS 256
#define MAX_JSON_EVENTS 5000

#define RESTART_MS 10000                /* From one to the next, at least. */
#define END_MS 100                      /* For events to end, at least. */
#define MIN_NS 10000                    /* A shorter event is left out if it is
                                         * one of a kind that is exact. */

struct event {
    const struct cost_kind *kind;
    char account[COST_TEXT_MAX];
    uint64_t end;                       /* Ticks. */
    bool stopped;                       /* Has it stopped the rings? */
    struct cost_entry entry;
};

/* The latest events of a thread. */
struct events {
    char thread[COST_NAME_MAX];
    uint64_t n;                         /* That there have ever been. */
    struct event events[N_EVENTS];      /* Number 'n' is at 'n' % N_EVENTS. */
};

struct ring {
    struct ovs_list list_node;          /* In 'rings'. */
    struct ovs_mutex mutex;             /* Nobody waits for it while a thread
                                         * records. */
    struct events events OVS_GUARDED;
};

/* What all rings had at a moment. */
struct moment {
    int n_refs;                         /* Protected by 'mutex'. */
    uint64_t ticks;
    uint64_t us;                        /* Time of day. */
    size_t n;
    struct events threads[];
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list rings OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&rings);
static struct moment *kept[N_KEPT] OVS_GUARDED_BY(mutex);  /* Latest first. */

DEFINE_STATIC_PER_THREAD_DATA(struct ring *, thread_ring, NULL);
static pthread_key_t ring_key;

enum { OFF, ON, STOPPING, STOPPED };
static atomic_int state = OFF;          /* Changes with 'mutex' held, but for
                                         * stop(), which is STOPPING. */
static atomic_uint64_t stop_ms = 0;     /* When the rings stopped last, ... */
static atomic_uint64_t stop_ticks = 0;  /* ...the same in ticks. */

static int
get_state(void)
{
    int now;

    atomic_read_explicit(&state, &now, memory_order_acquire);
    return now;
}

/* Recording. */

static void
ring_destroy(void *ring_)
{
    struct ring *ring = ring_;

    *thread_ring_get() = NULL;
    ovs_mutex_lock(&mutex);
    ovs_list_remove(&ring->list_node);
    ovs_mutex_unlock(&mutex);
    ovs_mutex_destroy(&ring->mutex);
    cost_free(ring, sizeof *ring);
}

/* Creates and returns the calling thread's ring.  Returns NULL if it would
 * have to wait for the lock. */
static struct ring *
ring_create(void)
{
    struct ring *ring = NULL;

    if (!ovs_mutex_trylock(&mutex)) {
        const char *name = get_subprogram_name();

        ring = cost_alloc(sizeof *ring);
        ovs_mutex_init(&ring->mutex);
        ovs_mutex_lock(&ring->mutex);
        ovs_strlcpy(ring->events.thread, name[0] ? name : "main",
                    sizeof ring->events.thread);
        ovs_mutex_unlock(&ring->mutex);
        ovs_list_push_back(&rings, &ring->list_node);
        ovs_mutex_unlock(&mutex);
        xpthread_setspecific(ring_key, ring);
        *thread_ring_get() = ring;
    }
    return ring;
}

/* Stops all rings at 'now', in ticks, unless they have been stopped a short
 * while ago.  Returns true if the calling thread has done so. */
static bool
stop(uint64_t now)
{
    uint64_t now_ms = time_msec();
    int before = ON;

    if ((now_ms < cost_load(&stop_ms) + RESTART_MS && cost_load(&stop_ms))
        || !atomic_compare_exchange_strong(&state, &before, STOPPING)) {
        return false;
    }
    cost_store(&stop_ms, now_ms);
    cost_store(&stop_ticks, now);
    before = STOPPING;                  /* Or OFF, if it was switched off. */
    return atomic_compare_exchange_strong(&state, &before, STOPPED);
}

/* A cost_span_observer: records the event of 'span', which has ended at
 * 'now', or before its last stage if that is not part of it. */
static void
record(const struct cost_span *span, uint64_t now)
{
    const struct cost_kind *kind = span->recorder->kind;
    const struct cost_entry *entry = &span->entry;
    uint64_t log_ns = cost_load(&kind->config->log_ns);
    size_t total = cost_kind_total(kind);
    struct ring *ring = *thread_ring_get();
    int before = get_state();
    bool slow, stopped;

    if (before == OFF || !(entry->known & (1u << total))
        || (before == STOPPED && span->begin >= cost_load(&stop_ticks))) {
        return;
    }
    slow = log_ns && entry->stages[total] > log_ns;
    if (!slow && (!span->sampled
                  || (kind->exact && entry->stages[total] < MIN_NS))) {
        return;
    }
    if (OVS_UNLIKELY(!ring)) {
        ring = ring_create();
        if (!ring) {
            return;
        }
    }
    stopped = slow && before == ON && stop(now);
    if (!ovs_mutex_trylock(&ring->mutex)) {
        struct event *event
            = &ring->events.events[ring->events.n++ % N_EVENTS];

        event->kind = kind;
        cost_copy_text(event->account, sizeof event->account,
                       cost_account_name(span->recorder->account));
        event->end = now - (span->lapped ? span->trailing : 0);
        event->stopped = stopped;
        event->entry = *entry;
        ovs_mutex_unlock(&ring->mutex);
    }
}

/* Moments. */

/* Returns a copy of all rings, for one user. */
static struct moment *
moment_create(void)
    OVS_REQUIRES(mutex)
{
    struct moment *moment = cost_alloc(
        sizeof *moment + ovs_list_size(&rings) * sizeof moment->threads[0]);
    struct ring *ring;

    moment->n_refs = 1;
    LIST_FOR_EACH (ring, list_node, &rings) {
        ovs_mutex_lock(&ring->mutex);
        moment->threads[moment->n++] = ring->events;
        ovs_mutex_unlock(&ring->mutex);
    }
    moment->us = time_wall_usec();
    moment->ticks = cost_clock_now("flight", 0);
    return moment;
}

/* 'moment', unless it is NULL, has a user less. */
static void
moment_unref(struct moment *moment)
    OVS_REQUIRES(mutex)
{
    if (moment && !--moment->n_refs) {
        cost_free(moment,
                  sizeof *moment + moment->n * sizeof moment->threads[0]);
    }
}

/* Keeps what is in the rings, if they have stopped, and lets them go on.  The
 * sampler calls this. */
void
cost_flight_run(void)
{
    if (get_state() == STOPPED) {
        ovs_mutex_lock(&mutex);
        if (time_msec() >= cost_load(&stop_ms) + END_MS
            && get_state() == STOPPED) {
            moment_unref(kept[N_KEPT - 1]);
            memmove(&kept[1], &kept[0], (N_KEPT - 1) * sizeof kept[0]);
            kept[0] = moment_create();
            atomic_store_explicit(&state, ON, memory_order_release);
        }
        ovs_mutex_unlock(&mutex);
    }
}

/* Applies other_config:cost-flight in 'settings'.  Switching it off drops all
 * that was kept. */
void
cost_flight_apply(const struct smap *settings)
{
    bool on = smap_get_bool(settings, "cost-flight", false);

    ovs_mutex_lock(&mutex);
    if (!on) {
        atomic_store_relaxed(&cost_observer, NULL);
        atomic_store_explicit(&state, OFF, memory_order_release);
        for (size_t i = 0; i < N_KEPT; i++) {
            moment_unref(kept[i]);
            kept[i] = NULL;
        }
    } else if (get_state() == OFF) {
        struct ring *ring;

        LIST_FOR_EACH (ring, list_node, &rings) {
            ovs_mutex_lock(&ring->mutex);
            ring->events.n = 0;
            ovs_mutex_unlock(&ring->mutex);
        }
        atomic_store_explicit(&state, ON, memory_order_release);
        atomic_store_relaxed(&cost_observer, record);
    }
    ovs_mutex_unlock(&mutex);
}

/* Reading. */

/* Returns 'event', which ended at 'end_ns', nanoseconds since the Epoch, in
 * JSON. */
static struct json *
event_to_json(const struct event *event, uint64_t end_ns)
{
    const struct cost_entry *entry = &event->entry;
    const struct cost_kind *kind = event->kind;
    size_t total = cost_kind_total(kind);
    struct json *json = json_object_create();
    struct json *numbers = cost_put_object(json, "numbers");
    struct json *stages = cost_put_object(json, "stages");
    struct json *apart = cost_put_object(json, "apart");

    json_object_put_string(json, "event", kind->event);
    json_object_put_string(json, "account", event->account);
    cost_put_string(json, "class", cost_class_name(kind, entry->class));
    if (entry->counter != COST_NO_COUNTER) {
        json_object_put_string(json, "outcome",
                               kind->counters[entry->counter].name);
    }
    cost_put_integer(json, "begin_ns",
                     end_ns - entry->stages[total] - entry->excluded_ns);
    cost_put_integer(json, "end_ns", end_ns);
    cost_put_integer(json, "excluded_ns", entry->excluded_ns);
    for (size_t i = 0; i < total; i++) {
        if (entry->known & (1u << i)) {
            cost_put_integer((cost_stage_is_number(kind, i) ? numbers
                              : kind->stages[i].flags & COST_APART ? apart
                              : stages),
                             kind->stages[i].name, entry->stages[i]);
        }
    }
    if (event->stopped) {
        json_object_put(json, "stopped", json_boolean_create(true));
    }
    return json;
}

/* Returns the 'max' latest events in 'events', of those that ended at most
 * 'max_ns' before 'moment', in JSON. */
static struct json *
events_to_json(const struct events *events, const struct moment *moment,
               uint64_t max_ns, size_t max)
{
    struct json *json = json_object_create();
    struct json *array = cost_put_array(json, "events");

    for (uint64_t i = events->n - MIN(events->n, MIN(max, N_EVENTS));
         i < events->n; i++) {
        const struct event *event = &events->events[i % N_EVENTS];
        uint64_t age = cost_clock_ns(cost_clock_ticks(event->end,
                                                      moment->ticks));

        /* 'age' is COST_CLOCK_UNKNOWN if the clock has changed. */
        if (age <= max_ns) {
            json_array_add(array,
                           event_to_json(event, moment->us * 1000 - age));
        }
    }
    json_object_put_string(json, "thread", events->thread);
    return json;
}

/* Returns the reply of "cost/flight" in JSON: what there is of the last
 * 'last_s' seconds, or all if that is 0, or what was kept at the moment that
 * is number 'kept_number', 1 being the latest; at most 'max' events, the
 * latest ones of each thread.  Returns NULL if there is no such moment. */
struct json *
cost_flight_to_json(int last_s, unsigned int kept_number, size_t max)
{
    uint64_t max_ns = last_s ? last_s * UINT64_C(1000000000)
                      : COST_CLOCK_MAX_NS;
    struct json *json = cost_report_json_header("cost", "flight", NULL);
    struct json *moments = cost_put_array(json, "kept_us");
    struct json *threads = cost_put_array(json, "threads");
    bool recording = get_state() != OFF;
    struct moment *moment = NULL;

    ovs_mutex_lock(&mutex);
    for (size_t i = 0; i < N_KEPT && kept[i]; i++) {
        json_array_add(moments, json_integer_create(kept[i]->us));
        if (kept_number == i + 1) {
            moment = kept[i];
            moment->n_refs++;
        }
    }
    if (!kept_number) {
        moment = moment_create();
    }
    ovs_mutex_unlock(&mutex);
    if (!moment) {
        json_destroy(json);
        return NULL;
    }

    for (size_t i = 0; recording && i < moment->n; i++) {
        json_array_add(threads, events_to_json(&moment->threads[i], moment,
                                               max_ns,
                                               MAX(max / moment->n, 1)));
    }
    json_object_put(json, "recording", json_boolean_create(recording));
    cost_put_integer(json, "time_us", moment->us);
    ovs_mutex_lock(&mutex);
    moment_unref(moment);
    ovs_mutex_unlock(&mutex);
    return json;
}

/* "cost/flight". */
static struct json *
cost_flight(const struct cost_view *view, struct ds *s)
{
    struct json *json = cost_flight_to_json(
        view->last_s, view->kept,
        view->json ? MAX_JSON_EVENTS : MAX_TEXT_EVENTS);

    if (!json) {
        ds_put_format(s, "no moment %u has been kept", view->kept);
    } else if (!view->json) {
        json_to_ds(json, JSSF_PRETTY, s);
    }
    return json;
}

/* Registers the command "cost/flight". */
void
cost_flight_init(void)
{
    static const struct cost_command command = {
        .name = "cost/flight",
        .usage = "[-last 10s|1m|5m|15m | -kept N]",
        .kept = true,
        .cb = cost_flight,
    };

    xpthread_key_create(&ring_key, ring_destroy);
    cost_report_register_command(&command);
}
