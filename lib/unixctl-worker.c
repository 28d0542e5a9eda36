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

#include "unixctl-worker.h"

#include "openvswitch/json.h"
#include "openvswitch/list.h"
#include "openvswitch/thread.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "seq.h"
#include "unixctl.h"
#include "util.h"

struct job {
    struct ovs_list list_node;          /* In 'new', 'todo' or 'done'. */
    struct unixctl_conn *conn;
    unixctl_worker_cb *cb;
    void *aux;
    struct unixctl_worker_reply reply;
};

/* What the worker wants the main thread to call. */
struct call {
    void (*cb)(void *aux);
    void *aux;
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;  /* For the worker. */
static struct ovs_list todo OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&todo);
static struct ovs_list done OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&done);
static struct call *call OVS_GUARDED_BY(mutex);
static bool held OVS_GUARDED_BY(mutex);  /* By a test. */

/* Changes when there is something for the main thread to do. */
static struct seq *main_seq;

/* Used by the main thread only. */
static struct ovs_list new = OVS_LIST_INITIALIZER(&new);
static size_t n_jobs;                   /* In all three lists. */
static uint64_t main_seqno;

/* The worker. */

static void *
worker_main(void *aux OVS_UNUSED)
{
    for (;;) {
        struct job *job;

        ovsrcu_quiesce_start();
        ovs_mutex_lock(&mutex);
        while (held || ovs_list_is_empty(&todo)) {
            ovs_mutex_cond_wait(&cond, &mutex);
        }
        job = CONTAINER_OF(ovs_list_pop_front(&todo), struct job, list_node);
        ovs_mutex_unlock(&mutex);
        ovsrcu_quiesce_end();

        job->cb(job->aux, &job->reply);

        ovs_mutex_lock(&mutex);
        ovs_list_push_back(&done, &job->list_node);
        ovs_mutex_unlock(&mutex);
        seq_change(main_seq);
    }
    return NULL;
}

/* Calls 'cb' with 'aux' in the main thread, and waits until that is done, for
 * a job that needs what only the main thread may use.  The calling thread is
 * quiescent meanwhile. */
void
unixctl_worker_call_main(void (*cb)(void *aux), void *aux)
{
    struct call request = { cb, aux };

    ovs_mutex_lock(&mutex);
    call = &request;
    ovs_mutex_unlock(&mutex);
    seq_change(main_seq);

    ovsrcu_quiesce_start();
    ovs_mutex_lock(&mutex);
    while (call) {
        ovs_mutex_cond_wait(&cond, &mutex);
    }
    ovs_mutex_unlock(&mutex);
    ovsrcu_quiesce_end();
}

/* The main thread. */

/* Has the worker call 'cb' with 'aux', to make the reply to the command that
 * came on 'conn', once the main thread has called unixctl_worker_run().
 * Returns false if the worker has too much to do already: then this has
 * replied so, and the caller keeps 'aux'. */
bool
unixctl_worker_do(struct unixctl_conn *conn, unixctl_worker_cb *cb, void *aux)
{
    struct job *job;

    if (n_jobs >= UNIXCTL_WORKER_MAX_JOBS) {
        char *error = xasprintf("%"PRIuSIZE" commands such as this one are in "
                                "progress, try again when one is done",
                                n_jobs);

        unixctl_command_reply_error(conn, error);
        free(error);
        return false;
    }

    if (!main_seq) {
        main_seq = seq_create();
        main_seqno = seq_read(main_seq);
        ovs_thread_create("unixctl_worker", worker_main, NULL);
    }

    job = xzalloc(sizeof *job);
    job->conn = conn;
    job->cb = cb;
    job->aux = aux;
    job->reply.json = (unixctl_command_get_output_format(conn)
                       == UNIXCTL_OUTPUT_FMT_JSON);
    ds_init(&job->reply.body);
    ovs_list_push_back(&new, &job->list_node);
    n_jobs++;
    return true;
}

/* Replies what has been made of 'job', and frees it. */
static void
job_finish(struct job *job)
{
    struct unixctl_worker_reply *reply = &job->reply;

    if (reply->error) {
        unixctl_command_reply_error(job->conn, reply->error);
    } else if (reply->json && reply->body.length) {
        /* It has been serialized already. */
        struct json *json
            = json_string_create_nocopy(ds_steal_cstr(&reply->body));

        json->type = JSON_SERIALIZED_OBJECT;
        unixctl_command_reply_json(job->conn, json);
    } else {
        unixctl_command_reply(job->conn, ds_cstr(&reply->body));
    }
    ds_destroy(&reply->body);
    free(reply->error);
    free(job);
}

/* Gives new jobs to the worker.  Does what the worker wants the main thread to
 * do, a job's reply and a call at most. */
void
unixctl_worker_run(void)
{
    struct call *request = NULL;
    struct job *job = NULL;
    uint64_t seqno;

    if (!main_seq) {
        return;
    }
    seqno = seq_read(main_seq);
    if (seqno == main_seqno && ovs_list_is_empty(&new)) {
        return;
    }

    ovs_mutex_lock(&mutex);
    if (!ovs_list_is_empty(&new)) {
        ovs_list_push_back_all(&todo, &new);
        xpthread_cond_signal(&cond);
    }
    if (!ovs_list_is_empty(&done)) {
        job = CONTAINER_OF(ovs_list_pop_front(&done), struct job, list_node);
    }
    if (ovs_list_is_empty(&done)) {
        main_seqno = seqno;
    }
    request = call;
    ovs_mutex_unlock(&mutex);

    if (job) {
        n_jobs--;
        job_finish(job);
    }
    if (request) {
        request->cb(request->aux);

        ovs_mutex_lock(&mutex);
        call = NULL;
        xpthread_cond_signal(&cond);
        ovs_mutex_unlock(&mutex);
    }
}

/* Makes the main thread's next poll_block() return when there is something
 * for unixctl_worker_run() to do. */
void
unixctl_worker_wait(void)
{
    if (main_seq) {
        seq_wait(main_seq, main_seqno);
    }
}

/* "unixctl/hold-worker": while it is "on", the worker begins no job. */
static void
hold_worker(struct unixctl_conn *conn, int argc OVS_UNUSED,
            const char *argv[], void *aux OVS_UNUSED)
{
    ovs_mutex_lock(&mutex);
    held = !strcmp(argv[1], "on");
    xpthread_cond_signal(&cond);
    ovs_mutex_unlock(&mutex);
    unixctl_command_reply(conn, NULL);
}

/* Registers the command for tests. */
void
unixctl_worker_dummy_register(void)
{
    unixctl_command_register("unixctl/hold-worker", "on|off", 1, 1,
                             hold_worker, NULL);
}
