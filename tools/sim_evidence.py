# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""What tools/fit-costs found: sim/scenarios/evidence.json, as the tables of docs/costs.md and as lines of "viaduct sim paper"."""
import json
import os

from sim_scenario import Failure

NAME = "evidence.json"  # beside the scenarios


def load(folder):
    """None if the folder has none."""
    path = os.path.join(folder, NAME)
    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}") from None


def dump(found):
    """One parameter a line."""
    parts = [f' "{key}": ' + ("[\n  " + ",\n  ".join(map(json.dumps, value)) + "]" if isinstance(value, list) else
                              "{\n  " + ",\n  ".join(f'"{paper}": {json.dumps(one)}' for paper, one in value.items()) + "}")
             for key, value in found.items()]
    return "{\n" + ",\n".join(parts) + "}\n"


def range_text(interval):
    """Of [low, high, whether it is undetermined]."""
    low, high, is_wide = interval
    return f"{low:.3g} to {high:.3g}" + (" (undetermined)" if is_wide else "")


def alone_text(parameter):
    return ", ".join(f"{paper} alone {range_text(interval)}" for paper, interval in parameter["alone"].items())


def contradiction_text(parameter):
    return (f"{parameter['name']}: {alone_text(parameter)} {parameter['unit']}; together {parameter['value']:.4g} {parameter['unit']}, "
            f"{range_text(parameter['interval'])}")


def contradictions(found, letter=None):
    """A line for each parameter for which two papers need different values; letter: only those of this paper."""
    return [f"contradiction: {contradiction_text(parameter)}" for parameter in found["parameters"]
            if parameter["is_contradiction"] and (letter is None or letter in parameter["names"])]


# --- lines of a paper ---------------------------------------------------------------------------


def free_lines(found, letter, known):
    """The paper's free parameters; known: the values of the scenario, by section and key."""
    score = found["papers"].get(letter)
    if score is None:
        return
    free, by_hand = score["free"], score["by_hand"]
    yield f"{free} free parameters" + (f", {len(by_hand)} of these set by hand" if by_hand else "") + \
        ("; their range of 5 to 95 % by resampling; by how much a tenth more moves the paper's fitted figures" if free else "")
    for parameter in found["parameters"]:
        if letter not in parameter["names"]:
            continue
        name = parameter["names"][letter]
        section, key = name.rsplit(" ", 1)
        others = [paper for paper in parameter["names"] if paper != letter]
        note = f", shared with {' and '.join(others)}" if letter in parameter["fitted_to"] and others else \
            "" if letter in parameter["fitted_to"] else f", fitted to {' and '.join(parameter['fitted_to'])}"
        value = known[section, key]
        if f"{value.number / value.factor:.4g}" != f"{parameter['value']:.4g}":
            yield f"  {name} = {value.text(4)}: not the fitted value, {parameter['value']:.4g} {parameter['unit']}"
            continue
        yield (f"  {name} = {value.text(4)}: {range_text(parameter['interval'])}; moves them by {parameter['sensitivity'][letter]:.1f} %{note}")
    for name in by_hand:
        section, key = name.rsplit(" ", 1)
        yield f"  {name} = {known[section, key].text(4)}: set by hand"
    passed, count, parameters = score["null"]
    yield f"null model: {parameters} parameters and no simulation; {passed} of {count} held-out figures fit"


# --- tables of docs/costs.md ---------------------------------------------------------------------


def of(pair):
    return f"{pair[0]} of {pair[1]}"


def left_out_table(found):
    yield "| system | held-out figures that fit | median error | same, fitted to itself and the others |"
    yield "|---|---|---|---|"
    for paper, score in found["papers"].items():
        left, error = score["left_out"]
        yield f"| {paper} | {of(left)} | {error} | {of(score['held_out'])}, {score['error']} |"


def parameter_tables(found):
    yield "| shared parameter | A alone | B alone | together | a tenth more moves A's, B's figures by | |"
    yield "|---|---|---|---|---|---|"
    shared = [parameter for parameter in found["parameters"] if len(parameter["fitted_to"]) > 1]
    for one in shared:
        moves = ", ".join(f"{one['sensitivity'][paper]:.1f} %" for paper in one["fitted_to"])
        yield (f"| {one['name']}, {one['unit']} | {range_text(one['alone']['A'])} | {range_text(one['alone']['B'])} "
               f"| {one['value']:.4g}, {range_text(one['interval'])} | {moves} | {'contradiction' if one['is_contradiction'] else ''} |")
    yield ""
    yield "| own parameter | value | 5 to 95 % | a tenth more moves its figures by |"
    yield "|---|---|---|---|"
    for one in found["parameters"]:
        if len(one["fitted_to"]) == 1:
            moves = ", ".join(f"{change:.1f} %" + (f" ({paper})" if len(one["sensitivity"]) > 1 else "") for paper, change in one["sensitivity"].items())
            yield f"| {one['fitted_to'][0]}: {one['name']}, {one['unit']} | {one['value']:.4g} | {range_text(one['interval'])} | {moves} |"
    yield ""


def score_table(found):
    yield ("| system | free parameters | of these set by hand | fitted figures that fit | held out, fitted alone | held out, shared parts "
           "| null model | no evidence: the null model passes, too | evidence |")
    yield "|---|---|---|---|---|---|---|---|---|"
    for paper, score in found["papers"].items():
        passed, count, parameters = score["null"]
        empty = score["no_evidence"]
        yield (f"| {paper} | {score['free']} | {len(score['by_hand'])} | {of(score['fitted'])} | {of(score['alone'])} | {of(score['held_out'])} "
               f"| {passed} of {count}, {parameters} parameters | {empty} | {score['held_out'][0] - empty} |")


def blocks(found):
    """The marked parts of docs/costs.md, by mark."""
    return {"contradictions": "\n".join(f"- *Contradiction*: {contradiction_text(one)}." for one in found["parameters"] if one["is_contradiction"])
            or "- No contradiction: the ranges of all shared parameters agree.",
            "left out": "\n".join(left_out_table(found)), "evidence": "\n".join([*parameter_tables(found), *score_table(found)])}
