"""Holds objects of KubeVirt against its own definitions: the schema in the Go file that is the first argument.

It prints what the API server would refuse: unknown keys and wrong values.
"""

import json
import re
import sys

import jsonschema
import yaml

with open(sys.argv[1]) as f:
    schemas = {name: yaml.safe_load(text)["openAPIV3Schema"]
               for name, text in re.findall(r'"(\w+)": `(openAPIV3Schema:.*?)`', f.read(), re.S)}


def close(schema):
    """Refuses keys that the schema does not name, as the API server does where validation is strict."""
    if isinstance(schema, dict):
        if schema.pop("x-kubernetes-int-or-string", False):
            schema.pop("anyOf", None)
            schema["type"] = ["integer", "string"]
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for v in schema.values():
            close(v)
    elif isinstance(schema, list):
        for v in schema:
            close(v)
    return schema


faults = []
for path in sys.argv[2:]:
    with open(path) as f:
        for o in yaml.safe_load_all(f):
            schema = schemas.get((o or {}).get("kind", "").lower())
            if schema is None:
                continue
            schema = close(schema)
            schema["properties"]["metadata"] = {"type": "object"}
            for e in jsonschema.Draft7Validator(schema).iter_errors(o):
                faults.append("%s: %s: %s" % (o["metadata"]["name"], ".".join(map(str, e.absolute_path)), e.message))
print(json.dumps(faults))
