/**
 * What tools, workers and benchmarks of this project need of a client beyond its public methods. Users of the
 * library cannot get hold of it: it is no part of `Client`.
 */
import { KintsugiError } from '../errors.js';
import type { Requests } from './requests.js';
import type { Session } from './session.js';

export interface ClientInternals {
  readonly session: Session;
  readonly requests: Requests;
}

const known = new WeakMap<object, ClientInternals>();

/** For the constructor of `Client` only. */
export function keepInternals(client: object, internals: ClientInternals): void {
  known.set(client, internals);
}

/** The internals of a `Client`. @throws BAD_ARGUMENT for anything else */
export function internalsOf(client: object): ClientInternals {
  const internals = known.get(client);
  if (!internals) throw new KintsugiError('BAD_ARGUMENT', 'client must be what connect has given');
  return internals;
}
