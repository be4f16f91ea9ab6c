"""The loop of the program that lives in the sandbox: frames in, frames out, commands between."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # the public module costs every sandbox more
import gc
import os
import select
import time

from canonical.sandbox.local.inside import frames, tree
from canonical.sandbox.local.inside.processes import (
    PR_SET_DUMPABLE,
    SIGKILL,
    Command,
    Processes,
    Settings,
    StartError,
    control,
    judge,
    read_rest,
    read_some,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WATCH_S = 0.05
# How much may wait to be sent before the next piece of a long answer is made.
_HELD_BACK = 1 << 20
_REQUEST_CAP = 1 << 31
_PR_SET_CHILD_SUBREAPER = 36


class Serve:
    """Serve one sandbox over one socket, or over a pair of pipes, until the other end is closed."""

    def __init__(self, fd: int, settings: Settings, out: int | None = None) -> None:
        self._fd = fd
        self._out_fd = fd if out is None else out
        self._settings = settings
        self._tree = tree.Tree(settings.root, file_bytes=settings.file_bytes, disk_bytes=settings.disk_bytes)
        self._processes = Processes(settings)
        self._inbox = frames.Inbox(_REQUEST_CAP)
        self._out = bytearray()
        # Answers that come in pieces; they are made as fast as the other side reads.
        self._answers: list[tuple[int, Iterator[list[bytes]]]] = []
        self._frozen = False
        self._waiting: list[tuple[int, int, list[bytes]]] = []
        self._poll = select.poll()
        self._watched_at = 0.0

    def run(self) -> None:
        """Serve until the other side is gone."""
        wake, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        os.set_blocking(self._fd, False)
        os.set_blocking(self._out_fd, False)
        self._poll.register(wake, select.POLLIN)
        self._poll.register(self._fd, select.POLLIN)
        self._send(0, frames.READY)
        while self._flush():
            for fd, events in self._poll.poll(self._patience_ms()):
                if fd == self._fd:
                    if events & ~select.POLLOUT and not self._receive():
                        return
                elif fd == self._out_fd:
                    if events & ~select.POLLOUT:
                        return
                elif fd == wake:
                    _empty(wake)
                    self._processes.reap()
                else:
                    self._pipe(fd)
            self._after()

    def _patience_ms(self) -> int | None:
        if self._answers and len(self._out) < _HELD_BACK:
            return 0
        if any(command.status is not None for command in self._processes.running.values()):
            return 0
        if not self._processes.running and not self._processes.kept:
            return None
        now = time.monotonic()
        until = min([self._watched_at + _WATCH_S, *(c.deadline for c in self._processes.running.values())])
        return max(0, int((until - now) * 1000) + 1)

    # Frames

    def _receive(self) -> bool:
        try:
            data = os.read(self._fd, 1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        for frame in self._inbox.feed(data):
            self._request(*frame)
        return True

    def _request(self, call: int, kind: int, fields: list[bytes]) -> None:
        if self._frozen and kind != frames.CANCEL:
            self._waiting.append((call, kind, fields))
            return
        try:
            self._handlers[kind](self, call, fields)
        except (tree.CallError, StartError) as error:
            self._refuse(call, error)

    def _refuse(self, call: int, error: tree.CallError | StartError) -> None:
        self._send(call, frames.ERROR, [error.code, error.detail, error.text.encode("utf-8", "replace")])

    def _send(self, call: int, kind: int, fields: list[bytes] | tuple[()] = ()) -> None:
        self._out += frames.pack(call, kind, fields)

    def _flush(self) -> bool:
        if self._out:
            try:
                sent = os.write(self._out_fd, memoryview(self._out)[: 1 << 18].tobytes())
                del self._out[:sent]
            except BlockingIOError:
                pass
            except OSError:
                return False
        writing = select.POLLOUT if self._out else 0
        if self._out_fd == self._fd:
            self._poll.modify(self._fd, select.POLLIN | writing)
        else:
            self._poll.register(self._out_fd, writing)
        return True

    def _after(self) -> None:
        """Do what has become due: pieces of answers, deadlines, limits, ends."""
        while self._answers and len(self._out) < _HELD_BACK:
            self._next_piece()
        now = time.monotonic()
        processes = self._processes
        if (processes.running or processes.kept) and now >= self._watched_at + _WATCH_S and not self._frozen:
            self._watched_at = now
            for command in processes.watch(now):
                self._send(command.call, frames.IDLE)
            if processes.kept and not processes.running and not processes.pids():
                processes.kept.clear()
        for command in list(processes.running.values()):
            if command.status is None and command.outcome == b"" and now >= command.deadline:
                command.outcome = b"timeout"
            if command.status is not None or command.outcome:
                self._finish(command)

    def _next_piece(self) -> None:
        call, answer = self._answers[0]
        try:
            piece = next(answer)
        except StopIteration:
            self._send(call, frames.DONE)
        except (tree.CallError, StartError) as error:
            self._refuse(call, error)
        else:
            self._send(call, frames.PART, piece)
            return
        self._answers.pop(0)

    # Commands

    def _pipe(self, fd: int) -> None:
        if fd in self._processes.drains:
            if not read_some(fd, None):
                self._drop(fd)
                self._processes.drains.discard(fd)
            return
        for command in self._processes.running.values():
            if fd == command.stdin:
                self._feed(command)
                return
            if fd in command.streams:
                if not read_some(fd, command.streams[fd]):
                    self._drop(fd)
                    del command.streams[fd]
                return

    def _feed(self, command: Command) -> None:
        if command.stdin is None:
            return
        try:
            command.pending = command.pending[os.write(command.stdin, command.pending[: 1 << 16]) :]
        except BlockingIOError:
            return
        except OSError:
            command.pending = memoryview(b"")
        if not command.pending:
            self._drop(command.stdin)
            command.stdin = None

    def _drop(self, fd: int) -> None:
        self._poll.unregister(fd)
        os.close(fd)

    def _finish(self, command: Command) -> None:
        processes = self._processes
        if command.outcome == b"memory":
            processes.end_all()
        elif command.outcome or not command.keep:
            processes.end({command.tag})
        for fd, stream in list(command.streams.items()):
            if read_rest(fd, stream) and command.keep and not command.outcome:
                # Whatever was left alive may go on writing; a closed pipe would end it.
                processes.drains.add(fd)
            else:
                self._drop(fd)
        if command.stdin is not None:
            self._drop(command.stdin)
        del processes.running[command.call]
        exit_code = -SIGKILL if command.status is None else command.status
        if command.outcome == b"" and command.keep:
            processes.kept.add(command.tag)
        judge(command, exit_code, disk_is_full=exit_code != 0 and processes.disk_is_full())
        if command.outcome == b"cancelled":
            return
        self._send(
            command.call,
            frames.DONE,
            [
                command.outcome,
                command.text.encode(),
                frames.number(exit_code),
                command.stdout.kept(),
                command.stderr.kept(),
                frames.number(command.stdout.dropped()),
                frames.number(command.stderr.dropped()),
            ],
        )

    def clear(self) -> None:
        """Leave nothing behind where the end of this process does not end the others."""
        if self._settings.isolated:
            return
        self._processes.end_all()
        # It goes down into folders that are nested deeper than paths are long.
        os.execvp(b"rm", [b"rm", b"-rf", b"--", os.path.dirname(self._settings.root)])

    # What can be asked for

    def _load(self, call: int, fields: list[bytes]) -> None:
        tree.load(self._tree, fields)
        self._send(call, frames.DONE)

    def _read(self, call: int, fields: list[bytes]) -> None:
        path, offset, limit = fields
        self._begin(call, self._tree.read(path, frames.whole(offset), frames.whole(limit) if limit else None))

    def _write(self, call: int, fields: list[bytes]) -> None:
        path, data, has_before, before, executable = fields
        replacing = before if has_before == b"1" else None
        # What was compared must still be there when it is replaced, whatever runs meanwhile.
        still = replacing is not None and bool(self._processes.running or self._processes.kept)
        if still:
            self._processes.freeze()
        try:
            self._tree.write(path, data, replacing, int(executable) if executable else None)
        finally:
            if still:
                self._processes.thaw()
        self._send(call, frames.DONE)

    def _list(self, call: int, fields: list[bytes]) -> None:
        path, recursive = fields
        self._begin(call, self._tree.list(path, recursive=recursive == b"1"))

    def _snapshot(self, call: int, _: list[bytes]) -> None:
        self._begin(call, self._standing_still())

    def _standing_still(self) -> Iterator[list[bytes]]:
        self._frozen = True
        self._processes.freeze()
        try:
            yield from self._tree.snapshot()
        finally:
            self._processes.thaw()
            self._frozen = False
            waiting, self._waiting = self._waiting, []
            for frame in waiting:
                self._request(*frame)

    def _begin(self, call: int, answer: Iterator[list[bytes]]) -> None:
        self._answers.append((call, answer))

    def _exec(self, call: int, fields: list[bytes]) -> None:
        timeout_s, keep, cwd, stdin, count, *rest = fields
        if not self._processes.running and not self._processes.kept:
            # There is nothing to look at yet, and most commands are over before there is.
            self._watched_at = time.monotonic()
        argv, env = rest[: frames.whole(count)], rest[frames.whole(count) :]
        command = self._processes.start(
            call,
            argv,
            stdin,
            os.path.join(self._settings.root, cwd),
            dict(zip(env[::2], env[1::2], strict=True)),
            timeout_s=float(timeout_s),
            keep=keep == b"1",
        )
        for fd in command.streams:
            self._poll.register(fd, select.POLLIN)
        if command.stdin is not None:
            self._poll.register(command.stdin, select.POLLOUT)

    def _stop(self, call: int, _: list[bytes]) -> None:
        self._processes.end_all()
        self._send(call, frames.DONE)

    def _cancel(self, _: int, fields: list[bytes]) -> None:
        command = self._processes.running.get(frames.whole(fields[0]))
        if command is not None:
            command.outcome = b"cancelled"

    _handlers: dict[int, Callable[[Serve, int, list[bytes]], None]] = {  # noqa: RUF012 - never changed
        frames.LOAD: _load,
        frames.READ: _read,
        frames.WRITE: _write,
        frames.LIST: _list,
        frames.SNAPSHOT: _snapshot,
        frames.EXEC: _exec,
        frames.STOP: _stop,
        frames.CANCEL: _cancel,
    }


def _empty(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def main(fields: dict[bytes, bytes], *, pipes: bool = False) -> None:
    """Serve the sandbox on the standard input, which is a socket; or on the standard input and output, two pipes."""
    for signal in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(signal, _signal.SIG_IGN)
    settings = Settings(fields)
    # A collection would touch every object, and so copy its page, in each child.
    gc.freeze()
    # Commands run as the same user; what is not dumpable, they can neither read nor trace.
    control(PR_SET_DUMPABLE, 0)
    if not settings.isolated:
        control(_PR_SET_CHILD_SUBREAPER, 1)
    os.umask(0o022)
    fd = os.dup(0)
    out = os.dup(1) if pipes else fd
    os.set_inheritable(fd, False)
    os.set_inheritable(out, False)
    nothing = os.open("/dev/null", os.O_RDWR)
    for place in (0, 1, 2):
        os.dup2(nothing, place)
    os.closerange(3, fd)
    os.closerange(fd + 1, out)
    os.closerange(max(fd, out) + 1, 1 << 10)
    serve = Serve(fd, settings, out)
    try:
        serve.run()
    finally:
        serve.clear()
    os._exit(0)
