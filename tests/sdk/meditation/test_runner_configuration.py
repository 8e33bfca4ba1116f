"""`cycle.toml` and plug-ins: what is read, and what is refused in one clear sentence."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from melete.errors import ConfigurationError, InvalidInput, InvalidJson, MissingFile
from melete.meditation.layers import Layer
from melete.meditation.runner.configuration import load_configuration
from melete.meditation.runner.memory_layer import MemoryRoutine
from melete.meditation.runner.obligations import Obligation
from melete.meditation.runner.plugins import list_plugins, load_plugin
from melete.meditation.runner.running import describe
from melete.meditation.runner.runtime_layer import RuntimeRoutine
from melete.primitives import Address

from .registry_fake import POLICY_DOCUMENT, example


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write cycle.toml, beside documents that it may name."""
    (tmp_path / "policy.json").write_text(json.dumps(POLICY_DOCUMENT))
    (tmp_path / "tasks.json").write_text(json.dumps(example("baseline/tasks-roles.json")))
    (tmp_path / "cognition.json").write_text(json.dumps(example("baseline/cognition.json")))
    (tmp_path / "obligations.json").write_text('[{"id": "a", "statement": "Do a.", "to": "us"}, {"id": "b"}]')

    def make(text: str) -> Path:
        path = tmp_path / "cycle.toml"
        path.write_text(text)
        return path

    return make


WHOLE = """
subject = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
policy = "policy.json"
obligations = "obligations.json"
journal = "state/cycle.jsonl"
first-block = 12

[runtime]
configuration = ["policy.json", {name = "elsewhere", path = "../elsewhere"}]
dependencies = ["rfc8785"]
authorization = [{name = "mail", scope = "send", grantedBy = "office"}]
code = [{name = "melete", distribution = "melete"}]
adapters = [{name = "a", kind = "api", interface = "x", probe = "tcp://127.0.0.1:1", timeout = 0.5}]
self-checks = [{name = "true", command = ["true"], timeout = 2}]

[memory-skills]
files = "tasks.json"
packs = ["project", "user"]
skills = [{name = "a", version = "1", path = "tasks.json"}]
harness = ["policy.json"]
organization = "Notes."

[tasks-roles]
document = "tasks.json"

[cognition]
document = "cognition.json"
"""


