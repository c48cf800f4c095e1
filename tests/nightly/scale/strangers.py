"""Strangers make a daemon hold little, and a job that runs hardly slower.

A job over four workers runs all the time.  One kind of strangers after the
other comes to the coordinator and to a worker, each time for so many seconds,
with as long a calm before:

  silent      10,000 connections that say nothing
  greeting    500 that speak HTTP/2, and TLS where that is, and never call
  http        10,000 to the HTTP ports that say nothing
  unfinished  64 messages without their last byte
  large       a message of 2 GiB
  crumbs      64 messages that come in frames of a byte
  watches     500 connections that keep 32 calls of Health/Watch open each
  half calls  500 that keep 32 calls open each, whose messages never come
  never taken 500 that keep 32 calls open each, whose answers they never take
  pages       500 that keep the coordinator's /watch open

The strangers get the CPU time that is left over, as if they were on other
machines.  A loop on each CPU takes it in the calms, so that no CPU idles.
Asked: the memory of each daemon grows by at most 64 MiB; over all kinds a step
takes at most 1.05 times as long as in the calms, with TLS 1.08 times; the job
succeeds at the first attempt; a client is answered in the end.
"""

import os
import re
import resource
import select
import signal
import socket
import ssl
import struct
import threading
import time

from bed import AwakeBox
from mesh import reading
from nightly import gaps_of, say

OPTIONS = {"mode": ("plain", "tls"), "connections": 10_000, "seconds": 6.0}
WORKERS = 4
MOST_KIB = 64 << 10
MOST_RATIO = {"plain": 1.05, "tls": 1.08}
LOOK_SECONDS = 0.02
STRANGERS_HOST = "127.0.0.2"  # another machine's, as the daemons see it
JOB = ("deploy/jobs/vit-small.yaml", "train.batch=256", "train.micro_batch=64",
       "train.evaluate_every=0")
# The whole curve is shown of so many steps (client/README.md).
MOST_STEPS = 1000
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
# Whom a stranger without a certificate may call, else any call.
OPEN_CALLS = {("coordinator", True): "/paceline.v1.Trust/Join",
              ("worker", True): HEALTH_CHECK,
              ("coordinator", False): "/paceline.v1.Control/SubmitJob",
              ("worker", False): "/paceline.v1.Stage/ReportStep"}

DATA, HEADERS, SETTINGS, PING, GO_AWAY, WINDOW = 0, 1, 4, 6, 7, 8
END_HEADERS, ACK, END_STREAM = 4, 1, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES = 16384
FIRST_WINDOW = 65535


def connect(address, tls=False, host=STRANGERS_HOST):
    to, port = address.rsplit(":", 1)
    connection = socket.create_connection((to, int(port)), timeout=5,
                                          source_address=(host, 0))
    if not tls:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(connection)


def frame(kind, flags, stream, body=b""):
    return (struct.pack(">I", len(body))[1:] +
            struct.pack(">BBI", kind, flags, stream) + body)


def headers_of(path):
    """Literals, neither indexed nor compressed (RFC 7541, 6.2.2)."""
    block = b""
    for name, value in ((":method", "POST"), (":scheme", "http"),
                        (":path", path), (":authority", "stranger"),
                        ("content-type", "application/grpc"),
                        ("te", "trailers")):
        block += b"\0" + bytes([len(name)]) + name.encode()
        block += bytes([len(value)]) + value.encode()
    return block


