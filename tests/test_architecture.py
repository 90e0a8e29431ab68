"""The shape of the house: who may import whom, what the front end must not load, and what every module owes its
reader. Rules are by package, so new files are held to them without a change here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import octavo

SOURCE = Path(octavo.__file__).parent
MAX_LINES = 400
MAX_FUNCTION_LINES = 50
FORBIDDEN_WORDS = {"manager", "handler", "helper", "helpers", "util", "utils", "misc", "common"}

# area -> areas of octavo that it may import besides itself. An area that is not named here (llm, cli, bench, build)
# stands on top: it may import anything, and no area named here may import it.
VOCABULARY = {"errors", "types"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "types": {"errors"},
    "core": VOCABULARY,
    "config": VOCABULARY | {"core"},
    "sim": VOCABULARY | {"core", "config"},
    "text": VOCABULARY | {"checkpoint.gguf_file"},
    "service": VOCABULARY | {"core", "config"},
    "server": VOCABULARY | {"core", "config", "service", "text"},
    "quant": VOCABULARY,
    "checkpoint": VOCABULARY | {"quant"},
    "ops": VOCABULARY | {"quant"},
    "layers": VOCABULARY | {"quant", "checkpoint", "ops"},
    "models": VOCABULARY | {"quant", "checkpoint", "ops", "layers", "core.kv_spec"},
    "runner": VOCABULARY | {"quant", "checkpoint", "ops", "layers", "models", "core"},
}
ARRAYS = {"numpy", "torch", "triton", "ml_dtypes", "gguf", "safetensors", "scipy"}  # numpy, or what loads it
LIGHT_AREAS = {"errors", "types", "config", "core", "sim", "text", "service", "server"}
PURE_AREAS = {"errors", "types", "config", "core", "sim"}
PURE_MAY_IMPORT = {*sys.stdlib_module_names, "octavo", "msgspec"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Module:
    path: Path

    @cached_property
    def name(self) -> str:
        """Dotted, without the leading `octavo.`; empty for the package itself."""
        parts = self.path.relative_to(SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def area(self) -> str:
        return self.name.split(".")[0]

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> set[str]:
        """Full dotted names, wherever in the file they are imported."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path} imports relatively"
                assert node.module is not None
                if node.module == "octavo":
                    found.update(f"octavo.{alias.name}" for alias in node.names)
                else:
                    found.add(node.module)
        return found

    @property
    def inner_imports(self) -> Iterator[str]:
        """What it imports of octavo, as names of modules without the leading `octavo.`."""
        for name in self.imports:
            inner = name.removeprefix("octavo.")
            home = SOURCE / inner.split(".")[0]
            if inner != name and (home.is_dir() or home.with_suffix(".py").exists()):
                yield inner

    @property
    def kernel(self) -> bool:
        return self.name.startswith("ops.triton")

    @property
    def adapter(self) -> bool:
        """A script for the interpreter of another engine."""
        return self.name.startswith("bench.compare.peers.") and self.name.endswith("_adapter")

    def definitions(self, *kinds: type[Definition]) -> list[Definition]:
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]


MODULES = sorted((Module(path) for path in SOURCE.rglob("*.py")), key=lambda module: module.name)


def test_the_walk_sees_the_house() -> None:
    areas = {module.area for module in MODULES}
    assert areas >= set(MAY_IMPORT), "a layering rule names an area that does not exist"
    engine = next(module for module in MODULES if module.name == "core.engine")
    assert {"core.scheduler", "types"} <= set(engine.inner_imports)


def test_imports_go_one_way() -> None:
    wrong = [
        f"octavo.{module.name} imports octavo.{inner}, and {module.area} may import only {sorted(allowed)}"
        for module in MODULES
        if (allowed := MAY_IMPORT.get(module.area)) is not None
        for inner in module.inner_imports
        if inner.split(".")[0] not in {module.area, *allowed} and inner not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_arrays_stay_where_they_belong() -> None:
    for module in MODULES:
        roots = {name.split(".")[0] for name in module.imports}
        if module.area in LIGHT_AREAS:
            assert not roots & ARRAYS, f"octavo.{module.name} belongs to the front end and imports {roots & ARRAYS}"
        if module.area in PURE_AREAS:
            assert roots <= PURE_MAY_IMPORT, f"octavo.{module.name} is pure and imports {roots - PURE_MAY_IMPORT}"
        if not module.kernel and not module.adapter:
            assert not roots & {"torch", "triton"}, f"only ops/triton imports torch, not octavo.{module.name}"


def test_scripts_for_other_interpreters_know_nothing_of_octavo() -> None:
    scripts = [module for module in MODULES if module.name.startswith("bench.compare.peers.")]
    assert any(module.adapter for module in scripts)
    wrong = [module.name for module in scripts if "octavo" in {name.split(".")[0] for name in module.imports}]
    assert not wrong, f"octavo is not installed where these run: {wrong}"


def test_every_module_says_what_it_owns() -> None:
    silent = [str(module.path) for module in MODULES if not ast.get_docstring(module.tree)]
    assert not silent, f"without a docstring: {silent}"


def test_files_and_functions_are_short() -> None:
    long = []
    for module in MODULES:
        if module.kernel:
            continue
        if (lines := module.text.count("\n")) > MAX_LINES:
            long.append(f"octavo.{module.name} has {lines} lines")
        for function in module.definitions(ast.FunctionDef, ast.AsyncFunctionDef):
            lines = (function.end_lineno or 0) - function.body[0].lineno + 1
            if lines > MAX_FUNCTION_LINES:
                long.append(f"the body of octavo.{module.name}.{function.name} has {lines} lines")
    assert not long, "split by responsibility: " + "; ".join(long)


def test_names_say_what_a_thing_does() -> None:
    for module in MODULES:
        definitions = module.definitions(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        for name in [*module.name.split("."), *(node.name for node in definitions)]:
            words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
            assert not words & FORBIDDEN_WORDS, f"octavo.{module.name}: {name!r} says nothing; name what it does"


def test_nothing_is_left_for_later() -> None:
    open_notes = [str(module.path) for module in MODULES if re.search(r"\b(TODO|FIXME|XXX)\b", module.text)]
    assert not open_notes


def run_python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


BLOCK = """
import importlib, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError(name + " is blocked in this test")
sys.meta_path.insert(0, Block())
for name in {names!r}:
    importlib.import_module(name)
"""


def import_all(names: list[str], blocked: set[str]) -> None:
    """Import modules of octavo in a fresh interpreter in which some packages cannot be imported."""
    run_python(BLOCK.format(names=[f"octavo.{name}".rstrip(".") for name in names], blocked=sorted(blocked)))


def test_import_octavo_is_light() -> None:
    run_python(
        "import sys, octavo\n"
        "octavo.SamplingParams, octavo.EngineConfig\n"
        "loaded = {'numpy', 'torch', 'transformers', 'starlette', 'typer', 'rich', 'tokenizers'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )


def test_the_front_end_works_without_numpy() -> None:
    names = [module.name for module in MODULES if module.area in LIGHT_AREAS]
    assert len(names) > len(LIGHT_AREAS)
    import_all(names, ARRAYS)


def test_everything_but_the_triton_backend_works_without_torch() -> None:
    names = [module.name for module in MODULES if not (module.kernel or module.adapter or module.name == "__main__")]
    import_all(names, {"torch", "triton", "transformers"})


def test_the_import_block_blocks() -> None:
    with pytest.raises(AssertionError, match="numpy is blocked"):
        import_all(["ops.backend"], {"numpy"})
