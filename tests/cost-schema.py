#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks replies of the cost reports against their schema.

    cost-schema.py SCHEMA FILE...

Each FILE has one reply.  Prints what is wrong, if anything, and also what no
schema can say: that 'total' is the sum of the accounts, if all are listed.

This knows those keywords of JSON schemas that this one uses, and refuses
others, so that the tests need no further package.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Callable, Dict, Iterator, Tuple

# Keywords that don't restrict anything.
COMMENTS = {"$schema", "$id", "$comment", "$defs", "title", "description",
            "default"}

TYPES = {
    "object": lambda x: isinstance(x, dict),
    "array": lambda x: isinstance(x, list),
    "string": lambda x: isinstance(x, str),
    "boolean": lambda x: isinstance(x, bool),
    "integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "number": lambda x: (isinstance(x, (int, float))
                         and not isinstance(x, bool)),
}


# What a keyword asks of a value alone, and what a value is that breaks it.
SIMPLE: Dict[str, Tuple[Callable[[Any, Any], bool], str]] = {
    "type": (lambda x, arg: TYPES[arg](x), "{!r} is no {}"),
    "const": (lambda x, arg: x == arg, "{!r} is not {!r}"),
    "enum": (lambda x, arg: x in arg, "{!r} is none of {}"),
    "minimum": (lambda x, arg: not TYPES["number"](x) or x >= arg,
                "{} is less than {}"),
}
OF_OBJECTS = {"required", "properties", "additionalProperties"}


def schema_errors(root: Dict[str, Any], value: Any, schema: Dict[str, Any],
                  path: str = "$") -> Iterator[str]:
    """Yields how 'value', which is at 'path', breaks 'schema', a part of
    'root'."""
    for keyword, arg in schema.items():
        if keyword in SIMPLE:
            holds, text = SIMPLE[keyword]
            if not holds(value, arg):
                yield f"{path}: {text.format(value, arg)}"
        elif keyword == "$ref":         # "#/A/B".
            other = root
            for part in arg.split("/")[1:]:
                other = other[part]
            yield from schema_errors(root, value, other, path)
        elif keyword == "oneOf":
            errors = [list(schema_errors(root, value, one, path))
                      for one in arg]
            matches = sum(not e for e in errors)
            if matches != 1:
                yield f"{path}: {matches} of {len(arg)} schemas match"
                yield from min(errors, key=len)
        elif keyword == "items":
            for i, item in enumerate(value if isinstance(value, list) else ()):
                yield from schema_errors(root, item, arg, f"{path}[{i}]")
        elif keyword not in OF_OBJECTS:
            assert keyword in COMMENTS, keyword
        elif not isinstance(value, dict):
            continue
        elif keyword == "required":
            for name in arg:
                if name not in value:
                    yield f"{path}: {name} is missing"
        elif keyword == "properties":
            for name in arg.keys() & value.keys():
                yield from schema_errors(root, value[name], arg[name],
                                         f"{path}.{name}")
        else:
            for name in value.keys() - schema.get("properties", {}).keys():
                if arg is False:
                    yield f"{path}: {name} is unknown"
                else:
                    yield from schema_errors(root, value[name], arg,
                                             f"{path}.{name}")


def sum_errors(reply: Dict[str, Any]) -> Iterator[str]:
    """Yields where numbers of 'reply' do not add up."""
    for part in reply.get("accounts", []) + reply.get("total", []):
        for name, stage in part.get("stages", {}).items():
            histogram = stage.get("histogram")
            if histogram is None:
                continue
            count = (histogram["zero_count"] + histogram["overflow"]
                     + sum(histogram["bucket_counts"]))
            if count != stage["count"]:
                yield f"{name}: {count} in buckets of {stage['count']}"
    if reply.get("omitted") == 0 and "total" in reply:
        for what in "events", "accounts":
            parts = (sum(a.get(what, 1) for a in reply["accounts"])
                     + sum(d[what] for d in reply["deleted"]))
            total = sum(t[what] for t in reply["total"])
            if parts != total:
                yield f"{what}: {total} in total, {parts} in parts"


def main() -> int:
    """Checks all files; returns the exit status."""
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    status = 0
    for name in sys.argv[2:]:
        with open(name, encoding="utf-8") as file:
            reply = json.load(file)
        errors = list(schema_errors(schema, reply, schema))
        for part in reply.get("replies", [reply]):
            errors += sum_errors(part)
        for error in errors:
            print(f"{name}: {error}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
