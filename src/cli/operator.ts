/** `kintsugi operator`: runs training jobs on Kubernetes. */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Command } from 'commander';
import { findConfig } from '../fleet/operator/api/config.js';
import { fenced } from '../fleet/operator/api/fenced.js';
import { HttpApi } from '../fleet/operator/api/http-api.js';
import { Leadership } from '../fleet/operator/lease.js';
import { Operator } from '../fleet/operator/operator.js';
import { serveEndpoints } from '../roles/endpoints.js';
import { loggerOf, metricsTokenOf, type SharedFlags, withLogFormat, withMetricsToken } from './flags.js';
import { stopSignal } from './lifetime.js';

interface OperatorFlags extends SharedFlags {
  namespace?: string;
  allNamespaces: boolean;
  listen: string;
  leaseName: string;
}

async function run(flags: OperatorFlags): Promise<void> {
  const stopped = stopSignal();
  const name = hostname();
  const log = loggerOf(flags, { role: 'operator', name });
  const config = await findConfig();
  const requests = new Map<string, Map<number, number>>();
  const api = new HttpApi(config, {
    onAnswer: (verb, status) => {
      const of = requests.get(verb) ?? new Map<number, number>();
      requests.set(verb, of.set(status, (of.get(status) ?? 0) + 1));
    },
  });
  const own = flags.namespace ?? config.namespace;
  let operator: Operator | undefined;
  const endpoints = await serveEndpoints(
    flags.listen,
    {
      ...{ role: 'operator' as const, name },
      // An operator that stands by is ready: it takes over when it must.
      notReady: () => operator?.notReady(),
      metrics: () => ({
        kintsugi_operator_leads: operator ? 1 : 0,
        kintsugi_operator_jobs: operator?.phases(),
        kintsugi_operator_passes_total: operator?.passesMade,
        kintsugi_operator_waiting_jobs: operator?.passes,
        kintsugi_operator_api_requests_total: [...requests].flatMap(([verb, of]) =>
          [...of].map(([status, count]) => [{ verb, status }, count] as const),
        ),
      }),
    },
    // The operator takes no connections of the job, so nobody needs to know this token.
    { token: randomUUID(), metricsToken: metricsTokenOf(flags) },
  );
  const leadership = new Leadership({
    ...{ api, namespace: own, name: flags.leaseName, identity: `${name}_${randomUUID()}` },
    onError: (message) => log.warn('operator.lease', { message }),
  });
  try {
    for (;;) {
      log.info('operator.standby', { namespace: own });
      const leads = await Promise.race([leadership.lead(), stopped]);
      if (typeof leads === 'string' || !leads) return;
      const fence = fenced(api);
      const namespace = flags.allNamespaces ? undefined : own;
      operator = new Operator({ api: fence.api, namespace, ownNamespace: config.namespace, log });
      const current = operator;
      const end = Promise.race([stopped, leads.lost]);
      await Promise.race([current.start(), end]);
      log.info('operator.leads', { namespace: flags.allNamespaces ? '' : own });
      const ended = await end;
      // Another operator may lead by now, so this one writes nothing any more.
      if (typeof ended !== 'string') fence.shut();
      operator = undefined;
      await current.stop();
      if (typeof ended === 'string') break;
      // The process lives on: a new one would take longer, and its kubelet may hold it back.
      log.warn('operator.deposed', {});
    }
  } finally {
    await leadership.release();
    await endpoints.close();
  }
  log.info('operator.stopped');
}

export function registerOperator(program: Command): void {
  const command = program
    .command('operator')
    .description('Run training jobs on Kubernetes: TrainingJob objects of a namespace.')
    .option('--namespace <name>', 'namespace of jobs and Lease (default: its own)')
    .option('--all-namespaces', 'run jobs of all namespaces', false)
    .option('--listen <host:port>', 'address of /healthz, /readyz and /metrics', '127.0.0.1:0')
    .option('--lease-name <name>', 'the operator that holds this Lease leads', 'kintsugi-operator');
  withLogFormat(withMetricsToken(command)).action(run);
}
