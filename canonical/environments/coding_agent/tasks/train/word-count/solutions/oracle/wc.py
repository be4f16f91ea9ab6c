"""Count lines, words and bytes."""

import sys


def main(arguments):
    wanted, names, options = set(), [], True
    for argument in arguments:
        if options and argument == "--":
            options = False
        elif options and argument.startswith("-") and argument != "-":
            if set(argument[1:]) - set("lwc"):
                print("usage: wc.py [-l] [-w] [-c] [--] [FILE ...]", file=sys.stderr)
                return 2
            wanted |= set(argument[1:])
        else:
            names.append(argument)
    shown = [letter in (wanted or set("lwc")) for letter in "lwc"]
    sums, status = [0, 0, 0], 0
    for name in names or [None]:
        try:
            data = sys.stdin.buffer.read() if name in (None, "-") else open(name, "rb").read()
        except OSError:
            print(f"wc.py: {name}: cannot read", file=sys.stderr)
            status = 1
            continue
        counts = [data.count(b"\n"), len(data.split()), len(data)]
        sums = [a + b for a, b in zip(sums, counts)]
        show(counts, shown, name)
    if len(names) > 1:
        show(sums, shown, "total")
    return status


def show(counts, shown, name):
    parts = [str(count) for count, asked in zip(counts, shown) if asked]
    print(" ".join(parts + ([name] if name is not None else [])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
