/**
 * All benchmarks, by name. `kintsugi bench` loads this file; a benchmark itself is loaded when it is run.
 * A benchmark is a folder of this one, whose bench.ts exports `run`; what several share is in common/.
 */
import { Command } from 'commander';
import { checkWritable } from '../src/fleet/local/options.js';
import { ACCURACY_OPTIONS } from './accuracy/options.js';
import { AUTOSCALE_OPTIONS } from './autoscale/options.js';
import { CHAOS_OPTIONS } from './chaos/options.js';
import { CHECKPOINT_OPTIONS } from './checkpoint/options.js';
import {
  bad,
  type Flag,
  type Flags,
  flagHelp,
  flagName,
  type OptionSpec,
  optionSpec,
} from './common/flags.js';
import { LOOPBACK_OPTIONS } from './common/loopback/options.js';
import { GOODPUT_OPTIONS } from './goodput/options.js';
import { KUBE_CHAOS_OPTIONS } from './kube-chaos/options.js';
import { LIFE_OPTIONS } from './life/options.js';
import { OVERHEAD_OPTIONS } from './overhead/options.js';
import { OVERLOAD_OPTIONS } from './overload/options.js';
import { PLAN_OPTIONS } from './plan/options.js';
import { READ_OPTIONS } from './read/options.js';
import { RECOVERY_OPTIONS } from './recovery/options.js';
import { REPLICA_OPTIONS } from './replica/options.js';
import { ROLLING_OPTIONS } from './rolling/options.js';
import { SCALING_OPTIONS } from './scaling/options.js';
import { SCAN_OPTIONS } from './scan/options.js';
import { TABLES_OPTIONS } from './tables/options.js';
import { TRANSPORTS_OPTIONS } from './transports/options.js';
import { VANISH_OPTIONS } from './vanish/options.js';

interface Benchmark {
  description: string;
  flags: Flags;
  run(given: object): Promise<void>;
}

/** The types check that what is loaded takes the options that are declared. */
function benchmark<Declared extends Flags, Options>(
  description: string,
  { flags, parse }: OptionSpec<Declared, Options>,
  load: () => Promise<{ run(options: Options): Promise<void> }>,
): Benchmark {
  return { description, flags, run: async (given) => (await load()).run(parse(given)) };
}

/** Options of benchmarks without flags of their own. */
const COMMON_OPTIONS = optionSpec({}, () => ({}));

export const BENCHMARKS: Readonly<Record<string, Benchmark>> = {
  code: benchmark(
    'Reed-Solomon encode with every instruction set, against other libraries',
    COMMON_OPTIONS,
    () => import('./code/bench.js'),
  ),
  rows: benchmark(
    'row kernels (delta, optimizers, gather, index), alone and through the addon',
    COMMON_OPTIONS,
    () => import('./rows/bench.js'),
  ),
  pull: benchmark(
    'rows from one PS over loopback, against the bare transport and Redis',
    LOOPBACK_OPTIONS,
    () => import('./pull/bench.js'),
  ),
  push: benchmark(
    'gradients to one PS over loopback, against the bare transport and Redis',
    LOOPBACK_OPTIONS,
    () => import('./push/bench.js'),
  ),
  transports: benchmark(
    'the library over `ws`, on a Node of your choice, against the library over uWebSockets.js',
    TRANSPORTS_OPTIONS,
    () => import('./transports/bench.js'),
  ),
  read: benchmark(
    'what readers make of data files per core, against DuckDB',
    READ_OPTIONS,
    () => import('./read/bench.js'),
  ),
  accuracy: benchmark(
    'test AUCs of the built-in models against PyTorch, and the best that there can be',
    ACCURACY_OPTIONS,
    () => import('./accuracy/bench.js'),
  ),
  overhead: benchmark(
    'what redundancy costs while nothing fails',
    OVERHEAD_OPTIONS,
    () => import('./overhead/bench.js'),
  ),
  recovery: benchmark(
    'SIGKILL of one PS: erasure coding, replication and checkpoints',
    RECOVERY_OPTIONS,
    () => import('./recovery/bench.js'),
  ),
  goodput: benchmark(
    'compute that counted, of all that workers were allocated, while processes fail',
    GOODPUT_OPTIONS,
    () => import('./goodput/bench.js'),
  ),
  scaling: benchmark(
    'training while a job grows and shrinks',
    SCALING_OPTIONS,
    () => import('./scaling/bench.js'),
  ),
  rolling: benchmark(
    'every PS of a job under load restarted, one after the other',
    ROLLING_OPTIONS,
    () => import('./rolling/bench.js'),
  ),
  replica: benchmark(
    'a replica under pushes: how old its answers are, and what it costs',
    REPLICA_OPTIONS,
    () => import('./replica/bench.js'),
  ),
  checkpoint: benchmark(
    'what checkpoints cost training, and how soon a restored job serves',
    CHECKPOINT_OPTIONS,
    () => import('./checkpoint/bench.js'),
  ),
  tables: benchmark(
    'as many tables as a job may have, and SIGKILL of one PS',
    TABLES_OPTIONS,
    () => import('./tables/bench.js'),
  ),
  scan: benchmark(
    'scan, digest, save and load of a large table, and the memory that they need',
    SCAN_OPTIONS,
    () => import('./scan/bench.js'),
  ),
  life: benchmark(
    'rows of a table with a policy: what it costs, when they go, and what exports have of them',
    LIFE_OPTIONS,
    () => import('./life/bench.js'),
  ),
  vanish: benchmark(
    'machines that vanish under load and return (Linux, as root)',
    VANISH_OPTIONS,
    () => import('./vanish/bench.js'),
  ),
  overload: benchmark(
    'attacks on a job by clients, replicas and stores: memory, latencies, losses',
    OVERLOAD_OPTIONS,
    () => import('./overload/bench.js'),
  ),
  plan: benchmark(
    'what a plan says of three jobs, against these jobs',
    PLAN_OPTIONS,
    () => import('./plan/bench.js'),
  ),
  autoscale: benchmark(
    'simulated days of the autoscaler, of published rules, and of an oracle that knows the future',
    AUTOSCALE_OPTIONS,
    () => import('./autoscale/bench.js'),
  ),
  chaos: benchmark(
    'random faults under load for minutes, then a proof that nothing was lost',
    CHAOS_OPTIONS,
    () => import('./chaos/bench.js'),
  ),
  'kube-chaos': benchmark(
    'three jobs on a real Kubernetes cluster under faults for minutes, and their exact counts',
    KUBE_CHAOS_OPTIONS,
    () => import('./kube-chaos/bench.js'),
  ),
};

