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

#include "cost-flight.h"

#include "cost-render.h"
#include "cost-report.h"
#include "cost-span.h"
#include "openvswitch/json.h"
#include "openvswitch/list.h"
#include "openvswitch/shash.h"
#include "smap.h"
#include "timeval.h"
#include "unixctl.h"
#include "unixctl-worker.h"
#include "util.h"

#define N_EVENTS 256                    /* Of a thread. */
#define N_KEPT 3                        /* Copies. */

/* A reply has the latest events, so many, for the sake of the main thread: see
 * lib/cost-report.c. */
#define MAX_TEXT_EVENTS 256
#define MAX_JSON_EVENTS 5000

#define RESTART_MS 10000                /* From one to the next, at least. */
#define END_MS 100                      /* For events to end, at least. */
#define MIN_NS 10000                    /* A shorter event is left out if it is
                                         * one of a kind that is exact. */

/* An event, in words. */
enum {
    EVENT_END,                          /* Ticks. */
    EVENT_KIND,
    EVENT_ACCOUNT,
    EVENT_HEAD,                         /* Class, counter, known stages, and
                                         * whether it stopped the rings. */
    EVENT_EXCLUDED,                     /* Nanoseconds. */
    EVENT_STAGES,
    EVENT_WORDS = EVENT_STAGES + COST_MAX_STAGES
};
#define EVENT_STOPPED (UINT64_C(1) << 63)

/* The latest events of a thread. */
struct ring {
    struct ovs_list list_node;          /* In 'rings'. */
    char thread[COST_NAME_MAX];
    atomic_uint64_t n;                  /* That have ever been written. */
    atomic_uint64_t words[N_EVENTS][EVENT_WORDS];
};

/* Those that a ring had, the oldest one first. */
struct ring_copy {
    char thread[COST_NAME_MAX];
    size_t n;
    uint64_t words[N_EVENTS][EVENT_WORDS];
};

/* What all rings had at a moment. */
struct copy {
    int n_refs;                         /* Protected by 'mutex'. */
    uint64_t ticks;
    uint64_t us;                        /* Time of day. */
    size_t n;
    struct ring_copy rings[];
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list rings OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&rings);
static struct copy *kept[N_KEPT] OVS_GUARDED_BY(mutex);  /* Latest first. */
static uint64_t since_ticks OVS_GUARDED_BY(mutex);  /* Older events are of an
                                                     * earlier time. */

DEFINE_STATIC_PER_THREAD_DATA(struct ring *, thread_ring, NULL);
static pthread_key_t ring_key;

enum { OFF, ON, STOPPING, STOPPED };
static atomic_int state = OFF;
static atomic_uint64_t stop_ticks = 0;  /* When the rings stopped. */
static atomic_uint64_t stop_ms = 0;     /* The same, time_msec(), or 0 if they
                                         * never did. */

/* Recording. */

static void
ring_destroy(void *ring_)
{
    struct ring *ring = ring_;

    *thread_ring_get() = NULL;
    ovs_mutex_lock(&mutex);
    ovs_list_remove(&ring->list_node);
    ovs_mutex_unlock(&mutex);
    cost_free(ring, sizeof *ring);
}

/* Creates and returns the calling thread's ring.  Returns NULL if it would
 * have to wait for the lock. */
static struct ring *
ring_create(void)
{
    struct ring *ring = cost_alloc(sizeof *ring);
    const char *name = get_subprogram_name();

    if (ovs_mutex_trylock(&mutex)) {
        cost_free(ring, sizeof *ring);
        return NULL;
    }
    ovs_list_push_back(&rings, &ring->list_node);
    ovs_strlcpy(ring->thread, name[0] ? name : "main", sizeof ring->thread);
    ovs_mutex_unlock(&mutex);
    xpthread_setspecific(ring_key, ring);
    *thread_ring_get() = ring;
    return ring;
}

static bool
may_stop(uint64_t ms)
{
    uint64_t latest_ms = cost_load(&stop_ms);

    return !latest_ms || ms >= latest_ms + RESTART_MS;
}

/* Stops all rings at 'now', in ticks, unless they have been stopped a short
 * while ago.  Returns true if the calling thread has done so, which makes
 * 'state' STOPPED after writing its event. */
static bool
stop(uint64_t now)
{
    int on = ON, stopping = STOPPING;
    uint64_t ms = time_msec();

    if (!may_stop(ms)
        || !atomic_compare_exchange_strong(&state, &on, STOPPING)) {
        return false;
    } else if (!may_stop(ms)) {
        /* Another thread has, meanwhile. */
        atomic_compare_exchange_strong(&state, &stopping, ON);
        return false;
    }
    cost_store(&stop_ticks, now);
    cost_store(&stop_ms, ms);
    return true;
}

