/** Limits that an error LIMIT names. docs/limits.md has each: its default, and what it bounds. */
export const LIMIT_NAMES = [
  'checkpointBytes',
  'maxActions',
  'maxBodiesBytes',
  'maxBodyBytes',
  'maxBufferedBytes',
  'maxCheckAttempts',
  'maxCheckpointNumber',
  'maxDatasets',
  'maxDigestAttempts',
  'maxFrameBytes',
  'maxHeaderBytes',
  'maxHeldEffects',
  'maxManifestBytes',
  'maxParked',
  'maxParts',
  'maxPlans',
  'maxReadBytes',
  'maxReceivedBytes',
  'maxRequestBytes',
  'maxRowsBytes',
  'maxScans',
  'maxSectionBytes',
  'maxSessions',
  'maxSpecified',
  'maxStatusQuestions',
  'maxTables',
  'maxToldEvents',
  'receiveWindowBytes',
] as const;
export type LimitName = (typeof LIMIT_NAMES)[number];

/**
 * Text of an error LIMIT, by which a user finds the limit in docs/limits.md.
 * @param value undefined: whoever makes the text does not know it
 */
export function limitText(text: string, name: LimitName, value?: number): string {
  return `${text} (${name}${value === undefined ? '' : ` = ${value}`})`;
}
