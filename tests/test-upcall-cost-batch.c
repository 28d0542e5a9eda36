/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>
#undef NDEBUG

#include "upcall-cost-kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dp-packet.h"
#include "dpif-provider.h"
#include "netlink.h"
#include "odp-util.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/ofpbuf.h"
#include "ovstest.h"
#include "smap.h"
#include "upcall-cost.h"
#include "util.h"

/* Batches of upcalls from the kernel, without a kernel: the hooks are called
 * as a handler thread calls them, with a clock that a test sets. */

static const struct cost_kind *const kinds[] = { &upcall_cost_kernel_kind };

/* What the clock advances by with each of its next readings. */
static uint64_t steps[64];
static size_t n_steps;

static void
configure(bool on, int sample_interval)
{
    struct smap config = SMAP_INITIALIZER(&config);

    smap_add(&config, "cost-accounting", on ? "true" : "false");
    smap_add_format(&config, "cost-sample-interval", "%d", sample_interval);
    cost_configure(&config);
    smap_destroy(&config);
}

/* Adds 'n' readings, each of which advances the clock by 'step' times one more
 * us than the one before: 1, 2, 3 us if it is 1, 10, 20, 30 us if it is 10. */
static void
add_steps(size_t n, unsigned int step)
{
    for (size_t i = 1; i <= n; i++) {
        ovs_assert(n_steps < ARRAY_SIZE(steps));
        steps[n_steps++] = i * step * 1000;
    }
}

static void
start_clock(void)
{
    cost_clock_set_test("upcall", steps, n_steps);
    n_steps = 0;
}

/* Lets 1 ns pass at each reading. */
static void
start_steady_clock(void)
{
    add_steps(1, 1);
    start_clock();
}

/* An upcall. */
struct request {
    struct dpif_upcall dupcall;
    struct flow flow;
    struct ofpbuf actions, userdata;
};

/* Initializes 'r' as a miss, or if 'cookie_type' is not negative, as what it
 * stands for.  'features' are those of the packet, 'actions' are the
 * datapath's. */
static void
request_init(struct request *r, int cookie_type, unsigned int features,
             const char *actions)
{
    memset(r, 0, sizeof *r);
    dp_packet_init(&r->dupcall.packet, 0);
    dp_packet_put_zeros(&r->dupcall.packet, 60);
    ofpbuf_init(&r->actions, 0);
    ofpbuf_init(&r->userdata, 0);
    if (odp_actions_from_string(actions, NULL, &r->actions)) {
        ovs_fatal(0, "%s: bad actions", actions);
    }
    r->dupcall.type = DPIF_UC_MISS;
    if (cookie_type >= 0) {
        struct user_action_cookie cookie = { .type = cookie_type };

        nl_msg_put_unspec(&r->userdata, OVS_USERSPACE_ATTR_USERDATA, &cookie,
                          sizeof cookie);
        r->dupcall.type = DPIF_UC_ACTION;
        r->dupcall.userdata = r->userdata.data;
    }
    if (features & UPCALL_COST_CT) {
        r->flow.ct_state = CS_TRACKED;
    }
    if (features & UPCALL_COST_NAT) {
        r->flow.ct_state |= CS_SRC_NAT;
    }
    if (features & UPCALL_COST_RECIRC) {
        r->flow.recirc_id = 1;
    }
    if (features & UPCALL_COST_TUNNEL) {
        r->flow.tunnel.ip_dst = htonl(0x01020304);
    }
}

static void
request_uninit(struct request *r)
{
    dp_packet_uninit(&r->dupcall.packet);
    ofpbuf_uninit(&r->actions);
    ofpbuf_uninit(&r->userdata);
}

/* Receives and translates 'r', with the result 'error'. */
static void
translate(struct request *r, int error)
{
    upcall_cost_received();
    cost_lap(&upcall_cost_kernel_kind, UPCALL_COST_K_PARSE);
    upcall_cost_translated(&r->dupcall, &r->flow, &r->actions, error);
}