def test_everything_that_is_said_is_read(write, tmp_path: Path) -> None:
    found = load_configuration(write(WHOLE))
    assert found.subject == Address("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
    assert found.policy == POLICY_DOCUMENT
    assert found.obligations == (Obligation("a", "Do a.", "us"), Obligation("b"))
    assert (found.journal, found.first_block, found.folder) == (tmp_path / "state" / "cycle.jsonl", 12, tmp_path)
    assert [routine.layer for routine in found.routines] == list(Layer)
    runtime: Any = describe(found.routines[0])
    assert [one["name"] for one in runtime["configuration"]] == ["policy.json"]  # the other is not there
    assert runtime["authorization"] == [{"name": "mail", "scope": "send", "grantedBy": "office"}]
    memory: Any = describe(found.routines[1])
    assert memory["memory"]["organization"] == "Notes."
    assert [skill["name"] for skill in memory["skills"]] == ["a"]


@pytest.mark.parametrize("place", ["/var/lib/agent/cycle.jsonl", "../cycle.jsonl"])
def test_journal_may_lie_anywhere(tmp_path: Path, place: str) -> None:
    (tmp_path / "cycle.toml").write_text(f"journal = '{place}'\n")
    assert load_configuration(tmp_path / "cycle.toml").journal == tmp_path.resolve() / place


def test_nothing_has_to_be_said(write) -> None:
    found = load_configuration(write(""))
    assert (found.subject, found.policy, found.journal, found.obligations, found.routines) == (None, None, None, (), ())


def test_layers_are_not_looked_into_where_routines_are_not_wanted(write) -> None:
    found = load_configuration(write("[runtime]\nmood = 1\n[cognition]\n"), with_routines=False)
    assert found.routines == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mood = 1", "cycle.toml: 'mood' is unknown"),
        ("[mood]", "'mood' is unknown"),
        ("runtime = 1", "runtime must be a table"),
        ("subject = 7", "subject must be text"),
        ('subject = ""', "subject must be text"),
        ("first-block = -1", "first-block must be a whole number"),
        ("first-block = true", "first-block must be a whole number"),
        ("policy = []", "policy must be a path"),
        ("journal = 7", "journal must be a path"),
        ('journal = "a\\u0000b"', "journal must be a path"),
        ("[runtime]\nmood = 1", "[runtime]: 'mood' is unknown"),
        ("[runtime]\ndependencies = 'all'", "dependencies must be a list of texts"),
        ("[runtime]\ndependencies = ['']", "dependencies must be a list of texts"),
        ("[runtime]\nconfiguration = 'a'", "configuration must be a list of paths"),
        ("[runtime]\nconfiguration = [1]", "configuration must be a path"),
        ("[runtime]\nconfiguration = [{name = 'a'}]", "configuration must be a path"),
        ("[runtime]\nconfiguration = [{path = 'a', mood = 'b'}]", "configuration must be a path"),
        ("[runtime]\nconfiguration = ['/etc/passwd']", "leads out of the folder"),
        ("[runtime]\nconfiguration = ['a/../../b']", "leads out of the folder"),
        ("[runtime]\nadapters = 1", "adapters must be a list of tables"),
        ("[runtime]\nadapters = [1]", "adapters must be a list of tables"),
        ("[runtime]\nadapters = [{kind = 'api', interface = 'x'}]", "[runtime.adapters[0]]: name is missing"),
        ("[runtime]\nadapters = [{name = 'a', kind = 'toy', interface = 'x'}]", "kind must be one of api"),
        ("[runtime]\nadapters = [{name = 'a', kind = 'api', interface = 'x', timeout = 0}]", "timeout must be"),
        ("[runtime]\nadapters = [{name = 'a', kind = 'api', interface = 'x', timeout = true}]", "timeout must be"),
        ("[runtime]\nadapters = [{name = 'a', kind = 'api', interface = 'x', mood = 1}]", "'mood' is unknown"),
        ("[runtime]\nadapters = [{name = 'a', kind = 'api', interface = 'x', probe = 'x'}]", "a probe must be"),
        ("[runtime]\ncode = [{name = 'a'}]", "a program needs a version"),
        ("[runtime]\nself-checks = [{name = 'a', command = 'true'}]", "command must be a list of texts"),
        ("[runtime]\nauthorization = [{name = 'a'}]", "scope is missing"),
        ("[memory-skills]", "give store"),
        ("[memory-skills]\nstore = 'a'\nfiles = 'b'", "give store"),
        ("[memory-skills]\nstore = 'a'\nstore-from = 'B'", "name two stores"),
        ("[memory-skills]\nstore-from = 'NOTHING_OF_THIS_NAME'", "the environment holds no 'NOTHING_OF_THIS_NAME'"),
        ("[memory-skills]\nfiles = 'a'\npacks = ['moon']", "'moon' is no place"),
        ("[memory-skills]\nfiles = 'a'\nskills = [{name = 'a', version = '1'}]", "path is missing"),
        ("[memory-skills]\nfiles = 'a'\nspace = '0x" + "11" * 32 + "'", "no memory registry here"),
        ("[tasks-roles]", "document is missing"),
        ("[tasks-roles]\ndocument = 'tasks.json'\ncandidate = 'x'", "'candidate' is unknown"),
        ("[cognition]\nplugin = 'nothing'", "no plug-in 'nothing' is installed"),
        ("= 1", "is no TOML"),
        ("a = 1\na = 2", "is no TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(write, text: str, place: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(write(text))
    assert place in str(caught.value)


def test_documents_that_it_names_are_read_strictly(write, tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"gone\.json"):
        load_configuration(write('policy = "gone.json"'))
    (tmp_path / "policy.json").write_text('{"schema": "amm.policy/1"}')
    with pytest.raises(InvalidJson):
        load_configuration(write('policy = "policy.json"'))
    (tmp_path / "obligations.json").write_text('{"id": "a"}')
    with pytest.raises(InvalidInput, match="obligations"):
        load_configuration(write('obligations = "obligations.json"'))
    with pytest.raises(InvalidInput, match="subject"):
        load_configuration(write('subject = "somebody"'))


def test_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_configuration(tmp_path / "gone.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ConfigurationError, match="no configuration of ours"):
        load_configuration(tmp_path / "large.toml")


def test_store_may_be_named_by_the_environment_so_that_no_password_stands_in_a_file(write, monkeypatch) -> None:
    monkeypatch.setenv("AGENT_STORE", "postgresql://agent:secret@127.0.0.1:1/memories")
    (routine,) = load_configuration(write("[memory-skills]\nstore-from = 'AGENT_STORE'")).routines
    assert isinstance(routine, MemoryRoutine)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whichever, it says no password
        routine.describe()
    assert "secret" not in str(caught.value)


# Plug-ins


@pytest.fixture
def bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a distribution with a module and entry points."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(name: str, module: str, **entries: str) -> None:
        folder = site / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = "".join(f"{entry} = {target}\n" for entry, target in entries.items())
        (folder / "entry_points.txt").write_text(f"[melete.routines]\n{lines}")
        (site / f"{name}.py").write_text(module)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return install


GOOD = """
from melete.meditation.layers import Layer
from melete.meditation.runner.routine import LayerRoutine

class Thermostat(LayerRoutine):
    layer = Layer.RUNTIME

    def __init__(self, options, folder):
        self.options, self.folder = options, folder

def raises(options, folder):
    raise ValueError("password hunter2")

def nothing(options, folder):
    return None
"""


def test_plug_in_is_given_its_table_and_the_folder(bring, write, tmp_path: Path) -> None:
    bring("thermostats", GOOD, thermostat="thermostats:Thermostat")
    assert "thermostat" in list_plugins()
    text = '[runtime]\nplugin = "thermostat"\ntarget = 21.5\nrooms = ["a"]\n'
    (routine,) = load_configuration(write(text)).routines
    found: Any = routine
    assert (found.layer, found.options, found.folder) == (Layer.RUNTIME, {"target": 21.5, "rooms": ["a"]}, tmp_path)


@pytest.mark.parametrize(
    ("entry", "layer", "told"),
    [
        ("brokens:gone", Layer.RUNTIME, "cannot be used: AttributeError was raised"),
        ("nowhere:gone", Layer.RUNTIME, "cannot be used: ModuleNotFoundError was raised"),
        ("brokens:raises", Layer.RUNTIME, "cannot be used: ValueError was raised"),
        ("brokens:nothing", Layer.RUNTIME, "makes no routine, but a NoneType"),
        ("brokens:Thermostat", Layer.COGNITION, "is not a routine of layer 3"),
    ],
)
def test_broken_plug_in_is_one_clear_error(bring, tmp_path: Path, entry: str, layer: Layer, told: str) -> None:
    bring("brokens", GOOD, broken=entry)
    with pytest.raises(ConfigurationError) as caught:
        load_plugin("broken", layer, {}, tmp_path)
    assert f"the plug-in 'broken' of brokens {told}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_plug_in_that_two_distributions_bring_is_refused(bring, tmp_path: Path) -> None:
    bring("one", GOOD, thermostat="one:Thermostat")
    bring("other", GOOD, thermostat="other:Thermostat")
    with pytest.raises(ConfigurationError, match="one, other"):
        load_plugin("thermostat", Layer.RUNTIME, {}, tmp_path)


def test_error_of_ours_that_a_plug_in_raises_says_what_it_says(bring, tmp_path: Path) -> None:
    module = (
        "from melete.errors import ConfigurationError\n"
        "def make(options, folder):\n"
        "    raise ConfigurationError('no target')\n"
    )
    bring("wordy", module, wordy="wordy:make")
    with pytest.raises(ConfigurationError, match="no target"):
        load_plugin("wordy", Layer.RUNTIME, {}, tmp_path)


def test_built_in_routine_stands_where_no_plug_in_is_named(write) -> None:
    (routine,) = load_configuration(write("[runtime]\n")).routines
    assert isinstance(routine, RuntimeRoutine)