class Call:
    """One call on a connection of its own, of which a message begins."""

    def __init__(self, address, tls, path, message_bytes):
        self.connection = connect(address, tls)
        self.left = message_bytes
        self.windows = {0: FIRST_WINDOW, 1: FIRST_WINDOW}
        self.first_window = FIRST_WINDOW
        self.unread = b""
        self.sent = 0
        self.connection.sendall(
            PREFACE + frame(SETTINGS, 0, 0) +
            frame(HEADERS, END_HEADERS, 1, headers_of(path)))
        self._send(struct.pack(">BI", 0, message_bytes))

    def go_on(self, until, frame_bytes=FRAME_BYTES):
        """Sends all but the last byte, until the other side ends the call."""
        try:
            while time.monotonic() < until:
                room = min(frame_bytes, self.left - 1, *self.windows.values())
                self._read(0 if room > 0 else 0.2)
                if room > 0:
                    self.left -= room
                    self._send(b"x" * room)
        except OSError:
            pass  # it has ended

    def _send(self, body):
        for stream in self.windows:
            self.windows[stream] -= len(body)
        self.connection.sendall(frame(DATA, 0, 1, body))
        self.sent += len(body)

    def _read(self, seconds):
        ready = getattr(self.connection, "pending", lambda: 0)()
        if not ready and not select.select([self.connection], [], [],
                                           seconds)[0]:
            return
        more = self.connection.recv(FRAME_BYTES)
        if not more:
            raise ConnectionError("ended")
        self.unread += more
        while len(self.unread) >= 9:
            size = int.from_bytes(self.unread[:3], "big")
            if len(self.unread) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self.unread[3:9])
            body, self.unread = self.unread[9:9 + size], self.unread[9 + size:]
            self._take(kind, flags, stream, body)

    def _take(self, kind, flags, stream, body):
        if kind == WINDOW:
            self.windows[stream] += int.from_bytes(body, "big")
        elif kind == PING and not flags & ACK:
            self.connection.sendall(frame(PING, ACK, 0, body))
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(body), 6):
                name, value = struct.unpack(">HI", body[at:at + 6])
                if name == 4:  # the first window of a stream
                    self.windows[1] += value - self.first_window
                    self.first_window = value
            self.connection.sendall(frame(SETTINGS, ACK, 0))
        elif kind == GO_AWAY:
            raise ConnectionError("ended")


def all_at_once(makes):
    threads = [threading.Thread(target=make) for make in makes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def messages(targets, tls, until, count=64, message_bytes=4 << 20,
             frame_bytes=FRAME_BYTES):
    """targets: [(kind of daemon, address)]."""
    sent, held = [], []
    def send(kind, address):
        try:
            call = Call(address, tls, OPEN_CALLS[kind, tls], message_bytes)
        except OSError:
            return  # it has been cut off
        call.go_on(until, frame_bytes)
        sent.append(call.sent)
        held.append(call)
    all_at_once([lambda target=target: send(*target)
                 for target in targets for _ in range(count)])
    time.sleep(max(0, until - time.monotonic()))
    for call in held:
        call.connection.close()
    return f"{sum(sent) >> 10} KiB taken"


def status_of(address, tls, path):
    """gRPC's status of one call without certificate or secret."""
    connection = keep_open(address, path, True, tls, calls=1)
    answer = b""
    with connection:
        while not (found := re.search(rb"grpc-status.([0-9]+)", answer, re.S)):
            more = connection.recv(FRAME_BYTES)
            if not more:
                raise ConnectionError("ended")
            answer += more
    return int(found.group(1))


def keep_open(address, path, whole, tls, calls=32, window=FIRST_WINDOW):
    """A connection with so many calls of `path`, which have their messages, or
    never get them, and take so many bytes of each answer."""
    connection = connect(address, tls)
    connection.sendall(
        PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)) +
        frame(SETTINGS, ACK, 0))
    for stream in range(1, 2 * calls, 2):
        message = frame(DATA, END_STREAM, stream, struct.pack(">BI", 0, 0))
        connection.sendall(frame(HEADERS, END_HEADERS, stream, headers_of(path))
                           + (message if whole else b""))
    return connection


