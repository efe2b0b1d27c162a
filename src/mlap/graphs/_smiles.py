"""SMILES into flat arrays: OGB's features, descriptors, fingerprints; and into scaffolds. In one process or several.

Run as a program, this file is a worker that answers chunks of SMILES on its standard input. It loads neither torch
nor the rest of the package, so that it starts in a fraction of a second; and, being a program of its own rather than
a fork or spawn of the caller, it is safe beside threads and needs no `if __name__ == "__main__"` in the caller's.
"""

from __future__ import annotations

import json
import math
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mlap.errors import MlapError, UsageError
from mlap.machines import usable_cores

Array = NDArray[Any]

#: What a job makes of a chunk: something that JSON can hold, and arrays.
Result = tuple[Any, tuple[Array, ...]]

CHUNK = 500  # molecules: about a quarter of a second, so that a progress bar moves and the last chunks are shared well
LARGEST = 1e30  # the largest descriptor
MORGAN_BITS = 2048
MORGAN_RADIUS = 2
FEW = 4000  # molecules that one process reads in less time than it takes to start several

#: What is larger is refused: RDKit takes minutes for it, or runs out of stack.
MOST_ATOMS = 5000
MOST_CHARACTERS = 10 * MOST_ATOMS
#: A molecule above this size is its own scaffold: to cut one takes time by the cube of its atoms (1000 atoms: 5 s).
MOST_SCAFFOLD_ATOMS = 500
#: A molecule above this size has no descriptors: `Ipc` takes time by more than the cube (200 atoms: 1 s, 400: 10 s).
MOST_DESCRIBED_ATOMS = 300

CHIRALITIES = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER", "misc")
HYBRIDISATIONS = ("SP", "SP2", "SP3", "SP3D", "SP3D2", "misc")
BOND_TYPES = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", "misc")
# OGB has no bucket for other stereo (it raises for atropisomers): they go to the last value, as in its other columns.
BOND_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")


def require_rdkit() -> None:
    """Raise unless RDKit can be imported."""
    try:
        import rdkit  # noqa: F401
    except ImportError as error:
        raise UsageError("SMILES need RDKit, which is not installed: pip install 'mlap[chem]'") from error


# ---- the jobs --------------------------------------------------------------------------------------------------------