/* Completes a batch of 'n' upcalls for which there is nothing to install. */
static void
complete_batch(size_t n)
{
    upcall_cost_batch_complete();
    for (size_t i = 0; i < n; i++) {
        upcall_cost_installed(NULL);
    }
    upcall_cost_operating();
    upcall_cost_operated();
    upcall_cost_batch_stop();
}

/* Has a batch of 'n' upcalls, of the 'n_requests' at 'requests' in turn, for
 * which there is nothing to install. */
static void
simple_batch(struct cost_recorder *recorder, struct request *requests,
             size_t n_requests, size_t n)
{
    struct upcall_cost_batch batch;

    upcall_cost_batch_start(&batch, recorder);
    for (size_t i = 0; i < n; i++) {
        translate(&requests[i % n_requests], 0);
    }
    complete_batch(n);
}

/* Prints the numbers of 'block', of the class 'name'. */
static void
print_class(const struct cost_block *block, const char *name)
{
    const struct cost_kind *kind = block->kind;

    printf("  %s %"PRIu64":", name, cost_block_events(block));
    for (size_t i = 0; i < kind->n_stages; i++) {
        const struct cost_hist *hist = &block->hists[i];

        if (cost_hist_count(hist)) {
            printf(" %s %"PRIu64"/%"PRIu64, kind->stages[i].name,
                   (cost_load(&hist->sum)
                    / (cost_stage_is_number(kind, i) ? 1 : 1000)),
                   cost_hist_count(hist));
        }
    }
    for (size_t i = 0; i < kind->n_counters; i++) {
        uint64_t n = cost_load(&block->counters[i]);

        if (n) {
            printf(" %s=%"PRIu64, kind->counters[i].name, n);
        }
    }
    printf("\n");
}

/* Prints the rows of 'sketch', classes with features: their events, samples
 * and time. */
static void
print_features(const struct cost_sketch *sketch)
{
    for (size_t i = 0; i < sketch->n; i++) {
        const struct cost_row *row = &sketch->rows[i];

        ovs_assert(!row->error && !row->lost && !row->group[0]);
        printf("  %s: %"PRIu64" from %"PRIu64", total %"PRIu64"\n", row->name,
               row->events, row->n_samples, row->time_ns / 1000);
    }
}

/* Prints what has been recorded by handlers since it was last printed. */
static void
print_account(const char *what)
{
    struct cost_reading reading;
    struct cost_accounts all;

    printf("%s\n", what);
    cost_accounts_get(kinds, 1, NULL, 0, &all);
    ovs_assert(all.n == 1);
    ovs_assert(cost_account_read(all.accounts[0], &all.from, &reading));
    for (size_t i = 0; i < reading.total.n_classes; i++) {
        if (reading.total.classes[i]) {
            struct ds name = DS_EMPTY_INITIALIZER;

            reading.kind->format_class(i, &name);
            print_class(reading.total.classes[i], ds_cstr(&name));
            ds_destroy(&name);
        }
    }
    print_features(&reading.total.keys[UPCALL_COST_FEATURES]);
    cost_reading_uninit(&reading);
    cost_accounts_put(&all);
    cost_accounts_clear(kinds, 1, NULL);
}

/* A batch in which each interval between two points in time is another one.
 * Of these upcalls, the third one takes no part in the batch, and the fourth
 * and the fifth one fail. */
