/**
 * manifest.json lists the files and numbers that make up a checkpoint. It is written last, so a checkpoint
 * exists when its manifest does. The first line of the file is the SHA-256 of everything after it, so that a
 * flipped digit in a learning rate is noticed just as one in a row: `tail -n +2 manifest.json | sha256sum`.
 */
import { createHash } from 'node:crypto';
import { describe, KintsugiError } from '../../common/errors.js';
import {
  type CheckpointDraft,
  type Manifest,
  manifestName,
  manifestOf,
  manifestProblem,
} from '../../protocol/checkpoints.js';
import { datasetProblem } from '../../protocol/dataset-rules.js';
import { limitText } from '../../protocol/limits.js';
import { tableProblem } from '../../protocol/table-rules.js';
import { bad } from './safetensors.js';

/** Most bytes of a manifest: some 400,000 segments. */
export const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;

/** The file. @throws INTERNAL when the draft is not valid, LIMIT when it is too large */
export function encodeManifest(draft: CheckpointDraft): Uint8Array {
  const manifest = manifestOf(draft);
  const problem = problemOf(manifest);
  if (problem !== undefined) {
    throw new KintsugiError('INTERNAL', `the manifest of checkpoint ${draft.number}: ${problem}`);
  }
  const { shards, ...rest } = manifest;
  const lines = Object.entries(rest).flatMap(([name, value]) =>
    value === undefined ? [] : [`${JSON.stringify(name)}: ${JSON.stringify(value)},`],
  );
  const list = shards.map((shard) => JSON.stringify(shard)).join(',\n');
  const body = new TextEncoder().encode(`${lines.join('\n')}\n"shards": [\n${list}\n]}\n`);
  const head = new TextEncoder().encode(`{"sha256": "${sha256(body)}",\n`);
  const bytes = head.byteLength + body.byteLength;
  if (bytes > MAX_MANIFEST_BYTES) {
    throw new KintsugiError(
      'LIMIT',
      limitText(`a manifest has ${bytes} bytes`, 'maxManifestBytes', MAX_MANIFEST_BYTES),
    );
  }
  const file = new Uint8Array(bytes);
  file.set(head);
  file.set(body, head.byteLength);
  return file;
}

/** @throws BAD_CHECKPOINT, also when it is the manifest of another checkpoint */
export function decodeManifest(bytes: Uint8Array, number: number): Manifest {
  const file = manifestName(number);
  const end = bytes.indexOf(0x0a) + 1;
  let json: unknown;
  let head: string;
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true });
    head = decoder.decode(bytes.subarray(0, end));
    json = JSON.parse(decoder.decode(bytes));
  } catch (error) {
    throw bad(file, `not JSON (${describe(error).slice(0, 200)})`);
  }
  const found = /^\{"sha256": "([0-9a-f]{64})",\n$/.exec(head)?.[1];
  if (found !== sha256(bytes.subarray(end))) throw bad(file, 'its content does not match its SHA-256');
  const problem = problemOf(json);
  if (problem !== undefined) throw bad(file, problem);
  const { sha256: _, ...manifest } = json as Manifest & { sha256: string };
  if (manifest.number !== number) throw bad(file, `it is the manifest of checkpoint ${manifest.number}`);
  return manifest;
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function problemOf(value: unknown): string | undefined {
  const problem = manifestProblem(value);
  if (problem !== undefined) return problem;
  const { tables, pools, createdAt } = value as Manifest;
  if (Number.isNaN(Date.parse(createdAt))) return '"createdAt" is no date';
  for (const table of tables) {
    const wrong = tableProblem(table, pools);
    if (wrong !== undefined) return wrong;
  }
  if (new Set(tables.map(({ name }) => name)).size < tables.length) return 'a table occurs twice';
  return samplesProblem(value as Manifest);
}

function samplesProblem({ samples }: Manifest): string | undefined {
  const datasets = samples?.datasets ?? [];
  if (new Set(datasets.map(({ name }) => name)).size < datasets.length) return 'a data set occurs twice';
  for (const { name, spec, next, open, samples: counts, growth } of datasets) {
    const problem = datasetProblem(spec);
    if (problem !== undefined) return `data set "${name}": ${problem}`;
    const files = spec.files.length;
    if (counts.length !== spec.epochs) return `data set "${name}" has samples of another number of epochs`;
    if ((growth?.length ?? 0) !== (spec.follow ? files : 0))
      return `data set "${name}" has another number of files that grow`;
    if (new Set(open.map(({ number }) => number)).size < open.length)
      return `data set "${name}" has a range twice`;
    const isUnknown = open.find(({ number, piece }) => {
      return number >= next || (piece ? piece.file >= files : spec.follow === true);
    });
    if (isUnknown) return `data set "${name}" has handed out no range ${isUnknown.number}`;
  }
  return undefined;
}
