"""Every finding by name. A new one is a function and one line in FINDINGS."""

from __future__ import annotations

import math

import numpy as np

from reports.findings import numbers
from reports.findings.finding import Evidence, Finding, Verdict, compare, judge_differences, require_all

HETEROGENEOUS, HOMOGENEOUS = "heterogeneous", "homogeneous"  # columns of the experiment `methods`
LAMBDA = "λ₁"
BARRIER = 0.1  # of the larger loss of the two ends: a rise below it is no barrier
METHODS = ("FedAvg", "FedSAM", "FedASAM", "FedASAM + SWA", "FedDyn", "FedSMOO", "FedGloSS", "FedVSSAM", "FedSoL")


def judge_heterogeneity(evidence: Evidence) -> Verdict:
    """Judge: FedAvg's minimum is sharper when clients hold one class each than when all hold all classes."""
    places = ("FedAvg", HETEROGENEOUS), ("FedAvg", HOMOGENEOUS)
    return compare(evidence, *places, numbers.find_lambda_1, LAMBDA, "FedAvg, heterogeneous / homogeneous", ratio=True)


def judge_locally_flat(evidence: Evidence) -> Verdict:
    """Judge: local models of FedSAM are flat on their own data and sharp on everyone's."""
    place = ("FedSAM", HETEROGENEOUS)
    own = evidence.measure(place, numbers.find_local_sharpness)
    wide = evidence.measure(place, numbers.find_global_sharpness)
    ratios = [math.log(wide[seed] / own[seed]) for seed in sorted(set(own) & set(wide)) if own[seed] > 0]
    detail = "FedSAM's local models, everyone's data / own data"
    return judge_differences(ratios, LAMBDA, detail, ratio=True)


def judge_sam_lowers(evidence: Evidence) -> Verdict:
    """Judge: FedSAM's minimum is flatter than FedAvg's when clients hold one class each."""
    places = ("FedAvg", HETEROGENEOUS), ("FedSAM", HETEROGENEOUS)
    return compare(evidence, *places, numbers.find_lambda_1, LAMBDA, "FedAvg / FedSAM, heterogeneous", ratio=True)


def judge_sam_is_not_enough(evidence: Evidence) -> Verdict:
    """Judge: with one class a client FedSAM's minimum stays sharper than FedAvg's with all classes."""
    places = ("FedSAM", HETEROGENEOUS), ("FedAvg", HOMOGENEOUS)
    detail = "FedSAM heterogeneous / FedAvg homogeneous"
    return compare(evidence, *places, numbers.find_lambda_1, LAMBDA, detail, ratio=True)


def judge_swa_gain(evidence: Evidence) -> Verdict:
    """Judge: FedASAM + SWA gains more accuracy over FedAvg with one class a client than with all classes."""
    gains = {}
    for column in (HETEROGENEOUS, HOMOGENEOUS):
        best = evidence.measure(("FedASAM + SWA", column), numbers.find_accuracy)
        base = evidence.measure(("FedAvg", column), numbers.find_accuracy)
        gains[column] = {seed: best[seed] - base[seed] for seed in set(best) & set(base)}
    more, less = gains[HETEROGENEOUS], gains[HOMOGENEOUS]
    differences = [more[seed] - less[seed] for seed in sorted(set(more) & set(less))]
    return judge_differences(differences, "points", "gain over FedAvg, heterogeneous minus homogeneous")


def judge_flattest(evidence: Evidence) -> Verdict:
    """Judge: FedGloSS ends in the flattest minimum of all methods with one class a client."""
    rivals = [row for row in evidence.list_rows(HETEROGENEOUS) if row not in ("FedGloSS", "NaiveFedGloSS")]
    own = ("FedGloSS", HETEROGENEOUS)
    parts = {
        row: compare(evidence, (row, HETEROGENEOUS), own, numbers.find_lambda_1, LAMBDA, row, ratio=True)
        for row in rivals
    }
    return require_all(parts, "each rival / FedGloSS, heterogeneous")