static void
test_stages(struct cost_recorder *recorder)
{
    struct dpif_op put = { .error = 0 };
    struct upcall_cost_batch batch;
    struct request miss, slow, sflow;

    request_init(&miss, -1, 0, "1");
    request_init(&slow, USER_ACTION_COOKIE_SLOW_PATH, 0, "1");
    request_init(&sflow, USER_ACTION_COOKIE_SFLOW, 0, "drop");

    add_steps(3, 1);                    /* 1, 2, 3 us: miss. */
    add_steps(3, 10);                   /* 10, 20, 30 us: slow path. */
    add_steps(3, 100);                  /* 100, 200, 300 us: sFlow. */
    add_steps(1, 5);                    /* Received, but not parsed. */
    add_steps(2, 6);                    /* Parsed, but not translated. */
    add_steps(3, 1000);                 /* Complete, operating, operated. */
    start_clock();
    upcall_cost_batch_start(&batch, recorder);
    translate(&miss, 0);
    translate(&slow, 0);
    translate(&sflow, EAGAIN);
    upcall_cost_received();
    upcall_cost_failed(&miss.dupcall, EINVAL);
    upcall_cost_received();
    cost_lap(&upcall_cost_kernel_kind, UPCALL_COST_K_PARSE);
    upcall_cost_translated(&sflow.dupcall, &sflow.flow, &sflow.actions,
                           ENODEV);
    upcall_cost_batch_complete();
    upcall_cost_installed(&put);
    upcall_cost_installed(NULL);
    upcall_cost_operating();
    upcall_cost_operated();
    upcall_cost_batch_stop();
    print_account("stages");

    /* Outside of a batch. */
    upcall_cost_received();
    cost_lap(&upcall_cost_kernel_kind, UPCALL_COST_K_PARSE);
    upcall_cost_failed(&miss.dupcall, EINVAL);
    upcall_cost_batch_complete();
    upcall_cost_operated();
    print_account("no batch");

    request_uninit(&miss);
    request_uninit(&slow);
    request_uninit(&sflow);
}

/* Of packets that had waited, each did for 7 us more than the one before. */
static void
test_waited(struct cost_recorder *recorder)
{
    struct upcall_cost_batch batch;
    struct request miss;

    request_init(&miss, -1, 0, "1");
    start_steady_clock();
    upcall_cost_batch_start(&batch, recorder);
    for (size_t i = 0; i < 3; i++) {
        batch.upcalls[batch.n].waited_ns = (i + 1) * 7000;
        translate(&miss, 0);
    }
    /* Of the last one it is not known. */
    translate(&miss, 0);
    complete_batch(4);
    print_account("waited");
    request_uninit(&miss);
}

/* What becomes of flows. */
static void
test_flows(struct cost_recorder *recorder)
{
    static const int errors[] = { 0, 0, 0, EEXIST, EEXIST, ENOSPC };
    static const enum upcall_cost_counter counters[] = {
        UPCALL_COST_FLOW_LIMIT, UPCALL_COST_NO_RECIRC, UPCALL_COST_DUPLICATE
    };
    struct dpif_op puts[ARRAY_SIZE(errors)];
    struct upcall_cost_batch batch;
    struct request miss;

    request_init(&miss, -1, 0, "1");
    start_steady_clock();
    upcall_cost_batch_start(&batch, recorder);
    for (size_t i = 0; i < ARRAY_SIZE(errors) + ARRAY_SIZE(counters) + 1;
         i++) {
        translate(&miss, 0);
    }
    upcall_cost_batch_complete();
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        puts[i].error = 0;
        upcall_cost_installed(&puts[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
        /* Of whichever datapath. */
        cost_outcome(i ? &upcall_cost_kernel_kind : &upcall_cost_netdev_kind,
                     counters[i]);
        upcall_cost_installed(NULL);
    }
    upcall_cost_installed(NULL);
    upcall_cost_operating();
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        puts[i].error = errors[i];
    }
    upcall_cost_operated();
    upcall_cost_batch_stop();
    print_account("flows");
    request_uninit(&miss);
}

