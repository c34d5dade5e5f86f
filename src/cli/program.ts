/** The program of the command line: every command with its flags. Importing it runs nothing. */
import { Command, type HelpConfiguration } from 'commander';
import { VERSION } from '../common/package-root.js';
import { addExamples } from './examples.js';
import { flagText, OWN_FLAGS } from './flags.js';
import { refuseTwice } from './given-once.js';

type Register = (program: Command) => void;

/**
 * Every command, in the order of the help. The file of a command is loaded when the command is asked for, so
 * that a role loads only what it needs and starts in half of the time.
 */
const COMMANDS: Readonly<Record<string, () => Promise<Register>>> = {
  scheduler: async () => (await import('./scheduler.js')).registerScheduler,
  ps: async () => (await import('./ps.js')).registerPs,
  replica: async () => (await import('./replica.js')).registerReplica,
  gateway: async () => (await import('./gateway.js')).registerGateway,
  reader: async () => (await import('./reader.js')).registerReader,
  worker: async () => (await import('./worker.js')).registerWorker,
  supervise: async () => (await import('./supervise.js')).registerSupervise,
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
  table: async () => (await import('./table.js')).registerTable,
  checkpoint: async () => (await import('./checkpoint.js')).registerCheckpoint,
  forget: async () => (await import('./forget.js')).registerForget,
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

const HELP: HelpConfiguration = {
  /** Flags of one command stand before those that it shares with others. */
  groupItems(_, visible, headingOf) {
    const own = visible.filter((item) => headingOf(item) === OWN_FLAGS);
    const groups = new Map<string, typeof visible>(own.length > 0 ? [[OWN_FLAGS, own]] : []);
    for (const item of visible.filter((each) => !own.includes(each)))
      groups.set(headingOf(item), [...(groups.get(headingOf(item)) ?? []), item]);
    return groups;
  },
  optionDescription: flagText,
};

/** @param asked the one command to load; all of them when no command has this name */
export async function createProgram(asked = ''): Promise<Command> {
  const program = new Command('kintsugi')
    .description('A parameter server for embedding tables that loses machines without losing training.')
    .version(VERSION)
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
    .showHelpAfterError(false)
    .configureHelp(HELP)
    .addHelpText(
      'after',
      '\nEvery flag is listed by "kintsugi COMMAND --help". Errors end in one line with a code, exit 2.',
    );
  const loads = Object.hasOwn(COMMANDS, asked) ? [COMMANDS[asked]!] : Object.values(COMMANDS);
  for (const register of await Promise.all(loads.map((load) => load()))) register(program);
  addExamples(program);
  refuseTwice(program);
  return program;
}
