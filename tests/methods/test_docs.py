"""Every method and every objective is documented alike, and its example runs."""

import dataclasses
import doctest
import inspect
import re

import pytest

from undrift.core.params import meanings
from undrift.methods import registry as methods
from undrift.objectives import registry as objectives

ALL = [*methods.values(), *objectives.values()]
SECTIONS = ("Args:", "Example:", "References:")


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_the_docstring(cls):
    text = inspect.cleandoc(cls.__doc__)
    head, *rest = text.splitlines()
    assert head.endswith(".") and not rest[0], "a summary, then an empty line"
    assert ".. math::" in text, "the update"
    found = [line for line in rest if line in SECTIONS]
    assert found == [s for s in SECTIONS if s != "Args:" or dataclasses.fields(cls)]
    assert set(meanings(cls)) == {field.name for field in dataclasses.fields(cls)}
    reference = text.split("References:")[1]
    assert re.search(r"\b(18|19|20)\d\d\b", reference) or cls.__name__ in ("FedRecu", "FedCET")


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_the_example(cls):
    tests = doctest.DocTestFinder(recurse=False).find(cls, cls.__name__)
    assert tests and all(test.examples for test in tests)
    for test in tests:
        assert cls.__name__ in "".join(example.source for example in test.examples)
        assert doctest.DocTestRunner().run(test).failed == 0