def featurise(smiles: Sequence[str | None]) -> Result:
    """OGB's features of all atoms and bonds.

    Returns:
        The molecules that are none, as pairs of index and reason; and, of the others, the arrays: atoms of each
        molecule, bonds of each molecule, atom features `(N, 9)`, bond features `(E, 3)`, the bonds' ends `(2, E)`.
    """
    from rdkit import Chem, rdBase

    atom_at, bond_at = Chem.Mol.GetAtomWithIdx, Chem.Mol.GetBondWithIdx
    num_atoms: list[int] = []
    num_bonds: list[int] = []
    charge: list[int] = []
    bond_type: list[float] = []
    begin: list[int] = []
    end: list[int] = []
    element, chirality, hydrogens, radicals, hybridisation = (bytearray() for _ in range(5))
    aromatic, ring, stereo, conjugated = (bytearray() for _ in range(4))
    invalid: list[tuple[int, str]] = []

    with rdBase.BlockLogs():  # RDKit writes its complaints to stderr
        for index, text in enumerate(smiles):
            mol = _parse(text)
            if mol is None or text is None:
                invalid.append((index, _reason(text)))
                continue
            # Each column is read in one C loop over the atoms. A column is skipped where the text cannot hold what it
            # says: chirality needs "@", radicals need a bracket, bond stereo a slash – or the "|" of a CXSMILES.
            atoms = [atom_at(mol, i) for i in range(mol.GetNumAtoms())]
            bonds = [bond_at(mol, i) for i in range(mol.GetNumBonds())]
            nothing, extended = bytes(max(len(atoms), len(bonds))), "|" in text
            num_atoms.append(len(atoms))
            num_bonds.append(len(bonds))
            element.extend(map(Chem.Atom.GetAtomicNum, atoms))
            charge.extend(map(Chem.Atom.GetFormalCharge, atoms))
            hydrogens.extend(map(Chem.Atom.GetTotalNumHs, atoms))
            hybridisation.extend(map(Chem.Atom.GetHybridization, atoms))
            aromatic.extend(map(Chem.Atom.GetIsAromatic, atoms))
            ring.extend(map(Chem.Atom.IsInRing, atoms))
            chiral = extended or "@" in text
            chirality.extend(map(Chem.Atom.GetChiralTag, atoms) if chiral else nothing[: len(atoms)])
            bracketed = extended or "[" in text
            radicals.extend(map(Chem.Atom.GetNumRadicalElectrons, atoms) if bracketed else nothing[: len(atoms)])
            begin.extend(map(Chem.Bond.GetBeginAtomIdx, bonds))
            end.extend(map(Chem.Bond.GetEndAtomIdx, bonds))
            conjugated.extend(map(Chem.Bond.GetIsConjugated, bonds))
            directional = extended or "/" in text or "\\" in text
            stereo.extend(map(Chem.Bond.GetStereo, bonds) if directional else nothing[: len(bonds)])
            # The order of a bond is cheaper than its type, and is its number in RDKit (1.5 for aromatic) except for
            # dative bonds, which are written as arrows or found by RDKit at metals, whose symbols need a bracket.
            dative = bracketed or ">" in text or "<" in text
            bond_type.extend(map(Chem.Bond.GetBondType if dative else Chem.Bond.GetBondTypeAsDouble, bonds))

    atom_counts, bond_counts = np.array(num_atoms, np.int32), np.array(num_bonds, np.int32)
    ends = np.array([begin, end], np.int32)
    first_atom = np.repeat(np.cumsum(atom_counts) - atom_counts, bond_counts)
    degree = np.bincount((ends + first_atom).ravel(), minlength=len(element)) + _numpy(hydrogens)
    types = np.array(bond_type, np.float64)
    types = np.where(types == 1.5, int(Chem.BondType.AROMATIC), types).astype(np.int64)
    atom_features = (
        _within(_numpy(element) - 1, 118),
        _categories(_numpy(chirality), Chem.ChiralType, CHIRALITIES),
        _within(degree, 11),
        _within(np.array(charge, np.int64) + 5, 11),
        _within(_numpy(hydrogens), 9),
        _within(_numpy(radicals), 5),
        _categories(_numpy(hybridisation), Chem.HybridizationType, HYBRIDISATIONS),
        _numpy(aromatic),
        _numpy(ring),
    )
    bond_features = (
        _categories(types, Chem.BondType, BOND_TYPES),
        _categories(_numpy(stereo), Chem.BondStereo, BOND_STEREO),
        _numpy(conjugated),
    )
    return invalid, (atom_counts, bond_counts, _table(atom_features), _table(bond_features), ends)


def scaffolds(smiles: Sequence[str | None]) -> Result:
    """The Bemis–Murcko scaffold of each molecule, without chirality; `None` for what is no molecule."""
    from rdkit import Chem, rdBase

    found: list[str | None] = []
    with rdBase.BlockLogs():
        for text in smiles:
            mol = _parse(text)
            if mol is not None and mol.GetNumAtoms() <= MOST_SCAFFOLD_ATOMS:
                mol = Chem.MurckoDecompose(mol)
                # The cut leaves the molecule's ring and valence information behind, in part no longer true.
                mol.ClearComputedProps()
                mol.UpdatePropertyCache()
                Chem.GetSymmSSSR(mol)
            scaffold = None if mol is None else _written(mol, isomericSmiles=False)
            found.append(text if mol is not None and scaffold is None else scaffold)
    return found, ()


def canonical(smiles: Sequence[str | None]) -> Result:
    """The canonical SMILES of each molecule; `None` for what is no molecule, or cannot be written as one."""
    from rdkit import rdBase

    with rdBase.BlockLogs():
        molecules = [_parse(text) for text in smiles]
        return [None if mol is None else _written(mol) for mol in molecules], ()


