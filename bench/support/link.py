"""A network link between two network namespaces that exist as long as this program.

Arguments: JSON with `delay` (milliseconds, one way), `rate` (Mbit/s, 0: unlimited), `loss` (percent of packets) and
`queue` (milliseconds of packets that wait for a slow link before further ones are dropped). Prints a line of JSON with the
paths of both namespaces and the addresses in them. Ends with its parent.

Packets pass TUN devices and this program, so TCP at both ends behaves as on a real link: a proxy that delays bytes would
acknowledge them at once. Linux, root and `ip` are needed.
"""

import collections
import ctypes
import fcntl
import json
import os
import random
import select
import struct
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG, SIGKILL = 1, 9
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02
MTU = 1500

libc = ctypes.CDLL(None, use_errno=True)


def namespace(name, address, peer, segments):
    """Moves this process into a new namespace with one TUN device; returns the file of each.

    Without `segments`, TCP hands over up to 64 KiB in one packet, as it does to a network card that cuts them: this program
    would take a whole core for 30 MB/s otherwise.
    """
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "network namespaces cannot be created")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    if not segments:
        fcntl.ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    for command in (
        f"link set lo up",
        f"address add {address}/32 peer {peer} dev {name}",
        f"link set {name} mtu {MTU} txqueuelen 10000 up",
        # Linux's default, whatever this machine has: BBR nearly stops for half a second now and then, in anybody's transfer.
        f"route replace {peer}/32 dev {name} src {address} congctl cubic",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    return os.open("/proc/self/ns/net", os.O_RDONLY), tun


class Direction:
    """Packets on their way from one device to the other, in order."""

    def __init__(self, source, target, options):
        self.source, self.target = source, target
        self.delay = options["delay"] / 1000
        self.loss = options["loss"] / 100
        self.seconds_per_byte = 8 / (options["rate"] * 1e6) if options["rate"] else 0
        self.queue = options["queue"] / 1000
        self.idle_at = 0.0
        self.waiting = collections.deque()

    def take(self):
        now = time.monotonic()
        for _ in range(64):
            try:
                packet = os.read(self.source, 131072)
            except BlockingIOError:
                return
            if self.loss and random.random() < self.loss:
                continue
            sent_at = max(self.idle_at, now)
            if sent_at - now > self.queue:
                continue
            self.idle_at = sent_at + len(packet) * self.seconds_per_byte
            self.waiting.append((self.idle_at + self.delay, packet))

    def deliver(self):
        """Hands over what has arrived; returns the seconds until the next packet does."""
        waiting = self.waiting
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            os.write(self.target, waiting.popleft()[1])
        return waiting[0][0] - now if waiting else 3600.0


def main():
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
    options = json.loads(sys.argv[1])
    near, far = "10.88.0.1", "10.88.0.2"
    # Packets are lost, and leave a slow link, one by one.
    segments = options["loss"] > 0 or options["rate"] > 0
    near_namespace, near_device = namespace("near", near, far, segments)
    far_namespace, far_device = namespace("far", far, near, segments)
    path = lambda file: f"/proc/{os.getpid()}/fd/{file}"
    print(
        json.dumps({"near": {"net": path(near_namespace), "address": near}, "far": {"net": path(far_namespace), "address": far}}),
        flush=True,
    )
    ways = [Direction(near_device, far_device, options), Direction(far_device, near_device, options)]
    files = [near_device, far_device]
    while True:
        wait = min(way.deliver() for way in ways)
        ready, _, _ = select.select(files, [], [], max(wait, 0))
        for way in ways:
            if way.source in ready:
                way.take()


main()
