"""A to-do list."""

import json
import os
import sys

FILE = "todo.json"
USAGE = "usage: todo.py add TEXT ... | done N | list [--all] | clear"


class Failure(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


def load():
    try:
        with open(FILE, encoding="utf-8") as file:
            data = json.load(file)
        items = [(item["number"], item["text"], item["done"]) for item in data["items"]]
        return {"next": int(data["next"]), "items": [list(item) for item in items]}
    except FileNotFoundError:
        return {"next": 1, "items": []}
    except (ValueError, KeyError, TypeError):
        raise Failure("todo.py: todo.json is damaged", 1) from None


def save(state):
    items = [{"number": number, "text": text, "done": done} for number, text, done in state["items"]]
    with open(FILE + ".new", "w", encoding="utf-8") as file:
        json.dump({"next": state["next"], "items": items}, file)
    os.replace(FILE + ".new", FILE)


def main(arguments):
    sys.stdout.reconfigure(encoding="utf-8")
    match arguments:
        case ["add", *words] if " ".join(words).strip():
            state = load()
            number = state["next"]
            state["items"].append([number, " ".join(words), False])
            state["next"] += 1
            save(state)
            print(f"added {number}")
        case ["done", number] if number.isdecimal():
            state = load()
            for item in state["items"]:
                if item[0] == int(number):
                    item[2] = True
                    break
            else:
                raise Failure(f"todo.py: no item {number}", 1)
            save(state)
            print(f"done {number}")
        case ["list"] | ["list", "--all"]:
            for number, text, done in load()["items"]:
                if not done or len(arguments) == 2:
                    print(f"{number} [{'x' if done else ' '}] {text}")
        case ["clear"]:
            state = load()
            left = [item for item in state["items"] if not item[2]]
            cleared = len(state["items"]) - len(left)
            if cleared:
                save({**state, "items": left})
            print(f"cleared {cleared}")
        case _:
            raise Failure(USAGE, 2)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        print(failure, file=sys.stderr)
        sys.exit(failure.code)
