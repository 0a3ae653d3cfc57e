"""`neardup checkpoint now|list|verify|restore`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from stream.cli.group import CommandGroup, SectionCommand
from stream.cli.options import with_settings
from stream.cli.quantity import quantity
from stream.ops import logging
from stream.settings import Settings

if TYPE_CHECKING:
    from stream.checkpoints.catalogue import Catalogue
    from stream.checkpoints.manifest import CheckpointName, Manifest

ANSWER_SECONDS: Final = 0.2
"""Time between looks for the role's answer."""
OPEN_SECONDS: Final = 5.0
"""Time between attempts to open the state directory of a role that does not answer."""


@click.group("checkpoint", cls=CommandGroup)
def command() -> None:
    """Make, list, verify or restore checkpoints of the state of a judge, an elector or a dashboard."""


class _Kind(click.ParamType):
    """A kind of state."""

    name = "kind"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from stream.checkpoints.kinds import is_kind

        if not is_kind(value):
            self.fail(
                f"{value!r}: write judge, elector, dashboard, elector-NAME or dashboard-NAME", param, ctx
            )
        return value


_KIND = click.option(
    "--kind",
    type=_Kind(),
    metavar="KIND",
    default="judge",
    show_default=True,
    help="Whose state: judge, elector, dashboard, elector-NAME or dashboard-NAME.",
)


@command.command("now", cls=SectionCommand)
@with_settings("namespace", "state_dir", "checkpoints", "checkpoints_kept")
@_KIND
def now(settings: Settings, kind: str) -> None:
    """Make a checkpoint of a state below --state-dir, and print its name.

    A role that has the state open is asked to make it. Interrupted, this command withdraws the request.
    """
    from stream.checkpoints.kinds import directory_of
    from stream.checkpoints.requests import CheckpointRequests
    from stream.errors import StateBusyError

    logging.configure(settings.log_format, "checkpoint")
    catalogue = _catalogue(settings)
    directory = directory_of(settings.state_dir / settings.namespace, kind)

    def make() -> str:
        return _make(catalogue, kind, directory, settings.checkpoints_kept)

    try:
        name = make()
    except StateBusyError:
        requests = CheckpointRequests(directory)
        try:
            name = _ask(requests, make)
        finally:
            requests.withdraw()
    click.echo(name)


def _make(catalogue: Catalogue, kind: str, directory: Path, kept: int) -> str:
    """Make a checkpoint of a state that no process has open, and return its name. A role may open it while
    the files are uploaded. Raises StateBusyError if one has it open before."""
    from stream.checkpoints.kinds import open_store
    from stream.checkpoints.uploads import Uploads, linked
    from stream.errors import CheckpointError
    from stream.kafka.member import member_id

    with ExitStack() as stack:
        with open_store(directory, kind) as store:
            state = stack.enter_context(linked(store, kind))
        if state is None:
            raise CheckpointError(f"state directory {directory}: nothing was applied to it yet")
        uploads = Uploads(catalogue, kind, member_id(directory.with_suffix(".instance")), kept)
        return str(uploads.upload(state).name)


def _ask(requests: Any, make: Callable[[], str]) -> str:
    """Ask the role for a checkpoint, and return its name. If the role ends, make it."""
    from stream.errors import CheckpointError, StateBusyError

    request, tried = requests.ask(), time.monotonic()
    while (answer := requests.answer_to(request)) is None:
        time.sleep(ANSWER_SECONDS)
        if time.monotonic() - tried > OPEN_SECONDS:
            tried = time.monotonic()
            try:
                return make()
            except StateBusyError:
                continue
    if answer.checkpoint is None:
        raise CheckpointError(f"no checkpoint was made: {answer.error}")
    return str(answer.checkpoint)


_JOURNAL = click.option(
    "--journal", metavar="UUID", help="Journal of the checkpoint; needed if the store has several."
)
_CHECKPOINT = click.option("--checkpoint", metavar="NAME", help="Name of the checkpoint.  [default: newest]")


@command.command("list", cls=SectionCommand)
@with_settings("checkpoints")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per checkpoint.")
def list_all(settings: Settings, as_json: bool) -> None:
    """List the checkpoints in the store, the newest of each journal and kind of state first, with how far
    each has come in which topic, its ledger record, and whether a trim has verified it.

    Exits with code 1 if one of them cannot be read.
    """
    from stream.errors import DamagedCheckpointError

    logging.configure(settings.log_format, "checkpoint")
    catalogue, problems = _catalogue(settings), []
    if not catalogue.journals():
        click.echo(_empty(catalogue), err=True)
    for journal in catalogue.journals():
        if not as_json:
            click.echo(f"journal {journal}")
        contents = catalogue.contents(journal)
        problems += [f"checkpoint {each}: is of an earlier version" for each in contents.earlier]
        for name in contents.kept:
            try:
                manifest = catalogue.read(name)
            except DamagedCheckpointError as error:
                problems.append(str(error))
                continue
            verified = catalogue.is_verified(manifest)
            click.echo(_record(manifest, verified) if as_json else f"  {_line(manifest, verified)}")
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        sys.exit(1)


