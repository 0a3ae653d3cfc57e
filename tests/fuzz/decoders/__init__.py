"""Decoders to fuzz, one per file."""

from __future__ import annotations

from typing import Final

from tests.fuzz.decoder import Decoder
from tests.fuzz.decoders.avro import Avro
from tests.fuzz.decoders.compressed_files import CompressedFiles
from tests.fuzz.decoders.content_types import ContentTypes
from tests.fuzz.decoders.data_sets import CsvFiles, JsonLines, ParquetFiles
from tests.fuzz.decoders.decisions import DecisionRecords
from tests.fuzz.decoders.glued_archives import GluedArchives
from tests.fuzz.decoders.html import Html
from tests.fuzz.decoders.journal import JournalRecords
from tests.fuzz.decoders.kept_pages import KeptPageRecords
from tests.fuzz.decoders.pages import PageMessages
from tests.fuzz.decoders.record_batches import RecordBatches
from tests.fuzz.decoders.requests import Requests
from tests.fuzz.decoders.texts import TextsTwice
from tests.fuzz.decoders.warc import WebArchives

DECODERS: Final[tuple[type[Decoder], ...]] = (
    PageMessages,
    Avro,
    JournalRecords,
    DecisionRecords,
    KeptPageRecords,
    CompressedFiles,
    WebArchives,
    GluedArchives,
    Html,
    ContentTypes,
    TextsTwice,
    RecordBatches,
    Requests,
    JsonLines,
    CsvFiles,
    ParquetFiles,
)
