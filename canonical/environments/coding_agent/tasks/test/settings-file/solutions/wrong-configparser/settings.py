"""Settings files of an old program."""

import configparser


def parse(text):
    """Return {section: {key: value}}."""
    parser = configparser.ConfigParser(
        interpolation=None, inline_comment_prefixes=("#", ";"), strict=False, default_section="\0"
    )
    parser.optionxform = str
    try:
        parser.read_string("[__top__]\n" + text)
    except configparser.Error:
        raise ValueError("line 1") from None
    result = {}
    for name in parser.sections():
        values = {key: value.strip('"') for key, value in parser[name].items()}
        if name != "__top__" or values:
            result["" if name == "__top__" else name.strip()] = values
    return result
