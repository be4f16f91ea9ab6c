"""A to-do list."""

import json
import sys


def load():
    try:
        return json.load(open("todo.json"))
    except (FileNotFoundError, ValueError):
        return {"next": 1, "items": []}


def save(state):
    with open("todo.json", "w") as file:
        json.dump(state, file)


def main(arguments):
    state = load()
    if arguments[:1] == ["add"] and " ".join(arguments[1:]).strip():
        number = state["next"]
        state["items"].append([number, " ".join(arguments[1:]), False])
        state["next"] += 1
        print("added", number)
    elif arguments[:1] == ["done"] and len(arguments) == 2 and arguments[1].isdecimal():
        found = [item for item in state["items"] if item[0] == int(arguments[1])]
        if not found:
            print("todo.py: no item", arguments[1], file=sys.stderr)
            return 1
        found[0][2] = True
        print("done", arguments[1])
    elif arguments in (["list"], ["list", "--all"]):
        for number, text, done in state["items"]:
            if not done or len(arguments) == 2:
                print(f"{number} [{'x' if done else ' '}] {text}")
    elif arguments == ["clear"]:
        left = [item for item in state["items"] if not item[2]]
        print("cleared", len(state["items"]) - len(left))
        state["items"] = left
    else:
        print("usage: todo.py add|done|list|clear", file=sys.stderr)
        return 2
    save(state)
    return 0


sys.exit(main(sys.argv[1:]))
