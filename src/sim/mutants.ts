/**
 * The simulator must be able to fail: each mutant plants one protocol bug, as a small textual edit on a copy of the compiled
 * core, and must be caught. Production code holds no trace of them. A mutant that survives is a hole in the simulator or a
 * rule that is not needed.
 */
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface Mutant {
  name: string;
  /** File of the compiled core, without ending. */
  file: string;
  /** Must occur exactly once (or at the n-th place, from 0, of several). */
  from: string;
  to: string;
  place?: number;
}

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'take deltas of a fenced generation',
    file: 'sink',
    from: 'if (gen !== member.sgen || gen < member.fence)',
    to: 'if (member.sgen === 0)',
  },
  { name: 'a promise that does not fence', file: 'sink', from: 'member.fence = gen;', to: '' },
  {
    name: 'acknowledge before the last sink has it',
    file: 'stream',
    from: 'durable = Math.min(durable, follower.acked)',
    to: 'durable = Math.max(durable, follower.acked)',
  },
  {
    name: 'count a sink only when it has answered its start',
    file: 'stream',
    from: 'durable = Math.min(durable, follower.acked)',
    to: "durable = follower.state === 'started' ? Math.min(durable, follower.acked) : durable",
  },
  {
    name: 'content at any position',
    file: 'sink',
    from: 'message.gen < member.fence || message.seq !== member.applied',
    to: 'message.gen < member.fence',
  },
  {
    name: 'content without a flush',
    file: 'owner',
    from: 'this.flush();\n        const { present',
    to: 'const { present',
  },
  {
    name: 'forget the replay after a reconnect',
    file: 'stream',
    from: 'if (batch.seq > message.applied)',
    to: 'if (batch.seq < 0)',
  },
  {
    name: 'resume one too late',
    file: 'stream',
    from: 'if (batch.seq > message.applied)',
    to: 'if (batch.seq > message.applied + 1)',
  },
  {
    name: 'trim the log too early',
    file: 'sink',
    from: 'if (entry.seq > committed)',
    to: 'if (entry.seq > member.applied)',
  },
  {
    name: 'acknowledge a duplicate before its original is committed',
    file: 'owner',
    from: 'if (cseq <= this.stream.committedDedup.last(client))',
    to: 'if (true)',
  },
  { name: 'no contiguity', file: 'owner', from: 'if (cseq > last + 1)', to: 'if (false)' },
  { name: 'no de-duplication', file: 'owner', from: 'if (cseq <= last)', to: 'if (false)' },
  {
    name: 'a new sink starts from now',
    file: 'stream',
    from: 'follower.base = this.committed;',
    to: 'follower.base = this.seq;',
  },
  {
    name: 'a new sink gets no de-duplication table',
    file: 'stream',
    from: 'dedup: fresh ? this.committedDedup.entries() : []',
    to: 'dedup: []',
  },
  {
    name: 'serve before all sinks agreed',
    file: 'stream',
    from: 'if (!complete)\n            return;',
    to: '',
    place: 1,
  },
  {
    name: 'start from the maximum',
    file: 'takeover',
    from: 'Math.min(base, follower.applied)',
    to: 'Math.max(base, follower.applied)',
  },
  { name: 'no roll-back', file: 'sink', from: 'this.native.apply(this.slotOf(m), entry.delta);', to: '' },
  { name: 'accumulators survive', file: 'sink', from: 'this.native.dropAccumulators();', to: '' },
  {
    name: 'roll back into the de-duplication table',
    file: 'sink',
    from: 'member.log.pop();',
    to: 'for (const id of member.log.pop().ids) member.dedup.record(id);',
  },
  {
    name: 'publish a map before it is durable',
    file: 'scheduler',
    from: 'this.held.push({ version: this.version, effects: this.gated });',
    to: 'this.effects.push(...this.gated);',
  },
  {
    name: 'a restarted node counts as the one that died',
    file: 'scheduler',
    from: '!member.dead && member.inc === inc',
    to: '!member.dead',
  },
  {
    name: 'messages for an older generation reach the new owner',
    file: 'node',
    from: 'owner?.gen === message.gen ? owner : undefined',
    to: 'owner',
  },
  {
    name: 'lacking of an older version',
    file: 'sink',
    from: 'message.seq !== member.applied || message.v !== this.group.version',
    to: 'message.seq !== member.applied',
  },
  {
    name: 'a push waits without its bytes',
    file: 'lines',
    from: 'this.lines.set(client, [{ cseq, section: section.slice() }]);',
    to: 'this.lines.set(client, [{ cseq, section }]);',
  },
  { name: 'a log without its bytes', file: 'sink', from: 'delta: delta.slice()', to: 'delta' },
  {
    name: 'call lost what only an old map has lost',
    file: 'recovery',
    from: 'this.reportedAt = this.host.now;',
    to: 'this.reportedAt = this.host.now; this.confirm();',
  },
  {
    name: 'move: cut over before the mirror is full',
    file: 'placement',
    from: 'else if (this.view.full(mirror.sid) && isHealthy(this.current(), this.pool, this.view))',
    to: 'else',
  },
  {
    name: 'move: the mirror is not followed',
    file: 'owner',
    from: "s.kind === 'P' || s.index === this.member",
    to: "s.kind === 'P'",
  },
  {
    name: 'move: drop the old parity before the new one is full',
    file: 'placement',
    from: '!this.view.full(newer.sid) ||',
    to: '',
  },
  {
    name: 'move: what a mirror holds counts as lacking',
    file: 'owner',
    from: 'if (this.stream.usableMirror)',
    to: 'if (false)',
  },
  {
    name: 'move: the new owner keeps the generation',
    file: 'placement',
    from: 'inc: mirror.inc, gen: this.epoch, init: false',
    to: 'inc: mirror.inc, gen: this.data[m].gen, init: false',
  },
];

