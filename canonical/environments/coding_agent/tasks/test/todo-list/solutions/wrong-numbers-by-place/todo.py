"""A to-do list."""

import json
import os
import sys

arguments = sys.argv[1:]
try:
    items = json.load(open("todo.json")) if os.path.exists("todo.json") else []
    items = [[str(text), bool(done)] for text, done in items]
except (ValueError, TypeError):
    print("todo.py: todo.json is damaged", file=sys.stderr)
    sys.exit(1)


def save():
    json.dump(items, open("todo.tmp", "w"))
    os.replace("todo.tmp", "todo.json")


if arguments[:1] == ["add"] and " ".join(arguments[1:]).strip():
    items.append([" ".join(arguments[1:]), False])
    save()
    print("added", len(items))
elif arguments[:1] == ["done"] and len(arguments) == 2 and arguments[1].isdecimal():
    if not 1 <= int(arguments[1]) <= len(items):
        print("todo.py: no item", arguments[1], file=sys.stderr)
        sys.exit(1)
    items[int(arguments[1]) - 1][1] = True
    save()
    print("done", arguments[1])
elif arguments in (["list"], ["list", "--all"]):
    for number, (text, done) in enumerate(items, start=1):
        if not done or len(arguments) == 2:
            print(f"{number} [{'x' if done else ' '}] {text}")
elif arguments == ["clear"]:
    before = len(items)
    items = [item for item in items if not item[1]]
    save()
    print("cleared", before - len(items))
else:
    print("usage: todo.py add|done|list|clear", file=sys.stderr)
    sys.exit(2)
