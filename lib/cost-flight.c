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
#define HOLD_MS 10000                   /* From one to the next, at least. */
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

/* What the rings had when they stopped. */
struct copy {
    long long int when_us;              /* Time of day. */
    char *threads;                      /* A JSON array. */
    size_t size;
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list rings OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&rings);
static struct copy kept[N_KEPT] OVS_GUARDED_BY(mutex);
static size_t n_kept OVS_GUARDED_BY(mutex);

DEFINE_STATIC_PER_THREAD_DATA(struct ring *, thread_ring, NULL);
static pthread_key_t ring_key;

static struct cost_config config = COST_CONFIG_INITIALIZER("flight", 1);

enum { OFF, ON, STOPPING, STOPPED };
static atomic_int state = OFF;
static atomic_uint64_t restart_ms = 0;  /* No ring stops before that,
                                         * time_msec(). */

/* Recording. */

static void
ring_destroy(void *ring_)
{
    struct ring *ring = ring_;

    ovs_mutex_lock(&mutex);
    ovs_list_remove(&ring->list_node);
    ovs_mutex_unlock(&mutex);
    cost_free(ring, sizeof *ring);
}

/* Creates and returns the calling thread's ring.  Returns NULL if that would
 * have to wait for a reader. */
static struct ring *
ring_create(void)
{
    const char *name = get_subprogram_name();
    struct ring *ring;

    if (ovs_mutex_trylock(&mutex)) {
        return NULL;
    }
    ring = cost_alloc(sizeof *ring);
    ovs_strlcpy(ring->thread, name[0] ? name : "main", sizeof ring->thread);
    ovs_list_push_back(&rings, &ring->list_node);
    ovs_mutex_unlock(&mutex);
    xpthread_setspecific(ring_key, ring);
    *thread_ring_get() = ring;
    return ring;
}

/* Stops all rings after the calling thread's present event, unless they have
 * been stopped a short while ago.  Returns true if the calling thread has done
 * so. */
static bool
stop(void)
{
    uint64_t now = time_msec();
    int on = ON;

    if (now < cost_load(&restart_ms)
        || !atomic_compare_exchange_strong(&state, &on, STOPPING)) {
        return false;
    }
    cost_store(&restart_ms, now + HOLD_MS);
    return true;
}

/* A cost_span_observer: records the event of 'span', which has ended at
 * 'now'. */
static void
record(const struct cost_span *span, uint64_t now)
{
    const struct cost_kind *kind = span->recorder->kind;
    const struct cost_entry *entry = &span->entry;
    uint16_t known = entry->known | entry->watched;
    uint64_t log_ns = cost_load(&kind->config->log_ns);
    size_t total = cost_kind_total(kind);
    struct ring *ring = *thread_ring_get();
    atomic_uint64_t *w;
    uint64_t n, head;
    bool slow;
    int now_state;

