/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>
#undef NDEBUG

#include "netlink-cost.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "ovstest.h"
#include "util.h"

#ifdef __linux__

#include <linux/rtnetlink.h>
#include <net/if.h>

#include "netlink.h"
#include "netlink-socket.h"
#include "odp-netlink.h"
#include "openvswitch/json.h"
#include "openvswitch/ofpbuf.h"
#include "ovs-thread.h"

enum { OVS_FLOW = 40 };                 /* An nlmsg_type that is made up. */

static const char *const ops[NL_COST_N_OPS] = {
    [NL_COST_DUMP] = "dump",
    [NL_COST_TRANSACT] = "transact",
    [NL_COST_NOTIFY] = "notify",
};

/* Sets the clock so that the first stage of each call takes 2 us, the second
 * one 3 us, if all calls have 'n_stages'. */
static void
set_clock(size_t n_stages)
{
    static const uint64_t steps[] = { 1000, 2000, 3000 };

    cost_clock_set_test(nl_cost_kind.event, steps, 1 + n_stages);
}

/* Reads the account 'name'.  Returns false if there is no such account. */
static bool
read_account(const char *name, struct cost_reading *reading)
{
    static const struct cost_kind *const kinds[] = { &nl_cost_kind };
    struct cost_accounts all;
    bool found;

    cost_accounts_get(kinds, 1, name, 0, &all);
    found = all.n;
    if (found) {
        cost_account_take_slowest(all.accounts[0]);
        ovs_assert(cost_account_read(all.accounts[0], &all.from, reading));
    }
    cost_accounts_put(&all);
    return found;
}

/* Returns the numbers of the calls of 'op' in account 'name'. */
static struct cost_block *
read_calls(const char *name, enum nl_cost_op op)
{
    struct cost_reading reading;
    struct cost_block *block;

    ovs_assert(read_account(name, &reading));
    block = cost_book_sum(&reading.total, op);
    cost_reading_uninit(&reading);
    return block;
}

static void
print_count(uint64_t n, const char *noun)
{
    printf("%"PRIu64" %s%s", n, noun, n == 1 ? "" : "s");
}

/* Returns the time or number that each call of 'block' has for 'stage', which
 * must be the same for all, divided by 'unit'. */
static uint64_t
each(const struct cost_block *block, enum nl_cost_stage stage, size_t unit)
{
    const struct cost_hist *hist = &block->hists[stage];

    if (!cost_hist_count(hist)) {
        return 0;
    }
    ovs_assert(cost_load(&hist->min) == cost_load(&hist->max));
    return cost_load(&hist->min) / unit;
}

/* Prints how long the calls of 'op' in account 'name' took. */
static void
print_calls(const char *name, enum nl_cost_op op)
{
    struct cost_block *block = read_calls(name, op);

    printf("%s %s: ", name, ops[op]);
    print_count(cost_block_events(block), "call");
    printf(", %"PRIu64" + %"PRIu64" = %"PRIu64" us each",
           each(block, NL_COST_SEND, 1000), each(block, NL_COST_RECEIVE, 1000),
           each(block, NL_COST_TOTAL, 1000));
    if (cost_hist_count(&block->hists[NL_COST_REQUESTS])) {
        printf(", ");
        print_count(each(block, NL_COST_REQUESTS, 1), "request");
        printf(" each");
    }
    putchar('\n');
    cost_block_destroy(block);
}

static void
print_counters(const char *name, enum nl_cost_op op)
{
    struct cost_block *block = read_calls(name, op);

    printf("%s %s:", name, ops[op]);
    for (size_t i = 0; i < nl_cost_kind.n_counters; i++) {
        uint64_t n = cost_load(&block->counters[i]);

        if (n) {
            printf(" %s %"PRIu64, nl_cost_kind.counters[i].name, n);
        }
    }
    putchar('\n');
    cost_block_destroy(block);
}

/* Prints the slowest calls in account 'name', all of which must be of
 * 'op'. */
