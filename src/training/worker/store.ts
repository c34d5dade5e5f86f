/**
 * The client as the store of the training loop. A job that is resumed may have tables with other settings
 * than this worker: rule 46 says which of the two holds.
 */

import { KintsugiError } from '../../common/errors.js';
import {
  fixedSettingOf,
  type OptimizerSpec,
  onlyKnownOptimizer,
  SETTING_FLAGS,
  type Setting,
  settingText,
} from '../../engine/optimizers.js';
import { isSamePolicy, policyText } from '../../engine/policies.js';
import type { Client, Table } from '../../library/client/client.js';
import { type ResumedTable, resumeTables } from '../../library/client/connected.js';
import { saidWhile } from '../../net/repeats.js';
import type { TableSpec } from '../../protocol/map.js';
import { differingSettings, oldSettingText } from '../../protocol/settings.js';
import type { Model, ModelTable, ParameterStore, PushUpdate, RowsToPull } from '../models/trainer.js';
import type { WorkerOptions } from './options.js';

/** The scheduler answers at once where no setting is asked for. */
const WAITS =
  'every owner of a shard must have the settings of the tables before training begins, and some ' +
  'do not answer: "kintsugi doctor" says which PS are missing';

export class WorkerStore implements ParameterStore {
  /** The tables of the model, with all settings that this worker asks for. */
  private asked: ResumedTable[] = [];
  private tables: Table[] = [];

  constructor(
    private readonly client: Client,
    private readonly model: Model,
    private readonly options: WorkerOptions,
  ) {}

  /** Creates those that are not there. Nothing of the others changes. @throws what `createTables` throws */
  async createTables(given: ModelTable[]): Promise<void> {
    const { tablePolicy } = this.options;
    this.asked = given.map((spec) => ({
      ...(tablePolicy && this.isEmbedding(spec) && { policy: tablePolicy }),
      ...spec,
      set: this.askedOf(spec),
    }));
    const there = new Map(this.client.tables().map((table) => [table.name, table]));
    if (this.options.epochs === 0) checkThere(given, there);
    // The scheduler refuses a setting that a table keeps as long as it lives, but only where it is asked for.
    const refused = ({ name, optimizer, set }: ResumedTable): Setting[] => {
      const known = there.get(name);
      return known ? set.filter((each) => fixedSettingOf(each, known.optimizer, optimizer!)) : [];
    };
    this.tables = await this.resume(this.asked.map((spec) => ({ ...spec, set: refused(spec) })));
  }

  /**
   * Sets what this worker asks for, unless `left` says that its run has no samples left; tells of all tables
   * that have something else than this worker was given. @throws what `createTables` throws
   */
  async set(left: boolean): Promise<void> {
    const asked = this.asked.map((spec) => (left ? spec : { ...spec, set: [] }));
    if (asked.some(({ set }) => set.length > 0)) this.tables = await this.resume(asked);
    for (const [i, { name, spec }] of this.tables.entries()) this.tell(name, spec, asked[i]!);
  }

  pull(requests: RowsToPull[]): Promise<Float32Array[]> {
    return this.client.pull(requests);
  }

  push(updates: PushUpdate[]): Promise<void> {
    return this.client.push(updates);
  }

  private resume(asked: readonly ResumedTable[]): Promise<Table[]> {
    const { log } = this.options;
    return saidWhile(resumeTables(this.client, asked), (repeated) =>
      log.warn('worker.waits', { message: WAITS, repeated }),
    );
  }

  private isEmbedding({ name }: ModelTable): boolean {
    return this.model.tables.some((table) => table.name === name);
  }

  /** A worker cannot ask for no clipping and no schedule: where it names none, the table keeps its own. */
  private askedOf(spec: ModelTable): Setting[] {
    const { epochs, askedRates, modelOptions } = this.options;
    if (epochs === 0) return [];
    const { optimizer, denseOptimizer } = modelOptions;
    const { lr } = spec.optimizer;
    const [usual, isFlag] = this.isEmbedding(spec)
      ? [optimizer.lr, askedRates.embedding]
      : [denseOptimizer.lr, askedRates.dense];
    const extras = (['clipNorm', 'schedule'] as const).filter((name) => spec.optimizer[name] !== undefined);
    return isFlag || lr !== usual ? ['lr', ...extras] : extras;
  }

  private tell(name: string, spec: TableSpec, { optimizer, policy, set }: ResumedTable): void {
    const { log } = this.options;
    const wanted = onlyKnownOptimizer(optimizer!);
    for (const setting of differingSettings(wanted, spec.optimizer)) {
      const [now, given] = [spec.optimizer, wanted].map((each) => settingText(each[setting]));
      const fields = { table: name, [setting]: now, asked: given };
      if (!set.includes(setting)) log.info('worker.setting', fields);
      else log.warn('worker.setting', { ...fields, message: keptText(spec, setting, wanted) });
    }
    // The table had it before: any other is refused.
    if (policy && spec.policy && !isSamePolicy(policy, spec.policy))
      log.info('worker.setting', {
        ...{ table: name, policy: policyText(spec.policy), asked: policyText(policy) },
      });
  }
}

/** An evaluation creates nothing: it would be one of initial values. @throws UNKNOWN_TABLE */
function checkThere(given: readonly ModelTable[], there: ReadonlyMap<string, unknown>): void {
  const lacking = given.find(({ name }) => !there.has(name));
  if (!lacking) return;
  const why = 'it was trained with another model or schema, or not at all';
  throw new KintsugiError('UNKNOWN_TABLE', `the job has no table "${lacking.name}": ${why}`);
}

function keptText(table: TableSpec, setting: Setting, asked: OptimizerSpec): string {
  const why = oldSettingText(table, setting, asked[setting]) ?? `got another ${setting} meanwhile`;
  const given = `${SETTING_FLAGS[setting]}=${settingText(asked[setting])}`;
  return `the table ${why}: "kintsugi table set ${table.name} ${given}" sets it all the same`;
}