/** As the help shows it: --recovery-rate <size>. */
export function typed(name: string, { value }: Flag): string {
  return value === undefined ? flagName(name) : `${flagName(name)} <${value}>`;
}

function commandOf(name: string, { description, flags, run }: Benchmark): Command {
  const command = new Command(name).description(description);
  for (const [flag, declared] of Object.entries(flags))
    command.option(typed(flag, declared), flagHelp(declared));
  return command.action((given: Record<string, unknown>) => {
    checkOutputs(flags, given);
    return run(given);
  });
}

/** Every file that a flag names is one that a benchmark writes, mostly at its end. @throws BAD_ARGUMENT */
function checkOutputs(flags: Flags, given: Record<string, unknown>): void {
  for (const [name, { value }] of Object.entries(flags)) {
    const file = given[name];
    if (value === 'file' && typeof file === 'string') checkWritable(flagName(name), file);
  }
}

/** Every benchmark with its flags, for the help. */
function overview(commands: readonly Command[]): string {
  return commands
    .map((command) => {
      const help = command.createHelp();
      const flags = help.visibleOptions(command).filter(({ long }) => long !== '--help');
      const lines = flags.map((flag) => `    ${flag.flags.padEnd(24)} ${flag.description}`);
      return [`  ${command.name().padEnd(10)} ${command.description()}`, ...lines].join('\n');
    })
    .join('\n\n');
}

/**
 * Runs `kintsugi bench` with these arguments: the name of a benchmark and its flags.
 * @throws BAD_ARGUMENT for a name that does not exist, CommanderError for flags that do not, and whatever the
 * benchmark throws
 */
export async function runBench(args: readonly string[]): Promise<void> {
  const names = Object.keys(BENCHMARKS).join(', ');
  const [name] = args;
  if (name === undefined) throw bad(`a benchmark is needed, one of ${names}; see kintsugi bench --help`);
  if (!name.startsWith('-') && !Object.hasOwn(BENCHMARKS, name))
    throw bad(`"${name}" is not a benchmark; there are ${names}`);
  const program = new Command('kintsugi bench')
    .description('Runs a benchmark and prints what it measured.')
    .usage('<name> [flags]')
    .helpCommand(false)
    .exitOverride()
    .configureOutput({ writeErr: () => {} })
    .configureHelp({ visibleCommands: () => [] });
  for (const [each, declared] of Object.entries(BENCHMARKS))
    program.addCommand(commandOf(each, declared).copyInheritedSettings(program));
  program.addHelpText('after', `\nBenchmarks:\n${overview(program.commands)}`);
  await program.parseAsync(args, { from: 'user' });
}
