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
import re
import sys
from typing import Any, Dict, Iterator, List

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


class Schema:
    """A JSON schema."""

    def __init__(self, root: Dict[str, Any]) -> None:
        self.root = root

    def resolve(self, ref: str) -> Dict[str, Any]:
        """Returns what '#/A/B' refers to."""
        schema = self.root
        for part in ref[len("#/"):].split("/"):
            schema = schema[part]
        return schema

    def errors(self, value: Any, schema: Dict[str, Any],
               path: str = "$") -> Iterator[str]:
        """Yields how 'value', which is at 'path', breaks 'schema'."""
        for keyword, arg in schema.items():
            if keyword not in COMMENTS:
                method = getattr(self, "check_" + keyword.lstrip("$"))
                yield from method(value, arg, schema, path)

    def check_ref(self, value: Any, arg: str, _schema: Dict[str, Any],
                  path: str) -> Iterator[str]:
        """The schema that is elsewhere."""
        yield from self.errors(value, self.resolve(arg), path)

    def check_oneOf(self, value: Any, arg: List[Any],
                    _schema: Dict[str, Any], path: str) -> Iterator[str]:
        """Exactly one of several schemas."""
        errors = [list(self.errors(value, schema, path)) for schema in arg]
        matches = sum(not e for e in errors)
        if matches != 1:
            yield f"{path}: {matches} of {len(arg)} schemas match"
            yield from min(errors, key=len)

    @staticmethod
    def check_type(value: Any, arg: str, _schema: Dict[str, Any],
                   path: str) -> Iterator[str]:
        """A type."""
        if not TYPES[arg](value):
            yield f"{path}: {value!r} is no {arg}"

    @staticmethod
    def check_const(value: Any, arg: Any, _schema: Dict[str, Any],
                    path: str) -> Iterator[str]:
        """One value."""
        if value != arg:
            yield f"{path}: {value!r} is not {arg!r}"

    @staticmethod
    def check_enum(value: Any, arg: List[Any], _schema: Dict[str, Any],
                   path: str) -> Iterator[str]:
        """One of several values."""
        if value not in arg:
            yield f"{path}: {value!r} is none of {arg}"

    @staticmethod
    def check_minimum(value: Any, arg: float, _schema: Dict[str, Any],
                      path: str) -> Iterator[str]:
        """A lower limit."""
        if TYPES["number"](value) and value < arg:
            yield f"{path}: {value} is less than {arg}"

    @staticmethod
    def check_pattern(value: Any, arg: str, _schema: Dict[str, Any],
                      path: str) -> Iterator[str]:
        """A regular expression."""
        if isinstance(value, str) and not re.search(arg, value):
            yield f"{path}: {value!r} does not match {arg}"

    @staticmethod
    def check_required(value: Any, arg: List[str], _schema: Dict[str, Any],
                       path: str) -> Iterator[str]:
        """Members that must be there."""
        for name in arg:
            if isinstance(value, dict) and name not in value:
                yield f"{path}: {name} is missing"

    def check_properties(self, value: Any, arg: Dict[str, Any],
                         _schema: Dict[str, Any],
                         path: str) -> Iterator[str]:
        """Members that are known."""
        for name, schema in arg.items():
            if isinstance(value, dict) and name in value:
                yield from self.errors(value[name], schema,
                                       f"{path}.{name}")

    def check_additionalProperties(self, value: Any, arg: Any,
                                   schema: Dict[str, Any],
                                   path: str) -> Iterator[str]:
        """All other members."""
        if not isinstance(value, dict):
            return
        for name in value.keys() - schema.get("properties", {}).keys():
            if arg is False:
                yield f"{path}: {name} is unknown"
            else:
                yield from self.errors(value[name], arg, f"{path}.{name}")

    def check_items(self, value: Any, arg: Dict[str, Any],
                    _schema: Dict[str, Any], path: str) -> Iterator[str]:
        """The elements of an array."""
        if isinstance(value, list):
            for i, item in enumerate(value):
                yield from self.errors(item, arg, f"{path}[{i}]")


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
        schema = Schema(json.load(file))
    status = 0
    for name in sys.argv[2:]:
        with open(name, encoding="utf-8") as file:
            reply = json.load(file)
        errors = list(schema.errors(reply, schema.root))
        for part in reply.get("replies", [reply]):
            errors += sum_errors(part)
        for error in errors:
            print(f"{name}: {error}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
