"""A panel that was never run, with any words, and what a browser makes of a page."""

import html.parser
import re
from pathlib import Path

from made_up import random_labels
from unlazy.figures import canvas
from unlazy.papers import Claim, Panel

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 740}
HOSTILE = "<script>alert('1')</script> id=\"x\" url(#x) & 'single' </style></pre><!-- ]]> {{ 7 * 7 }} {% raw %} ½σ"


class Drawn(Panel):
    """Figure 1 with any words, and made-up results in the place of recipes, which the lab `Ready` takes."""

    key, title, caption, demo = "made2099/fig1", "A made-up figure", "Made up.", True
    scales = {"quick": "small", "paper": "large"}  # noqa: RUF012
    text, holds, recipe = "it falls", True, ""

    def __init__(self, **words):
        vars(self).update(words)

    def recipes(self, scale, seeds=None):
        results = random_labels()
        for run in results.values():
            run.attrs["recipe"] = self.recipe or self.text
        return results

    def claims(self, results):
        return [Claim(self.text, self.text, self.text, self.holds)]

    def draw(self, results):
        figure, (axes,) = canvas()
        axes.plot([0, 1], [1, 0], label=self.text[:50], marker="o")
        axes.fill_between([0, 1], [0, 0], [1, 1], clip_on=True)
        axes.set_title(self.text[:50])
        axes.legend()
        return figure


class Page(html.parser.HTMLParser):
    """What a browser makes of a page: its elements, ids, references and the text that is shown."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.ids, self.references, self.shown = [], [], [], []
        self.source = Path(path).read_text(encoding="utf-8")
        self.feed(self.source)
        self.text = " ".join("".join(self.shown).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href", "src", "srcset", "data", "action"):
                self.references.append(value)
            self.references += [f"#{target}" for target in re.findall(r"url\(#(.*?)\)", value or "")]

    def handle_data(self, data):
        self.shown.append(data)
