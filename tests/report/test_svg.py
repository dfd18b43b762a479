"""Figures from anywhere become drawings and nothing else."""

import re

import pytest

from unlazy.report.svg import harmless

SPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
HEAD = f'<svg {SPACES} width="460pt" viewBox="0 0 9 9">'


def shown(inside, title="A figure"):
    return harmless(f"{HEAD}{inside}</svg>", "p0", title)


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<g><script href='data:text/javascript,alert(1)'/></g>",
        "<path d='M0 0' onclick='alert(1)' onload='alert(1)'/>",
        "<a href='javascript:alert(1)'><text>x</text></a>",
        "<use xlink:href='http://example.org/x.svg#a'/>",
        "<use href='javascript:alert(1)'/>",
        "<image href='http://example.org/x.png'/>",
        "<image xlink:href='data:image/svg+xml;base64,PHN2Zz4='/>",
        "<foreignObject><iframe xmlns='http://www.w3.org/1999/xhtml' src='http://example.org'/></foreignObject>",
        "<style>* { background: url(http://example.org) }</style>",
        "<rect style='fill: url(http://example.org/#a)'/>",
        "<rect style='fill: \\75rl(http://example.org)'/>",
        "<rect style='background-image: image-set(\"http://example.org\" 1x)'/>",
        "<rect fill='url( \"http://example.org\" )'/>",
        "<animate attributeName='href' to='javascript:alert(1)'/>",
        "<set attributeName='onmouseover' to='alert(1)'/>",
        "<metadata><x>http://example.org</x></metadata>",
        "<!-- http://example.org -->",
    ],
)
def test_what_could_act_or_fetch_is_gone(inside):
    svg = shown(inside)
    assert svg is not None
    assert not re.search(r"script|alert|example|<style|<a |foreign|iframe|animate|<set|\bon\w+=|base64|\\", svg, re.I)


@pytest.mark.parametrize(
    "svg",
    [
        "",
        "no drawing",
        "<html></html>",
        "<svg",
        f"{HEAD}<g></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'></svg>",
        f"<!DOCTYPE svg [<!ENTITY a 'aaaa'>]>{HEAD}&a;</svg>",
        "\0",
    ],
)
def test_what_is_no_drawing_is_refused(svg):
    assert harmless(svg, "p0", "x") is None


def test_a_drawing_stays_a_drawing():
    picture = "data:image/png;base64,iVBORw0KGgo="
    svg = shown(
        f'<defs><clipPath id="c"><rect width="3"/></clipPath></defs><g clip-path="url(#c)" style="fill: none">'
        f'<path id="m" d="M 1.23456 2 \nL -3.98765 4 \n"/>'
        f'<path d="M 0 0 C 1 1 2 2 3 3 L 4 4"/><use xlink:href="#m" x="1.5"/><image href="{picture}"/></g>'
        "<text>½ &lt; 1 id=&quot;x&quot; #m</text>"
    )
    assert '<clipPath id="p0-c">' in svg
    assert 'clip-path="url(#p0-c)"' in svg
    assert 'href="#p0-m"' in svg
    assert 'd="M 1.23 2 -3.99 4"' in svg
    assert picture in svg
    assert 'd="M 0 0 C 1 1 2 2 3 3 L 4 4"' in svg, "only straight lines are written shorter"
    assert '½ &lt; 1 id="x" #m' in svg, "text is not touched"
    assert "xmlns" not in svg
    assert "max-width:460pt" in svg


def test_the_name_is_for_those_who_cannot_see():
    svg = shown("", title='<b>"bold"</b> & more')
    assert 'role="img"' in svg
    assert 'aria-labelledby="p0-title"' in svg
    assert '<title id="p0-title">&lt;b&gt;"bold"&lt;/b&gt; &amp; more</title>' in svg