def judge_most_accurate(evidence: Evidence) -> Verdict:
    """Judge: FedGloSS is the most accurate method with one class a client."""
    rivals = [row for row in evidence.list_rows(HETEROGENEOUS) if row not in ("FedGloSS", "NaiveFedGloSS")]
    own = ("FedGloSS", HETEROGENEOUS)
    parts = {row: compare(evidence, own, (row, HETEROGENEOUS), numbers.find_accuracy, "points", row) for row in rivals}
    return require_all(parts, "FedGloSS minus each rival, heterogeneous")


def judge_basin(evidence: Evidence) -> Verdict:
    """Judge: no barrier lies between the models of FedGloSS and NaiveFedGloSS."""
    margins = []
    for answer in evidence.answers.get("basin", ()):
        line = answer.data.isel(pair=0, batchnorm=0).sel(split="train")
        ends = line["loss"].interp(x=[0.0, 1.0]).values
        inside = line["loss"].where((line["x"] >= 0) & (line["x"] <= 1)).max()
        margins.append(BARRIER - (float(inside) / float(ends.max()) - 1))
    detail = f"{BARRIER:.0%} minus the rise of the training loss above the worse end, FedGloSS to NaiveFedGloSS"
    return judge_differences(margins, "of the loss", detail)


def judge_norms(evidence: Evidence) -> Verdict:
    """Judge: FedDyn's weights grow and FedGloSS's do not grow as much, with one class a client."""
    places = ("FedDyn", HETEROGENEOUS), ("FedGloSS", HETEROGENEOUS)
    grows = evidence.measure(("FedDyn", HETEROGENEOUS), numbers.find_norm_growth)
    parts = {
        "norm of FedDyn / norm of FedGloSS": compare(
            evidence, *places, numbers.find_norm, "‖w‖", "FedDyn / FedGloSS", ratio=True
        ),
        "growth of FedDyn's norm at the end": judge_differences(
            [math.log(one) for one in grows.values()], "‖w‖", "last quarter of FedDyn's rounds", ratio=True
        ),
    }
    return require_all(parts, "norm of the global model")


def judge_admm(evidence: Evidence) -> Verdict:
    """Judge: FedGloSS's perturbation is nearer to the true one with duals (ADMM) than without."""
    places = ("FedGloSS without ADMM", HETEROGENEOUS), ("FedGloSS", HETEROGENEOUS)
    detail = "without / with duals, end of training"
    return compare(evidence, *places, numbers.find_perturbation_error, "δ_ε", detail, ratio=True)


def judge_naive(evidence: Evidence) -> Verdict:
    """Judge: FedGloSS is as accurate as NaiveFedGloSS, within two points, at half its traffic."""
    own = evidence.measure(("FedGloSS", HETEROGENEOUS), numbers.find_accuracy)
    naive = evidence.measure(("NaiveFedGloSS", HETEROGENEOUS), numbers.find_accuracy)
    margins = [2.0 - (naive[seed] - own[seed]) for seed in sorted(set(own) & set(naive))]
    return judge_differences(margins, "points", "2 points minus the lead of NaiveFedGloSS")


def judge_incompatibility(evidence: Evidence) -> Verdict:
    """Judge: clients of FedVSSAM agree more on what is flat than clients of FedSAM."""
    places = ("FedSAM", HETEROGENEOUS), ("FedVSSAM", HETEROGENEOUS)
    detail = "FedSAM / FedVSSAM, heterogeneous"
    return compare(evidence, *places, numbers.find_incompatibility, "flatness incompatibility", detail, ratio=True)


def judge_operations(evidence: Evidence) -> Verdict:
    """Judge: each of FedVSSAM's three operations alone is more accurate than none of them."""
    base = ("FedVSSAM-base", HETEROGENEOUS)
    parts = {
        row: compare(evidence, (row, HETEROGENEOUS), base, numbers.find_accuracy, "points", row)
        for row in ("LF", "LU", "GU")
    }
    return require_all(parts, "one operation minus none")