static void
print_slowest(const char *name, enum nl_cost_op op)
{
    struct cost_reading reading;

    ovs_assert(read_account(name, &reading));
    for (size_t i = 0; i < reading.n_slowest; i++) {
        const struct cost_slow *slow = reading.slowest[i];
        struct json *json = json_object_create();
        char *details;

        ovs_assert(slow->class == op);
        ovs_assert(!strcmp(slow->thread, "main"));
        nl_cost_put_details(name, &slow->stages[nl_cost_kind.n_stages], false,
                            json);
        details = json_to_string(json, JSSF_SORT);
        json_destroy(json);
        printf("%s slowest: %s %"PRIu64" + %"PRIu64" = %"PRIu64" us, %s\n",
               name, ops[op], slow->stages[NL_COST_SEND] / 1000,
               slow->stages[NL_COST_RECEIVE] / 1000,
               slow->total_ns / 1000, details);
        free(details);
    }
    cost_reading_uninit(&reading);
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
    uint64_t stub[NL_DUMP_BUFSIZE / 8];
    struct ofpbuf request, reply, buf;
    const struct cost_hist *bytes;
    struct cost_block *block;
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

    block = read_calls("addr", NL_COST_DUMP);
    printf("addr dump: %"PRIu64" sent, ",
           cost_hist_count(&block->hists[NL_COST_SEND]));
    print_count(cost_load(&block->hists[NL_COST_REQUESTS].sum), "request");
    printf(", %"PRIu64" us each\n", each(block, NL_COST_SEND, 1000));
    bytes = &block->hists[NL_COST_BYTES];
    ovs_assert(cost_hist_count(bytes) && cost_load(&bytes->sum));
    ovs_assert(cost_hist_count(bytes)
               == cost_hist_count(&block->hists[NL_COST_RECEIVE]));
    printf("addr dump: received, %"PRIu64" us each, bytes known\n",
           each(block, NL_COST_RECEIVE, 1000));
    cost_block_destroy(block);
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
    nl_cost_start(&call, NL_COST_TRANSACT, NETLINK_GENERIC, OVS_FLOW, NULL);
    nl_cost_sent(&call, 1);
    nl_cost_stop(&call, 0);
    return NULL;
}

static void
test_netlink_cost(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    static const int errors[] = { 0, EAGAIN, ENOBUFS, EINVAL };
    struct cost_reading reading;
    struct cost_block *block;
    struct ofpbuf request;
    struct nl_cost call;

    test_transact();
    ovs_assert(!read_account(NULL, &reading));
    printf("off: no account\n");

    nl_cost_init();
    set_clock(1);
    test_dump();

    set_clock(2);
    test_transact();
    print_calls("link", NL_COST_TRANSACT);
    print_counters("link", NL_COST_TRANSACT);
    print_slowest("link", NL_COST_TRANSACT);

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
    print_calls("ovs_flow", NL_COST_TRANSACT);
    print_slowest("ovs_flow", NL_COST_TRANSACT);
    block = read_calls("ovs_flow", NL_COST_TRANSACT);
    printf("ovs_flow transact: %"PRIu64" bytes\n",
           cost_load(&block->hists[NL_COST_BYTES].sum));
    cost_block_destroy(block);

    set_clock(1);
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        nl_cost_start(&call, NL_COST_DUMP, NETLINK_GENERIC, OVS_FLOW, NULL);
        receive(&call, errors[i], OVS_FLOW, NLM_F_MULTI);
        nl_cost_stop(&call, errors[i]);
    }
    nl_cost_start(&call, NL_COST_DUMP, NETLINK_GENERIC, OVS_FLOW, NULL);
    receive(&call, 0, OVS_FLOW, NLM_F_MULTI | NLM_F_DUMP_INTR);
    nl_cost_stop(&call, 0);
    print_counters("ovs_flow", NL_COST_DUMP);

    nl_cost_start(&call, NL_COST_NOTIFY, NETLINK_ROUTE, 0, NULL);
    receive(&call, 0, RTM_NEWNEIGH, 0);
    nl_cost_stop(&call, 0);
    print_calls("neigh", NL_COST_NOTIFY);
    print_slowest("neigh", NL_COST_NOTIFY);
    nl_cost_start(&call, NL_COST_NOTIFY, NETLINK_ROUTE, 0, NULL);
    receive(&call, EAGAIN, 0, 0);
    nl_cost_stop(&call, EAGAIN);
    print_counters("rtnetlink", NL_COST_NOTIFY);

    nl_cost_start(&call, NL_COST_TRANSACT, NETLINK_GENERIC, OVS_FLOW + 1,
                  NULL);
    nl_cost_sent(&call, 1);
    nl_cost_stop(&call, 0);
    print_calls("generic", NL_COST_TRANSACT);
    print_slowest("generic", NL_COST_TRANSACT);

    /* A thread has numbers of its own, which survive it. */
    xpthread_join(ovs_thread_create("other", other_thread, NULL), NULL);
    ovs_assert(read_account("ovs_flow", &reading));
    for (size_t i = 0; i < reading.n_threads; i++) {
        if (!strcmp(reading.threads[i].name, "exited")) {
            printf("thread: ");
            print_count(cost_book_events(&reading.threads[i].book,
                                         COST_ALL_CLASSES), "call");
            putchar('\n');
        }
    }
    cost_reading_uninit(&reading);

    nl_cost_start(&call, NL_COST_NOTIFY, NETLINK_GENERIC, 0, NULL);
    receive(&call, 0, UINT16_MAX, 0);
    nl_cost_stop(&call, 0);
    ovs_assert(!call.span.recorder);
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
