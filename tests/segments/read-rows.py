"""Prints, of a Parquet file: its metadata of ours, row groups, and SHA-256 of its rows as lines of JSON."""

import hashlib
import json
import sys

import pyarrow.parquet as parquet

file = parquet.ParquetFile(sys.argv[1])
rows = file.read()
digest = hashlib.sha256()
for row in rows.to_pylist():
    values = [value.hex() if isinstance(value, bytes) else value for value in row.values()]
    digest.update((json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n").encode())
ours = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
print(json.dumps({
    "rows": rows.num_rows,
    "rowGroups": file.metadata.num_row_groups,
    "columns": rows.schema.names,
    "digest": digest.hexdigest(),
    "hashes": hashlib.sha256(b"".join(rows["hash"].to_pylist())).hexdigest(),
    "metadata": {key: value for key, value in ours.items() if key.startswith("hopskip.")},
    "sorted": all(
        [(each.column_index, each.descending) for each in file.metadata.row_group(i).sorting_columns] == [(0, False), (1, False)]
        for i in range(file.metadata.num_row_groups)
    ),
}))
