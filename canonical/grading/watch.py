"""What ends the process of a submission when code is about to run there that stands in none of its files.

`readable` refuses what it knows to hide code; this holds for what nobody thought of. The interpreter tells a hook of all code
that is made or run, and a hook that has been added cannot be removed.

Code may run when it stands in a file of the standard library, or in a file of the submission as it was before any of its code
ran. Where the standard library makes code itself, in `dataclasses` and `namedtuple`, it must be the text that those made, from
plain names alone. So it is not enough to be called by them, or to give code the name of a file.

What remains: code that writes the interpreter's memory by other means than `ctypes`; code that starts a program by the inner
functions of `subprocess`, of which the interpreter tells nobody; and code that finds this hook among the objects of the process
and changes it. All three need what `readable` refuses. And a submission may hold an interpreter of its own, written plainly,
with data for a program: all code that runs can be read then, and yet says little.

This module also runs inside sandboxes.
"""

from __future__ import annotations

import _imp
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

MARK = "HiddenCode: "
"""What the last line begins with that a watched program writes to its standard error when it is ended."""

# Of these, code comes or goes that the hook would not see: as bytes, in processes, interpreters and machine code.
_NEVER = frozenset({
    "cpython.PyInterpreterState_New", "marshal.load", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
    "os.system", "pty.spawn", "subprocess.Popen",
})  # fmt: skip

# Not every version tells of another interpreter that is made, and no hook follows there.
_INTERPRETERS = frozenset({"_interpreters", "_xxsubinterpreters"})


def watch(tell: Callable[[str], None], first: CodeType | None = None) -> None:
    """End this process, from now on, when code is about to run that stands in no file of the working folder or of Python.

    Args:
        tell: Is called with the reason just before the end.
        first: Code that may run though it stands in no file.
    """
    hook = _Hook(tell, first)
    sys.addaudithook(hook.heard)


def main() -> None:
    """Run `-c CODE` or `FILE`, with its arguments, as Python does, but watched."""
    kind, *rest = sys.argv[1:]
    if kind == "-c":
        code, place, sys.argv = compile(rest[0], "<string>", "exec", dont_inherit=True), "", ["-c", *rest[1:]]
    else:
        path = os.path.abspath(kind)  # noqa: PTH100 - this program imports as little as it can
        code = compile(_content(path), path, "exec", dont_inherit=True)
        place, sys.argv = os.path.dirname(path), [kind, *rest]  # noqa: PTH120 - as above
    sys.path.insert(0, place)
    program = type(sys)("__main__")
    sys.modules["__main__"] = program
    watch(_say, code)
    exec(code, program.__dict__)  # noqa: S102 - it is what this program is for


def _say(reason: str) -> None:
    os.write(2, f"\n{MARK}{reason}\n".encode("utf-8", "replace"))


