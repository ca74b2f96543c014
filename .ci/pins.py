"""Print the requirements of one dependency group of pyproject.toml, one a line.

For a pip that is older than its --group option.
"""

import sys
from pathlib import Path

import tomllib

project = tomllib.loads(Path(__file__).parent.with_name("pyproject.toml").read_text("utf-8"))
print("\n".join(project["dependency-groups"][sys.argv[1]]))