def describe(smiles: Sequence[str | None]) -> Result:
    """All of RDKit's two-dimensional descriptors.

    Returns:
        The indices of what is no molecule, and of the others the rows `(molecules, descriptors)` as float32. NaN
        stands for what RDKit cannot compute. What is beyond ±1e30 (`Ipc` of large molecules) becomes that, so that
        float32 holds it.
    """
    from rdkit.Chem import Descriptors

    # RDKit computes the E-state indices again for the largest, the smallest and so on, unless it is told not to.
    functions = [
        partial(function, force=False) if name.endswith("EStateIndex") else function
        for name, function in Descriptors.descList
    ]
    invalid: list[int] = []
    rows: list[list[float]] = []
    for index, mol in _molecules(smiles):
        if mol is None:
            invalid.append(index)
        elif mol.GetNumAtoms() > MOST_DESCRIBED_ATOMS:
            rows.append([math.nan] * len(functions))
        else:
            rows.append([_described(function, mol) for function in functions])
    values = np.array(rows, np.float64).reshape(-1, len(functions))
    return invalid, (np.clip(values, -LARGEST, LARGEST).astype(np.float32),)


def _described(function: Callable[[Any], float], mol: Any) -> float:
    """A descriptor of a molecule; NaN where RDKit cannot compute it."""
    try:
        return float(function(mol))
    except (ArithmeticError, RuntimeError, ValueError, OverflowError):  # what RDKit raises where it cannot compute one
        return math.nan


def morgan_counts(smiles: Sequence[str | None]) -> Result:
    """How often each Morgan environment occurs in a molecule; see `_sparse`."""
    generator = morgan_generator()
    return _sparse(smiles, lambda mol: generator.GetCountFingerprint(mol).GetNonzeroElements())


def morgan_maccs(smiles: Sequence[str | None]) -> Result:
    """Which Morgan environments a molecule has, and behind them which of the MACCS keys; see `_sparse`."""
    from rdkit.Chem import rdMolDescriptors

    generator = morgan_generator()

    def row(mol: Any) -> dict[int, int]:
        keys = rdMolDescriptors.GetMACCSKeysFingerprint(mol).GetOnBits()
        return dict.fromkeys((*generator.GetFingerprint(mol).GetOnBits(), *(MORGAN_BITS + key for key in keys)), 1)

    return _sparse(smiles, row)


def morgan_generator() -> Any:
    """What makes Morgan fingerprints, here and wherever molecules are compared."""
    from rdkit.Chem import rdFingerprintGenerator

    return rdFingerprintGenerator.GetMorganGenerator(radius=MORGAN_RADIUS, fpSize=MORGAN_BITS)


def _sparse(smiles: Sequence[str | None], row_of: Callable[[Any], dict[int, int]]) -> Result:
    """Rows of a sparse matrix, of functions that give a molecule's columns and what is in them.

    Returns:
        The indices of what is no molecule, and of the others the number of entries of each, their columns, in order,
        and their values.
    """
    invalid: list[int] = []
    lengths: list[int] = []
    columns: list[int] = []
    values: list[int] = []
    for index, mol in _molecules(smiles):
        if mol is None:
            invalid.append(index)
            continue
        row = sorted(row_of(mol).items())
        lengths.append(len(row))
        columns += (column for column, _ in row)
        values += (value for _, value in row)
    return invalid, (np.array(lengths, np.int64), np.array(columns, np.int32), np.array(values, np.float32))


def _molecules(smiles: Sequence[str | None]) -> Iterator[tuple[int, Any]]:
    """The number of each text and its molecule, or `None`. A valence that RDKit objects to is no obstacle here.

    Seven molecules of ogbg-molhiv, complexes of aluminium and boron, were valid for the RDKit that made the set.
    """
    from rdkit import rdBase

    with rdBase.BlockLogs():  # RDKit writes its complaints to stderr
        for index, text in enumerate(smiles):
            mol = _parse(text)
            yield index, _parse_any_valence(text) if mol is None else mol


