import re
from pathlib import Path

from chakram.native import prefetch


def test_compiled_modules_find_all_functions_of_the_plain_one() -> None:
    declared = Path(prefetch.__file__).with_name("prefetch_lines.pxd").read_text()
    pattern = r'^    cpdef void (\w+) "chakram_\1"'
    assert set(re.findall(pattern, declared, re.MULTILINE)) == set(prefetch.__all__)
