"""Pictures of schedules, and the examples that they are drawn from."""

import html
import re
import sys
from doctest import DocTestParser
from xml.etree import ElementTree

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from cases import SCHEDULES

from eqopt import schedules
from eqopt.schedules import Constant, Linear, PiecewiseConstant

matplotlib.use("Agg")
CLASSES = sorted({type(case.schedule) for case in SCHEDULES.values()}, key=lambda c: c.__name__)
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def example_of(cls):
    """The schedule of the first example in a class's docstring, and the counts of its table."""
    found = {}
    for example in DocTestParser().get_examples(cls.__doc__):
        if table := re.search(r"for t in (\(.*\))\]", example.source):
            return found["schedule"], eval(table[1])
        exec(example.source, found)
    raise AssertionError("there is no table")


@each_class
def test_tables_in_docstrings(cls):
    """Each has an example of its own with the values at 0, at the boundaries, at the end and one
    after (that they are right is tested with all other examples)."""
    schedule, counts = example_of(cls)
    assert type(schedule) is cls
    assert counts[0] == 0
    fields = {name: getattr(schedule, name, None) for name in ("warmup_steps", "transition_steps")}
    wanted = [*getattr(schedule, "boundaries", ()), *filter(None, fields.values())]
    wanted += [] if schedule.steps is None else [schedule.steps, schedule.steps + 1]
    assert set(wanted) <= set(counts)


def points_of(text):
    """The points of the curve in a notebook's HTML."""
    picture = ElementTree.fromstring(text[text.index("<svg") : text.index("</div>")])
    line = picture.find("{http://www.w3.org/2000/svg}polyline")
    return np.array([[float(x) for x in point.split(",")] for point in line.get("points").split()])


@each_class
def test_notebooks_show_a_curve(cls):
    """Within the picture, from left to right, as high as it is, below what it prints as."""
    schedule, _ = example_of(cls)
    text = schedule._repr_html_()
    assert text.startswith(f"<div><pre>{html.escape(repr(schedule))}</pre><svg")
    points = points_of(text)
    assert len(points) > 1 and np.all(np.diff(points[:, 0]) > 0)
    assert points.min() >= 0 and points[:, 0].max() <= 240 and points[:, 1].max() <= 72


def test_the_curve_is_that_of_the_values():
    """Down is up on the screen; a constant is a line in the middle."""
    rise = points_of(Linear(3.0, 5.0, steps=2)._repr_html_())
    np.testing.assert_allclose(rise, [[6, 66], [120, 36], [234, 6]])
    flat = points_of(Constant(2.0)._repr_html_())
    assert set(flat[:, 1]) == {36}
    jump = points_of(PiecewiseConstant([0.0, 1.0], [2])._repr_html_())
    np.testing.assert_allclose(jump[:, 1], [66, 66] + [6] * 7)


def test_no_curve_of_unknown_values():
    """Batched and traced schedules print as text alone, as do values that are not finite."""
    assert eqx.filter_vmap(Constant)(jnp.ones(2))._repr_html_() is None
    shown = []
    jax.jit(lambda x: shown.append(Constant(x)._repr_html_()))(1.0)
    assert shown == [None]
    assert schedules.FromFunction(lambda t: 1 / t)._repr_html_() is None


def test_plot():
    """The values at each count, one line for each schedule, on the axes that are given."""
    rise, fall = Linear(0.0, 1.0, steps=4), Linear(1.0, 0.0, steps=8)
    axes = schedules.plot(rise)
    (line,) = axes.get_lines()
    np.testing.assert_allclose(line.get_xdata(), range(5))
    np.testing.assert_allclose(line.get_ydata(), [0, 0.25, 0.5, 0.75, 1])
    assert axes.get_legend() is None
    assert schedules.plot({"up": rise, "down": fall}, ax=axes) is axes
    assert [text.get_text() for text in axes.get_legend().get_texts()][-2:] == ["up", "down"]
    assert axes.get_lines()[-1].get_xdata()[-1] == 8
    assert schedules.plot(rise, steps=100, ax=axes).get_lines()[-1].get_xdata()[-1] == 100
    long = schedules.plot(Linear(0.0, 1.0, steps=10**10), ax=axes).get_lines()[-1]
    assert len(long.get_xdata()) < 3000 and long.get_xdata()[-1] == 2**31 - 1
    matplotlib.pyplot.close(axes.figure)


def test_wrong_plots(monkeypatch):
    """Nothing to draw, no steps, and no matplotlib."""
    with pytest.raises(ValueError, match="at least one schedule"):
        schedules.plot({})
    with pytest.raises(ValueError, match=r"`plot\(steps=...\)` must be at least 1; got 0"):
        schedules.plot(Constant(1.0), steps=0)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"needs matplotlib.*eqopt\[plot\]"):
        schedules.plot(Constant(1.0))
