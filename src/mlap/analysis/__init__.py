"""Looking inside trained networks: levels, probes, t-SNE maps, layer weights, smoothing, exact explanations."""

from mlap.analysis.embedding import Maps, tsne_maps
from mlap.analysis.inspection import Inspection, inspect_runs, write_inspection
from mlap.analysis.probe import ProbeRow, ProbeScores, Question, probe, questions, summarise_probes
from mlap.analysis.pyg_explainer import ExactShares
from mlap.analysis.smoothing import Smoothing, smoothing
from mlap.analysis.weights import layer_weights
from mlap.models.explanation import Decomposition, Explanation, decompose, explain
from mlap.models.levels import Levels, level_representations

__all__ = [
    "Decomposition",
    "ExactShares",
    "Explanation",
    "Inspection",
    "Levels",
    "Maps",
    "ProbeRow",
    "ProbeScores",
    "Question",
    "Smoothing",
    "decompose",
    "explain",
    "inspect_runs",
    "layer_weights",
    "level_representations",
    "probe",
    "questions",
    "smoothing",
    "summarise_probes",
    "tsne_maps",
    "write_inspection",
]
