"""straingauge's run directories as data frames and HdrHistograms.

    import straingauge
    run = straingauge.open_run("runs/20261121T170125Z-nginx")
    run.points_frame()                    # one row per point, units in the column names; ("polars") for polars
    run.histograms(0)["response"]         # an HdrHistogram of nanoseconds
    straingauge.plot.find(run)            # throughput, response time, CPU against load
    for run in straingauge.runs("runs"):  # every run in a directory, newest first
        print(run.record.name, run.record.status, len(run.points))
"""

from . import plot
from .run import Doubt, Figure, Point, Run, RunError, RunRecord, RunWarning, open_run, program, quantile_ns, runs

__all__ = [
    "Doubt", "Figure", "Point", "Run", "RunError", "RunRecord", "RunWarning", "open_run", "plot", "program",
    "quantile_ns", "runs",
]
__version__ = "0.1.0"
