"""Whether a claim of a paper holds, by one stated rule, from stored results and intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from .claims import AUTHORS, WRITTEN, Case, cases, fallen
from .experiment import HIGH, Claim, Experiment
from .outputs import has_authors

SEEDS = 3  # that an interval needs at least
LEVEL = 0.005  # of accuracy: an interval this near to zero says that two are level; of a loss it is a share of it
HOLDS, FAILS, ONLY, OPEN = "holds", "fails", "holds only", "not decided"

RULE = f"""\
A claim is an order of methods. It is held against every pair of numbers that differ in nothing else, by the
differences over seeds, seed by seed (the same data and the same draws), with Student's interval. One that speaks for a
claim is a 95% interval, as a claim about all of them needs each (intersection–union); one that speaks against it must
stand at 95% for all of the claim's comparisons together (Bonferroni). *holds*: every comparison is for it, or level
(within half a point; of losses, half a hundredth), and at least one is for it. *fails*: some are against it and none
for it, or all are level. *holds only in k of n comparisons*: k are for it, and the others against it, level or not to
be told, which the last column says; of those where none is against it k is at least half. A claim about "most" cases
holds if more than half of the comparisons are for it, and fails if more than half are against it or level. *holds only
with the authors' switches*: with the settings to which the authors' code amounts it holds, and as the paper is written
it does not. *holds only in direction*: the order comes out, the size that the paper gives does not lie in the interval.
*not decided*: everything else, among it all that was run with fewer than {SEEDS} seeds or in quick size only. A
comparison that goes against a paper counts only where the method that it favours was given at least what the other was:
gradients, fine-tuning, clients that train, settings to choose from (they are counted by playing them), and where its
best setting does not lie at an end of its grid, beyond which a better one may be (unless the next one in the grid is
level with it on validation data); else it is open. Where the full size does not decide, the reduced one does, and the
last column says so; each experiment below says what was reduced. What fails there may hold in full.
Claims of theorems are decided by `sartor theory`. The interval that is shown is that of the mean of all differences, in
points of accuracy unless it says otherwise."""


class HeldAgainst(NamedTuple):
    """Two numbers of a case: the differences of each seed, positive where the claim says they should be."""

    differences: list[float]
    size: float  # of the numbers themselves
    fair: bool = True  # whether the one that should be better was given at least what the other was
    measure: str = "accuracy"


class Standing(NamedTuple):
    """What one column says of a claim."""

    verdict: str
    detail: str = ""


class Verdict(NamedTuple):
    """What is written in the table."""

    verdict: str
    detail: str

    def with_fair(self, other: Verdict, name: str) -> Verdict:
        """The same, where another experiment asks it with equal gradients and settings to choose from."""
        if other.verdict == OPEN:
            return Verdict(self.verdict, f"{self.detail}; with equal work (`{name}`) {OPEN}: {other.detail}")
        told = f"with equal work (`{name}`) {other.detail}; at the printed settings {self.verdict}: {self.detail}"
        printed = self.verdict == HOLDS or self.verdict.endswith("switches")
        if other.verdict != HOLDS and printed:
            return Verdict(f"{ONLY} with the printed settings", told)
        return Verdict(other.verdict, told)


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean."""
    n = len(values)
    half = float(student.ppf(0.5 + level / 2, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def comparisons(found: Sequence[Case], claim: Claim) -> Iterator[HeldAgainst]:
    """Every number of a member against every number of the next, over the seeds that both have."""
    sign = 1.0 if claim.measure in HIGH else -1.0
    for case in found:
        known = zip(case.each, case.work, case.edge, strict=True)
        members = [list(zip(each, work, edge, strict=True)) for each, work, edge in known]
        for first, second in pairwise(members):
            for (a, mine, narrow), (b, theirs, _) in product(first, second):
                seeds = sorted(set(a) & set(b))
                size = float(np.mean([abs(v) for s in seeds for v in (a[s], b[s])])) if seeds else 0.0
                yield HeldAgainst([sign * (a[s] - b[s]) for s in seeds], size, at_least(mine, theirs) and not narrow)


def at_least(mine: Sequence[float] | None, theirs: Sequence[float] | None) -> bool:
    """Whether one was given at least the gradients, training clients and settings of another (work.Work). Gradients
    are those of all rounds and of fine-tuning together; of tables from before rounds were stored, each by itself."""
    if mine is None or theirs is None:
        return False
    known = [[w[0] * w[4] + w[1], *w[2:4]] if len(w) > 4 else list(w) for w in (mine, theirs)]
    return all(a >= 0.99 * b for a, b in zip(*known, strict=True))


def standing(claim: Claim, table: Mapping[str, Any], column: str) -> Standing:
    """What a column of a stored table says."""
    cells, groups, told, off = fallen(table["cells"], claim, column), list[list[HeldAgainst]](), list[str](), False
    for measure in (claim.measure, *claim.also):
        one = claim.model_copy(update={"measure": measure})
        found = [list(comparisons(cases(cells, one, order, column), one)) for order in claim.orders]
        if claim.least is not None:
            alone = _alone(cells, one, column)
            found.append([HeldAgainst([v - claim.least / 100 for v in c.each[0][0].values()], 1.0) for c in alone])
        for i, group in enumerate(found):
            claimed = claim.claimed[i] if i < len(claim.claimed) and measure == claim.measure else None
            text, outside = _interval_in_words(group, measure, claimed)
            told += [f"{measure.replace('_', ' ')} {text}" if claim.also else text] if text else []
            off |= outside
        groups += [[p._replace(measure=measure) for p in group] for group in found]
    n = sum(map(len, groups))
    if n == 0:
        return Standing(OPEN, "not run")
    votes = [_vote(p, claim, n) for group in groups for p in group]
    return Standing(_verdict(votes, off, claim.most), _detail(told, votes, groups))


def _interval_in_words(group: Sequence[HeldAgainst], measure: str, claimed: float | None) -> tuple[str, bool]:
    """The mean of a group's differences with its interval, and whether what the paper gives lies outside."""
    known = [p for p in group if len(p.differences) >= SEEDS]
    if not known:
        return "", False
    low, high, middle = _over_all(known)
    if measure == "bytes":
        return f"{10**middle:,.0f} times fewer bytes [{10**low:,.0f}, {10**high:,.0f}]", False
    scale = 1.0 if "loss" in measure or measure == "training_curve" else 100.0
    text = f"{scale * middle:+.3g} [{scale * low:.3g}, {scale * high:.3g}]"
    off = claimed is not None and not low <= claimed / 100 <= high
    return text + (f", the paper {claimed:+g}" if claimed is not None else ""), off


def _detail(told: Sequence[str], votes: Sequence[str], groups: Sequence[Sequence[HeldAgainst]]) -> str:
    """Intervals, how many comparisons there are, and which of them do not count."""
    n, unfair = len(votes), votes.count("unfair")
    seeds = [len(p.differences) for group in groups for p in group]
    few = sum(s < SEEDS for s in seeds)
    words = [*told, f"{n} comparison{'s' * (n != 1)}"]
    if n > 1 and "yes" in votes:
        kinds = (("yes", "for it"), ("no", "against it"), ("level", "level"), ("open", "open"))
        words[-1] += ": " + ", ".join(f"{votes.count(k)} {word}" for k, word in kinds if votes.count(k))
    words += [f"{few} of them with fewer than {SEEDS} seeds"] if few else []
    words += [f"{unfair} against it with less work, tuning or a best setting at an end of its grid"] if unfair else []
    return "; ".join(words)


def _alone(cells: Sequence[Mapping[str, Any]], claim: Claim, column: str) -> list[Case]:
    """Every cell of the claim's kind by itself; numbers of other data cannot be held against a printed threshold."""
    there = [c for c in cells if c["differs"] is None or c["paper"] is None]
    return [case for c in there for case in cases([c], claim, [{"row": c["row"]}], column)]


def _over_all(pairs: Sequence[HeldAgainst]) -> tuple[float, float, float]:
    """The interval and the mean of all differences, averaged for each seed first."""
    n = min(len(p.differences) for p in pairs)  # seeds are sorted, and runs begin with the first
    means = [float(np.mean([p.differences[s] for p in pairs])) for s in range(n)]
    return *interval(means), float(np.mean(means))


def _vote(pair: HeldAgainst, claim: Claim, comparisons: int) -> str:
    if len(pair.differences) < SEEDS:
        return "open"
    low, high = interval(pair.differences)
    worst = interval(pair.differences, 1 - 0.05 / comparisons)[1]
    if claim.within is not None:  # "comparable": not worse by more than that
        margin = claim.within / 100
        return "yes" if low > -margin else _against(pair) if worst < -margin else "open"
    near = LEVEL if pair.measure in HIGH else LEVEL * pair.size
    if -near <= low and high <= near:
        return "level"
    return "yes" if low > 0 else _against(pair) if worst < 0 else "open"


def _against(pair: HeldAgainst) -> str:
    return "no" if pair.fair else "unfair"


def _verdict(votes: Sequence[str], off: bool, most: bool) -> str:
    yes, no, level, n = votes.count("yes"), votes.count("no"), votes.count("level"), len(votes)
    holds = f"{ONLY} in direction" if off else HOLDS
    if most and yes > n / 2:
        return holds
    if no and not yes:
        return FAILS
    if level == n:
        return f"{FAILS}: level"
    if most and no + level > n / 2:
        return FAILS
    if no:
        return f"{ONLY} in {yes} of {n} comparisons"
    if 2 * yes < n:
        return OPEN
    return f"{ONLY} in {yes} of {n} comparisons" if {"open", "unfair"} & set(votes) else holds


def decided(
    claim: Claim, experiment: Experiment | None, tables: Sequence[Mapping[str, Any]], theory: Mapping[str, Any]
) -> Verdict:
    """The verdict on a claim, and the interval or the reason: of the first table that decides, the full size first."""
    if claim.theory:
        return _by_theory(claim, theory)
    if claim.undecidable:
        return Verdict(OPEN, claim.undecidable)
    if not claim.orders and claim.least is None:
        return Verdict(OPEN, "no order of cells says it")
    if not tables or experiment is None:
        return Verdict(OPEN, "not run yet")
    found = [_of_table(claim, table) for table in tables]
    return next((v for v in found if v.verdict != OPEN), found[-1])


def _of_table(claim: Claim, table: Mapping[str, Any]) -> Verdict:
    if table["quick"]:
        return Verdict(OPEN, "quick size only")
    written = standing(claim, table, WRITTEN)
    theirs = standing(claim, table, AUTHORS) if has_authors(table) else None
    made = _from_columns(written, theirs)
    if not table.get("reduced"):
        return made
    verdict = made.verdict.replace(FAILS, f"{FAILS} in the reduced size", 1)
    return Verdict(verdict, f"{made.detail} (reduced size)")


def _from_columns(written: Standing, theirs: Standing | None) -> Verdict:
    also = "" if theirs is None else f"; with the authors' switches {theirs.verdict} ({theirs.detail})"
    against = written.verdict.startswith(FAILS) or " comparisons" in written.verdict
    if theirs is not None and theirs.verdict == HOLDS and against:
        return Verdict(f"{ONLY} with the authors' switches", f"{theirs.detail}; as written {written.detail}")
    return Verdict(written.verdict, f"{written.detail}{also}")


def _by_theory(claim: Claim, theory: Mapping[str, Any]) -> Verdict:
    """A check, or a row of it as "check: what"."""
    found, told = [], []
    for name in claim.theory:
        check, _, what = name.partition(": ")
        if check not in theory:
            return Verdict(OPEN, f"sartor theory {check} is not recorded")
        rows = [r for r in theory[check]["rows"] if r["what"] == what]
        if what and not rows:
            return Verdict(OPEN, f"sartor theory {check} is not recorded with this number")
        found.append(all(r["agrees"] for r in rows) if what else theory[check]["agrees"])
        numbers = "; ".join(f"{_asked(r)}, {r['measured']:.3g} measured" for r in rows)
        told.append(f"`sartor theory {check}`" + (f": {numbers}" if numbers else ""))
    return Verdict(HOLDS if all(found) else FAILS, ", ".join(told))


def _asked(row: Mapping[str, Any]) -> str:
    """A number of the paper's; or a bound, which is what its word was taken to mean."""
    bounds = {"<=": "at most {} asked for", ">=": "at least {} asked for"}
    return bounds.get(row.get("relation", "="), "{} in the paper").format(f"{row['theory']:.3g}")
