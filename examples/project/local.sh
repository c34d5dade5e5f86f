#!/bin/sh
# A whole job on this machine, each role a process: a scheduler, 5 parameter servers, 2 workers. One of the
# servers is killed half-way. Its rows are decoded from the others, and training goes on.
set -e
test -f data/train.csv || node make-data.ts
exec kintsugi local --ps 5 --code 4+1 --workers 2 --kill ps@50% \
  --data data/train.csv --test data/test.csv --schema schema.json --model model.ts \
  --dim 8 --batch 128 --lr 0.1 --epochs 2 --json report.json "$@"
