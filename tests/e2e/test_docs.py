"""The documentation is what the code says."""

import os
import subprocess


def test_api_doc_is_up_to_date():
    build = os.environ.get("RADISH_BUILD", "build")
    made = subprocess.run([f"{build}/api_doc"], capture_output=True, text=True, check=True).stdout
    with open("docs/api.md", encoding="utf-8") as doc:
        assert doc.read() == made, "run `make docs`"