@command.command("verify", cls=SectionCommand)
@with_settings("checkpoints")
@_JOURNAL
@_KIND
@_CHECKPOINT
@click.option("--all", "each", is_flag=True, help="Verify all checkpoints of the journal, of every kind.")
def verify(settings: Settings, journal: str | None, kind: str, checkpoint: str | None, each: bool) -> None:
    """Read all files of a checkpoint, and check that they are what was uploaded.

    Exits with code 1 if one is missing or damaged, and names it.
    """
    from stream.checkpoints import restoring
    from stream.errors import DamagedCheckpointError

    logging.configure(settings.log_format, "checkpoint")
    catalogue, damaged = _catalogue(settings), False
    journal = _journal(catalogue, journal)
    names = catalogue.contents(journal).kept if each else [_name(catalogue, journal, kind, checkpoint)]
    for name in names:
        try:
            manifest = catalogue.read(name)
            restoring.verify(catalogue, manifest)
            click.echo(f"{name}: {_size(manifest)}, as uploaded")
        except DamagedCheckpointError as error:
            damaged = True
            click.echo(str(error), err=True)
    if damaged:
        sys.exit(1)


@command.command("restore", cls=SectionCommand)
@with_settings("checkpoints")
@_JOURNAL
@_KIND
@_CHECKPOINT
@click.argument("directory", type=click.Path(path_type=Path))
def restore(
    settings: Settings, directory: Path, journal: str | None, kind: str, checkpoint: str | None
) -> None:
    """Restore a checkpoint into DIRECTORY, which must be new or empty.

    Roles restore an empty state directory by themselves: STATE_DIR/NAMESPACE/KIND, or KIND/figures
    there for a dashboard.
    """
    from stream.checkpoints import restoring
    from stream.errors import SettingsError

    logging.configure(settings.log_format, "checkpoint")
    catalogue = _catalogue(settings)
    if not restoring.is_empty(directory):
        raise SettingsError(f"{directory}: has files; name a new directory")
    name = _name(catalogue, _journal(catalogue, journal), kind, checkpoint)
    manifest = catalogue.read(name)
    restoring.restore(catalogue, manifest, directory)
    click.echo(f"{name}: {_size(manifest)}, in {directory}")


def _line(manifest: Manifest, verified: bool) -> str:
    come = (f"{topic} {sum(each.values())}" for topic, each in manifest.offsets.items())
    fields = [str(manifest.name), f"made {manifest.made}", *come]
    if manifest.elect:
        fields.append(f"elect={manifest.elect}")
    fields.append(f"format {manifest.format}")
    if manifest.kind == "judge":
        fields.append(f"ledger {manifest.ledger}" if manifest.ledger else "no ledger record")
    return "  ".join([*fields, _size(manifest, "  "), "verified" if verified else "not verified"])


def _record(manifest: Manifest, verified: bool) -> str:
    """All that a manifest says but its files, and whether a trim has verified it."""
    import json

    import msgspec

    described = msgspec.to_builtins(manifest)
    files = described.pop("files")
    name = {"checkpoint": str(manifest.name)}
    return json.dumps(name | described | {"verified": verified, "files": len(files), "bytes": manifest.bytes})


def _size(manifest: Manifest, between: str = ", ") -> str:
    return f"{quantity(len(manifest.files), 'file')}{between}{manifest.bytes:,} bytes"


def _catalogue(settings: Settings) -> Catalogue:
    from stream.checkpoints.catalogue import Catalogue
    from stream.errors import SettingsError

    if not settings.checkpoints:
        raise SettingsError("checkpoints: not set; name the directory or bucket that has them")
    return Catalogue(settings.checkpoints)


def _journal(catalogue: Catalogue, journal: str | None) -> str:
    """The journal that is meant. Raises SettingsError."""
    from stream.errors import SettingsError

    journals = catalogue.journals()
    if journal in journals:
        return journal
    if journal is None and len(journals) == 1:
        return journals[0]
    if not journals:
        raise SettingsError(f"checkpoints: {_empty(catalogue)}")
    raise SettingsError(
        f"--journal: {catalogue} has checkpoints of {', '.join(journals)}"
        + ("" if journal is None else f", none of {journal}")
    )


def _empty(catalogue: Catalogue) -> str:
    return f"{catalogue} is empty: no checkpoint was made yet; `neardup checkpoint now` makes one"


def _name(catalogue: Catalogue, journal: str, kind: str, checkpoint: str | None) -> CheckpointName:
    """The checkpoint that is meant, by default the newest of its kind. Raises SettingsError."""
    from stream.checkpoints.manifest import checkpoint_of
    from stream.errors import SettingsError

    if checkpoint is None:
        names = catalogue.kept(journal, kind)
        if not names:
            raise SettingsError(f"checkpoints: {catalogue} has none of journal {journal}, kind {kind}")
        return names[0]
    name = checkpoint_of(journal, checkpoint)
    if name is None:
        raise SettingsError(f"--checkpoint: {checkpoint!r} is no name of a checkpoint; `list` prints them")
    return name
