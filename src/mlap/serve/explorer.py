"""A model that is asked about single graphs: predictions in context, and what they are made of."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex

import mlap
from mlap import plotting
from mlap.analysis.explanation_words import chosen_output
from mlap.analysis.sketch import symbols_of
from mlap.errors import UsageError
from mlap.graphs import GraphSet
from mlap.graphs.inputs import Inputs
from mlap.models import Ensemble, Model, Predictions
from mlap.models.explanation import Explanation
from mlap.serve import schemas
from mlap.serve.drawing import svg_of
from mlap.serve.limits import ATOMS, CHARACTERS, EXPLAINED, INPUTS, Limits
from mlap.serve.names import Names
from mlap.serve.problems import Problem
from mlap.serve.reference import Reference
from mlap.serve.words import label_words, output_names, predicted, sentence

#: aspirin, caffeine, ibuprofen, penicillin G
EXAMPLES = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
    "CC1(C)SC2C(NC(=O)Cc3ccccc3)C(=O)N2C1C(=O)O",
]


@dataclass(frozen=True, eq=False)
class Asked:
    """One input: a graph of a set, or the reason why it is none."""

    input: str
    name: str
    number: int | None = None
    error: str | None = None
    graphs: GraphSet | None = None
    index: int = 0


class Explorer:
    """Answers questions about a model, one computation at a time.

    Args:
        model: any model.
        graphs: a data set to compare with, usually the one that the model was trained on.
        no_data: why there is none, in words.
        confidence: of conformal sets and intervals, such as 0.9; `None` of a model that is not calibrated.
        limits: of the server.
    """

    def __init__(
        self,
        model: Model,
        graphs: GraphSet | None = None,
        no_data: str = "",
        confidence: float | None = None,
        limits: Limits | None = None,
    ) -> None:
        model.check_confidence(confidence)  # now, not at the first question
        self.model = model
        self.no_data = no_data
        self.confidence = confidence
        self.limits = limits or Limits()
        self.lock = threading.Lock()
        self.reference = None if graphs is None else Reference(model, graphs, self.lock)

    @property
    def options(self) -> dict[str, Any]:
        """With which the model is asked to predict: only a calibrated one can be asked for a confidence."""
        return {} if self.confidence is None else {"confidence": self.confidence}

    # ---- what is asked -----------------------------------------------------------------------------------------------

    def read(self, texts: Sequence[str]) -> list[Asked]:
        """The graphs that texts name; what is no graph keeps its place, with the reason."""
        found: dict[int, Asked] = {}
        smiles: list[int] = []
        for place, text in enumerate(texts):
            text = text.strip()
            if text.startswith("#"):
                found[place] = self._numbered(text)
            elif not text:
                found[place] = Asked(text, text, error="empty")
            elif len(text) > CHARACTERS:
                error = f"too long: {len(text):,} characters, at most {CHARACTERS:,} are read"
                found[place] = Asked(text, text, error=error)
            elif (number := self.names.written(text)) is not None:
                found[place] = self._own(text, number)
            elif self.model.reads_molecules:
                smiles.append(place)
            else:
                found[place] = self._named(text, "this model does not read molecules; ask by number, such as #0")
        if smiles:
            inputs = self.model.inputs([texts[place].strip() for place in smiles])
            for row, (place, one) in enumerate(zip(smiles, _molecules(inputs), strict=True)):
                # What reads as SMILES is SMILES, also where a graph of the data set is called so.
                found[place] = self._named(one.input, inputs.invalid[row]) if row in inputs.invalid else one
        return [found[place] for place in range(len(texts))]

    @property
    def names(self) -> Names:
        """Of the graphs of the data set, as far as they are read."""
        return Names() if self.reference is None else self.reference.names

    def _numbered(self, text: str) -> Asked:
        digits = text[1:].strip()
        if self.reference is None:
            return Asked(text, text, error="there is no data set beside the model")
        graphs = self.reference.graphs
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 12 or int(digits) >= len(graphs):
            return Asked(text, text, error=f"{graphs.name} has graphs #0 to #{len(graphs) - 1}")
        return self._own(text, int(digits))

    def _named(self, text: str, otherwise: str) -> Asked:
        """The one graph of the data set that is called so; else the reason why the text is none."""
        numbers = self.names.called(text)
        if len(numbers) == 1:
            return self._own(text, numbers[0])
        if not self.names:
            return Asked(text, text, error=otherwise)
        assert self.reference is not None
        name = self.reference.graphs.name
        if not numbers:
            return Asked(text, text, error=f"{otherwise}; and {name} has no graph of that name")
        some = ", ".join(f"#{number}" for number in numbers[:5]) + (", …" if len(numbers) > 5 else "")
        error = f"{len(numbers):,} graphs of {name} have that name; ask by number: {some}"
        return Asked(text, text, error=error)

    def _own(self, text: str, number: int) -> Asked:
        """A graph of the data set."""
        assert self.reference is not None
        return Asked(text, self.name_of(number), number, None, self.reference.graphs, number)

    def _called(self, one: Asked) -> str | None:
        return None if one.number is None else self.names[one.number]

    def name_of(self, number: int) -> str:
        """What a graph of the data set is called: its SMILES, or its number."""
        assert self.reference is not None
        ids = self.reference.graphs.ids
        return f"#{number}" if ids is None or not self.model.reads_molecules else ids[number]

    def labels_of(self, number: int) -> list[str | float | None]:
        """The true labels of a graph of the data set."""
        assert self.reference is not None
        graphs = self.reference.graphs
        return [] if graphs.y is None or graphs.task is None else label_words(graphs.task, graphs.y[number])

    # ---- answers -----------------------------------------------------------------------------------------------------

    def predict(self, texts: Sequence[str], nearest: int = 5) -> list[schemas.Answer]:
        """One answer for each text."""
        asked = self.read(texts)
        answers = [
            schemas.Answer(
                input=one.input,
                name=one.name,
                number=one.number,
                called=self._called(one),
                error=one.error,
            )
            for one in asked
        ]
        for own in (False, True):  # molecules that were typed, graphs of the data set
            places = [
                place for place, one in enumerate(asked) if one.graphs is not None and (one.number is not None) == own
            ]
            if not places:
                continue
            graphs = asked[places[0]].graphs
            assert graphs is not None
            with self.lock:
                some = graphs.subset([asked[place].index for place in places])
                predictions = self.model.predict(some, **self.options)
            for row, place in enumerate(places):
                self._answer(answers[place], predictions, row)
                if self.reference is not None and nearest:
                    self._compare(answers[place], asked[place], nearest)
        return answers

    def _answer(self, answer: schemas.Answer, predictions: Predictions, row: int) -> None:
        """Fill in what the model says."""
        task, values = self.model.task, predictions.values[row].tolist()
        answer.more = {name: _plain(column[row]) for name, column in predictions.more.items()}
        answer.sentence = sentence(task, values, answer.more, self.confidence)
        answer.prediction = predicted(task, values)
        percentiles = [None] * len(values) if self.reference is None else self.reference.percentiles(values)
        spreads = [None] * len(values) if predictions.spread is None else predictions.spread[row].tolist()
        answer.outputs = [
            schemas.Output(name=name, value=float(value), spread=spread, percentile=percentile)
            for name, value, spread, percentile in zip(output_names(task), values, spreads, percentiles, strict=True)
        ]
        if answer.number is not None:
            assert self.reference is not None
            answer.labels = self.labels_of(answer.number)
            answer.part = self.reference.part(answer.number)

    def _compare(self, answer: schemas.Answer, one: Asked, count: int) -> None:
        """Put the nearest graphs of the data set beside an answer, and warn if they are far."""
        assert self.reference is not None
        assert one.graphs is not None
        near = self.reference.nearest(one.graphs, one.index, count, one.number)
        answer.nearest = [
            schemas.Near(
                number=other.number,
                name=self.name_of(other.number),
                called=self.names[other.number],
                similarity=other.similarity,
                labels=self.labels_of(other.number),
            )
            for other in near
        ]
        if near and near[0].similarity < self.reference.usual:
            what = "training" if self.reference.own else "data"
            answer.unlike = (
                f"Unlike the {what} set: the most similar graph there has similarity {near[0].similarity:.2f}. "
                f"95 % of its own graphs have one of at least {self.reference.usual:.2f}. "
                "Take this prediction with care."
            )

    def explain(self, texts: Sequence[str], outputs: Sequence[int] | None = None) -> list[schemas.Inside]:
        """What the prediction for each text is made of, and how to draw it."""
        if outputs is not None and max(outputs) >= self.model.task.num_outputs:
            last = self.model.task.num_outputs - 1
            raise Problem(422, f"there is no output {max(outputs)}; the last is {last}", "outputs")
        found = []
        for one in self.read(texts):
            inside = schemas.Inside(input=one.input, name=one.name, called=self._called(one), error=one.error)
            found.append(inside)
            if one.graphs is None:
                continue
            try:
                with self.lock:
                    explanation = next(iter(self.model.explain_graphs(one.graphs, [one.index])))
            except UsageError as error:
                raise Problem(409, str(error)) from error
            self._tell(inside, explanation, outputs)
            inside.elements = symbols_of(one.graphs, one.index)
            inside.svg = svg_of(one.graphs, one.index, shaded=True)
        return found

    def _tell(self, inside: schemas.Inside, explanation: Explanation, outputs: Sequence[int] | None) -> None:
        inside.levels = list(explanation.levels)
        inside.attention = explanation.attention.astype(np.float64).tolist()
        inside.reason = explanation.reason or None
        names = output_names(self.model.task)
        for output in outputs or [chosen_output(explanation, self.model.task)]:
            shares = explanation.shares
            inside.explained.append(
                schemas.Explained(
                    output=output,
                    name=names[output],
                    logit=float(explanation.logits[output]),
                    bias=float(explanation.bias[output]),
                    graph_share=None if explanation.graph_share is None else float(explanation.graph_share[output]),
                    others={name: float(term[output]) for name, term in explanation.others.items()},
                    shares=None if shares is None else shares[:, :, output].astype(np.float64).tolist(),
                )
            )

    def picture(self, text: str) -> str:
        """A graph as SVG, without colours."""
        (one,) = self.read([text])
        if one.graphs is None:
            raise Problem(422, one.error or "", "input")
        svg = svg_of(one.graphs, one.index)
        if svg is None:
            raise Problem(422, "the graph is empty or too large to be drawn", "input")
        return svg

    # ---- the data set ------------------------------------------------------------------------------------------------

    def map(self, method: str, level: int | None, output: int) -> schemas.Map:
        """The data set in the plane, with predictions and labels of one output."""
        reference = self.reference
        if reference is None:
            raise Problem(409, self.no_data or "there is no data set beside the model")
        if reference.no_maps or reference.problem or not reference.num_maps:
            raise Problem(409, reference.no_maps or reference.problem or "the data set is being read; come again")
        number = level or 0
        if number >= reference.num_maps:
            raise Problem(422, f"there is no level {number}; the last is {reference.num_maps - 1}", "level")
        if output >= self.model.task.num_outputs:
            raise Problem(422, f"there is no output {output}; the last is {self.model.task.num_outputs - 1}", "output")
        try:
            places = reference.places(number, method)
        except UsageError as error:
            raise Problem(409, str(error)) from error
        if places is None:
            return schemas.Map(computing=True)
        rows = reference.rows[: len(places)]
        return schemas.Map(
            points=[[float(f"{x:.5g}"), float(f"{y:.5g}")] for x, y in places.tolist()],
            numbers=rows.tolist(),
            values=[_plain(value) for value in reference.values[: len(places), output]],
            labels=self._labels(rows, output),
            parts=reference.parts()[: len(places)],
            explained=reference.explained(number) if method == "pca" else None,
        )

    def _labels(self, rows: Any, output: int) -> list[float | None]:
        assert self.reference is not None
        y = self.reference.graphs.y
        if y is None or self.reference.graphs.task is None:
            return [None] * len(rows)
        column = y if y.ndim == 1 else y[:, min(output, y.shape[1] - 1)]
        return [_plain(value) for value in column[rows].astype(np.float64)]

    # ---- itself ------------------------------------------------------------------------------------------------------

    def about(self) -> schemas.About:
        """What there is to know before asking."""
        task = self.model.task
        words = task.labels or ((None, None),) * task.num_outputs if task.kind == "binary" else ()
        outputs = [schemas.OutputName(name=name) for name in output_names(task)]
        for entry, (no, yes) in zip(outputs, words, strict=False):
            entry.no, entry.yes = no, yes
        return schemas.About(
            version=mlap.__version__,
            model=repr(self.model) if self.model.path is None else self.model.path.name,
            kind=self.model.kind,
            task=task.kind,  # type: ignore[arg-type]  # a Task is of one of the three kinds
            outputs=outputs,
            data=str(self.model.config["data"]["name"]),
            molecules=self.model.reads_molecules,
            explains=self.model.explains,
            calibrated=self.model.calibrated is not None,
            members=[member.name for member in self.model.members] if isinstance(self.model, Ensemble) else [],
            example=self._example(),
            colours=_stops(plotting.DIVERGING),
            attention_colours=_stops(plotting.SEQUENTIAL),
            reference=self._state(),
            no_reference=self.no_data or None,
            limits=schemas.LimitsAnswer(
                inputs=INPUTS,
                explained=EXPLAINED,
                characters=CHARACTERS,
                atoms=ATOMS,
                body=self.limits.body,
                upload=self.limits.upload,
                rows=self.limits.rows,
            ),
        )

    def _example(self) -> list[str]:
        if self.model.reads_molecules:
            return EXAMPLES
        return [] if self.reference is None else [f"#{n}" for n in range(min(4, len(self.reference.graphs)))]

    def _state(self) -> schemas.State | None:
        reference = self.reference
        if reference is None:
            return None
        maps = ["all levels together", *(f"level {n}" for n in range(1, reference.num_maps))]
        return schemas.State(
            name=reference.graphs.name,
            graphs=len(reference.graphs),
            compared=int(reference.compared.sum()),
            mapped=len(reference.rows),
            own=reference.own,
            done=reference.done,
            ready=reference.ready,
            problem=reference.problem or None,
            similarity=reference.compares_by,
            named=bool(reference.names),
            maps=maps if reference.num_maps else [],
            no_maps=reference.no_maps or None,
        )


def _molecules(inputs: Inputs) -> list[Asked]:
    """The rows of read SMILES, one by one; molecules that are too large are refused."""
    assert inputs.smiles is not None
    graph_of = {row: graph for graph, row in enumerate(inputs.kept.tolist())}
    sizes = np.diff(inputs.graphs.node_ptr)
    found = []
    for row, smiles in enumerate(inputs.smiles):
        if row not in graph_of:
            found.append(Asked(smiles, smiles, error=inputs.invalid[row]))
        elif sizes[graph_of[row]] > ATOMS:
            error = f"too large: {sizes[graph_of[row]]:,} atoms, at most {ATOMS:,} are read"
            found.append(Asked(smiles, smiles, error=error))
        else:
            found.append(Asked(smiles, smiles, None, None, inputs.graphs, graph_of[row]))
    return found


def _stops(colours: LinearSegmentedColormap) -> list[str]:
    """All colours of a scale: the page picks the same one as a picture of `mlap explain`."""
    return [to_hex(colours(number)) for number in range(colours.N)]


def _plain(value: Any) -> Any:
    """A value as JSON holds it; `None` for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
