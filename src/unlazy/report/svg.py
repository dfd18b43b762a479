"""Figures inside a page: an SVG file is embedded with nothing but its drawing.

A record may come from anywhere, so its figure is parsed as XML, and only the elements of a drawing are written again:
no scripts, no event handlers, no styles for the rest of the page, nothing that is fetched. Ids get a prefix, because
Matplotlib uses the same ones in every file and a page has a single name space.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

_SHAPES = {"svg", "g", "defs", "path", "use", "clipPath", "rect", "circle", "ellipse", "line", "polyline", "polygon"}
_ELEMENTS = _SHAPES | {"text", "tspan", "image", "linearGradient", "stop"}
_PLACE = {"d", "transform", "x", "y", "width", "height", "viewBox", "points", "cx", "cy", "r", "rx", "ry", "offset"}
_LINE = {"stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "fill", "fill-opacity", "opacity", "font-size"}
_PLAIN = _PLACE | _LINE | {"x1", "y1", "x2", "y2", "text-anchor", "preserveAspectRatio", "clip-path", "style", "id"}
_LINES = re.compile(r"\s*(?:L|\s)\s*")  # after M x y, further pairs of numbers are lines
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(\s*#([^)\s]+)\s*\)")
_SUSPECT = re.compile(r"[\\@]|/\*|url\s*\(|src\s*\(|image\s*\(|image-set|expression|javascript:", re.IGNORECASE)
_DEEPEST = 64  # levels of elements; figures of Matplotlib have about ten
_HERE = re.compile(r"#[\w.:-]+")
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")


def harmless(svg: str, prefix: str, title: str) -> str | None:
    """Return a figure for a page, with ``title`` for screen readers; None if it is not a valid drawing."""
    if "<!DOCTYPE" in svg or "<!ENTITY" in svg:
        return None
    try:
        root = ElementTree.fromstring(svg)
    except (ElementTree.ParseError, ValueError):
        return None
    if _local(root.tag) != "svg" or "viewBox" not in root.attrib or _too_deep(root):
        return None
    clean = _clean(root, prefix)
    width = clean.attrib.pop("width", "")
    clean.attrib.pop("height", None)
    # A figure is at most as wide as it was drawn, and scrolls where its letters would shrink too much to be read.
    points = float(number[0]) if (number := re.match(r"\d+(?:\.\d+)?", width)) else 460.0
    least = f"min({points:.0f}pt,max(34rem,{0.75 * points:.0f}pt))"
    clean.attrib |= {"role": "img", "style": f"width:100%;max-width:{points:.0f}pt;min-width:{least}"}
    clean.attrib["aria-labelledby"] = f"{prefix}-title"
    name = ElementTree.Element("title", {"id": f"{prefix}-title"})
    name.text = title
    clean.insert(0, name)
    return ElementTree.tostring(clean, encoding="unicode", short_empty_elements=True)


def _too_deep(root: ElementTree.Element) -> bool:
    """Whether elements are nested more deeply than any drawing needs."""
    level = [root]
    for _ in range(_DEEPEST):
        level = [child for element in level for child in element]
        if not level:
            return False
    return True


def _local(tag: object) -> str:
    return str(tag).rpartition("}")[2]


def _clean(element: ElementTree.Element, prefix: str) -> ElementTree.Element:
    kept = ElementTree.Element(_local(element.tag))
    kept.text, kept.tail = ((text if text and not text.isspace() else None) for text in (element.text, element.tail))
    for name, value in element.attrib.items():
        if (safe := _attribute(_local(name), value, prefix)) is not None:
            kept.set(_local(name), safe)
    for child in element:
        if isinstance(child.tag, str) and _local(child.tag) in _ELEMENTS:  # comments have no name
            kept.append(_clean(child, prefix))
    return kept


def _attribute(name: str, value: str, prefix: str) -> str | None:
    """Return the value of an attribute for the page, or None if it is not allowed there."""
    if name == "href":
        if _HERE.fullmatch(value):
            return f"#{prefix}-{value[1:]}"
        return value if _PICTURE.fullmatch(value) else None
    if name not in _PLAIN:
        return None
    if name == "id":
        return f"{prefix}-{value}"
    own = _REFERENCE.sub(rf"url(#{prefix}-\1)", value)
    if _SUSPECT.search(own.replace(f"url(#{prefix}-", "")):
        return None  # it would fetch something, or hides what it does
    own = _NUMBER.sub(lambda found: f"{float(found[0]):.2f}", own)  # a hundredth of a point cannot be seen
    return _LINES.sub(" ", own).strip() if name == "d" and set(re.findall("[A-Za-z]", own)) <= {"M", "L", "z"} else own
