"""Count lines, words and bytes."""

import sys

arguments = sys.argv[1:]
wanted = "".join(argument[1:] for argument in arguments if argument.startswith("-"))
names = [argument for argument in arguments if not argument.startswith("-")]
if set(wanted) - set("lwc"):
    print("usage: wc.py [-l] [-w] [-c] [FILE ...]", file=sys.stderr)
    sys.exit(2)
for name in names or [None]:
    try:
        data = open(name, "rb").read() if name else sys.stdin.buffer.read()
    except OSError:
        print(f"wc.py: {name}: cannot read", file=sys.stderr)
        sys.exit(1)
    counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data)}
    parts = [str(counts[letter]) for letter in "lwc" if letter in (wanted or "lwc")]
    print(" ".join(parts + ([name] if name else [])))