JOBS: dict[str, Callable[[Sequence[str | None]], Result]] = {
    "featurise": featurise,
    "scaffolds": scaffolds,
    "canonical": canonical,
    "describe": describe,
    "morgan_counts": morgan_counts,
    "morgan_maccs": morgan_maccs,
}

#: What a job is called while it runs.
_DOING = {
    "featurise": "reading molecules",
    "scaffolds": "finding scaffolds",
    "canonical": "comparing molecules",
    "describe": "describing molecules",
    "morgan_counts": "fingerprinting molecules",
    "morgan_maccs": "fingerprinting molecules",
}


def _parse(text: str | None) -> Any:
    """The molecule, or `None`; RDKit takes the empty text for a molecule without atoms, which is none here."""
    from rdkit import Chem

    if not text or len(text) > MOST_CHARACTERS:
        return None
    try:
        mol = Chem.MolFromSmiles(text)
    except (RuntimeError, ValueError):  # a failed check inside RDKit, or text that is no Unicode
        return None
    return mol if mol is not None and 0 < mol.GetNumAtoms() <= MOST_ATOMS else None


def _parse_any_valence(text: str | None) -> Any:
    """The molecule, whatever RDKit thinks of its valences, or `None`."""
    from rdkit import Chem

    if not text or len(text) > MOST_CHARACTERS:
        return None
    try:
        mol = Chem.MolFromSmiles(text, sanitize=False)
        if mol is None or not 0 < mol.GetNumAtoms() <= MOST_ATOMS:
            return None
        mol.UpdatePropertyCache(strict=False)
        others = Chem.SANITIZE_ALL ^ Chem.SANITIZE_PROPERTIES
        return None if Chem.SanitizeMol(mol, others, catchErrors=True) else mol
    except (RuntimeError, ValueError):
        return None


def _written(mol: Any, **options: bool) -> str | None:
    """A molecule as canonical SMILES; `None` for the rare one that cannot be written, with too many open rings."""
    from rdkit import Chem

    try:
        return str(Chem.MolToSmiles(mol, **options))
    except (RuntimeError, ValueError):
        return None


def _reason(text: str | None) -> str:
    """Why a text is no molecule; `None` stands for a value that was not even text."""
    from rdkit import Chem

    if text is None:
        return "it is not text"
    if not text.strip():
        return "it is empty"
    if len(text) > MOST_CHARACTERS:
        return f"it has {len(text)} characters; at most {MOST_CHARACTERS} are read"
    try:
        mol = Chem.MolFromSmiles(text, sanitize=False)
        if mol is None or not mol.GetNumAtoms():
            return "it is not written as SMILES"
        if mol.GetNumAtoms() > MOST_ATOMS:
            return f"it has {mol.GetNumAtoms()} atoms; at most {MOST_ATOMS} are read"
        problems = [" ".join(problem.Message().split()) for problem in Chem.DetectChemistryProblems(mol)]
    except (RuntimeError, ValueError):
        problems = []
    return "; ".join(problems) or "RDKit cannot read it"


def _numpy(column: bytearray) -> Array:
    return np.frombuffer(column, np.uint8).astype(np.int64)


def _within(values: Array, misc: int) -> Array:
    """Categories as they are, and `misc` for what is out of range."""
    return np.where((values >= 0) & (values < misc), values, misc)


def _categories(values: Array, enumeration: Any, names: Sequence[str]) -> Array:
    """RDKit's values as positions in `names`, the last of which takes all others."""
    position = {name: place for place, name in enumerate(names)}
    table = np.full(max(enumeration.values) + 1, len(names) - 1)
    for value, member in enumeration.values.items():
        table[value] = position.get(member.name, len(names) - 1)
    return table[values]


