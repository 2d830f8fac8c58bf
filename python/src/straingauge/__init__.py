"""straingauge's run directories as data frames and HdrHistograms.

    import straingauge
    run = straingauge.open_run("runs/20261121T170125Z-nginx")
    run.points_frame("pandas")            # one row a point, units in the column names
    run.histograms(0)["response"]         # an HdrHistogram of nanoseconds
    straingauge.plot.find(run)            # throughput, response time, CPU against load
    for run in straingauge.runs("runs"):  # every run of a folder, newest first
        print(run.record.name, run.record.status, len(run.points))

Whatever a directory holds, reading it ends in data or in one `RunError` that names the file and the line.
"""

from . import plot
from .errors import MissingLibraryError, MissingProgramError, RunError, RunWarning
from .executable import program
from .folder import runs
from .follow import RunFollower
from .frames import Library
from .histogram import quantile_ns
from .lines import LineTail
from .model import Doubt, Figure, Point, RunRecord
from .run import Run, open_run

__all__ = [
    "Doubt", "Figure", "Library", "LineTail", "MissingLibraryError", "MissingProgramError", "Point", "Run", "RunError",
    "RunFollower", "RunRecord", "RunWarning", "open_run", "plot", "program", "quantile_ns", "runs",
]
__version__ = "0.1.0"
