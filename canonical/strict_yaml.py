"""YAML text, strictly: plain values only, and no key twice."""

from __future__ import annotations

from typing import Any


class InvalidYAMLError(ValueError):
    """Say what keeps a text from being YAML.

    Attributes:
        reason: What is wrong, to be read after the name of the file.
        line: The line where it is wrong, counted from 1; None when no line can be named.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason = reason
        self.line = line
        super().__init__(reason if line is None else f"{reason} (in line {line})")


def read_yaml(text: str) -> Any:
    """Read a text that is one YAML document of plain values.

    Returns:
        The value; None for an empty document.

    Raises:
        InvalidYAMLError: The text is not YAML, repeats a key, or holds a value that Python cannot.
    """
    import yaml  # noqa: PLC0415 - only bundles need YAML

    loader = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        _refuse_repeated_keys(root)
        return None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else int(mark.line) + 1
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InvalidYAMLError(f"is not YAML: {reason}", line) from error
    except RecursionError:
        raise InvalidYAMLError("is not YAML that can be read: it is nested too deeply") from None
    except InvalidYAMLError:
        raise
    except ValueError as error:
        # A number or a date of the right form that Python cannot hold.
        raise InvalidYAMLError(f"holds a value that cannot be read: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _refuse_repeated_keys(root: Any) -> None:
    """Refuse what the loader takes without a word: of two equal keys of a mapping it keeps the last."""
    nodes, known = [root], set()
    while nodes:
        node = nodes.pop()
        # An alias is the node of its anchor, which may even lie within itself.
        if id(node) in known or not isinstance(getattr(node, "value", None), list):
            continue
        known.add(id(node))
        lines: dict[tuple[str, str], int] = {}
        for child in node.value:
            if not isinstance(child, tuple):
                nodes.append(child)
                continue
            key, value = child
            nodes += [key, value]
            if not isinstance(key.value, str):
                continue
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise InvalidYAMLError(
                    f"the key {key.value!r:.80} was already used in line {lines[name]}", line
                )
            lines[name] = line
