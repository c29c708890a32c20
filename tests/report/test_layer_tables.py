"""Time by layer as people read it."""

from dataclasses import replace

from report.test_reporters import FULL, profiled
from report_results import LAYERS, measured

from tbdprof.analysis.summary import summarize
from tbdprof.report import terminal

RUN = summarize(profiled(FULL))


def lines(**changes: object) -> list[str]:
    return terminal.render_part(measured(RUN, **changes), "layers", width=100).splitlines()


def test_a_layer_has_its_share_and_its_own_time_forward_backward_and_otherwise():
    title, head, _, first, *rest = lines()

    assert title == "Time by layer, a step"
    assert head.split() == ["share", "utilization", "layer", "forward", "backward", "other", "calls"]
    assert first.split() == ["56.2", "%", "80.0", "%", "layer1.0.conv1", "30.00", "ms", "60.00", "ms", "4"]
    assert [line.split("  ")[0].strip() for line in rest] == ["25.0 %", "6.2 %", "12.5 %"]


def test_the_model_itself_and_what_is_in_no_layer_have_names():
    text = "\n".join(lines())

    assert "(model)" in text
    assert "(not in a layer)" in text


def test_the_report_shows_the_longest_and_the_part_shows_all():
    many = tuple(replace(LAYERS[0], layer=f"l{place}", share=1 / 16) for place in range(16))

    assert len(lines(layers=many)) == 3 + 16
    assert "\n(6 more, 37.5 %)\n" in terminal.render(measured(RUN, layers=many), width=100)
