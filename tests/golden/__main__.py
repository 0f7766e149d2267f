"""Write golden.json anew: python -m tests.golden

Do so only for a change that is meant to change results, and say in the commit message which, and why: a sentence at
least. A refactoring never needs it. Changes of names go into RENAMED of runs.py. The numbers are those of one machine;
`machine` in the file says which one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.golden.record import PATH, differences, load, record, write

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = record(Path(folder))
    lines = list(differences(load(), found)) if PATH.exists() else []
    write(found)
    print("\n".join(lines))
    print(f"{PATH.name}: {PATH.stat().st_size} bytes; {len(lines)} differences. Say in the commit message why.")
