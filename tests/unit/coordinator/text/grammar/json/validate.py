#!/usr/bin/env python3
"""Reads lines {"schema": S, "texts": [JSON texts]} and prints which texts are no values that jsonschema finds valid.

Exits with 77 where Debian's python3-jsonschema is not installed.
"""
import json
import sys
import warnings

warnings.simplefilter("ignore")
try:
    import jsonschema
except ImportError:
    sys.exit(77)

# Of this draft: the general one has a "time" of an old draft, without a zone.
validator_class = jsonschema.Draft202012Validator
formats = getattr(validator_class, "FORMAT_CHECKER", None) or jsonschema.draft202012_format_checker
count = 0
errors = []  # printed at the end: nobody reads before all is written
for line in sys.stdin:
    case = json.loads(line)
    validator_class.check_schema(case["schema"])
    validator = validator_class(case["schema"], format_checker=formats)
    for text in case["texts"]:
        count += 1
        try:
            validator.validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as error:
            errors.append(f"{json.dumps(case['schema'])} finds no value in {text}: {str(error).splitlines()[0]}\n")
print("".join(errors) + f"{count} texts")
