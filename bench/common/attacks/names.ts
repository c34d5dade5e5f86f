/** Names of the attacks, in the order of the documents. */
export const ATTACK_NAMES = [
  'wide-pulls',
  'never-read',
  'recovery',
  'many-tables',
  'idle-connections',
  'stalled-replicas',
  'slow-place',
  'stopped-program',
] as const;
export type AttackName = (typeof ATTACK_NAMES)[number];