class _Hook:
    """Hear of what happens in this process."""

    def __init__(self, tell: Callable[[str], None], first: CodeType | None) -> None:
        self._tell, self._first = tell, first
        # Held here, because a submission could put others in their place later.
        self._frame, self._exit, self._compile = sys._getframe, os._exit, compile  # noqa: SLF001 - there is no other name
        self._frozen = _imp.get_frozen_object
        self._library = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - as below
        self._own = {
            path: _content(path)
            for folder, _, names in os.walk(os.getcwd())  # noqa: PTH109 - this program imports as little as it can
            for path in (os.path.join(folder, name) for name in names)  # noqa: PTH118 - as above
            if path.endswith(".py") and os.path.isfile(path)  # noqa: PTH113 - as above
        }

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """Let an event pass, or end the process."""
        match event:
            case "compile":
                frame = self._frame(1)
                is_good = self._is_content(*args[:2]) or self._is_no_danger(frame, *args[:2])
            case "exec":
                frame = self._frame(1)
                is_good = (
                    args[0] is self._first
                    or self._is_known(args[0].co_filename)
                    or self._is_made(frame, args[0])
                )
            case "marshal.loads":
                frame = self._frame(1)
                is_good = self._is_cached(frame, args[0]) or self._is_frozen(frame)
            case "import":
                # There is a path when machine code is about to be loaded.
                frame = self._frame(1)
                is_good = args[0] not in _INTERPRETERS and (args[1] is None or self._is_known(args[1]))
            case "function.__new__":
                frame, is_good = self._frame(1), self._is_known(args[0].co_filename)
            case "object.__setattr__":
                frame = self._frame(1)
                is_good = args[1] != "__code__" or self._is_known(args[2].co_filename)
            case "code.__new__":
                frame = self._frame(1)
                is_good = self._is_coroutine(frame) and self._is_known(args[1])
            case _:
                if event not in _NEVER and not event.startswith("ctypes."):
                    return
                frame, is_good = self._frame(1), False
        if not is_good:
            self._end(event, frame)

    def _end(self, event: str, frame: FrameType) -> None:
        try:
            self._tell(f"{event} at line {frame.f_lineno} of {frame.f_code.co_filename}")
        finally:
            self._exit(1)

    def _is_content(self, source: Any, path: Any) -> bool:
        """Say whether a source that gets the name of a file is what stands in it."""
        if type(source) is not bytes or type(path) is not str:
            return False
        if path.startswith(self._library) and ".." not in path:
            return _content(path) == source
        return self._own.get(path) == source

    def _is_known(self, path: Any) -> bool:
        # No other code can have such a name: not by compile, not by marshal, and not by a code object's own methods.
        return type(path) is str and (path.startswith((self._library, "<frozen ")) or path in self._own)

    def _is_no_danger(self, frame: FrameType, source: Any, path: Any) -> bool:
        """Say whether code is made of what the standard library has made, or never runs, as it has the name of no file."""
        if type(source) is bytes and source == (self._made(frame)[0] or "").encode():
            return True
        makers = [f"{self._library}{name}.py" for name in ("ast", "annotationlib", "typing")]
        is_such = frame.f_code is _Hook._is_made.__code__ or frame.f_code.co_filename in makers
        return is_such and not self._is_known(path)

    def _is_made(self, frame: FrameType, code: CodeType) -> bool:
        """Say whether this is the code of a text that the standard library has just made."""
        text, mode = self._made(frame)
        return text is not None and code == self._compile(text, "<string>", mode, dont_inherit=True)

    def _made(self, frame: FrameType) -> tuple[str | None, str]:
        """Return the text that the standard library has just made from plain names, and what it is to be compiled as."""
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        text, mode = None, "exec"
        if path == f"{self._library}collections/__init__.py" and name == "namedtuple":
            text, mode = frame.f_locals.get("code"), "eval"
        elif path == f"{self._library}dataclasses.py" and name in {"_create_fn", "add_fns_to_class"}:
            text = frame.f_locals.get("txt") if _has_plain_fields(frame) else None
        return text if type(text) is str else None, mode

    def _is_cached(self, frame: FrameType, data: Any) -> bool:
        """Say whether this is what the import system has found in a compiled file of the standard library."""
        known = frame.f_locals
        path = known.get("bytecode_path")
        return (
            frame.f_code.co_filename == "<frozen importlib._bootstrap_external>"
            and frame.f_code.co_name == "_compile_bytecode"
            and type(path) is str
            and path.startswith(self._library)
            and ".." not in path
            and _content(path)[16:] == bytes(data)
        )

    def _is_frozen(self, frame: FrameType) -> bool:
        """Say whether this is what the import system takes from the interpreter itself."""
        known = frame.f_locals
        args = known.get("args")
        return (
            frame.f_code.co_filename == "<frozen importlib._bootstrap>"
            and known.get("f") is self._frozen
            and type(args) is tuple
            and len(args) == 1
            and not known.get("kwds")
        )

    def _is_coroutine(self, frame: FrameType) -> bool:
        """Say whether a function of a file gets the mark of a coroutine, and nothing else."""
        known, code = frame.f_locals, frame.f_code
        return (code.co_filename, code.co_name) == (f"{self._library}types.py", "coroutine") and type(
            known.get("co")
        ) is type(code)


def _has_plain_fields(frame: FrameType | None) -> bool:
    """Say whether the names from which `dataclasses` makes a text are names and nothing more."""
    path = frame.f_code.co_filename if frame else ""
    while frame is not None and frame.f_code.co_filename == path:
        if frame.f_code.co_name == "_process_class":
            fields, kind = frame.f_locals.get("fields"), frame.f_globals["Field"]
            return type(fields) is dict and all(
                type(one) is kind and type(one.name) is str and one.name.isidentifier()
                for one in fields.values()
            )
        frame = frame.f_back
    return False


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - this program imports as little as it can
            return file.read()
    except OSError:
        return b""
