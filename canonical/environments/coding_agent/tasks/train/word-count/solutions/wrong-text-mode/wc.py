"""Count lines, words and bytes."""

import argparse
import sys

parser = argparse.ArgumentParser(prog="wc.py")
parser.add_argument("-l", action="store_true")
parser.add_argument("-w", action="store_true")
parser.add_argument("-c", action="store_true")
parser.add_argument("files", nargs="*")
options = parser.parse_args()
every = not (options.l or options.w or options.c)
total = [0, 0, 0]
status = 0


def show(counts, name):
    flags = [options.l or every, options.w or every, options.c or every]
    parts = [str(count) for count, flag in zip(counts, flags) if flag]
    print(" ".join(parts + ([name] if name else [])))


for name in options.files or [""]:
    try:
        text = sys.stdin.read() if name in ("", "-") else open(name).read()
    except OSError:
        print(f"wc.py: {name}: cannot read", file=sys.stderr)
        status = 1
        continue
    counts = [len(text.splitlines()), len(text.split()), len(text)]
    total = [a + b for a, b in zip(total, counts)]
    show(counts, name)
if len(options.files) > 1:
    show(total, "total")
sys.exit(status)
