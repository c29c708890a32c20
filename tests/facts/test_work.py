"""A work becomes text and comes back as it was."""

from tbdprof.facts import work
from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work

DENSE = Work(
    Operation.MATMUL,
    {"batch": 1, "rows": 8, "columns": 10, "inner": 16, "bias": 80},
    name="linear",
    backward=True,
    products=2,
    moved_bytes=1280,
    precision="bf16",
)


def test_a_text_stands_for_the_work_it_was_made_of() -> None:
    assert work.parse(work.text(DENSE)) == DENSE
    assert work.parse(work.text(Work(Operation.COPY))) == Work(Operation.COPY)


def test_one_work_has_one_text_in_whatever_order_its_sizes_were_given() -> None:
    turned = Work(Operation.POOLING, {"window": 9, "elements": 5}, name="max_pool")

    assert work.text(turned) == work.text(Work(Operation.POOLING, {"elements": 5, "window": 9}, name="max_pool"))


def test_works_that_differ_in_anything_have_different_texts() -> None:
    sizes = {"elements": 4}
    works = [
        Work(Operation.ACTIVATION, sizes, name="relu"),
        Work(Operation.ACTIVATION, sizes, name="tanh"),
        Work(Operation.ACTIVATION, sizes, name="relu", backward=True),
        Work(Operation.ACTIVATION, sizes, name="relu", moved_bytes=0),
        Work(Operation.ACTIVATION, sizes, name="relu", precision="fp64"),
        Work(Operation.ELEMENTWISE, sizes, name="relu"),
    ]

    assert len({work.text(each) for each in works}) == len(works)


def test_the_work_of_a_text_is_made_once() -> None:
    text = work.text(DENSE)

    assert work.parse(text) is work.parse(text)
