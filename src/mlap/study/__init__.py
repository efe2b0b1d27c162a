"""Many runs: the grid, its cost, the study file, the engines that run it, and the statistics."""

from mlap.study.baselines import fit_baselines
from mlap.study.cost import Cost, estimate
from mlap.study.driver import Forecast, Outcome, forecast, sweep
from mlap.study.engine import Engine
from mlap.study.local_engine import LocalEngine
from mlap.study.members import train_ensemble
from mlap.study.plan import Plan
from mlap.study.ray_engine import RayEngine
from mlap.study.settings import EngineSettings, SweepSettings
from mlap.study.store import BaselineRecord, PlanRecord, RunRecord, Study, run_hash

__all__ = [
    "BaselineRecord",
    "Cost",
    "Engine",
    "EngineSettings",
    "Forecast",
    "LocalEngine",
    "Outcome",
    "Plan",
    "PlanRecord",
    "RayEngine",
    "RunRecord",
    "Study",
    "SweepSettings",
    "estimate",
    "fit_baselines",
    "forecast",
    "run_hash",
    "sweep",
    "train_ensemble",
]
