"""`neardup decompress`."""

from __future__ import annotations

from pathlib import Path

import click

from stream.cli.quantity import quantity
from stream.output import writing


@click.command("decompress")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("output", type=click.Path(path_type=Path))
def command(file: Path, output: Path) -> None:
    """Write the fingerprints of the compressed file FILE to OUTPUT.

    OUTPUT is a NumPy array (.npy), or else a text file with one fingerprint per line in hex; - is stdout.
    """
    import numpy as np

    from stream.fingerprint.lanes import to_hex, words_of
    from stream.offline.compressed_file import CompressedFile
    from stream.offline.fingerprints import BLOCKS

    compressed = CompressedFile(file)
    chunks = (compressed.read(first, first + BLOCKS) for first in range(0, compressed.blocks, BLOCKS))
    if output.suffix == ".npy":
        words = np.concatenate([np.zeros((0, words_of(compressed.width)), np.uint64), *chunks])
        with writing(output) as array:
            np.save(array, words if words.shape[1] > 1 else words[:, 0])
        click.echo(f"{quantity(len(words), 'fingerprint')} of {compressed.width} bits in {output}")
        return
    with writing(output) as lines:
        for chunk in chunks:
            lines.write("".join(f"{digits}\n" for digits in to_hex(chunk, compressed.width)).encode())
