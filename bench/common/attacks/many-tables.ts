/** Clients that push rows to a thousand tables, many tables in each push. */
import type { Attack, AttackedJob } from './attack.js';
import { byCrowd, Crowd } from './crowd.js';
import { shares } from './pulls.js';

const TABLES = 1000;
const DIM = 8;
const CLIENTS = 8;
const IN_FLIGHT = 4;
const TABLES_OF_PUSH = 50;
const KEYS = 8;
const ROWS = 64;

export function manyTables(job: AttackedJob): Attack {
  const crowd = new Crowd('clients');
  const tables = Array.from({ length: TABLES }, (_, i) => `table-${i}`);
  return byCrowd(crowd, {
    name: 'many-tables',
    async prepare() {
      const optimizer = { kind: 'sgd', lr: -1 } as const;
      await job.client.createTables(tables.map((name) => ({ name, dim: DIM, optimizer })));
    },
    start() {
      const requests = { tables, tablesAtOnce: TABLES_OF_PUSH, dim: DIM, keys: KEYS, rows: ROWS };
      const all = shares(job.scaled(CLIENTS)).map((clients) => ({
        ...{ scheduler: job.address, clients, work: 'push', inFlight: IN_FLIGHT },
        ...requests,
      }));
      return crowd.start(all, 'ready');
    },
    stop: () => crowd.end(),
  });
}
