/** The program of the command line: every command with its flags. Importing it runs nothing. */
import { Command } from 'commander';
import { VERSION } from '../package-root.js';

type Register = (program: Command) => void;

/**
 * Every command, in the order of the help. Its file is loaded when it is asked for, so that a process of a
 * role starts with what this role needs, in half of the time.
 */
const COMMANDS: Readonly<Record<string, () => Promise<Register>>> = {
  scheduler: async () => (await import('./scheduler.js')).registerScheduler,
  ps: async () => (await import('./ps.js')).registerPs,
  replica: async () => (await import('./replica.js')).registerReplica,
  gateway: async () => (await import('./gateway.js')).registerGateway,
  worker: async () => (await import('./worker.js')).registerWorker,
  local: async () => (await import('./local.js')).registerLocal,
  status: async () => (await import('./status.js')).registerStatus,
  dashboard: async () => (await import('./dashboard.js')).registerDashboard,
  events: async () => (await import('./events.js')).registerEvents,
  top: async () => (await import('./top.js')).registerTop,
  doctor: async () => (await import('./doctor.js')).registerDoctor,
  scale: async () => (await import('./scale.js')).registerScale,
  restart: async () => (await import('./restart.js')).registerRestart,
  plan: async () => (await import('./plan.js')).registerPlan,
  autoscale: async () => (await import('./autoscale.js')).registerAutoscale,
  operator: async () => (await import('./operator.js')).registerOperator,
  checkpoint: async () => (await import('./checkpoint.js')).registerCheckpoint,
  restore: async () => (await import('./restore.js')).registerRestore,
  export: async () => (await import('./export.js')).registerExport,
  save: async () => (await import('./save.js')).registerSave,
  scrub: async () => (await import('./scrub.js')).registerScrub,
  load: async () => (await import('./load.js')).registerLoad,
  import: async () => (await import('./import.js')).registerImport,
  init: async () => (await import('./init.js')).registerInit,
  demo: async () => (await import('./demo.js')).registerDemo,
  bench: async () => (await import('./bench.js')).registerBench,
};

/** @param asked the one command to load, if there is such a one; all of them otherwise */
export async function createProgram(asked = ''): Promise<Command> {
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
  const loads = Object.hasOwn(COMMANDS, asked) ? [COMMANDS[asked]!] : Object.values(COMMANDS);
  for (const register of await Promise.all(loads.map((load) => load()))) register(program);
  return program;
}
