"""Figures, drawn with matplotlib: the same numbers give the same bytes, in every process.

Text stays text in the SVG, so a page can set it in its own typeface and a reader can select it. Each figure is drawn
twice, for a wide and for a narrow page, because scaling one drawing down makes its text unreadable. Colours are
chosen for both light and dark paper and to be told apart with any kind of colour vision; shape and line style carry
the same distinctions. The standalone file has its light colours fixed; inside a page they are CSS custom properties.
"""

from __future__ import annotations

from reports.charts.distributions import Row, draw_distributions
from reports.charts.drawing import INKS, WIDTHS, Drawing, Ink, Shape
from reports.charts.ladder import Bracket, draw_ladder
from reports.charts.panels import Panel, draw_panels
from reports.charts.ratios import Comparison, draw_ratios
from reports.charts.releases import FrameworkPanel, Measured, ReleaseColumn, draw_releases
from reports.charts.server import Reading, draw_server
from reports.charts.steps import Step

__all__ = [
    "INKS",
    "WIDTHS",
    "Bracket",
    "Comparison",
    "Drawing",
    "FrameworkPanel",
    "Ink",
    "Measured",
    "Panel",
    "Reading",
    "ReleaseColumn",
    "Row",
    "Shape",
    "Step",
    "draw_distributions",
    "draw_ladder",
    "draw_panels",
    "draw_ratios",
    "draw_releases",
    "draw_server",
]