def judge_reverse(evidence: Evidence) -> Verdict:
    """Judge: perturbing the least sensitive layers most is the worst of FedFSA's choices."""
    worst = ("Reverse", "Dir(0.3)")
    parts = {
        row: compare(evidence, (row, "Dir(0.3)"), worst, numbers.find_best_personal, "points", row)
        for row in ("FedFSA", "Random")
    }
    return require_all(parts, "the choice minus Reverse, personalised accuracy, best round")


def judge_simple_data(evidence: Evidence) -> Verdict:
    """Judge: on Fashion-MNIST, MoFedSAM is at least as good as FedFSA."""
    places = ("MoFedSAM", "Dir(0.5)"), ("FedFSA", "Dir(0.5)")
    detail = "MoFedSAM minus FedFSA, personalised accuracy, best round"
    return compare(evidence, *places, numbers.find_best_personal, "points", detail)


def judge_forgetting(evidence: Evidence) -> Verdict:
    """Judge: FedSoL forgets less of each class than FedAvg."""
    places = ("FedAvg", HETEROGENEOUS), ("FedSoL", HETEROGENEOUS)
    return compare(evidence, *places, numbers.find_forgetting, "points", "FedAvg minus FedSoL, heterogeneous")


def judge_fedsol_flat(evidence: Evidence) -> Verdict:
    """Judge: FedSoL's minimum is flatter than FedAvg's and FedASAM's."""
    own = ("FedSoL", HETEROGENEOUS)
    parts = {
        row: compare(evidence, (row, HETEROGENEOUS), own, numbers.find_lambda_1, LAMBDA, row, ratio=True)
        for row in ("FedAvg", "FedASAM")
    }
    return require_all(parts, "each / FedSoL, heterogeneous")


def judge_fedsol_near(evidence: Evidence) -> Verdict:
    """Judge: FedSoL's clients stay nearer to what they were sent than FedAvg's."""
    places = ("FedAvg", HETEROGENEOUS), ("FedSoL", HETEROGENEOUS)
    detail = "FedAvg / FedSoL, end of training"
    return compare(evidence, *places, numbers.find_drift, "distance", detail, ratio=True)


def judge_ranks(evidence: Evidence, column: str) -> Verdict:
    """Judge: across methods, flatter minima are more accurate, on one partition."""
    seeds = sorted({seed for row in METHODS for seed in evidence.find((row, column))})
    from scipy import stats  # here, because it takes a second to import

    found = []
    for seed in seeds:
        pairs = [
            (numbers.find_accuracy(run), -numbers.find_lambda_1(run))
            for row in METHODS
            if (run := evidence.find((row, column)).get(seed)) is not None
        ]
        known = np.asarray([pair for pair in pairs if all(map(math.isfinite, pair))])
        if len(known) >= 5:
            found.append(float(stats.spearmanr(known[:, 0], known[:, 1]).statistic))
    return judge_differences(found, "rank correlation", f"accuracy and flatness over methods, {column}")


