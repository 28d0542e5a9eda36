/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends packets for bench/forwarding.py:
 *
 *     forwarding DEVICE RATE SECONDS DESTINATIONS
 *
 * Sends the packet of 60 bytes in standard input RATE times a second, or as
 * often as possible if RATE is 0, in bursts, and prints how often it did.  The
 * last byte of the destination address is that of the packet plus 0, 1, ... in
 * turn. */

#define _GNU_SOURCE
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BURST = 32, SIZE = 60 };

static int64_t
now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

int
main(int argc, char *argv[])
{
    uint8_t frame[SIZE], frames[BURST][SIZE];
    struct iovec iovs[BURST];
    struct mmsghdr msgs[BURST] = { 0 };
    struct sockaddr_ll address = { .sll_family = AF_PACKET };
    int64_t end, due, gap, n = 0;
    int fd;

    if (argc != 5 || read(0, frame, SIZE) != SIZE) {
        return 2;
    }
    gap = atoi(argv[2]) ? INT64_C(1000000000) * BURST / atoi(argv[2]) : 0;
    for (int i = 0; i < BURST; i++) {
        memcpy(frames[i], frame, SIZE);
        frames[i][5] += i % atoi(argv[4]);
        iovs[i] = (struct iovec) { frames[i], SIZE };
        msgs[i].msg_hdr.msg_iov = &iovs[i];
        msgs[i].msg_hdr.msg_iovlen = 1;
    }

    /* Protocol 0: this socket receives nothing. */
    fd = socket(AF_PACKET, SOCK_RAW, 0);
    address.sll_ifindex = if_nametoindex(argv[1]);
    if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof address)) {
        perror("socket");
        return 1;
    }
    due = now_ns();
    end = due + atof(argv[3]) * 1e9;
    for (int64_t now = due; now < end; now = now_ns()) {
        if (now >= due) {
            int sent = sendmmsg(fd, msgs, BURST, 0);

            /* It stops at the first packet that the device drops. */
            n += (sent > 0 ? sent : 0) + (sent < BURST);
            /* What is late is not made up for by more at a time. */
            due = due + gap < now ? now : due + gap;
        }
    }
    printf("%lld\n", (long long) n);
    return 0;
}
