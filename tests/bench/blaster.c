/* What the kernel can do without an engine: packets from one namespace to another.

   One process sends as fast as it can, another one takes what has arrived; each keeps
   to a core of its own, where there are two. That is what two data-plane processes do,
   but for the protocol.

   blaster MODE BURST PACKET_BYTES MILLISECONDS NETNS_A ADDRESS_A NETNS_B ADDRESS_B

   MODE "apart" is that. "together": one process on one core sends a few bursts, takes
   what has arrived, and so on. "pingpong": a packet goes to and fro between the two
   processes, which spin; it counts as one packet in the median of half a round trip.

   BURST above 1 sends with UDP_SEGMENT and receives with UDP_GRO; 1 is plain sendto.
   Prints "PACKETS NANOSECONDS SENT LOST": packets that have been taken, in what time;
   how many were sent, and how many of them never came, for want of room at the receiver.
   What is lost costs the sender as much, so where that is a good part the first figure
   says little about what the kernel can do. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SOL_UDP
#define SOL_UDP 17
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { PORT = 4791, BUFFER_BYTES = 65536, SOCKET_BYTES = 4 << 20,
       SETTLE_NS = 20000000, TOGETHER = 4, MOST_TRIPS = 1 << 16 };

static void require(int condition, const char *what)
{
    if (!condition) {
        perror(what);
        exit(1);
    }
}

static long long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static struct sockaddr_in address_of(const char *text, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    require(inet_aton(text, &address.sin_addr), "address");
    return address;
}

static int open_in(const char *netns, const char *text, int port)
{
    int one = 1, discover = IP_PMTUDISC_DO, size = SOCKET_BYTES;
    int space = open(netns, O_RDONLY | O_CLOEXEC);
    require(space >= 0, netns);
    require(setns(space, CLONE_NEWNET) == 0, "setns");
    close(space);
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    require(sock >= 0, "socket");
    struct sockaddr_in address = address_of(text, port);
    require(bind(sock, (void *)&address, sizeof address) == 0, "bind");
    setsockopt(sock, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    setsockopt(sock, SOL_UDP, UDP_GRO, &one, sizeof one);
    setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    return sock;
}

static void keep_to(int position)
{
    cpu_set_t usable, chosen;
    CPU_ZERO(&usable);
    CPU_ZERO(&chosen);
    require(sched_getaffinity(0, sizeof usable, &usable) == 0, "sched_getaffinity");
    position %= CPU_COUNT(&usable);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &usable) && position-- == 0)
            CPU_SET(core, &chosen);
    sched_setaffinity(0, sizeof chosen, &chosen);
}

static void take_all(int receiver, atomic_llong *arrived_bytes)
{
    static char in[BUFFER_BYTES];
    for (;;) {
        ssize_t length = recv(receiver, in, sizeof in, MSG_DONTWAIT);
        if (length > 0)
            atomic_fetch_add(arrived_bytes, length);
    }
}

static void send_together(int sender, int receiver, struct msghdr *message,
                          int packet, long long duration_ns)
{
    static char in[BUFFER_BYTES];
    long long start_ns = now_ns(), end_ns = start_ns, sent_bytes = 0, taken_bytes = 0;
    keep_to(0);
    while (end_ns < start_ns + duration_ns) {
        ssize_t length;
        for (int turn = 0; turn < TOGETHER; turn++) {
            length = sendmsg(sender, message, 0);
            if (length > 0)
                sent_bytes += length;
        }
        while ((length = recv(receiver, in, sizeof in, MSG_DONTWAIT)) > 0)
            taken_bytes += length;
        end_ns = now_ns();
    }
    printf("%lld %lld %lld %lld\n", taken_bytes / packet, end_ns - start_ns,
           sent_bytes / packet, (sent_bytes - taken_bytes) / packet);
}

static int by_value(const void *a, const void *b)
{
    long long first = *(const long long *)a, second = *(const long long *)b;
    return (first > second) - (first < second);
}

static void ping_pong(int sender, int receiver, struct sockaddr_in *to, int packet,
                      long long duration_ns)
{
    static char bytes[BUFFER_BYTES];
    static long long taken_ns[MOST_TRIPS];
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    int trips = 0;
    require(getsockname(sender, (void *)&from, &size) == 0, "getsockname");
    require(connect(receiver, (void *)&from, size) == 0, "connect");
    require(connect(sender, (void *)to, sizeof *to) == 0, "connect");
    pid_t other = fork();
    require(other >= 0, "fork");
    if (other == 0) {
        keep_to(1);
        for (;;) {
            ssize_t length = recv(receiver, bytes, sizeof bytes, MSG_DONTWAIT);
            if (length > 0)
                send(receiver, bytes, length, 0);
        }
    }
    keep_to(0);
    long long end_ns = now_ns() + duration_ns, began_ns;
    while ((began_ns = now_ns()) < end_ns && trips < MOST_TRIPS) {
        send(sender, bytes, packet, 0);
        while (recv(sender, bytes, sizeof bytes, MSG_DONTWAIT) <= 0 && now_ns() < end_ns)
            ;
        taken_ns[trips++] = now_ns() - began_ns;
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    qsort(taken_ns, trips, sizeof *taken_ns, by_value);
    printf("1 %lld 1 0\n", taken_ns[trips / 2] / 2);
}

int main(int count, char **words)
{
    static char out[BUFFER_BYTES];
    if (count != 9) {
        fprintf(stderr, "see the source\n");
        return 2;
    }
    const char *mode = *++words;
    int burst = atoi(words[1]), packet = atoi(words[2]);
    long long duration_ns = atoll(words[3]) * 1000000LL;
    require(burst > 0 && packet > 0 && burst * packet < BUFFER_BYTES, "size");
    int sender = open_in(words[4], words[5], PORT + 1);
    int receiver = open_in(words[6], words[7], PORT);
    struct sockaddr_in to = address_of(words[7], PORT);

    union {
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
        struct cmsghdr header;
    } segment = {.header = {.cmsg_len = CMSG_LEN(sizeof(uint16_t)),
                            .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT}};
    uint16_t segment_bytes = packet;
    memcpy(CMSG_DATA(&segment.header), &segment_bytes, sizeof segment_bytes);
    struct iovec part = {.iov_base = out, .iov_len = (size_t)burst * packet};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to,
                             .msg_iov = &part, .msg_iovlen = 1};
    if (burst > 1) {
        message.msg_control = &segment;
        message.msg_controllen = sizeof segment.bytes;
    }

    if (strcmp(mode, "together") == 0) {
        send_together(sender, receiver, &message, packet, duration_ns);
        return 0;
    }
    if (strcmp(mode, "pingpong") == 0) {
        ping_pong(sender, receiver, &to, packet, duration_ns);
        return 0;
    }
    atomic_llong *arrived_bytes = mmap(NULL, sizeof *arrived_bytes,
        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(arrived_bytes != MAP_FAILED, "mmap");
    pid_t taker = fork();
    require(taker >= 0, "fork");
    if (taker == 0) {
        keep_to(1);
        take_all(receiver, arrived_bytes);
    }
    keep_to(0);
    long long start_ns = now_ns(), end_ns = start_ns, sent_bytes = 0;
    while (end_ns < start_ns + duration_ns) {
        ssize_t sent = sendmsg(sender, &message, 0);
        if (sent < 0 && errno != EAGAIN && errno != ENOBUFS) {
            perror("sendmsg");
            kill(taker, SIGKILL);
            return 1;
        }
        if (sent > 0)
            sent_bytes += sent;
        end_ns = now_ns();
    }
    long long taken_bytes = atomic_load(arrived_bytes), came_bytes = taken_bytes, before;
    do {
        struct timespec pause = {.tv_nsec = SETTLE_NS};
        before = came_bytes;
        nanosleep(&pause, NULL);
        came_bytes = atomic_load(arrived_bytes);
    } while (came_bytes > before);
    kill(taker, SIGKILL);
    waitpid(taker, NULL, 0);
    printf("%lld %lld %lld %lld\n", taken_bytes / packet, end_ns - start_ns,
           sent_bytes / packet, (sent_bytes - came_bytes) / packet);
    return 0;
}
