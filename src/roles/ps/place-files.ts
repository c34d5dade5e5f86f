/** Files of checkpoints that a PS writes and reads: the effects `store` and `fetch` of its node. */

import { KintsugiError } from '../../common/errors.js';
import type { FetchAnswer } from '../../core/node/loading.js';
import type { StoreAnswer } from '../../core/node/saving.js';
import type { FetchEffect, StoredTable, StoreEffect } from '../../core/shared/outbox.js';
import { rowStride } from '../../engine/filters.js';
import type { SavedShard } from '../../protocol/checkpoints.js';
import { type ClusterMap, tableByName } from '../../protocol/map.js';
import { readSegment, storeSegment } from '../../stores/checkpoint/checkpoints.js';
import { bad } from '../../stores/checkpoint/safetensors.js';
import { statePartsOf, type TableToWrite } from '../../stores/checkpoint/segment.js';
import { segmentProblem } from '../../stores/checkpoint/verify.js';
import { failureOf, Places } from '../places.js';

export class PlaceFiles {
  private readonly places = new Places();
  /** Since the start of the process. */
  storedFiles = 0;
  storedBytes = 0;
  failedFiles = 0;
  fetchedBytes = 0;

  /** `answer` is called in a later turn of the event loop. */
  constructor(private readonly answer: (answer: StoreAnswer | FetchAnswer) => void) {}

  // ---- writing

  store(effect: StoreEffect, map: ClusterMap): void {
    const { token } = effect;
    this.write(effect, map).then(
      ({ bytes, sha256 }) => {
        this.storedFiles++;
        this.storedBytes += bytes;
        this.answer({ kind: 'stored', token, bytes, sha256 });
      },
      (error: unknown) => {
        this.failedFiles++;
        this.answer({ kind: 'storeFailed', token, ...failureOf(error) });
      },
    );
  }

  private async write(effect: StoreEffect, map: ClusterMap): Promise<{ bytes: number; sha256: string }> {
    const { url, name, valuesOnly, sessions, group, member, position } = effect;
    const tables = effect.tables.map((table) => toWrite(table, map, valuesOnly));
    const place = await this.places.at(url);
    const owner = { group, member, position };
    return storeSegment(place, name, tables, sessions, owner, this.places.signal);
  }

  // ---- reading

  fetch(effect: FetchEffect, map: ClusterMap): void {
    const { token } = effect;
    this.read(effect, map).then(
      (answer) => this.answer(answer),
      (error: unknown) => this.answer({ kind: 'fetchFailed', token, ...failureOf(error) }),
    );
  }

  private async read(effect: FetchEffect, map: ClusterMap): Promise<FetchAnswer> {
    const { token, url, segment: ref, pool, group, member } = effect;
    const place = await this.places.at(url);
    const segment = await readSegment(place, ref, this.places.signal);
    // Readers look at the position in the manifest, so it is not needed here.
    const shard: SavedShard = { pool, group, member, shard: 0, position: 0, since: 0, segments: [ref] };
    const problem = segmentProblem(segment, { kind: 'full job', tables: map.tables }, shard, false);
    if (problem !== undefined) throw bad(ref.name, problem);
    this.fetchedBytes += ref.bytes;
    const { tables, sessions, content } = segment;
    return { kind: 'fetched', token, tables, content, ...(sessions && { sessions }) };
  }

  close(): Promise<void> {
    return this.places.close();
  }
}

function toWrite(
  { name, keys, values, state, removed, filter }: StoredTable,
  map: ClusterMap,
  valuesOnly: boolean,
): TableToWrite {
  const spec = tableByName(map, name);
  if (!spec) throw new KintsugiError('INTERNAL', `rows of a table "${name}" that the map does not have`);
  const { dim, optimizer, policy } = spec;
  return {
    name,
    dim,
    stateParts: valuesOnly ? [] : statePartsOf(dim, optimizer, policy),
    ...{ keys, values, state, removed },
    filter: filter && { ...filter, width: rowStride(spec) },
  };
}
