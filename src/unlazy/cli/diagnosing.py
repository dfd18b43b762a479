"""The command that finds the regime of a user's own model."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from unlazy._errors import UserError
from unlazy._files import writable
from unlazy._terminal import print_json, print_table
from unlazy.cli.application import OK, app, interruptible
from unlazy.cli.options import Json, Out, count

Check = Literal["regime", "coordinates", "rates"]


@app.command
@interruptible
def diagnose(
    make: str,
    /,
    *,
    data: str,
    check: Check = "regime",
    samples: Annotated[int | None, Parameter(converter=count)] = None,
    widths: str = "64,128,256,512",
    rate: float = 0.1,
    until: float | None = None,
    seeds: Annotated[int, Parameter(converter=count)] = 3,
    out: Out = Path("runs"),
    json: Json = False,
) -> int:
    """Train your own model at several widths, and say whether it is lazy or learns features.

    `unlazy diagnose mymodel:make --data mnist --samples 500` imports `make` from the file `mymodel.py` in the current
    folder. `make(width, key)` returns a model: an Equinox, Flax or Haiku model, or a function with its parameters. It
    is trained at each width by full-batch gradient descent, together with its linearisation at the start. Exponents of
    the width are fitted to what changes, and the answer is LAZY, FEATURE LEARNING, CONDENSED, UNSTABLE, TRIVIAL or
    UNDECIDED, for the whole model and for each layer. Models whose rates depend on the width return
    `unlazy.wrap(model, rates=...)`, or a pair of a model and its flow, such as
    `(model, unlazy.Descent(rate=1 / width))`.

    `--check coordinates` compares sizes and first updates of each layer with those of μP instead, and says which
    multiplier is off in which layer: RIGHT, WRONG or UNDECIDED. `--check rates` trains at nine learning rates around
    `--rate`, each twice the one before, and says whether the best one depends on the width: TRANSFERS, DOES NOT
    TRANSFER or UNDECIDED.

    The figure and all numbers are written to OUT/diagnoses, where `unlazy report` finds them. The exit status is 0
    whatever the answer is. After Ctrl-C the widths that were finished are saved there, and the same command continues
    from them.

    Parameters
    ----------
    make
        The function, as `package.module:make`.
    data
        The data set to train on: one that `unlazy list data` shows, a file `.npz` or `.csv` (whose last column is the
        target), or your own as `package.module:data`.
    check
        What to find out: the regime, whether the coordinates scale as in μP, or whether learning rates transfer.
    samples
        Number of training samples, for data sets with the option `n`.
    widths
        Increasing widths, separated by commas. Four widths, each twice the one before, give narrow intervals.
    rate
        Learning rate of gradient descent. If the model has learning-rate factors of its own, it is multiplied by them.
    until
        Time at which training ends: the number of steps times the rate; 300 steps if omitted. Only for `--check
        regime`: coordinates are compared after 3 steps, and rates after 100.
    seeds
        Number of initialisations at each width.
    out
        Folder of results.
    json
        Print everything that was measured as JSON instead of a table.
    """
    try:
        wanted = [int(part) for part in widths.split(",")]
    except ValueError:
        advice = "give whole numbers separated by commas, such as 64,128,256,512"
        raise UserError(f"--widths {widths}: {advice}.") from None
    if until is not None and check != "regime":
        raise UserError(f"--until {until:g} is only for --check regime: leave it out of --check {check}.")
    writable(out / "diagnoses", "The diagnosis", "--out")
    from unlazy import lab
    from unlazy._compilation import use_cache
    from unlazy._registry import load
    from unlazy.flows import Descent

    use_cache()
    form = next((one for one in ("npz", "csv") if data.removesuffix(".gz").endswith(f".{one}")), None)
    section: dict[str, Any] = {"kind": form, "path": data} if form else {"kind": data}
    section |= {} if samples is None else {"n": samples}
    function, drawn = load(make), lab.build(section, "data", "--data", key=0)
    name = make.replace(":", ".") + ("" if check == "regime" else f"-{check}")
    saved = out / "diagnoses" / f"{name}.part"
    common: dict[str, Any] = {"flow": Descent(rate=rate), "seeds": seeds, "saved": saved}
    if check == "regime":
        found = lab.diagnose(function, drawn, wanted, until=until, **common)
    elif check == "coordinates":
        found = lab.coordinate_check(function, drawn, wanted, **common)
    else:
        found = lab.rate_transfer(function, drawn, wanted, [rate * 2.0**power for power in range(-4, 5)], **common)
    call = f"unlazy diagnose {make} --data {data} --widths {widths} --rate {rate:g} --seeds {seeds}"
    call += f" --samples {samples}" if samples is not None else ""
    call += f" --until {until:g}" if until is not None else ""
    call += f" --check {check}" if check != "regime" else ""
    found.settings["command"] = call
    path = found.save(out / "diagnoses" / f"{name}.json")
    content = json_format.loads(path.read_text(encoding="utf-8"))
    if json:
        print_json(content)
    else:
        head, rows = found.table()
        if check != "regime":
            print(f"{content['answer']}. {content['reason']}\n")
        print_table(head, [list(row) for row in rows])
        print(f"Figure: {path.with_suffix('.svg')}")
    if "interrupted" in found.settings:
        raise KeyboardInterrupt(found.settings["interrupted"])
    return OK
