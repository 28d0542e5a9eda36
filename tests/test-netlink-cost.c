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
#undef NDEBUG

#include "netlink-cost.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ovstest.h"
#include "util.h"

#ifdef __linux__

#include <linux/rtnetlink.h>
#include <net/if.h>

#include "netlink.h"
#include "netlink-socket.h"
#include "odp-netlink.h"
#include "openvswitch/ofpbuf.h"
#include "ovs-thread.h"

enum { OVS_FLOW = 40 };                 /* An nlmsg_type that is made up. */

static const struct cost_kind *const kinds[] = { &nl_cost_kind };

/* Returns the only snapshot of the account 'name', or NULL if there is no such
 * account. */
static struct cost_account_snapshot *
read_account(const char *name)
{
    struct cost_account_snapshot *account = NULL;
    struct cost_accounts all;

    cost_accounts_get(kinds, 1, name, &all);
    ovs_assert(all.n <= 1);
    if (all.n) {
        account = xmalloc(sizeof *account);
        cost_account_read(all.accounts[0], true, account);
    }
    cost_accounts_put(&all);
    return account;
}

static void
free_account(struct cost_account_snapshot *account)
{
    if (account) {
        cost_account_snapshot_uninit(account);
        free(account);
    }
}

static void
print_count(uint64_t n, const char *noun)
{
    printf("%"PRIu64" %s%s", n, noun, n == 1 ? "" : "s");
}

/* Returns what each event in 'hist' has, which must be the same, in
 * 'unit's. */
static uint64_t
each(const struct cost_hist_snapshot *hist, unsigned int unit)
{
    if (!hist->count) {
        return 0;
    }
    ovs_assert(hist->min == hist->max);
    return hist->min / unit;
}

/* Prints how long the calls of 'op' in account 'name' took. */
static void
print_calls(const char *name, enum nl_cost_op op, const char *op_name)
{
    struct cost_account_snapshot *account = read_account(name);
    struct cost_hist_snapshot stages[NL_COST_N_STAGES];

    for (size_t i = 0; i < NL_COST_N_STAGES; i++) {
        cost_snapshot_stage(&account->total, op, i, &stages[i]);
    }
    printf("%s %s: ", name, op_name);
    print_count(stages[NL_COST_TOTAL].count, "call");
    printf(", %"PRIu64" + %"PRIu64" = %"PRIu64" us each",
           each(&stages[NL_COST_SEND], 1000),
           each(&stages[NL_COST_RECEIVE], 1000),
           each(&stages[NL_COST_TOTAL], 1000));
    if (stages[NL_COST_REQUESTS].count) {
        printf(", ");
        print_count(each(&stages[NL_COST_REQUESTS], 1), "request");
        printf(" each");
    }
    putchar('\n');
    free_account(account);
}

static void
print_counters(const char *name, enum nl_cost_op op, const char *op_name)
{
    struct cost_account_snapshot *account = read_account(name);

    printf("%s %s:", name, op_name);
    for (size_t i = 0; i < NL_COST_N_COUNTERS; i++) {
        uint64_t n = cost_snapshot_counter(&account->total, op, i);

        if (n) {
            printf(" %s %"PRIu64, nl_cost_kind.counters[i], n);
        }
    }
    putchar('\n');
    free_account(account);
}

/* Prints the slowest calls in account 'name', all of which must be of
 * 'op'. */
static void
print_slowest(const char *name, enum nl_cost_op op, const char *op_name)
{
    struct cost_account_snapshot *account = read_account(name);
    struct ds details = DS_EMPTY_INITIALIZER;

    for (size_t i = 0; i < account->total.n_slowest; i++) {
        const struct cost_slow_event *event = &account->total.slowest[i];

        ovs_assert(event->class == op);
        ovs_assert(!strcmp(event->thread, "main"));
        ds_clear(&details);
        nl_cost_format_details(name, event->details, &details);
        printf("%s slowest: %s %"PRIu64" + %"PRIu64" = %"PRIu64" us, %s\n",
               name, op_name, event->stages[NL_COST_SEND] / 1000,
               event->stages[NL_COST_RECEIVE] / 1000, event->total_ns / 1000,
               ds_cstr(&details));
    }
    ds_destroy(&details);
    free_account(account);
}

