"""Many runs: the grid, its cost, the study file, the engines that run it, and the statistics."""

from mlap.study.cost import Cost, estimate
from mlap.study.driver import Outcome, Outlook, look, sweep
from mlap.study.engine import Engine
from mlap.study.local_engine import LocalEngine
from mlap.study.plan import Plan
from mlap.study.ray_engine import RayEngine
from mlap.study.store import PlanRecord, RunRecord, Study, run_hash

__all__ = [
    "Cost",
    "Engine",
    "LocalEngine",
    "Outcome",
    "Outlook",
    "Plan",
    "PlanRecord",
    "RayEngine",
    "RunRecord",
    "Study",
    "estimate",
    "look",
    "run_hash",
    "sweep",
]
