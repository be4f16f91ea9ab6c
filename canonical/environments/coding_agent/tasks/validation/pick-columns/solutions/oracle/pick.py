"""Print columns of a CSV file."""

import csv
import io
import sys


class UsageError(Exception):
    pass


def main(arguments):
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    try:
        columns, name, conditions = read_arguments(arguments)
    except UsageError:
        print("usage: pick.py COLUMN[,COLUMN ...] [FILE] [--where COLUMN=VALUE ...]", file=sys.stderr)
        return 2
    try:
        data = sys.stdin.buffer.read() if name == "-" else open(name, "rb").read()
    except OSError:
        print(f"pick.py: cannot read {name}", file=sys.stderr)
        return 1
    rows = [row for row in csv.reader(io.StringIO(data.decode("utf-8"), newline="")) if row]
    header = rows[0] if rows else []
    try:
        places = [place_of(column, header) for column in columns]
        tests = [(place_of(column, header), value) for column, value in conditions]
    except LookupError as error:
        print(f"pick.py: no column {error.args[0]}; there are: {', '.join(header)}", file=sys.stderr)
        return 1
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for number, row in enumerate(rows):
        row = row + [""] * (len(header) - len(row))
        if number == 0 or all(row[place] == value for place, value in tests):
            fields = [row[place] for place in places]
            if fields == [""]:
                print('""')
            else:
                writer.writerow(fields)
    return 0


def read_arguments(arguments):
    plain, conditions = [], []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--where":
            column, equals, value = next(rest, "").partition("=")
            if not equals:
                raise UsageError
            conditions.append((column, value))
        elif argument.startswith("--"):
            raise UsageError
        else:
            plain.append(argument)
    if not 1 <= len(plain) <= 2:
        raise UsageError
    return plain[0].split(","), plain[1] if len(plain) == 2 else "-", conditions


def place_of(column, header):
    if column in header:
        return header.index(column)
    if column.startswith("#") and column[1:].isdigit() and 1 <= int(column[1:]) <= len(header):
        return int(column[1:]) - 1
    raise LookupError(column)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
