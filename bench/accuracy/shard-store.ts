/**
 * A parameter server of one shard in this process: the engine of a PS without its network and redundancy. So
 * a comparison of models has the rows, the initial values and the optimizers of a job.
 */
import { invariant, KintsugiError } from '../../src/common/errors.js';
import { loadNative, type NativeShard, PushStatus, type SectionPart } from '../../src/engine/native.js';
import type {
  ModelTable,
  ParameterStore,
  PushUpdate,
  RowsToPull,
} from '../../src/training/models/trainer.js';

export class ShardStore implements ParameterStore {
  private readonly native = loadNative();
  private readonly shard: NativeShard;
  private readonly tables = new Map<string, { id: number; dim: number }>();

  constructor() {
    this.shard = this.native.createShard(this.native.createMemory(0), 0, 2, 1);
  }

  async createTables(specs: ModelTable[]): Promise<void> {
    for (const { name, dim, optimizer, initializer, seed } of specs) {
      const id = this.tables.size + 1;
      this.shard.addTable({ id, dim, optimizer, initializer, seed });
      this.tables.set(name, { id, dim });
    }
  }

  private partOf({ table, keys }: RowsToPull, rows?: Float32Array): SectionPart {
    const known = this.tables.get(table);
    invariant(known, 'a model asks for a table that it has not created', table);
    const order = Uint32Array.from(keys, (_, index) => index);
    const part = { table: known.id, width: known.dim, keys, order, start: 0, end: keys.length };
    return rows ? { ...part, rows } : part;
  }

  async pull(requests: RowsToPull[]): Promise<Float32Array[]> {
    const parts = requests.map((request) => this.partOf(request));
    const section = this.shard.pull(this.native.encodeRequest(0, parts));
    if (typeof section === 'number') throw new KintsugiError('INTERNAL', `a pull has status ${section}`);
    let at = 0;
    return parts.map(({ width, order, start, end }) => {
      const rows = new Float32Array(end * width);
      at = this.native.scatterRows(rows, width, order, start, end, section, at);
      return rows;
    });
  }

  async push(updates: PushUpdate[]): Promise<void> {
    const parts = updates.map((update) => this.partOf(update, update.gradients));
    const status = this.shard.push(this.native.encodeRequest(0, parts));
    if (status !== PushStatus.APPLIED) throw new KintsugiError('INTERNAL', `a push has status ${status}`);
    this.shard.dropBatch();
  }

  close(): void {
    this.shard.close();
  }
}