static void
put_link_request(struct ofpbuf *request, unsigned int ifindex)
{
    struct ifinfomsg *ifi;

    ofpbuf_init(request, 0);
    nl_msg_put_nlmsghdr(request, sizeof *ifi, RTM_GETLINK, NLM_F_REQUEST);
    ifi = ofpbuf_put_zeros(request, sizeof *ifi);
    ifi->ifi_index = ifindex;
}

/* Asks the kernel for the loopback device, by its index and by its name, and
 * for one that does not exist. */
static void
test_transact(void)
{
    struct ofpbuf request, *reply;

    put_link_request(&request, if_nametoindex("lo"));
    ovs_assert(!nl_transact(NETLINK_ROUTE, &request, &reply));
    ofpbuf_delete(reply);
    ofpbuf_uninit(&request);

    put_link_request(&request, 0);
    nl_msg_put_string(&request, IFLA_IFNAME, "lo");
    ovs_assert(!nl_transact(NETLINK_ROUTE, &request, &reply));
    ofpbuf_delete(reply);
    ofpbuf_uninit(&request);

    put_link_request(&request, INT_MAX);
    ovs_assert(nl_transact(NETLINK_ROUTE, &request, NULL) == ENODEV);
    ofpbuf_uninit(&request);
}

/* Asks the kernel for all addresses. */
static void
test_dump(void)
{
    struct cost_hist_snapshot send, receive, requests, bytes;
    uint64_t stub[NL_DUMP_BUFSIZE / 8];
    struct cost_account_snapshot *account;
    struct ofpbuf request, reply, buf;
    struct ifaddrmsg *ifa;
    struct nl_dump dump;

    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof *ifa, RTM_GETADDR, NLM_F_REQUEST);
    ifa = ofpbuf_put_zeros(&request, sizeof *ifa);
    nl_dump_start(&dump, NETLINK_ROUTE, &request);
    ofpbuf_uninit(&request);
    ofpbuf_use_stub(&buf, stub, sizeof stub);
    while (nl_dump_next(&dump, &reply, &buf)) {
        /* Nothing to do. */
    }
    ofpbuf_uninit(&buf);
    ovs_assert(!nl_dump_done(&dump));

    account = read_account("addr");
    cost_snapshot_stage(&account->total, NL_COST_DUMP, NL_COST_SEND, &send);
    cost_snapshot_stage(&account->total, NL_COST_DUMP, NL_COST_RECEIVE,
                        &receive);
    cost_snapshot_stage(&account->total, NL_COST_DUMP, NL_COST_REQUESTS,
                        &requests);
    cost_snapshot_stage(&account->total, NL_COST_DUMP, NL_COST_BYTES, &bytes);
    printf("addr dump: %"PRIu64" sent, ", send.count);
    print_count(requests.sum, "request");
    printf(", %"PRIu64" us each\n", each(&send, 1000));
    ovs_assert(receive.count && receive.count == bytes.count && bytes.sum);
    printf("addr dump: received, %"PRIu64" us each, bytes known\n",
           each(&receive, 1000));
    free_account(account);
}

/* Receives a message of 'type' with 'flags', about ifindex 0x7f7f7f7f, or
 * 'error', in 'call'. */
static void
receive(struct nl_cost *call, int error, uint16_t type, uint16_t flags)
{
    static uint64_t stub[128];
    static struct ofpbuf buf;

    ofpbuf_use_stack(&buf, stub, sizeof stub);
    nl_msg_put_nlmsghdr(&buf, 0, type, flags);
    memset(ofpbuf_put_zeros(&buf, 100 - buf.size), 0x7f, 8);
    nl_cost_received(call, error, &buf);
}

static void *
other_thread(void *aux OVS_UNUSED)
{
    struct nl_cost call;

    set_subprogram_name("other/id:1");
    nl_cost_start(&call, NL_COST_TRANSACT, NETLINK_GENERIC, OVS_FLOW,
                  NULL);
    nl_cost_sent(&call, 1);
    nl_cost_stop(&call, 0);
    return NULL;
}

