"""Looking inside trained networks: levels, probes, t-SNE maps, layer weights, smoothing, pictures of explanations."""

from mlap.analysis.embedding import Maps, tsne_maps
from mlap.analysis.inspection import Inspection, inspect_runs, write_inspection
from mlap.analysis.probe import ProbeRow, ProbeScores, Question, probe, questions, summarise_probes
from mlap.analysis.pyg_explainer import ExactShares
from mlap.analysis.smoothing import Smoothing, smoothing
from mlap.analysis.weights import layer_weights

__all__ = [
    "ExactShares",
    "Inspection",
    "Maps",
    "ProbeRow",
    "ProbeScores",
    "Question",
    "Smoothing",
    "inspect_runs",
    "layer_weights",
    "probe",
    "questions",
    "smoothing",
    "summarise_probes",
    "tsne_maps",
    "write_inspection",
]