/* A cost_span_observer: records the event of 'span', which has ended at
 * 'now', or before its last stage if that is not part of it. */
static void
record(const struct cost_span *span, uint64_t now)
{
    const struct cost_kind *kind = span->recorder->kind;
    const struct cost_entry *entry = &span->entry;
    uint16_t known = entry->known;
    uint64_t log_ns = cost_load(&kind->config->log_ns);
    size_t total = cost_kind_total(kind);
    struct ring *ring = *thread_ring_get();
    uint64_t head = 0, n;
    atomic_uint64_t *w;
    int now_state;
    bool slow;

    atomic_read_explicit(&state, &now_state, memory_order_acquire);
    if (now_state == OFF || !(known & (1u << total))
        || (now_state != ON && span->begin >= cost_load(&stop_ticks))) {
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
    if (OVS_UNLIKELY(slow) && now_state == ON && stop(now)) {
        head = EVENT_STOPPED;
    }

    n = cost_load(&ring->n);
    w = ring->words[n % N_EVENTS];
    atomic_thread_fence(memory_order_release);
    cost_store(&w[EVENT_END], now - (span->lapped ? span->trailing : 0));
    cost_store(&w[EVENT_KIND], (uintptr_t) kind);
    cost_store(&w[EVENT_ACCOUNT], cost_account_id(span->recorder->account));
    cost_store(&w[EVENT_HEAD], (head | (uint64_t) known << 40
                                | (uint64_t) entry->counter << 32
                                | entry->class));
    cost_store(&w[EVENT_EXCLUDED], entry->excluded_ns);
    for (; known; known = zero_rightmost_1bit(known)) {
        size_t stage = raw_ctz(known);

        cost_store(&w[EVENT_STAGES + stage], entry->stages[stage]);
    }
    atomic_store_explicit(&ring->n, n + 1, memory_order_release);
    if (OVS_UNLIKELY(head)) {
        int stopping = STOPPING;

        atomic_compare_exchange_strong(&state, &stopping, STOPPED);
    }
}

/* Copies. */

/* Makes 'copy' what 'ring' has. */
static void
ring_copy(const struct ring *ring, struct ring_copy *copy)
{
    uint64_t first, before, after, n_gone = 0;

    atomic_read_explicit(CONST_CAST(atomic_uint64_t *, &ring->n), &before,
                         memory_order_acquire);
    first = before - MIN(before, N_EVENTS);
    for (uint64_t i = first; i < before; i++) {
        for (size_t j = 0; j < EVENT_WORDS; j++) {
            copy->words[i - first][j] = cost_load(
                &ring->words[i % N_EVENTS][j]);
        }
    }
    atomic_thread_fence(memory_order_acquire);
    after = cost_load(&ring->n);

    /* The oldest ones may have parts of those written meanwhile, including
     * the one that is being written. */
    if (after >= first + N_EVENTS) {
        n_gone = MIN(after - first - N_EVENTS + 1, before - first);
    }
    copy->n = before - first - n_gone;
    memmove(copy->words, copy->words + n_gone,
            copy->n * sizeof copy->words[0]);
    memcpy(copy->thread, ring->thread, sizeof copy->thread);
}

static size_t
copy_size(size_t n)
{
    return sizeof(struct copy) + n * sizeof(struct ring_copy);
}

/* Returns a copy of all rings, for one user. */
static struct copy *
copy_create(void)
    OVS_REQUIRES(mutex)
{
    struct copy *copy = cost_alloc(copy_size(ovs_list_size(&rings)));
    struct ring *ring;

    copy->n_refs = 1;
    LIST_FOR_EACH (ring, list_node, &rings) {
        ring_copy(ring, &copy->rings[copy->n++]);
    }
    copy->us = time_wall_usec();
    copy->ticks = cost_clock_now("flight", 0);
    return copy;
}

/* 'copy', unless it is NULL, has a user less. */
static void
copy_unref(struct copy *copy)
    OVS_REQUIRES(mutex)
{
    if (copy && !--copy->n_refs) {
        cost_free(copy, copy_size(copy->n));
    }
}

/* Keeps what is in the rings, if they have stopped, and lets them go on.  The
 * sampler calls this. */
void
cost_flight_run(void)
{
    int stopped;

    atomic_read_explicit(&state, &stopped, memory_order_acquire);
    if (stopped == STOPPED && time_msec() >= cost_load(&stop_ms) + END_MS) {
        ovs_mutex_lock(&mutex);
        copy_unref(kept[N_KEPT - 1]);
        memmove(&kept[1], &kept[0], (N_KEPT - 1) * sizeof kept[0]);
        kept[0] = copy_create();
        atomic_compare_exchange_strong(&state, &stopped, ON);
        ovs_mutex_unlock(&mutex);
    }
}

/* Applies other_config:cost-flight in 'settings'.  Switching it off drops all
 * that was kept. */
void
cost_flight_apply(const struct smap *settings, bool enabled OVS_UNUSED)
{
    bool on = smap_get_bool(settings, "cost-flight", false);
    int off = OFF;

    ovs_mutex_lock(&mutex);
    if (!on) {
        cost_span_observe(NULL);
        atomic_store_relaxed(&state, OFF);
        for (size_t i = 0; i < N_KEPT; i++) {
            copy_unref(kept[i]);
            kept[i] = NULL;
        }
    } else if (atomic_compare_exchange_strong(&state, &off, ON)) {
        since_ticks = cost_clock_now("flight", 0);
        cost_span_observe(record);
    }
    ovs_mutex_unlock(&mutex);
}

/* Reading. */

/* Returns the name of account 'id', which remains in 'names', or NULL if it
 * has been destroyed. */
static const char *
account_name(struct shash *names, uint64_t id)
{
    char *key = xasprintf("%"PRIu64, id);
    struct shash_node *node = shash_find(names, key);

    if (!node) {
        node = shash_add(names, key, cost_account_find_name(id));
    }
    free(key);
    return node->data;
}

/* Returns the event 'w', which ended at 'end_ns', nanoseconds since the Epoch,
 * in JSON. */
static struct json *
event_to_json(const uint64_t *w, struct shash *names, uint64_t end_ns)
{
    const struct cost_kind *kind
        = (const struct cost_kind *) (uintptr_t) w[EVENT_KIND];
    const char *account = account_name(names, w[EVENT_ACCOUNT]);
    size_t total = cost_kind_total(kind);
    uint64_t length = w[EVENT_STAGES + total] + w[EVENT_EXCLUDED];
    uint8_t counter = w[EVENT_HEAD] >> 32;
    uint16_t known = w[EVENT_HEAD] >> 40;
    struct json *numbers = json_object_create();
    struct json *stages = json_object_create();
    struct json *apart = json_object_create();
    struct json *event = json_object_create();

    json_object_put_string(event, "event", kind->event);
    if (account) {
        json_object_put_string(event, "account", account);
    }
    cost_put_string(event, "class",
                    cost_class_name(kind, (uint32_t) w[EVENT_HEAD]));
    if (counter != COST_NO_COUNTER) {
        json_object_put_string(event, "outcome", kind->counters[counter].name);
    }
    cost_put_integer(event, "begin_ns", end_ns - length);
    cost_put_integer(event, "end_ns", end_ns);
    cost_put_integer(event, "excluded_ns", w[EVENT_EXCLUDED]);
    for (size_t i = 0; i < total; i++) {
        if (known & (1u << i)) {
            cost_put_integer((cost_stage_is_number(kind, i) ? numbers
                              : kind->stages[i].flags & COST_APART ? apart
                              : stages),
                             kind->stages[i].name, w[EVENT_STAGES + i]);
        }
    }
    json_object_put(event, "stages", stages);
    json_object_put(event, "apart", apart);
    json_object_put(event, "numbers", numbers);
    if (w[EVENT_HEAD] & EVENT_STOPPED) {
        json_object_put(event, "stopped", json_boolean_create(true));
    }
    return event;
}

/* Sorts times, the latest one first. */
static int
compare_times(const void *a_, const void *b_)
{
    const uint64_t *a = a_, *b = b_;

    return *a < *b ? 1 : *a > *b ? -1 : 0;
}

/* Returns the time since which at most 'n' events of 'copy' ended, in
 * ticks. */
static uint64_t
copy_since(const struct copy *copy, size_t n)
{
    uint64_t *ends = xmalloc(copy->n * N_EVENTS * sizeof *ends);
    uint64_t since = 0;
    size_t n_ends = 0;

    for (size_t i = 0; i < copy->n; i++) {
        for (size_t j = 0; j < copy->rings[i].n; j++) {
            ends[n_ends++] = copy->rings[i].words[j][EVENT_END];
        }
    }
    if (n_ends > n) {
        qsort(ends, n_ends, sizeof *ends, compare_times);
        since = ends[n] + 1;
    }
    free(ends);
    return since;
}

/* Returns the events of 'copy' that ended at most 'max_ns' before, and after
 * 'since', in ticks, in JSON. */
static struct json *
copy_to_json(const struct copy *copy, uint64_t max_ns, uint64_t since)
{
    struct shash names = SHASH_INITIALIZER(&names);
    struct json *array = json_array_create_empty();

    for (size_t i = 0; i < copy->n; i++) {
        const struct ring_copy *ring = &copy->rings[i];
        struct json *json = json_array_create_empty();
        struct json *thread = json_object_create();

        for (size_t j = 0; j < ring->n; j++) {
            uint64_t end = ring->words[j][EVENT_END];
            uint64_t age = cost_clock_ns(cost_clock_ticks(end, copy->ticks));

            /* 'age' is COST_CLOCK_UNKNOWN if the clock has changed. */
            if (age <= max_ns && end >= since) {
                json_array_add(json, event_to_json(
                                   ring->words[j], &names,
                                   copy->us * 1000 - age));
            }
        }
        json_object_put_string(thread, "thread", ring->thread);
        json_object_put(thread, "events", json);
        json_array_add(array, thread);
    }
    shash_destroy_free_data(&names);
    return array;
}

/* Returns the reply of "cost/flight" in JSON: what there is of the last
 * 'last_s' seconds, or all if that is 0, or what was kept at the moment that
 * is number 'kept_number', 1 being the latest; of that, the latest 'max'
 * events.  Returns NULL if there is no such moment. */
struct json *
cost_flight_to_json(int last_s, unsigned int kept_number, size_t max)
{
    uint64_t max_ns = last_s ? last_s * UINT64_C(1000000000)
                      : COST_CLOCK_MAX_NS;
    struct json *moments = json_array_create_empty();
    struct copy *copy = NULL;
    struct json *json;
    uint64_t since;
    int now;

    ovs_mutex_lock(&mutex);
    since = since_ticks;
    atomic_read_relaxed(&state, &now);
    for (size_t i = 0; i < N_KEPT && kept[i]; i++) {
        json_array_add(moments, json_integer_create(kept[i]->us));
        if (kept_number == i + 1) {
            copy = kept[i];
            copy->n_refs++;
        }
    }
    if (!kept_number) {
        copy = copy_create();
    }
    ovs_mutex_unlock(&mutex);
    if (!copy) {
        json_destroy(moments);
        return NULL;
    }

    since = MAX(since, copy_since(copy, max));
    json = cost_report_json_header("cost", "flight", NULL);
    json_object_put(json, "recording", json_boolean_create(now != OFF));
    json_object_put(json, "kept_us", moments);
    cost_put_integer(json, "time_us", copy->us);
    json_object_put(json, "threads", (now == OFF ? json_array_create_empty()
                                      : copy_to_json(copy, max_ns, since)));
    ovs_mutex_lock(&mutex);
    copy_unref(copy);
    ovs_mutex_unlock(&mutex);
    return json;
}

/* Commands. */

/* What of cost_flight_to_json() is asked for. */
struct request {
    int last_s;
    unsigned int kept;
};

static void
do_flight(void *request_, struct unixctl_worker_reply *reply)
{
    struct request *request = request_;
    struct json *json = cost_flight_to_json(
        request->last_s, request->kept,
        reply->json ? MAX_JSON_EVENTS : MAX_TEXT_EVENTS);

    if (json) {
        json_to_ds(json, reply->json ? 0 : JSSF_PRETTY, &reply->body);
        json_destroy(json);
    } else {
        reply->error = xasprintf("no moment %u has been kept", request->kept);
    }
    free(request);
}

static void
cost_flight(struct unixctl_conn *conn, int argc, const char *argv[],
            void *aux OVS_UNUSED)
{
    struct request request = { 0, 0 };
    char *error = NULL;

    if (argc == 3 && !strcmp(argv[1], "-last")) {
        error = cost_report_parse_last(argv[2], &request.last_s);
    } else if (argc > 1
               && (argc != 3 || strcmp(argv[1], "-kept")
                   || !str_to_uint(argv[2], 10, &request.kept)
                   || !request.kept)) {
        error = xstrdup("usage: cost/flight [-last 10s|1m|5m|15m | -kept N]");
    }
    if (error) {
        unixctl_command_reply_error(conn, error);
        free(error);
    } else {
        struct request *arg = xmemdup(&request, sizeof request);

        if (!unixctl_worker_do(conn, do_flight, arg)) {
            free(arg);
        }
    }
}

/* Registers the command "cost/flight". */
void
cost_flight_init(void)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;

    if (ovsthread_once_start(&once)) {
        xpthread_key_create(&ring_key, ring_destroy);
        unixctl_command_register("cost/flight",
                                 "[-last 10s|1m|5m|15m | -kept N]", 0, 2,
                                 cost_flight, NULL);
        ovsthread_once_done(&once);
    }
}
