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
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdio.h>

#include "netlink.h"
#include "netlink-socket.h"
#include "openvswitch/ofpbuf.h"
#include "ovstest.h"
#include "util.h"

/* Dumps all links, and prints what nl_dump_done() returns. */
static void
test_netlink_dump(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    uint64_t stub[NL_DUMP_BUFSIZE / 8];
    struct ofpbuf request, reply, buf;
    struct nl_dump dump;
    size_t n_links = 0;
    int error;

    ofpbuf_init(&request, 0);
    nl_msg_put_nlmsghdr(&request, sizeof(struct ifinfomsg), RTM_GETLINK,
                        NLM_F_REQUEST);
    ofpbuf_put_zeros(&request, sizeof(struct ifinfomsg));
    nl_dump_start(&dump, NETLINK_ROUTE, &request);
    ofpbuf_uninit(&request);

    ofpbuf_use_stub(&buf, stub, sizeof stub);
    while (nl_dump_next(&dump, &reply, &buf)) {
        n_links++;
    }
    ofpbuf_uninit(&buf);
    error = nl_dump_done(&dump);

    ovs_assert(n_links > 0);
    printf("%s\n", (!error ? "complete"
                    : error == EINTR ? "interrupted" : ovs_strerror(error)));
}

OVSTEST_REGISTER("test-netlink-dump", test_netlink_dump);
