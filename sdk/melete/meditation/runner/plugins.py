"""Routines that other distributions bring, by entry points of the group `melete.routines`.

    [project.entry-points."melete.routines"]
    thermostat = "thermostat.melete:make_routine"

What an entry point names is called with the options of its table in the configuration and the folder that paths are
relative to, and returns a `LayerRoutine`; a subclass with such a constructor will do. A plug-in is code that runs with
all rights of the agent's: install only what you trust.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from melete.errors import ConfigurationError, MeleteError
from melete.meditation.layers import Layer
from melete.meditation.runner.routine import LayerRoutine

GROUP: Final = "melete.routines"


def list_plugins() -> list[str]:
    """Return the names of the routines that are installed, sorted."""
    return sorted({one.name for one in entry_points(group=GROUP)})


def load_plugin(name: str, layer: Layer, options: dict[str, Any], folder: Path) -> LayerRoutine:
    """Return the routine that a plug-in makes for a layer.

    Errors: `ConfigurationError` for a name that none or several distributions bring, for a plug-in that cannot be
    loaded or raises, and for one that makes something else than a routine of this layer. An error of this package
    that it raises is raised as it is.
    """
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = ", ".join(list_plugins()) or "none is installed"
        raise ConfigurationError(f"no plug-in {name!a} is installed; there are: {known}")
    brought_by = sorted({_distribution(one) for one in found})
    if len(found) > 1:
        raise ConfigurationError(
            f"several distributions bring a plug-in {name!a}: {', '.join(brought_by)}; uninstall one"
        )
    label = f"the plug-in {name!a} of {brought_by[0]}"
    try:
        routine: Any = found[0].load()(dict(options), folder)
    except MeleteError:
        raise
    except Exception as error:
        # A plug-in is anybody's code, and what it says may hold a secret.
        raise ConfigurationError(f"{label} cannot be used: {type(error).__name__} was raised") from error
    if not isinstance(routine, LayerRoutine):
        raise ConfigurationError(f"{label} makes no routine, but a {type(routine).__name__}")
    if getattr(routine, "layer", None) is not layer:
        raise ConfigurationError(f"{label} is not a routine of layer {layer.value}")
    return routine


def _distribution(entry_point: EntryPoint) -> str:
    return ascii(entry_point.dist.name)[1:-1] if entry_point.dist is not None else "no distribution"
