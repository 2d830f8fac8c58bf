"""Validates JSON files: validate.py SCHEMA FILE..."""
import json
import sys

import jsonschema

schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
bad = 0
for path in sys.argv[2:]:
    data = json.load(open(path))
    for error in list(validator.iter_errors(data))[:5]:
        print(f"{path}: {list(error.path)}: {error.message[:200]}")
        bad += 1
    # Checks that every used name is defined exactly once, which a schema cannot express.
    stages = [stage["name"] for stage in data["stages"]]
    objects = [o["id"] for o in data["objects"] + data["shared_objects"]]
    used = [edge[end] for edge in data["edges"] for end in ("from", "to")]
    used += [name for o in data["objects"] for name in o["live"]]
    held = [name for stage in data["stages"] for key in ("allocates", "frees", "live") for name in stage[key]]
    for what, names, known in (("stage", used, stages), ("object", held, objects)):
        missing = set(names) - set(known)
        if missing or len(known) != len(set(known)):
            print(f"{path}: {what}s that are not defined once: {missing}")
            bad += 1
sys.exit(bad != 0)