/* Each class, and each way to get a feature. */
static void
test_classes(struct cost_recorder *recorder)
{
    static const struct {
        int cookie_type;
        unsigned int features;
        const char *actions;
    } requests[] = {
        { -1, 0, "1" },
        { -1, UPCALL_COST_CT, "1" },
        { -1, UPCALL_COST_CT | UPCALL_COST_NAT, "1" },
        { -1, UPCALL_COST_RECIRC, "1" },
        { -1, UPCALL_COST_TUNNEL, "1" },
        { -1, 0, "ct(commit),recirc(1)" },
        { -1, UPCALL_COST_RECIRC, "ct(nat(src=10.0.0.1)),recirc(1)" },
        { -1, 0, "set(tunnel(tun_id=1,dst=1.2.3.4,ttl=64,flags(df|key))),2" },
        { -1, 0, "tnl_pop(3)" },
        { -1, 0, "set(eth(src=00:01:02:03:04:05)),push_vlan(vid=1,pcp=0),2" },
        { -1, 0, "clone(ct(commit)),1" },
        { -1, 0, "sample(sample=50%,actions(ct(nat)))" },
        { -1, 0, "check_pkt_len(size=200,gt(set(tunnel(tun_id=0x1,dst=1.2.3.4,"
                 "ttl=64,flags(df|key))),1),le(ct))" },
        { USER_ACTION_COOKIE_SLOW_PATH, 0, "1" },
        { USER_ACTION_COOKIE_CONTROLLER, UPCALL_COST_CT, "1" },
        { USER_ACTION_COOKIE_SFLOW, UPCALL_COST_TUNNEL, "1" },
        { USER_ACTION_COOKIE_IPFIX, UPCALL_COST_RECIRC, "1" },
        { USER_ACTION_COOKIE_FLOW_SAMPLE, 0, "1" },
    };
    struct request bad;

    start_steady_clock();
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        struct request r;

        request_init(&r, requests[i].cookie_type, requests[i].features,
                     requests[i].actions);
        simple_batch(recorder, &r, 1, 1);
        request_uninit(&r);
    }

    /* Those that make no sense are lost: without userdata, with too little,
     * and with some of no known type. */
    for (size_t i = 0; i < 3; i++) {
        struct upcall_cost_batch batch;

        request_init(&bad, USER_ACTION_COOKIE_UNSPEC, 0, "1");
        if (i == 0) {
            bad.dupcall.userdata = NULL;
        } else if (i == 1) {
            bad.dupcall.userdata->nla_len -= 4;
        }
        upcall_cost_batch_start(&batch, recorder);
        upcall_cost_received();
        upcall_cost_failed(&bad.dupcall, EAGAIN);
        complete_batch(0);
        request_uninit(&bad);
    }
    print_account("classes");
}

/* Upcalls with and without a feature in one batch. */
static void
test_mixed(struct cost_recorder *recorder)
{
    struct request requests[2];

    request_init(&requests[0], -1, 0, "1");
    request_init(&requests[1], -1, UPCALL_COST_CT, "1");
    start_steady_clock();
    simple_batch(recorder, requests, ARRAY_SIZE(requests), 4);
    print_account("mixed");
    request_uninit(&requests[0]);
    request_uninit(&requests[1]);
}

static void
test_upcall_cost_batch(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    static const struct dpif_class class = { .type = "system" };
    struct cost_recorder *recorder;
    struct cost_account *account;
    struct request miss;
    struct dpif dpif;

    dpif_init(&dpif, &class, "test", 0, 0);
    account = upcall_cost_kernel_create(&dpif);
    recorder = cost_recorder_create(account, "main");
    configure(true, 1);
    test_stages(recorder);
    test_waited(recorder);
    test_flows(recorder);
    test_classes(recorder);
    test_mixed(recorder);

    /* A full batch, and one of which accounting is told nothing. */
    request_init(&miss, -1, 0, "1");
    start_steady_clock();
    simple_batch(recorder, &miss, 1, UPCALL_COST_MAX_BATCH);
    print_account("full batch");
    configure(false, 1);
    simple_batch(recorder, &miss, 1, 3);
    print_account("off");
    configure(true, 1);
    simple_batch(NULL, &miss, 1, 3);
    print_account("no recorder");

    /* Of upcalls that are not split, only the total is known, although the
     * clock is read for the stages of those that are watched. */
    configure(true, 65536);
    start_steady_clock();
    simple_batch(recorder, &miss, 1, 4);
    print_account("not split");
    request_uninit(&miss);

    cost_recorder_destroy(recorder);
    upcall_cost_kernel_destroy(account);
    dpif_uninit(&dpif, false);
}

OVSTEST_REGISTER("test-upcall-cost-batch", test_upcall_cost_batch);
