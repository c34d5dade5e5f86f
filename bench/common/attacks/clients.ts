/**
 * Clients of an attack in a process of their own. They pull, or push, as fast as they are answered, until
 * they are told to stop. It leaves when its parent does.
 */
import { describe, KintsugiError } from '../../../src/common/errors.js';
import { type Client, connect, type PullInto, type PushRequest } from '../../../src/library/client/client.js';
import type { AttackOutcome } from './attack.js';
import type { CrowdReport } from './crowd.js';

export interface AttackClientOptions {
  scheduler: string;
  clients: number;
  /** `ask`: each client asks as `pull` does, and the process is stopped by its parent then. */
  work: 'pull' | 'ask' | 'push';
  /** Each request goes to `tablesAtOnce` of these, one after the other. */
  tables: string[];
  tablesAtOnce: number;
  dim: number;
  /** Keys of each table in a request, of those from 0 to `rows` - 1. */
  keys: number;
  rows: number;
  /** Requests of a client that are under way. */
  inFlight: number;
}

const CONNECT_MS = 60_000;
/** After a request that was refused. */
const REFUSED_PAUSE_MS = 50;

function tell(report: CrowdReport, then?: () => void): void {
  process.send?.(report, () => then?.());
}

class AttackClients {
  private readonly outcome: AttackOutcome = { answered: 0, refused: {}, pushed: [] };
  private readonly clients: Client[] = [];
  /** All answers go to one place: nobody looks at them, and clients that keep them would take memory. */
  private readonly into: Float32Array;
  private readonly gradients: Float32Array;
  private next = 0;
  private stopped = false;

  constructor(private readonly options: AttackClientOptions) {
    const floats = options.keys * options.dim;
    this.into = new Float32Array(options.work === 'push' ? 0 : floats);
    this.gradients = new Float32Array(options.work === 'push' ? floats : 0).fill(1);
  }

  async run(): Promise<void> {
    const { scheduler, clients, work, inFlight } = this.options;
    for (let i = 0; i < clients; i++)
      this.clients.push(await connect(scheduler, { connectTimeoutMs: CONNECT_MS, audit: work === 'push' }));
    if (work === 'ask') await this.firstAnswers();
    tell('ready');
    const lines = this.clients.flatMap((client) =>
      Array.from({ length: inFlight }, () => this.again(client)),
    );
    // Requests leave this process before a later question has its answer.
    if (work === 'ask') {
      await Promise.all(this.clients.map((client) => client.status()));
      tell('asked');
    }
    await Promise.all(lines);
    for (const client of work === 'push' ? this.clients : [])
      this.outcome.pushed.push({ client: client.id, counts: client.pushCounts() });
    this.leave();
  }

  /** Pushes have their answers first, because they are counted. */
  stop(): void {
    this.stopped = true;
    if (this.options.work !== 'push') this.leave();
  }

  private leave(): void {
    tell({ outcome: this.outcome }, () => process.exit(0));
  }

  /** With a first answer each client has its connections. */
  private async firstAnswers(): Promise<void> {
    const [table] = this.options.tables as [string];
    const keys = BigUint64Array.from({ length: 64 }, (_, i) => BigInt(i));
    for (const client of this.clients) await client.pull([{ table, keys }]).catch(() => {});
  }

  private async again(client: Client): Promise<void> {
    while (!this.stopped) {
      try {
        if (this.options.work === 'push') await client.push(this.pushes());
        else await client.pull(this.pulls());
        this.outcome.answered++;
      } catch (error) {
        const code = error instanceof KintsugiError ? error.code : describe(error);
        this.outcome.refused[code] = (this.outcome.refused[code] ?? 0) + 1;
        await new Promise((resolve) => setTimeout(resolve, REFUSED_PAUSE_MS));
      }
    }
  }

  private *chosen(): Generator<{ table: string; keys: BigUint64Array }> {
    const { tables, tablesAtOnce, keys, rows } = this.options;
    for (let i = 0; i < tablesAtOnce; i++) {
      const turn = this.next++;
      const first = Math.floor(turn / tables.length) * keys;
      const list = BigUint64Array.from({ length: keys }, (_, n) => BigInt((first + n) % rows));
      yield { table: tables[turn % tables.length]!, keys: list };
    }
  }

  private pulls(): PullInto[] {
    return [...this.chosen()].map((request) => ({ ...request, into: this.into }));
  }

  private pushes(): PushRequest[] {
    return [...this.chosen()].map((request) => ({ ...request, gradients: this.gradients }));
  }
}

const crowd = new AttackClients(JSON.parse(process.argv[2]!) as AttackClientOptions);
process.on('message', () => crowd.stop());
process.on('disconnect', () => process.exit(1));
crowd.run().catch((error: unknown) => {
  process.stderr.write(`clients of an attack: ${describe(error)}\n`);
  process.exit(1);
});