def held_by_all(opens, count, until):
    """Each of `opens` makes its part of so many connections, and keeps them."""
    held = []
    def work(make):
        for _ in range(count // len(opens)):
            if time.monotonic() > until:
                return
            try:
                held.append(make())
            except OSError:
                pass  # it has been cut off, or the queue is full
    all_at_once([lambda make=make: work(make) for make in opens])
    time.sleep(max(0, until - time.monotonic()))
    for connection in held:
        connection.close()
    return f"{len(held)} connections"


def held_to(addresses, count, until, words=b"", tls=False):
    """Connections that say so much and no more."""
    def make(address):
        connection = connect(address, tls)
        connection.sendall(words)
        return connection
    return held_by_all([lambda address=address: make(address)
                        for address in addresses], count, until)


def calls_kept(targets, until, tls, path=None, **how):
    """targets: as those of messages().  path: nothing for half calls."""
    return held_by_all(
        [lambda kind=kind, address=address: keep_open(
            address, path or OPEN_CALLS[kind, tls], path is not None, tls,
            **how) for kind, address in targets], 500 * len(targets), until)


def in_another_process(attack):
    """attack() in a child with the CPU time that nobody wants; its words."""
    to_read, to_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        signal.alarm(120)
        os.write(to_write, attack().encode())
        os._exit(0)
    os.close(to_write)
    return child, to_read


def kinds_of(targets, http, tls, connections):
    """name -> attack(until); `targets` as those of messages()."""
    addresses = [address for _, address in targets]
    return {
        "silent": lambda until: held_to(addresses, connections, until),
        "greeting": lambda until: held_to(
            addresses, 500, until, PREFACE + frame(SETTINGS, 0, 0), tls),
        "http": lambda until: held_to(http, connections, until),
        "unfinished": lambda until: messages(targets, tls, until),
        "large": lambda until: messages(targets, tls, until, 1, 2 ** 31),
        "crumbs": lambda until: messages(targets, tls, until, frame_bytes=1),
        "watches": lambda until: calls_kept(targets, until, tls, HEALTH_WATCH),
        "half calls": lambda until: calls_kept(targets, until, tls),
        "never taken": lambda until: calls_kept(targets, until, tls,
                                                HEALTH_CHECK, window=0),
        "pages": lambda until: held_to(
            http[:1], 500, until,
            b"GET /watch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")}


class Memory:
    """The most that processes hold from now on; a context manager."""

    def __init__(self, pids):
        self.before = {pid: reading(pid)[0] for pid in pids}
        self.most = dict(self.before)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._thread.join()

    def _look(self):
        while not self._ending.wait(LOOK_SECONDS):
            for pid, most in self.most.items():
                self.most[pid] = max(most, reading(pid)[0])

    def grown(self, pid):
        return self.most[pid] - self.before[pid]


def addresses_of(mesh):
    """The targets of messages(), and the HTTP addresses of both."""
    # One that does not hold the first stage.
    worker = max(mesh.ask("node", "list")["workers"],
                 key=lambda each: each["name"])
    return ([("coordinator", mesh.addresses["coordinator"]),
             ("worker", worker["address"])],
            [mesh.addresses["http"], worker["http_address"]])


def step_ms(shown, windows):
    """Of the steps that were under way in the windows, on average."""
    lengths = [length for begin, end in windows
               for length, _ in gaps_of(shown, begin, end)]
    return 1e3 * sum(lengths) / max(1, len(lengths))


def measure(run, mode):
    """Prints a table."""
    tls, rows = mode == "tls", []
    with AwakeBox(), run.restarting_mesh(WORKERS, tls=tls) as mesh:
        number = mesh.submit(*JOB, f"train.steps={MOST_STEPS}")
        mesh.await_step(number, 20)
        targets, http = addresses_of(mesh)
        pids = {"coordinator": mesh.daemon("coordinator").pid(),
                "worker": mesh.daemon(f"w{WORKERS}").pid()}
        kinds = kinds_of(targets, http, tls, run.connections)
        for name, attack in kinds.items():
            calm = (time.time(), time.time() + run.seconds)
            time.sleep(run.seconds)
            with Memory(pids.values()) as memory:
                begin = time.time()
                until = time.monotonic() + run.seconds
                child, said = in_another_process(lambda: attack(until))
                os.waitpid(child, 0)
                stormy = (begin, time.time())
                time.sleep(1)
            rows.append((name, os.read(said, 100).decode(), calm, stormy,
                         {kind: memory.grown(pid)
                          for kind, pid in pids.items()}))
            os.close(said)
        if mesh.run("node", "list").returncode != 0:
            run.wrong.append(f"{mode}: no client is answered in the end")
        shown = mesh.finish(number)
        run.same(mode, shown, {"state": "succeeded", "attempt": 1})
    say(f"{mode}:      strangers              coordinator   worker    "
        "step calm  step then")
    for name, said, calm, stormy, grown in rows:
        say(f"  {name:11} {said:20} {grown['coordinator'] / 1024:8.1f} MiB "
            f"{grown['worker'] / 1024:6.1f} MiB {step_ms(shown, [calm]):6.1f} "
            f"ms {step_ms(shown, [stormy]):6.1f} ms")
        for kind, kib in grown.items():
            run.at_most(f"{mode}, {name}: MiB of the {kind}", MOST_KIB >> 10,
                        kib / 1024)
    run.at_most(f"{mode}: a step / a calm one", MOST_RATIO[mode],
                step_ms(shown, [row[3] for row in rows]) /
                step_ms(shown, [row[2] for row in rows]))


def main(run):
    for mode in run.mode:
        measure(run, mode)
