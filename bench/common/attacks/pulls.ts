/** Tables and clients of attacks that pull, and the client that pushes beside others. */
import type { AttackedJob } from './attack.js';
import type { AttackClientOptions } from './clients.js';

/** A client in one process of its own would need 60 MB more. */
const CLIENTS_OF_PROCESS = 10;

export const WIDE_TABLE = { name: 'wide', dim: 65_536, rows: 300 } as const;
export const BROAD_TABLE = { name: 'broad', dim: 4096, rows: 900 } as const;
export type PulledTable = typeof WIDE_TABLE | typeof BROAD_TABLE;

/** Makes the table, if it is not there, with a row for each key. */
export async function filled({ client }: AttackedJob, { name, dim, rows }: PulledTable): Promise<void> {
  if (client.tables().some((table) => table.name === name)) return;
  const optimizer = { kind: 'sgd', lr: -1 } as const;
  const table = await client.createTable({ name, dim, optimizer, initializer: { kind: 'zeros' } });
  const atOnce = 100;
  const ones = new Float32Array(atOnce * dim).fill(1);
  for (let first = 0; first < rows; first += atOnce)
    await table.push(
      BigUint64Array.from({ length: atOnce }, (_, i) => BigInt(first + i)),
      ones,
    );
}

/** Options of processes that have so many clients together, which pull all rows of the table. */
export function pulling(
  job: AttackedJob,
  { name, dim, rows }: PulledTable,
  full: number,
  options: Pick<AttackClientOptions, 'work' | 'inFlight'>,
): AttackClientOptions[] {
  return shares(job.scaled(full)).map((clients) => ({
    ...{ scheduler: job.address, clients, tables: [name], tablesAtOnce: 1, dim, keys: rows, rows },
    ...options,
  }));
}

/** Options of a process with one client, which pushes 30 rows of the broad table at a time. */
export function pushing(job: AttackedJob): AttackClientOptions {
  const { name, dim, rows } = BROAD_TABLE;
  const pushes = { tables: [name], tablesAtOnce: 1, dim, keys: 30, rows };
  return { scheduler: job.address, clients: 1, work: 'push', inFlight: 4, ...pushes };
}

/** Clients of each process. */
export function shares(clients: number): number[] {
  const processes = Math.ceil(clients / CLIENTS_OF_PROCESS);
  return Array.from({ length: processes }, (_, i) => {
    return Math.floor((clients * (i + 1)) / processes) - Math.floor((clients * i) / processes);
  });
}
