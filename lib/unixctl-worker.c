/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "unixctl-worker.h"

#include "guarded-list.h"
#include "openvswitch/json.h"
#include "openvswitch/poll-loop.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "seq.h"
#include "unixctl.h"
#include "util.h"

struct job {
    struct ovs_list list_node;          /* In 'todo' or 'done'. */
    struct unixctl_conn *conn;
    unixctl_worker_cb *cb;
    void *aux;
    struct unixctl_worker_reply reply;
};

static struct guarded_list todo = GUARDED_OVS_LIST_INITIALIZER(&todo);
static struct guarded_list done = GUARDED_OVS_LIST_INITIALIZER(&done);
static struct seq *seq;                 /* Changes when something comes into
                                         * one of these. */
static atomic_bool held = false;        /* By a test. */

/* Used by the main thread only. */
static size_t n_jobs;                   /* That have no reply yet. */
static uint64_t main_seqno;

static struct job *
pop(struct guarded_list *list)
{
    struct ovs_list *node = guarded_list_pop_front(list);

    return node ? CONTAINER_OF(node, struct job, list_node) : NULL;
}

static void *
worker_main(void *aux OVS_UNUSED)
{
    for (;;) {
        uint64_t seqno = seq_read(seq);
        struct job *job;
        bool wait;

        atomic_read_relaxed(&held, &wait);
        job = wait ? NULL : pop(&todo);
        if (job) {
            job->cb(job->aux, &job->reply);
            guarded_list_push_back(&done, &job->list_node, SIZE_MAX);
            seq_change(seq);
            ovsrcu_quiesce();
        } else {
            seq_wait(seq, seqno);
            poll_block();
        }
    }
    return NULL;
}

/* Has the worker call 'cb' with 'aux', to make the reply to the command that
 * came on 'conn'.  Returns false if the worker has too much to do already:
 * then this has replied so, and the caller keeps 'aux'. */
bool
unixctl_worker_do(struct unixctl_conn *conn, unixctl_worker_cb *cb, void *aux)
{
    struct job *job;

    if (n_jobs >= UNIXCTL_WORKER_MAX_JOBS) {
        unixctl_command_reply_error(
            conn, OVS_STRINGIZE(UNIXCTL_WORKER_MAX_JOBS) " commands such as "
            "this one are in progress, try again when one is done");
        return false;
    }
    if (!seq) {
        seq = seq_create();
        ovs_thread_create("unixctl_worker", worker_main, NULL);
    }

    job = xmalloc(sizeof *job);
    *job = (struct job) {
        .conn = conn,
        .cb = cb,
        .aux = aux,
        .reply.json = (unixctl_command_get_output_format(conn)
                       == UNIXCTL_OUTPUT_FMT_JSON),
        .reply.body = DS_EMPTY_INITIALIZER,
    };
    n_jobs++;
    guarded_list_push_back(&todo, &job->list_node, SIZE_MAX);
    seq_change(seq);
    return true;
}

/* Sends the reply of one job, if any is done. */
void
unixctl_worker_run(void)
{
    struct unixctl_worker_reply *reply;
    struct job *job;
    uint64_t seqno;

    if (!n_jobs) {
        return;
    }
    seqno = seq_read(seq);
    job = pop(&done);
    if (guarded_list_is_empty(&done)) {
        main_seqno = seqno;
    }
    if (!job) {
        return;
    }

    reply = &job->reply;
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
    n_jobs--;
}

/* Makes the main thread's next poll_block() return when there is something
 * for unixctl_worker_run() to do. */
void
unixctl_worker_wait(void)
{
    if (n_jobs) {
        seq_wait(seq, main_seqno);
    }
}

/* "unixctl/hold-worker": while it is "on", the worker begins no job. */
static void
hold_worker(struct unixctl_conn *conn, int argc OVS_UNUSED,
            const char *argv[], void *aux OVS_UNUSED)
{
    atomic_store_relaxed(&held, !strcmp(argv[1], "on"));
    if (seq) {
        seq_change(seq);
    }
    unixctl_command_reply(conn, NULL);
}

/* Registers the command for tests. */
void
unixctl_worker_dummy_register(void)
{
    unixctl_command_register("unixctl/hold-worker", "on|off", 1, 1,
                             hold_worker, NULL);
}
