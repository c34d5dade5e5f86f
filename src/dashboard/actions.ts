/** The buttons: what each asks the job for, the command that does the same, and how it went. */
import type { Client } from '../client/client.js';
import { describe, KintsugiError } from '../errors.js';
import { checkFields, checkInteger, checkText } from '../options.js';
import type { ChangeStatus } from '../protocol/messages.js';
import { drain, rebalance, scale } from '../tools/scaling.js';
import type { ActionView } from './view.js';

/** As the commands have it: a change without progress for so long is taken back. */
const CHANGE_LIMIT_MS = 60_000;
/** Kept to be shown, running ones beyond it. */
const MAX_SHOWN = 20;
/** More at once are refused. */
const MAX_RUNNING = 16;

/** What can be asked for, as the body of a POST. */
export type Action =
  | { do: 'drain'; node: string }
  | { do: 'scale'; ps: number }
  | { do: 'rebalance' }
  | { do: 'checkpoint' };

/** @throws BAD_ARGUMENT */
export function actionOf(kind: string, body: unknown): Action {
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new KintsugiError('BAD_ARGUMENT', 'the body is no object');
  if (kind === 'drain') {
    checkFields(kind, body, { node: true });
    const { node } = body as { node: string };
    checkText('drain: node', node);
    return { do: 'drain', node };
  }
  if (kind === 'scale') {
    checkFields(kind, body, { ps: true });
    const { ps } = body as { ps: number };
    checkInteger('scale: ps', ps, 1);
    return { do: 'scale', ps };
  }
  if (kind === 'rebalance' || kind === 'checkpoint') {
    checkFields(kind, body, {});
    return { do: kind };
  }
  throw new KintsugiError('BAD_ARGUMENT', `there is no "${kind}"`);
}

/** For a shell. */
const quoted = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** The command that does the same. `flags`: how to reach the scheduler. */
export function commandOf(action: Action, flags: readonly string[]): string {
  const what = {
    drain: () => ['drain', (action as { node: string }).node],
    scale: () => ['scale', '--ps', `${(action as { ps: number }).ps}`],
    rebalance: () => ['rebalance'],
    checkpoint: () => ['checkpoint', 'now'],
  }[action.do]();
  return ['kintsugi', ...what, ...flags].map(quoted).join(' ');
}

/** What was asked for, the newest first. */
export class Actions {
  private readonly list: ActionView[] = [];
  private next = 1;

  constructor(
    private readonly flags: readonly string[],
    private readonly client: () => Client,
    private readonly onChange: () => void,
  ) {}

  get shown(): ActionView[] {
    return this.list;
  }

  /** Begins it; how it goes is in {@link shown}. @throws LIMIT, UNREACHABLE */
  begin(action: Action): ActionView {
    if (this.list.filter((each) => each.state === 'running').length >= MAX_RUNNING)
      throw new KintsugiError('LIMIT', `${MAX_RUNNING} things are under way: wait for one of them`);
    const client = this.client();
    const command = commandOf(action, this.flags);
    const view: ActionView = { id: this.next++, at: Date.now(), command, state: 'running', text: '' };
    this.list.unshift(view);
    while (this.list.length > MAX_SHOWN && this.list.at(-1)!.state !== 'running') this.list.pop();
    this.perform(client, action, (text) => this.change(view, 'running', text)).then(
      (text) => this.change(view, 'done', text),
      (error: unknown) => {
        const code = error instanceof KintsugiError ? `${error.code}: ` : '';
        this.change(view, 'failed', `${code}${describe(error)}`);
      },
    );
    this.onChange();
    return view;
  }

  private change(view: ActionView, state: ActionView['state'], text: string): void {
    view.state = state;
    view.text = text;
    this.onChange();
  }

  private async perform(client: Client, action: Action, tell: (text: string) => void): Promise<string> {
    const options = {
      timeoutMs: CHANGE_LIMIT_MS,
      onProgress: (change: ChangeStatus) => tell(progressText(change)),
    };
    if (action.do === 'checkpoint') {
      const { number, rows } = await client.checkpoint();
      return `checkpoint ${number} has ${rows.toLocaleString('en-US')} rows`;
    }
    if (action.do === 'drain') await drain(client, action.node, options);
    else if (action.do === 'scale') await scale(client, action.ps, options);
    else await rebalance(client, options);
    if (action.do === 'drain') return `${action.node} has left`;
    return action.do === 'scale' ? `${action.ps} PS serve` : 'balanced';
  }
}

function progressText({ reason, shardsMoved, shardsMoving, shardsLeft }: ChangeStatus): string {
  if (reason !== '') return reason;
  const all = shardsMoved + shardsMoving + shardsLeft;
  return all === 0 ? '' : `${shardsMoved} of ${all} shards moved`;
}
