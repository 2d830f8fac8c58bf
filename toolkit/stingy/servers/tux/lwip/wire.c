/* Transfers packets between lwIP and a network device of the kernel, by packet(7) sockets: they arrive in a ring
 * that is shared with the kernel, without system calls, and leave many at a time (sendmmsg), straight from lwIP's
 * memory.
 *
 * For a veth(4) device: the kernel at its other end neither computes nor checks TCP checksums of packets that stay
 * in memory, so neither does this side. A packet that goes out is marked as one whose checksum the device
 * completes. */
#define _GNU_SOURCE
#include "net.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <lwip/etharp.h>
#include <lwip/init.h>
#include <lwip/netif.h>
#include <lwip/prot/ip.h>
#include <lwip/prot/tcp.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In the ring every connection of a benchmark may have a packet; one frame holds the largest. */
enum { FRAME_BYTES = 2048, FRAMES = 16384, BLOCK_BYTES = 1 << 20, MTU = 1500, QUEUED_MOST = 256, PIECES_MOST = 8 };

static struct netif netif;
static int receiver = -1, sender = -1;
static char *ring;
static unsigned next_frame;

/* Packets to be sent: each is held (pbuf_ref) until the kernel has it. */
static struct pbuf *queued[QUEUED_MOST];
static struct mmsghdr messages[QUEUED_MOST];
static struct iovec pieces[QUEUED_MOST][PIECES_MOST + 1];
static struct virtio_net_hdr marks[QUEUED_MOST];
static unsigned queued_count;

void wire_flush(void) {
    unsigned sent = 0;
    while (sent < queued_count) {
        int now = sendmmsg(sender, messages + sent, queued_count - sent, 0);
        /* A packet that the kernel does not take is lost; TCP retransmits it. */
        sent += now > 0 ? (unsigned)now : errno == EINTR ? 0 : 1;
    }
    for (unsigned i = 0; i < queued_count; i++)
        pbuf_free(queued[i]);
    queued_count = 0;
}

/* The TCP checksum over IPv4 is at a fixed place after the headers, because lwIP sends no IP options. */
static void mark(struct virtio_net_hdr *out, const struct pbuf *p) {
    const unsigned char *head = (const unsigned char *)p->payload + ETH_PAD_SIZE;
    enum { IP_AT = 14, TCP_AT = 34, PROTOCOL_AT = IP_AT + 9 };
    memset(out, 0, sizeof *out);
    if (p->len >= ETH_PAD_SIZE + TCP_AT && head[12] == 8 && head[13] == 0 && head[PROTOCOL_AT] == IP_PROTO_TCP) {
        out->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
        out->csum_start = TCP_AT;
        out->csum_offset = offsetof(struct tcp_hdr, chksum);
    }
}

static err_t output(struct netif *unused, struct pbuf *p) {
    (void)unused;
    if (queued_count == QUEUED_MOST)
        wire_flush();
    /* The segment contains many small answers. */
    if (pbuf_clen(p) > PIECES_MOST) {
        if (!(p = pbuf_clone(PBUF_RAW, PBUF_RAM, p)))
            return ERR_MEM;
    } else {
        pbuf_ref(p);
    }
    struct iovec *at = pieces[queued_count];
    size_t count = 1;
    mark(&marks[queued_count], p);
    at[0] = (struct iovec){&marks[queued_count], sizeof marks[queued_count]};
    for (struct pbuf *piece = p; piece; piece = piece->next, count++)
        at[count] = (struct iovec){piece->payload, piece->len};
    at[1].iov_base = (char *)at[1].iov_base + ETH_PAD_SIZE;
    at[1].iov_len -= ETH_PAD_SIZE;
    messages[queued_count].msg_hdr = (struct msghdr){.msg_iov = at, .msg_iovlen = count};
    queued[queued_count++] = p;
    return ERR_OK;
}

void wire_receive(unsigned most) {
    for (unsigned i = 0; i < most; i++) {
        struct tpacket2_hdr *frame = (struct tpacket2_hdr *)(ring + (size_t)next_frame * FRAME_BYTES);
        if (!(__atomic_load_n(&frame->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            return;
        /* A packet that was longer than a frame is incomplete, and is dropped. */
        u16_t bytes = (u16_t)frame->tp_snaplen;
        struct pbuf *p = frame->tp_snaplen == frame->tp_len && bytes == frame->tp_len
                             ? pbuf_alloc(PBUF_RAW, bytes + ETH_PAD_SIZE, PBUF_RAM)
                             : NULL;
        if (p)
            memcpy((char *)p->payload + ETH_PAD_SIZE, (char *)frame + frame->tp_mac, bytes);
        __atomic_store_n(&frame->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        next_frame = (next_frame + 1) % FRAMES;
        if (p && netif.input(p, &netif) != ERR_OK)
            pbuf_free(p);
    }
}

bool wire_wait(int timeout_ms) {
    struct pollfd one = {.fd = receiver, .events = POLLIN};
    return poll(&one, 1, timeout_ms) >= 0 || errno != EINTR;
}

static err_t begin(struct netif *own) {
    own->name[0] = 't', own->name[1] = 'x';
    own->output = etharp_output;
    own->linkoutput = output;
    own->mtu = MTU;
    own->hwaddr_len = ETH_ALEN;
    /* Not the device's own address: the kernel drops packets to another host before it looks further. */
    memcpy(own->hwaddr, (const unsigned char[]){2, 't', 'u', 'x', 0, 1}, ETH_ALEN);
    own->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    return ERR_OK;
}

static int packet_socket(unsigned device, int protocol) {
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons((uint16_t)protocol), .sll_ifindex = (int)device};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool open_sockets(unsigned device, const char **what) {
    int version = TPACKET_V2, one = 1;
    struct tpacket_req request = {.tp_block_size = BLOCK_BYTES,
                                  .tp_block_nr = FRAMES / (BLOCK_BYTES / FRAME_BYTES),
                                  .tp_frame_size = FRAME_BYTES,
                                  .tp_frame_nr = FRAMES};
    *what = "cannot open a packet socket on";
    /* Protocol 0 receives nothing. */
    if ((sender = packet_socket(device, 0)) < 0 || (receiver = packet_socket(device, 0)) < 0)
        return false;
    *what = "cannot set up packet sockets on";
    if (setsockopt(sender, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) != 0 ||
        setsockopt(receiver, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0 ||
        setsockopt(receiver, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0 ||
        setsockopt(receiver, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        return false;
    ring = mmap(NULL, (size_t)FRAMES * FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, receiver, 0);
    if (ring == MAP_FAILED)
        return false;
    /* From now on packets arrive. */
    struct sockaddr_ll all = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)device};
    return bind(receiver, (struct sockaddr *)&all, sizeof all) == 0;
}

bool wire_open(const char *device, uint32_t address, const char **what) {
    unsigned number = device ? if_nametoindex(device) : 0;
    *what = "TUX_DEVICE names no network device:";
    if (!number)
        return false;
    if (!open_sockets(number, what))
        return false;
    ip4_addr_t own = {address}, mask, none;
    IP4_ADDR(&mask, 255, 255, 255, 0);
    ip4_addr_set_any(&none);
    lwip_init();
    netif_add(&netif, &own, &mask, &none, NULL, begin, netif_input);
    netif_set_default(&netif);
    netif_set_up(&netif);
    atexit(wire_flush);
    return true;
}
