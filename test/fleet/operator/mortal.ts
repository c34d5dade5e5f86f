/** Operators in memory that are killed after a write, before they have the answer, and those that follow. */
import type { Api, Selection, WatchEvent } from '../../../src/fleet/operator/api/api.js';
import type { ResourceKind } from '../../../src/fleet/operator/api/resources.js';
import type { KubeObject } from '../../../src/fleet/operator/objects.js';
import type { World } from './world.js';

/** A process is gone: nothing that it asks for is answered. */
const never = <T>(): Promise<T> => new Promise(() => {});

/** A write of an operator: its verb, and the kind that it concerns. */
export type IsLast = (verb: string, kind: ResourceKind) => boolean;

/** The API server for one operator, until that is killed after a write. */
function mortal(world: World, isLast: IsLast, onKill: () => void): Api {
  const { server } = world;
  const dead = new AbortController();
  const read = <T>(ask: () => Promise<T>): Promise<T> =>
    dead.signal.aborted ? never() : ask().then((answer) => (dead.signal.aborted ? never<T>() : answer));
  const write = async <T>(verb: string, kind: ResourceKind, ask: () => Promise<T>): Promise<T> => {
    if (dead.signal.aborted) return never();
    const last = isLast(verb, kind);
    const done = ask();
    if (!last) return read(() => done);
    dead.abort();
    await done.catch(() => {});
    onKill();
    return never();
  };
  return {
    list: (...args) => read(() => server.list(...args)),
    get: (...args) => read(() => server.get(...args)),
    async *watch<T extends KubeObject>(
      kind: ResourceKind,
      selection: Selection,
      version: string,
      signal: AbortSignal,
    ): AsyncGenerator<WatchEvent<T>> {
      const both = AbortSignal.any([signal, dead.signal]);
      if (!dead.signal.aborted) yield* server.watch<T>(kind, selection, version, both);
      if (dead.signal.aborted) await never();
    },
    create: (kind, object, options) =>
      options?.dryRun
        ? read(() => server.create(kind, object, options))
        : write('create', kind, () => server.create(kind, object)),
    replace: (...args) => write('replace', args[0], () => server.replace(...args)),
    patchStatus: (...args) => write('patch', args[0], () => server.patchStatus(...args)),
    apply: (kind, object) => write('apply', kind, () => server.apply(kind, object)),
    delete: (...args) => write('delete', args[0], () => server.delete(...args)),
  };
}

/** Says of each life after how many writes, or after which one, it ends. */
type Lives = (life: number) => number | IsLast;

const counting = (count: number): IsLast => {
  let left = count;
  return () => --left === 0;
};

/** Begins operators, each of which is killed after a write. The last one lives. */
export async function mortals(world: World, lives: Lives) {
  let [life, over] = [0, false];
  const next = async (): Promise<void> => {
    if (over) return;
    const until = lives(life++);
    const isLast = typeof until === 'number' ? counting(until) : until;
    const api = mortal(world, isLast, () => setImmediate(() => void next()));
    await world.begin(api).start();
  };
  await next();
  return {
    killed: () => life - 1,
    end() {
      over = true;
      // An operator that was killed never ends its last pass.
      void world.operator.stop();
    },
  };
}
