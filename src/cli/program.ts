/** The program of the command line: every command with its flags. Importing it runs nothing. */
import { Command } from 'commander';
import { VERSION } from '../package-root.js';
import { registerAutoscale } from './autoscale.js';
import { registerBench } from './bench.js';
import { registerCheckpoint } from './checkpoint.js';
import { registerDashboard } from './dashboard.js';
import { registerDemo } from './demo.js';
import { registerDoctor } from './doctor.js';
import { registerEvents } from './events.js';
import { registerExport } from './export.js';
import { registerGateway } from './gateway.js';
import { registerImport } from './import.js';
import { registerInit } from './init.js';
import { registerLoad } from './load.js';
import { registerLocal } from './local.js';
import { registerOperator } from './operator.js';
import { registerPlan } from './plan.js';
import { registerPs } from './ps.js';
import { registerReplica } from './replica.js';
import { registerRestart } from './restart.js';
import { registerRestore } from './restore.js';
import { registerSave } from './save.js';
import { registerScale } from './scale.js';
import { registerScheduler } from './scheduler.js';
import { registerScrub } from './scrub.js';
import { registerStatus } from './status.js';
import { registerTop } from './top.js';
import { registerWorker } from './worker.js';

export function createProgram(): Command {
  const program = new Command('kintsugi')
    .description('A parameter server for embedding tables that loses machines without losing training.')
    .version(VERSION)
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
    .showHelpAfterError(false)
    .addHelpText(
      'after',
      '\nEvery flag is listed by "kintsugi COMMAND --help". Errors end in one line with a code, exit 2.',
    );
  registerScheduler(program);
  registerPs(program);
  registerReplica(program);
  registerGateway(program);
  registerWorker(program);
  registerLocal(program);
  registerStatus(program);
  registerDashboard(program);
  registerEvents(program);
  registerTop(program);
  registerDoctor(program);
  registerScale(program);
  registerRestart(program);
  registerPlan(program);
  registerAutoscale(program);
  registerOperator(program);
  registerCheckpoint(program);
  registerRestore(program);
  registerExport(program);
  registerSave(program);
  registerScrub(program);
  registerLoad(program);
  registerImport(program);
  registerInit(program);
  registerDemo(program);
  registerBench(program);
  return program;
}