def _table(columns: Sequence[Array]) -> Array:
    return np.stack(columns, axis=1).astype(np.uint8)


# ---- here, or in several processes -----------------------------------------------------------------------------------


class Readers:
    """Processes that do jobs on chunks of SMILES, and stay from one call of `run` to the next.

    Args:
        processes: how many; with one, the work is done in this process.
    """

    def __init__(self, processes: int) -> None:
        if processes < 1:
            raise UsageError(f"{{field}} must be at least 1, got {processes}", field="processes")
        # A worker gets this process's import path, so that it finds the same packages whatever its own would be.
        program = "import runpy, sys; file, *sys.path = sys.argv[1:]; runpy.run_path(file, run_name='__main__')"
        command = [sys.executable, "-c", program, __file__, *sys.path]
        alone = processes == 1 or not sys.executable
        self._workers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(0 if alone else processes)
        ]
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = None if alone else ThreadPoolExecutor(processes)  # each waits for one worker

    def map(self, job: str, chunks: list[list[str | None]]) -> Iterator[Result]:
        """What a job makes of each chunk, in order."""
        if self._threads is None:
            return map(JOBS[job], chunks)
        return self._threads.map(lambda chunk: self._in_worker(job, chunk), chunks)

    def _in_worker(self, job: str, chunk: list[str | None]) -> Result:
        worker = self._idle.get()
        try:
            return _ask(worker, job, chunk)
        finally:
            self._idle.put(worker)

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.kill()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.communicate()


def run(
    job: str,
    smiles: Sequence[Any],
    processes: int | Readers | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Iterator[Result]:
    """What a job makes of the SMILES, chunk by chunk and in order.

    Args:
        job: a key of `JOBS`.
        smiles: texts; anything else reaches the job as `None`.
        processes: how many; `None` for all cores that this process may use, or one where there is little to do; or
            processes that were started before, and stay.
        progress: called after each chunk; see `mlap.graphs.progress`.
    """
    require_rdkit()
    if isinstance(processes, int) and processes < 1:
        raise UsageError(f"{{field}} must be at least 1, got {processes}", field="processes")
    texts = [text if isinstance(text, str) else None for text in smiles]
    chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
    if isinstance(processes, Readers):
        readers: AbstractContextManager[Readers] = nullcontext(processes)
    elif processes is None:
        readers = Readers(min(usable_cores(), len(chunks)) if len(smiles) > FEW else 1)
    else:
        readers = Readers(min(processes, max(1, len(chunks))))
    done = 0
    with readers as ready:
        for chunk, result in zip(chunks, ready.map(job, chunks), strict=True):
            done += len(chunk)
            if progress is not None:
                progress(_DOING[job], done, len(texts))
            yield result


def _ask(worker: subprocess.Popen[bytes], job: str, chunk: list[str | None]) -> Result:
    """Have a worker do a job: a line of JSON to it; a line of JSON and the bytes of the arrays back."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(json.dumps([job, chunk]).encode() + b"\n")
        worker.stdin.flush()
        info, shapes = json.loads(worker.stdout.readline())
        arrays = []
        for dtype, shape in shapes:
            content = worker.stdout.read(np.dtype(dtype).itemsize * math.prod(shape))
            arrays.append(np.frombuffer(content, dtype).reshape(shape))
    except (OSError, ValueError) as error:  # a closed pipe, or half an answer
        raise MlapError(
            f"a process that reads SMILES ended before its work was done (exit code {worker.poll()})",
            field="processes",
            suggest=1,
        ) from error
    return info, tuple(arrays)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Be a worker until there are no more requests."""
    for line in requests:
        job, chunk = json.loads(line)
        info, arrays = JOBS[job](chunk)
        answers.write(json.dumps([info, [[part.dtype.str, part.shape] for part in arrays]]).encode() + b"\n")
        for part in arrays:
            answers.write(np.ascontiguousarray(part).data)
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the caller's ends this one
    serve(sys.stdin.buffer, sys.stdout.buffer)
