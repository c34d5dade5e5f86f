/**
 * `kintsugi bench chaos`: a cluster of real processes under load, killed, stopped, cut off and scaled at
 * random for minutes, and then the proof that every acknowledged push is in the tables exactly once and that
 * every parity is right. A second run of the same pushes without faults must give the same digest.
 */
import { KintsugiError } from '../../src/common/errors.js';
import { Machines, whyNoMachines } from '../common/machines.js';
import type { ChaosOptions } from './options.js';
import { chaosReport } from './report.js';
import { ChaosSchedule } from './run.js';
import { makeSecrets } from './secrets.js';

const LOOPBACK = '127.0.0.1';

/**
 * @throws BAD_ARGUMENT (also where no machines can be made), TIMEOUT when something hangs, INTERNAL when a
 * goal of safety is missed
 */
export async function run(options: ChaosOptions): Promise<void> {
  const why = options.network ? whyNoMachines() : undefined;
  if (why !== undefined) throw new KintsugiError('BAD_ARGUMENT', `bench chaos --network: ${why}`);
  const machines = options.network ? new Machines() : undefined;
  const secrets = makeSecrets(options.token, options.tls, [LOOPBACK, ...(machines?.addresses ?? [])]);
  try {
    const chaotic = await new ChaosSchedule(options, secrets, { machines }).run();
    options.tell('the same pushes without faults');
    const quiet = await new ChaosSchedule(options, secrets, { repeat: chaotic }).run();
    const report = chaosReport(options, chaotic, quiet);
    report.finish();
    for (const what of [...chaotic.wrong, ...quiet.wrong]) process.stdout.write(`wrong: ${what}\n`);
    const missed = report.goals.filter((goal) => !goal.met).map((goal) => goal.name);
    if (missed.length > 0) throw new KintsugiError('INTERNAL', `missed: ${missed.join(', ')}`);
  } finally {
    secrets.remove();
    machines?.remove();
  }
}
