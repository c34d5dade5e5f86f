/** Every bug that is planted, by its room. */
import { ANSWER_MUTANTS } from './answers.js';
import { CONTENT_MUTANTS } from './content.js';
import { COUNT_MUTANTS } from './counts.js';
import { DATA_MUTANTS } from './data.js';
import { DROP_MUTANTS } from './drops.js';
import { EVICTION_MUTANTS } from './evictions.js';
import { FILTER_MUTANTS } from './filters.js';
import { LIFE_MUTANTS } from './life.js';
import { MOVE_MUTANTS } from './moves.js';
import type { Mutant } from './mutant.js';
import { PURGE_MUTANTS } from './purge.js';
import { RECEIVED_MUTANTS } from './received.js';
import { REPLICA_MUTANTS } from './replicas.js';
import { SAVING_MUTANTS } from './saving.js';
import { SCHEDULER_MUTANTS } from './scheduling.js';
import { SCORE_MUTANTS } from './scores.js';
import { SENDER_MUTANTS } from './senders.js';
import { SETTING_MUTANTS } from './settings.js';
import { STORAGE_MUTANTS } from './storage.js';
import { STREAM_MUTANTS } from './streams.js';
import { TIME_MUTANTS } from './time.js';
import { TURN_MUTANTS } from './turns.js';
import { VANISHING_MUTANTS } from './vanishing.js';

export const MUTANTS: readonly Mutant[] = [
  ...STREAM_MUTANTS,
  ...MOVE_MUTANTS,
  ...SCHEDULER_MUTANTS,
  ...DATA_MUTANTS,
  ...SENDER_MUTANTS,
  ...STORAGE_MUTANTS,
  ...SAVING_MUTANTS,
  ...REPLICA_MUTANTS,
  ...VANISHING_MUTANTS,
  ...ANSWER_MUTANTS,
  ...CONTENT_MUTANTS,
  ...RECEIVED_MUTANTS,
  ...TURN_MUTANTS,
  ...SETTING_MUTANTS,
  ...DROP_MUTANTS,
  ...FILTER_MUTANTS,
  ...LIFE_MUTANTS,
  ...EVICTION_MUTANTS,
  ...COUNT_MUTANTS,
  ...SCORE_MUTANTS,
  ...TIME_MUTANTS,
  ...PURGE_MUTANTS,
];
