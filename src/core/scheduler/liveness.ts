/**
 * What the scheduler knows of a node's process: soft, it comes back with connections and heartbeats (rule
 * 29).
 */

export interface NodeLiveness {
  inc: number;
  connected: boolean;
  dead: boolean;
  /** Would be given up, if the data could do without it. */
  suspected: boolean;
  heardAt: number;
  closedAt: number;
}

export function newLiveness(inc: number, now: number): NodeLiveness {
  return {
    inc,
    connected: false,
    dead: false,
    suspected: false,
    heardAt: now,
    closedAt: now,
  };
}
