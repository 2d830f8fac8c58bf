/* Options of lwIP for tux: one thread, TCP over IPv4, one network device. lwIP documents every option in
 * src/include/lwip/opt.h. */
#ifndef TUX_LWIPOPTS_H
#define TUX_LWIPOPTS_H

#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_SOCKET 0
#define LWIP_NETCONN 0
#define LWIP_UDP 0
#define LWIP_STATS 0
#define IP_REASSEMBLY 0
#define IP_FRAG 0
/* sockets.c calls tcp_tmr by the clock that it reads anyway. */
#define LWIP_TIMERS 0

/* One function gets the events of all connections, like the kernel's sockets; this saves five pointers per PCB. */
#define LWIP_EVENT_API 1
#define LWIP_CALLBACK_API 0
/* sockets.c stores its connection there and learns of the PCB's end. */
#define LWIP_TCP_PCB_NUM_EXT_ARGS 1

/* Memory comes from malloc where it is needed, as in tux itself; stingify rewrites these calls. */
#define MEM_ALIGNMENT 8
#define MEM_LIBC_MALLOC 1
#define MEMP_MEM_MALLOC 1

/* Puts the IP header at a multiple of 4. */
#define ETH_PAD_SIZE 2

#define TCP_MSS 1460
#define TCP_WND (16 * TCP_MSS)
#define TCP_SND_BUF (32 * TCP_MSS)
#define TCP_SND_QUEUELEN 256
/* The body after a head is sent from its place, not copied. */
#define TCP_OVERSIZE 0
/* The list of connections in TIME_WAIT is searched from its beginning; no segment gets this old on a local link. */
#define TCP_MSL 1000

/* The packets never leave the machine's memory, so wire.c leaves checksums to the device, like a driver. */
#define CHECKSUM_GEN_TCP 0
#define CHECKSUM_CHECK_TCP 0
#define CHECKSUM_CHECK_IP 0
#define CHECKSUM_CHECK_ICMP 0

/* Finds a connection's PCB by hash (tcp_in.patch). With TUX_PCB_LIST lwIP searches the list of all PCBs, as it
 * usually does. */
struct tcp_pcb;
struct tcp_pcb *net_find_pcb(const void *remote, unsigned remote_port, unsigned local_port);
#ifndef TUX_PCB_LIST
#define LWIP_HOOK_TCP_FIND_PCB(remote, remote_port, local_port) net_find_pcb(remote, remote_port, local_port)
#endif

#endif
