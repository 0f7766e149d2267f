"""TensorBoard: event files in the folder tensorboard/ of a run. Needs the package tensorboard, not torch.

`tensorboard --logdir runs` shows all runs below that folder. Every process writes a file of its own and begins after
the last round of the files that are there. Figures and tables are in a file whose name ends in .report, which the next
report replaces.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.storage import toml
from training.storage.verified_files import Json
from training.tracking.tracker import Exhibit, Row, Subject

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

FOLDER = "tensorboard"
REPORT = ".report"  # how the names of files with figures and tables end


class TensorBoard:
    """Event files of one subject."""

    def __init__(self, subject: Subject):
        import tensorboard.summary.writer.event_file_writer  # noqa: F401  fails here rather than in the first round

        self.subject, self.folder = subject, subject.folder / FOLDER
        self.writers: Json = {}  # by the end of their file's name

    @property
    def place(self) -> str:
        return f"tensorboard --logdir {self.folder}"

    def find_last_round(self) -> int:
        files = [path for path in self.folder.glob("events.*") if not path.name.endswith(REPORT)]
        return max((step for path in files for step in _read_steps(path)), default=0)

    def log_rounds(self, rows: Sequence[Row]) -> None:
        if rows and rows[0].round == 1:
            self._write("", 0, [_make_text("recipe", f"```toml\n{toml.write(self.subject.settings)}\n```")])
        for row in rows:
            self._write("", row.round, [_make_scalar(name, value) for name, value in row.values.items()])
        self._flush()

    def log_figure(self, figure: Exhibit, round: int) -> None:
        self._write(REPORT, round, [_make_image(f"figures/{figure.name}", figure.files["png"])])

    def log_table(self, table: Exhibit, round: int) -> None:
        self._write(REPORT, round, [_make_text(f"tables/{table.name}", table.files["markdown"].read_text("utf-8"))])

    def close(self, state: str) -> None:
        for writer in self.writers.values():
            writer.close()

    def _write(self, suffix: str, step: int, values: Sequence[Summary.Value]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        event = Event(step=step, wall_time=time.time(), summary=Summary(value=values))
        self._open(suffix).add_event(event)

    def _open(self, suffix: str) -> Any:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if suffix not in self.writers:
            if suffix == REPORT:
                for path in self.folder.glob(f"events.*{REPORT}"):
                    path.unlink()
            self.writers[suffix] = EventFileWriter(str(self.folder), filename_suffix=suffix)
        return self.writers[suffix]

    def _flush(self) -> None:
        for writer in self.writers.values():
            writer.flush()


def _read_steps(path: Path) -> Iterator[int]:
    """Yield the steps of a file's events; a last event that was cut short when the process was killed is left out."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    for data in RawEventFileLoader(str(path)).Load():
        yield Event.FromString(data).step


def _make_scalar(name: str, value: float) -> Summary.Value:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary.Value(tag=name, simple_value=value)


def _make_image(name: str, picture: Path) -> Summary.Value:
    from PIL import Image
    from tensorboard.compat.proto.summary_pb2 import Summary

    with Image.open(picture) as opened:
        width, height = opened.size
    image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=picture.read_bytes())
    return Summary.Value(tag=name, image=image)


def _make_text(name: str, markdown: str) -> Summary.Value:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=shape, string_val=[markdown.encode()])
    about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary.Value(tag=name, metadata=about, tensor=tensor)
