"""Prints the documents of YAML on standard input as one list of JSON."""

import json
import sys

import yaml

json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)
