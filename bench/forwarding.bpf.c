/* SPDX-License-Identifier: Apache-2.0
 *
 * Forwards packets to one of two devices, for bench/forwarding.py: to that with
 * the index OUT1 if the last byte of the destination address is 2, to OUT2 if
 * it is 3. */

#include <linux/bpf.h>

static long (*const redirect)(unsigned int, unsigned long long)
    = (void *) BPF_FUNC_redirect;

__attribute__((section("xdp"), used)) int
forward(struct xdp_md *ctx)
{
    const unsigned char *data = (void *) (long) ctx->data;

    if (data + 14 > (unsigned char *) (long) ctx->data_end) {
        return XDP_DROP;
    }
    return (data[5] == 2 ? redirect(OUT1, 0)
            : data[5] == 3 ? redirect(OUT2, 0) : XDP_PASS);
}
