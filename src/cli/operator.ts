/** `kintsugi operator`: runs training jobs on Kubernetes. */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Command } from 'commander';
import { findConfig } from '../operator/api/config.js';
import { fenced } from '../operator/api/fenced.js';
import { HttpApi } from '../operator/api/http-api.js';
import { Leadership } from '../operator/lease.js';
import { Operator } from '../operator/operator.js';
import { serveEndpoints } from '../runtime/endpoints.js';
import { loggerOf, metricsTokenOf, type SharedFlags, withLogFormat, withMetricsToken } from './flags.js';
import { stopSignal } from './lifetime.js';

interface Flags extends SharedFlags {
  namespace?: string;
  allNamespaces: boolean;
  listen: string;
  leaseName: string;
}

async function run(flags: Flags): Promise<void> {
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
      // One that stands by is ready: it takes over when it must.
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
    // It takes no connections, so nobody needs to know it.
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
      operator = new Operator({ api: fence.api, namespace: flags.allNamespaces ? undefined : own, log });
      const current = operator;
      const end = Promise.race([stopped, leads.lost]);
      await Promise.race([current.start(), end]);
      log.info('operator.leads', { namespace: flags.allNamespaces ? '' : own });
      const ended = await end;
      // Whoever leads now may have begun: nothing is written any more.
      if (typeof ended !== 'string') fence.shut();
      operator = undefined;
      await current.stop();
      if (typeof ended === 'string') break;
      // A new process would only take longer, and its kubelet may hold it back.
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
    .option('--namespace <name>', 'namespace of the jobs and of the lease (default: its own)')
    .option('--all-namespaces', 'jobs of all namespaces', false)
    .option('--listen <host:port>', 'address where /healthz, /readyz and /metrics answer', '127.0.0.1:0')
    .option(
      '--lease-name <name>',
      'of several operators the one that holds this Lease leads',
      'kintsugi-operator',
    );
  withLogFormat(withMetricsToken(command)).action(run);
}
