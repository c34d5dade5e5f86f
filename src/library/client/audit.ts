/**
 * Evidence that does not depend on the protocol's own de-duplication. With an audit, every push adds 1 to a
 * row that belongs to its (client, shard) alone. The row lives in that shard and changes with the same push,
 * so it counts how often pushes of that client were applied there.
 */
import type { InitializerSpec, NativeAddon, OptimizerSpec } from '../../engine/native.js';
import { type Pool, shardCount } from '../../protocol/map.js';

const PREFIX = '__audit/';

export function isAuditTable(name: string): boolean {
  return name.startsWith(PREFIX);
}

/** Why nobody but an audit creates a table of this name; undefined when others may. */
export function reservedNameProblem(name: string): string | undefined {
  if (!isAuditTable(name)) return undefined;
  return `table "${name}": names that begin with ${PREFIX} are those of audits, which lists and files lack`;
}

/** SGD with lr -1 on a gradient of 1 adds 1; float32 counts exactly to 2^24. */
export function auditTable(pool: Pool): {
  name: string;
  pool: string;
  dim: number;
  optimizer: OptimizerSpec;
  initializer: InitializerSpec;
} {
  return {
    name: `${PREFIX}${pool.name}`,
    pool: pool.name,
    dim: 1,
    optimizer: { kind: 'sgd', lr: -1 },
    initializer: { kind: 'zeros' },
  };
}

const cache = new Map<string, BigUint64Array>();
/**
 * The cache is bounded, because each range of samples has a session with keys of its own, and ranges are
 * many.
 */
const MAX_CACHED_KEYS = 1 << 20;
let cachedKeys = 0;

/** For every shard of a pool a key that lies in it and that no other client uses; index = shard. */
export function auditKeys(native: NativeAddon, pool: Pool, client: number): BigUint64Array {
  const shards = shardCount(pool);
  const name = `${client}/${shards}`;
  const known = cache.get(name);
  if (known) return known;
  const keys = new BigUint64Array(shards);
  const found = new Set<number>();
  const batch = Math.max(64, shards * 8);
  for (let from = 0; found.size < shards; from += batch) {
    const candidates = BigUint64Array.from(
      { length: batch },
      (_, i) => (BigInt(client) << 32n) | BigInt(from + i),
    );
    const { order, starts } = native.partition(candidates, shards);
    for (let shard = 0; shard < shards; shard++) {
      const first = starts[shard]!;
      if (found.has(shard) || first === starts[shard + 1]) continue;
      found.add(shard);
      keys[shard] = candidates[order[first]!]!;
    }
  }
  if (cachedKeys + shards > MAX_CACHED_KEYS) {
    cache.clear();
    cachedKeys = 0;
  }
  cache.set(name, keys);
  cachedKeys += shards;
  return keys;
}
