"""Settings files of an old program."""

import re

_ESCAPES = {'"': '"', "\\": "\\", "n": "\n"}


def parse(text):
    """Return {section: {key: value}}."""
    result = {}
    section = ""
    for number, statement in _statements(text):
        if statement.startswith("["):
            match = re.fullmatch(r"\[([^\]]*)\]", statement)
            if match is None:
                raise ValueError(f"line {number}")
            section = match[1].strip()
            result.setdefault(section, {})
            continue
        match = re.fullmatch(r"([^=:]*)[=:](.*)", statement, re.DOTALL)
        key = match[1].strip() if match else ""
        if not key:
            raise ValueError(f"line {number}")
        result.setdefault(section, {})[key] = _value(match[2].strip(), number)
    return result


def _statements(text):
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        first = at + 1
        statement, goes_on = _strip(lines[at])
        at += 1
        while goes_on:
            if at == len(lines):
                raise ValueError(f"line {first}")
            more, goes_on = _strip(lines[at].lstrip())
            statement += more
            at += 1
        statement = statement.strip()
        if statement:
            yield first, statement


def _strip(line):
    """Return a line without its comment, and whether it goes on."""
    quoted = False
    skip = False
    before = " "
    value_begins = False
    for at, character in enumerate(line):
        if skip:
            skip = False
        elif quoted:
            if character == "\\":
                skip = True
            elif character == '"':
                quoted = False
        elif character == '"' and value_begins:
            quoted = True
        elif character in "#;" and before.isspace():
            return line[:at], False
        if not quoted:
            if character in "=:":
                value_begins = True
            elif not character.isspace():
                value_begins = False
        before = character
    if not quoted and line.endswith("\\"):
        return line[:-1], True
    return line, False


def _value(text, number):
    if not text.startswith('"'):
        return text
    match = re.fullmatch(r'"((?:[^"\\]|\\["\\n])*)"', text)
    if match is None:
        raise ValueError(f"line {number}")
    return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], match[1])
