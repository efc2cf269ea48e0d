"""The statistics of time measurements: paired ratios and differences with a 95% interval.

Measurements come in pairs that were taken next to each other (native, with shim), so that what drifts
hits both alike. Ratios are handled as logarithms. Intervals are Student's, on the pairs, but where
times come in several modes: there they are those of the signed ranks.
"""
import math
import statistics

# Student's t, two-sided 95%, by degrees of freedom 1..30.
_T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
        2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
        2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]


def t95(freedom):
    """The factor of a two-sided 95% interval; freedom >= 1."""
    if freedom < 1:
        raise ValueError("an interval needs at least two values")
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    return 1.960 + 2.5 / freedom


def mean_interval(values):
    """(mean, low, high) of the mean, 95%."""
    mean = statistics.fmean(values)
    half = t95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def paired_ratio(native, shim):
    """(ratio, low, high) of shim / native over pairs: the geometric mean and its 95% interval."""
    if len(native) != len(shim):
        raise ValueError("pairs are of two equally long lists")
    logs = [math.log(b / a) for a, b in zip(native, shim)]
    return tuple(math.exp(x) for x in mean_interval(logs))


def paired_difference(native, shim):
    """(difference, low, high) of shim - native over pairs, 95%."""
    if len(native) != len(shim):
        raise ValueError("pairs are of two equally long lists")
    return mean_interval([b - a for a, b in zip(native, shim)])


def robust_ratio(native, shim):
    """(ratio, low, high) of shim / native over pairs, for times with outliers and several modes: the
    Hodges-Lehmann estimate of the logarithms, with the 95% interval of Wilcoxon's signed ranks."""
    if len(native) != len(shim) or len(native) < 10:
        raise ValueError("at least ten pairs, of two equally long lists")
    logs = [math.log(b / a) for a, b in zip(native, shim)]
    n = len(logs)
    means = sorted((logs[i] + logs[j]) / 2 for i in range(n) for j in range(i, n))
    cut = math.floor(n * (n + 1) / 4 - 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24))
    return tuple(math.exp(x) for x in (statistics.median(means), means[cut], means[-1 - cut]))


def median_interval(values):
    """(median, low, high): the order statistics between which the median lies in at least 95% of
    cases, whatever the distribution. At least six values."""
    n = len(values)
    if n < 6:
        raise ValueError("at least six values")
    ordered, rank, below = sorted(values), 0, 0.5 ** n
    while below + math.comb(n, rank + 1) * 0.5 ** n <= 0.025:
        rank += 1
        below += math.comb(n, rank) * 0.5 ** n
    return statistics.median(ordered), ordered[rank], ordered[n - 1 - rank]


def within(low, high, bound):
    """The verdict on "at most bound": 'ok' below it, 'unclear' if the interval holds it, else 'FAIL'."""
    if high <= bound:
        return "ok"
    return "FAIL" if low > bound else "unclear"
