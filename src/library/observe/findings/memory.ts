/** Memory of a PS that is nearly used up, or will be soon if it goes on growing as it does. */
import { theilSen } from '../../../common/statistics.js';
import { type FindingRule, mib, percent } from './finding.js';

const FULL = 0.85;
/** Looks that a slope needs. */
const POINTS = 4;
/** A memory limit that is reached within this time is a finding. */
const SOON_SECONDS = 3600;
/** So much growth may be noise. */
const LEAST_GROWTH = 2 ** 20;

export const memory: FindingRule = ({ history, newest }) =>
  newest.nodes.flatMap(({ id, name, telemetry }) => {
    const { limitBytes, usedBytes } = telemetry.memory;
    if (limitBytes === 0) return [];
    const points = history.flatMap((look): [number, number][] => {
      const node = look.nodes.find((other) => other.id === id);
      return node ? [[look.at / 1000, node.telemetry.memory.usedBytes]] : [];
    });
    const grown = usedBytes - (points[0]?.[1] ?? usedBytes);
    const slope = points.length >= POINTS && grown >= LEAST_GROWTH ? theilSen(points) : 0;
    const lasts = slope > 0 ? (limitBytes - usedBytes) / slope : Number.POSITIVE_INFINITY;
    const isFull = usedBytes >= FULL * limitBytes;
    if (!isFull && lasts > SOON_SECONDS) return [];
    const growth = Number.isFinite(lasts)
      ? `; it grows by ${mib(slope)}/s and lasts for ${Math.max(0, Math.round(lasts / 60))} minutes`
      : '';
    return [
      {
        code: 'memory',
        severity: lasts < SOON_SECONDS || usedBytes >= 0.97 * limitBytes ? 'error' : 'warning',
        subject: name,
        evidence:
          `${mib(usedBytes)} of ${mib(limitBytes)} are used, ` +
          `${percent(usedBytes / limitBytes)}${growth}`,
        advice: 'kintsugi scale --add 1 before pushes are refused with MEMORY_LIMIT',
      },
    ];
  });
