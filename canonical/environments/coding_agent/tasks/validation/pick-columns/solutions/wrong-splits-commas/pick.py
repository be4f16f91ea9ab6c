"""Print columns of a CSV file."""

import sys

conditions, plain = [], []
arguments = iter(sys.argv[1:])
for argument in arguments:
    if argument == "--where":
        conditions.append(next(arguments, "").split("=", 1))
    else:
        plain.append(argument)
if not 1 <= len(plain) <= 2 or any(len(condition) != 2 for condition in conditions):
    print("usage: pick.py COLUMNS [FILE]", file=sys.stderr)
    sys.exit(2)
name = plain[1] if len(plain) == 2 else "-"
try:
    lines = (sys.stdin if name == "-" else open(name)).read().splitlines()
except OSError:
    print(f"pick.py: cannot read {name}", file=sys.stderr)
    sys.exit(1)
header = lines[0].split(",")


def place(column):
    if column.startswith("#") and int(column[1:]) <= len(header):
        return int(column[1:]) - 1
    if column not in header:
        print(f"pick.py: no column {column}; there are: {', '.join(header)}", file=sys.stderr)
        sys.exit(1)
    return header.index(column)


places = [place(column) for column in plain[0].split(",")]
tests = [(place(column), value) for column, value in conditions]
print(",".join(header[at] for at in places))
for line in lines[1:]:
    row = line.split(",") + [""] * len(header)
    if line and all(row[at] == value for at, value in tests):
        print(",".join(row[at] for at in places))