    atomic_read_relaxed(&state, &now_state);
    if (now_state != ON || !(known & (1u << total))) {
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

    n = cost_load(&ring->n);
    w = ring->words[n % N_EVENTS];
    head = ((uint64_t) known << 40 | (uint64_t) entry->counter << 32
            | entry->class);
    if (OVS_UNLIKELY(slow) && stop()) {
        head |= EVENT_STOPPED;
        now_state = STOPPING;
    }
    atomic_thread_fence(memory_order_release);
    cost_store(&w[EVENT_END], now);
    cost_store(&w[EVENT_KIND], (uintptr_t) kind);
    cost_store(&w[EVENT_ACCOUNT], cost_account_id(span->recorder->account));
    cost_store(&w[EVENT_HEAD], head);
    cost_store(&w[EVENT_EXCLUDED], entry->excluded_ns);
    for (; known; known = zero_rightmost_1bit(known)) {
        size_t stage = raw_ctz(known);

        cost_store(&w[EVENT_STAGES + stage], entry->stages[stage]);
    }
    atomic_store_explicit(&ring->n, n + 1, memory_order_release);
    if (OVS_UNLIKELY(now_state == STOPPING)) {
        atomic_compare_exchange_strong(&state, &now_state, STOPPED);
    }
}

/* Reading. */

/* Copies the events of 'ring', the oldest one first, to 'events', N_EVENTS of
 * them.  Returns their number. */
static size_t
ring_read(const struct ring *ring, uint64_t (*events)[EVENT_WORDS])
{
    uint64_t first, before, after;

    atomic_read_explicit(CONST_CAST(atomic_uint64_t *, &ring->n), &before,
                         memory_order_acquire);
    first = before - MIN(before, N_EVENTS);
    for (uint64_t i = first; i < before; i++) {
        for (size_t j = 0; j < EVENT_WORDS; j++) {
            events[i - first][j] = cost_load(&ring->words[i % N_EVENTS][j]);
        }
    }
    atomic_thread_fence(memory_order_acquire);
    after = cost_load(&ring->n);

    /* Of an event that is being written, the oldest one may have a part. */
    if (after >= first + N_EVENTS) {
        size_t n_gone = MIN(after - first - N_EVENTS + 1, before - first);

        memmove(events, events + n_gone,
                (before - first - n_gone) * sizeof *events);
        return before - first - n_gone;
    }
    return before - first;
}

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

/* Returns the event 'w', which ended 'age_ns' before 'now_ns', nanoseconds
 * since the Epoch, in JSON. */
static struct json *
event_to_json(const uint64_t *w, struct shash *names, uint64_t now_ns,
              uint64_t age_ns)
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
    cost_put_integer(event, "begin_ns", now_ns - age_ns - length);
    cost_put_integer(event, "end_ns", now_ns - age_ns);
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

/* Returns the events of all threads that ended in the last 'max_ns', in
 * JSON. */
static struct json *
threads_to_json(uint64_t max_ns)
    OVS_REQUIRES(mutex)
{
    uint64_t (*events)[EVENT_WORDS] = xmalloc(N_EVENTS * sizeof *events);
    uint64_t now_ns = time_wall_usec() * UINT64_C(1000);
    uint64_t now = cost_clock_now(config.name, 0);
    struct shash names = SHASH_INITIALIZER(&names);
    struct json *array = json_array_create_empty();
    struct ring *ring;

    LIST_FOR_EACH (ring, list_node, &rings) {
        struct json *json = json_array_create_empty();
        struct json *thread = json_object_create();
        size_t n = ring_read(ring, events);

        for (size_t i = 0; i < n; i++) {
            uint64_t age = cost_clock_ns(cost_clock_ticks(events[i][EVENT_END],
                                                          now));

            /* It is unknown if the clock has changed.  An event that has
             * ended after 'now' is left to the next reply. */
            if (age <= max_ns && events[i][EVENT_END] <= now) {
                json_array_add(json, event_to_json(events[i], &names, now_ns,
                                                   age));
            }
        }
        json_object_put_string(thread, "thread", ring->thread);
        json_object_put(thread, "events", json);
        json_array_add(array, thread);
    }
    shash_destroy_free_data(&names);
    free(events);
    return array;
}

/* Keeps what is in the rings, if they have stopped, and lets them go on.  The
 * sampler calls this. */
void
cost_flight_run(void)
{
    int stopped = STOPPED;
    struct copy *copy;
    struct json *json;
    char *text;
    int now;

    atomic_read_relaxed(&state, &now);
    if (now != STOPPED) {
        return;
    }
    ovs_mutex_lock(&mutex);
    json = threads_to_json(COST_CLOCK_MAX_NS);
    text = json_to_string(json, 0);
    json_destroy(json);

    copy = &kept[n_kept++ % N_KEPT];
    cost_free(copy->threads, copy->size);
    copy->when_us = time_wall_usec();
    copy->size = strlen(text) + 1;
    copy->threads = cost_alloc(copy->size);
    memcpy(copy->threads, text, copy->size);
    free(text);
    atomic_compare_exchange_strong(&state, &stopped, ON);
    ovs_mutex_unlock(&mutex);
}

/* Returns the reply of "cost/flight" in JSON: what there is of the last
 * 'last_s' seconds, or all if that is 0, and what has been kept. */
struct json *
cost_flight_to_json(int last_s)
{
    struct json *json = cost_report_json_header("cost", "flight", &config);
    uint64_t max_ns = last_s * UINT64_C(1000000000);
    struct json *array = json_array_create_empty();
    int now;

    atomic_read_relaxed(&state, &now);
    json_object_put(json, "recording", json_boolean_create(now != OFF));
    ovs_mutex_lock(&mutex);
    json_object_put(json, "threads",
                    threads_to_json(max_ns ? max_ns : COST_CLOCK_MAX_NS));
    for (size_t i = n_kept - MIN(n_kept, N_KEPT); i < n_kept; i++) {
        const struct copy *copy = &kept[i % N_KEPT];
        struct json *object = json_object_create();
        struct ds threads = DS_EMPTY_INITIALIZER;

        ds_put_cstr(&threads, copy->threads);
        cost_put_integer(object, "when_us", copy->when_us);
        json_object_put(object, "threads", cost_serialized(&threads));
        json_array_add(array, object);
    }
    ovs_mutex_unlock(&mutex);
    json_object_put(json, "kept", array);
    return json;
}

/* Commands. */

static void
do_flight(void *last_s, struct unixctl_worker_reply *reply)
{
    struct json *json = cost_flight_to_json(*(int *) last_s);

    json_to_ds(json, reply->json ? 0 : JSSF_PRETTY, &reply->body);
    json_destroy(json);
    free(last_s);
}

static void
cost_flight(struct unixctl_conn *conn, int argc, const char *argv[],
            void *aux OVS_UNUSED)
{
    int last_s = 0;
    char *error = NULL;

    if (argc > 1 && strcmp(argv[1], "-last")) {
        error = xstrdup("usage: cost/flight [-last 10s|1m|5m|15m]");
    } else if (argc > 1) {
        error = cost_report_parse_last(argv[2], &last_s);
    }
    if (error) {
        unixctl_command_reply_error(conn, error);
        free(error);
    } else {
        int *arg = xmemdup(&last_s, sizeof last_s);

        if (!unixctl_worker_do(conn, do_flight, arg)) {
            free(arg);
        }
    }
}

/* Applies other_config:cost-flight in 'settings'. */
static void
apply(const struct smap *settings, bool enabled)
{
    bool on = enabled && smap_get_bool(settings, "cost-flight", false);
    int off = OFF;

    cost_span_observe(on ? record : NULL);
    if (!on) {
        atomic_store_relaxed(&state, OFF);
    } else {
        atomic_compare_exchange_strong(&state, &off, ON);
    }
}

/* Makes the setting apply, and registers the command "cost/flight". */
void
cost_flight_init(void)
{
    xpthread_key_create(&ring_key, ring_destroy);
    config.apply = apply;
    cost_config_register(&config);
    unixctl_command_register("cost/flight", "[-last 10s|1m|5m|15m]", 0, 2,
                             cost_flight, NULL);
}