static void
test_netlink_cost(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    static const int errors[] = { 0, EAGAIN, ENOBUFS, EINVAL };
    struct cost_account_snapshot *account;
    struct cost_hist_snapshot bytes;
    struct ofpbuf request;
    struct nl_cost call;

    test_transact();
    ovs_assert(!read_account(NULL));
    printf("off: no account\n");

    nl_cost_init();
    atomic_store_relaxed(&cost_clock.mult, 1u << COST_CLOCK_SHIFT);
    atomic_store_relaxed(&cost_clock.source, (int) COST_CLOCK_TEST);

    test_dump();
    test_transact();
    print_calls("link", NL_COST_TRANSACT, "transact");
    print_counters("link", NL_COST_TRANSACT, "transact");
    print_slowest("link", NL_COST_TRANSACT, "transact");

    nl_cost_define_family(OVS_FLOW, "ovs_flow");
    nl_cost_define_family(OVS_FLOW + 1, "no_such_family");
    nl_cost_define_family(UINT16_MAX, "ovs_flow");
    ofpbuf_init(&request, 0);
    nl_msg_put_genlmsghdr(&request, 0, OVS_FLOW, 0, OVS_FLOW_CMD_GET, 1);
    nl_cost_start(&call, NL_COST_TRANSACT, NETLINK_GENERIC, 0, &request);
    nl_cost_sent(&call, 7);
    for (int i = 0; i < 3; i++) {
        receive(&call, 0, OVS_FLOW, 0);
    }
    receive(&call, EAGAIN, 0, 0);
    nl_cost_stop(&call, 0);
    ofpbuf_uninit(&request);
    print_calls("ovs_flow", NL_COST_TRANSACT, "transact");
    print_slowest("ovs_flow", NL_COST_TRANSACT, "transact");
    account = read_account("ovs_flow");
    cost_snapshot_stage(&account->total, NL_COST_TRANSACT, NL_COST_BYTES,
                        &bytes);
    printf("ovs_flow transact: %"PRIu64" bytes\n", bytes.sum);
    free_account(account);

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        nl_cost_start(&call, NL_COST_DUMP, NETLINK_GENERIC, OVS_FLOW,
                  NULL);
        receive(&call, errors[i], OVS_FLOW, NLM_F_MULTI);
        nl_cost_stop(&call, errors[i]);
    }
    nl_cost_start(&call, NL_COST_DUMP, NETLINK_GENERIC, OVS_FLOW,
                  NULL);
    receive(&call, 0, OVS_FLOW, NLM_F_MULTI | NLM_F_DUMP_INTR);
    nl_cost_stop(&call, 0);
    print_counters("ovs_flow", NL_COST_DUMP, "dump");

    nl_cost_start(&call, NL_COST_NOTIFY, NETLINK_ROUTE, 0, NULL);
    receive(&call, 0, RTM_NEWNEIGH, 0);
    nl_cost_stop(&call, 0);
    print_calls("neigh", NL_COST_NOTIFY, "notify");
    print_slowest("neigh", NL_COST_NOTIFY, "notify");
    nl_cost_start(&call, NL_COST_NOTIFY, NETLINK_ROUTE, 0, NULL);
    receive(&call, EAGAIN, 0, 0);
    nl_cost_stop(&call, EAGAIN);
    print_counters("rtnetlink", NL_COST_NOTIFY, "notify");

    nl_cost_start(&call, NL_COST_TRANSACT, NETLINK_GENERIC, OVS_FLOW + 1,
                  NULL);
    nl_cost_sent(&call, 1);
    nl_cost_stop(&call, 0);
    print_calls("generic", NL_COST_TRANSACT, "transact");
    print_slowest("generic", NL_COST_TRANSACT, "transact");

    /* A thread has numbers of its own, which survive it. */
    xpthread_join(ovs_thread_create("other", other_thread, NULL), NULL);
    account = read_account("ovs_flow");
    for (size_t i = 0; i < account->n_threads; i++) {
        if (!strcmp(account->threads[i].thread, "exited")) {
            printf("thread: ");
            print_count(cost_snapshot_count(&account->threads[i],
                                            COST_ALL_CLASSES), "call");
            putchar('\n');
        }
    }
    free_account(account);

    nl_cost_start(&call, NL_COST_NOTIFY, NETLINK_GENERIC, 0, NULL);
    receive(&call, 0, UINT16_MAX, 0);
    nl_cost_stop(&call, 0);
    ovs_assert(!call.last);
    printf("on upcall sockets: no account\n");
}

#else /* !__linux__ */

static void
test_netlink_cost(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    exit(77);
}

#endif

OVSTEST_REGISTER("test-netlink-cost", test_netlink_cost);