FINDINGS: dict[str, Finding] = {
    finding.name: finding
    for finding in (
        Finding(
            "heterogeneity-sharpens",
            "FedAvg's minimum is sharper when clients hold one class each than when all hold all classes",
            "fedsam",
            "Section 3, Table 1, Figures 1 and 5",
            "methods",
            judge_heterogeneity,
        ),
        Finding(
            "locally-flat-globally-sharp",
            "FedSAM's local models are flat on their own data and sharp on everyone's",
            "fedgloss",
            "Section 4, Table 1, Figure 2",
            "methods",
            judge_locally_flat,
        ),
        Finding(
            "fedsam-lowers-sharpness",
            "FedSAM lowers λ₁ below FedAvg's with one class a client",
            "fedsam",
            "Section 5.1, Table 1",
            "methods",
            judge_sam_lowers,
        ),
        Finding(
            "fedsam-is-not-enough",
            "With one class a client FedSAM's minimum is still sharper than FedAvg's on homogeneous data",
            "fedgloss",
            "Section 4, Figure 1",
            "methods",
            judge_sam_is_not_enough,
        ),
        Finding(
            "swa-helps-most-when-heterogeneous",
            "FedASAM + SWA gains most over FedAvg where heterogeneity is largest",
            "fedsam",
            "Section 5.1, Tables 2 and 5",
            "methods",
            judge_swa_gain,
        ),
        Finding(
            "fedgloss-is-flattest",
            "FedGloSS reaches the lowest λ₁ of all methods",
            "fedgloss",
            "Section 6.3, Table 8, Figure 7",
            "methods",
            judge_flattest,
        ),
        Finding(
            "fedgloss-is-most-accurate",
            "FedGloSS is the most accurate method at FedAvg's traffic or more",
            "fedgloss",
            "Section 6.2, Table 3",
            "methods",
            judge_most_accurate,
        ),
        Finding(
            "one-basin",
            "FedGloSS and NaiveFedGloSS end in one basin, without a barrier between them",
            "fedgloss",
            "Section 6.4, Figure 9",
            "methods",
            judge_basin,
        ),
        Finding(
            "weights-explode-without-sam",
            "FedDyn's weights grow throughout, FedGloSS's stay smaller",
            "fedgloss",
            "Section 6.3.3, Figure 8",
            "methods",
            judge_norms,
        ),
        Finding(
            "admm-aligns",
            "δ_ε, the error of FedGloSS's perturbation, is smaller with ADMM",
            "fedgloss",
            "Section 5.2.1, Figure 4",
            "admm",
            judge_admm,
        ),
        Finding(
            "cheap-is-enough",
            "FedGloSS is as accurate as NaiveFedGloSS, which exchanges twice as much",
            "fedgloss",
            "Section 6.4, Table 6",
            "methods",
            judge_naive,
        ),
        Finding(
            "fedvssam-is-compatible",
            "FedVSSAM lowers the flatness incompatibility below FedSAM's",
            "fedvssam",
            "Appendix C.5, Figure 8",
            "methods",
            judge_incompatibility,
        ),
        Finding(
            "each-operation-helps",
            "Each of FedVSSAM's three operations alone raises accuracy",
            "fedvssam",
            "Section 5, ablation, Figure 3",
            "ablation",
            judge_operations,
        ),
        Finding(
            "reverse-is-worst",
            "Perturbing the least sensitive layers most (Reverse) is the worst of FedFSA's choices",
            "fedfsa",
            "Section 5.4, Figure 5",
            "selection",
            judge_reverse,
        ),
        Finding(
            "simple-data-favour-mofedsam",
            "On Fashion-MNIST, MoFedSAM beats FedFSA",
            "fedfsa",
            "Section 5.2, Table 1",
            "personal",
            judge_simple_data,
        ),
        Finding(
            "fedsol-forgets-less",
            "FedSoL forgets less of what was learnt of each class than FedAvg",
            "fedsol",
            "Section 5.1, Figure 3",
            "methods",
            judge_forgetting,
        ),
        Finding(
            "fedsol-is-flatter",
            "FedSoL's minimum has a smaller λ₁ than FedAvg's and FedASAM's",
            "fedsol",
            "Section 5.2, Figure 4",
            "methods",
            judge_fedsol_flat,
        ),
        Finding(
            "fedsol-stays-near",
            "FedSoL's local models stay nearer to the global model than FedAvg's",
            "fedsol",
            "Appendix, Figure 10",
            "methods",
            judge_fedsol_near,
        ),
        Finding(
            "flat-is-accurate-heterogeneous",
            "Across methods, flatter is more accurate, with one class a client",
            "fedgloss",
            "Sections 1 and 6.3, Tables 3 and 8",
            "methods",
            lambda evidence: judge_ranks(evidence, HETEROGENEOUS),
        ),
        Finding(
            "flat-is-accurate-homogeneous",
            "Across methods, flatter is more accurate, with all classes at every client",
            "fedgloss",
            "Appendix, Table 9",
            "methods",
            lambda evidence: judge_ranks(evidence, HOMOGENEOUS),
        ),
    )
}
