"""The public names are what they are said to be."""

import tbdprof
from tbdprof.hooks import FRAMEWORKS, load


def test_every_public_name_can_be_had_and_none_is_hidden():
    assert sorted(tbdprof.__all__) == dir(tbdprof)
    for name in tbdprof.__all__:
        assert getattr(tbdprof, name).__module__.startswith("tbdprof.")


def test_a_name_that_is_not_there_is_an_attribute_error():
    assert not hasattr(tbdprof, "nonsense")


def test_every_framework_has_a_hook_of_its_name():
    assert [load(name).name for name in FRAMEWORKS] == list(FRAMEWORKS)
