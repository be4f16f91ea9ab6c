"""Print columns of a CSV file."""

import argparse
import csv
import sys

parser = argparse.ArgumentParser(prog="pick.py")
parser.add_argument("columns")
parser.add_argument("file", nargs="?", default="-")
parser.add_argument("--where", action="append", default=[])
options = parser.parse_args()
try:
    source = sys.stdin if options.file == "-" else open(options.file, newline="")
except OSError:
    print(f"pick.py: cannot read {options.file}", file=sys.stderr)
    sys.exit(1)
reader = csv.DictReader(source)
columns = options.columns.split(",")
for column in columns:
    if column not in reader.fieldnames:
        print(f"pick.py: no column {column}; there are: {', '.join(reader.fieldnames)}", file=sys.stderr)
        sys.exit(1)
writer = csv.writer(sys.stdout, lineterminator="\n")
writer.writerow(columns)
for row in reader:
    if all(row.get(key) == value for key, _, value in (where.partition("=") for where in options.where)):
        writer.writerow([row[column] for column in columns])
