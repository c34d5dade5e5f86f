"""Writes odd_parquet.json: odd parquet files of pyarrow, as lines of base64, by their names.

python test/data/odd/odd_parquet.py      # with pyarrow 26
"""

import base64
import datetime
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

TIME = datetime.datetime(2024, 1, 2, 3, 4, 5)


def table(**columns):
    return pa.table({"y": pa.array([1] * len(next(iter(columns.values()))), pa.int32()), **columns})


def written(content, **options):
    out = io.BytesIO()
    pq.write_table(content, out, **options)
    return out.getvalue()


class Plain(pe.KmsClient):
    """Keys are encrypted by nothing."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return base64.b64encode(key)

    def unwrap_key(self, key, _):
        return base64.b64decode(key)


def encrypted(content, **options):
    factory = pe.CryptoFactory(Plain)
    config = pe.EncryptionConfiguration(footer_key="footer", **options)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    return written(content, encryption_properties=properties)


def times():
    stamps = {f"timestamp_{unit}": pa.array([TIME], pa.timestamp(unit)) for unit in ("ms", "us", "ns")}
    return table(
        date=pa.array([TIME.date()]),
        **stamps,
        zoned=pa.array([TIME], pa.timestamp("us", tz="UTC")),
        time_ms=pa.array([TIME.time()], pa.time32("ms")),
        time_us=pa.array([TIME.time()], pa.time64("us")),
        time_ns=pa.array([TIME.time()], pa.time64("ns")),
        empty=pa.array([None], pa.timestamp("us")),
        list=pa.array([[TIME]], pa.list_(pa.timestamp("us"))),
    )


def main():
    numbers = table(c=pa.array([3, 4]))
    texts = [f"{'ab' * (i % 40)}{i % 7}" for i in range(300)]
    flat = {"use_dictionary": False, "data_page_size": 2000, "write_statistics": False}
    files = {
        "times": written(times()),
        "int96": written(table(c=pa.array([TIME])), use_deprecated_int96_timestamps=True),
        "json": written(table(c=pa.array(["5", '"x"', "9007199254740993", None], pa.json_()))),
        "lz4": written(table(c=pa.array(texts)), compression="lz4", **flat),
        "lz4 of version 2": written(
            table(c=pa.array(texts)), compression="lz4", data_page_version="2.0", **flat
        ),
        "encrypted": encrypted(numbers, column_keys={"key": ["c"]}),
        "encrypted column": encrypted(numbers, column_keys={"key": ["c"]}, plaintext_footer=True),
    }
    text = {name: base64.encodebytes(content).decode().split() for name, content in files.items()}
    Path(__file__).with_suffix(".json").write_text(json.dumps(text, indent=2) + "\n")


main()
