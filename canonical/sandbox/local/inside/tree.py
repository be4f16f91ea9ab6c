"""Files of the workspace, reached one folder at a time, so that no link can lead a call out of it.

Every folder on the way is opened relative to the one before and without following a link. A link is read and walked
like the rest of the path, and `..` goes back to a folder that is still open. Whatever a process changes meanwhile, a
walk that began in the workspace ends in it.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    # Spelled here because a class below has a method called `list`.
    Fields = list[bytes]
    _Stack = list[tuple[int, bytes, list[bytes]]]

# Too many of either is an attack or an accident, and both would keep the caller waiting for nothing.
MAX_ENTRIES = 100_000
_MAX_DEPTH = 200
_MAX_LINKS = 40
_PART = 1 << 19
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

MISSING = b"missing"
IS_FOLDER = b"is a directory"
NOT_FOLDER = b"not a directory"
NOT_FILE = b"not a file"
CHANGED = b"changed"
DENIED = b"denied"
LOOP = b"loop"


class CallError(Exception):
    """Report a call that cannot be carried out.

    Attributes:
        code: `path`, `refused`, `command` or `limit`.
        detail: The reason of a path, the name of a limit, or nothing.
        text: A sentence for the reader.
    """

    def __init__(self, code: bytes, detail: bytes = b"", text: str = "") -> None:
        super().__init__(text)
        self.code, self.detail, self.text = code, detail, text


def _path_error(reason: bytes) -> CallError:
    return CallError(b"path", reason)


def _from_os(error: OSError) -> CallError:
    reasons = {
        errno.ENOENT: MISSING,
        errno.ENOTDIR: NOT_FOLDER,
        errno.EISDIR: IS_FOLDER,
        errno.EACCES: DENIED,
        errno.EPERM: DENIED,
        errno.EROFS: DENIED,
        errno.ENXIO: NOT_FILE,
        errno.ENODEV: NOT_FILE,
    }
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return CallError(b"limit", b"disk", "the workspace is full")
    if error.errno == errno.EFBIG:
        return CallError(b"limit", b"file_size", "the file would be larger than a file may be")
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return CallError(b"limit", b"open_files", "too many files are open")
    if error.errno == errno.ENAMETOOLONG:
        return CallError(b"refused", b"", "a name in the path is too long")
    if error.errno in reasons:
        return _path_error(reasons[error.errno])
    return CallError(b"refused", b"", f"the file system says: {error.strerror}")


class Tree:
    """Serve the files below one folder.

    Args:
        root: The workspace.
        file_bytes: The largest file.
        disk_bytes: The most that a copy of the whole may hold.
    """

    def __init__(self, root: bytes, *, file_bytes: int, disk_bytes: int) -> None:
        self._root = root.rstrip(b"/")
        self._file_bytes, self._disk_bytes = file_bytes, disk_bytes
        self._fd = os.open(root, _FOLDER)

    def read(self, path: bytes, offset: int, limit: int | None) -> Iterator[Fields]:
        """Yield the bytes of a file in pieces."""
        try:
            fd = self._open_file(path)
            try:
                yield from self._pieces(fd, offset, limit)
            finally:
                os.close(fd)
        except OSError as error:
            raise _from_os(error) from None

    def _pieces(self, fd: int, offset: int, limit: int | None) -> Iterator[Fields]:
        size = os.fstat(fd).st_size
        wanted = max(0, size - offset) if limit is None else min(limit, max(0, size - offset))
        if wanted > self._file_bytes:
            raise CallError(
                b"limit", b"file_size", f"the file holds {size} bytes, and {self._file_bytes} may be read"
            )
        while wanted > 0:
            piece = os.pread(fd, min(wanted, _PART), offset)
            if not piece:
                return
            yield [piece]
            offset += len(piece)
            wanted -= len(piece)

    def write(self, path: bytes, data: bytes, replacing: bytes | None, executable: int | None) -> None:
        """Put a whole file in place in one step."""
        if len(data) > self._file_bytes:
            raise CallError(
                b"limit", b"file_size", f"a file may hold {self._file_bytes} bytes, and this has {len(data)}"
            )
        try:
            parent, name = self._walk(path, making=True)
            try:
                self._replace(parent, name, data, replacing, executable)
            finally:
                os.close(parent)
        except OSError as error:
            raise _from_os(error) from None

    def _replace(
        self, parent: int, name: bytes, data: bytes, replacing: bytes | None, executable: int | None
    ) -> None:
        mode = self._mode_before(parent, name)
        if replacing is not None and (
            mode is None or self._content(parent, name, len(replacing)) != replacing
        ):
            raise _path_error(CHANGED)
        mode = 0o644 if mode is None else mode
        if executable is not None:
            mode = mode | 0o111 if executable else mode & ~0o111
        beside = b".%s.new" % os.urandom(12).hex().encode()
        fd = os.open(
            beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent
        )
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fchmod(fd, mode)
            os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            _forget(beside, parent)
            raise
        finally:
            os.close(fd)

    def _mode_before(self, parent: int, name: bytes) -> int | None:
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(found.st_mode):
            raise _path_error(IS_FOLDER)
        if not stat.S_ISREG(found.st_mode):
            raise _path_error(NOT_FILE)
        return stat.S_IMODE(found.st_mode) & 0o777

    def _content(self, parent: int, name: bytes, expected: int) -> bytes | None:
        fd = os.open(name, _FILE, dir_fd=parent)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size != expected:
                return None
            return b"".join(piece for (piece,) in self._pieces(fd, 0, None))
        finally:
            os.close(fd)

    def list(self, path: bytes, *, recursive: bool) -> Iterator[Fields]:
        """Yield path, kind and size of everything in a folder, many at a time."""
        try:
            top = self._open_folder(path)
        except OSError as error:
            raise _from_os(error) from None
        begin = self._clean(path)
        size, batch = 0, []
        entries = self._below(top, begin, recursive=recursive)
        for count, (name, kind, found, _) in enumerate(entries, start=1):
            if count > MAX_ENTRIES:
                raise CallError(b"limit", b"output", f"the folder holds more than {MAX_ENTRIES} entries")
            batch += [name, kind, b"%d" % (found.st_size if kind == b"file" else 0)]
            size += len(name) + 40
            if size > _PART:
                yield batch
                size, batch = 0, []
        yield batch

    def _below(
        self, top: int, begin: bytes, *, recursive: bool, insist: bool = False
    ) -> Generator[tuple[bytes, bytes, os.stat_result, int]]:
        # A stack of open folders instead of paths: what a process renames meanwhile cannot lead the walk elsewhere.
        stack: _Stack = [(top, begin, _names(top))]
        try:
            while stack:
                fd, prefix, names = stack[-1]
                if not names:
                    os.close(fd)
                    stack.pop()
                    continue
                name = names.pop()
                try:
                    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except OSError:
                    continue
                whole = prefix + b"/" + name if prefix else name
                kind = _kind(found.st_mode)
                yield whole, kind, found, fd
                if recursive and kind == b"directory":
                    if len(stack) >= _MAX_DEPTH:
                        outermost = whole.partition(b"/")[0].decode("utf-8", "replace")
                        raise CallError(
                            b"limit",
                            b"disk",
                            f"in {outermost!r:.80} folders are nested deeper than {_MAX_DEPTH}",
                        )
                    try:
                        inner = (
                            _insist(name, fd, _FOLDER, found) if insist else os.open(name, _FOLDER, dir_fd=fd)
                        )
                    except OSError:
                        continue
                    stack.append((inner, whole, _names(inner)))
        finally:
            for fd, _, _ in stack:
                os.close(fd)

    def snapshot(self) -> Iterator[Fields]:
        """Yield path, whether it is executable and a piece of content of every regular file."""
        total = files = 0
        for path, kind, found, parent in self._below(os.dup(self._fd), b"", recursive=True, insist=True):
            if kind != b"file":
                continue
            files += 1
            total += found.st_size + len(path)
            if total > self._disk_bytes or files > MAX_ENTRIES:
                raise CallError(
                    b"limit",
                    b"disk",
                    f"the workspace holds more than {self._disk_bytes} bytes or {MAX_ENTRIES} files",
                )
            runs = b"1" if found.st_mode & 0o100 else b"0"
            yield [path, runs, b""]
            try:
                fd = _insist(path.rpartition(b"/")[2], parent, _FILE, found)
            except OSError as error:
                raise _from_os(error) from None
            try:
                for (piece,) in self._pieces(fd, 0, None):
                    yield [path, runs, piece]
            finally:
                os.close(fd)

    def _clean(self, path: bytes) -> bytes:
        parts: Fields = []
        for part in self._relative(path).split(b"/"):
            if part == b"..":
                del parts[-1:]
            elif part not in {b"", b"."}:
                parts.append(part)
        return b"/".join(parts)

    def _relative(self, path: bytes) -> bytes:
        if not path or b"\0" in path:
            raise CallError(b"refused", b"", "a path is empty or holds a null byte")
        if len(path) > 4095:
            raise CallError(b"refused", b"", f"a path of {len(path)} bytes is too long")
        if path.startswith(b"/"):
            inside = path == self._root or path.startswith(self._root + b"/")
            if not inside:
                raise CallError(b"refused", b"", "the path leads out of the workspace")
            return path[len(self._root) + 1 :] or b"."
        return path

    def _open_file(self, path: bytes) -> int:
        def try_open(parent: int, name: bytes) -> int:
            fd = os.open(name, _FILE, dir_fd=parent)
            mode = os.fstat(fd).st_mode
            if stat.S_ISREG(mode):
                return fd
            os.close(fd)
            raise _path_error(IS_FOLDER if stat.S_ISDIR(mode) else NOT_FILE)

        return self._open(path, try_open)

    def _open_folder(self, path: bytes) -> int:
        return self._open(path, lambda parent, name: os.open(name, _FOLDER, dir_fd=parent))

    def _open(self, path: bytes, opening: Callable[[int, bytes], int]) -> int:
        parent, name = self._walk(path)
        try:
            return opening(parent, name)
        finally:
            os.close(parent)

    def _walk(self, path: bytes, *, making: bool = False) -> tuple[int, bytes]:
        """Return the open folder that holds what a path leads to, and its name there, which is not a link."""
        todo = self._relative(path).split(b"/")[::-1]
        folders = [os.dup(self._fd)]
        links = 0
        try:
            while todo:
                part = todo.pop()
                if part in {b"", b"."}:
                    continue
                if part == b"..":
                    if len(folders) == 1:
                        raise CallError(b"refused", b"", "the path leads out of the workspace")
                    os.close(folders.pop())
                    continue
                target = _link(part, folders[-1])
                if target is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        raise _path_error(LOOP)
                    if target.startswith(b"/"):
                        target = self._relative(target)
                        while len(folders) > 1:
                            os.close(folders.pop())
                    todo += target.split(b"/")[::-1]
                    continue
                if all(rest in {b"", b"."} for rest in todo):
                    if todo and not _is_folder(part, folders[-1]):
                        raise _path_error(NOT_FOLDER if _exists(part, folders[-1]) else MISSING)
                    return os.dup(folders[-1]), part
                if len(folders) > _MAX_DEPTH:
                    raise CallError(b"refused", b"", f"a path of more than {_MAX_DEPTH} folders is too deep")
                # A folder that the path comes back from has to be there: nothing is made for a file that goes elsewhere.
                folders.append(_enter(part, folders[-1], making=making and b".." not in todo))
            # The path ended at a folder that is already open: the workspace, or where `..` went back to.
            return os.dup(folders[-1]), b"."
        finally:
            for fd in folders:
                os.close(fd)


def _enter(name: bytes, parent: int, *, making: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not making:
            raise
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        pass
    return os.open(name, _FOLDER, dir_fd=parent)


def _link(name: bytes, parent: int) -> bytes | None:
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def _exists(name: bytes, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_folder(name: bytes, parent: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _forget(name: bytes, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except OSError:
        pass


def _names(fd: int) -> list[bytes]:
    """Return the names in a folder, last first, and bound what a folder with millions of them costs."""
    names = []
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                names.append(os.fsencode(entry.name))
                if len(names) > MAX_ENTRIES:
                    break
    except OSError:
        pass
    names.sort(reverse=True)
    return names


def _kind(mode: int) -> bytes:
    if stat.S_ISREG(mode):
        return b"file"
    if stat.S_ISDIR(mode):
        return b"directory"
    return b"link" if stat.S_ISLNK(mode) else b"other"


def _insist(name: bytes, parent: int, flags: int, found: os.stat_result) -> int:
    """Open even what its owner made unreadable. Only while every process is stopped: a name is trusted twice."""
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        pass
    mode = stat.S_IMODE(found.st_mode)
    os.chmod(name, mode | (0o700 if flags & os.O_DIRECTORY else 0o400), dir_fd=parent)
    try:
        return os.open(name, flags, dir_fd=parent)
    finally:
        os.chmod(name, mode, dir_fd=parent)


def load(tree: Tree, triples: Sequence[bytes]) -> None:
    """Write many files: path, content and whether it is executable, in turn."""
    for at in range(0, len(triples), 3):
        path, data, runs = triples[at : at + 3]
        tree.write(path, data, None, int(runs == b"1"))