const dist = join(dirname(fileURLToPath(import.meta.url)), '..');
/** Below the project, so that packages resolve as usual. */
const scratch = join(dist, '../build/mutants');

function plant(mutant: Mutant, folder: string): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  cpSync(dist, folder, { recursive: true });
  const path = join(folder, 'core', `${mutant.file}.js`);
  const text = readFileSync(path, 'utf8');
  const parts = text.split(mutant.from);
  const place = mutant.place ?? 0;
  const expected = mutant.place === undefined ? parts.length === 2 : parts.length > place + 1;
  if (!expected)
    throw new Error(`mutant "${mutant.name}": its text is ${parts.length - 1} times in ${mutant.file}.js`);
  const before = parts.slice(0, place + 1).join(mutant.from);
  const after = parts.slice(place + 1).join(mutant.from);
  writeFileSync(path, before + mutant.to + after);
}

interface Caught {
  mutant: Mutant;
  by: string | undefined;
  seconds: number;
}

function hunt(mutant: Mutant, seconds: number, seed: number): Promise<Caught> {
  const folder = join(scratch, mutant.name.replace(/\W+/g, '-'));
  plant(mutant, folder);
  const args = [
    join(folder, 'sim/main.js'),
    '--seed',
    `${seed}`,
    '--seconds',
    `${seconds}`,
    '--max-violations',
    '1',
  ];
  const started = process.hrtime.bigint();
  return new Promise((resolve) => {
    const env = { ...process.env, KINTSUGI_ADDON: join(dist, '../build/Release/kintsugi.node') };
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe'], env });
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    // A mutant may hang a single schedule for ever: that is caught, too, by the absence of an end.
    const timer = setTimeout(() => child.kill('SIGKILL'), (seconds + 60) * 1000);
    child.on('close', (code) => {
      clearTimeout(timer);
      rmSync(folder, { recursive: true, force: true });
      const taken = Number(process.hrtime.bigint() - started) / 1e9;
      const by = code === 0 ? undefined : (errors.split('\n')[0] ?? '') || 'it hangs';
      resolve({ mutant, by, seconds: taken });
    });
  });
}

/** Hunts every mutant, two at a time. Returns the number that survived. */
export async function huntMutants(seconds: number, seed: number, only?: string): Promise<number> {
  const queue = MUTANTS.filter((mutant) => only === undefined || mutant.name.includes(only));
  const count = queue.length;
  let survived = 0;
  const hunter = async () => {
    for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
      const { by, seconds: taken } = await hunt(mutant, seconds, seed);
      if (by === undefined) survived++;
      const verdict = by === undefined ? 'SURVIVED' : `caught: ${by.slice(0, 140)}`;
      console.log(`${mutant.name} (${taken.toFixed(1)} s): ${verdict}`);
    }
  };
  await Promise.all([hunter(), hunter()]);
  console.log(`${count - survived} of ${count} mutants caught`);
  return survived;
}
