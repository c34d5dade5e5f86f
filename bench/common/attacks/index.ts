/** All attacks, by name. */
import type { Attack, AttackedJob } from './attack.js';
import { idleConnections } from './idle-connections.js';
import { manyTables } from './many-tables.js';
import type { AttackName } from './names.js';
import { neverRead } from './never-read.js';
import { duringRecovery } from './recovery.js';
import { slowPlace } from './slow-place.js';
import { stalledReplicas } from './stalled-replicas.js';
import { stoppedProgram } from './stopped-program.js';
import { widePulls } from './wide-pulls.js';

export const ATTACKS: Readonly<Record<AttackName, (job: AttackedJob) => Attack>> = {
  'wide-pulls': widePulls,
  'never-read': neverRead,
  recovery: duringRecovery,
  'many-tables': manyTables,
  'idle-connections': idleConnections,
  'stalled-replicas': stalledReplicas,
  'slow-place': slowPlace,
  'stopped-program': stoppedProgram,
};
