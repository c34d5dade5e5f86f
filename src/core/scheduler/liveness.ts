/**
 * What the scheduler knows of a node's process: soft, it comes back with connections and heartbeats (rule
 * 29).
 */

export interface Member {
  inc: number;
  connected: boolean;
  dead: boolean;
  /** Would be given up, if the data could do without it. */
  suspected: boolean;
  heardAt: number;
  closedAt: number;
}

export function newMember(inc: number, now: number): Member {
  return {
    inc,
    connected: false,
    dead: false,
    suspected: false,
    heardAt: now,
    closedAt: now,
  };
}
