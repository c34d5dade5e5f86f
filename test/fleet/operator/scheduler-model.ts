/**
 * A model of the preferences of the scheduler of Kubernetes: `ScheduleAnyway` constraints and preferred
 * anti-affinity, each of the same weight.
 */
import type { ObjectManifest, PodSpec } from '../../../src/fleet/operator/objects.js';

type Labels = Readonly<Record<string, string>>;
interface Constraint {
  topologyKey: string;
  labelSelector: { matchLabels: Labels };
}
interface Preference {
  weight: number;
  podAffinityTerm: Constraint;
}

/** A machine by its labels. */
export interface Machine {
  labels: Labels;
  pods: ObjectManifest[];
}

const fits = (pod: ObjectManifest, { labelSelector }: Constraint): boolean =>
  Object.entries(labelSelector.matchLabels).every(([key, value]) => pod.metadata.labels?.[key] === value);

const preferencesOf = ({ spec }: ObjectManifest): Preference[] => {
  const { podAntiAffinity } = ((spec as PodSpec).affinity ?? {}) as {
    podAntiAffinity?: { preferredDuringSchedulingIgnoredDuringExecution: Preference[] };
  };
  return podAntiAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? [];
};

/** Scores from 0 to 100; 0 for all where there is no difference. */
function normal(scores: readonly number[]): number[] {
  const [least, most] = [Math.min(...scores), Math.max(...scores)];
  return scores.map((score) => (most === least ? 0 : Math.floor((100 * (score - least)) / (most - least))));
}

/** Pods that spread counts. Machines without all of the keys count nothing and get nothing. */
function spreadScores(pod: ObjectManifest, machines: readonly Machine[]): number[] {
  const constraints = ((pod.spec as PodSpec).topologySpreadConstraints ?? []) as Constraint[];
  const counts = (one: Machine) => constraints.every(({ topologyKey }) => topologyKey in one.labels);
  const all = machines.filter(counts);
  const crowd = (machine: Machine): number =>
    constraints.reduce((sum, constraint) => {
      const { topologyKey: key } = constraint;
      const near = all.filter(({ labels }) => labels[key] === machine.labels[key]);
      const sizes = new Set(all.map(({ labels }) => labels[key])).size;
      const there = near.flatMap(({ pods }) => pods).filter((one) => fits(one, constraint)).length;
      return sum + there * Math.log(sizes + 2);
    }, 0);
  const most = Math.max(0, ...all.map(crowd));
  const least = Math.min(...all.map(crowd));
  return machines.map((one) => {
    if (constraints.length === 0 || !counts(one)) return 0;
    return most === 0 ? 100 : Math.floor((100 * (most + least - crowd(one))) / most);
  });
}

/** Scores by what Pods that are there, and the one that comes, have against each other. */
function aversion(pod: ObjectManifest, machines: readonly Machine[]): number[] {
  const against = (one: ObjectManifest, other: ObjectManifest, here: Labels, there: Labels): number =>
    preferencesOf(one)
      .filter(({ podAffinityTerm: term }) => fits(other, term))
      .filter(({ podAffinityTerm: { topologyKey: key } }) => key in here && here[key] === there[key])
      .reduce((sum, { weight }) => sum + weight, 0);
  const scores = machines.map(({ labels }) =>
    machines
      .flatMap((there) => there.pods.map((other) => ({ other, labels: there.labels })))
      .reduce(
        (sum, { other, labels: others }) =>
          sum - against(pod, other, labels, others) - against(other, pod, labels, others),
        0,
      ),
  );
  return normal(scores);
}

/** Puts the Pod on the machine with the best score; of equal ones on the first. */
export function place(pod: ObjectManifest, machines: readonly Machine[]): void {
  const spread = spreadScores(pod, machines);
  const averse = aversion(pod, machines);
  const scores = machines.map((_, index) => spread[index]! + averse[index]!);
  machines[scores.indexOf(Math.max(...scores))]!.pods.push(pod);
}
