/**
 * Watches deletions of PS Pods beside the operator, and holds each against the map of the job: a PS that
 * lives and has shards is deleted by nobody but the test itself, or by Kubernetes when its machine is gone.
 */
import { spawn } from 'node:child_process';
import type { Pod } from '../../src/fleet/operator/objects.js';
import type { NodeStatus } from '../../src/protocol/status.js';
import { kubectl, NAMESPACE, pods } from './cluster.js';

/** Asks a scheduler for the PS that it knows. */
const ASK = `
import { connect } from '/app/dist/src/index.js';
const client = await connect('127.0.0.1:7077', { token: process.env.KINTSUGI_TOKEN });
console.log(JSON.stringify((await client.status()).nodes));
process.exit(0);
`;

type Held = Pick<NodeStatus, 'name' | 'alive' | 'dataShards' | 'parityShards'>;

/** PS of a job by its own map. Undefined: no scheduler answers. */
async function mapOf(job: string): Promise<Held[] | undefined> {
  for (const { metadata } of await pods(job, 'scheduler').catch(() => [])) {
    const args = ['exec', metadata.name, '-c', 'kintsugi', '--request-timeout=10s', '--', 'node'];
    const out = await kubectl(...args, '--input-type=module', '-e', ASK).catch(() => '');
    if (out !== '') return JSON.parse(out.trim().split('\n').at(-1)!) as Held[];
  }
  return undefined;
}

export interface DeletionsSeen {
  /** PS Pods that were told to end. */
  seen: number;
  /** PS of these, not told by the test itself, of which a map was read after that. */
  compared: number;
  /** PS that lived, had shards and were deleted. */
  wrong: string[];
}

/** `excused`: whether the test has killed or evicted the Pod itself, or taken its machine. */
export function watchDeletions(excused: (pod: Pod) => boolean): { stop(): Promise<DeletionsSeen> } {
  const seen = new Set<string>();
  const looks: Promise<void>[] = [];
  const found: DeletionsSeen = { seen: 0, compared: 0, wrong: [] };
  let over = false;
  const look = async (pod: Pod): Promise<void> => {
    const { name, labels, deletionTimestamp } = pod.metadata;
    const map = await mapOf(labels!['kintsugi.dev/job']!);
    // The test notes what it does before it does it, so it is asked after the map.
    if (!map || excused(pod)) return;
    found.compared++;
    const held = map.find((one) => one.name === name);
    if (held?.alive && held.dataShards + held.parityShards > 0)
      found.wrong.push(`${name}, told to end at ${deletionTimestamp}: ${JSON.stringify(held)}`);
  };
  const take = (pod: Pod): void => {
    const { uid = '', deletionTimestamp } = pod.metadata;
    if (deletionTimestamp === undefined || seen.has(uid)) return;
    seen.add(uid);
    found.seen++;
    looks.push(look(pod));
  };
  const watch = (): ReturnType<typeof spawn> => {
    const args = ['-n', NAMESPACE, 'get', 'pods', '-l', 'kintsugi.dev/role=ps', '--watch', '-o', 'json'];
    const child = spawn('kubectl', args);
    let text = '';
    child.stdout.on('data', (part: Buffer) => {
      text += part.toString('utf8');
      // Objects are printed one after the other, each ends with a brace at the start of a line.
      for (let end = text.indexOf('\n}\n'); end >= 0; end = text.indexOf('\n}\n')) {
        take(JSON.parse(text.slice(0, end + 3)) as Pod);
        text = text.slice(end + 3);
      }
    });
    // The API server may restart: its watch ends then.
    child.on('close', () => {
      setTimeout(() => {
        if (!over) current = watch();
      }, 500);
    });
    return child;
  };
  let current = watch();
  return {
    async stop() {
      over = true;
      current.kill();
      await Promise.all(looks);
      return found;
    },
  };
}
