/** The parts of a client that tools, workers and benchmarks of this project use beyond its public methods. */
import type { ClientRequests } from './calls.js';
import type { Session } from './session.js';

export interface ClientInternals {
  readonly session: Session;
  readonly requests: ClientRequests;
}
