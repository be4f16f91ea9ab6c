"""Settings files of an old program."""

import re


def parse(text):
    """Return {section: {key: value}}."""
    result = {}
    section = ""
    for number, line in enumerate(text.replace("\\\n", "").splitlines(), start=1):
        line = re.sub(r"(^|\s)[#;].*", "", line).strip()
        if not line:
            continue
        if line.startswith("["):
            if not line.endswith("]"):
                raise ValueError(f"line {number}")
            section = line[1:-1].strip()
            result.setdefault(section, {})
            continue
        match = re.fullmatch(r"([^=:]+)[=:](.*)", line)
        if match is None:
            raise ValueError(f"line {number}")
        value = match[2].strip()
        if value.startswith('"'):
            if len(value) < 2 or not value.endswith('"'):
                raise ValueError(f"line {number}")
            value = value[1:-1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
        result.setdefault(section, {})[match[1].strip()] = value
    return result
