"""What the API takes and gives. The descriptions here are the API's documentation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mlap.serve.limits import EXPLAINED, INPUTS, OUTPUTS

INPUT = (
    "SMILES of a molecule; or a graph of the server's data set: # and its number, counted from 0, or its name. What "
    "reads as SMILES is not looked up as a name."
)


class Strict(BaseModel):
    """A question; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class Refusal(BaseModel):
    """Why a request was refused."""

    message: str = Field(description="what was got, what was expected, what to do")
    field: str | None = Field(default=None, description="the field of the question that it is about")


class Question(Strict):
    """Graphs to predict."""

    inputs: list[str] = Field(min_length=1, max_length=INPUTS, description=INPUT, examples=[["CCO", "c1ccccc1O"]])
    nearest: int = Field(default=5, ge=0, le=20, description="how many similar training graphs to name")


class Near(BaseModel):
    """A graph of the training set that is similar to the one asked about."""

    number: int = Field(description="its number in the data set; ask about it with # and this number")
    name: str = Field(description="its SMILES, or its number")
    called: str | None = Field(default=None, description="its name in the data set, if it has one")
    similarity: float = Field(description="at most 1; /api/model says what it measures")
    labels: list[str | float | None] = Field(description="its true label for each target, or its one class")


class Output(BaseModel):
    """The answer for one target, or for one class."""

    name: str
    value: float = Field(description="a probability, or the value of a regression")
    spread: float | None = Field(default=None, description="the standard deviation over the members of an ensemble")
    percentile: float | None = Field(default=None, description="per cent of the training set with a lower prediction")


class Answer(BaseModel):
    """What the model says about one graph."""

    input: str = Field(description="as it was asked")
    name: str = Field(description="the SMILES, or the number")
    number: int | None = Field(default=None, description="the number in the data set, if it is a graph of it")
    called: str | None = Field(default=None, description="the name in the data set, if it is a graph of it and has one")
    error: str | None = Field(default=None, description="why there is no prediction")
    sentence: str | None = Field(default=None, description="the prediction in words")
    prediction: list[str | float] = Field(default=[], description="the class or value of each target")
    outputs: list[Output] = []
    more: dict[str, Any] = Field(default={}, description="what the model's calibration adds: conformal sets, intervals")
    labels: list[str | float | None] = Field(default=[], description="the true labels, of a graph of the data set")
    part: str | None = Field(default=None, description="of the model's own data, if it is a graph of it: train, …")
    nearest: list[Near] = []
    unlike: str | None = Field(default=None, description="a warning, if nothing in the training set is similar")


class Answers(BaseModel):
    """One answer for each input, in their order."""

    answers: list[Answer]


class Look(Strict):
    """Graphs to explain."""

    inputs: list[str] = Field(min_length=1, max_length=EXPLAINED, description=INPUT, examples=[["CCO"]])
    outputs: list[Annotated[int, Field(ge=0)]] | None = Field(
        default=None,
        min_length=1,
        max_length=OUTPUTS,
        description="which logits to explain; that of the predicted class, or of the first target, unless given",
    )


class Explained(BaseModel):
    """One logit as a sum: bias + all shares + graph_share + others."""

    output: int
    name: str
    logit: float
    bias: float
    graph_share: float | None = Field(default=None, description="of features of the whole graph, if the model has some")
    others: dict[str, float] = Field(default={}, description="of members of an ensemble that are no networks")
    shares: list[list[float]] | None = Field(description="[node][level], as `mlap explain` writes them")


class Inside(BaseModel):
    """What one prediction is made of."""

    input: str
    name: str
    called: str | None = Field(default=None, description="its name in the data set, if it has one")
    error: str | None = None
    elements: list[str] | None = Field(default=None, description="of the atoms")
    levels: list[int] = Field(
        default=[], description="of the shares; empty if there is one share for all levels together"
    )
    explained: list[Explained] = []
    attention: list[list[float]] = Field(default=[], description="[node][level]")
    reason: str | None = Field(default=None, description="why there are no shares, or none of single levels")
    svg: str | None = Field(
        default=None, description="the graph; node i is circle.node[data-node=i]. None if it is too large"
    )


class Insides(BaseModel):
    """One explanation for each input, in their order."""

    explanations: list[Inside]


class OutputName(BaseModel):
    """A target or a class."""

    name: str
    no: str | None = Field(default=None, description="the word for no, of a binary target")
    yes: str | None = None


class State(BaseModel):
    """How far the data set beside the model is read."""

    name: str
    graphs: int
    compared: int = Field(description="graphs that answers are compared with")
    mapped: int
    own: bool = Field(description="whether it is the data that the model was trained on")
    done: int = Field(description="graphs embedded and predicted so far, of those to be mapped")
    ready: bool = Field(description="whether neighbours can be told")
    problem: str | None = None
    similarity: str | None = Field(default=None, description="what similarity measures")
    named: bool = Field(default=False, description="whether graphs can be asked by name")
    maps: list[str] = Field(default=[], description="the representations that can be mapped so far, by number")
    no_maps: str | None = None


class LimitsAnswer(BaseModel):
    """What is accepted."""

    inputs: int
    explained: int
    characters: int
    atoms: int
    body: int
    upload: int
    rows: int


class About(BaseModel):
    """The model, the data set beside it, and the limits."""

    version: str
    model: str
    kind: str
    task: Literal["binary", "multiclass", "regression"]
    outputs: list[OutputName]
    data: str = Field(description="what the model was trained on")
    molecules: bool = Field(description="whether SMILES are read")
    explains: bool
    calibrated: bool
    members: list[str] = Field(default=[], description="of an ensemble")
    example: list[str]
    colours: list[str] = Field(description="of shares, from the most negative to the most positive, evenly spaced")
    attention_colours: list[str]
    reference: State | None
    no_reference: str | None = Field(description="why there is no data set beside the model")
    limits: LimitsAnswer


class Map(BaseModel):
    """A data set in the plane."""

    computing: bool = Field(default=False, description="come again: the map is being computed")
    points: list[Annotated[list[float], Field(min_length=2, max_length=2)]] = []
    numbers: list[int] = Field(default=[], description="of the graphs, in the data set")
    values: list[float | None] = Field(default=[], description="predictions for the chosen output, if they are known")
    labels: list[float | None] = Field(default=[], description="true labels: 0 or 1, the class's number, or the value")
    parts: list[str | None] = []
    explained: float | None = Field(default=None, description="the share of the variance, of principal components")


class Table(BaseModel):
    """An uploaded table."""

    id: str
    name: str
    lines: int = Field(description="line ends of the file: about as many as it has rows")
    done: int = Field(description="rows predicted so far")
    invalid: int
    finished: bool
    problem: str | None = Field(default=None, description="why it ended early")
    notes: list[str] = Field(default=[], description="what was inferred about the file")
    columns: list[str] = Field(default=[], description="the file's column of names, if it has one; the predictions")
    named: bool = Field(default=False, description="whether the first column holds the file's names of the rows")


class Row(BaseModel):
    """A row of an uploaded table."""

    row: int
    smiles: str
    values: list[str | float | None] = Field(description="one for each of the table's `columns`")
    error: str | None = None


class Rows(BaseModel):
    """Some rows of an uploaded table."""

    total: int = Field(description="rows that pass the filter")
    rows: list[Row]
