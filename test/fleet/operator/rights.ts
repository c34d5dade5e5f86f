/** Rights of the operator, as deploy/operator.yaml has them. */
import { readFileSync } from 'node:fs';
import { loadAll } from 'js-yaml';
import { RESOURCES, type ResourceKind } from '../../../src/fleet/operator/api/resources.js';

interface Rule {
  apiGroups: string[];
  resources: string[];
  verbs: string[];
}

const yaml = readFileSync(new URL('../../../deploy/operator.yaml', import.meta.url), 'utf8');
const rules = (loadAll(yaml) as { kind: string; rules?: Rule[] }[]).flatMap(({ rules: own }) => own ?? []);

/** Whether the operator may do this, with objects of the kind or with a part of them. */
export function may(verb: string, kind: ResourceKind, part?: string): boolean {
  const { apiVersion, plural } = RESOURCES[kind];
  const group = apiVersion.includes('/') ? apiVersion.split('/')[0]! : '';
  const resource = part === undefined ? plural : `${plural}/${part}`;
  return rules.some(
    ({ apiGroups, resources, verbs }) =>
      apiGroups.includes(group) && resources.includes(resource) && verbs.includes(verb),
  );
}
